package vmlab

import (
	"fmt"
	"slices"
)

// Kinds of functions.
const (
	RootPort   = "root port"
	Upstream   = "upstream port"
	Downstream = "downstream port"
	KindNIC    = "nic"
	KindGPU    = "gpu"
)

// Function is one PCI function, at the address that the firmware gives it.
type Function struct {
	ID     string // QEMU's name of it
	BDF    string // domain:bus:device.function
	Kind   string
	Parent string // QEMU's name of the bus that it is on
	Slot   int    // its device number there
	Above  []string
	Bridge int // index of its host bridge
	Node   int
	NIC    *NIC
	GPU    *GPU
}

// Functions lists what the host bridges carry, depth first: the order in which the
// firmware numbers the buses.
func (m *Machine) Functions() []Function {
	w := &walker{}
	for i, b := range m.Bridges {
		w.bridge, w.node, w.last = i, b.Node, b.Bus
		w.slots(b.Slots, b.Bus, fmt.Sprintf("pxb%d", i), nil)
	}
	return w.out
}

// NICs lists the NICs by rail.
func (m *Machine) NICs() []NIC {
	var out []NIC
	for _, f := range m.Functions() {
		if f.NIC != nil {
			out = append(out, *f.NIC)
		}
	}
	slices.SortFunc(out, func(a, b NIC) int { return a.Rail - b.Rail })
	return out
}

type walker struct {
	out          []Function
	bridge, node int
	last         int // the highest bus number given out
	gpus         int
}

func bdf(bus, device int) string { return fmt.Sprintf("0000:%02x:%02x.0", bus, device) }

func (w *walker) add(f Function) {
	f.Bridge, f.Node = w.bridge, w.node
	w.out = append(w.out, f)
}

// slots adds the ports of a root bus or of a switch, each with what is below it. Above
// are the addresses of the bridges on the way, nearest last.
func (w *walker) slots(slots []Slot, bus int, parent string, above []string) {
	kind, prefix := RootPort, "rp"
	if len(above) > 0 {
		kind, prefix = Downstream, "dn"
	}
	for i, s := range slots {
		port := Function{ID: fmt.Sprintf("%s%02x_%d", prefix, bus, i), BDF: bdf(bus, i), Kind: kind, Parent: parent, Slot: i, Above: above}
		w.add(port)
		w.last++
		w.plug(s, w.last, port.ID, append(slices.Clone(above), port.BDF))
	}
}

func (w *walker) plug(s Slot, bus int, parent string, above []string) {
	f := Function{BDF: bdf(bus, 0), Parent: parent, Above: above, NIC: s.NIC, GPU: s.GPU}
	switch {
	case s.NIC != nil:
		f.ID, f.Kind = fmt.Sprintf("nic%d", s.NIC.Rail), KindNIC
		w.add(f)
	case s.GPU != nil:
		f.ID, f.Kind = fmt.Sprintf("gpu%d", w.gpus), KindGPU
		w.gpus++
		w.add(f)
	case s.Switch != nil:
		f.ID, f.Kind = fmt.Sprintf("up%02x", bus), Upstream
		w.add(f)
		w.last++
		w.slots(s.Switch.Slots, w.last, f.ID, append(slices.Clone(above), f.BDF))
	}
}
