package sim_test

import (
	"context"
	"fmt"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/sim"
)

// Two DGX H100 with a bad cable: what a probe of two rails sees, and what an engine
// makes of it.
func Example() {
	const second = 1_000_000_000
	tree, err := fixtures.Open("dgx-h100")
	check(err)
	top, err := discover.Discover(context.Background(), discover.Options{FS: tree})
	check(err)
	kind, err := sim.NewKind(top, sim.KindOptions{})
	check(err)
	ports := kind.DataPorts()
	fabric, err := sim.Shape{Hosts: 2, Ports: ports, PortBytesPerSec: 50 * topo.GBPerSec, Spines: 4}.RailOptimized()
	check(err)
	c, err := sim.New(sim.Spec{Hosts: []sim.HostSpec{{Name: "n0", Kind: kind}, {Name: "n1", Kind: kind}}, Fabric: fabric, Options: sim.Options{Seed: 1}})
	check(err)

	cable, err := c.Cable(1, ports[1])
	check(err)
	check(c.Inject(sim.Fault{Name: "bad cable", Links: cable, Effect: sim.Effect{Factor: 0.25, SymbolErrorsPerGB: 3}}))

	// A round of a probe: two rails at the same time.
	took, err := c.Together([]sim.Transfer{
		{From: sim.End{Host: 0, Location: "gpu:0", Port: ports[0]}, To: sim.End{Host: 1, Location: "gpu:0", Port: ports[0]}, Bytes: 5e9},
		{From: sim.End{Host: 0, Location: "gpu:1", Port: ports[1]}, To: sim.End{Host: 1, Location: "gpu:1", Port: ports[1]}, Bytes: 5e9},
	}, 10*second)
	check(err)
	fmt.Println("took ns", took)
	counters, err := c.PortCounters(1, ports[1])
	check(err)
	fmt.Println("symbol errors", counters.SymbolErrors)

	// The scheduler between host memories: it gives the bad lane less.
	e, err := c.Engine(0, sim.EngineOptions{})
	check(err)
	j, err := e.Submit(sim.Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Bytes: 20 << 30})
	check(err)
	c.RunUntil(100*second, func() bool { return e.Over(j) })
	for _, u := range j.Result.Lanes {
		fmt.Printf("%s: %.1f GiB\n", e.LaneName(u.Lane), float64(u.Bytes)/(1<<30))
	}
	// Output:
	// took ns [100001050 400001050]
	// symbol errors 15
	// mlx5_0 > n1:mlx5_0: 5.4 GiB
	// mlx5_3 > n1:mlx5_3: 1.4 GiB
	// mlx5_4 > n1:mlx5_4: 5.4 GiB
	// mlx5_5 > n1:mlx5_5: 5.4 GiB
	// mlx5_6 > n1:mlx5_6: 2.4 GiB
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
