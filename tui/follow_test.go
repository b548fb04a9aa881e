package tui

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// withoutGPU is a fixture's host after a GPU has fallen off the bus: the next ones take its
// number.
func withoutGPU(t *testing.T, fixture string, lost int) *topo.Topology {
	t.Helper()
	data, err := fixturetest.Topology(t, fixture).Encode()
	if err != nil {
		t.Fatal(err)
	}
	x, err := topo.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	x.GPUs = slices.Delete(x.GPUs, lost, lost+1)
	for i := range x.GPUs {
		x.GPUs[i].ID, x.GPUs[i].Index = topo.GPUID(i), i
	}
	x.Links = nil
	x.Derive()
	return x
}

// The cursors stay on their GPU where it has another number now, also where the picture stood
// still meanwhile.
func TestCursorsFollowGPUs(t *testing.T) {
	cursor := func(b *board, want string) {
		t.Helper()
		for line := range strings.SplitSeq(b.text(), "\n") {
			if strings.HasPrefix(line, "›") {
				if !strings.Contains(line, want) {
					t.Errorf("the cursor is on %q, want %s", line, want)
				}
				return
			}
		}
		t.Errorf("no cursor:\n%s", b.text())
	}
	b := open(t, Options{}, "dgx-h100", 2, 120, 60)
	b.press("/", "G", "P", "U", "3", "enter", "end", "esc")
	cursor(b, "GPU3 ")
	b.press("2", "home", "down", "down", "down", "right", "e", "1")
	b.press("space")
	b.take(&record.Record{AtNS: 3 * second, Source: record.SourceHost, Topology: withoutGPU(t, "dgx-h100", 1)})
	cursor(b, "GPU3 ") // of the picture that stands still
	b.press("space")
	cursor(b, "GPU2 ")
	if b.shared.From != topo.GPUID(2) || b.shared.To != topo.RDMAID("mlx5_1") {
		t.Errorf("the path is from %q to %q", b.shared.From, b.shared.To)
	}
	b.press("2", "right", "left", "p") // its own cursor
	if b.shared.From != topo.GPUID(2) || b.shared.To != topo.RDMAID("mlx5_1") {
		t.Errorf("in the matrix: from %q to %q", b.shared.From, b.shared.To)
	}
	b.take(&record.Record{AtNS: 4 * second, Source: record.SourceHost, Topology: fixturetest.Topology(t, "dgx-h100")}) // it is back
	b.press("1")
	cursor(b, "GPU3 ")
}
