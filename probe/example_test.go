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

// What a report of "topoctl probe" says is to blame. ReadEvents reads what --events writes, too.
func ExampleReadEvents() {
	file, err := os.Open("testdata/bad-cable.probe.json")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	report, err := probe.ReadEvents(file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Summary.Fail, "of", len(report.Results), "pairs are too slow")
	for _, b := range report.Blame {
		fmt.Printf("%s: %s (%d pairs)\n", b.Kind, b.Suspects[0].Name, len(b.Pairs))
	}
	// Output:
	// 14 of 56 pairs are too slow
	// fault: wire of n3/mlx5_0 (14 pairs)
}
