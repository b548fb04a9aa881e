package topo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Derive computes what follows from the observed nodes: order of the lists,
// roles of bridges, switches, cards, links, relations and the fingerprint. It
// replaces what an earlier Derive computed and keeps links that a source gave.
// Every producer of a Topology calls it once, after the last change.
func (t *Topology) Derive() {
	for _, l := range t.lists() {
		for n := range l.nodes() {
			n.common().Kind = l.kind()
		}
	}
	t.sortNodes()
	observed := NewIndex(t) // without what the next steps derive
	t.assignRoles(observed)
	t.deriveSwitches(observed)
	t.deriveNICs(observed)
	t.markImplausible(observed)
	t.deriveLinks(observed)
	t.sortWarnings()
	t.Host.Fingerprint = t.fingerprint(observed)
	t.deriveRelations()
}

func (t *Topology) sortNodes() {
	slices.SortStableFunc(t.Packages, func(a, b Package) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortStableFunc(t.NUMANodes, func(a, b NUMANode) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortStableFunc(t.HostBridges, func(a, b HostBridge) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus), NaturalCompare(string(a.ID), string(b.ID)))
	})
	slices.SortStableFunc(t.PCIDevices, func(a, b PCIDevice) int {
		return cmp.Or(a.BDF.Compare(b.BDF), NaturalCompare(string(a.ID), string(b.ID)))
	})
	slices.SortStableFunc(t.GPUs, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	sortByID(t.RDMADevices)
	sortByID(t.Ports)
	sortByID(t.Netdevs)
	sortByID(t.NVMes)
	slices.SortStableFunc(t.NVSwitches, func(a, b NVSwitch) int { return NaturalCompare(string(a.ID), string(b.ID)) })
}

func sortByID[T any](list []T) {
	slices.SortStableFunc(list, func(a, b T) int {
		return NaturalCompare(string(any(&a).(noder).common().ID), string(any(&b).(noder).common().ID))
	})
}

func (t *Topology) sortWarnings() {
	slices.SortStableFunc(t.Warnings, func(a, b Warning) int {
		return cmp.Or(strings.Compare(string(a.Code), string(b.Code)), NaturalCompare(string(a.Subject), string(b.Subject)),
			strings.Compare(a.Detail, b.Detail), strings.Compare(a.Evidence, b.Evidence))
	})
	t.Warnings = slices.Compact(t.Warnings)
}

// IsBridge says whether the function's class is a PCI-to-PCI bridge.
func (d *PCIDevice) IsBridge() bool { return d.Class.Uint()>>8 == 0x0604 }

// DataDirect says whether a function is the second one of a ConnectX-8 that stands beside a GPU,
// below the GPU's switch: it moves data there that a network function elsewhere sends and
// receives. Source: the PCI ID repository; rdma_topo of rdma-core.
func (x *Index) DataDirect(d *PCIDevice) bool {
	return d.Vendor == "0x15b3" && d.Device == "0x2100" && !slices.ContainsFunc(x.Children(d.Parent), func(o *PCIDevice) bool {
		return o.BDF.Slot() == d.BDF.Slot() && x.isNetworkFunction(o) // of one slot with the NIC: no way of its own
	})
}

// DataDirectBeside is the data direct function below the switches that a function hangs from, nil if there is none.
func (x *Index) DataDirectBeside(function ID) *PCIDevice {
	for up := range x.Climb(function) {
		if up.Role != RoleUpstream {
			continue
		}
		for d := range x.Below(up.ID) {
			if x.DataDirect(d) {
				return d
			}
		}
	}
	return nil
}

// assignRoles gives bridges whose configuration space could not be read the
// role that their place implies: on a root bus a root port, and below it upstream
// and downstream ports in turn. A bridge with several slots on its bus that
// itself hangs from a downstream port is a conventional bridge.
func (t *Topology) assignRoles(x *Index) {
	var role func(d *PCIDevice, depth int) PCIRole
	role = func(d *PCIDevice, depth int) PCIRole {
		if d.Role != "" || depth > maxDepth {
			return d.Role
		}
		if !d.IsBridge() {
			d.Role = RoleEndpoint
			return d.Role
		}
		parent := x.PCIDevice(d.Parent)
		if parent == nil {
			d.Role = RoleRootPort
			return d.Role
		}
		switch role(parent, depth+1) {
		case RoleRootPort, RoleDownstream:
			d.Role = RoleUpstream
			// A bridge whose bus holds endpoints only is no switch: a switch
			// has ports below its upstream port.
			if !slices.ContainsFunc(x.Children(d.ID), (*PCIDevice).IsBridge) {
				d.Role = RoleBridge
			}
		case RoleUpstream:
			d.Role = RoleDownstream
		default:
			d.Role = RoleBridge
		}
		return d.Role
	}
	for i := range t.PCIDevices {
		role(&t.PCIDevices[i], 0)
	}
}

// maxDepth bounds every climb of the PCI tree; real trees are below 16, and a
// hostile document could hold a cycle.
const maxDepth = 64

func (t *Topology) deriveSwitches(x *Index) {
	t.Switches = nil
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		if d.Role != RoleUpstream {
			continue
		}
		s := Switch{
			Node:     Node{ID: SwitchID(d.BDF) + ID(d.repeat()), Kind: KindSwitch, Evidence: d.Evidence, Facts: Facts{{"upstream", SourceDerived, "role of PCI functions"}}},
			Upstream: d.ID, Downstream: []ID{}, Name: d.DeviceName, NUMA: d.NUMA,
		}
		for _, port := range x.Children(d.ID) {
			if port.Role == RoleDownstream {
				s.Downstream = append(s.Downstream, port.ID)
			}
		}
		t.Switches = append(t.Switches, s)
	}
}

// isNetworkFunction says whether a PCI function is a NIC's: class 0x02, or the
// parent of an RDMA device (BlueField and data-direct functions have others).
func (x *Index) isNetworkFunction(d *PCIDevice) bool {
	return d.Class.Uint()>>16 == 0x02 || len(x.On(d.ID).RDMADevices) > 0
}

// deriveNICs groups network functions into cards by slot. A virtual function
// is a card of its own, because it shares its physical function's port.
func (t *Topology) deriveNICs(x *Index) {
	t.NICs = nil
	bySlot := map[string]int{}
	slotOf := map[ID]string{}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		if !x.isNetworkFunction(d) {
			continue
		}
		slot := d.BDF.Slot() + d.repeat()
		if d.PF != "" {
			slot = d.BDF.String() + d.repeat()
		}
		slotOf[d.ID] = slot
		n, ok := bySlot[slot]
		if !ok {
			n = len(t.NICs)
			bySlot[slot] = n
			t.NICs = append(t.NICs, NIC{
				Node:  Node{ID: NICID(slot), Kind: KindNIC, Evidence: d.Evidence, Facts: Facts{{"functions", SourceDerived, "PCI functions of one slot"}}},
				Model: d.DeviceName, NUMA: d.NUMA,
			})
		}
		t.NICs[n].Functions = append(t.NICs[n].Functions, d.ID)
	}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		if slot, ok := slotOf[d.ID]; ok && d.PF != "" {
			if pf, ok := slotOf[d.PF]; ok {
				t.NICs[bySlot[slot]].VFOf = NICID(pf)
			}
		}
	}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		r.NIC = ""
		if slot, ok := slotOf[r.PCI]; ok {
			r.NIC = NICID(slot)
		}
	}
}

// FabricID is the end of a GPU's NVLinks that lead to NVSwitches: all switches
// of a host are one fabric.
const FabricID ID = "nvfabric"

// deriveLinks adds the links that follow from the nodes and sorts all of them.
// A link that a source gave under the same ID is kept as it is.
func (t *Topology) deriveLinks(x *Index) {
	b := linkBuilder{t: t, index: x, given: map[LinkID]bool{}}
	for _, l := range t.Links {
		b.given[l.ID] = true
	}
	b.pcie()
	b.rootComplexes()
	b.sockets()
	b.ports()
	slices.SortStableFunc(t.Links, func(a, c Link) int {
		if a.Kind != c.Kind {
			return strings.Compare(string(a.Kind), string(c.Kind))
		}
		return compareLinkIDs(a.ID, c.ID)
	})
}

// compareLinkIDs orders PCIe links by address and others by name.
func compareLinkIDs(a, b LinkID) int {
	x, okX := addressOf(a)
	y, okY := addressOf(b)
	if okX && okY {
		return cmp.Or(x.Compare(y), NaturalCompare(string(a), string(b)))
	}
	return NaturalCompare(string(a), string(b))
}

// addressOf is the address in the ID of a PCIe link.
func addressOf(id LinkID) (BDF, bool) {
	name, _, _ := strings.Cut(strings.TrimPrefix(string(id), "pcie:"), "#")
	b, err := ParseBDF(name)
	return b, err == nil
}

type linkBuilder struct {
	t     *Topology
	index *Index
	given map[LinkID]bool
}

func (b *linkBuilder) add(l Link) {
	if !b.given[l.ID] {
		b.given[l.ID] = true
		b.t.Links = append(b.t.Links, l)
	}
}

// pcie adds one link for each slot that has one: below root ports, downstream
// ports and bridges, and above endpoints on a root bus that report a link.
func (b *linkBuilder) pcie() {
	gpuBelow := map[*PCIDevice]*GPU{}
	for i := range b.t.GPUs {
		if d := b.index.PCIDevice(b.t.GPUs[i].PCI); d != nil {
			gpuBelow[b.index.linkHead(d)] = &b.t.GPUs[i]
		}
	}
	for i := range b.t.PCIDevices {
		d := &b.t.PCIDevices[i]
		if b.index.linkHead(d) != d {
			continue
		}
		parent := b.index.PCIDevice(d.Parent)
		switch {
		case parent == nil && (d.Role == RoleRootPort || d.Link == nil):
			continue // inside the root complex
		case parent != nil && parent.Role == RoleUpstream && d.Role == RoleDownstream:
			continue // inside a switch
		}
		b.add(b.pcieLink(parent, d, gpuBelow[d]))
	}
}

// pcieLink is the link between a port (nil on a root bus) and what is below
// it. Of an end whose link state is invented nothing is taken.
func (b *linkBuilder) pcieLink(port, d *PCIDevice, gpu *GPU) Link {
	l := Link{ID: PCIeLinkID(d.BDF) + LinkID(d.repeat()), Kind: LinkPCIe, A: d.Parent, B: d.ID, Basis: BasisUnknown}
	l.Facts = Facts{{"link", SourceDerived, "both ends' link state"}}
	above, below := PCILink{}, d.Believed()
	if port != nil && port.Role != RoleUpstream { // that one speaks of its own link, not of one below it
		above = port.Believed()
	}
	l.Max = laneRate(lower(below.MaxSpeedMTs, above.MaxSpeedMTs), lower(below.MaxWidth, above.MaxWidth))
	l.Cur = laneRate(lower(below.SpeedMTs, above.SpeedMTs), lower(below.Width, above.Width))
	b.checkEnds(port, d, &above, &below)
	maxSpeed := lower(below.MaxSpeedMTs, above.MaxSpeedMTs)
	switch {
	case d.Implausible:
		l.Cur, l.Max, l.Note = nil, nil, "a virtual function's invented link state, not believed"
	case gpu != nil && b.index.PCIDevice(gpu.PCI).coherent() && !b.given[C2CLinkID(gpu.ID)]:
		l.Note = "GPU: data goes by NVLink-C2C and not by this link"
	case gpu != nil && l.Cur != nil && maxSpeed == nil:
		l.Note = "GPU: an idle GPU lowers its speed, and the maximum is not known"
	case gpu != nil && l.Cur != nil && *maxSpeed > l.Cur.SpeedMTs:
		r := PCIeRate(*maxSpeed, l.Cur.Width)
		l.BytesPerSec, l.Basis = &r, BasisRead
		l.Note = "GPU: maximum speed, because an idle GPU lowers it; current width"
	case l.Cur != nil:
		l.BytesPerSec, l.Basis = &l.Cur.BytesPerSec, BasisRead
	case l.Max != nil:
		l.BytesPerSec, l.Basis = &l.Max.BytesPerSec, BasisRead
		l.Note = "maximum; the current state is not known"
	}
	return l
}

// Believed is what a function says of its link; nothing where that is invented.
func (d *PCIDevice) Believed() PCILink {
	if d == nil || d.Link == nil || d.Implausible {
		return PCILink{}
	}
	return *d.Link
}

// checkEnds warns when the two ends of a link report different states.
func (b *linkBuilder) checkEnds(port, d *PCIDevice, above, below *PCILink) {
	if d.PF != "" || port == nil {
		return
	}
	differ := func(x, y *int) bool { return x != nil && y != nil && *x != *y }
	if !differ(above.SpeedMTs, below.SpeedMTs) && !differ(above.Width, below.Width) {
		return
	}
	b.t.Warnings = append(b.t.Warnings, Warning{
		Code: CodeLinkDisagrees, Subject: d.ID, Source: SourceDerived, Evidence: d.Evidence,
		Detail: fmt.Sprintf("this end of the link says %s, %s above says %s; the lower is taken",
			below, port.BDF, above),
	})
}

// String is the current state, "32 GT/s x16".
func (l *PCILink) String() string {
	speed, width := "? GT/s", "x?"
	if l.SpeedMTs != nil {
		speed = fmt.Sprintf("%g GT/s", float64(*l.SpeedMTs)/1000)
	}
	if l.Width != nil {
		width = fmt.Sprintf("x%d", *l.Width)
	}
	return speed + " " + width
}

func lower(a, b *int) *int {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

func laneRate(speed, width *int) *LaneRate {
	if speed == nil || width == nil || *speed <= 0 || *width <= 0 {
		return nil
	}
	return &LaneRate{SpeedMTs: *speed, Width: *width, BytesPerSec: PCIeRate(*speed, *width)}
}

// markImplausible finds functions whose link state a hypervisor invented:
// those of its own making, and in a virtual machine bridges that claim to be
// much slower than what is below them. Their links are no bottleneck.
func (t *Topology) markImplausible(x *Index) {
	guest := t.Host.Guest()
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		d.Implausible = d.Link != nil && (d.Implausible || emulated(d))
	}
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		port := x.PCIDevice(d.Parent)
		if !guest || port == nil || port.Link == nil || d.Link == nil || d.Implausible {
			continue
		}
		const muchSlower = 4
		if r := currentRate(port.Link); r > 0 && r*muchSlower <= currentRate(d.Link) {
			port.Implausible = true
		}
	}
	t.warnImplausible()
}

// emulated knows the functions that hypervisors make up: QEMU's, virtio, the
// TI switch that QEMU copies, VMware's, Amazon's bridges.
func emulated(d *PCIDevice) bool {
	switch d.Vendor {
	case "0x1b36", "0x1af4", "0x15ad":
		return true
	case "0x104c":
		return d.Device == "0x8232" || d.Device == "0x8233"
	case "0x1d0f":
		return d.Device == "0x0200"
	}
	return false
}

func currentRate(l *PCILink) Rate {
	if r := laneRate(l.SpeedMTs, l.Width); r != nil {
		return r.BytesPerSec
	}
	return 0
}

// warnImplausible says once which links are not believed. It matters only
// where a GPU or NIC is on the host, so that a plain guest stays quiet.
func (t *Topology) warnImplausible() {
	if len(t.GPUs)+len(t.RDMADevices) == 0 {
		return
	}
	var found []BDF
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; d.Implausible && d.IsBridge() {
			found = append(found, d.BDF)
		}
	}
	if len(found) == 0 {
		return
	}
	first := found[0]
	w := Warning{Code: CodeImplausible, Subject: PCIID(first), Source: SourceDerived,
		Detail: fmt.Sprintf("virtual bridges report invented link rates (%d, from %s to %s): not used as bottlenecks", len(found), first, found[len(found)-1])}
	if !slices.Contains(t.Warnings, w) {
		t.Warnings = append(t.Warnings, w)
	}
}

// rootComplexes adds the edge between each root bus and its NUMA node. What
// peers move across it is limited and not published: the rate is unknown.
func (b *linkBuilder) rootComplexes() {
	for i := range b.t.HostBridges {
		hb := &b.t.HostBridges[i]
		l := Link{ID: rootComplexLinkID(hb.ID), Kind: LinkRootComplex, A: hb.ID, B: hb.ID, Basis: BasisUnknown,
			Note: "peer-to-peer rate of a root complex is not published"}
		if hb.NUMA != nil {
			l.A = NUMAID(*hb.NUMA)
		}
		b.add(l)
	}
}

func rootComplexLinkID(hb ID) LinkID { return LinkID("rc:" + hb.Name()) }

func socketLinkID(a, b int) LinkID {
	if a > b {
		a, b = b, a
	}
	return LinkID(fmt.Sprintf("smp:%d/%d", a, b))
}

// sockets adds a link for each pair of NUMA nodes with CPUs.
func (b *linkBuilder) sockets() {
	nodes := b.t.cpuNodes()
	for i, x := range nodes {
		for _, y := range nodes[i+1:] {
			l := Link{ID: socketLinkID(x.Index, y.Index), Kind: LinkSocket, A: x.ID, B: y.ID, Basis: BasisUnknown}
			if x.Package != nil && y.Package != nil && *x.Package == *y.Package {
				l.Note = "within one socket"
			} else {
				l.betweenSockets(&b.t.Host)
			}
			b.add(l)
		}
	}
}

// cpuNodes are the NUMA nodes that a location cpu:N can name.
func (t *Topology) cpuNodes() []*NUMANode {
	var out []*NUMANode
	for i := range t.NUMANodes {
		if n := &t.NUMANodes[i]; !n.MemoryOnly {
			out = append(out, n)
		}
	}
	return out
}

// ports adds the wire of each RDMA port and of each physical netdev. A port
// that is down carries nothing, which is known: its rate is 0.
func (b *linkBuilder) ports() {
	for i := range b.t.Ports {
		p := &b.t.Ports[i]
		l := wire(LinkID(p.ID), p.RDMA, p.ID, p.BytesPerSec, p.State == "" || p.State == "ACTIVE", p.State)
		if from, _ := p.Facts.Get("bytes_per_sec"); from.Source == SourceDerived && l.Note == "" {
			l.Note = "no more than " + from.Where + "; the port says " + p.RateRaw
		}
		b.add(l)
	}
	for i := range b.t.Netdevs {
		n := &b.t.Netdevs[i]
		if n.PCI != "" {
			up := n.State == "" || n.State == "up" || n.State == "unknown"
			b.add(wire(LinkID("port:"+n.Name), n.ID, n.ID, n.BytesPerSec, up, n.State))
		}
	}
}

func wire(id LinkID, a, z ID, rate *Rate, usable bool, state string) Link {
	l := Link{ID: id, Kind: LinkPort, A: a, B: z, Basis: BasisUnknown}
	switch {
	case !usable:
		l.BytesPerSec, l.Basis, l.Note = new(Rate), BasisRead, "port is "+state
	case rate != nil:
		l.BytesPerSec, l.Basis = rate, BasisRead
	}
	return l
}
