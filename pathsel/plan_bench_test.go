package pathsel_test

import (
	"testing"

	"github.com/topoctl/topoctl/pathsel"
)

// The plan of 72 GPUs and 72 NICs: the goal is under 10 ms.
func BenchmarkPlan(b *testing.B) {
	for _, name := range []string{"dgx-h100", "b300-16nic", "aws-p5-44nic-synthetic", "nvl72-synthetic"} {
		b.Run(name, func(b *testing.B) {
			h := fixture(b, name)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Plan(nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// 72 ranks on two NUMA nodes: every pair of one node is alike, so only the
// order tells them apart.
func BenchmarkPlanOfEquals(b *testing.B) {
	h := fixture(b, "nvl72-synthetic")
	consumers := make([]pathsel.Consumer, 72)
	for i := range consumers {
		consumers[i] = pathsel.Consumer{Name: string(rune('A' + i)), Location: h.GPUs()[i%2]}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Plan(consumers); err != nil {
			b.Fatal(err)
		}
	}
}

// The static part: two hosts, and one pair of memory locations.
func BenchmarkConnect(b *testing.B) {
	for _, name := range []string{"dgx-h100", "aws-p5-44nic-synthetic", "nvl72-synthetic"} {
		local, remote := side{name: name}.host(b), side{name: name}.other().host(b)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pair, err := pathsel.Connect(local, remote, pathsel.PairOptions{})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := pair.Lanes("cpu:0", "cpu:0"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
