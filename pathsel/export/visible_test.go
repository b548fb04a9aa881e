package export_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func locations(v export.Visible) string {
	var out []string
	for _, g := range v.GPUs {
		out = append(out, string(g.Location))
	}
	return strings.Join(out, " ")
}

func TestSelect(t *testing.T) {
	top := fixturetest.Topology(t, "hgx-h20-8nic")
	all := export.AllGPUs(top)
	uuid := func(g int) string { return top.GPUs[g].UUID }
	top.GPUs[6].MIG = &topo.MIG{Enabled: true, Instances: []topo.MIGInstance{{UUID: "MIG-aaaa"}, {UUID: "MIG-bbbb"}}}
	for _, c := range []struct{ list, want, fault string }{
		{"2,3,0", "gpu:2 gpu:3 gpu:0", ""},
		{" 7 , 1 ", "gpu:7 gpu:1", ""},
		{uuid(4), "gpu:4", ""},
		{uuid(4)[:12] + ",0", "gpu:4 gpu:0", ""},
		{"MIG-bbbb", "gpu:6", ""},
		{"8", "", "there are 8 GPUs"},
		{"-1", "", "there are 8 GPUs"},
		{"0,NoDevFiles", "", `"NoDevFiles": no such GPU`},
		{"GPU-", "", "the UUIDs of 8 GPUs begin so"},
		{"G", "", "no such GPU"},
		{"MIG-a", "", "no such GPU"},
		{"", "", "no such GPU"},
		{"1,2,1", "", "gpu:1 is named twice"},
		{"MIG-aaaa,MIG-bbbb", "", "gpu:6 is named twice"},
		{strings.Repeat("0,", 2000), "", "want at most 1024"},
	} {
		v, err := all.Select(c.list)
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%.40q: %v, want an error with %q", c.list, err, c.fault)
		case c.fault == "" && (err != nil || locations(v) != c.want):
			t.Errorf("%.40q: %q, %v; want %q", c.list, locations(v), err, c.want)
		}
	}
}

// CUDA's numbers are those of nvidia-smi, which are not always in PCI order,
// and GPUs that a process may not open have none.
func TestNumbering(t *testing.T) {
	top := fixturetest.Topology(t, "hgx-h20-8nic")
	for i := range top.GPUs {
		top.GPUs[i].NVMLIndex = new(7 - i)
	}
	top.GPUs[5].Visible = new(false)
	if got, want := locations(export.AllGPUs(top)), "gpu:7 gpu:6 gpu:4 gpu:3 gpu:2 gpu:1 gpu:0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	top.GPUs[0].NVMLIndex = nil // one is not known: nothing is known of the order
	if got, want := locations(export.AllGPUs(top)), "gpu:0 gpu:1 gpu:2 gpu:3 gpu:4 gpu:6 gpu:7"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNumberingNotes(t *testing.T) {
	has := func(v export.Visible, part string) bool {
		return slices.ContainsFunc(v.Notes, func(n string) bool { return strings.Contains(n, part) })
	}
	if v := export.AllGPUs(fixturetest.Topology(t, "mi300x-8nic")); !has(v, "HIP") {
		t.Errorf("notes of AMD's GPUs: %q", v.Notes)
	}
	top := fixturetest.Topology(t, "dgx-h100")
	if v := export.AllGPUs(top); len(v.Notes) != 0 {
		t.Errorf("notes of equal GPUs: %q", v.Notes)
	}
	top.GPUs[3].Model = "another"
	if v := export.AllGPUs(top); !has(v, "CUDA_DEVICE_ORDER") {
		t.Errorf("notes of different GPUs: %q", v.Notes)
	}
}
