package vmlab

import (
	"fmt"
	"slices"
	"strings"
)

func nic(rail int, model string, mtu int) Slot {
	return Slot{NIC: &NIC{Rail: rail, Model: model, MTU: mtu}}
}

func gpu() Slot {
	g := H100
	return Slot{GPU: &g}
}

func sw(slots ...Slot) Slot { return Slot{Switch: &Switch{Slots: slots}} }

// TwoNodes is a host as NVIDIA's have it, halved: on each of two NUMA nodes a switch
// with two NICs and two GPUs, and a GPU on a root port of its own. Rail 1 is an e1000e.
func TwoNodes() *Machine {
	return &Machine{
		Layout: "numa2", CPUs: 2, MemoryMB: 512, Management: true,
		Distances: [][]int{{10, 21}, {21, 10}},
		Bridges: []Bridge{
			{Node: 0, Bus: 0x20, Slots: []Slot{sw(nic(0, Virtio, 1500), nic(1, E1000e, 1500), gpu(), gpu()), gpu()}},
			{Node: 1, Bus: 0x40, Slots: []Slot{sw(nic(2, Virtio, 1500), nic(3, Virtio, 1500), gpu(), gpu()), gpu()}},
		},
	}
}

// FourNodes is a host with everything that a class can be told by: a switch below a
// switch, two host bridges on one NUMA node, one on the farthest, two nodes without any.
func FourNodes() *Machine {
	return &Machine{
		Layout: "numa4", CPUs: 4, MemoryMB: 512, Management: true,
		Distances: [][]int{{10, 21, 31, 31}, {21, 10, 31, 31}, {31, 31, 10, 21}, {31, 31, 21, 10}},
		Bridges: []Bridge{
			{Node: 0, Bus: 0x20, Slots: []Slot{sw(nic(0, Virtio, 1500), gpu(), sw(nic(1, E1000e, 1500), gpu())), gpu()}},
			{Node: 0, Bus: 0x40, Slots: []Slot{nic(2, Virtio, 1500), gpu()}},
			{Node: 3, Bus: 0x60, Slots: []Slot{sw(nic(3, Virtio, 4200), gpu(), gpu())}},
		},
	}
}

// Rails is a machine to move memory with: four rails, two on each of two NUMA nodes,
// with the largest RoCE MTU.
func Rails() *Machine {
	return &Machine{
		Layout: "rails", CPUs: 2, MemoryMB: 512, Management: true,
		Distances: [][]int{{10, 21}, {21, 10}},
		Bridges: []Bridge{
			{Node: 0, Bus: 0x20, Slots: []Slot{sw(nic(0, Virtio, 4200), nic(1, Virtio, 4200))}},
			{Node: 1, Bus: 0x40, Slots: []Slot{sw(nic(2, Virtio, 4200), nic(3, Virtio, 4200))}},
		},
	}
}

var layouts = map[string]func() *Machine{"numa2": TwoNodes, "numa4": FourNodes, "rails": Rails}

// Layout gives a layout by its name.
func Layout(name string) (*Machine, error) {
	if f, ok := layouts[name]; ok {
		return f(), nil
	}
	return nil, fmt.Errorf("hardware: unknown layout %q; there is %s", name, strings.Join(LayoutNames(), ", "))
}

// LayoutNames lists the layouts, sorted.
func LayoutNames() []string {
	var names []string
	for n := range layouts {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
