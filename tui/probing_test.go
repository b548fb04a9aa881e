package tui

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

var pairs = []probe.Pair{{ID: "port a/mlx5_0>a/mlx5_1 rdma", Kind: probe.Port}, {ID: "port a/mlx5_1>a/mlx5_0 rdma", Kind: probe.Port}}

// e goes to the path of what is under the cursor.
func TestExplain(t *testing.T) {
	b := open(t, Options{}, "dgx-h100", 2, 120, 30)
	b.press("/", "G", "P", "U", "3", "enter", "end", "e")
	b.has("[3 path]")
	if from := b.shared.From; from != topo.GPUID(3) {
		t.Errorf("the path is from %q", from)
	}
	b.press("esc", "2", "down", "right", "e") // the matrix began at the row of the tree's GPU
	b.has("[3 path]")
	if b.shared.From != topo.GPUID(4) || b.shared.To == "" {
		t.Errorf("the path is from %q to %q", b.shared.From, b.shared.To)
	}
	b.press("2", "p")
	b.has("nothing can be measured: nothing here can measure")
	b.o.Prober = &fakeProber{}
	b.press("p")
	b.has("─ Probe ─")
	b.has("no report names GPU4 > mlx5_1: choose pairs with x, then p measures them")
}

// No key sends traffic without a yes.
func TestMeasureAsks(t *testing.T) {
	f := &fakeProber{pairs: pairs}
	b := open(t, Options{Prober: f}, "dgx-h100", 2, 80, 24)
	b.measure([]string{pairs[0].ID, pairs[1].ID})
	b.wait(func() bool { return b.dialog != nil })
	for _, want := range []string{"Measure 2 pairs? This sends traffic.", pairs[0].ID, "2 rounds, about 12s, about 30 GiB in all"} {
		b.has(want)
	}
	for _, key := range []string{"p", "space", "tab", "x", "4"} { // no answers
		b.press(key)
	}
	if b.dialog == nil || f.runs() != 0 {
		t.Fatal("a key that is no yes started a probe, or closed the question")
	}
	b.press("n")
	if b.dialog != nil || f.runs() != 0 {
		t.Fatal("no is taken as yes")
	}
	b.measure([]string{pairs[0].ID})
	b.wait(func() bool { return b.dialog != nil })
	b.press("esc")
	b.measure([]string{pairs[0].ID})
	b.wait(func() bool { return b.dialog != nil })
	b.press("enter") // may have been meant for what the question covers
	if b.dialog != nil || f.runs() != 0 {
		t.Fatal("enter is taken as yes")
	}
	b.measure([]string{pairs[0].ID})
	b.wait(func() bool { return b.dialog != nil })
	b.press("y")
	b.wait(func() bool { return b.probe == nil })
	if f.runs() != 1 || !slices.Equal(f.ran[0], []string{pairs[0].ID}) {
		t.Errorf("measured %v", f.ran)
	}
	if b.live.Probe == nil || b.live.Probe.Running {
		t.Errorf("the probe's events did not come in, or it runs on: %+v", b.live.Probe)
	}
}

// Whatever keys are pressed, in whatever view, nothing is measured: not one of them is
// a yes to a question that was asked.
func TestNoKeyMeasures(t *testing.T) {
	f := &fakeProber{pairs: pairs}
	b := open(t, Options{Prober: f}, "dgx-h100", 2, 120, 30)
	for view := range b.views {
		for _, x := range ui.Map() {
			for _, key := range x.Keys {
				if x.Action == ui.Suspend {
					continue
				}
				b.press(key)
			}
		}
		b.editing, b.help, b.dialog = false, false, nil
		b.press(fmt.Sprint(view + 1))
	}
	if f.runs() != 0 {
		t.Errorf("measured %v", f.ran)
	}
}

func TestMeasureRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		o     Options
		pairs []string
		want  string
	}{
		{"read only", Options{NoProber: "--readonly"}, []string{"x"}, "nothing can be measured: --readonly"},
		{"no prober", Options{}, []string{"x"}, "nothing can be measured: nothing here can measure"},
		{"no pair", Options{Prober: &fakeProber{}}, nil, "no pair is chosen"},
		{"unknown pair", Options{Prober: &fakeProber{}}, []string{"x"}, "cannot measure that: no pair is called x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := open(t, tt.o, "cpu-2eth", 0, 80, 24)
			b.measure(tt.pairs)
			b.wait(func() bool { return strings.Contains(b.shared.Message, tt.want) })
			if b.dialog != nil {
				t.Error("it asks nevertheless")
			}
		})
	}
}

func TestStopProbe(t *testing.T) {
	f := &fakeProber{pairs: pairs, holds: true, began: make(chan struct{})}
	b := open(t, Options{Prober: f}, "dgx-h100", 2, 120, 30)
	b.start([]string{pairs[0].ID})
	b.wait(func() bool { return b.live.Probe != nil && b.live.Probe.Running })
	b.has("PROBING")
	b.send(answered(func(m *model) tea.Cmd { m.measure([]string{pairs[1].ID}); return nil }))
	b.has("a probe runs already")
	b.press("4", "esc")
	b.has("Stop the probe?")
	b.press("n")
	if b.probe == nil {
		t.Fatal("no stopped it")
	}
	b.press("esc", "y")
	b.wait(func() bool { return b.probe == nil })
	b.has("the probe was stopped")
	if b.live.Probe.Running {
		t.Error("the probe is shown as running")
	}
	b.lacks("PROBING")
}

func TestProbeFails(t *testing.T) {
	b := open(t, Options{Prober: &fakeProber{pairs: pairs, err: errors.New("n2: connection \x1brefused")}}, "dgx-h100", 2, 120, 30)
	b.start([]string{pairs[0].ID})
	b.wait(func() bool { return b.probe == nil })
	b.has(`the probe failed: n2: connection \x1brefused`)
	if b.live.Probe.Running {
		t.Error("the probe is shown as running")
	}
}

// Quitting stops a probe and waits for it.
func TestQuitStopsProbe(t *testing.T) {
	f := &fakeProber{pairs: pairs, holds: true, began: make(chan struct{})}
	b := open(t, Options{Prober: f}, "dgx-h100", 2, 120, 30)
	b.start([]string{pairs[0].ID})
	<-f.began
	b.stop() // hangs where the probe is not stopped
}
