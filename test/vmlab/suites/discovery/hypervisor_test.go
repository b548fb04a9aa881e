package discovery

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/test/vmlab"
)

// hypervisor is a host that could have passed a lab machine its devices. It is made from what was
// stated of the machine, not from what discovery says of it.
type hypervisor struct {
	*vmlab.Machine
	guest  *vmlab.Machine
	passed []passed
}

// passed is a device of the guest and the host's that it is.
type passed struct{ guest, host *vmlab.Function }

// hypervisorOf has a switch on each of two NUMA nodes. The guest's devices are below them in turn,
// which is not how the guest has them, beside a GPU on each switch that the host keeps.
func hypervisorOf(guest *vmlab.Machine) *hypervisor {
	h := &hypervisor{guest: guest}
	var ours [2][]*vmlab.Function
	slots := [2][]vmlab.Slot{{{GPU: &vmlab.H100}}, {{GPU: &vmlab.H100}}}
	for i, f := range devices(guest) {
		side := i % 2
		ours[side] = append(ours[side], f)
		slots[side] = append(slots[side], vmlab.Slot{NIC: f.NIC, GPU: f.GPU})
	}
	h.Machine = &vmlab.Machine{
		Layout: "hypervisor", CPUs: 64, MemoryMB: 1 << 20, Distances: [][]int{{10, 21}, {21, 10}},
		Bridges: []vmlab.Bridge{
			{Node: 0, Bus: 0x80, Slots: []vmlab.Slot{{Switch: &vmlab.Switch{Slots: slots[0]}}}},
			{Node: 1, Bus: 0xc0, Slots: []vmlab.Slot{{Switch: &vmlab.Switch{Slots: slots[1]}}}},
		},
	}
	var theirs [2][]*vmlab.Function
	for _, f := range devices(h.Machine) {
		theirs[f.Bridge] = append(theirs[f.Bridge], f)
	}
	for side := range ours {
		for i, f := range ours[side] {
			h.passed = append(h.passed, passed{guest: f, host: theirs[side][1+i]})
		}
	}
	return h
}

// devices are a machine's NICs and GPUs, in the order of their addresses.
func devices(m *vmlab.Machine) []*vmlab.Function {
	var out []*vmlab.Function
	for _, f := range m.Functions() {
		if f.NIC != nil || f.GPU != nil {
			out = append(out, &f)
		}
	}
	slices.SortFunc(out, func(a, b *vmlab.Function) int { return strings.Compare(a.BDF, b.BDF) })
	return out
}

// hostName is what the host calls its end of a rail: not what the guest does.
func hostName(rail int) string { return fmt.Sprintf("port%d", rail) }

// topology is the host's document. macOf gives the addresses of the NICs that the rails are.
func (h *hypervisor) topology(t *testing.T, macOf func(rail int) string) []byte {
	t.Helper()
	d := &topo.Topology{Origin: "live", Complete: true, Host: topo.Host{Name: "hypervisor", Arch: "x86_64", Virtual: "none", Container: new(bool)}}
	for n, distances := range h.Distances {
		first, last := h.CPUsOf(n)
		d.NUMANodes = append(d.NUMANodes, topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(n)}, Index: n, CPUs: fmt.Sprintf("%d-%d", first, last), Distances: distances})
	}
	bridge := func(bus int) topo.ID { return topo.HostBridgeID(fmt.Sprintf("0000:%02x", bus)) }
	for _, b := range h.Bridges {
		d.HostBridges = append(d.HostBridges, topo.HostBridge{Node: topo.Node{ID: bridge(b.Bus)}, Bus: uint8(b.Bus), NUMA: new(b.Node)})
	}
	rails := map[string]int{}
	for _, p := range h.passed {
		if p.guest.NIC != nil {
			rails[p.host.BDF] = p.guest.NIC.Rail
		}
	}
	link := &topo.PCILink{SpeedMTs: new(32000), Width: new(16), MaxSpeedMTs: new(32000), MaxWidth: new(16)}
	for _, f := range h.Functions() {
		at := bdf(t, f.BDF)
		fn := topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(at)}, BDF: at, Class: "0x060400", NUMA: new(f.Node), Link: link, Parent: bridge(h.Bridges[f.Bridge].Bus)}
		if len(f.Above) > 0 {
			fn.Parent = topo.PCIID(bdf(t, f.Above[len(f.Above)-1]))
		}
		switch {
		case f.GPU != nil:
			fn.Class = "0x030200"
			d.GPUs = append(d.GPUs, topo.GPU{Node: topo.Node{ID: topo.GPUID(len(d.GPUs))}, Index: len(d.GPUs), PCI: fn.ID, BDF: &at, NUMA: fn.NUMA, Vendor: "nvidia", KnownFrom: "pci"})
		case f.NIC != nil:
			fn.Class = "0x020000"
			name := hostName(rails[f.BDF])
			d.Netdevs = append(d.Netdevs, topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name)}, Name: name, PCI: fn.ID, BDF: &at, NUMA: fn.NUMA, Type: "ether", MAC: macOf(rails[f.BDF])})
		}
		d.PCIDevices = append(d.PCIDevices, fn)
	}
	d.Derive()
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func bdf(t *testing.T, s string) topo.BDF {
	t.Helper()
	b, err := topo.ParseBDF(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// domain is how libvirt would describe the guest, if QEMU had been started with the same bridges and
// got the devices from the host.
func (h *hypervisor) domain(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	line := func(format string, values ...any) { fmt.Fprintf(&out, format+"\n", values...) }
	place := func(bus, slot int) string {
		return fmt.Sprintf("<address type='pci' domain='0x0000' bus='0x%02x' slot='0x%02x' function='0x0'/>", bus, slot)
	}
	index := map[string]int{} // of the controllers, by QEMU's names of their buses
	controller := func(id, model, target string, bus, slot int) {
		index[id] = len(index) + 1
		line("<controller type='pci' index='%d' model='%s'>%s%s</controller>", index[id], model, target, place(bus, slot))
	}
	line("<domain type='kvm'>\n<devices>\n<controller type='pci' index='0' model='pcie-root'/>")
	for i, b := range h.guest.Bridges {
		controller(fmt.Sprintf("pxb%d", i), "pcie-expander-bus", fmt.Sprintf("<target busNr='%d'><node>%d</node></target>", b.Bus, b.Node), 0, 0x10+i)
	}
	models := map[string]string{
		vmlab.RootPort: "pcie-root-port", vmlab.Upstream: "pcie-switch-upstream-port", vmlab.Downstream: "pcie-switch-downstream-port",
	}
	partner := map[string]topo.BDF{}
	for _, p := range h.passed {
		partner[p.guest.BDF] = bdf(t, p.host.BDF)
	}
	for _, f := range h.guest.Functions() {
		if model, ok := models[f.Kind]; ok {
			controller(f.ID, model, "", index[f.Parent], f.Slot)
			continue
		}
		element, attributes := "hostdev", "mode='subsystem' type='pci'"
		if f.NIC != nil {
			element, attributes = "interface", "type='hostdev'"
		}
		from := partner[f.BDF]
		line("<%s %s managed='yes'><source>%s</source>%s</%s>", element, attributes, place(int(from.Bus), int(from.Device)), place(index[f.Parent], f.Slot), element)
	}
	line("</devices>\n</domain>")
	return out.Bytes()
}

// matrix has every pair of the guest's devices with the class of the host's that they are, by the
// guest's addresses. Its management NIC is not the host's, and on no node.
func (h *hypervisor) matrix() []string {
	own := &vmlab.Function{BDF: "0000:00:1d.0"}
	all := h.passed
	if h.guest.Management {
		all = append(slices.Clone(all), passed{guest: own, host: own})
	}
	var out []string
	for _, a := range all {
		for _, b := range all {
			class := h.Class(a.host, b.host)
			if class != "X" && (a.guest == own || b.guest == own) {
				class = "?"
			}
			out = append(out, fmt.Sprintf("%s %s: %s", a.guest.BDF, b.guest.BDF, class))
		}
	}
	slices.Sort(out)
	return out
}
