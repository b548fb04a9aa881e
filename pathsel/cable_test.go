package pathsel_test

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// coherentHost is a GPU with C2C whose two NIC functions, in slots of their own, are those of net.
func coherentHost(t *testing.T, first, second string) *pathsel.Host {
	t.Helper()
	nic := func(bus, net string) string {
		return `<pci busid="` + bus + `" class="0x020000" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="4"><nic>` + net + `</nic></pci>`
	}
	x := `<system version="1"><cpu numaid="0" affinity="fffff" arch="arm64">` + nic("0000:01:00.0", first) + nic("0002:01:00.0", second) +
		`<pci busid="000f:01:00.0" class="0x030000" vendor="0x10de" device="0x2e12" link_speed="2.5 GT/s PCIe" link_width="16">` +
		`<gpu dev="0" sm="121" rank="0" gdr="0"><c2c bw="40000" count="8"/></gpu></pci></cpu></system>`
	top, err := ncclxml.Decode([]byte(x))
	if err != nil {
		t.Fatal(err)
	}
	h, err := pathsel.New(top, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func net(name, port, guid string) string {
	s := `<net name="` + name + `" dev="0" speed="200000" port="` + port + `"`
	if guid != "" {
		s += ` guid="` + guid + `"`
	}
	return s + `/>`
}

// A GPU with C2C reaches its NICs by that and not by its PCIe link, and the functions of one cable have
// that cable once; two ports of one card have a cable each.
func TestFunctionsOfOneCable(t *testing.T) {
	const one, other, slot = "0x3042000003000002", "0x3042000003000003", topo.Rate(15_753_846_153)
	a := net("nicA", "1", one)
	for _, tt := range []struct {
		name, second string
		want         topo.Rate
		basis        topo.Basis
	}{
		{"one adapter and port", net("nicB", "1", one), 25 * topo.GBPerSec, topo.BasisRead},
		{"the other port", net("nicB", "2", one), 2 * slot, topo.BasisRead},
		{"another adapter", net("nicB", "1", other), 2 * slot, topo.BasisRead},
	} {
		h := coherentHost(t, a, tt.second)
		aff, err := h.Affinity("gpu:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c := aff.Ranked[0]; *c.BytesPerSec != slot || c.Basis != topo.BasisRead || !strings.HasPrefix(string(c.Limit), "pcie:000") {
			t.Errorf("%s: one function carries %d (%s), limit %s", tt.name, *c.BytesPerSec, c.Basis, c.Limit)
		}
		for _, l := range h.Locations() {
			together, err := h.Capacity(l, aff.Preferred())
			if err != nil {
				t.Fatal(err)
			}
			if *together.BytesPerSec != tt.want || together.Basis != tt.basis {
				t.Errorf("%s, %s: both carry %d (%s), want %d (%s)", tt.name, l, *together.BytesPerSec, together.Basis, tt.want, tt.basis)
			}
		}
		plan, err := h.Plan(nil)
		if err != nil {
			t.Fatal(err)
		}
		if *plan.BytesPerSec != tt.want {
			t.Errorf("%s: the plan carries %d, want %d", tt.name, *plan.BytesPerSec, tt.want)
		}
	}
	h := coherentHost(t, net("nicA", "1", ""), net("nicB", "1", ""))
	together, err := h.Capacity("gpu:0", []topo.ID{"port:nicA/1", "port:nicB/1"})
	if err != nil || *together.BytesPerSec != 2*slot || together.Basis != topo.BasisBound {
		t.Errorf("adapters that are not told: %v, %v: want a bound", together, err)
	}
}
