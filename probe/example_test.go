package probe_test

import (
	"fmt"
	"log"
	"os"

	"github.com/topoctl/topoctl/probe"
)

// What a report of "topoctl probe" blames, and the rates of a host's links to choose paths by.
func ExampleDecode() {
	data, err := os.ReadFile("testdata/bad-cable.probe.json")
	if err != nil {
		log.Fatal(err)
	}
	r, err := probe.Decode(data)
	if err != nil {
		log.Fatal(err)
	}
	for _, b := range r.Blame {
		for _, s := range b.Suspects {
			fmt.Println(b.Kind, s.Name)
		}
	}
	for link, rate := range r.Overlay("n3") { // pathsel.Options.Overlay takes them
		fmt.Println(link, rate)
	}
	// Output:
	// fault wire of n3/mlx5_0
	// port:mlx5_0/1 12.2 GB/s
}
