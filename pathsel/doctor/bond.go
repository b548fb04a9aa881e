package doctor

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

func checkLAG(h *host) outcome {
	var o outcome
	var untold []topo.ID
	looked := 0
	for _, p := range h.hardwarePorts() {
		switch {
		case len(p.Legs) > 0:
			looked++
			o.find(h.bond(p))
		case p.LinkLayer == "InfiniBand" || h.rdma[p.NIC].Transport == "efa":
			looked++
		case p.Netdev == "":
			untold = append(untold, p.ID)
		default:
			looked++
		}
	}
	if len(untold) > 0 {
		o.lack("the interface of the port is not visible, so whether it is a bond", h.seeInterfaces(), untold...)
	}
	if looked+len(untold) == 0 {
		return notApplicable("no RDMA hardware")
	}
	o.note = count(looked, "port")
	return o
}

// seeInterfaces says how to see the interfaces of RDMA devices.
func (h *host) seeInterfaces() string {
	if h.imported() {
		return h.lookAgain()
	}
	return "run topoctl in the network namespace of the interface (in a container: host network)"
}

// bond is the finding about a port that is a bond.
func (h *host) bond(p *pathsel.Port) Finding {
	n := h.netdev[p.Netdev]
	if n != nil && n.Bond == nil && h.netdev[n.Master] != nil {
		n = h.netdev[n.Master]
	}
	f := Finding{Severity: Info, Subjects: []topo.ID{p.ID}, Basis: topo.BasisRead}
	text := "a bond of " + count(len(p.Legs), "interface")
	if n != nil {
		f.Evidence = places(netFile(n.Name, "bonding/slaves", strings.Join(p.Legs, " ")))
		if b := n.Bond; b != nil && b.Mode != "" {
			text += " (" + strings.TrimSuffix(b.Mode+", "+b.HashPolicy, ", ") + ")"
		}
	}
	var down []string
	sum, most := topo.Rate(0), topo.Rate(0)
	for _, leg := range p.Legs {
		l := h.netdev[leg]
		switch {
		case l == nil:
		case l.State != "" && l.State != "up" && l.State != "unknown":
			down = append(down, leg)
			f.Evidence = append(f.Evidence, netFile(leg, "operstate", l.State))
		case l.BytesPerSec != nil:
			sum, most = sum+*l.BytesPerSec, max(most, *l.BytesPerSec)
		}
	}
	if most > 0 {
		text += fmt.Sprintf(": one connection uses one leg, %s of %s", h.wire(most), h.wire(sum))
	} else {
		text += ": one connection uses one leg"
	}
	f.Fix = fmt.Sprintf("%d or more queue pairs for each peer: NCCL_IB_QPS_PER_CONNECTION=%d", len(p.Legs), len(p.Legs))
	if len(down) > 0 {
		f.Severity = Warning
		text += fmt.Sprintf("; %s %s down", some(down), is(len(down)))
		f.Fix = "look at cable and switch port of " + some(down)
	}
	if n != nil && n.Bond != nil && n.Bond.Mode == "active-backup" {
		text += "; the mode is active-backup, so the other legs stay idle"
		f.Fix = "802.3ad (LACP), if the switch can, makes use of all legs"
	}
	f.Text = text
	return f
}
