package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

var roceChecks = []Check{
	gidIndexCheck,
	{
		Code: "gid-missing", Family: "RoCE and InfiniBand settings", Severity: Error,
		Title:  "every RDMA port that is up has GIDs",
		Judged: "An ACTIVE port whose GID table is empty cannot be connected to. EFA and iWARP have no need of GIDs.",
		Facts:  "gids in /sys/class/infiniband/DEV/ports/N",
		Fix:    "RoCE: bring its interface up and give it an address; in a container, the interface must be in the same network namespace.",
		run:    checkGIDs,
	},
	{
		Code: "gid-none-routable", Family: "RoCE and InfiniBand settings", Severity: Warning,
		Title:  "every RoCE port has a RoCE v2 GID that peers on other networks can reach",
		Judged: "Ports that have GIDs, of which none is both RoCE v2 and made from a routable address (not fe80::).",
		Facts:  "gids, gid_attrs/types and gid_attrs/ndevs in /sys/class/infiniband/DEV/ports/N",
		Fix:    "Give the interface an IP address (a GID goes when its address goes); in a container, look at the network namespace.",
		run:    checkRoutable,
	},
	{
		Code: "gid-index-differs", Family: "RoCE and InfiniBand settings", Severity: Warning,
		Title:  "the GID index to use is the same on all RoCE data ports",
		Judged: "The first RoCE v2 GID with a routable address, IPv4 before IPv6, of each data port. One NCCL_IB_GID_INDEX for all ports is wrong where they differ.",
		Facts:  "gids and gid_attrs/types in /sys/class/infiniband/DEV/ports/N",
		Fix:    "Leave NCCL_IB_GID_INDEX unset: it is one for all ports, and NCCL 2.21 and newer choose by themselves. UCX and NVSHMEM take it for each rank: topoctl export env --for ucx.",
		run:    checkGIDIndex,
	},
	{
		Code: "traffic-class-unset", Family: "RoCE and InfiniBand settings", Severity: Warning,
		Title: "RoCE ports mark their packets for the lossless queue of the network",
		Judged: "The traffic class that the driver package forces on connections: none, or different ones, are a warning. Without NVIDIA's driver package there is no such file, and " +
			"each program sets its own: that cannot be checked.",
		Facts: "tc/N/traffic_class in /sys/class/infiniband/DEV (MLNX_OFED, DOCA)",
		Fix:   "cma_roce_tos and tc/N/traffic_class as the network wants it (often 106), or for each program: NCCL_IB_TC, UCX_IB_TRAFFIC_CLASS.",
		run:   checkTrafficClass,
	},
	{
		Code: "mtu-mismatch", Family: "RoCE and InfiniBand settings", Severity: Warning,
		Title:  "Ethernet data ports, and the legs of bonds, have one MTU",
		Judged: "The MTU of the interfaces of all data ports that are up, and of each bond against its legs.",
		Facts:  "mtu in /sys/class/net",
		Fix:    "ip link set DEV mtu N on all of them, as the switches have it.",
		run:    checkMTU,
	},
	{
		Code: "mtu-small", Family: "RoCE and InfiniBand settings", Severity: Info,
		Title:  "RoCE ports have an MTU that lets RDMA use its largest packets",
		Judged: "RDMA packets of 4096 bytes need an interface MTU of about 4200; at 1500 they have 1024.",
		Facts:  "mtu in /sys/class/net",
		Fix:    "ip link set DEV mtu 9000, if all switches on the way have it.",
		run:    checkSmallMTU,
	},
	activeMTUCheck,
	peerMTUCheck,
	{
		Code: "pkey-mismatch", Family: "RoCE and InfiniBand settings", Severity: Warning,
		Title:  "InfiniBand data ports are full members of the same partitions",
		Judged: "Ports whose keys are all limited (two limited members cannot talk to each other), and ports whose set of keys differs from the others.",
		Facts:  "pkeys in /sys/class/infiniband/DEV/ports/N",
		Fix:    "Ask who runs the subnet manager (partitions.conf, UFM).",
		run:    checkPKeys,
	},
}

// roce lists the RoCE ports that are up, and the ports of which nothing tells
// whether they are.
func (h *host) roce() (ports []*pathsel.Port, untold []topo.ID) {
	for _, p := range h.rdmaPorts() {
		r := h.rdma[p.NIC]
		switch {
		case p.Role == pathsel.RoleDecoy || !h.active(p) || r.Transport == "iwarp" || r.Transport == "efa" || p.LinkLayer == "Unspecified":
		case p.LinkLayer == "Ethernet":
			ports = append(ports, p)
		case p.LinkLayer == "":
			untold = append(untold, p.ID)
		}
	}
	return ports, untold
}

// onlyData keeps the data ports.
func onlyData(ports []*pathsel.Port) []*pathsel.Port {
	return slices.DeleteFunc(slices.Clone(ports), func(p *pathsel.Port) bool { return p.Role != pathsel.RoleData })
}

// lackLayers notes ports whose link layer is not told.
func (o *outcome) lackLayers(h *host, untold []topo.ID) {
	if len(untold) > 0 {
		o.lack("the link layer of the port is not told", h.lookAgain(), untold...)
	}
}

func checkGIDs(h *host) outcome {
	var o outcome
	var untold []topo.ID
	looked := 0
	for _, p := range h.rdmaPorts() {
		x, r := h.port[p.ID], h.rdma[p.NIC]
		switch {
		case p.Role == pathsel.RoleDecoy || r.Transport == "efa" || r.Transport == "iwarp" || x != nil && x.State != "" && x.State != "ACTIVE":
			continue
		case x == nil || len(x.GIDs) == 0 && (x.GIDTable == nil || h.unreadGIDs(p)):
			untold = append(untold, p.ID)
			continue
		case len(x.GIDs) == 0:
			fix := "look at the subnet manager and the driver's messages"
			if p.LinkLayer == "Ethernet" {
				fix = "bring its interface up and give it an address; a container needs the interface in its network namespace"
			}
			o.find(Finding{Severity: Error, Subjects: []topo.ID{p.ID}, Evidence: places(h.portFile(p, "gids", "")),
				Text: fmt.Sprintf("no entry in its GID table of %d: nobody can connect to it", *x.GIDTable), Fix: fix})
		}
		looked++
	}
	if len(untold) > 0 {
		o.lack("the GID table is not told", h.lookAgain(), untold...)
	}
	if looked+len(untold) == 0 {
		return notApplicable("no RDMA port that is up and needs GIDs")
	}
	o.note = count(looked, "port")
	return o
}

// gidTypes says whether the kind of a port's GIDs is known.
func gidTypes(p *topo.Port) bool {
	return !slices.ContainsFunc(p.GIDs, func(g topo.GID) bool { return g.Type == "" })
}

// unreadGIDs says whether entries of a port's GID table exist that could not
// be read: what the others lack may be there.
func (h *host) unreadGIDs(p *pathsel.Port) bool {
	return slices.ContainsFunc(h.t.Warnings, func(w topo.Warning) bool {
		return w.Partial() && w.Subject == p.ID && (strings.Contains(w.Evidence, "/gids") || strings.Contains(w.Evidence, "/gid_attrs"))
	})
}

func checkRoutable(h *host) outcome {
	var o outcome
	ports, layers := h.roce()
	var untold []topo.ID
	looked := 0
	for _, p := range ports {
		x := h.port[p.ID]
		switch {
		case x == nil || x.GIDTable == nil && len(x.GIDs) == 0:
			untold = append(untold, p.ID)
		case len(pathsel.RoCEGIDs(x)) > 0:
			looked++
		case h.unreadGIDs(p) || !gidTypes(x):
			untold = append(untold, p.ID)
		case len(x.GIDs) == 0: // gid-missing
		default:
			looked++
			o.find(h.noneRoutable(p, x))
		}
	}
	o.lackLayers(h, layers)
	if len(untold) > 0 {
		o.lack("the GIDs or their types are not told", h.lookAgain(), untold...)
	}
	if len(ports)+len(layers) == 0 {
		return notApplicable("no RoCE port is up")
	}
	o.note = count(looked, "port")
	return o
}

// gidKinds says what GIDs a port has instead.
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

// noneRoutable says that a port has no GID for peers on other networks, and what
// of its interface explains that.
func (h *host) noneRoutable(p *pathsel.Port, x *topo.Port) Finding {
	f := Finding{Severity: Warning, Subjects: []topo.ID{p.ID}, Evidence: places(h.portFile(p, "gids", "")),
		Text: fmt.Sprintf("%s, none of RoCE v2 with a routable address: peers on other networks cannot be reached (%s)", count(len(x.GIDs), "GID"), gidKinds(x))}
	n := h.netdev[p.Netdev]
	switch {
	case n == nil:
		f.Fix = "its interface is not visible here: give it an IP address, in a container share its network namespace"
		return f
	case !h.addressesTold():
	case h.routableAddress(n) == "":
		f.Text += "; interface " + n.Name + " has no such address: it was taken away, or never given"
		f.Evidence = places(append(f.Evidence, "ip addr show dev "+n.Name)...)
	default:
		f.Text += fmt.Sprintf("; interface %s has %s, and the driver made no GID of it", n.Name, h.routableAddress(n))
		f.Evidence = places(append(f.Evidence, "ip addr show dev "+n.Name+" = "+h.routableAddress(n))...)
		f.Fix = "let the driver see the address again: ip addr del and add, or ip link set " + n.Name + " down and up; dmesg if the table is full"
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

func checkGIDIndex(h *host) outcome {
	var o outcome
	all, layers := h.roce()
	var by bins[int, *pathsel.Port]
	var untold []topo.ID
	looked := 0
	for _, p := range onlyData(all) {
		x := h.port[p.ID]
		if x == nil || x.GIDTable == nil && len(x.GIDs) == 0 || !gidTypes(x) || h.unreadGIDs(p) {
			untold = append(untold, p.ID)
			continue
		}
		if gids := pathsel.RoCEGIDs(x); len(gids) > 0 {
			by.add(gids[0].Index, p)
			looked++
		}
	}
	slices.Sort(by.order)
	if len(by.order) > 1 {
		f := Finding{Severity: Warning, Fix: "leave NCCL_IB_GID_INDEX unset (NCCL 2.21 and newer choose by themselves); UCX and NVSHMEM take it for each rank: topoctl export env --for ucx"}
		var parts []string
		by.each(func(i int, ports []*pathsel.Port) {
			parts = append(parts, fmt.Sprintf("%d on %s", i, some(names(ports))))
			f.Subjects = append(f.Subjects, ids(ports)...)
			f.Evidence = append(f.Evidence, h.portFile(ports[0], "gids/"+strconv.Itoa(i), pathsel.RoCEGIDs(h.port[ports[0].ID])[0].GID))
		})
		f.Text = "the GID index to use differs: " + strings.Join(parts, "; ") + ": one setting for all ports is wrong for some"
		o.find(f)
	}
	o.lackLayers(h, layers)
	if len(untold) > 0 {
		o.lack("the GIDs or their types are not told", h.lookAgain(), untold...)
	}
	if looked < 2 && len(untold)+len(layers) == 0 {
		return notApplicable("fewer than two RoCE data ports with such a GID")
	}
	if o.note = count(looked, "port"); len(by.order) == 1 {
		o.note += ", index " + strconv.Itoa(by.order[0])
	}
	return o
}

func checkTrafficClass(h *host) outcome {
	var o outcome
	ports, layers := h.roce()
	ports = slices.DeleteFunc(ports, func(p *pathsel.Port) bool { return p.Role == pathsel.RoleManagement || p.Software })
	var unset, nofile []*pathsel.Port
	var by bins[int, *pathsel.Port]
	for _, p := range ports {
		x := h.port[p.ID]
		_, file := x.Facts.Get("traffic_class")
		switch {
		case x.TrafficClass != nil && *x.TrafficClass > 0:
			by.add(*x.TrafficClass, p)
		case x.TrafficClass != nil || file:
			unset = append(unset, p)
		default:
			nofile = append(nofile, p)
		}
	}
	file := func(p *pathsel.Port, says string) string {
		return saying(fmt.Sprintf("/sys/class/infiniband/%s/tc/%d/traffic_class", p.Device, p.Number), says)
	}
	if len(unset) > 0 {
		p := unset[0]
		o.find(Finding{Severity: Warning, Subjects: ids(unset), Evidence: []string{file(p, "none set")},
			Text: "RoCE packets leave without a traffic class, unless each program sets one: a network that is lossless for one class only drops them under load",
			Fix: fmt.Sprintf("echo CLASS > /sys/class/infiniband/%s/tc/%d/traffic_class and cma_roce_tos -d %s, with the class of the network (often 106); or by program: NCCL_IB_TC, UCX_IB_TRAFFIC_CLASS",
				p.Device, p.Number, p.Device)})
	}
	if len(by.order) > 1 {
		f := Finding{Severity: Warning, Fix: "set one class on all RoCE ports of a fabric"}
		var parts []string
		by.each(func(class int, ports []*pathsel.Port) {
			parts = append(parts, fmt.Sprintf("%d on %s", class, some(names(ports))))
			f.Subjects, f.Evidence = append(f.Subjects, ids(ports)...), append(f.Evidence, file(ports[0], fmt.Sprint(class)))
		})
		f.Text = "RoCE ports have different traffic classes: " + strings.Join(parts, "; ")
		o.find(f)
	}
	o.lackLayers(h, layers)
	if len(nofile) > 0 {
		o.lack("no file tells the traffic class: without NVIDIA's driver package each program sets its own",
			"look at NCCL_IB_TC or UCX_IB_TRAFFIC_CLASS of the programs, and at the switches' settings", ids(nofile)...)
	}
	if len(ports)+len(layers) == 0 {
		return notApplicable("no RoCE port is up")
	}
	o.note = count(len(ports), "port")
	return o
}
