package views_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/golden"

	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// frame is lines as a golden file has them: styles readable, nothing that is blank at the ends.
func frame(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight(strings.ReplaceAll(line, "\x1b[", "␛"), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// The panes of the three views on hosts of all kinds, four seconds after the start.
func TestGoldenPanes(t *testing.T) {
	for _, name := range []string{"dgx-h100", "gb200-tray", "cpu-2eth", "dgx-h100-missing-files", "nvl72-synthetic", "empty"} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			s := watched(t, name, 5)
			for _, v := range hostViews {
				for _, size := range viewtest.Sizes {
					for mode, l := range []ui.Look{{Color: true}, {ASCII: true, Bare: true}} {
						e := viewtest.Env(s, l)
						x := v.make()
						fmt.Fprintf(&b, "== %s %dx%d %s\n", v.name, size.W, size.H, []string{"colour", "ascii"}[mode])
						b.WriteString(frame(x.Main(e, size)))
					}
				}
				e := viewtest.Env(s, ui.Look{ASCII: true, Bare: true})
				x := v.make()
				fmt.Fprintf(&b, "== %s detail\n%s", v.name, frame(x.Detail(e, 48)))
			}
			golden.Check(t, "testdata/host/"+name+".txt", b.String())
		})
	}
}

// What the detail says of each kind of node of a host with a fault.
func TestGoldenTreeDetails(t *testing.T) {
	var b strings.Builder
	e := viewtest.Env(watched(t, "dgx-h100-gpu2-x8", 5), ui.Look{Bare: true})
	x := hostViews[0].make()
	for _, id := range []string{"", "numa:0", "gpu:2", "rdma:mlx5_0", "net:eno2", "nvme:nvme0", "hb:0000:15", "pci:0000:16:00.0"} {
		if id == "" {
			x.Key(ui.Home, e)
		}
		e.Shared.Node = topo.ID(id)
		fmt.Fprintf(&b, "== %s\n%s", id, frame(x.Detail(e, 90)))
	}
	golden.Check(t, "testdata/host/details.txt", b.String())
}
