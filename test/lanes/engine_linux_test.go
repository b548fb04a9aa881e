package lanes

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/fixtures"
)

const regionBytes = 64 << 20

var token = []byte("the token of the lanes lab")

// topology is one end of the lab as discovery would find it on real hardware: a
// NIC for each lane. It promises 1 Gbit/s of each; what the lab makes of that is
// for the engine to find out.
func topology(end string, lanes int, addr func(int) netip.Addr) (*topo.Topology, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `machine: lab-%s
description: one end of the lab
host: {arch: x86_64, kernel: 6.8.0, vendor: Lab, product: Lab, name: %s}
cpu: {vendor: GenuineIntel, family: 6, model: 85, name: Lab, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-1, mem: 8GiB, distance: [10]}
pci:
- root: 0000:00
  numa: 0
  below:
`, end, end)
	for i := range lanes {
		fmt.Fprintf(&b, "  - port: 00:%02x.0\n    part: intel-port-gen3\n    link: gen3x8\n    below: [{nic: %02x:00.0, part: x710, net: %s%d, gbps: 1, ip: %s/24}]\n", i+1, i+1, end, i, addr(i))
	}
	tree, err := fixtures.OpenFile([]byte(b.String()))
	if err != nil {
		return nil, err
	}
	return discover.Discover(context.Background(), discover.Options{FS: tree})
}

// farEngine is the engine of the far process, with one region.
type farEngine struct {
	e *engine.Engine
	r *engine.Region
}

func (f *farSide) startEngine(a ask) (answer, error) {
	t, err := topology("far", a.Lanes, farAddr)
	if err != nil {
		return answer{}, err
	}
	e, err := engine.New(context.Background(), engine.Options{
		Name: "far", Listen: []string{":0"}, Security: engine.Security{Credentials: trust.Secret(token)}, Ports: engine.Ports{Topology: t}, Transports: []engine.TransportFactory{engine.TCP()},
	})
	if err != nil {
		return answer{}, err
	}
	r, err := e.Alloc(regionBytes, engine.RegionOptions{Name: "region", Grant: memory.PeerRead | memory.PeerWrite, Location: "cpu:0"})
	if err != nil {
		e.Close()
		return answer{}, err
	}
	f.engine = &farEngine{e, r}
	return answer{Address: netip.AddrPortFrom(farAddr(0), e.Addrs()[0].Port()).String()}, nil
}

// content fills or compares a range of the region.
func (f *farEngine) content(a ask) (answer, error) {
	if a.Offset < 0 || a.Bytes < 0 || a.Offset+a.Bytes > regionBytes {
		return answer{}, fmt.Errorf("%d bytes at %d", a.Bytes, a.Offset)
	}
	b := f.r.Bytes()[a.Offset : a.Offset+a.Bytes]
	if a.Do == "fill" {
		fill(b, a.Seed)
		return answer{}, nil
	}
	return answer{Wrong: wrong(b, a.Seed)}, nil
}

// fill writes a stream that hangs on the seed.
func fill(b []byte, seed uint64) {
	x := (seed + 1) * 0x9e3779b97f4a7c15
	var word [8]byte
	for len(b) > 0 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		b = b[copy(b, word[:]):]
	}
}

// wrong counts the bytes that are not those of fill.
func wrong(b []byte, seed uint64) (n int64) {
	want := make([]byte, len(b))
	fill(want, seed)
	if bytes.Equal(b, want) {
		return 0
	}
	for i := range b {
		if b[i] != want[i] {
			n++
		}
	}
	return n
}
