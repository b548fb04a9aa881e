package doctor

import (
	"cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// A downCause is why a port is not ACTIVE, as far as the host can tell.
type downCause struct {
	text     string // for a sentence, "" where nothing tells
	fix      string
	evidence []string
}

// whyDown looks for the reason of a port's state: on Ethernet at its interface,
// which the port follows, on InfiniBand at the physical state.
func (h *host) whyDown(p *pathsel.Port, state, phys string) downCause {
	if p.LinkLayer == "Ethernet" || p.Software {
		if c, ok := h.interfaceDown(p); ok {
			return c
		}
		return downCause{"", "look at cable, transceiver and switch port: " + h.linkTool(p), nil}
	}
	switch {
	case phys == "LinkUp" && state == "ARMED":
		return downCause{"the subnet manager has begun and not finished with it",
			"look at opensm or UFM of the fabric: it stopped half-way, another sweep should make the port ACTIVE", nil}
	case phys == "LinkUp" && state != "DOWN":
		return downCause{"the link is up and no subnet manager has looked at it",
			"the link is up and waits for a subnet manager: look at opensm or UFM of the fabric", nil}
	case phys == "Disabled":
		return downCause{"it is switched off", "the port is switched off, on this host or by the switch: mlxlink -d " + p.Device + ", ibportstate", nil}
	case phys == "Polling":
		return downCause{"nobody answers at the other end", "look at cable, transceiver and switch port: mlxlink -d " + p.Device, nil}
	case phys == "PortConfigurationTraining":
		return downCause{"both ends cannot agree on speed and width", "look at cable and transceiver, and at the speeds that the switch port allows: mlxlink -d " + p.Device, nil}
	case phys == "LinkErrorRecovery":
		return downCause{"the link is unstable", "the link is unstable: look at cable and transceiver (mlxlink -d " + p.Device + " -c)", nil}
	}
	return downCause{"", "look at cable, transceiver and switch port: mlxlink -d " + p.Device, nil}
}

// linkTool is the command that shows a port's cable and link.
func (h *host) linkTool(p *pathsel.Port) string {
	if p.Device == "" || p.Software {
		return "ethtool " + cmp.Or(p.Netdev, "DEV")
	}
	return "mlxlink -d " + p.Device
}

// interfaceDown reads the reason from the port's own interface; false where
// that is not visible or tells nothing.
func (h *host) interfaceDown(p *pathsel.Port) (downCause, bool) {
	n := h.ownNetdev(p)
	if n == nil {
		return downCause{}, false
	}
	off, on := n.AdminUp != nil && !*n.AdminUp, n.AdminUp != nil && *n.AdminUp
	switch {
	case off:
		return downCause{"its interface is switched off", "ip link set " + n.Name + " up; if it does not stay up, see what manages it (NetworkManager, netplan, ifupdown)",
			[]string{netFile(n.Name, "flags", "without IFF_UP")}}, true
	case n.State == "lowerlayerdown":
		return downCause{"what is below its interface is down", "look at the interface below: ip -d link show " + n.Name,
			[]string{netFile(n.Name, "operstate", n.State)}}, true
	case n.Carrier != nil && !*n.Carrier:
		return downCause{"its interface has no carrier", "the interface is switched on and the wire is dead: look at cable, transceiver and switch port (ethtool -m " + n.Name + ", " + h.linkTool(p) + ")",
			[]string{netFile(n.Name, "carrier", "0")}}, true
	case n.State == "dormant":
		return downCause{"its interface waits for permission", "the link is up and the network has not let it in: look at 802.1X (wpa_supplicant) or LACP",
			[]string{netFile(n.Name, "operstate", n.State)}}, true
	case on && n.Carrier != nil:
		return downCause{"though its interface is up and has carrier", "the driver did not follow its interface: dmesg, rdma link show; then ip link set " + n.Name + " down and up",
			[]string{netFile(n.Name, "carrier", "1")}}, true
	case n.State == "down":
		return downCause{"its interface is down", "ip link set " + n.Name + " up; if that is done, look at cable, transceiver and switch port (" + h.linkTool(p) + ")",
			[]string{netFile(n.Name, "operstate", n.State)}}, true
	}
	return downCause{}, false
}

// ownNetdev is the interface whose state a RoCE port follows: its own, or what
// IP uses (the bond of the legs).
func (h *host) ownNetdev(p *pathsel.Port) *topo.Netdev {
	var names []string
	if x := h.port[p.ID]; x != nil {
		names = x.Netdevs
	}
	if r := h.rdma[p.NIC]; r != nil && len(r.Netdevs) == 1 {
		names = append(names[:len(names):len(names)], r.Netdevs...)
	}
	for _, name := range append(names[:len(names):len(names)], p.Netdev) {
		if n := h.netdev[name]; n != nil && n.LinkKind != "vlan" && n.LinkKind != "macvlan" {
			return n
		}
	}
	return nil
}
