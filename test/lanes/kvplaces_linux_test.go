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
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/replay"
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
		Name: "far", Listen: []string{":0"}, Security: engine.Security{Credentials: trust.Secret(token)}, Ports: engine.Ports{Topology: t}, Transports: []engine.TransportFactory{engine.TCP()},
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

// The bytes of each rank go by the route of its own memory, which has the lane beside that first.
func TestKVPlaces(t *testing.T) {
	l := newLab(t, 400, 400)
	top, err := located("near", nearAddr)
	l.must("topology", err)
	far := l.far.ask(ask{Do: "located"})
	for _, ranks := range [][]int{{0, 1}, {1}, {0}} { // the GPU of each
		e, err := engine.New(t.Context(), engine.Options{Name: "near", Security: engine.Security{Credentials: trust.Secret(token)}, Ports: engine.Ports{Topology: top}, Transports: []engine.TransportFactory{engine.TCP()}})
		l.must("engine", err)
		t.Cleanup(func() { e.Close() })
		peer, err := e.Open(t.Context(), far.Address)
		l.must("open", err)
		o := replay.Options{Serve: kvServe(t), Check: true, Local: make([][]*engine.Region, 1), Remote: make([][]*engine.RemoteRegion, 1)}
		side := kv.Side{TP: len(ranks), PageTokens: 16}
		o.Serve.Cache, err = kv.New(kvModel, side, side)
		l.must("layout", err)
		for _, gpu := range ranks {
			local, err := e.Alloc(regionBytes, engine.RegionOptions{Location: gpuAt(gpu)})
			l.must("alloc", err)
			remote, err := peer.Region(t.Context(), gpuRegion(gpu))
			l.must("region", err)
			o.Local[0], o.Remote[0] = append(o.Local[0], local), append(o.Remote[0], remote)
		}
		o.Workload, err = kv.Generate(kv.Spec{Requests: 4, Seed: 1, Arrivals: kv.Arrivals{Concurrency: 2}, Input: kv.Fixed(256), Output: kv.Fixed(1)})
		l.must("workload", err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := replay.Run(ctx, o)
		cancel()
		l.must("replay", err)
		if all := 4 * 256 * kvModel.BytesPerToken(); r.CheckedBytes != all {
			t.Errorf("%d bytes were right, of %d", r.CheckedBytes, all)
		}
		o.Check = false // that reads from the peer, too
		_, err = replay.Run(t.Context(), o)
		l.must("replay", err)
		bytes := map[pathsel.Location]int64{}
		for _, x := range e.Recent() {
			for _, route := range x.Routes {
				if route.Local == "" {
					continue // a check before
				}
				if route.Local != route.Remote {
					t.Errorf("bytes of %s went to %s", route.Local, route.Remote)
				}
				bytes[route.Local] += route.Bytes
			}
		}
		for _, gpu := range ranks {
			x, err := peer.Explain(gpuAt(gpu), gpuAt(gpu))
			l.must("explain", err)
			lanes := x.Routes[0].Groups[0].Lanes
			if want := nearName(gpu) + " > far:" + farName(gpu); len(lanes) == 0 || lanes[0].Lane != want {
				t.Errorf("GPU %d: lanes %+v, want %s first", gpu, lanes, want)
			}
			if bytes[gpuAt(gpu)] == 0 || len(bytes) != len(ranks) {
				t.Errorf("ranks at GPUs %v moved %v", ranks, bytes)
			}
		}
	}
}
