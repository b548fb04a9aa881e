package pathsel

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// preference are the ports of one side as a policy that knows no lanes sees
// them: the preferred ones first, then the available ones.
type preference struct {
	ports     int
	preferred int
}

func preferenceOf(a *Affinity) preference {
	return preference{len(a.Ranked), len(a.Preferred())}
}

// unknownRate stands for the rate of lanes where none of a set is known, in
// bytes per second: all are alike then, and the engine's estimates replace it.
const unknownRate = float64(topo.GBPerSec)

// index prepares what decisions for transfers need.
func (s *LaneSet) index(b *laneBuilder) {
	s.fromHere, s.fromThere = preferenceOf(b.here), preferenceOf(b.there)
	s.wireHere, s.wireThere = wires(b.p.local), wires(b.p.remote)
	placeHere, placeThere := places(b.here, len(b.p.local.ports)), places(b.there, len(b.p.remote.ports))
	s.findPlaces(func(l *Lane) (here, there int) { return placeHere[l.LocalIndex], placeThere[l.RemoteIndex] })
}

// findPlaces lists the lanes by the places of their ports in the preferences, and
// finishes what decisions for transfers need.
func (s *LaneSet) findPlaces(of func(l *Lane) (here, there int)) {
	s.at = make([]int32, s.fromHere.ports*s.fromThere.ports)
	for i := range s.at {
		s.at[i] = -1
	}
	slowest := math.Inf(1)
	for i := range s.Lanes {
		l := &s.Lanes[i]
		here, there := of(l)
		if at := &s.at[here*s.fromThere.ports+there]; *at < 0 {
			*at = int32(i)
		}
		slowest = min(slowest, l.rate)
	}
	s.prior = slowest
	if math.IsInf(slowest, 1) {
		s.prior = unknownRate
	}
	for i := range s.Lanes {
		l := &s.Lanes[i]
		if math.IsInf(l.rate, 1) {
			l.rate = s.prior
		}
		if math.IsInf(l.share, 1) {
			l.share = s.prior
		}
	}
	s.findStandIns()
}

// findStandIns lists for each chosen lane those that carry something worth it if
// that one is lost: of the first ones with the same local port, with the same
// remote port and with neither two each, because what was lost may be either.
func (s *LaneSet) findStandIns() {
	s.standIns = make([][]int32, s.Chosen)
	for j := range s.Chosen {
		st := LaneStates{Lanes: make([]LaneState, s.Chosen)}
		st.Lanes[j].Health = Sick
		v := view{s: s, st: &st}
		kinds := [3]int{}
		for i := s.Chosen; i < len(s.Lanes); i++ {
			kind := 0
			switch {
			case s.Lanes[i].LocalIndex == s.Lanes[j].LocalIndex:
				kind = 1
			case s.Lanes[i].RemoteIndex == s.Lanes[j].RemoteIndex:
				kind = 2
			}
			if kinds[kind] < 2 && v.rate(i) > s.Lanes[i].rate*worthALane {
				kinds[kind]++
				s.standIns[j] = append(s.standIns[j], int32(i))
			}
		}
	}
}

// wires are the rates of a host's ports, 0 where they are not known.
func wires(h *Host) []float64 {
	out := make([]float64, len(h.ports))
	for i := range h.ports {
		if r := h.ports[i].BytesPerSec; r != nil {
			out[i] = float64(*r)
		}
	}
	return out
}

// PortRates are what the wires of one side's ports carry in each direction, by
// Port.Index; 0 not known.
func (s *LaneSet) PortRates(side Side) []topo.Rate {
	wires := s.wireHere
	if side == SideRemote {
		wires = s.wireThere
	}
	out := make([]topo.Rate, len(wires))
	for i, w := range wires {
		out[i] = topo.Rate(w)
	}
	return out
}

// places are the places of ports in an affinity, by Port.Index.
func places(a *Affinity, ports int) []int {
	out := make([]int, ports)
	for i := range a.Ranked {
		out[a.Ranked[i].index] = i
	}
	return out
}

// The round trips that Deserves assumes where the caller knows none: through a
// few switches and two NICs, and through two kernels.
const (
	DefaultRTT    = 10 * time.Microsecond
	DefaultTCPRTT = 100 * time.Microsecond
)

// Deserves says how many of the chosen lanes a transfer of that many bytes is
// worth: so many that each is busy for two round trips at least, and one in any
// case. The chosen lanes are as many as add bandwidth, so it is never more. An
// rtt of 0 stands for DefaultRTT, over TCP DefaultTCPRTT.
func (s *LaneSet) Deserves(bytes int64, rtt time.Duration) int {
	if s.Chosen == 0 {
		return 0
	}
	switch {
	case rtt <= 0 && s.Transport == TCP:
		rtt = DefaultTCPRTT
	case rtt <= 0:
		rtt = DefaultRTT
	}
	ofOne := int64(min(2*s.Lanes[0].share*float64(rtt)/float64(time.Second), math.MaxInt64/2))
	return int(max(1, min(bytes/max(1, ofOne), int64(s.Chosen))))
}

// rejections lists what is no lane: each port that cannot be used, and the
// pairs, local ports that miss the same remote ports for the same reason
// together.
func (b *laneBuilder) rejections(refused []edge) []Rejection {
	out := []Rejection{}
	for _, c := range b.here.Rejected {
		out = append(out, Rejection{Local: []topo.ID{c.Port}, Reason: c.Reason, localNames: []string{c.Name}})
	}
	for _, c := range b.there.Rejected {
		if b.p.local != b.p.remote { // else they are listed already
			out = append(out, Rejection{Remote: []topo.ID{c.Port}, Reason: c.Reason, remoteNames: []string{c.Name}})
		}
	}
	rows := map[string]int{} // the row of a reason and its remote ports
	for len(refused) > 0 {
		n := 1
		for n < len(refused) && refused[n].i == refused[0].i {
			n++
		}
		for _, r := range b.ofOnePort(refused[:n]) {
			key := fmt.Sprint(r.Reason.Code, r.Remote)
			at, ok := rows[key]
			if !ok {
				rows[key] = len(out)
				out = append(out, r)
				continue
			}
			row := &out[at]
			row.Local, row.localNames = append(row.Local, r.Local...), append(row.localNames, r.localNames...)
			row.Pairs += r.Pairs
		}
		refused = refused[n:]
	}
	return out
}

// ofOnePort are the rejections of one local port, a row for each reason.
func (b *laneBuilder) ofOnePort(refused []edge) []Rejection {
	var out []Rejection
	c := &b.here.Ranked[refused[0].i]
	for k := range refused {
		e := &refused[k]
		d := &b.there.Ranked[e.j]
		code := e.cell.code
		if e.cell.reach != ReachNo {
			code = codeNoRate
		}
		at := 0
		for at < len(out) && out[at].Reason.Code != code {
			at++
		}
		if at == len(out) {
			out = append(out, Rejection{Local: []topo.ID{c.Port}, localNames: []string{c.Name}, Reason: b.refusal(e)})
		}
		r := &out[at]
		r.Remote, r.remoteNames = append(r.Remote, d.Port), append(r.remoteNames, d.Name)
		r.Pairs++
	}
	return out
}

// refusal is why an edge is no lane.
func (b *laneBuilder) refusal(e *edge) Reason {
	if e.cell.reach != ReachNo {
		return Reason{codeNoRate, fmt.Sprintf("%s carries nothing", b.where(e.limit)), ""}
	}
	x, y := b.p.here[b.p.hereAt[b.here.Ranked[e.i].index]], b.p.there[b.p.thereAt[b.there.Ranked[e.j].index]]
	return e.cell.reason(x, y)
}

// shownFailover is how many lanes for failover the text lists: the record has
// all of them.
const shownFailover = 8

// Text is the decision for people: a line for each lane that is chosen, for the
// next ones that would step in, and for what is rejected.
func (s *LaneSet) Text() string {
	together := "no lane"
	if s.Chosen > 0 {
		together = fmt.Sprintf("%s together on %s", rateOr(s.BytesPerSec, s.Basis, "rate unknown"), text.Plural(s.Chosen, "lane"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s -> %s over %s: %s\n", place(s.LocalHost, s.Source), place(s.RemoteHost, s.Destination), s.Transport, together)
	rows := [][]string{{"rank", "local", "remote", "tier", "class", "reach", "alone", "share", "verdict", "why"}}
	shown := min(len(s.Lanes), s.Chosen+shownFailover)
	for i := range s.Lanes[:shown] {
		rows = append(rows, s.Lanes[i].row(i+1))
	}
	if shown < len(s.Lanes) {
		rows = append(rows, []string{"...", fmt.Sprintf("%d more for failover", len(s.Lanes)-shown), ""})
	}
	for i := range s.Rejected {
		rows = append(rows, s.Rejected[i].row())
	}
	b.WriteString(table(rows))
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "  note: %s: %s\n", n.Code, n.Text)
	}
	return b.String()
}

// place is a location with its host.
func place(host string, l Location) string {
	return strings.TrimSpace(host + " " + string(l))
}

// rateOr is a rate, "at most" where it is an upper bound.
func rateOr(r *topo.Rate, basis topo.Basis, unknown string) string {
	switch {
	case r == nil:
		return unknown
	case basis == topo.BasisAssumed:
		return "at most " + units.Rate(int64(*r), units.Gbyte)
	}
	return units.Rate(int64(*r), units.Gbyte)
}

func (l *Lane) row(rank int) []string {
	share := ""
	if l.Verdict == Chosen {
		share = "?"
	}
	if l.Share != nil {
		share = units.Rate(int64(*l.Share), units.Gbyte)
	}
	why := fmt.Sprintf("%s: %s; %s", l.Reason.Code, l.Reason.Text, l.ReachReason.Code)
	if l.Verdict == Chosen {
		why += ": " + l.ReachReason.Text
		for _, n := range l.Notes {
			why += fmt.Sprintf("; %s: %s", n.Code, n.Text)
		}
	}
	return []string{fmt.Sprint(rank), l.LocalName, l.RemoteName, fmt.Sprint(l.Tier), classOr(l.LocalClass) + "/" + classOr(l.RemoteClass),
		string(l.Reach), rateOr(l.BytesPerSec, l.Basis, "?"), share, string(l.Verdict), why}
}

func classOr(c topo.Class) string {
	if !c.Known() {
		return "?"
	}
	return c.String()
}

// row is a rejection, its ports by name.
func (r *Rejection) row() []string {
	why := fmt.Sprintf("%s: %s", r.Reason.Code, r.Reason.Text)
	if r.Reason.Evidence != "" {
		why += " (" + r.Reason.Evidence + ")"
	}
	if r.Pairs > 1 {
		why = text.Plural(r.Pairs, "pair") + ", " + why
	}
	return []string{"-", several(r.localNames), several(r.remoteNames), "", "", "", "", "", string(Rejected), why}
}

// several names one port, or the first of several and how many more there are.
func several(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	case 2:
		return names[0] + ", " + names[1]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}
