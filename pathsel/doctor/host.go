package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// host is a topology, with the facts that many checks need.
type host struct {
	*topo.Index
	t     *topo.Topology
	paths *pathsel.Host
	units units.System
	ports []pathsel.Port // in the order of names
	gpus  []*topo.GPU
	near  topo.Nearness
	links topo.GPULinks

	hardware      []*topo.RDMADevice // that is not software
	hardwarePorts []*pathsel.Port    // of hardware, without virtual functions whose physical function is here too
	dataPorts     []*pathsel.Port    // of these, those made for data
	rdmaDevices   []*topo.RDMADevice // that RDMA uses: hardware, or software on a host without RDMA hardware
	rdmaPorts     []*pathsel.Port    // likewise

	verbs    *replies.VerbsReport // nil: not tried
	gidIndex *int
	peer     *topo.Topology
}

func newHost(t *topo.Topology, paths *pathsel.Host, o Options) *host {
	h := &host{Index: paths.Index(), t: t, paths: paths, units: units.System(o.Units), verbs: o.Verbs, gidIndex: o.GIDIndex, peer: o.Peer,
		ports: paths.Ports(), near: paths.Nearness(), links: t.GPULinks()}
	h.gpus = matching(t.GPUs, func(*topo.GPU) bool { return true })
	for i := range h.ports { // a link layer guessed from a device's name is good enough for a choice, not for a verdict
		if p := &h.ports[i]; p.RDMA() && (h.Port(p.ID) == nil || h.Port(p.ID).LinkLayer == "") {
			p.LinkLayer = ""
		}
	}
	h.hardware = matching(t.RDMADevices, func(r *topo.RDMADevice) bool { return !r.Software })
	h.hardwarePorts = matching(h.ports, func(p *pathsel.Port) bool { return p.RDMA() && !p.Software && p.PF == "" })
	h.dataPorts = onlyData(h.hardwarePorts)
	if h.rdmaDevices, h.rdmaPorts = h.hardware, h.hardwarePorts; len(h.hardware) == 0 {
		h.rdmaDevices = matching(t.RDMADevices, func(*topo.RDMADevice) bool { return true })
		h.rdmaPorts = matching(h.ports, func(p *pathsel.Port) bool { return p.RDMA() && p.PF == "" })
	}
	return h
}

// imported says whether the topology was read from another tool's file, which leaves out
// many facts.
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

// onHost says how to get facts that only the running host shows.
func (h *host) onHost() string {
	return "run topoctl on the host itself, as the user that the programs run as"
}

// placeHow says how to get the place of a device.
func (h *host) placeHow() string {
	switch {
	case h.near == topo.NearnessHidden:
		return "see vm-flat"
	case h.imported():
		return h.lookAgain()
	}
	return "see numa-unknown and rdma-no-pci"
}

// guest says whether the host is a virtual machine; known is false where
// that is not known.
func (h *host) guest() (guest, known bool) {
	return h.t.Host.Guest(), h.t.Host.Virtual != ""
}

// class is the relation of two nodes of the axis. It is unknown for other nodes, and if the hypervisor hides it.
func (h *host) class(a, b topo.ID) topo.Class {
	r, _ := h.Relation(a, b)
	return h.near.Of(r.Class)
}

// gpuOn is the GPU on a PCI function, nil if there is none.
func (h *host) gpuOn(function topo.ID) *topo.GPU {
	if gpus := h.On(function).GPUs; function != "" && len(gpus) > 0 {
		return gpus[0]
	}
	return nil
}

// rate prints what a path carries.
func (h *host) rate(r topo.Rate) string { return units.Rate(int64(r), h.units.Or(units.Gbyte)) }

// wire prints what a network port carries.
func (h *host) wire(r topo.Rate) string { return units.Rate(int64(r), h.units.Or(units.Gbit)) }

// state is the state of an RDMA port, "" where it is not known.
func (h *host) state(p *pathsel.Port) string {
	if x := h.Port(p.ID); x != nil {
		return x.State
	}
	return ""
}

// active says whether a port is up; one whose state is not known may be.
func (h *host) active(p *pathsel.Port) bool {
	if p.RDMA() {
		s := h.state(p)
		return s == "" || s == "ACTIVE"
	}
	return p.BytesPerSec == nil || *p.BytesPerSec > 0
}

// function is the PCI function of a port, nil if it has none here.
func (h *host) function(p *pathsel.Port) *topo.PCIDevice {
	if r := h.RDMADevice(p.NIC); r != nil {
		return h.PCIDevice(r.PCI)
	}
	if n := h.NetdevNamed(p.NIC.Name()); n != nil {
		return h.PCIDevice(n.PCI)
	}
	return nil
}

// pciFile is a file of a PCI function with what it says; the node's evidence
// where it was not read from files.
func pciFile(d *topo.PCIDevice, name, says string) string {
	if !strings.HasPrefix(d.Evidence, "/sys/") {
		return d.Evidence
	}
	return withValue("/sys/bus/pci/devices/"+d.BDF.String()+"/"+name, says)
}

// portFile is a file of an RDMA port with what it says.
func (h *host) portFile(p *pathsel.Port, name, says string) string {
	x := h.Port(p.ID)
	if x == nil || !strings.HasPrefix(x.Evidence, "/sys/") {
		if x != nil && x.Evidence != "" {
			return x.Evidence
		}
		if r := h.RDMADevice(p.NIC); r != nil {
			return r.Evidence
		}
		return ""
	}
	return withValue(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/%s", p.Device, p.Number, name), says)
}

// netFile is a file of an interface with what it says, the call of netlink that told it, or the place in an imported file.
func (h *host) netFile(name, file, says string) string {
	n := h.NetdevNamed(name)
	if n != nil && n.Evidence != "" && !strings.HasPrefix(n.Evidence, "/sys/") {
		return n.Evidence
	}
	fact := map[string]string{"mtu": "mtu_bytes", "operstate": "state", "bonding/slaves": "lower"}[file]
	if n != nil && fact != "" {
		if f, ok := n.Facts.Get(fact); ok && f.Source == topo.SourceNetlink {
			return withValue(f.Where+" "+file+" of "+name, says)
		}
	}
	return netFile(name, file, says)
}

func netFile(name, file, says string) string {
	return withValue("/sys/class/net/"+name+"/"+file, says)
}

// withValue is a file or call with what it said, as evidence.
func withValue(path, says string) string {
	if says == "" {
		return path
	}
	return path + " = " + says
}

// distinct drops "" and repetitions.
func distinct(list ...string) []string {
	return unique(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" }))
}

// unique drops repetitions.
func unique[T comparable](list []T) []T {
	var out []T
	for _, x := range list {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// ids are the nodes of ports.
func ids(ports []*pathsel.Port) []topo.ID {
	return mapped(ports, func(p *pathsel.Port) topo.ID { return p.ID })
}

func names(ports []*pathsel.Port) []string {
	return mapped(ports, func(p *pathsel.Port) string { return p.Name })
}

// mostNames is how many names of a long list a sentence has.
const mostNames = 7

// shortList joins names like text.Join, and leaves room for the sentence around.
func shortList(list []string) string {
	if len(list) > 3 {
		return text.List(list, 2)
	}
	return text.Join(list, mostNames)
}

func asStrings[T ~string](list []T) []string {
	return mapped(list, func(s T) string { return string(s) })
}

// groups collects things by a name, in the order of first use.
type groups[K comparable, T any] struct {
	order []K
	of    map[K][]T
}

func (b *groups[K, T]) add(key K, value ...T) {
	if b.of == nil {
		b.of = map[K][]T{}
	}
	if _, ok := b.of[key]; !ok {
		b.order = append(b.order, key)
	}
	b.of[key] = append(b.of[key], value...)
}

// each visits the groups.
func (b *groups[K, T]) each(visit func(K, []T)) {
	for _, k := range b.order {
		visit(k, b.of[k])
	}
}

// matching are the items of a list that meet a condition.
func matching[T any](list []T, meets func(*T) bool) []*T {
	var out []*T
	for i := range list {
		if meets(&list[i]) {
			out = append(out, &list[i])
		}
	}
	return out
}

// mapped returns something of each item of a list.
func mapped[T, U any](list []T, get func(T) U) []U {
	out := make([]U, len(list))
	for i, x := range list {
		out[i] = get(x)
	}
	return out
}

// portList names ports in a sentence.
func portList(ports []*pathsel.Port) string { return text.Join(names(ports), mostNames) }

// differing is the finding about ports that should have one value and have several. Its subjects
// are all of these ports, its text is "9000 on eth0 and eth1; 1500 on eth2", and its evidence has
// a file for each value.
func differing[K comparable](by *groups[K, *pathsel.Port], say func(K) string, file func(*pathsel.Port, K) string) Finding {
	f := Finding{Severity: Warning}
	var parts []string
	by.each(func(value K, ports []*pathsel.Port) {
		parts = append(parts, say(value)+" on "+portList(ports))
		f.Subjects = append(f.Subjects, ids(ports)...)
		f.Evidence = append(f.Evidence, file(ports[0], value))
	})
	f.Text = strings.Join(parts, "; ")
	return f
}
