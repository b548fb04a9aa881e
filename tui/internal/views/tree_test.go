package views_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/fixturetest"

	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

var mono = ui.Look{ASCII: true, Bare: true}

// text is a pane without blanks at the ends of its lines.
func text(v ui.View, e *ui.Env, w, h int) string { return frame(v.Main(e, ui.Size{W: w, H: h})) }

// lineOf is the line that contains a text, "" none.
func lineOf(pane, what string) string {
	lines := strings.Split(pane, "\n")
	if i := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, what) }); i >= 0 {
		return lines[i]
	}
	return ""
}

// The cursor goes line by line, and Shared.Node with it. Left folds and goes to the parent,
// right unfolds and goes to the first child.
func TestTreeKeys(t *testing.T) {
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	e.Shared.Node = "rdma:mlx5_0"
	v.Main(e, ui.Size{W: 100, H: 30})
	steps := []struct {
		key  ui.Action
		node topo.ID
		seen bool // mlx5_0 has a line
	}{
		{ui.Left, "pci:0000:16:00.0", true}, // the switch above
		{ui.Left, "pci:0000:16:00.0", false},
		{ui.Right, "pci:0000:16:00.0", true},
		{ui.Right, "rdma:mlx5_0", true},
		{ui.Enter, "rdma:mlx5_0", true}, // nothing to fold
		{ui.Down, "pci:0000:19:00.0", true},
		{ui.Enter, "pci:0000:19:00.0", true},
		{ui.Down, "nvme:nvme2", true}, // past the GPU that is folded away
		{ui.Up, "pci:0000:19:00.0", true},
		{ui.Home, "", true},
		{ui.Enter, "", false},
		{ui.Down, "", false},
		{ui.Right, "", true},
		{ui.Right, "numa:0", true},
		{ui.Wide, "numa:0", true},
	}
	for i, s := range steps {
		if r := v.Key(s.key, e); r != (ui.Request{}) {
			t.Errorf("step %d, %s: asks for %+v", i, s.key, r)
		}
		if e.Shared.Node != s.node {
			t.Errorf("step %d, %s: at %q, want %q", i, s.key, e.Shared.Node, s.node)
		}
		if seen := strings.Contains(text(v, e, 100, 200), "mlx5_0 "); seen != s.seen {
			t.Errorf("step %d, %s: mlx5_0 is shown: %t", i, s.key, seen)
		}
	}
	v.Key(ui.End, e)
	v.Key(ui.Explain, e)
	if e.Shared.From != e.Shared.Node || e.Shared.To != "" {
		t.Errorf("explains %q to %q at %q", e.Shared.From, e.Shared.To, e.Shared.Node)
	}
}

// Another view can put the cursor on a device, by any of its IDs, wherever it is hidden.
func TestTreeFollows(t *testing.T) {
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	v.Main(e, ui.Size{W: 100, H: 10})
	v.Key(ui.Enter, e) // folds all
	for id, want := range map[topo.ID]string{
		"port:mlx5_3/1": "mlx5_3", "rdma:mlx5_4": "mlx5_4", "net:ibp24s0": "mlx5_0", "gpu:5": "GPU5",
		"pci:0000:43:00.0": "GPU1", "nic:0000:18:00": "mlx5_0",
	} {
		e.Shared.Node = id
		if at := firstWith(text(v, e, 100, 10), ">"); !strings.Contains(at, want) {
			t.Errorf("%s: the cursor is at %q", id, at)
		}
	}
}

// A filter keeps lines and what they hang from, folded or not.
func TestTreeFilter(t *testing.T) {
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	v.Key(ui.Enter, e)
	e.Filter = "gpu3"
	got := text(v, e, 100, 40)
	for _, want := range []string{"GPU3", "host bridge 0000:5b", "socket 0"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not shown:\n%s", want, got)
		}
	}
	if strings.Contains(got, "GPU4") || strings.Contains(got, "socket 1") || strings.Contains(got, "mlx5") {
		t.Errorf("shows more than what matches:\n%s", got)
	}
	e.Filter = "!mlx5"
	if got := text(v, e, 100, 200); strings.Contains(got, "mlx5") || !strings.Contains(got, "GPU4") {
		t.Errorf("shows what the filter leaves out:\n%s", got)
	}
	e.Filter = "no such thing"
	if got := text(v, e, 100, 10); !strings.Contains(got, "nothing matches no such thing") {
		t.Error(got)
	}
}

// What changes after the topology was read is shown: states, rates, links, findings, errors
// that count up. A folded line tells of what it hides.
func TestTreeIsLive(t *testing.T) {
	s := watched(t, "dgx-h100-gpu2-x8", 3)
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(s, mono)
	got := text(v, e, 160, 80)
	for what, want := range map[string]string{
		"mlx5_0 ": "  e", "GPU2": "  ! ", "mlx5_3": "ACTIVE   400 Gb/s   40%", "GPU1": "  7%",
	} {
		if line := lineOf(got, what); !strings.Contains(line, want) {
			t.Errorf("%s: %q lacks %q", what, line, want)
		}
	}
	x := fixturetest.Topology(t, "dgx-h100-gpu2-x8")
	next := sample(x, 4*second, 3)
	for i := range next.Ports {
		if p := &next.Ports[i]; p.ID == "port:mlx5_3/1" {
			p.State, p.BytesPerSec = "DOWN", nil
		}
	}
	next.Links = []counters.Link{
		{ID: "pci:0000:40:00.0", SpeedMTs: new(2500), Width: new(8)},
		{ID: "pci:0000:52:00.0", SpeedMTs: new(32000), Width: new(16)},
		{ID: "pci:0000:43:00.0", SpeedMTs: new(2500), Width: new(16)},
		{ID: "pci:0000:4d:00.0", SpeedMTs: new(32000), Width: new(4)}, // a switch's link to the root
	}
	s.Apply(&record.Record{AtNS: 4 * second, Source: record.SourceCounters, Counters: next})
	got = text(v, e, 160, 80)
	for what, wants := range map[string][]string{
		"mlx5_3":  {"DOWN", "gen1 x8!", "(max gen5 x16)"}, // the link of its card came back slower
		"GPU2":    {"gen5 x16 ", "63.0 GB/s"},             // mended
		"GPU1":    {"gen5 x16 ", "63.0 GB/s"},             // an idle GPU lowers its speed
		"4d:00.0": {"gen5 x4!  (max gen5 x16)"},
	} {
		for _, want := range wants {
			if line := lineOf(got, what); !strings.Contains(line, want) {
				t.Errorf("%s: %q lacks %q", what, line, want)
			}
		}
	}
	v.Key(ui.Enter, e)
	if line := lineOf(text(v, e, 160, 80), "dgx-h100"); !strings.HasPrefix(line, "> !e") {
		t.Errorf("the host hides all, and says %q", line)
	}
}

// Columns go in the order that the package states; marks and names stay.
func TestTreeColumnsGo(t *testing.T) {
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100-gpu2-x8", 3), mono)
	order := []string{"state", "load", "link", "sent", "received", "rate", "address"}
	had := len(order)
	for w := 200; w >= 30; w-- {
		head := strings.Split(text(v, e, w, 80), "\n")[0]
		have := 0
		for i, title := range order {
			if !strings.Contains(head, title) {
				break
			}
			have = i + 1
		}
		for _, title := range order[have:] {
			if strings.Contains(head, title) {
				t.Fatalf("%d columns: %q without %q: %q", w, title, order[have], head)
			}
		}
		if have > had {
			t.Fatalf("%d columns: %d columns, more than in a wider pane", w, have)
		}
		had = have
		if line := lineOf(text(v, e, w, 80), "GPU2"); !strings.HasPrefix(line, "  !") {
			t.Fatalf("%d columns: %q", w, line)
		}
	}
	if had != 1 {
		t.Errorf("a side pane of 30 columns has %d columns, want the state", had)
	}
}

// A host without PCIe links, as many virtual machines are, has no columns for them.
func TestTreeWithoutLinks(t *testing.T) {
	x := *fixturetest.Topology(t, "cpu-2eth")
	x.PCIDevices = slices.Clone(x.PCIDevices)
	for i := range x.PCIDevices {
		x.PCIDevices[i].Link = nil
	}
	x.Derived, x.Links = nil, nil
	x.Derive()
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(after(&x, 2), mono)
	head := strings.Fields(strings.Split(text(v, e, 160, 40), "\n")[0])
	if want := []string{"device", "state", "line", "load", "sent", "received", "address"}; !slices.Equal(head, want) {
		t.Errorf("columns %q, want %q", head, want)
	}
}

// The cursor stays on its device when the host is read again, and is somewhere when the
// device is gone.
func TestTreeKeepsItsPlace(t *testing.T) {
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	e.Shared.Node = "gpu:3"
	v.Main(e, ui.Size{W: 100, H: 30})
	e.State = after(fixturetest.Topology(t, "dgx-h100-gpu2-x8"), 2)
	if got := text(v, e, 100, 30); !strings.HasPrefix(lineOf(got, "GPU3"), ">") {
		t.Errorf("the cursor left GPU3:\n%s", got)
	}
	e.State = watched(t, "cpu-2eth", 2)
	if got := text(v, e, 100, 30); strings.Count("\n"+got, "\n>") != 1 {
		t.Errorf("no cursor:\n%s", got)
	}
}

// A click selects, a click on what is selected folds.
func TestTreeClick(t *testing.T) {
	v, e := views.NewTree(&views.Cache{}), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	lines := v.Main(e, ui.Size{W: 100, H: 30})
	y := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "host bridge 0000:15") })
	v.Click(5, y, e)
	if e.Shared.Node != "hb:0000:15" {
		t.Fatalf("selected %q", e.Shared.Node)
	}
	v.Click(5, y, e)
	if got := text(v, e, 100, 30); strings.Contains(got, "mlx5_0 ") {
		t.Errorf("not folded:\n%s", got)
	}
	v.Click(5, 0, e) // the head
	v.Click(5, 99, e)
	if e.Shared.Node != "hb:0000:15" {
		t.Errorf("a click on nothing selected %q", e.Shared.Node)
	}
}
