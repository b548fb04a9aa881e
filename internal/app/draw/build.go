package draw

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

// maxDepth bounds the climb down: a hostile document may nest without end.
const maxDepth = 64

// builder turns a topology into lines.
type builder struct {
	t        *topo.Topology
	opts     TreeOptions
	children map[topo.ID][]*topo.PCIDevice // by parent
	devices  map[topo.ID]*topo.PCIDevice
	carried  map[topo.ID]*load
	ports    map[topo.ID][]*topo.Port // by RDMA device
	links    map[topo.ID]*topo.Link   // by the node at the far end
	below    map[topo.ID][]*topo.Link // PCIe links by the port above
	seen     map[topo.ID]bool         // PCI functions that were reached
	hidden   int                      // PCI functions that were left out
	advice   string                   // how to see them
}

// load is what a PCI function carries.
type load struct {
	gpus     []*topo.GPU
	rdma     []*topo.RDMADevice
	netdevs  []*topo.Netdev
	nvmes    []*topo.NVMe
	switches []*topo.NVSwitch
}

func newBuilder(t *topo.Topology, opts TreeOptions) *builder {
	b := &builder{t: t, opts: opts,
		children: map[topo.ID][]*topo.PCIDevice{}, devices: map[topo.ID]*topo.PCIDevice{},
		carried: map[topo.ID]*load{}, ports: map[topo.ID][]*topo.Port{},
		links: map[topo.ID]*topo.Link{}, below: map[topo.ID][]*topo.Link{}, seen: map[topo.ID]bool{},
	}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		b.children[d.Parent] = append(b.children[d.Parent], d)
		b.devices[d.ID] = d
	}
	for i := range t.Ports {
		b.ports[t.Ports[i].RDMA] = append(b.ports[t.Ports[i].RDMA], &t.Ports[i])
	}
	for i := range t.Links {
		if l := &t.Links[i]; l.Kind == topo.LinkPCIe {
			b.links[l.B] = l
			b.below[l.A] = append(b.below[l.A], l)
		}
	}
	b.loads()
	return b
}

// loads notes what each PCI function carries.
func (b *builder) loads() {
	at := func(id topo.ID) *load {
		l, ok := b.carried[id]
		if !ok {
			l = &load{}
			b.carried[id] = l
		}
		return l
	}
	for i := range b.t.GPUs {
		at(b.t.GPUs[i].PCI).gpus = append(at(b.t.GPUs[i].PCI).gpus, &b.t.GPUs[i])
	}
	for i := range b.t.RDMADevices {
		at(b.t.RDMADevices[i].PCI).rdma = append(at(b.t.RDMADevices[i].PCI).rdma, &b.t.RDMADevices[i])
	}
	for i := range b.t.Netdevs {
		at(b.t.Netdevs[i].PCI).netdevs = append(at(b.t.Netdevs[i].PCI).netdevs, &b.t.Netdevs[i])
	}
	for i := range b.t.NVMes {
		at(b.t.NVMes[i].PCI).nvmes = append(at(b.t.NVMes[i].PCI).nvmes, &b.t.NVMes[i])
	}
	for i := range b.t.NVSwitches {
		at(b.t.NVSwitches[i].PCI).switches = append(at(b.t.NVSwitches[i].PCI).switches, &b.t.NVSwitches[i])
	}
}

// wants says whether devices of a kind are to be shown.
func (b *builder) wants(k topo.Kind) bool {
	return len(b.opts.Only) == 0 || slices.Contains(b.opts.Only, k)
}

// clean is a foreign text for the output.
func (b *builder) clean(s string) string { return Printable(s, b.opts.ASCII) }

// host is the whole tree.
func (b *builder) host() *line {
	root := b.headline()
	places := b.places()
	for i := range b.t.Packages {
		root.add(b.socket(&b.t.Packages[i], places))
	}
	for i := range b.t.NUMANodes {
		if n := &b.t.NUMANodes[i]; n.Package == nil && n.Owner == "" {
			root.add(b.numa(n, places))
		}
	}
	if rest := places.rest(); len(rest) > 0 {
		unknown := text(Cell{"NUMA unknown", Middling})
		unknown.add(rest...)
		root.add(unknown)
	}
	if virtual := b.virtual(); len(virtual.children) > 0 {
		root.add(virtual)
	}
	if b.hidden > 0 && len(b.opts.Only) == 0 {
		root.add(text(Cell{plural(b.hidden, "other PCI function") + " not shown" + b.advice, Faint}))
	}
	for _, l := range b.t.Host.Lacks {
		root.add(text(Cell{"not told: " + b.clean(l), Faint}))
	}
	return root
}

// headline names the host and counts what it has.
func (b *builder) headline() *line {
	h := &b.t.Host
	name := h.Name
	if name == "" {
		name = "host"
	}
	var counts []string
	count := func(n int, noun string) {
		if n > 0 {
			counts = append(counts, plural(n, noun))
		}
	}
	count(len(b.t.Packages), "socket")
	count(len(b.t.MatrixAxis(topo.KindNUMA)), "NUMA node")
	count(len(b.t.GPUs), "GPU")
	count(len(b.t.MatrixAxis(topo.KindNIC)), "NIC")
	count(len(b.t.NVMes), "NVMe drive")
	l := text(Cell{b.clean(name), Strong}, Cell{b.clean(h.Product), Plain}, Cell{strings.Join(counts, ", "), Plain})
	if b.t.Origin != "" && b.t.Origin != "live" {
		l.cells = append(l.cells, Cell{"[" + b.clean(b.t.Origin) + "]", Faint})
	}
	if n := len(b.t.Warnings); n > 0 {
		l.cells = append(l.cells, Cell{"(" + plural(n, "warning") + ")", Middling})
	}
	if !b.t.Complete {
		l.cells = append(l.cells, Cell{"incomplete", Bad})
	}
	return l
}

// places are lines that wait for the NUMA node they belong to.
type places map[int][]*line

// unknownNode is where lines wait whose NUMA node is not known.
const unknownNode = -1

// take gives the lines of a node and forgets them.
func (p places) take(node int) []*line {
	lines := p[node]
	delete(p, node)
	return lines
}

// rest gives what no NUMA node took, unknown ones last.
func (p places) rest() []*line {
	var nodes []int
	for n := range p {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, c int) int { return int(uint(a)) - int(uint(c)) })
	var out []*line
	for _, n := range nodes {
		out = append(out, p[n]...)
	}
	return out
}

func (p places) put(numa *int, lines ...*line) {
	node := unknownNode
	if numa != nil {
		node = *numa
	}
	p[node] = append(p[node], lines...)
}

// places builds the lines of all devices, by NUMA node.
func (b *builder) places() places {
	p := places{}
	for i := range b.t.HostBridges {
		hb := &b.t.HostBridges[i]
		if l := b.hostBridge(hb); l != nil {
			p.put(b.numaOf(hb), l)
		}
	}
	for i := range b.t.PCIDevices { // what hangs from no host bridge that the document has
		d := &b.t.PCIDevices[i]
		if !b.seen[d.ID] && b.devices[d.Parent] == nil {
			p.put(d.NUMA, b.functions([]*topo.PCIDevice{d}, 0)...)
		}
	}
	if loose := b.carried[""]; loose != nil {
		for _, g := range loose.gpus {
			if b.wants(topo.KindGPU) {
				p.put(g.NUMA, b.gpu(g, nil))
			}
		}
		for _, r := range loose.rdma {
			if b.wants(topo.KindNIC) && !r.Software {
				p.put(r.NUMA, b.rdma(r, nil)...)
			}
		}
		for _, n := range loose.nvmes {
			if b.wants(topo.KindNVMe) {
				p.put(n.NUMA, b.nvme(n, nil))
			}
		}
	}
	return p
}

// numaOf is the NUMA node of a host bridge, or the one that all its devices
// agree on.
func (b *builder) numaOf(hb *topo.HostBridge) *int {
	if hb.NUMA != nil {
		return hb.NUMA
	}
	var common *int
	for _, d := range b.children[hb.ID] {
		switch {
		case d.NUMA == nil, common != nil && *common != *d.NUMA:
			return nil
		default:
			common = d.NUMA
		}
	}
	return common
}

// socket is a CPU package; one with a single NUMA node takes one line for both.
func (b *builder) socket(p *topo.Package, at places) *line {
	var nodes []*topo.NUMANode
	for i := range b.t.NUMANodes {
		if n := &b.t.NUMANodes[i]; n.Package != nil && *n.Package == p.Index && n.Owner == "" {
			nodes = append(nodes, n)
		}
	}
	name := Cell{"socket " + strconv.Itoa(p.Index), Strong}
	if len(nodes) == 1 {
		l := b.numa(nodes[0], at)
		l.cells = append([]Cell{name}, l.cells...)
		l.cells[1].Style = Plain
		l.cells = append(l.cells, Cell{b.clean(p.Model), Faint})
		return l
	}
	l := text(name, Cell{cpus(b.clean(p.CPUs)), Plain}, Cell{b.clean(p.Model), Faint}).of(p.ID, nil)
	for _, n := range nodes {
		l.add(b.numa(n, at))
	}
	return l
}

func cpus(list string) string {
	if list == "" {
		return ""
	}
	return "cpu " + list
}

// numa is a NUMA node with the devices that hang from it.
func (b *builder) numa(n *topo.NUMANode, at places) *line {
	memory := ""
	if n.MemoryBytes != nil {
		memory = units.Bytes(*n.MemoryBytes)
	}
	l := text(Cell{"NUMA " + strconv.Itoa(n.Index), Strong}, Cell{cpus(b.clean(n.CPUs)), Plain}, Cell{memory, Plain}).of(n.ID, nil)
	if n.MemoryOnly {
		l.cells = append(l.cells, Cell{"memory only", Faint})
	}
	l.add(at.take(n.Index)...)
	return l
}
