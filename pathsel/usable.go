package pathsel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// judgePorts settles the transport and says for each port whether it can be
// used. What a port is weighed against (hardware beside software, a physical
// function beside its virtual ones) counts only if that is usable itself.
func (h *Host) judgePorts() {
	if h.transport == Auto {
		h.transport = h.better()
	}
	for i := range h.ports {
		p := &h.ports[i]
		if h.transport == RDMA {
			p.Reasons = rdmaFaults(p)
		} else {
			p.Reasons = h.tcpFaults(p)
		}
		p.Usable = len(p.Reasons) == 0
		if p.Usable {
			h.doubts(p)
		}
	}
	h.oneLegOfEachBond()
	h.rejectBeside(func(p *Port) bool { return p.Software }, func(p *Port) bool { return p.RDMA() && !p.Software },
		codeSoftware, "software RDMA, and there is RDMA hardware")
	h.rejectBeside(func(p *Port) bool { return p.Software && p.iWARP() }, func(p *Port) bool { return p.RDMA() && !p.iWARP() },
		codeSoftware, "software iWARP, and there is RoCE")
	h.rejectBeside(func(p *Port) bool { return p.Virtual && p.RoleReason.Code != CodeOverride }, func(p *Port) bool { return !p.Virtual },
		codeVirtual, "a virtual interface, and there are physical ones")
	for i := range h.ports {
		p := &h.ports[i]
		if pf, ok := h.portIndex[p.PF]; ok && p.Usable && h.ports[pf].Usable {
			p.reject(Reason{codeVF, fmt.Sprintf("a virtual function of %s, which is usable itself and carries all that both can", h.ports[pf].Name), p.evidence})
		}
	}
	for _, role := range []Role{RoleData, RoleUnknown, RoleStorage, RoleManagement} {
		if h.rejectWorse(role) {
			break
		}
	}
}

// oneLegOfEachBond lets the first usable leg stand for a bond over TCP: the legs
// have one address together, and the kernel chooses among them.
func (h *Host) oneLegOfEachBond() {
	first := map[string]string{}
	for i := range h.ports {
		p := &h.ports[i]
		if h.transport != TCP || !p.Usable || len(p.Legs) == 0 {
			continue
		}
		if name, ok := first[p.Netdev]; ok {
			p.reject(Reason{codeBondLeg, fmt.Sprintf("a leg of %s, which %s stands for: the kernel chooses the leg", p.Netdev, name), p.evidence})
			continue
		}
		first[p.Netdev] = p.Name
	}
}

// better is the better transport of this host: RDMA where hardware can be used.
// Software RDMA comes before TCP unless a faster interface has none.
func (h *Host) better() Transport {
	software, tcp := topo.Rate(-1), topo.Rate(-1)
	for i := range h.ports {
		p := &h.ports[i]
		rate := topo.Rate(0)
		if p.BytesPerSec != nil {
			rate = *p.BytesPerSec
		}
		if p.RDMA() && p.Role != RoleDecoy && len(rdmaFaults(p)) == 0 {
			if !p.Software {
				return RDMA
			}
			software = max(software, rate)
		}
		if len(h.tcpFaults(p)) == 0 {
			tcp = max(tcp, rate)
		}
	}
	if software >= 0 && software >= tcp {
		return RDMA
	}
	return TCP
}

// rejectWorse rejects the usable ports of a worse role than the given one, if
// that has any. Decoys are rejected in any case.
func (h *Host) rejectWorse(role Role) (found bool) {
	var example string
	for i := range h.ports {
		if p := &h.ports[i]; p.Usable && p.Role == role {
			found, example = true, p.Name
			break
		}
	}
	for i := range h.ports {
		p := &h.ports[i]
		switch {
		case p.Usable && p.Role == RoleDecoy:
			p.reject(Reason{CodeNotForData, fmt.Sprintf("decoy: %s", p.RoleReason.Text), p.RoleReason.Evidence})
		case found && p.Usable && roleOrder[p.Role] > roleOrder[role]:
			p.reject(Reason{CodeNotForData, fmt.Sprintf("%s: %s (%s is %s)", p.Role, p.RoleReason.Text, example, forWhat(role)), p.RoleReason.Evidence})
		}
	}
	return found
}

// forWhat says how a port of the best role that a host has fits data.
func forWhat(role Role) string {
	if role == RoleData {
		return "there for data"
	}
	return "better for data"
}

func (p *Port) iWARP() bool { return p.rdma != nil && p.rdma.Transport == "iwarp" }

// reject puts the reason before doubts, which only a usable port has.
func (p *Port) reject(r Reason) {
	p.Usable = false
	p.Reasons = slices.Insert(p.Reasons, 0, r)
}

// rejectBeside rejects the usable ports of one sort if one of the other is usable.
func (h *Host) rejectBeside(lesser, better func(*Port) bool, code Code, text string) {
	found := ""
	for i := range h.ports {
		if p := &h.ports[i]; p.Usable && better(p) && p.Role != RoleDecoy {
			found = p.Name
			break
		}
	}
	for i := range h.ports {
		if p := &h.ports[i]; found != "" && p.Usable && lesser(p) {
			p.reject(Reason{code, text + " (" + found + ")", p.evidence})
		}
	}
}

var takenDown = Reason{codeTakenDown, "taken to be down", ""}

// rdmaFaults are the reasons why RDMA cannot use a port.
func rdmaFaults(p *Port) []Reason {
	if !p.RDMA() {
		return []Reason{{codeNoRDMA, "an interface without RDMA device", p.evidence}}
	}
	if p.down {
		return []Reason{takenDown}
	}
	var out []Reason
	if p.port != nil && p.port.State != "" && p.port.State != "ACTIVE" {
		out = append(out, Reason{CodePortDown, fmt.Sprintf("port state %s", stateText(p.port)), p.at("state")})
	}
	switch p.rdma.Uverbs {
	case "denied", "none", "ro":
		out = append(out, Reason{codeNoAccess, accessText(p.rdma), p.rdma.Evidence})
	}
	if p.port == nil || len(out) > 0 {
		return out
	}
	if p.usesGIDs() && p.port.GIDTable != nil && len(p.port.GIDs) == 0 {
		out = append(out, Reason{codeNoGID, "its GID table is empty", p.at("gids")})
	}
	if p.LinkLayer == "InfiniBand" && p.port.LID != nil && (*p.port.LID <= 0 || *p.port.LID > 0xbfff) {
		out = append(out, Reason{codeNoLID, fmt.Sprintf("LID %d: no subnet manager has assigned it an address", *p.port.LID), p.at("lid")})
	}
	return out
}

func stateText(p *topo.Port) string {
	if p.PhysState == "" {
		return p.State
	}
	return p.State + ", physical state " + p.PhysState
}

func accessText(r *topo.RDMADevice) string {
	switch r.Uverbs {
	case "ro":
		return "its /dev/infiniband/uverbs file can be read but not written"
	case "none":
		return "it has no /dev/infiniband/uverbs file here"
	}
	return "this process may not open its /dev/infiniband/uverbs file"
}

// tcpFaults are the reasons why TCP cannot use a port. Something that the input does not tell is
// no such reason: see doubts.
func (h *Host) tcpFaults(p *Port) []Reason {
	n := p.netdev
	switch {
	case p.down:
		return []Reason{takenDown}
	case n == nil && h.interfacesKnown():
		return []Reason{{codeNoNetdev, "it has no network interface", p.evidence}}
	case n != nil && !interfaceUp(n):
		return []Reason{{CodePortDown, fmt.Sprintf("interface %s is %s", n.Name, n.State), n.Evidence + "/operstate"}}
	case p.BytesPerSec == nil || *p.BytesPerSec != 0:
	case n == nil:
		return []Reason{{CodePortDown, "its link is down", p.evidence}}
	default:
		return []Reason{{CodePortDown, fmt.Sprintf("its own link is down, though %s is up", n.Name), p.evidence}}
	}
	if n == nil || !h.AddressesKnown() || slices.ContainsFunc(p.Addresses, func(a netip.Prefix) bool { return routable(a.Addr()) }) {
		return nil
	}
	return []Reason{{codeNoAddress, fmt.Sprintf("interface %s has no IP address that peers can reach", n.Name), n.Evidence}}
}

// imported says whether the topology is another tool's file, which lacks much that a host has.
func (h *Host) imported() bool { return strings.HasPrefix(h.t.Origin, "import:") }

// interfacesKnown says whether an RDMA device that is listed without a network interface really has none: other tools' files
// do not say which interface belongs to which device, and every host has at least its loopback.
func (h *Host) interfacesKnown() bool { return !h.imported() && len(h.t.Netdevs) > 0 }

// AddressesKnown says whether an interface that is listed without IP addresses really has none. They come from netlink, so
// without its answer nothing is known of them.
func (h *Host) AddressesKnown() bool {
	return slices.ContainsFunc(h.t.Netdevs, func(n topo.Netdev) bool { return len(n.Addresses) > 0 }) ||
		slices.ContainsFunc(h.t.Sources, func(r topo.SourceReport) bool {
			return r.Source == topo.SourceNetlink && r.Status == topo.StatusOK
		})
}

// routable says whether peers on other links can reach an address.
func routable(a netip.Addr) bool {
	return a.IsValid() && !a.IsLinkLocalUnicast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast()
}

// doubts notes what is uncertain about a usable port.
func (h *Host) doubts(p *Port) {
	doubt := func(code Code, text, evidence string) {
		p.doubt++
		p.Reasons = append(p.Reasons, Reason{code, text, evidence})
	}
	switch {
	case h.transport == TCP && p.netdev == nil:
		doubt(CodeStateUnknown, "the input does not tell its network interface", p.evidence)
	case h.transport == TCP:
		if p.netdev.State == "" && p.netdev.Carrier == nil {
			doubt(CodeStateUnknown, "the input does not tell its state", p.netdev.Evidence)
		}
		if len(p.Addresses) == 0 {
			doubt(codeAddressUnknown, "the input does not tell its IP addresses", p.netdev.Evidence)
		}
	case p.port == nil && len(h.t.Ports) > 0:
		doubt(CodeStateUnknown, "none of its ports could be read, unlike those of other devices", p.evidence)
	case p.port == nil:
	default:
		if p.port.State == "" {
			doubt(CodeStateUnknown, "the input does not tell its state", p.evidence)
		}
		switch {
		case !addressed(p.port) && p.usesGIDs() && slices.ContainsFunc(h.t.Ports, func(x topo.Port) bool { return addressed(&x) }):
			doubt(codeAddressUnknown, "the input has neither LID nor GID of it, which it has of other ports", p.evidence)
		case p.LinkLayer == "Ethernet" && len(p.port.GIDs) > 0 && !slices.ContainsFunc(p.port.GIDs, mayLeaveLink):
			doubt(CodeLinkLocal, "only link-local GIDs or none of RoCE v2: peers on other networks cannot be reached", p.at("gids"))
		}
	}
}

// addressed says whether the input tells an address of an RDMA port that peers connect to.
func addressed(p *topo.Port) bool { return len(p.GIDs) > 0 || p.LID != nil && *p.LID > 0 }

// usesGIDs says whether peers connect to a port of an RDMA device by GID, or by a LID in its place.
func (p *Port) usesGIDs() bool { return p.rdma.Transport != "efa" && p.rdma.Transport != "iwarp" }

// mayLeaveLink says whether a GID may reach peers on other links; one whose type is not told may.
func mayLeaveLink(g topo.GID) bool {
	addr, err := netip.ParseAddr(g.GID)
	return err == nil && routable(addr.Unmap()) && (g.Type == "" || isRoCEv2(g))
}

func isRoCEv2(g topo.GID) bool { return strings.Contains(g.Type, "v2") }

// RoCEGIDs are the entries of a RoCE port's GID table that reach peers on other
// links: RoCE v2 with a routable address, IPv4 first, then in the table's order.
// The index of the first is what others call NCCL_IB_GID_INDEX.
func RoCEGIDs(p *topo.Port) []topo.GID {
	var v4, v6 []topo.GID
	for _, g := range p.GIDs {
		addr, err := netip.ParseAddr(g.GID)
		if err != nil || !isRoCEv2(g) || !mayLeaveLink(g) {
			continue
		}
		if addr.Is4In6() {
			v4 = append(v4, g)
		} else {
			v6 = append(v6, g)
		}
	}
	return append(v4, v6...)
}
