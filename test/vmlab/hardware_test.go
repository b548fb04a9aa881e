package vmlab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The addresses that the firmware gave, as lspci -t printed them inside.
func TestFunctions(t *testing.T) {
	for layout, want := range map[string]string{
		"numa2": `20:00.0 rp 21:00.0 up 22:00.0 dn 23:00.0 nic0 22:01.0 dn 24:00.0 nic1 22:02.0 dn 25:00.0 gpu0 22:03.0 dn 26:00.0 gpu1 20:01.0 rp 27:00.0 gpu2
			40:00.0 rp 41:00.0 up 42:00.0 dn 43:00.0 nic2 42:01.0 dn 44:00.0 nic3 42:02.0 dn 45:00.0 gpu3 42:03.0 dn 46:00.0 gpu4 40:01.0 rp 47:00.0 gpu5`,
		"numa4": `20:00.0 rp 21:00.0 up 22:00.0 dn 23:00.0 nic0 22:01.0 dn 24:00.0 gpu0 22:02.0 dn 25:00.0 up 26:00.0 dn 27:00.0 nic1 26:01.0 dn 28:00.0 gpu1 20:01.0 rp 29:00.0 gpu2
			40:00.0 rp 41:00.0 nic2 40:01.0 rp 42:00.0 gpu3
			60:00.0 rp 61:00.0 up 62:00.0 dn 63:00.0 nic3 62:01.0 dn 64:00.0 gpu4 62:02.0 dn 65:00.0 gpu5`,
		"rails": `20:00.0 rp 21:00.0 up 22:00.0 dn 23:00.0 nic0 22:01.0 dn 24:00.0 nic1 40:00.0 rp 41:00.0 up 42:00.0 dn 43:00.0 nic2 42:01.0 dn 44:00.0 nic3`,
	} {
		m, err := Layout(layout)
		if err != nil {
			t.Fatal(err)
		}
		short := map[string]string{RootPort: "rp", Upstream: "up", Downstream: "dn"}
		var got []string
		for _, f := range m.Functions() {
			name := f.ID
			if s, ok := short[f.Kind]; ok {
				name = s
			}
			got = append(got, strings.TrimPrefix(f.BDF, "0000:"), name)
			if f.Node != m.Bridges[f.Bridge].Node {
				t.Errorf("%s: %s on node %d", layout, f.BDF, f.Node)
			}
		}
		if want := strings.Fields(want); !slices.Equal(got, want) {
			t.Errorf("%s:\n%v, want\n%v", layout, got, want)
		}
	}
}

func TestClass(t *testing.T) {
	m := FourNodes()
	at := map[string]*Function{}
	for _, f := range m.Functions() {
		at[f.ID] = &f
	}
	for pair, want := range map[string]string{
		"nic0 nic0": "X", "nic0 gpu0": "PIX", "nic0 nic1": "PXB", "nic1 gpu1": "PIX", "gpu0 gpu1": "PXB",
		"gpu1 gpu2": "PHB", "nic2 gpu3": "PHB", "nic0 nic2": "NODE", "gpu1 gpu3": "NODE", "nic0 nic3": "SYS", "gpu4 gpu5": "PIX",
	} {
		a, b, _ := strings.Cut(pair, " ")
		for _, p := range [][2]string{{a, b}, {b, a}} {
			if got := m.Class(at[p[0]], at[p[1]]); got != want {
				t.Errorf("%v: %s, want %s", p, got, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, name := range LayoutNames() {
		m, err := Layout(name)
		if err != nil || m.Layout != name {
			t.Fatalf("%s: %v", name, err)
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
	}
	for want, spoil := range map[string]func(*Machine){
		"do not divide":       func(m *Machine) { m.CPUs = 3 },
		"has 1 columns":       func(m *Machine) { m.Distances[1] = m.Distances[1][:1] },
		"distance 10 from":    func(m *Machine) { m.Distances[0][1] = 10 },
		"distance 21 from":    func(m *Machine) { m.Distances[1][0] = 40 },
		"NUMA node 2 of 2":    func(m *Machine) { m.Bridges[1].Node = 2 },
		"two functions are":   func(m *Machine) { m.Bridges[1].Bus = 0x21 },
		"rail 0 is there":     func(m *Machine) { m.Bridges[1].Slots[0] = nic(0, Virtio, 0) },
		"rail 99 is there":    func(m *Machine) { m.Bridges[1].Slots[0] = nic(ManagementRail, Virtio, 0) },
		`model "mlx5": there`: func(m *Machine) { m.Bridges[1].Slots[0] = nic(4, "mlx5", 0) },
	} {
		m := TwoNodes()
		spoil(m)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if _, err := Layout("none"); err == nil || !strings.Contains(err.Error(), "numa2, numa4, rails") {
		t.Error(err)
	}
	if got := fmt.Sprint(TwoNodes().CPUsOf(1)); got != "1 1" {
		t.Errorf("CPUs of node 1: %s", got)
	}
}
