package probe_test

import (
	"fmt"
	"log"
	"os"

	"github.com/topoctl/topoctl/probe"
)

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
