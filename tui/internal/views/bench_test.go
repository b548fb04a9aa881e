package views_test

import (
	"testing"

	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// A frame of the largest hosts: 44 NICs with all their counters, and 72 GPUs.
func BenchmarkMain(b *testing.B) {
	for _, name := range []string{"aws-p5-44nic-synthetic", "nvl72-synthetic"} {
		s := watched(b, name, 5)
		for _, v := range hostViews {
			b.Run(name+"/"+v.name, func(b *testing.B) {
				e := viewtest.Env(s, ui.Look{Color: true})
				x := v.make()
				b.ReportAllocs()
				for b.Loop() {
					x.Main(e, ui.Size{W: 200, H: 48})
				}
			})
		}
	}
}

// The detail pane is drawn with each frame too.
func BenchmarkDetail(b *testing.B) {
	s := watched(b, "aws-p5-44nic-synthetic", 5)
	for _, v := range hostViews {
		b.Run(v.name, func(b *testing.B) {
			e := viewtest.Env(s, ui.Look{Color: true})
			e.Shared.Node = "gpu:0"
			x := v.make()
			b.ReportAllocs()
			for b.Loop() {
				x.Detail(e, 80)
			}
		})
	}
}
