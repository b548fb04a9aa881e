package draw

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/hostview"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// builder turns a topology into lines.
type builder struct {
	*hostview.View
	opts   TreeOptions
	hidden int    // PCI functions that were left out
	advice string // how to see them
}

func newBuilder(t *topo.Topology, opts TreeOptions) *builder {
	return &builder{View: hostview.New(t), opts: opts}
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
	devices := b.devices()
	sockets, free := b.Sockets()
	for _, s := range sockets {
		root.add(b.socket(s, devices))
	}
	for _, n := range free {
		root.add(b.numa(n, devices))
	}
	unknown := words(Cell{"NUMA unknown", Middling})
	for _, rest := range devices.Rest() {
		unknown.add(rest...)
	}
	if unknown.add(devices.Unknown...); len(unknown.children) > 0 {
		root.add(unknown)
	}
	if virtual := b.virtual(); len(virtual.children) > 0 {
		root.add(virtual)
	}
	if b.hidden > 0 && len(b.opts.Only) == 0 {
		root.add(words(Cell{text.Plural(b.hidden, "other PCI function") + " not shown" + b.advice, Faint}))
	}
	for _, l := range b.T.Host.Lacks {
		root.add(words(Cell{"not known: " + b.clean(l), Faint}))
	}
	return root
}

// headline names the host and counts what it has.
func (b *builder) headline() *line {
	h := &b.T.Host
	name := h.Name
	if name == "" {
		name = "host"
	}
	l := words(Cell{b.clean(name), Strong}, Cell{b.clean(h.Product), Plain}, Cell{strings.Join(b.Counts(), ", "), Plain})
	if b.T.Origin != "" && b.T.Origin != "live" {
		l.cells = append(l.cells, Cell{"[" + b.clean(b.T.Origin) + "]", Faint})
	}
	if n := len(b.T.Warnings); n > 0 {
		l.cells = append(l.cells, Cell{"(" + text.Plural(n, "warning") + ")", Middling})
	}
	if !b.T.Complete {
		l.cells = append(l.cells, Cell{"incomplete", Bad})
	}
	return l
}

// devices builds the lines of all devices, by NUMA node.
func (b *builder) devices() *hostview.ByNUMA[*line] {
	out := &hostview.ByNUMA[*line]{}
	hostview.Trees(b.View, out, b.hostBridge, func(list []*topo.PCIDevice) []*line { return b.functions(list, 0) })
	loose := b.On("")
	if b.wants(topo.KindGPU) {
		for _, g := range loose.GPUs {
			out.Put(g.NUMA, b.gpu(g, nil))
		}
	}
	if b.wants(topo.KindNIC) {
		for _, r := range loose.RDMADevices {
			if !r.Software {
				out.Put(r.NUMA, b.rdma(r, nil))
			}
		}
	}
	if b.wants(topo.KindNVMe) {
		for _, n := range loose.NVMes {
			out.Put(n.NUMA, b.nvme(n, nil))
		}
	}
	return out
}

// socket is a CPU package; one with a single NUMA node takes one line for both.
func (b *builder) socket(p hostview.Socket, devices *hostview.ByNUMA[*line]) *line {
	name := Cell{"socket " + strconv.Itoa(p.Index), Strong}
	if len(p.Nodes) == 1 {
		l := b.numa(p.Nodes[0], devices)
		l.cells = append([]Cell{name}, l.cells...)
		l.cells[1].Style = Plain
		l.cells = append(l.cells, Cell{b.clean(p.Model), Faint})
		return l
	}
	l := words(name, Cell{hostview.CPUs(b.clean(p.CPUs)), Plain}, Cell{b.clean(p.Model), Faint}).of(p.ID, nil)
	for _, n := range p.Nodes {
		l.add(b.numa(n, devices))
	}
	return l
}

// numa is a NUMA node with the devices that hang from it.
func (b *builder) numa(n *topo.NUMANode, devices *hostview.ByNUMA[*line]) *line {
	memory := ""
	if n.MemoryBytes != nil {
		memory = units.Bytes(*n.MemoryBytes)
	}
	l := words(Cell{"NUMA " + strconv.Itoa(n.Index), Strong}, Cell{hostview.CPUs(b.clean(n.CPUs)), Plain}, Cell{memory, Plain}).of(n.ID, nil)
	if n.MemoryOnly {
		l.cells = append(l.cells, Cell{"memory only", Faint})
	}
	l.add(devices.Take(n.Index)...)
	return l
}
