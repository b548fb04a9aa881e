package views_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"

	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/viewtest"
)

// What is explained: what was asked for, or the nearest that can be.
func TestPathQuestions(t *testing.T) {
	for _, c := range []struct {
		machine        string
		node, from, to topo.ID
		want           string // in the first lines
	}{
		{"dgx-h100", "", "", "", "gpu:0 should use mlx5_0 (50.0 GB/s, same tree of PCIe switches)."},
		{"dgx-h100", "gpu:3", "", "", "gpu:3 should use mlx5_5"},
		{"dgx-h100", "gpu:3", "gpu:4", "", "gpu:4 should use mlx5_6"},
		{"dgx-h100", "gpu:3", "gpu:4", "rdma:mlx5_0", "gpu:4 reaches mlx5_0 (~22.0 GB/s, another NUMA node)."},
		{"dgx-h100", "", "gpu:0", "gpu:1", "gpu:0 reaches gpu:1 (~370.8 GB/s, 18 NVLinks)."},
		{"dgx-h100", "", "numa:1", "", "cpu:1 should use mlx5_6"},
		{"dgx-h100", "pkg:1", "", "", "cpu:1 should use mlx5_6"},
		{"dgx-h100", "rdma:mlx5_3", "", "", "mlx5_3 is not memory: this is the path from gpu:1, which prefers it"},
		{"dgx-h100", "port:mlx5_3/1", "", "", "from gpu:1, which prefers it"},
		{"dgx-h100", "nvme:nvme0", "", "", "nvme0 is not memory, and none prefers it: this is the path from gpu:0"},
		{"dgx-h100", "hb:0000:15", "", "", "these are the ports for gpu:0, the first GPU below host bridge 0000:15"},
		{"dgx-h100", "pci:0000:41:00.0", "", "", "these are the ports for gpu:1, the first GPU below switch 41:00.0"},
		{"dgx-h100", "hb:0000:26", "", "", "mlx5_1, the first NIC below host bridge 0000:26, is not memory, and none prefers it"},
		{"dgx-h100", "pci:0000:61:00.0", "", "", "gpu:3 should use mlx5_5"},
		{"dgx-h100", "gpu:77", "", "", "gpu:0 should use mlx5_0"},
		{"dgx-h100", "gpu:77", "", "", "gpu:77 is not on this host: this is the path from gpu:0"},
		{"dgx-h100", "", "gpu:77", "rdma:mlx5_0", "gpu:77 is not on this host: this is the path from gpu:0"},
		{"dgx-h100", "", "gpu:0", "rdma:gone", "gpu:0 should use mlx5_0"},
		{"dgx-h100", "", "gpu:0", "rdma:gone", "gone is not on this host: these are the ports for gpu:0"},
		{"vm-flat", "", "gpu:1", "", "Which NIC is near gpu:1 cannot be seen in this virtual machine; all 8 usable ports are candidates"},
		{"vm-flat", "", "gpu:1", "rdma:mlx5_3", "gpu:1 reaches mlx5_3 (at most 50.0 GB/s, how near cannot be seen in this virtual machine)."},
		{"vm-flat", "rdma:mlx5_3", "", "", "mlx5_3 is not memory, and none prefers it"},
		{"cpu-2eth", "", "", "", "cpu:0 should use ens5f0 (1.2 GB/s, another NUMA node) over TCP."},
		{"empty", "", "", "", "the host has no GPU and no NUMA node with CPUs"},
		{"dgx-h100-rdma-no-pci", "", "gpu:0", "rdma:mlx5_9", "no way between gpu:0 and mlx5_9 is known: mlx5_9 has no PCI device"},
	} {
		e := viewtest.Env(watched(t, c.machine, 1), mono)
		*e.Shared = ui.Shared{Node: c.node, From: c.from, To: c.to}
		got := text(newPath(), e, 120, 30)
		if !strings.Contains(got, c.want) {
			t.Errorf("%s, node %q, %q to %q: want %q:\n%s", c.machine, c.node, c.from, c.to, c.want, got)
		}
	}
}

// The lines are those of the text, the cursor's line is about the port that it names first, and w tells all reasons.
// Another question begins anew, the same one does not.
func TestPathKeys(t *testing.T) {
	v, e := newPath(), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	e.Shared.From = "gpu:0"
	at := func() string {
		return firstWith(text(v, e, 100, 20), ">")
	}
	for i, s := range []struct {
		key  ui.Action
		want string
	}{{"", "gpu:0 should use mlx5_0"}, {ui.Down, "gpu:0 1b:00.0 - 63.0"}, {ui.Down, "50.0 - wire"}, {ui.Down, "limit: wire of mlx5_0"}, {ui.Down, "rank"},
		{ui.Down, "1     mlx5_0"}, {ui.Down, "2     mlx5_3"}, {ui.Up, "1     mlx5_0"}, {ui.Home, "gpu:0 should"}, {ui.End, "~ is typical"}} {
		if s.key != "" {
			v.Key(s.key, e)
		}
		if got := at(); !strings.Contains(got, s.want) {
			t.Errorf("step %d, %s: at %q, want %s", i, s.key, got, s.want)
		}
	}
	v.Key(ui.Wide, e)
	if got := text(v, e, 100, 40); !strings.Contains(got, "role data, NCCL PXB, basis read") {
		t.Errorf("w does not tell more:\n%s", got)
	}
	v.Key(ui.Home, e)
	v.Key(ui.Down, e)
	was := at()
	e.State = after(fixturetest.Topology(t, "dgx-h100-gpu2-x8"), 2)
	if got := at(); got != was {
		t.Errorf("the host was read again, and the cursor is at %q", got)
	}
	if r := v.Key(ui.Enter, e); r.Show != ui.Tree || e.Shared.Node != "port:mlx5_0/1" {
		t.Errorf("enter asks for %+v at %s", r, e.Shared.Node)
	}
	e.Shared.From, e.Shared.To = "gpu:3", ""
	if got := at(); !strings.Contains(got, "gpu:3 should use mlx5_5") {
		t.Errorf("another question begins at %q", got)
	}
	e.Shared.To = "gpu:4" // no port among them
	if r := v.Key(ui.Enter, e); r.Show != ui.Tree || e.Shared.Node != "gpu:3" {
		t.Errorf("enter asks for %+v at %s", r, e.Shared.Node)
	}
}

func firstWith(pane, prefix string) string {
	for _, line := range strings.Split(pane, "\n") {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	return ""
}

// The filter keeps lines of the text.
func TestPathFilter(t *testing.T) {
	v, e := newPath(), viewtest.Env(watched(t, "dgx-h100", 2), mono)
	e.Filter = "storage"
	if got := text(v, e, 120, 30); !strings.Contains(got, "mlx5_8  storage: no GPU below") || strings.Contains(got, "nearest") {
		t.Error(got)
	}
	e.Filter = "nothing"
	if got := text(v, e, 120, 30); !strings.Contains(got, "nothing matches") {
		t.Error(got)
	}
}

// The detail is of the port that the line under the cursor names, with what it carries.
func TestPathDetail(t *testing.T) {
	v, e := newPath(), viewtest.Env(watched(t, "dgx-h100-gpu2-x8", 3), mono)
	e.Shared.From = "gpu:2"
	got := frame(v.Detail(e, 100))
	for _, want := range []string{"mlx5_4  preferred", "role         data", "sent         200 Gb/s", "received     100 Gb/s"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	for !strings.Contains(firstWith(text(v, e, 100, 30), ">"), "available") {
		v.Key(ui.Down, e)
	}
	if got := frame(v.Detail(e, 100)); !strings.HasPrefix(got, "mlx5_0  available") {
		t.Errorf("the next candidate:\n%s", got)
	}
	data, err := json.Marshal(v.Selection(e))
	if err != nil || !strings.Contains(string(data), `"chosen":{"port":"port:mlx5_4/1"`) {
		t.Errorf("selection %.200s, %v", data, err)
	}
	e.Shared.From, e.Shared.To = "gpu:2", "gpu:3"
	if got := frame(v.Detail(e, 100)); !strings.Contains(got, "NVLinks of gpu:2 to NVSwitch") {
		t.Errorf("the way between two GPUs:\n%s", got)
	}
}
