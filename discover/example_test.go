package discover_test

import (
	"context"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/fixtures"
)

// What is in a host. Without FS it is this machine.
func ExampleDiscover() {
	tree, err := fixtures.Open("dgx-h100")
	if err != nil {
		log.Fatal(err)
	}
	t, err := discover.Discover(context.Background(), discover.Options{FS: tree})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d GPUs, the first a %s on NUMA node %d\n", len(t.GPUs), t.GPUs[0].Model, *t.GPUs[0].NUMA)
	// Output: 8 GPUs, the first a NVIDIA H100 80GB HBM3 on NUMA node 0
}
