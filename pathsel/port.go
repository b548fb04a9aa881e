package pathsel

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Port is a port that data can leave the host by: a port of an RDMA device, or
// an interface that no RDMA device stands for.
type Port struct {
	Index  int     // place in Host.Ports
	ID     topo.ID // "port:mlx5_0/1", or the interface's "net:eth0"
	NIC    topo.ID // the matrix NIC: "rdma:mlx5_0" or "net:eth0"
	Name   string  // "mlx5_0", "mlx4_0/2" where the device has several ports, or "eth0"
	Device string  // the RDMA device's name, "" for an interface
	Number int     // the port's number on its RDMA device, 0 for an interface
	Card   topo.ID // the card ("nic:0000:18:00"), "" if it has none
	PF     topo.ID // on a virtual function: the port of its physical function, "" if that is not visible
	VF     bool

	LinkLayer   string         // "InfiniBand", "Ethernet", "" unknown
	Netdev      string         // the interface that IP traffic of this port uses: the bond's rather than a leg's
	Legs        []string       // of a bond
	Addresses   []netip.Prefix // of Netdev, with the length of their network
	BytesPerSec *topo.Rate     // what the wire carries; nil unknown, 0 where the port is down
	Software    bool           // rxe, siw: no hardware of its own
	Virtual     bool           // an interface without hardware (a container's veth)

	Role       Role
	RoleReason Reason
	// Usable says whether the port can be used at all; Reasons say why not, or
	// what is doubtful about it.
	Usable  bool
	Reasons []Reason

	rdma     *topo.RDMADevice
	port     *topo.Port
	netdev   *topo.Netdev // of Netdev
	evidence string
	doubt    int  // how doubtful a usable port is: 0 not at all
	down     bool // by Options.Down

	wire    topo.LinkID // the link that stands for the wire that the port shares with others, "" it shares none
	perhaps string      // what the ports have in common that may share one wire, "" it shares none
}

// RDMA says whether the port belongs to an RDMA device.
func (p *Port) RDMA() bool { return p.rdma != nil }

// finder collects the ports of a topology.
type finder struct {
	index *topo.Index
	out   []Port
}

// findPorts lists the ports: of every RDMA device, of every physical interface
// that no RDMA device stands for, and of containers' interfaces.
func (h *Host) findPorts() {
	f := finder{index: h.index}
	matrix := map[topo.ID]bool{}
	for _, id := range h.t.MatrixAxis(topo.KindNIC) {
		matrix[id] = true
	}
	for i := range h.t.RDMADevices {
		f.addRDMA(&h.t.RDMADevices[i])
	}
	for i := range h.t.Netdevs {
		n := &h.t.Netdevs[i]
		if matrix[n.ID] || containerInterface(n) {
			f.addNetdev(n, matrix[n.ID])
		}
	}
	slices.SortStableFunc(f.out, func(a, b Port) int { return topo.NaturalCompare(string(a.ID), string(b.ID)) })
	h.ports = f.out
	h.linkVFs()
	for i := range h.ports {
		h.ports[i].Index = i
		h.portIndex[h.ports[i].ID] = i
	}
}

// containerInterface recognizes the interfaces that containers have instead of
// hardware.
func containerInterface(n *topo.Netdev) bool {
	switch n.LinkKind {
	case "veth", "macvlan", "ipvlan":
		return n.Master == ""
	}
	return false
}

func (f *finder) addRDMA(r *topo.RDMADevice) {
	ports := f.index.Ports(r.ID)
	if len(ports) == 0 { // an importer that knows devices only
		f.out = append(f.out, Port{ID: r.ID, NIC: r.ID, Name: r.Name, Device: r.Name, Card: r.NIC, Software: r.Software,
			LinkLayer: f.likelyLinkLayer(r), VF: f.isVF(r.PCI), rdma: r, evidence: r.Evidence})
	}
	for _, p := range ports {
		port := Port{ID: p.ID, NIC: r.ID, Name: r.Name, Device: r.Name, Number: p.Number, Card: r.NIC, VF: f.isVF(r.PCI),
			LinkLayer: p.LinkLayer, BytesPerSec: p.BytesPerSec, Software: r.Software, rdma: r, port: p, evidence: p.Evidence}
		if len(ports) > 1 {
			port.Name += "/" + strconv.Itoa(p.Number)
		}
		if port.LinkLayer == "" {
			port.LinkLayer = f.likelyLinkLayer(r)
		}
		names := p.Netdevs
		if len(names) == 0 && len(ports) == 1 {
			names = r.Netdevs
		}
		f.addInterface(&port, names)
		if port.Software { // its own claim is a constant of the driver
			port.BytesPerSec = nil
			if port.netdev != nil {
				port.BytesPerSec = port.netdev.BytesPerSec
			}
		}
		if p.State != "" && p.State != "ACTIVE" {
			port.BytesPerSec = new(topo.Rate)
		}
		f.out = append(f.out, port)
	}
}

// likelyLinkLayer is the link layer of an RDMA device where its port does not tell it: by its name, or
// by the class of its function if that has one port (one with several may have one of each).
func (f *finder) likelyLinkLayer(r *topo.RDMADevice) string {
	if layer := namedLinkLayer(r.Name); layer != "" {
		return layer
	}
	d := f.index.PCIDevice(r.PCI)
	if d == nil || r.Transport == "efa" || len(f.index.Ports(r.ID)) > 1 || len(f.index.On(d.ID).RDMADevices) > 1 {
		return ""
	}
	switch d.Class.Uint() >> 8 {
	case 0x0200:
		return "Ethernet"
	case 0x0207:
		return "InfiniBand"
	}
	return ""
}

// namedLinkLayer is what the name of an RDMA device tells where nothing else
// does: rdma-core's udev rules name devices by their kind and place ("rocep13s0",
// "ibp14s0"). Names that drivers give ("mlx5_0") say nothing.
func namedLinkLayer(name string) string {
	for prefix, layer := range map[string]string{"roce": "Ethernet", "ib": "InfiniBand"} {
		place, ok := strings.CutPrefix(name, prefix)
		if ok && place != "" && strings.ContainsAny(place[:1], "pPso") {
			return layer
		}
	}
	return ""
}

func (f *finder) addNetdev(n *topo.Netdev, physical bool) {
	p := Port{ID: n.ID, NIC: n.ID, Name: n.Name, VF: f.isVF(n.PCI), BytesPerSec: n.BytesPerSec,
		Virtual: !physical, evidence: n.Evidence}
	if p.Virtual {
		p.BytesPerSec = nil // what a veth claims is a constant of its driver
	}
	if !interfaceUp(n) {
		p.BytesPerSec = new(topo.Rate)
	}
	if n.Type == "ether" {
		p.LinkLayer = "Ethernet"
	}
	if d := f.index.PCIDevice(n.PCI); d != nil {
		p.Card = topo.NICID(d.BDF.Slot())
		if p.VF {
			p.Card = topo.NICID(d.BDF.String())
		}
	}
	f.addInterface(&p, []string{n.Name})
	f.out = append(f.out, p)
}

// interfaceUp says whether an interface can carry anything; one whose state is
// not known may. The kernel takes up to a second to tell that a link came up
// (linkwatch): until then the state is down though the carrier is there.
func interfaceUp(n *topo.Netdev) bool {
	carrier := n.Carrier != nil && *n.Carrier
	return n.State == "" || n.State == "up" || n.State == "unknown" || n.State == "down" && carrier
}

// addInterface finds the interface that the port's IP traffic uses: a bond or
// another master with addresses before the port's own.
func (f *finder) addInterface(p *Port, names []string) {
	var best *topo.Netdev
	consider := func(n *topo.Netdev) {
		if n != nil && (best == nil || len(n.Addresses) > 0 && len(best.Addresses) == 0) {
			best = n
		}
	}
	for _, name := range names {
		n := f.index.NetdevNamed(name)
		if n == nil {
			continue
		}
		if n.Bond != nil || n.LinkKind == "bond" {
			p.Legs = slices.Clone(n.Lower)
		}
		consider(n)
		if m := f.index.NetdevNamed(n.Master); m != nil && (m.Bond != nil || m.LinkKind == "bond") {
			p.Legs = slices.Clone(m.Lower)
			if len(m.Addresses) > 0 { // what a leg has beside it is link-local at most
				best = m
			}
		}
	}
	if best == nil {
		return
	}
	p.netdev, p.Netdev = best, best.Name
	for _, a := range best.Addresses {
		if prefix, err := netip.ParsePrefix(a); err == nil {
			p.Addresses = append(p.Addresses, prefix)
		}
	}
	slices.SortFunc(p.Legs, topo.NaturalCompare)
}

func (f *finder) isVF(pci topo.ID) bool {
	d := f.index.PCIDevice(pci)
	return d != nil && d.PF != ""
}

// takeDown takes ports as down, and with them the virtual functions that share their wires: the links
// of these carry nothing, whatever was measured.
func (h *Host) takeDown(o *Options) error {
	for _, id := range o.Down {
		if !slices.ContainsFunc(h.ports, func(p Port) bool { return p.ID == id || p.NIC == id }) {
			return pkgerr.Errorf("pathsel", "%s is to be down: this host has no such port", id)
		}
	}
	if len(o.Down) == 0 {
		return nil
	}
	named := func(p *Port) bool { return slices.Contains(o.Down, p.ID) || slices.Contains(o.Down, p.NIC) }
	t := *h.t // with links of its own
	t.Links = slices.Clone(t.Links)
	o.Overlay = maps.Clone(o.Overlay)
	for i := range h.ports {
		p := &h.ports[i]
		pf, isVF := h.portIndex[p.PF]
		if !named(p) && !(isVF && named(&h.ports[pf])) {
			continue
		}
		p.down, p.BytesPerSec = true, new(topo.Rate)
		wire := h.wires(p)[0]
		delete(o.Overlay, wire)
		for j := range t.Links {
			if l := &t.Links[j]; l.ID == wire {
				l.BytesPerSec, l.Basis, l.Note = new(topo.Rate), topo.BasisRead, takenDown.Text
			}
		}
	}
	h.t, h.graph = &t, topo.NewGraph(&t, o.Overlay)
	h.index = h.graph.Index()
	return nil
}

// linkVFs finds for each virtual function's port the port of its physical
// function.
func (h *Host) linkVFs() {
	byPCI := map[topo.ID]topo.ID{}
	for i := range h.ports {
		if pci := h.ports[i].pci(); pci != "" && byPCI[pci] == "" {
			byPCI[pci] = h.ports[i].ID
		}
	}
	for i := range h.ports {
		if d := h.index.PCIDevice(h.ports[i].pci()); d != nil && d.PF != "" {
			h.ports[i].PF = byPCI[d.PF]
		}
	}
}

// shareWires finds the ports that leave by one wire: functions of one cable, and virtual functions
// whose physical function's port is not visible, as in a container. The wire of the fastest of them
// stands for it.
func (h *Host) shareWires() {
	sharing := map[string][]*Port{}
	for i := range h.ports {
		p := &h.ports[i]
		var cable string
		if cable, p.perhaps = h.cable(p); cable != "" {
			sharing[cable] = append(sharing[cable], p)
		}
	}
	rate := func(p *Port) topo.Rate {
		if p.BytesPerSec == nil {
			return -1
		}
		return *p.BytesPerSec
	}
	for _, ports := range sharing {
		if len(ports) < 2 {
			continue
		}
		fastest := slices.MaxFunc(ports, func(a, b *Port) int { return cmp.Compare(rate(a), rate(b)) })
		for _, p := range ports {
			p.wire = topo.LinkID(fastest.ID)
		}
	}
}

// cable names the wire of a port of an RDMA device, so that functions of one cable have one name:
// an adapter has one system image GUID in all its slots, and its physical ports are numbered by
// phys_port_name, or as functions in every slot alike. Where no GUID is told, or the slots are a virtual
// machine's, in which the numbers of functions say nothing, perhaps is what those have in common that
// may share a wire.
func (h *Host) cable(p *Port) (wire, perhaps string) {
	d := h.index.PCIDevice(p.pci())
	if d == nil || p.Software || !p.RDMA() || p.PF != "" {
		return "", ""
	}
	adapter := p.rdma.SysImageGUID
	switch {
	case d.PF != "":
		return fmt.Sprint(d.PF, "/", p.Number), ""
	case adapter == "": // not told, and adapters of one kind may be one
		return "", fmt.Sprint(d.Vendor, d.Device, d.BDF.Func, p.Number)
	case strings.Trim(adapter, "0:") == "":
		return "", ""
	}
	if p.port != nil && p.port.AdapterPort != nil {
		return fmt.Sprint(adapter, "/", *p.port.AdapterPort-1), ""
	}
	on := h.index.On(d.ID)
	var numbers []string
	for _, n := range on.Netdevs {
		if number, ok := strings.CutPrefix(n.PhysPort, "p"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
			numbers = append(numbers, number)
		}
	}
	if len(numbers) == 1 {
		return adapter + "/" + numbers[0], ""
	}
	if h.t.Host.Guest() {
		return "", adapter
	}
	if len(on.RDMADevices) > 1 {
		return "", "" // subfunctions, or ports of an origin that does not number them
	}
	return fmt.Sprint(adapter, "/", int(d.BDF.Func)+max(p.Number, 1)-1), ""
}

// mayShareWire says whether a port may share its wire with another of some ports.
func (p *Port) mayShareWire(with []*Port) bool {
	return p.perhaps != "" && slices.ContainsFunc(with, func(o *Port) bool { return o != p && o.perhaps == p.perhaps })
}

// pci is the PCI function that the port's traffic crosses: of a software RDMA
// device that of the interface below it.
func (p *Port) pci() topo.ID {
	switch {
	case p.rdma != nil && p.rdma.PCI != "":
		return p.rdma.PCI
	case p.netdev != nil:
		return p.netdev.PCI
	}
	return ""
}

// at is a path below the port's evidence.
func (p *Port) at(file string) string {
	if p.evidence == "" {
		return ""
	}
	return strings.TrimSuffix(p.evidence, "/") + "/" + file
}
