package picture

import (
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Outline is the tree for a caller that lays it out: its lines, in the order in which
// Tree prints them.
type Outline struct {
	Lines []TreeLine
	b     *builder
}

// TreeLine is one line. All its texts are printable; names that come from the host may
// be wide.
type TreeLine struct {
	Depth int     // 0 is the host; what hangs below a line follows it, one deeper
	ID    topo.ID // of the node, "" where the line is none: the host, a count of what is not shown
	PCI   topo.ID // of the PCI function that the node is or stands on, "" none
	Name  string
	// Address, Link and Rate are what devices have, "" others. The rate is that of the
	// network port, else of the link.
	Address, Rate string
	Link          LinkState // of bridges too
	Details       []Cell    // what else there is to say; its texts may be empty
}

// NewOutline builds the tree of a derived topology. Width and Color of the options are
// ignored.
func NewOutline(t *topo.Topology, opts TreeOptions) *Outline {
	o := &Outline{b: newBuilder(t, opts)}
	o.add(o.b.host(), 0)
	return o
}

func (o *Outline) add(l *line, depth int) {
	out := TreeLine{Depth: depth, ID: l.id, PCI: l.pci, Name: l.cells[colName].Text, Details: l.cells[max(1, l.head):]}
	switch {
	case l.columns:
		out.Address, out.Rate = l.cells[colBDF].Text, l.cells[colRate].Text
	case l.head == portHead:
		out.Rate = l.cells[portHead-1].Text
	}
	out.Link = o.Link(l.pci, l.gpu(), nil)
	o.Lines = append(o.Lines, out)
	for _, c := range l.children {
		o.add(c, depth+1)
	}
}

// Link describes the PCIe link above a function as it runs now; nil is as the topology
// has it. gpu says that the function is a GPU, which lowers its speed when it idles.
func (o *Outline) Link(pci topo.ID, gpu bool, now *topo.LaneRate) LinkState {
	d := o.b.PCIDevice(pci)
	if d == nil {
		return LinkState{}
	}
	return o.b.link(d, gpu, now)
}

// gpu says whether a line is a GPU.
func (l *line) gpu() bool { return strings.HasPrefix(string(l.id), "gpu:") }
