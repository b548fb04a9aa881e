package diff_test

import (
	"fmt"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/diff"
)

// A host as it was captured and as it is now: a GPU's link has lost half of its lanes.
func Example() {
	was, err := fixtures.Topology("dgx-h100")
	if err != nil {
		fmt.Println(err)
		return
	}
	is, err := fixtures.Topology("dgx-h100-gpu2-x8")
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := diff.Compare(was, is, diff.Options{OldLabel: "Monday", NewLabel: "today"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range report.Differences {
		if d.Kind == diff.Degraded {
			fmt.Printf("%s: %s; %s\n", d.Nodes[0].Name, d.Text(), d.Effect)
		}
	}
	fmt.Println("choices of ports that change:", len(report.Policy))
	// Output:
	// gpu:2: PCIe width x16 -> x8; expected gpu:2 -> mlx5_4 50.0 -> 31.5 GB/s (and 4 more paths)
	// choices of ports that change: 0
}
