package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/pathsel"
)

// host is a topology with what checks ask for again and again.
type host struct {
	t      *topo.Topology
	paths  *pathsel.Host
	units  units.System
	ports  []pathsel.Port // in the order of names
	pci    map[topo.ID]*topo.PCIDevice
	below  map[topo.ID][]*topo.PCIDevice // functions by their parent
	links  map[topo.ID][]*topo.Link      // PCIe links by their upper end
	gpuOf  map[topo.ID]*topo.GPU         // GPUs by their function
	rdma   map[topo.ID]*topo.RDMADevice
	port   map[topo.ID]*topo.Port
	netdev map[string]*topo.Netdev
	axis   map[topo.ID]int

	verbs    *replies.VerbsReport // nil: not tried
	gidIndex *int
	peer     *topo.Topology
}

func newHost(t *topo.Topology, paths *pathsel.Host, o Options) *host {
	h := &host{t: t, paths: paths, units: o.Units, verbs: o.Verbs, gidIndex: o.GIDIndex, peer: o.Peer, ports: paths.Ports(), pci: map[topo.ID]*topo.PCIDevice{}, below: map[topo.ID][]*topo.PCIDevice{},
		links: map[topo.ID][]*topo.Link{}, gpuOf: map[topo.ID]*topo.GPU{}, rdma: map[topo.ID]*topo.RDMADevice{},
		port: map[topo.ID]*topo.Port{}, netdev: map[string]*topo.Netdev{}, axis: map[topo.ID]int{}}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		h.pci[d.ID] = d
		h.below[d.Parent] = append(h.below[d.Parent], d)
	}
	for i := range t.Links {
		if l := &t.Links[i]; l.Kind == topo.LinkPCIe {
			h.links[l.A] = append(h.links[l.A], l)
		}
	}
	for i := range t.GPUs {
		if g := &t.GPUs[i]; g.PCI != "" {
			h.gpuOf[g.PCI] = g
		}
	}
	for i := range t.RDMADevices {
		h.rdma[t.RDMADevices[i].ID] = &t.RDMADevices[i]
	}
	for i := range t.Ports {
		h.port[t.Ports[i].ID] = &t.Ports[i]
	}
	for i := range t.Netdevs {
		h.netdev[t.Netdevs[i].Name] = &t.Netdevs[i]
	}
	for i, id := range t.Derived.Axis {
		h.axis[id] = i
	}
	for i := range h.ports { // what a device's name suggests is good for a choice, not for a verdict
		if p := &h.ports[i]; p.RDMA() && (h.port[p.ID] == nil || h.port[p.ID].LinkLayer == "") {
			p.LinkLayer = ""
		}
	}
	return h
}

// imported says whether the topology is another tool's file, which lacks much
// that a host has.
func (h *host) imported() bool { return strings.HasPrefix(h.t.Origin, "import:") }

// live says whether the topology is what this process saw of its own machine.
func (h *host) live() bool { return h.t.Origin == "live" }

// lookAgain says how to get facts that the origin does not have.
func (h *host) lookAgain() string {
	if h.imported() {
		return "run topoctl on the host itself, or record it there with \"topoctl discover --capture FILE\""
	}
	return "\"topoctl discover\" on the host says which files could not be read"
}

// asRoot says how to get facts that only root can read.
func (h *host) asRoot() string {
	switch {
	case h.imported():
		return "run topoctl as root on the host itself"
	case h.live():
		return "run topoctl as root"
	}
	return "record the host again as root, or run topoctl there as root"
}

// onHost says that only a look at the running host can tell.
func (h *host) onHost() string {
	return "run topoctl on the host itself, as the user that the programs run as"
}

// placeHow says how to get the place of a device.
func (h *host) placeHow() string {
	if h.imported() {
		return h.lookAgain()
	}
	return "see numa-unknown and rdma-no-pci"
}

// guest says whether the host is a virtual machine; known is false where
// nothing tells.
func (h *host) guest() (guest, known bool) {
	return h.t.Host.Virtual != "" && h.t.Host.Virtual != "none", h.t.Host.Virtual != ""
}

// class is the relation of two nodes of the axis, unknown for others.
func (h *host) class(a, b topo.ID) topo.Class {
	i, ok1 := h.axis[a]
	j, ok2 := h.axis[b]
	if !ok1 || !ok2 {
		return topo.Class{}
	}
	return h.t.Derived.At(i, j).Class
}

// rate prints what a path carries.
func (h *host) rate(r topo.Rate) string { return units.Rate(int64(r), h.units.Or(units.Gbyte)) }

// wire prints what a network port carries.
func (h *host) wire(r topo.Rate) string { return units.Rate(int64(r), h.units.Or(units.Gbit)) }

// hardware lists the RDMA devices that are not software.
func (h *host) hardware() []*topo.RDMADevice {
	var out []*topo.RDMADevice
	for i := range h.t.RDMADevices {
		if r := &h.t.RDMADevices[i]; !r.Software {
			out = append(out, r)
		}
	}
	return out
}

// hardwarePorts are the ports of RDMA hardware, without virtual functions
// whose physical function is here too.
func (h *host) hardwarePorts() []*pathsel.Port {
	var out []*pathsel.Port
	for i := range h.ports {
		if p := &h.ports[i]; p.RDMA() && !p.Software && p.PF == "" {
			out = append(out, p)
		}
	}
	return out
}

// rdmaDevices are the devices that RDMA goes by: hardware, on a host without it
// software.
func (h *host) rdmaDevices() []*topo.RDMADevice {
	out := h.hardware()
	if len(out) == 0 {
		for i := range h.t.RDMADevices {
			out = append(out, &h.t.RDMADevices[i])
		}
	}
	return out
}

// rdmaPorts are the ports that RDMA goes by: those of hardware, on a host without
// RDMA hardware those of software.
func (h *host) rdmaPorts() []*pathsel.Port {
	if len(h.hardware()) > 0 {
		return h.hardwarePorts()
	}
	var out []*pathsel.Port
	for i := range h.ports {
		if p := &h.ports[i]; p.RDMA() && p.PF == "" {
			out = append(out, p)
		}
	}
	return out
}

// dataPorts are the hardware ports that are made for data.
func (h *host) dataPorts() []*pathsel.Port {
	return slices.DeleteFunc(h.hardwarePorts(), func(p *pathsel.Port) bool { return p.Role != pathsel.RoleData })
}

// state is the state of an RDMA port, "" where it is not told.
func (h *host) state(p *pathsel.Port) string {
	if x := h.port[p.ID]; x != nil {
		return x.State
	}
	return ""
}

// active says whether a port is up; one whose state is not told may be.
func (h *host) active(p *pathsel.Port) bool {
	if p.RDMA() {
		s := h.state(p)
		return s == "" || s == "ACTIVE"
	}
	return p.BytesPerSec == nil || *p.BytesPerSec > 0
}

// function is the PCI function of a port, nil if it has none here.
func (h *host) function(p *pathsel.Port) *topo.PCIDevice {
	if r := h.rdma[p.NIC]; r != nil {
		return h.pci[r.PCI]
	}
	if n := h.netdev[p.NIC.Name()]; n != nil {
		return h.pci[n.PCI]
	}
	return nil
}

// linkAbove is the PCIe link that a function hangs from, nil if it has none.
func (h *host) linkAbove(d *topo.PCIDevice) *topo.Link {
	list := h.links[d.Parent]
	if up := h.pci[d.Parent]; len(list) == 1 && up != nil && (up.Role == topo.RoleRootPort || up.Role == topo.RoleDownstream) {
		return list[0]
	}
	for _, l := range list {
		if end := h.pci[l.B]; end != nil && end.BDF.Slot() == d.BDF.Slot() {
			return l
		}
	}
	return nil
}

// pciFile is a file of a PCI function with what it says; the node's evidence
// where it was not read from files.
func pciFile(d *topo.PCIDevice, name, says string) string {
	if !strings.HasPrefix(d.Evidence, "/sys/") {
		return d.Evidence
	}
	return saying("/sys/bus/pci/devices/"+d.BDF.String()+"/"+name, says)
}

// portFile is a file of an RDMA port with what it says.
func (h *host) portFile(p *pathsel.Port, name, says string) string {
	x := h.port[p.ID]
	if x == nil || !strings.HasPrefix(x.Evidence, "/sys/") {
		if r := h.rdma[p.NIC]; r != nil {
			return r.Evidence
		}
		return ""
	}
	return saying(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/%s", p.Device, p.Number, name), says)
}

// netFile is a file of an interface with what it says.
func netFile(name, file, says string) string {
	return saying("/sys/class/net/"+name+"/"+file, says)
}

func saying(path, says string) string {
	if says == "" {
		return path
	}
	return path + " = " + says
}

// places drops what is no place and what was said before.
func places(list ...string) []string {
	var out []string
	for _, s := range list {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// ids are the nodes of ports.
func ids(ports []*pathsel.Port) []topo.ID {
	out := make([]topo.ID, 0, len(ports))
	for _, p := range ports {
		out = append(out, p.ID)
	}
	return out
}

func names(ports []*pathsel.Port) []string {
	out := make([]string, 0, len(ports))
	for _, p := range ports {
		out = append(out, p.Name)
	}
	return out
}

// few is some with room for fewer.
func few(list []string) string {
	const most = 3
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most-1], ", "), len(list)-most+1)
	}
	return some(list)
}

// some joins names for a sentence, the first few of many.
func some(list []string) string {
	const most = 8
	n := len(list)
	switch {
	case n == 0:
		return ""
	case n == 1:
		return list[0]
	case n > most:
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most-1], ", "), n-most+1)
	}
	return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
}

func strs[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// count is "1 port" or "3 ports".
func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// orNo is count with a word for 0.
func orNo(n int, what string) string {
	if n == 0 {
		return "no " + what
	}
	return count(n, what)
}

// is agrees a verb with a number.
func is(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// bins collects things by a name, in the order of first use.
type bins[K comparable, T any] struct {
	order []K
	of    map[K][]T
}

func (b *bins[K, T]) add(key K, value ...T) {
	if b.of == nil {
		b.of = map[K][]T{}
	}
	if _, ok := b.of[key]; !ok {
		b.order = append(b.order, key)
	}
	b.of[key] = append(b.of[key], value...)
}

// each visits the groups.
func (b *bins[K, T]) each(visit func(K, []T)) {
	for _, k := range b.order {
		visit(k, b.of[k])
	}
}
