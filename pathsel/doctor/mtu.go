package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// ethernetData are the data ports on Ethernet that are up: those that RDMA goes
// by, and on a host without such the interfaces.
func (h *host) ethernetData() (ports []*pathsel.Port, untold []topo.ID) {
	if all, layers := h.roce(); len(h.hardware())+len(all)+len(layers) > 0 {
		return onlyData(all), layers
	}
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
	return ports, nil
}

// mtu is the MTU of a port's interface.
func (h *host) mtu(p *pathsel.Port) *int {
	if n := h.netdev[p.Netdev]; n != nil {
		return n.MTU
	}
	return nil
}

func checkMTU(h *host) outcome {
	var o outcome
	ports, layers := h.ethernetData()
	var by bins[int, *pathsel.Port]
	var untold []topo.ID
	looked := 0
	for _, p := range ports {
		m := h.mtu(p)
		if m == nil {
			untold = append(untold, p.ID)
			continue
		}
		by.add(*m, p)
		looked++
	}
	slices.Sort(by.order)
	if len(by.order) > 1 {
		f := Finding{Severity: Warning, Fix: "ip link set DEV mtu N: one MTU on all of them, as the switches have it"}
		var parts []string
		by.each(func(m int, ports []*pathsel.Port) {
			parts = append(parts, fmt.Sprintf("%d on %s", m, some(names(ports))))
			f.Subjects = append(f.Subjects, ids(ports)...)
			f.Evidence = append(f.Evidence, netFile(ports[0].Netdev, "mtu", fmt.Sprint(m)))
		})
		f.Text = "data ports have different MTUs: " + strings.Join(parts, "; ") + ": transfers between such ports stall or use the smaller packets"
		o.find(f)
	}
	looked += h.legMTUs(&o)
	o.lackLayers(h, layers)
	if len(untold) > 0 {
		o.lack("the interface of the port is not visible, so its MTU", h.seeInterfaces(), untold...)
	}
	if looked < 2 && len(untold)+len(layers) == 0 {
		return notApplicable("fewer than two Ethernet data ports")
	}
	if o.note = count(looked, "interface"); len(by.order) == 1 {
		o.note += fmt.Sprintf(", MTU %d", by.order[0])
	}
	return o
}

// legMTUs compares bonds with their legs, and gives how many legs it looked at.
func (h *host) legMTUs(o *outcome) (looked int) {
	for i := range h.t.Netdevs {
		n := &h.t.Netdevs[i]
		if n.Bond == nil || n.MTU == nil {
			continue
		}
		for _, leg := range n.Lower {
			l := h.netdev[leg]
			if l == nil || l.MTU == nil {
				continue
			}
			looked++
			if *l.MTU != *n.MTU {
				o.find(Finding{Severity: Warning, Subjects: []topo.ID{l.ID, n.ID},
					Text:     fmt.Sprintf("a leg with MTU %d in a bond with %d: large packets are lost on that leg", *l.MTU, *n.MTU),
					Evidence: []string{netFile(leg, "mtu", fmt.Sprint(*l.MTU)), netFile(n.Name, "mtu", fmt.Sprint(*n.MTU))},
					Fix:      fmt.Sprintf("ip link set %s mtu %d", leg, *n.MTU)})
			}
		}
	}
	return looked
}

func checkSmallMTU(h *host) outcome {
	var o outcome
	ports, layers := h.roce()
	var by bins[int, *pathsel.Port]
	var untold []topo.ID
	for _, p := range ports {
		switch m := h.mtu(p); {
		case m == nil:
			untold = append(untold, p.ID)
		case *m < fullMTU:
			by.add(*m, p)
		}
	}
	by.each(func(m int, small []*pathsel.Port) {
		o.find(Finding{Severity: Info, Subjects: ids(small), Evidence: []string{netFile(small[0].Netdev, "mtu", fmt.Sprint(m))},
			Text: fmt.Sprintf("MTU %d: RDMA packets carry %d bytes instead of 4096, which costs throughput and packet rate", m, payload(m)),
			Fix:  "ip link set " + small[0].Netdev + " mtu 9000, and so on, if all switches on the way have it"})
	})
	o.lackLayers(h, layers)
	if len(untold) > 0 {
		o.lack("the interface of the port is not visible, so its MTU", h.seeInterfaces(), untold...)
	}
	if len(ports)+len(layers) == 0 {
		return notApplicable("no RoCE port is up")
	}
	o.note = count(len(ports), "port")
	return o
}

// fullMember is the bit of a partition key that full members have.
// Source: InfiniBand Architecture Specification, volume 1, 10.9.1.1.
const fullMember = 0x8000

func checkPKeys(h *host) outcome {
	var o outcome
	var untold []topo.ID
	var by bins[string, *pathsel.Port]
	looked := 0
	for _, p := range h.dataPorts() {
		if !h.active(p) || p.LinkLayer == "Ethernet" || h.rdma[p.NIC].Transport == "efa" {
			continue
		}
		x := h.port[p.ID]
		if x == nil || len(x.PKeys) == 0 {
			untold = append(untold, p.ID)
			continue
		}
		looked++
		keys := slices.Sorted(slices.Values(strs(x.PKeys)))
		by.add(strings.Join(keys, " "), p)
		if !slices.ContainsFunc(x.PKeys, func(k topo.HexID) bool { return k.Uint()&fullMember != 0 }) {
			o.find(Finding{Severity: Warning, Subjects: []topo.ID{p.ID}, Evidence: places(h.portFile(p, "pkeys/0", keys[0])),
				Text: "a limited member of every partition (" + some(keys) + "): it cannot talk to other limited members",
				Fix:  "ask who runs the subnet manager for full membership (partitions.conf, UFM)"})
		}
	}
	if len(by.order) > 1 {
		f := Finding{Severity: Warning, Fix: "ask who runs the subnet manager; a program that uses one partition key index gets different partitions"}
		var parts []string
		by.each(func(keys string, ports []*pathsel.Port) {
			parts = append(parts, keys+" on "+some(names(ports)))
			f.Subjects = append(f.Subjects, ids(ports)...)
			f.Evidence = append(f.Evidence, h.portFile(ports[0], "pkeys", ""))
		})
		f.Text = "data ports are in different partitions: " + strings.Join(parts, "; ")
		o.find(f)
	}
	if len(untold) > 0 {
		o.lack("the partition keys are not told", h.lookAgain(), untold...)
	}
	if looked+len(untold) == 0 {
		return notApplicable("no InfiniBand data port is up")
	}
	o.note = count(looked, "port")
	return o
}
