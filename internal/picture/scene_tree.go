package picture

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/internal/text"
)

// root is a host bridge with what is below it, nothing if nothing is to show.
func (b *diagram) root(hb *topo.HostBridge) []*node {
	below := b.functions(b.Children(hb.ID), 0)
	if len(below) == 0 {
		return nil
	}
	n := &node{look: lookRoot, id: hb.ID, below: below, rows: []row{{left: "root complex", right: clean(hb.ID.Name())}}}
	n.tip = []string{"host bridge " + clean(hb.ID.Name()), from(&hb.Node)}
	if hb.Synthetic {
		n.rows[0].right = "not in the file"
		n.tip = append(n.tip, "The file does not describe host bridges: this one stands for all of its NUMA node")
	}
	if l := b.roots[hb.ID]; l != nil {
		if l.BytesPerSec != nil {
			n.rows = append(n.rows, row{left: b.linkRate(l)})
		}
		n.tip = append(n.tip, clean(l.Note))
	}
	return []*node{n}
}

// functions are the boxes of PCI functions on one bus, in PCI order. Ports are
// left out and what is below them takes their place, because a switch is drawn
// as one. Endpoints of one slot share a box and a link.
func (b *diagram) functions(list []*topo.PCIDevice, depth int) []*node {
	if depth > MaxDepth {
		return nil
	}
	slots := map[string][]*topo.PCIDevice{}
	for _, d := range list {
		if !b.Reached(d) && d.Role != topo.RoleRootPort && d.Role != topo.RoleDownstream && !b.bridge(d) && !b.folds(d) {
			slots[d.BDF.Slot()] = append(slots[d.BDF.Slot()], d)
		}
	}
	var out []*node
	for _, d := range list {
		if b.Reached(d) {
			continue
		}
		slot := slots[d.BDF.Slot()]
		switch {
		case d.Role == topo.RoleRootPort, d.Role == topo.RoleDownstream:
			b.Reach(d)
			out = append(out, b.functions(b.Children(d.ID), depth+1)...)
		case b.bridge(d):
			b.Reach(d)
			if n := b.pcieSwitch(d, b.functions(b.Children(d.ID), depth+1)); n != nil {
				out = append(out, n)
			}
		case b.folds(d):
			b.Reach(d) // drawn with its physical function
		default:
			for _, f := range slot {
				b.Reach(f)
			}
			if n := b.slot(slot); n != nil {
				out = append(out, n)
			}
			for _, f := range slot { // a document may hang functions from endpoints
				out = append(out, b.functions(b.Children(f.ID), depth+1)...)
			}
		}
	}
	return fold(out)
}

// bridge says whether a function is drawn as a switch or bridge.
func (b *diagram) bridge(d *topo.PCIDevice) bool {
	return d.Role == topo.RoleUpstream || d.Role == topo.RoleBridge ||
		d.IsBridge() && d.Role != topo.RoleRootPort && d.Role != topo.RoleDownstream
}

// folds says whether a function is a virtual one that its physical function's
// box counts: it adds nothing to that card's link and port.
func (b *diagram) folds(d *topo.PCIDevice) bool {
	pf := b.PCIDevice(d.PF)
	if pf == nil || pf == d || pf.PF != "" {
		return false
	}
	if own := b.On(d.ID); len(own.GPUs)+len(own.NVMes)+len(own.NVSwitches) > 0 {
		return false
	}
	above := b.On(pf.ID)
	return IsNetwork(pf) || len(above.RDMADevices)+len(above.Netdevs) > 0
}

// pcieSwitch is a switch or bridge with what is below it, nil if that is nothing.
func (b *diagram) pcieSwitch(d *topo.PCIDevice, below []*node) *node {
	if len(below) == 0 {
		return nil
	}
	name := "switch"
	if d.Role == topo.RoleBridge {
		name = "bridge"
	}
	bdf := d.BDF.String()
	n := &node{look: lookSwitch, id: d.ID, below: below, up: b.wire(d, false, false, name+" "+bdf),
		rows: []row{{left: name, right: bdf, style: rowStrong}}, tip: []string{joined("PCIe "+name+" "+bdf, clean(d.DeviceName)), from(&d.Node)}}
	if d.DeviceName != "" {
		n.rows = append(n.rows, row{left: clean(d.DeviceName), style: rowFaint, soft: true})
	}
	return n
}

// slot is the box of the functions of one slot: a device, or a card that holds
// several. nil if there is nothing to show.
func (b *diagram) slot(functions []*topo.PCIDevice) *node {
	var nodes []*node
	var first *topo.PCIDevice
	gpu, main := false, false
	for _, d := range functions {
		made := b.endpoint(d)
		if len(made) == 0 {
			b.hidden++
			continue
		}
		if first == nil {
			first = d
		}
		for _, n := range made {
			gpu = gpu || n.look == lookGPU
			main = main || n.look == lookGPU || n.look == lookNIC
		}
		nodes = append(nodes, made...)
	}
	if len(nodes) == 0 {
		return nil
	}
	subject := nodes[0].rows[0].left
	up := b.wire(first, gpu, main, subject+" "+first.BDF.String())
	if nodes = fold(nodes); len(nodes) == 1 {
		nodes[0].up = up
		return nodes[0]
	}
	card := &node{look: lookCard, id: topo.NICID(first.BDF.Slot()), up: up, inside: nodes,
		rows: []row{{left: "card " + first.BDF.Slot(), style: rowFaint, soft: true}}}
	if model := shortModel(clean(first.DeviceName)); main && model != "" {
		card.rows[0].left = model
	}
	card.tip = []string{"functions of one slot: they share its link", clean(first.DeviceName)}
	return card
}

// endpoint are the boxes of the devices that a function carries.
func (b *diagram) endpoint(d *topo.PCIDevice) []*node {
	var out []*node
	on := b.On(d.ID)
	for _, g := range on.GPUs {
		out = append(out, b.gpu(g, d))
	}
	network := len(out)
	for _, r := range on.RDMADevices {
		out = append(out, b.rdma(r, d))
	}
	if len(on.RDMADevices) == 0 {
		out = append(out, b.netdevs(on.Netdevs, d)...)
	}
	if vfs := b.VFs(d.ID); len(vfs) > 0 && b.folds(vfs[0]) || IsNetwork(d) {
		if len(out) == network && len(on.Netdevs) == 0 {
			out = append(out, b.idle(d))
		}
		if len(out) > network {
			b.countVFs(out[network], d)
		}
	}
	for _, n := range on.NVMes {
		out = append(out, b.drive(n))
	}
	for _, s := range on.NVSwitches {
		out = append(out, b.nvswitch(s))
	}
	return out
}

// countVFs adds the row that stands for a function's virtual functions.
func (b *diagram) countVFs(n *node, d *topo.PCIDevice) {
	var names []string
	folded := 0
	for _, vf := range b.VFs(d.ID) {
		if !b.folds(vf) {
			continue
		}
		folded++
		on := b.On(vf.ID)
		for _, r := range on.RDMADevices {
			names = append(names, clean(r.Name))
			b.stand(n, r.ID)
		}
		if len(on.RDMADevices) > 0 {
			continue
		}
		for _, x := range on.Netdevs {
			names = append(names, clean(x.Name))
			b.stand(n, x.ID)
		}
	}
	if d.SRIOV != nil && d.SRIOV.NumVFs != nil {
		folded = max(folded, *d.SRIOV.NumVFs)
	}
	if folded == 0 {
		return
	}
	words := text.Plural(folded, "VF")
	if len(names) > 0 {
		words += ": " + span(names)
	}
	n.rows = append(n.rows, row{left: words, style: rowFaint})
	n.tip = append(n.tip, fmt.Sprintf("%s: they share its link and port", text.Plural(folded, "virtual function")))
	n.tip = append(n.tip, listed(names)...)
	n.kin = nil
}

// stand notes that a box stands for a device.
func (b *diagram) stand(n *node, id topo.ID) {
	n.stands = append(n.stands, id)
	b.drawn[id] = true
}

// listed are names for a tooltip; very many are cut.
func listed(names []string) []string {
	const most = 128
	if len(names) > most {
		rest := fmt.Sprintf("and %d more", len(names)-most)
		return append(names[:most:most], rest)
	}
	return names
}

// fold draws neighbours that look alike as one box where they are many.
func fold(nodes []*node) []*node {
	groups := map[string][]*node{}
	for _, n := range nodes {
		if k := n.foldKey(); k != "" {
			groups[k] = append(groups[k], n)
		}
	}
	var out []*node
	for _, n := range nodes {
		k := n.foldKey()
		group := groups[k]
		switch {
		case k == "" || len(group) <= n.kin.most:
			out = append(out, n)
		case n == group[0]:
			out = append(out, folded(group))
		}
	}
	return out
}

func (n *node) foldKey() string {
	if n.kin == nil || len(n.inside)+len(n.below) > 0 {
		return ""
	}
	return n.kin.key + "\x00" + n.up.key()
}

// folded is one box for many.
func folded(group []*node) *node {
	first := *group[0]
	var names []string
	for _, n := range group {
		names = append(names, n.kin.name)
	}
	first.rows = first.kin.many(len(group), span(names))
	first.tip = append([]string{text.Plural(len(group), "device") + ":"}, listed(names)...)
	first.stands = nil
	for _, n := range group {
		first.stands = append(first.stands, n.stands...)
	}
	if first.up != nil && len(first.up.labels) > 0 {
		up := *first.up
		up.labels = append([]string{"each " + up.labels[0]}, up.labels[1:]...)
		first.up = &up
	}
	first.kin = nil
	return &first
}
