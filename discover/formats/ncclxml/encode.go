package ncclxml

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Encode writes a derived topology as a NCCL topology file of version 1: a cpu
// for each NUMA node, a pci element for each switch (its upstream port) and for
// each GPU and NIC below. As in NCCL's own dumps, root ports and downstream
// ports are left out and the functions of one card are one element.
//
// Devices whose NUMA node is not known go below a cpu with numaid -1, RDMA
// devices on no PCI function below the first. GPUs without PCI function cannot
// be written; a topology whose devices have none at all is refused.
func Encode(w io.Writer, t *topo.Topology) error { return encode(w, t, false) }

// EncodeSkeleton writes the CPUs and PCI elements only, as Encode writes them:
// what a file for other hosts of one type has. NCCL adds the GPUs and NICs that
// it finds at the addresses, with their own speeds.
func EncodeSkeleton(w io.Writer, t *topo.Topology) error { return encode(w, t, true) }

// maxNodes is how many elements NCCL has room for since 2.21; reading a file, it wants one to spare.
// Source: NCCL_TOPO_XML_MAX_NODES in NCCL's src/graph/topo.h, xmlLoadSub in src/graph/xml.cc.
const maxNodes = 256 - 1

// TooLarge says what NCCL makes of the size of the file that Encode or, as a skeleton, EncodeSkeleton writes,
// "" if it has room for it. NCCL adds what it finds itself: two elements for a NIC that it knows by
// another name (plugins group NICs and name them anew), a link for a GPU, and what a skeleton leaves out.
func TooLarge(t *topo.Topology, skeleton bool) string {
	whole, e := newEncoder(t, false), newEncoder(t, skeleton)
	whole.write()
	e.write()
	nodes, most := e.nodes(), whole.nodes()+2*whole.nets+len(t.GPUs)
	switch {
	case nodes > maxNodes:
		return fmt.Sprintf("the topology file of this host has %d elements, and NCCL since 2.21 reads %d at most: with NCCL_TOPO_FILE it would fail", nodes, maxNodes)
	case most > maxNodes:
		return fmt.Sprintf("the topology file of this host has %d elements; NCCL since 2.21 has room for %d and may come to %d with what it adds itself: it may fail with \"too many XML nodes\"", nodes, maxNodes, most)
	}
	return ""
}

// nodes counts the elements that are written. No attribute has a "<": it is escaped there.
func (e *encoder) nodes() int {
	return bytes.Count(e.buf.Bytes(), []byte("<")) - bytes.Count(e.buf.Bytes(), []byte("</"))
}

func encode(w io.Writer, t *topo.Topology, skeleton bool) error {
	e := newEncoder(t, skeleton)
	if len(e.cards) == 0 && (len(t.GPUs)+len(t.RDMADevices) > 0 || len(t.NUMANodes) == 0) {
		return pkgerr.New("ncclxml", "no GPU or NIC with a PCI address: NCCL's tree is made of them")
	}
	e.write()
	if _, err := w.Write(e.buf.Bytes()); err != nil {
		return pkgerr.Errorf("ncclxml", "write: %w", err)
	}
	return nil
}

type encoder struct {
	t     *topo.Topology
	buf   bytes.Buffer
	host  *topo.Index
	cards map[topo.ID]*card  // by PCI function: what an endpoint's element holds
	loose []*topo.RDMADevice // on no PCI function: NCCL puts them below its first CPU
	nets  int                // net elements so far
	index map[topo.ID]int    // of GPUs in the file
	// skeleton leaves out what NCCL finds at the addresses.
	skeleton bool
}

// card is one endpoint element: the functions of one slot.
type card struct {
	busID topo.BDF
	first *topo.PCIDevice
	rdma  []*topo.RDMADevice
	netd  []*topo.Netdev
	numa  *int
}

// node is a pci element: a switch with elements below, or a card.
type node struct {
	dev      *topo.PCIDevice
	card     *card // nil for a switch
	children []*node
	numa     *int // a switch's own: NCCL puts what is below it there too
}

func newEncoder(t *topo.Topology, skeleton bool) *encoder {
	e := &encoder{t: t, skeleton: skeleton, host: topo.NewIndex(t), cards: map[topo.ID]*card{}, index: map[topo.ID]int{}}
	for i := range t.GPUs {
		g := &t.GPUs[i]
		if d := e.host.PCIDevice(g.PCI); d != nil {
			e.cards[d.ID] = &card{busID: d.BDF, first: d, numa: g.NUMA}
		}
		e.index[g.ID] = i
	}
	e.addNICs()
	e.bareFunctions()
	if skeleton {
		e.loose = nil
	}
	return e
}

// addNICs puts RDMA devices on their cards; on a host without any its netdevs. NCCL uses the one or
// the other, and has little room.
func (e *encoder) addNICs() {
	for i := range e.t.RDMADevices {
		r := &e.t.RDMADevices[i]
		if c := e.nicCard(e.head(r.PCI), r.NUMA); c != nil {
			c.rdma = append(c.rdma, r)
		} else {
			e.loose = append(e.loose, r)
		}
	}
	if len(e.t.RDMADevices) > len(e.loose) {
		return
	}
	onAxis := map[topo.ID]bool{}
	for _, id := range e.t.MatrixAxis(topo.KindNIC) {
		onAxis[id] = true
	}
	for i := range e.t.Netdevs {
		n := &e.t.Netdevs[i]
		if !onAxis[n.ID] {
			continue
		}
		if c := e.nicCard(n.PCI, n.NUMA); c != nil {
			c.netd = append(c.netd, n)
		}
	}
}

// head is function 0 of an RDMA device's slot where that carries one too: NCCL
// merges them.
func (e *encoder) head(id topo.ID) topo.ID {
	d := e.host.PCIDevice(id)
	if d == nil {
		return id
	}
	zero := d.BDF
	zero.Func = 0
	if first := e.host.PCIDevice(topo.PCIID(zero)); first != nil && len(e.host.On(first.ID).RDMADevices) > 0 && first.Parent == d.Parent {
		return first.ID
	}
	return id
}

// nicCard gives the card of a function, nil where it is on none.
func (e *encoder) nicCard(id topo.ID, numa *int) *card {
	d := e.host.PCIDevice(id)
	if d == nil {
		return nil
	}
	c := e.cards[d.ID]
	if c == nil {
		c = &card{busID: d.BDF, first: d, numa: numa}
		e.cards[d.ID] = c
	}
	return c
}

// bareFunctions keeps endpoints of which an imported file told nothing but the
// address: NCCL finds out on the host what they are.
func (e *encoder) bareFunctions() {
	for i := range e.t.PCIDevices {
		d := &e.t.PCIDevices[i]
		if d.Class == "" && d.Role == topo.RoleEndpoint && e.cards[d.ID] == nil {
			e.cards[d.ID] = &card{busID: d.BDF, first: d, numa: d.NUMA}
		}
	}
}

// isSwitch says whether a function is a node of its own in NCCL's tree.
func isSwitch(d *topo.PCIDevice) bool {
	return d.Role == topo.RoleUpstream || d.Role == topo.RoleBridge
}

// tree makes the nodes below the CPUs, cards in PCI order.
func (e *encoder) tree() []*node {
	var roots []*node
	switches := map[topo.ID]*node{}
	cards := make([]*card, 0, len(e.cards))
	for _, c := range e.cards {
		cards = append(cards, c)
	}
	slices.SortFunc(cards, func(a, b *card) int {
		return cmp.Or(a.busID.Compare(b.busID), topo.NaturalCompare(string(a.first.ID), string(b.first.ID)))
	})
	for _, c := range cards {
		below := &node{dev: c.first, card: c, numa: c.numa}
		up := e.host.PCIDevice(c.first.Parent)
		for range maxClimb {
			if up == nil {
				break
			}
			if !isSwitch(up) {
				up = e.host.PCIDevice(up.Parent)
				continue
			}
			n, seen := switches[up.ID]
			if !seen {
				n = &node{dev: up, numa: up.NUMA}
				switches[up.ID] = n
			}
			n.children = append(n.children, below)
			if seen {
				below = nil
				break
			}
			below, up = n, e.host.PCIDevice(up.Parent)
		}
		if below != nil {
			roots = append(roots, below)
		}
	}
	return roots
}

// maxClimb bounds the climb of a tree that a hostile document made circular.
const maxClimb = 64

func (e *encoder) write() {
	byNUMA := map[int][]*node{}
	for _, n := range e.tree() {
		numa := -1
		if n.numa != nil {
			numa = *n.numa
		}
		byNUMA[numa] = append(byNUMA[numa], n)
	}
	e.open(0, "system", attr{"version", "1"})
	for i := range e.t.NUMANodes {
		if n := &e.t.NUMANodes[i]; !n.MemoryOnly || byNUMA[n.Index] != nil {
			e.cpu(n.Index, n.CPUs, byNUMA[n.Index])
			delete(byNUMA, n.Index)
		}
	}
	for _, numa := range sortedKeys(byNUMA) {
		e.cpu(numa, "", byNUMA[numa])
	}
	e.close(0, "system")
}

func sortedKeys(m map[int][]*node) []int {
	keys := make([]int, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (e *encoder) cpu(numa int, cpus string, nodes []*node) {
	h := &e.t.Host
	attrs := []attr{{"numaid", strconv.Itoa(numa)}}
	if set, err := cpuset.Parse(cpus); err == nil && !set.IsEmpty() {
		attrs = append(attrs, attr{"affinity", set.Mask()})
	}
	if h.Arch != "" {
		attrs = append(attrs, attr{"arch", archName(h.Arch)})
	}
	if h.CPUVendor != "" {
		attrs = append(attrs, attr{"vendor", h.CPUVendor})
	}
	if h.CPUFamily != nil && h.CPUModelID != nil {
		attrs = append(attrs, attr{"familyid", strconv.Itoa(ncclFamily(*h.CPUFamily))}, attr{"modelid", strconv.Itoa(*h.CPUModelID)})
	}
	if len(nodes)+len(e.loose) == 0 {
		e.leaf(1, "cpu", attrs...)
		return
	}
	e.open(1, "cpu", attrs...)
	for _, n := range nodes {
		e.node(2, n)
	}
	for _, r := range e.loose {
		e.open(2, "nic")
		e.rdma(3, &card{}, r)
		e.close(2, "nic")
	}
	e.loose = nil
	e.close(1, "cpu")
}

// archName gives NCCL's word for an architecture.
func archName(arch string) string {
	switch arch {
	case "aarch64":
		return "arm64"
	case "ppc64le":
		return "ppc64"
	}
	return arch
}

// node writes a pci element and what is below.
func (e *encoder) node(depth int, n *node) {
	if n.card != nil {
		e.card(depth, n.card)
		return
	}
	slices.SortStableFunc(n.children, func(a, b *node) int {
		return cmp.Or(a.dev.BDF.Compare(b.dev.BDF), topo.NaturalCompare(string(a.dev.ID), string(b.dev.ID)))
	})
	e.open(depth, "pci", e.pciAttrs(n.dev, n.dev.BDF, "0x060400")...)
	for _, child := range n.children {
		e.node(depth+1, child)
	}
	e.close(depth, "pci")
}

// attr is one attribute.
type attr struct{ name, value string }

func (e *encoder) tag(depth int, name, end string, attrs []attr) {
	for range depth {
		e.buf.WriteString("  ")
	}
	e.buf.WriteString("<" + name)
	for _, a := range attrs {
		e.buf.WriteString(" " + a.name + `="`)
		var value bytes.Buffer // which takes every write
		_ = xml.EscapeText(&value, []byte(a.value))
		for _, r := range value.String() {
			if unicode.IsPrint(r) {
				e.buf.WriteRune(r)
			} else { // whoever reads the file on a terminal is not to obey it
				fmt.Fprintf(&e.buf, "&#x%X;", r)
			}
		}
		e.buf.WriteByte('"')
	}
	e.buf.WriteString(end + ">\n")
}

func (e *encoder) open(depth int, name string, attrs ...attr) { e.tag(depth, name, "", attrs) }
func (e *encoder) leaf(depth int, name string, attrs ...attr) { e.tag(depth, name, "/", attrs) }
func (e *encoder) close(depth int, name string)               { e.tag(depth, "/"+name, "", nil) }
