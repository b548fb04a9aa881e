package doctor_test

import (
	"fmt"
	"log"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// What is wrong with a host.
func Example() {
	t, err := fixtures.Topology("dgx-h100-gpu2-x8")
	if err != nil {
		log.Fatal(err)
	}
	r, err := doctor.Run(t, doctor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.Findings() {
		if f.Severity != doctor.Info {
			fmt.Println(f.Severity, f.Code, f.Subjects)
		}
	}
	// Output: warning link-degraded [gpu:2]
}
