package plan_test

import (
	"fmt"
	"log"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
)

// What measuring between two hosts takes, before anything is sent.
func Example() {
	machine, err := fixtures.Topology("dgx-h100")
	if err != nil {
		log.Fatal(err)
	}
	hosts := []plan.Host{{Name: "n1", Topology: machine}, {Name: "n2", Topology: machine}}
	pairs, err := plan.Fabric(hosts, plan.FabricOptions{Select: []string{"n1>n2"}})
	if err != nil {
		log.Fatal(err)
	}
	todo, err := plan.Make(pairs, plan.Options{Spec: probe.DefaultSpec()})
	if err != nil {
		log.Fatal(err)
	}
	first := todo.Round(0)[0]
	fmt.Println(len(pairs.Pairs), "pairs in", len(todo.Rounds), "rounds,", todo.Estimate.Time, "to", todo.Estimate.MostTime)
	fmt.Println(first.ID+":", first.Expected.Why)
	// Output:
	// 64 pairs in 8 rounds, 5.68s to 25.68s
	// port n1/mlx5_0>n2/mlx5_0 rdma: wire of n1/mlx5_0: 50.0 GB/s, read
}
