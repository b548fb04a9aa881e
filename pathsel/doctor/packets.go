package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/replies"
	"github.com/topoctl/topoctl/pathsel"
)

var activeMTUCheck = Check{
	Code: "mtu-active", Family: "RoCE and InfiniBand settings", Severity: Warning,
	Title: "RoCE ports send RDMA packets as large as the MTU of their interface allows",
	Judged: "The active MTU of each RoCE port that is up, as libibverbs tells it, against the largest of 256, 512, 1024, 2048 and 4096 bytes that fits the MTU of its interface with 96 bytes of headers, " +
		"and that the device can do.",
	Facts: "ibv_query_port active_mtu and max_mtu, on the running host only; mtu in /sys/class/net",
	Fix:   "ip link set DEV down and up, so that the driver takes the interface's MTU over; restart the programs, for connections keep the packet size that they began with.",
	run:   checkActiveMTU,
}

var peerMTUCheck = Check{
	Code: "mtu-peer", Family: "RoCE and InfiniBand settings", Severity: Warning,
	Title: "both ends of every lane to the peer have one MTU",
	Judged: "The MTU of the interfaces at both ends of each Ethernet lane between this host and the one of --peer, whichever ports reach each other. " +
		"Without --peer it does not apply.",
	Facts: "mtu in /sys/class/net of both hosts; addresses and routes by netlink",
	Fix:   "ip link set DEV mtu N: one MTU at both ends and on the switches between.",
	run:   checkPeerMTU,
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

func checkActiveMTU(h *host) outcome {
	var o outcome
	ports, layers := h.roce()
	var untold, hidden []topo.ID
	looked := 0
	for _, p := range ports {
		v, m := h.verbsPort(p), h.mtu(p)
		switch {
		case v == nil || v.ActiveMTUBytes == 0:
			untold = append(untold, p.ID)
			continue
		case m == nil:
			hidden = append(hidden, p.ID)
			continue
		}
		looked++
		most := payload(*m)
		if v.MaxMTUBytes > 0 {
			most = min(most, v.MaxMTUBytes)
		}
		f := Finding{Severity: Warning, Subjects: []topo.ID{p.ID},
			Evidence: []string{saying("ibv_query_port active_mtu", fmt.Sprint(v.ActiveMTUBytes)), netFile(p.Netdev, "mtu", fmt.Sprint(*m))}}
		switch {
		case v.ActiveMTUBytes < most:
			f.Text = fmt.Sprintf("RDMA packets carry %d bytes, though the MTU of %s, %d, holds %d: the port did not follow its interface", v.ActiveMTUBytes, p.Netdev, *m, most)
			f.Fix = "ip link set " + p.Netdev + " down and up, so that the driver looks again"
			o.find(f)
		case v.ActiveMTUBytes+leastHeaders > *m:
			f.Text = fmt.Sprintf("RDMA packets carry %d bytes, which the MTU of %s, %d, does not hold: full packets are lost and transfers end with retry errors", v.ActiveMTUBytes, p.Netdev, *m)
			f.Fix = fmt.Sprintf("ip link set %s mtu %d, or more, or down and up, so that the driver looks again", p.Netdev, v.ActiveMTUBytes+roceHeaders)
			o.find(f)
		}
	}
	o.lackLayers(h, layers)
	if len(untold) > 0 {
		why, how := "the packet size of the port is told by libibverbs, on the running host only", h.onHost()
		switch {
		case h.verbs == nil:
		case h.verbs.Unavailable == "":
			why, how = "libibverbs did not tell the packet size of the port", "see registration-refused, uverbs-inaccessible"
		default:
			why, how = "the packet size of the port was not asked for: "+h.verbs.Unavailable, h.withVerbs()
		}
		o.lack(why, how, untold...)
	}
	if len(hidden) > 0 {
		o.lack("the interface of the port is not visible, so its MTU", h.seeInterfaces(), hidden...)
	}
	if len(ports)+len(layers) == 0 {
		return notApplicable("no RoCE port is up")
	}
	o.note = count(looked, "port")
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

func checkPeerMTU(h *host) outcome {
	var o outcome
	if h.peer == nil {
		return notApplicable("no peer is given: --peer FILE names one")
	}
	lanes, there, err := h.lanesToPeer()
	name := cmp.Or(h.peer.Host.Name, "the peer")
	if err != nil || len(lanes) == 0 {
		why := "no port of this host is known to reach a port of " + name
		if err != nil {
			why += ": " + strings.TrimPrefix(err.Error(), "pathsel: ")
		}
		o.lack(why, "\"topoctl path cpu:0 --peer FILE\" says which ports do not reach each other, and why")
		return o
	}
	other := map[string]*topo.Netdev{}
	for i := range h.peer.Netdevs {
		other[h.peer.Netdevs[i].Name] = &h.peer.Netdevs[i]
	}
	var by bins[mtuPair, [2]*pathsel.Port]
	var untold []topo.ID
	looked := 0
	for i := range lanes {
		a, okA := h.paths.Port(lanes[i].Local)
		b, okB := there.Port(lanes[i].Remote)
		if !okA || !okB || a.LinkLayer == "InfiniBand" || b.LinkLayer == "InfiniBand" {
			continue
		}
		m, n := h.mtu(&a), other[b.Netdev]
		if m == nil || n == nil || n.MTU == nil {
			if !slices.Contains(untold, a.ID) {
				untold = append(untold, a.ID)
			}
			continue
		}
		looked++
		if *m != *n.MTU {
			by.add(mtuPair{*m, *n.MTU}, [2]*pathsel.Port{&a, &b})
		}
	}
	by.each(func(m mtuPair, ends [][2]*pathsel.Port) { o.find(differentMTU(m, ends, name)) })
	if len(untold) > 0 {
		o.lack("the interface at one end of its lanes is not visible, so its MTU", h.seeInterfaces(), untold...)
	}
	if looked+len(untold) == 0 {
		return notApplicable("no Ethernet lane to " + name)
	}
	o.note = count(looked, "lane") + " to " + name
	return o
}

// differentMTU is the finding about lanes whose ends have different MTUs.
func differentMTU(m mtuPair, ends [][2]*pathsel.Port, name string) Finding {
	f := Finding{Severity: Warning, Fix: fmt.Sprintf("ip link set DEV mtu %d on the side with less, if the switches between carry it, or %d on the other", max(m.here, m.there), min(m.here, m.there))}
	var here, there []string
	rdma := false
	for _, e := range ends {
		if !slices.Contains(f.Subjects, e[0].ID) {
			f.Subjects = append(f.Subjects, e[0].ID)
			here = append(here, e[0].Name)
		}
		if !slices.Contains(there, e[1].Name) {
			there = append(there, e[1].Name)
		}
		rdma = rdma || e[0].RDMA()
	}
	f.Text = fmt.Sprintf("MTU %d here (%s) and %d at %s (%s): ", m.here, some(here), m.there, name, some(there))
	if small := payload(min(m.here, m.there)); rdma && small < payload(max(m.here, m.there)) {
		f.Text += fmt.Sprintf("RDMA must use packets of %d bytes; a program whose ends do not agree on that loses full packets and ends with retry errors", small)
	} else {
		f.Text += "packets of the larger size are lost on the way to the other end"
	}
	f.Evidence = []string{netFile(ends[0][0].Netdev, "mtu", fmt.Sprint(m.here)), name + ": " + netFile(ends[0][1].Netdev, "mtu", fmt.Sprint(m.there))}
	return f
}
