package plan

import (
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// portPairs are the ports of this host with each other, through the wire.
func (h *host) portPairs(o *LocalOptions) error {
	ph, err := pathsel.New(h.t, pathsel.Options{Transport: o.Transport, Roles: o.Roles, Overlay: o.Overlay})
	if err != nil {
		return err
	}
	ends, err := h.portEnds(ph, orCPU(o.Memory), nil)
	if err != nil {
		return err
	}
	if err := checkCount(h.name, probe.Port, len(ends)*len(ends)); err != nil {
		return err
	}
	h.rejectPorts(ph)
	if len(ends) == 0 {
		h.b.reject(Rejection{Kind: probe.Port, From: h.name, Reason: pathsel.Reason{Code: CodeNone, Text: fmt.Sprintf("no port of this host can be used over %s", ph.Transport())}})
	}
	if ph.Transport() == pathsel.RDMA {
		err = h.rdmaPairs(ph, ends)
	} else {
		h.waivedTCP(ends)
	}
	if err == nil && o.Transport != pathsel.RDMA {
		h.stackPair()
	}
	return err
}

func orCPU(w Where) Where {
	if w == "" {
		return OnCPU
	}
	return w
}

// rejectPorts lists the ports that take no part. A port that is there for data and is down
// makes the run partial; one that is virtual may be down because nobody uses it.
func (h *host) rejectPorts(ph *pathsel.Host) {
	for _, p := range ph.Ports() {
		if p.Usable || len(p.Reasons) == 0 {
			continue
		}
		h.b.reject(Rejection{Kind: probe.Port, From: h.name + "/" + p.Name, Reason: p.Reasons[0]})
		broken := p.Reasons[0].Code == pathsel.CodePortDown && p.Role == pathsel.RoleData && !p.Software && !p.Virtual && !p.VF
		if broken && h.b.sel.names(&probe.End{Host: h.name, Name: p.Name}) {
			h.b.out.Notes = append(h.b.out.Notes, fmt.Sprintf("%s%s/%s is down and was not measured", probe.PartialNote, h.name, p.Name))
		}
	}
}

// rdmaPairs are the ports that reach each other. A port with itself stays in its card,
// so it says nothing of a wire.
func (h *host) rdmaPairs(ph *pathsel.Host, ends []portEnd) error {
	if len(ends) == 0 {
		return nil
	}
	m, err := connect(&hostPorts{host: h, ph: ph, ends: ends}, &hostPorts{host: h, ph: ph, ends: ends}, nil)
	if err != nil {
		return err
	}
	if len(ends) == 1 {
		h.b.reject(Rejection{Kind: probe.Port, From: h.name + "/" + ends[0].port.Name, Reason: pathsel.Reason{Code: CodeNone, Text: "the only port of this host: there is no other to reach"}})
	}
	for i := range ends {
		for j := range ends {
			if i != j && m.reach(i, j) {
				h.b.addPorts(&ends[i], &ends[j], probe.RDMA, way{known: true, gap: true}, "")
			}
		}
	}
	for _, r := range m.refused {
		h.b.rejectPairs(r, h.name, h.name, ends, ends, func(i, j int) bool { return i != j })
	}
	return nil
}

// waivedTCP names the pairs that TCP would have.
func (h *host) waivedTCP(ends []portEnd) {
	for i := range ends {
		for j := range ends {
			if i != j {
				ends[i].waived = "the kernel takes a short cut between two addresses of one host: nothing would cross the wire"
				h.b.addPorts(&ends[i], &ends[j], probe.TCP, way{known: true, gap: true}, "")
			}
		}
	}
}

// stackPair is TCP over loopback: what the host's own stack can do.
func (h *host) stackPair() {
	end := probe.End{Host: h.name, Node: topo.NetdevID("lo"), Name: "lo", Class: topo.Class{Kind: topo.ClassSelf}}
	for i := range h.t.NUMANodes {
		if n := &h.t.NUMANodes[i]; !n.MemoryOnly && n.CPUs != "" {
			end.Location = pathsel.LocationOf(n.ID)
			break
		}
	}
	p := probe.Pair{Kind: probe.Port, Transport: probe.TCP, Variant: h.b.ports, From: end, To: end,
		Expected: probe.Expected{Basis: topo.BasisUnknown, Why: "loopback: the processors copy, no link is crossed"}}
	if h.loopbackDown() {
		p.Waived = "lo is down"
		if h.b.sel.pair(&end, &end) {
			h.b.out.Notes = append(h.b.out.Notes, fmt.Sprintf("%s%s/lo is down and was not measured", probe.PartialNote, h.name))
		}
	}
	h.b.add(p, way{}, "")
}

// loopbackDown says whether the host has said that lo is switched off.
func (h *host) loopbackDown() bool {
	lo := h.index.NetdevNamed("lo")
	return lo != nil && (lo.State == "down" || lo.AdminUp != nil && !*lo.AdminUp)
}

// addPorts takes a pair of ports; between is the way through the fabric.
func (b *builder) addPorts(from, to *portEnd, transport string, between way, distance string) {
	waived := from.waived
	if waived == "" {
		waived = to.waived
	}
	p := probe.Pair{Kind: probe.Port, Transport: transport, Variant: b.ports, From: from.end, To: to.end, Waived: waived}
	b.add(p, from.out.then(between).then(to.in), distance)
}

// reachable is which ports of two hosts reach each other.
type reachable struct {
	here, there *hostPorts

	width   int
	cells   []bool
	refused []pathsel.Rejection
	notes   []pathsel.Reason
}

func (r *reachable) reach(i, j int) bool { return r.cells[i*r.width+j] }

// connect asks pathsel which ports reach each other.
func connect(a, b *hostPorts, fabric *pathsel.Fabric) (*reachable, error) {
	out := &reachable{here: a, there: b, width: len(b.ends), cells: make([]bool, len(a.ends)*len(b.ends))}
	if len(out.cells) == 0 {
		return out, nil
	}
	pair, err := pathsel.Connect(a.ph, b.ph, pathsel.PairOptions{Fabric: fabric, LocalName: a.name, RemoteName: b.name})
	if err != nil {
		return nil, err
	}
	src, dst := a.ph.Locations(), b.ph.Locations() // any will do: reach has nothing to do with memory
	set, err := pair.Lanes(src[len(src)-1], dst[len(dst)-1])
	if err != nil && !errors.Is(err, pathsel.ErrNoLane) {
		return nil, err
	}
	here, there := a.places(), b.places()
	for i := range set.Lanes {
		l := &set.Lanes[i]
		out.cells[here[l.LocalIndex]*out.width+there[l.RemoteIndex]] = true
	}
	for _, r := range set.Rejected {
		if r.Pairs > 0 {
			out.refused = append(out.refused, r)
		}
	}
	out.notes = set.Notes
	return out, nil
}

// rejectPairs notes the pairs of one reason, those that anybody asked for.
func (b *builder) rejectPairs(r pathsel.Rejection, from, to string, here, there []portEnd, wanted func(i, j int) bool) {
	out := Rejection{Kind: probe.Port, From: from, To: to, Reason: r.Reason}
	at := func(ends []portEnd, id topo.ID) int {
		for i := range ends {
			if ends[i].port.ID == id {
				return i
			}
		}
		return -1
	}
	for _, x := range r.Local {
		for _, y := range r.Remote {
			i, j := at(here, x), at(there, y)
			if i < 0 || j < 0 || !wanted(i, j) || !b.sel.pair(&here[i].end, &there[j].end) {
				continue
			}
			if out.Pairs++; out.Pairs == 1 {
				out.Example = here[i].end.Name + ">" + there[j].end.Name
			}
		}
	}
	if out.Pairs > 0 {
		b.reject(out)
	}
}
