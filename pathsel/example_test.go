package pathsel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel"
)

// A Host is prepared once from a topology and answers many questions.
func Example() {
	tree, err := fixtures.Open("dgx-h100") // of this machine: discover.Options{}
	if err != nil {
		log.Fatal(err)
	}
	t, err := discover.Discover(context.Background(), discover.Options{FS: tree})
	if err != nil {
		log.Fatal(err)
	}
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		log.Fatal(err)
	}

	// Which ports for this memory?
	a, err := h.Affinity("gpu:0", nil)
	if err != nil {
		log.Fatal(err)
	}
	best := &a.Ranked[0]
	fmt.Printf("%s, %s: %s\n", best.Name, best.Class, best.Reason.Text)

	// What do several ports carry together?
	c, err := h.Capacity("cpu:0", append(a.Preferred(), a.Available()[0]))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*c.BytesPerSec, "on", len(c.Shares), "ports")

	// Which ports for which GPU, when all of them work at once?
	p, err := h.Plan(nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Assignments[7].Consumer, "has", p.Assignments[7].Ports[0].Name)
	// Output:
	// mlx5_0, PXB: nearest usable port (PXB, 50.0 GB/s)
	// 100.0 GB/s on 2 ports
	// gpu:7 has mlx5_11
}

// A Pair is two hosts and says which lanes a transfer between them takes.
func ExampleConnect() {
	tree, err := fixtures.Open("dgx-h100")
	if err != nil {
		log.Fatal(err)
	}
	t, err := discover.Discover(context.Background(), discover.Options{FS: tree})
	if err != nil {
		log.Fatal(err)
	}
	local, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	remote, err := pathsel.New(t, pathsel.Options{}) // another machine of its kind
	if err != nil {
		log.Fatal(err)
	}
	pair, err := pathsel.Connect(local, remote, pathsel.PairOptions{LocalName: "node1", RemoteName: "node2"})
	if err != nil {
		log.Fatal(err)
	}
	s, err := pair.Lanes("gpu:0", "gpu:3")
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range s.Lanes[:s.Chosen] {
		fmt.Printf("%s to %s: %s\n", l.LocalName, l.RemoteName, l.Reason.Text)
	}
	// Output: mlx5_0 to mlx5_5: nearest lane (PXB to PXB): 50.0 GB/s
}
