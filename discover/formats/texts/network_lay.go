package texts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// layer lays texts over a topology.
type layer struct {
	t       *topo.Topology
	origin  string
	pairs   []pair
	place   map[topo.ID]topo.BDF // of RDMA devices and interfaces, by their ID
	rdma    map[string]int       // places in t.RDMADevices, by the texts' names
	netdevs map[string]int
	texts   map[string]bool // names of the texts' interfaces
	told    map[fact]telling
	err     error // the first fact that a tool tells in two ways

	function map[topo.BDF]*topo.PCIDevice
}

// fact is an attribute of a node, and telling what a text says of it.
type fact struct {
	node topo.ID
	name string
}

type telling struct {
	source          topo.Source
	value, evidence string
}

// pair is an RDMA device's port with its interface.
type pair struct {
	device string
	port   int
	netdev string
	place  *topo.BDF // as the same text has it
	source topo.Source
}

// Lay adds what the texts say to the devices of a topology that they are about, by name, PCI address,
// GUID or MAC address. Where both know something the topology's own fact stands, and what two tools tell
// differently is not known; a warning names what differs, and what is about no device of the topology.
// Relations are derived anew. The error is for texts in which one tool tells a fact in two ways, as those
// of two hosts do: the topology is of no use then.
func Lay(t *topo.Topology, reports []*Network) error {
	l := &layer{t: t, origin: t.Origin, place: map[topo.ID]topo.BDF{}, rdma: map[string]int{}, netdevs: map[string]int{},
		texts: map[string]bool{}, told: map[fact]telling{},
		function: map[topo.BDF]*topo.PCIDevice{}}
	for i := range t.PCIDevices {
		l.function[t.PCIDevices[i].BDF] = &t.PCIDevices[i]
	}
	l.findPairs(reports)
	l.findPlaces(reports)
	for _, r := range reports {
		for _, d := range r.devices {
			l.device(d)
		}
	}
	for _, r := range reports {
		l.interfaces(r)
	}
	if l.err != nil {
		return l.err
	}
	l.join()
	for _, r := range reports {
		l.source(r)
	}
	for i, lack := range t.Host.Lacks {
		t.Host.Lacks[i] = "(" + strings.TrimPrefix(t.Origin, "import:") + " alone) " + lack
	}
	// Links that were derived of ports are out of date; no source gives such links.
	t.Links = slices.DeleteFunc(t.Links, func(link topo.Link) bool { return link.Kind == topo.LinkPort })
	t.Derive()
	t.Complete = t.Complete && !slices.ContainsFunc(t.Warnings, topo.Warning.Partial)
	return nil
}

func (l *layer) warn(code topo.Code, subject topo.ID, source topo.Source, evidence, format string, args ...any) {
	l.t.Warnings = append(l.t.Warnings, topo.Warning{Code: code, Subject: subject, Source: source, Evidence: evidence, Detail: fmt.Sprintf(format, args...)})
}

// findPairs collects which interface is which port's: as ibdev2netdev and rdma say, and by the port's
// GUID, which the hardware address of an IPoIB interface ends with.
// Source: RFC 4391, 9.1.1.
func (l *layer) findPairs(reports []*Network) {
	byGUID := map[string]string{}
	for _, r := range reports {
		for _, n := range r.interfaces {
			if strings.Count(n.MAC, ":") == 19 {
				b := strings.Split(n.MAC, ":")[12:]
				byGUID[fmt.Sprintf("%s%s:%s%s:%s%s:%s%s", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7])] = n.Name
			}
		}
	}
	for _, r := range reports {
		for _, d := range r.devices {
			for _, p := range d.ports {
				netdev := p.netdev
				if netdev == "" && p.guid != "" {
					netdev = byGUID[p.guid]
				}
				if netdev != "" {
					l.pairs = append(l.pairs, pair{d.Name, p.Number, netdev, d.BDF, d.source})
				}
			}
		}
	}
}

// findPlaces collects the PCI addresses of names, from the texts and the topology; a port and its
// interface have the same.
func (l *layer) findPlaces(reports []*Network) {
	note := func(id topo.ID, bdf *topo.BDF) {
		if _, known := l.place[id]; bdf != nil && !known {
			l.place[id] = *bdf
		}
	}
	for i := range l.t.RDMADevices {
		note(l.t.RDMADevices[i].ID, l.t.RDMADevices[i].BDF)
	}
	for i := range l.t.Netdevs {
		note(l.t.Netdevs[i].ID, l.t.Netdevs[i].BDF)
	}
	for _, r := range reports {
		for _, d := range r.devices {
			note(topo.RDMAID(d.Name), d.BDF)
		}
		for _, n := range r.interfaces {
			note(topo.NetdevID(n.Name), n.BDF)
			l.texts[n.Name] = true
		}
	}
	for _, p := range l.pairs {
		note(topo.NetdevID(p.netdev), p.place)
	}
	for _, p := range l.pairs {
		if bdf, ok := l.place[topo.NetdevID(p.netdev)]; ok {
			note(topo.RDMAID(p.device), &bdf)
		}
		if bdf, ok := l.place[topo.RDMAID(p.device)]; ok {
			note(topo.NetdevID(p.netdev), &bdf)
		}
	}
}

// addressed says whether an importer called a device by its PCI address, for want of a name.
func addressed(n *topo.Node) bool {
	from, ok := n.Facts.Get("name")
	return ok && from.Source == topo.SourceDerived
}

// device lays one tool's word on an RDMA device over the topology's.
func (l *layer) device(d *device) {
	at, ok := l.findDevice(d)
	if !ok {
		return
	}
	l.rdma[d.Name] = at
	r := &l.t.RDMADevices[at]
	set := setter{l, &r.Node, d.source, d.Evidence}
	if d.BDF != nil {
		set.tell("bdf", d.BDF.String())
	}
	lay(set, "node_guid", &r.NodeGUID, d.NodeGUID)
	lay(set, "sys_image_guid", &r.SysImageGUID, d.SysImageGUID)
	lay(set, "firmware", &r.Firmware, d.Firmware)
	lay(set, "hca_type", &r.HCAType, d.HCAType)
	for _, p := range d.ports {
		l.port(d, r, p)
	}
}

// findDevice is the place of the RDMA device that a tool means: by name, by address, by GUID; false
// where the topology has none.
func (l *layer) findDevice(d *device) (int, bool) {
	list := l.t.RDMADevices
	if at := slices.IndexFunc(list, func(r topo.RDMADevice) bool { return r.Name == d.Name }); at >= 0 {
		r := &list[at]
		switch {
		case d.BDF != nil && r.BDF != nil && *d.BDF != *r.BDF:
			l.warn(topo.CodeConflict, r.ID, d.source, d.Evidence, "%s has %s at %s, the input at %s: not laid over", d.source, d.Name, d.BDF, r.BDF)
			return 0, false
		case d.NodeGUID != "" && r.NodeGUID != "" && d.NodeGUID != r.NodeGUID && l.told[fact{r.ID, "node_guid"}].value == "":
			l.warn(topo.CodeConflict, r.ID, d.source, d.Evidence, "node GUID of %s differs from the input's, so it is another device: not laid over", d.Name)
			return 0, false
		}
		return at, true
	}
	bdf, placed := l.place[topo.RDMAID(d.Name)]
	here := func(r topo.RDMADevice) bool {
		return placed && r.BDF != nil && *r.BDF == bdf || d.NodeGUID != "" && r.NodeGUID == d.NodeGUID
	}
	if at := slices.IndexFunc(list, here); at >= 0 {
		if r := &list[at]; addressed(&r.Node) {
			l.renameDevice(r, d.Name, d.source)
		} else {
			l.warn(topo.CodeConflict, r.ID, d.source, d.Evidence, "%s calls this device %s", d.source, d.Name)
		}
		return at, true
	}
	if placed {
		if f := l.function[bdf]; f != nil {
			r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(d.Name), Evidence: d.Evidence}, Name: d.Name, Uverbs: "unknown"}
			r.Facts.Set("name", d.source, "")
			if d.BDF == nil && f.Driver != "" && !slices.Contains(hardwareRDMA, f.Driver) {
				// The driver of its interface makes no RDMA devices.
				r.Software, r.Transport = true, "software"
				r.Facts.Set("transport", topo.SourceDerived, "driver of its interface")
			} else {
				r.PCI, r.BDF, r.NUMA, r.Driver = f.ID, &bdf, f.NUMA, f.Driver
				r.Facts.Set("pci", d.source, "")
			}
			l.t.RDMADevices = append(l.t.RDMADevices, r)
			return len(list), true
		}
	}
	l.warn(topo.CodeSkipped, "", d.source, d.Evidence, "%s tells of %s, which is no device of the input%s", d.source, d.Name, l.hint(placed))
	return 0, false
}

// hint says how to tell a device that has no name in the input.
func (l *layer) hint(placed bool) string {
	for i := range l.t.RDMADevices {
		if !placed && addressed(&l.t.RDMADevices[i].Node) {
			return " by name: ibdev2netdev -v, or rdma link with ip -d addr, tells the PCI addresses"
		}
	}
	return ""
}

// hardwareRDMA are the drivers of functions that may have RDMA devices of hardware.
// Source: drivers/infiniband/hw of the kernel.
var hardwareRDMA = []string{"be2net", "bnge", "bnxt_en", "cxgb4", "efa", "enic", "erdma", "hfi1", "hns3", "i40e", "ib_mthca", "ib_qib",
	"ice", "idpf", "ionic", "mana", "mlx4_core", "mlx5_core", "qede", "vmw_pvrdma"}

func (l *layer) renameDevice(r *topo.RDMADevice, name string, source topo.Source) {
	old := r.ID
	r.ID, r.Name = topo.RDMAID(name), name
	r.Facts.Set("name", source, "")
	for i := range l.t.Ports {
		if p := &l.t.Ports[i]; p.RDMA == old {
			p.RDMA, p.ID = r.ID, topo.PortID(name, p.Number)
		}
	}
	l.renamed(old, r.ID)
}

// renamed follows a new ID where the origin states classes.
func (l *layer) renamed(old, id topo.ID) {
	if a := l.t.Asserted; a != nil {
		if i := slices.Index(a.Axis, old); i >= 0 {
			a.Axis[i] = id
		}
	}
	for i := range l.t.Warnings {
		if w := &l.t.Warnings[i]; w.Subject == old {
			w.Subject = id
		}
	}
}

// port lays one tool's word on a port over the topology's.
func (l *layer) port(d *device, r *topo.RDMADevice, p *port) {
	id := topo.PortID(r.Name, p.Number)
	at := slices.IndexFunc(l.t.Ports, func(q topo.Port) bool { return q.ID == id })
	if at < 0 {
		at = len(l.t.Ports)
		l.t.Ports = append(l.t.Ports, topo.Port{Node: topo.Node{ID: id, Evidence: p.Evidence}, RDMA: r.ID, Number: p.Number})
	}
	q := &l.t.Ports[at]
	set := setter{l, &q.Node, d.source, p.Evidence}
	lay(set, "state", &q.State, p.State)
	lay(set, "phys_state", &q.PhysState, p.PhysState)
	lay(set, "link_layer", &q.LinkLayer, p.LinkLayer)
	layKnown(set, "bytes_per_sec", &q.BytesPerSec, p.BytesPerSec)
	layKnown(set, "lid", &q.LID, p.LID)
	layKnown(set, "sm_lid", &q.SMLID, p.SMLID)
}

// interfaces lays a text's word on interfaces over the topology's. Those of no device are named
// together: every host has some.
func (l *layer) interfaces(r *Network) {
	var strangers []string
	var source topo.Source
	for _, n := range l.layInterfaces(l.layInterfaces(r.interfaces)) { // a bond is found by its legs
		if n.Type != "loopback" && !slices.Contains(strangers, n.Name) {
			strangers, source = append(strangers, n.Name), n.source
		}
	}
	if len(strangers) > 0 {
		l.warn(topo.CodeLossyImport, "", source, r.file, "%s of no device of the input: %s", text.Plural(len(strangers), "interface"), text.Join(strangers, 8))
	}
}

// layInterfaces gives those that it did not find.
func (l *layer) layInterfaces(list []*iface) (rest []*iface) {
	for _, n := range list {
		at, ok := l.findInterface(n)
		if !ok {
			rest = append(rest, n)
			continue
		}
		l.netdevs[n.Name] = at
		l.netdev(n, &l.t.Netdevs[at])
	}
	return rest
}

func (l *layer) netdev(n *iface, q *topo.Netdev) {
	set := setter{l, &q.Node, n.source, n.Evidence}
	layKnown(set, "ifindex", &q.Index, n.Index)
	layKnown(set, "mtu_bytes", &q.MTU, n.MTU)
	layKnown(set, "carrier", &q.Carrier, n.Carrier)
	layKnown(set, "admin_up", &q.AdminUp, n.AdminUp)
	lay(set, "state", &q.State, n.State)
	lay(set, "type", &q.Type, n.Type)
	lay(set, "mac", &q.MAC, n.MAC)
	lay(set, "link_kind", &q.LinkKind, n.LinkKind)
	lay(set, "master", &q.Master, n.Master)
	if len(n.Addresses) == 0 {
		return
	}
	isV6 := func(list []string) bool { return strings.Contains(list[0], ":") } // ip lists IPv4 first
	if len(q.Addresses) > 0 && set.known("addresses") && isV6(q.Addresses) != isV6(n.Addresses) {
		q.Addresses = append(q.Addresses, n.Addresses...) // ip -4 and ip -6
		return
	}
	own, all := sorted(q.Addresses), sorted(n.Addresses)
	switch lay(set, "addresses", &own, all); {
	case own == "":
		q.Addresses = nil
	case len(q.Addresses) == 0:
		q.Addresses = n.Addresses
	}
}

func sorted(words []string) string {
	return strings.Join(slices.Sorted(slices.Values(words)), " ")
}

// findInterface is the place of the interface that a tool means: by name, by address, by MAC. An
// interface over others of the input, such as a bond, is added.
func (l *layer) findInterface(n *iface) (int, bool) {
	list := l.t.Netdevs
	if at := slices.IndexFunc(list, func(q topo.Netdev) bool { return q.Name == n.Name }); at >= 0 {
		if q := &list[at]; n.BDF != nil && q.BDF != nil && *n.BDF != *q.BDF {
			l.warn(topo.CodeConflict, q.ID, n.source, n.Evidence, "%s has %s at %s, the input at %s: not laid over", n.source, n.Name, n.BDF, q.BDF)
			return 0, false
		}
		return at, true
	}
	bdf, placed := l.place[topo.NetdevID(n.Name)]
	here := func(q topo.Netdev) bool {
		return placed && q.BDF != nil && *q.BDF == bdf && addressed(&q.Node) || q.MAC != "" && q.MAC == n.MAC && !l.texts[q.Name] // a bond has its leg's
	}
	if at := slices.IndexFunc(list, here); at >= 0 {
		if q := &list[at]; addressed(&q.Node) {
			old := q.ID
			q.ID, q.Name = topo.NetdevID(n.Name), n.Name
			q.Facts.Set("name", n.source, "")
			l.renamed(old, q.ID)
		} else {
			l.warn(topo.CodeConflict, q.ID, n.source, n.Evidence, "%s calls this interface %s", n.source, n.Name)
		}
		return at, true
	}
	q := topo.Netdev{Node: topo.Node{ID: topo.NetdevID(n.Name), Evidence: n.Evidence}, Name: n.Name}
	q.Facts.Set("name", n.source, "")
	var function *topo.PCIDevice
	if placed {
		function = l.function[bdf]
	}
	over := slices.ContainsFunc(list, func(leg topo.Netdev) bool { return leg.Master == n.Name })
	switch {
	case function != nil:
		q.PCI, q.BDF, q.NUMA, q.Driver = function.ID, &bdf, function.NUMA, function.Driver
		q.Facts.Set("pci", n.source, "")
	case l.ofDevice(n.Name):
		// On the function of an RDMA device whose address the input does not tell.
	case over:
		q.Virtual = true
	default:
		return 0, false
	}
	l.t.Netdevs = append(l.t.Netdevs, q)
	return len(list), true
}

// ofDevice says whether an interface is that of a port of a device that was found.
func (l *layer) ofDevice(netdev string) bool {
	return slices.ContainsFunc(l.pairs, func(p pair) bool {
		_, found := l.rdma[p.device]
		return found && p.netdev == netdev
	})
}

// join ties ports and interfaces together, and bonds to their legs.
func (l *layer) join() {
	for _, p := range l.pairs {
		device, ok1 := l.rdma[p.device]
		netdev, ok2 := l.netdevs[p.netdev]
		if !ok1 || !ok2 {
			continue
		}
		r, name := &l.t.RDMADevices[device], l.t.Netdevs[netdev].Name
		if !slices.Contains(r.Netdevs, name) {
			r.Netdevs = append(r.Netdevs, name)
			r.Facts.Set("netdevs", p.source, "")
		}
		for i := range l.t.Ports {
			if q := &l.t.Ports[i]; q.ID == topo.PortID(r.Name, p.port) && !slices.Contains(q.Netdevs, name) {
				q.Netdevs = append(q.Netdevs, name)
				q.Facts.Set("netdevs", p.source, "")
			}
		}
	}
	for i := range l.t.Netdevs {
		leg := &l.t.Netdevs[i]
		at, ok := l.netdevs[leg.Master]
		if !ok {
			continue
		}
		if master := &l.t.Netdevs[at]; !slices.Contains(master.Lower, leg.Name) {
			master.Lower = append(master.Lower, leg.Name)
		}
	}
}

// source reports a text among the sources, by tool.
func (l *layer) source(r *Network) {
	tools := map[topo.Source]int{}
	for _, d := range r.devices {
		tools[d.source]++
	}
	for _, n := range r.interfaces {
		tools[n.source]++
	}
	for _, t := range networkTexts {
		if n := tools[t.source]; n > 0 {
			l.t.Sources = append(l.t.Sources, topo.SourceReport{Source: t.source, Status: topo.StatusOK,
				Detail: fmt.Sprintf("%s, %s", r.file, text.Plural(n, "entry", "entries"))})
		}
	}
}

// setter sets attributes of one node as one tool tells them.
type setter struct {
	*layer
	node     *topo.Node
	source   topo.Source
	evidence string
}

// tell notes what the tool says of an attribute. Where a text has said something else before, it is
// false, with the earlier word: of one tool that is an error, for the texts are not of one host.
func (s setter) tell(name, value string) (before telling, ok bool) {
	key := fact{s.node.ID, name}
	before, again := s.told[key]
	switch {
	case !again:
		s.told[key] = telling{s.source, value, s.evidence}
	case before.value == value:
	case before.source == s.source && s.err == nil:
		s.err = pkgerr.Errorf("texts", "%s: %s says %s %s (%s) and %s (%s): texts of two hosts, or of one host at two times; give those of one",
			s.node.ID, s.source, name, before.value, before.evidence, value, s.evidence)
	}
	return before, !again || before.value == value
}

// known says whether an attribute is from a text.
func (s setter) known(name string) bool {
	from, ok := s.node.Facts.Get(name)
	return ok && slices.ContainsFunc(networkTexts, func(t networkText) bool { return t.source == from.Source })
}

// lay is layKnown for what is unknown when it is empty.
func lay(s setter, name string, dst *string, src string) {
	var ours, theirs *string
	if *dst != "" {
		ours = dst
	}
	if src != "" {
		theirs = &src
	}
	if layKnown(s, name, &ours, theirs); ours == nil {
		ours = new("")
	}
	*dst = *ours
}

// layKnown sets what the topology does not know, and reports what it knows otherwise. What two tools tell
// differently becomes unknown.
func layKnown[T comparable](s setter, name string, dst **T, src *T) {
	if src == nil {
		return
	}
	before, ok := s.tell(name, fmt.Sprint(*src))
	switch {
	case ok && *dst == nil && before.source == "":
		*dst = new(*src)
		s.node.Facts.Set(name, s.source, "")
	case *dst != nil && **dst == *src:
	case !ok && (*dst == nil || s.known(name)):
		*dst = nil
		s.node.Facts = slices.DeleteFunc(s.node.Facts, func(f topo.Fact) bool { return f.Name == name })
		s.warn(topo.CodeConflict, s.node.ID, s.source, s.evidence, "%s: %s says %s (%s), %s says %v: not known",
			name, before.source, before.value, before.evidence, s.source, *src)
	case *dst != nil:
		s.warn(topo.CodeConflict, s.node.ID, s.source, s.evidence, "%s: %s says %v, the input says %v, which is kept", name, s.source, *src, **dst)
	}
}
