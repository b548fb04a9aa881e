package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// roce lists the RoCE ports that are up. It notes ports whose link layer is not known
// as missing.
func (h *host) roce(o *outcome) []*pathsel.Port {
	return slices.DeleteFunc(slices.Clone(h.rdmaPorts), func(p *pathsel.Port) bool {
		r := h.RDMADevice(p.NIC)
		if p.Role == pathsel.RoleDecoy || !h.active(p) || r.Transport == "iwarp" || r.Transport == "efa" {
			return true
		}
		if p.LinkLayer == "" {
			o.missingLayer(h, p)
		}
		return p.LinkLayer != "Ethernet"
	})
}

// missingLayer notes a port whose link layer is not known.
func (o *outcome) missingLayer(h *host, p *pathsel.Port) {
	o.missing("the link layer of the port is not known", h.lookAgain(), p.ID)
}

// missingMTU notes a port whose interface, and with it the MTU, is not known.
func (o *outcome) missingMTU(h *host, p *pathsel.Port) {
	o.missing("the interface of the port is not visible, so its MTU", h.seeInterfaces(), p.ID)
}

// missingGIDs notes a port whose GIDs, or whose types of GIDs, are not known.
func (o *outcome) missingGIDs(h *host, p *pathsel.Port) {
	o.missing("the GIDs or their types are not known", h.lookAgain(), p.ID)
}

// noRoCE is why checks of RoCE settings do not apply.
const noRoCE = "no RoCE port is up"

// onlyData keeps the data ports.
func onlyData(ports []*pathsel.Port) []*pathsel.Port {
	return slices.DeleteFunc(slices.Clone(ports), func(p *pathsel.Port) bool { return p.Role != pathsel.RoleData })
}

func checkGIDs(h *host) (o outcome) {
	for _, p := range h.rdmaPorts {
		x, r := h.Port(p.ID), h.RDMADevice(p.NIC)
		switch {
		case p.Role == pathsel.RoleDecoy || r.Transport == "efa" || r.Transport == "iwarp" || x != nil && x.State != "" && x.State != "ACTIVE":
			continue
		case x == nil || len(x.GIDs) == 0 && (x.GIDTable == nil || h.unreadGIDs(p)):
			o.missing("the GID table is not known", h.lookAgain(), p.ID)
			continue
		case len(x.GIDs) == 0:
			fix := "look at the subnet manager and the driver's messages"
			if p.LinkLayer == "Ethernet" {
				fix = "bring its interface up and give it an address; a container needs the interface in its network namespace"
			}
			o.find(Finding{Severity: Error, Subjects: []topo.ID{p.ID}, Evidence: []string{h.portFile(p, "gids", "")},
				Text: fmt.Sprintf("no entry in its GID table of %d: no peer can connect to it", *x.GIDTable), Fix: fix})
		}
		o.judged++
	}
	return o
}

// gidTypes says whether the kind of a port's GIDs is known.
func gidTypes(p *topo.Port) bool {
	return !slices.ContainsFunc(p.GIDs, func(g topo.GID) bool { return g.Type == "" })
}

// unreadGIDs says whether some entries of a port's GID table could not be read.
// What the other entries lack may be in these.
func (h *host) unreadGIDs(p *pathsel.Port) bool {
	return slices.ContainsFunc(h.t.Warnings, func(w topo.Warning) bool {
		return w.Partial() && w.Subject == p.ID && (strings.Contains(w.Evidence, "/gids") || strings.Contains(w.Evidence, "/gid_attrs"))
	})
}

func checkRoutable(h *host) (o outcome) {
	ports := h.roce(&o)
	for _, p := range ports {
		x := h.Port(p.ID)
		switch {
		case x == nil || x.GIDTable == nil && len(x.GIDs) == 0:
			o.missingGIDs(h, p)
		case len(pathsel.RoCEGIDs(x)) > 0:
			o.judged++
		case h.unreadGIDs(p) || !gidTypes(x):
			o.missingGIDs(h, p)
		case len(x.GIDs) == 0: // gid-missing
		default:
			o.judged++
			o.find(h.noneRoutable(p, x))
		}
	}
	if o.note = text.Plural(o.judged, "port"); len(ports) == 0 {
		o.absent = noRoCE
	}
	return o
}

// gidKinds says which GIDs a port has instead of routable ones.
func gidKinds(p *topo.Port) string {
	local, v1 := 0, 0
	for _, g := range p.GIDs {
		if a, err := netip.ParseAddr(g.GID); err == nil && a.IsLinkLocalUnicast() {
			local++
		} else if !strings.Contains(g.Type, "v2") {
			v1++
		}
	}
	switch {
	case local == len(p.GIDs):
		return "all are link-local"
	case v1 > 0:
		return "what is routable is RoCE v1"
	}
	return "no usable address among them"
}

// noneRoutable says that a port has no GID for peers on other networks, and why, if its
// interface shows that.
func (h *host) noneRoutable(p *pathsel.Port, x *topo.Port) Finding {
	f := Finding{Severity: Warning, Subjects: []topo.ID{p.ID}, Evidence: []string{h.portFile(p, "gids", "")},
		Text: fmt.Sprintf("%s, none of RoCE v2 with a routable address: peers on other networks cannot be reached (%s)", text.Plural(len(x.GIDs), "GID"), gidKinds(x))}
	n := h.NetdevNamed(p.Netdev)
	switch {
	case n == nil:
		f.Fix = "its interface is not visible here: give it an IP address, in a container share its network namespace"
		return f
	case !h.paths.AddressesKnown():
	case h.routableAddress(n) == "":
		f.Text += "; interface " + n.Name + " has no such address: it was taken away, or never given"
		f.Evidence = append(f.Evidence, "ip addr show dev "+n.Name)
	default:
		f.Text += fmt.Sprintf("; interface %s has %s, and the driver made no GID of it", n.Name, h.routableAddress(n))
		f.Evidence = append(f.Evidence, "ip addr show dev "+n.Name+" = "+h.routableAddress(n))
		f.Fix = "let the driver see the address again: ip addr del and add, or ip link set " + n.Name + " down and up, which drops its connections; dmesg if the table is full"
		return f
	}
	f.Fix = "ip addr add ADDRESS/LEN dev " + n.Name + ", an address that its peers can reach; see what should have set it (netplan, NetworkManager, DHCP)"
	return f
}

// routableAddress is an address of an interface that peers on other networks can
// reach, "" if it has none.
func (h *host) routableAddress(n *topo.Netdev) string {
	for _, s := range n.Addresses {
		if a, err := netip.ParsePrefix(s); err == nil && !a.Addr().IsLinkLocalUnicast() && !a.Addr().IsLoopback() {
			return s
		}
	}
	return ""
}

func checkGIDIndex(h *host) (o outcome) {
	var by groups[int, *pathsel.Port]
	for _, p := range onlyData(h.roce(&o)) {
		x := h.Port(p.ID)
		if x == nil || x.GIDTable == nil && len(x.GIDs) == 0 || !gidTypes(x) || h.unreadGIDs(p) {
			o.missingGIDs(h, p)
			continue
		}
		if gids := pathsel.RoCEGIDs(x); len(gids) > 0 {
			by.add(gids[0].Index, p)
			o.judged++
		}
	}
	if o.judged < 2 {
		o.absent = "fewer than two RoCE data ports with such a GID"
	}
	slices.Sort(by.order)
	if len(by.order) > 1 {
		f := differing(&by, strconv.Itoa, func(p *pathsel.Port, i int) string {
			return h.portFile(p, "gids/"+strconv.Itoa(i), pathsel.RoCEGIDs(h.Port(p.ID))[0].GID)
		})
		f.Text = "the GID index to use differs: " + f.Text + ": one setting for all ports is wrong for some"
		f.Fix = "leave NCCL_IB_GID_INDEX unset (NCCL 2.21 and newer choose by themselves); UCX and NVSHMEM take it for each rank: topoctl export env --for ucx"
		o.find(f)
	}
	if o.note = text.Plural(o.judged, "port"); len(by.order) == 1 {
		o.note += ", index " + strconv.Itoa(by.order[0])
	}
	return o
}

func checkTrafficClass(h *host) (o outcome) {
	var unset []*pathsel.Port
	var by groups[int, *pathsel.Port]
	for _, p := range h.roce(&o) {
		if p.Role == pathsel.RoleManagement || p.Software {
			continue
		}
		o.judged++
		x := h.Port(p.ID)
		_, file := x.Facts.Get("traffic_class")
		switch {
		case x.TrafficClass != nil && *x.TrafficClass > 0:
			by.add(*x.TrafficClass, p)
		case x.TrafficClass != nil || file:
			unset = append(unset, p)
		default:
			o.missing("no file shows the traffic class: without NVIDIA's driver package each program sets its own",
				"look at NCCL_IB_TC or UCX_IB_TRAFFIC_CLASS of the programs, and at the switches' settings", p.ID)
		}
	}
	file := func(p *pathsel.Port, says string) string {
		return withValue(fmt.Sprintf("/sys/class/infiniband/%s/tc/%d/traffic_class", p.Device, p.Number), says)
	}
	if len(unset) > 0 {
		p := unset[0]
		o.find(Finding{Severity: Warning, Subjects: ids(unset), Evidence: []string{file(p, "none set")},
			Text: "RoCE packets leave without a traffic class, unless each program sets one: a network that is lossless for one class only drops them under load",
			Fix: fmt.Sprintf("echo CLASS > /sys/class/infiniband/%s/tc/%d/traffic_class and cma_roce_tos -d %s, with the class of the network (often 106); or by program: NCCL_IB_TC, UCX_IB_TRAFFIC_CLASS",
				p.Device, p.Number, p.Device)})
	}
	if len(by.order) > 1 {
		f := differing(&by, strconv.Itoa, func(p *pathsel.Port, class int) string { return file(p, strconv.Itoa(class)) })
		f.Text, f.Fix = "RoCE ports have different traffic classes: "+f.Text, "set one class on all RoCE ports of a fabric"
		o.find(f)
	}
	return o
}

// chosenIndex is a GID index that programs are set to use.
type chosenIndex struct {
	name, value string
	where       string // the file, "" for our own option
	index       int
}

// says is the setting as one writes it.
func (c *chosenIndex) says() string {
	if c.where == "" {
		return c.name + " " + c.value
	}
	return c.name + "=" + c.value
}

// seen is where the setting was read.
func (c *chosenIndex) seen() string {
	if c.where == "" {
		return c.says()
	}
	return withValue(c.where, c.says())
}

// undo says how to be rid of it.
func (c *chosenIndex) undo() string {
	switch {
	case c.where == "":
		return "leave it out"
	case strings.HasPrefix(c.where, "/proc/"):
		return "unset " + c.name
	}
	return "take " + c.name + " out of " + c.where
}

// chosenIndices are the GID indices that are set, those of the environment
// before those of files; known is false where the environment is not known.
func (h *host) chosenIndices(o *outcome) (list []chosenIndex, known bool) {
	if h.gidIndex != nil {
		list = append(list, chosenIndex{name: "--gid-index", value: strconv.Itoa(*h.gidIndex), index: *h.gidIndex})
	}
	s := h.t.Host.Software
	if s == nil || s.Environment == nil {
		return list, false
	}
	seen := map[string]bool{}
	for _, x := range slices.Backward(s.Environment.Settings) { // the environment is last and wins
		if seen[x.Name] {
			continue
		}
		seen[x.Name] = true
		c := chosenIndex{name: x.Name, value: x.Value, where: x.Where}
		var err error
		switch c.index, err = strconv.Atoi(x.Value); {
		case x.Value == "" || x.Value == "auto" || err == nil && c.index < 0:
		case err != nil:
			o.find(Finding{Severity: Warning, Evidence: []string{withValue(x.Where, c.says())},
				Text: fmt.Sprintf("%s is not a GID index: programs read it as 0 or refuse to start", c.says()), Fix: c.undo() + ", or set a number"})
		default:
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b chosenIndex) int { return strings.Compare(a.name, b.name) })
	return list, true
}

func checkWrongIndex(h *host) (o outcome) {
	var layers outcome
	ports := onlyData(h.roce(&layers))
	if len(ports)+len(layers.unknown) == 0 {
		return notApplicable("no RoCE data port is up")
	}
	chosen, known := h.chosenIndices(&o)
	if !known {
		o.missingOfHost("whether programs are given a GID index is not known, because their environment is not", h.onHost())
	}
	if len(chosen) == 0 {
		o.absent = "no GID index is set: programs choose by themselves"
		return o
	}
	o.unknown = append(o.unknown, layers.unknown...)
	var unknown, unread []topo.ID
	for i := range chosen {
		for _, p := range ports {
			f, known := h.wrongIndex(&chosen[i], p)
			switch {
			case known && f != nil:
				o.find(*f)
			case known || slices.Contains(unknown, p.ID) || slices.Contains(unread, p.ID):
			case h.unreadEntry(p, chosen[i].index):
				unread = append(unread, p.ID)
			default:
				unknown = append(unknown, p.ID)
			}
		}
	}
	o.missing("the GIDs or their types are not known", h.lookAgain(), unknown...)
	o.missing("the GID table was not read that far: discovery stops after 16 unused entries", "read the entry below /sys/class/infiniband/DEVICE/ports/N/gids on the host", unread...)
	settings := mapped(chosen, func(c chosenIndex) string { return c.says() })
	o.note = text.Join(settings, mostNames) + " on " + text.Plural(len(ports), "port")
	return o
}

// unreadEntry says whether a port's table was read, and not up to this entry.
func (h *host) unreadEntry(p *pathsel.Port, index int) bool {
	x := h.Port(p.ID)
	return x != nil && x.GIDTable != nil && x.GIDsRead != nil && index >= *x.GIDsRead
}

// wrongIndex judges a GID index on one port; known is false where its table is
// not known.
func (h *host) wrongIndex(c *chosenIndex, p *pathsel.Port) (f *Finding, known bool) {
	x := h.Port(p.ID)
	if x == nil || x.GIDTable == nil {
		return nil, false
	}
	if len(x.GIDs) == 0 && !h.unreadGIDs(p) {
		return nil, true // reported by gid-missing
	}
	entry := "gids/" + strconv.Itoa(c.index)
	f = &Finding{Severity: Error, Subjects: []topo.ID{p.ID}, Evidence: []string{c.seen()}, Fix: c.undo() + h.goodIndex(p)}
	i := slices.IndexFunc(x.GIDs, func(g topo.GID) bool { return g.Index == c.index })
	switch {
	case c.index >= *x.GIDTable:
		f.Text = fmt.Sprintf("%s, but the port's GID table has only %d entries: connections from here fail", c.says(), *x.GIDTable)
		f.Evidence = append(f.Evidence, h.portFile(p, "gids", ""))
		return f, true
	case i < 0 && (h.unreadGIDs(p) || x.GIDsRead != nil && c.index >= *x.GIDsRead):
		return nil, false
	case i < 0:
		f.Text = c.says() + ", but the port has no GID of that index: its address is gone or was never there, connections from here fail"
		f.Evidence = append(f.Evidence, h.portFile(p, entry, "0000:0000:0000:0000:0000:0000:0000:0000"))
		return f, true
	}
	g := x.GIDs[i]
	a, err := netip.ParseAddr(g.GID)
	f.Severity = Warning
	f.Evidence = append(f.Evidence, h.portFile(p, entry, g.GID))
	switch {
	case g.Type == "" || err != nil:
		return nil, false
	case !strings.Contains(g.Type, "v2"):
		f.Text = c.says() + ", but that GID is of RoCE v1: no router forwards its packets, and peers with RoCE v2 do not understand them"
		f.Evidence = append(f.Evidence, h.portFile(p, "gid_attrs/types/"+strconv.Itoa(c.index), g.Type))
	case a.Unmap().IsLinkLocalUnicast():
		f.Text = c.says() + ", but that GID is a link-local address: peers on other networks cannot be reached"
	case h.foreignAddress(p, &g, a):
		f.Text = fmt.Sprintf("%s, but that GID is of %s, which interface %s does not have: no answer finds its way back", c.says(), a.Unmap(), h.gidNetdev(p, &g))
	default:
		return nil, true
	}
	return f, true
}

// goodIndex is the index that would do on a port, as the end of an advice.
func (h *host) goodIndex(p *pathsel.Port) string {
	list := pathsel.RoCEGIDs(h.Port(p.ID))
	if len(list) == 0 {
		return "; no GID of this port would do: see gid-none-routable"
	}
	a, _ := netip.ParseAddr(list[0].GID)
	return fmt.Sprintf(", or set %d (RoCE v2, %s)", list[0].Index, a.Unmap())
}

// gidNetdev is the interface that a GID is of.
func (h *host) gidNetdev(p *pathsel.Port, g *topo.GID) string {
	if g.Netdev != "" {
		return g.Netdev
	}
	return p.Netdev
}

// foreignAddress says whether a GID is of an address that its interface does not have.
func (h *host) foreignAddress(p *pathsel.Port, g *topo.GID, a netip.Addr) bool {
	n := h.NetdevNamed(h.gidNetdev(p, g))
	if n == nil || !h.paths.AddressesKnown() {
		return false
	}
	return !slices.ContainsFunc(n.Addresses, func(s string) bool {
		have, err := netip.ParsePrefix(s)
		return err == nil && have.Addr() == a.Unmap()
	})
}

// ethernetData lists the Ethernet data ports that are up: those that RDMA uses, or the
// interfaces on a host without such ports.
func (h *host) ethernetData(o *outcome) []*pathsel.Port {
	if all := h.roce(o); len(h.hardware)+len(all)+len(o.unknown) > 0 {
		return onlyData(all)
	}
	var ports []*pathsel.Port
	for i := range h.ports {
		p := &h.ports[i]
		if p.RDMA() || p.Virtual || p.Role != pathsel.RoleData || p.PF != "" || !h.active(p) {
			continue
		}
		// The legs of a bond share its addresses: one stands for all.
		if !slices.ContainsFunc(ports, func(q *pathsel.Port) bool { return q.Netdev == p.Netdev }) {
			ports = append(ports, p)
		}
	}
	return ports
}

// byMTU groups ports by the MTU of their interfaces.
func (h *host) byMTU(o *outcome, ports []*pathsel.Port) (by groups[int, *pathsel.Port]) {
	for _, p := range ports {
		if m := h.mtu(p); m != nil {
			by.add(*m, p)
		} else {
			o.missingMTU(h, p)
		}
	}
	return by
}

func (h *host) mtuFile(p *pathsel.Port, mtu int) string {
	return h.netFile(p.Netdev, "mtu", strconv.Itoa(mtu))
}

// mtu is the MTU of a port's interface.
func (h *host) mtu(p *pathsel.Port) *int {
	if n := h.NetdevNamed(p.Netdev); n != nil {
		return n.MTU
	}
	return nil
}

func checkMTU(h *host) (o outcome) {
	ports := h.ethernetData(&o)
	by := h.byMTU(&o, ports)
	slices.Sort(by.order)
	for _, same := range by.of {
		o.judged += len(same)
	}
	if len(by.order) > 1 {
		f := differing(&by, strconv.Itoa, h.mtuFile)
		f.Text = "data ports have different MTUs: " + f.Text + ": transfers between such ports stall or use the smaller packets"
		f.Fix = "ip link set DEV mtu N: one MTU on all of them, as the switches have it"
		o.find(f)
	}
	o.judged += h.legMTUs(&o)
	if o.judged < 2 {
		o.absent = "fewer than two Ethernet data ports"
	}
	if o.note = text.Plural(o.judged, "interface"); len(by.order) == 1 {
		o.note += fmt.Sprintf(", MTU %d", by.order[0])
	}
	return o
}

// legMTUs compares bonds with their legs, and counts the legs.
func (h *host) legMTUs(o *outcome) (legs int) {
	for i := range h.t.Netdevs {
		n := &h.t.Netdevs[i]
		if n.Bond == nil || n.MTU == nil {
			continue
		}
		for _, leg := range n.Lower {
			l := h.NetdevNamed(leg)
			if l == nil || l.MTU == nil {
				continue
			}
			legs++
			if *l.MTU != *n.MTU {
				o.find(Finding{Severity: Warning, Subjects: []topo.ID{l.ID, n.ID},
					Text:     fmt.Sprintf("a leg with MTU %d in a bond with %d: large packets are lost on that leg", *l.MTU, *n.MTU),
					Evidence: []string{h.netFile(leg, "mtu", fmt.Sprint(*l.MTU)), h.netFile(n.Name, "mtu", fmt.Sprint(*n.MTU))},
					Fix:      fmt.Sprintf("ip link set %s mtu %d", leg, *n.MTU)})
			}
		}
	}
	return legs
}

func checkSmallMTU(h *host) (o outcome) {
	ports := h.roce(&o)
	by := h.byMTU(&o, ports)
	by.each(func(m int, small []*pathsel.Port) {
		if m < fullMTU {
			o.find(Finding{Severity: Info, Subjects: ids(small), Evidence: []string{h.mtuFile(small[0], m)},
				Text: fmt.Sprintf("MTU %d: RDMA packets carry %d bytes instead of 4096, which costs throughput and packet rate", m, payload(m)),
				Fix:  "ip link set " + small[0].Netdev + " mtu 9000, and so on, if all switches on the way have it"})
		}
	})
	o.judged = len(ports)
	return o
}

// fullMember is the bit of a partition key that full members have.
// Source: InfiniBand Architecture Specification, volume 1, 10.9.1.1.
const fullMember = 0x8000

func checkPKeys(h *host) (o outcome) {
	var by groups[string, *pathsel.Port]
	for _, p := range h.dataPorts {
		if !h.active(p) || p.LinkLayer == "Ethernet" || h.RDMADevice(p.NIC).Transport == "efa" {
			continue
		}
		x := h.Port(p.ID)
		if x == nil || len(x.PKeys) == 0 {
			o.missing("the partition keys are not known", h.lookAgain(), p.ID)
			continue
		}
		o.judged++
		keys := slices.Sorted(slices.Values(asStrings(x.PKeys)))
		by.add(strings.Join(keys, " "), p)
		if !slices.ContainsFunc(x.PKeys, func(k topo.HexID) bool { return k.Uint()&fullMember != 0 }) {
			o.find(Finding{Severity: Warning, Subjects: []topo.ID{p.ID}, Evidence: []string{h.portFile(p, "pkeys/0", keys[0])},
				Text: "a limited member of every partition (" + text.Join(keys, mostNames) + "): it cannot talk to other limited members",
				Fix:  "have the subnet manager make it a full member (partitions.conf, UFM)"})
		}
	}
	if len(by.order) > 1 {
		f := differing(&by, func(keys string) string { return keys }, func(p *pathsel.Port, _ string) string { return h.portFile(p, "pkeys", "") })
		f.Text = "data ports are in different partitions: " + f.Text
		f.Fix = "have the subnet manager put them in the same partitions; a program that uses one partition key index gets different partitions"
		o.find(f)
	}
	return o
}

// What an interface MTU must hold beside the payload of an RDMA packet.
// Source: Linux include/rdma/ib_addr.h (iboe_get_mtu).
const roceHeaders = 96

// leastHeaders are the headers of a RoCE v2 packet over IPv4 without options of
// any kind, in bytes: IP 20, UDP 8, BTH 12, RETH 16, ICRC 4.
// Source: InfiniBand Architecture Specification, annex A17.
const leastHeaders = 60

// mostPayload is the largest payload of an RDMA packet, in bytes.
const mostPayload = 4096

// fullMTU is the interface MTU from which on RDMA packets carry 4096 bytes.
const fullMTU = mostPayload + roceHeaders

// payload is what an RDMA packet can carry over an interface with an MTU.
func payload(mtu int) int {
	n := 256
	for n*2+roceHeaders <= mtu && n < mostPayload {
		n *= 2
	}
	return n
}

// verbsPort is what the library said of a port, nil if it was not asked.
func (h *host) verbsPort(p *pathsel.Port) *replies.VerbsPort {
	a := h.answer(p.Device)
	if a == nil {
		return nil
	}
	i := slices.IndexFunc(a.Ports, func(x replies.VerbsPort) bool { return x.Number == p.Number && x.Failed == nil })
	if i < 0 {
		return nil
	}
	return &a.Ports[i]
}

func checkActiveMTU(h *host) (o outcome) {
	ports := h.roce(&o)
	var silent []topo.ID
	var hidden []*pathsel.Port
	for _, p := range ports {
		v, m := h.verbsPort(p), h.mtu(p)
		switch {
		case v == nil || v.ActiveMTUBytes == 0:
			silent = append(silent, p.ID)
			continue
		case m == nil:
			hidden = append(hidden, p)
			continue
		}
		o.judged++
		most := payload(*m)
		if v.MaxMTUBytes > 0 {
			most = min(most, v.MaxMTUBytes)
		}
		f := Finding{Severity: Warning, Subjects: []topo.ID{p.ID}, Evidence: []string{withValue("ibv_query_port active_mtu", strconv.Itoa(v.ActiveMTUBytes)), h.mtuFile(p, *m)}}
		switch {
		case v.ActiveMTUBytes < most:
			f.Text = fmt.Sprintf("RDMA packets carry %d bytes, though the MTU of %s, %d, holds %d: the port did not follow its interface", v.ActiveMTUBytes, p.Netdev, *m, most)
			f.Fix = "ip link set " + p.Netdev + " down and up, so that the driver looks again; that drops its connections"
		case v.ActiveMTUBytes+leastHeaders > *m:
			f.Text = fmt.Sprintf("RDMA packets carry %d bytes, which the MTU of %s, %d, does not hold: full packets are lost and transfers end with retry errors", v.ActiveMTUBytes, p.Netdev, *m)
			f.Fix = fmt.Sprintf("ip link set %s mtu %d, or more, or down and up, so that the driver looks again", p.Netdev, v.ActiveMTUBytes+roceHeaders)
		default:
			continue
		}
		o.find(f)
	}
	why, how := "libibverbs reports the packet size of the port, on the running host only", h.onHost()
	switch {
	case h.verbs == nil:
	case h.verbs.Unavailable == "":
		why, how = "libibverbs did not report the packet size of the port", "see registration-refused, uverbs-inaccessible"
	default:
		why, how = "the packet size of the port was not asked for: "+h.verbs.Unavailable, h.withVerbs()
	}
	o.missing(why, how, silent...)
	for _, p := range hidden {
		o.missingMTU(h, p)
	}
	return o
}

// mtuPair is the MTU at the two ends of a lane.
type mtuPair struct{ here, there int }

// lanesToPeer are the lanes between Ethernet ports of this host and its peer.
func (h *host) lanesToPeer() (lanes []pathsel.Lane, there *pathsel.Host, err error) {
	if there, err = pathsel.New(h.peer, pathsel.Options{Transport: h.paths.Transport()}); err != nil {
		return nil, nil, err
	}
	pair, err := pathsel.Connect(h.paths, there, pathsel.PairOptions{})
	if err != nil {
		return nil, nil, err
	}
	src, dst := h.paths.Locations(), there.Locations()
	if len(src) == 0 || len(dst) == 0 {
		return nil, there, nil
	}
	set, err := pair.Lanes(src[0], dst[0])
	if set == nil {
		return nil, there, err
	}
	return set.Lanes, there, nil
}

func checkPeerMTU(h *host) (o outcome) {
	if h.peer == nil {
		return notApplicable("no peer is given: --peer FILE names one")
	}
	lanes, there, err := h.lanesToPeer()
	name := cmp.Or(h.peer.Host.Name, "the peer")
	if err != nil || len(lanes) == 0 {
		why := "no port of this host is known to reach a port of " + name
		if err != nil {
			why += ": " + pkgerr.Message(err)
		}
		return couldNotCheck(why, "\"topoctl path cpu:0 --peer FILE\" says which ports do not reach each other, and why")
	}
	var by groups[mtuPair, [2]*pathsel.Port]
	var unknown []topo.ID
	for i := range lanes {
		a, okA := h.paths.Port(lanes[i].Local)
		b, okB := there.Port(lanes[i].Remote)
		if !okA || !okB || a.LinkLayer == "InfiniBand" || b.LinkLayer == "InfiniBand" {
			continue
		}
		m, n := h.mtu(&a), there.Index().NetdevNamed(b.Netdev)
		if m == nil || n == nil || n.MTU == nil {
			unknown = append(unknown, a.ID)
			continue
		}
		o.judged++
		if *m != *n.MTU {
			by.add(mtuPair{*m, *n.MTU}, [2]*pathsel.Port{&a, &b})
		}
	}
	by.each(func(m mtuPair, ends [][2]*pathsel.Port) { o.find(h.differentMTU(m, ends, name)) })
	o.missing("the interface at one end of its lanes is not visible, so its MTU", h.seeInterfaces(), unique(unknown)...)
	if o.note = text.Plural(o.judged, "lane") + " to " + name; o.judged == 0 {
		o.absent = "no Ethernet lane to " + name
	}
	return o
}

// differentMTU is the finding about lanes whose ends have different MTUs.
func (h *host) differentMTU(m mtuPair, ends [][2]*pathsel.Port, name string) Finding {
	here := mapped(ends, func(e [2]*pathsel.Port) *pathsel.Port { return e[0] })
	there := mapped(ends, func(e [2]*pathsel.Port) *pathsel.Port { return e[1] })
	f := Finding{Severity: Warning, Subjects: unique(ids(here)),
		Fix:      fmt.Sprintf("ip link set DEV mtu %d on the side with less, if the switches between carry it, or %d on the other", max(m.here, m.there), min(m.here, m.there)),
		Evidence: []string{h.mtuFile(here[0], m.here), name + ": " + netFile(there[0].Netdev, "mtu", strconv.Itoa(m.there))}}
	f.Text = fmt.Sprintf("MTU %d here (%s) and %d at %s (%s): ", m.here, text.Join(unique(names(here)), mostNames), m.there, name, text.Join(unique(names(there)), mostNames))
	rdma := slices.ContainsFunc(here, func(p *pathsel.Port) bool { return p.RDMA() })
	if small := payload(min(m.here, m.there)); rdma && small < payload(max(m.here, m.there)) {
		f.Text += fmt.Sprintf("RDMA must use packets of %d bytes; a program whose ends do not agree on that loses full packets and ends with retry errors", small)
	} else {
		f.Text += "packets of the larger size are lost on the way to the other end"
	}
	return f
}
