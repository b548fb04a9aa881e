package lanes

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/replay"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/pathsel"
)

// located is one end of a lab of two lanes, with a GPU beside the NIC of each.
func located(end string, addr func(int) netip.Addr) (*topo.Topology, error) {
	var b strings.Builder
	fmt.Fprintf(&b, `machine: lab-%s
description: one end of the lab
host: {arch: x86_64, kernel: 6.8.0, vendor: Lab, product: Lab, name: %s}
cpu: {vendor: GenuineIntel, family: 6, model: 85, name: Lab, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0, mem: 8GiB, distance: [10, 20]}
- {node: 1, package: 1, cpus: 1, mem: 8GiB, distance: [20, 10]}
nvidia: {driver: 535.161.08, cuda: 12.2}
pci:
`, end, end)
	for i := range 2 {
		bus := i + 1
		fmt.Fprintf(&b, `- root: 0000:%[1]d0
  numa: %[2]d
  below:
  - port: %[1]d0:02.0
    part: intel-port-gen4
    below:
    - switch: %[1]d1:00.0
      part: broadcom-c010
      below:
      - {down: %[1]d2:00.0, below: [{gpu: %[1]d3:00.0, part: a10}]}
      - {down: %[1]d2:04.0, below: [{nic: %[1]d4:00.0, part: x710, net: %[3]s%[2]d, gbps: 1, ip: %[4]s/24}]}
`, bus, i, end, addr(i))
	}
	tree, err := fixtures.OpenFile([]byte(b.String()))
	if err != nil {
		return nil, err
	}
	return discover.Discover(context.Background(), discover.Options{FS: tree})
}

// gpuRegion is the name of the region that the far engine has at a GPU.
func gpuRegion(i int) string { return fmt.Sprintf("gpu%d", i) }

// startLocated is startEngine with a region at each GPU.
func (f *farSide) startLocated() (answer, error) {
	t, err := located("far", farAddr)
	if err != nil {
		return answer{}, err
	}
	e, err := engine.New(context.Background(), engine.Options{
		Name: "far", Listen: []string{":0"}, Token: token, Ports: engine.Ports{Topology: t}, Transports: []engine.TransportFactory{engine.TCP()},
	})
	if err != nil {
		return answer{}, err
	}
	f.engine = &farEngine{e: e}
	for i := range 2 {
		if _, err := e.Alloc(regionBytes, engine.RegionOptions{Name: gpuRegion(i), Grant: memory.PeerRead | memory.PeerWrite, Location: gpuAt(i)}); err != nil {
			return answer{}, err
		}
	}
	return answer{Address: netip.AddrPortFrom(farAddr(0), e.Addrs()[0].Port()).String()}, nil
}

func gpuAt(i int) pathsel.Location { return pathsel.Location(fmt.Sprintf("gpu:%d", i)) }

// The bytes of each rank go over the lane beside its memory, where the policy takes the nearest one only.
func TestKVPlaces(t *testing.T) {
	l := newLab(t, 400, 400)
	top, err := located("near", nearAddr)
	l.must("topology", err)
	far := l.far.ask(ask{Do: "located"})
	for _, tt := range []struct {
		ranks  []int    // the GPU of each
		halves [2]int64 // of all bytes, by lane
	}{
		{[]int{0, 1}, [2]int64{1, 1}}, {[]int{1}, [2]int64{0, 2}}, {[]int{0}, [2]int64{2, 0}},
	} {
		e, err := engine.New(t.Context(), engine.Options{Name: "near", Token: token, Ports: engine.Ports{Topology: top}, Policy: string(pick.First), Transports: []engine.TransportFactory{engine.TCP()}})
		l.must("engine", err)
		t.Cleanup(func() { e.Close() })
		peer, err := e.Open(t.Context(), far.Address)
		l.must("open", err)
		o := replay.Options{Serve: kvServe(t), Check: true, Local: make([][]*engine.Region, 1), Remote: make([][]*engine.RemoteRegion, 1)}
		side := kv.Side{TP: len(tt.ranks), PageTokens: 16}
		o.Serve.Cache, err = kv.New(kvModel, side, side)
		l.must("layout", err)
		for _, gpu := range tt.ranks {
			local, err := e.Alloc(regionBytes, engine.RegionOptions{Location: gpuAt(gpu)})
			l.must("alloc", err)
			remote, err := peer.Region(t.Context(), gpuRegion(gpu))
			l.must("region", err)
			o.Local[0], o.Remote[0] = append(o.Local[0], local), append(o.Remote[0], remote)
		}
		o.Workload, err = kv.Generate(kv.Spec{Requests: 4, Seed: 1, Arrivals: kv.Arrivals{Concurrency: 2}, Input: kv.Fixed(256), Output: kv.Fixed(1)})
		l.must("workload", err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = replay.Run(ctx, o) // lanes are dialled, and what is ready first is taken meanwhile
		l.must("replay", err)
		half := 4 * 256 * kvModel.BytesPerToken() / 2
		var got [2]int64
		var r *replay.Result
		// A lane that stands still, as on a busy machine, gives what it had to the other one, and is tested
		// before it is used again: such a run does not tell.
		for range 10 {
			r, err = replay.Run(ctx, o)
			l.must("replay", err)
			got = [2]int64{}
			for _, x := range r.Lanes {
				t.Logf("%v: %s carried %d bytes, %d slices sent again, %q", tt.ranks, x.Name, x.Bytes, x.Retries, x.Error)
				for i := range got {
					if x.Name == nearName(i)+" > far:"+farName(i) {
						got[i] += x.Bytes
					}
				}
			}
			if got[0]+got[1] != 2*half || r.CheckedBytes != 2*half {
				t.Errorf("%v bytes were carried and %d were right, of %d", got, r.CheckedBytes, 2*half)
			}
			if off := got[0] - tt.halves[0]*half; off >= -half/4 && off <= half/4 {
				break
			}
		}
		cancel()
		if off := got[0] - tt.halves[0]*half; off < -half/4 || off > half/4 {
			t.Errorf("ranks at GPUs %v: lanes carried %v bytes in each of ten runs, want about %v halves of %d", tt.ranks, got, tt.halves, half)
		}
	}
}
