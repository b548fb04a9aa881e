package show

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// mostPicks bounds the slices that a policy is asked for.
const mostPicks = 1 << 14

// Divide shares one transfer among the lanes by a policy, all of them idle.
func Divide(s *pathsel.LaneSet, size int64, policy pick.Policy) *Transfer {
	out := &Transfer{Bytes: size, Policy: policy, DeservedLanes: s.Deserves(size, 0), Shares: []Share{}}
	predicted := s.Predict(size)
	out.AdaptiveFinishNS, out.adaptiveBasis = lastByte(s, predicted)
	shares := predicted
	if policy != pick.Adaptive && len(s.Lanes) > 0 {
		shares = out.pick(s)
	}
	for _, x := range shares {
		l := &s.Lanes[x.Lane]
		out.Shares = append(out.Shares, Share{x.Lane, l.LocalName, l.RemoteName, x.Bytes})
	}
	out.FinishNS, out.basis = lastByte(s, shares)
	if policy != pick.Adaptive {
		out.basis = out.basis.Bounded()
	}
	return out
}

// lastByte is when the last of some shares is through, nil where rates are
// unknown, and how the rate that decides is known.
func lastByte(s *pathsel.LaneSet, shares []pathsel.LaneShare) (ns *int64, basis topo.Basis) {
	end, basis := s.Finish(shares)
	if basis == topo.BasisUnknown {
		return nil, basis
	}
	return &end, basis
}

// pick gives a transfer to lanes slice by slice: slices of 64 KiB, as Mooncake
// cuts them, larger ones for large transfers.
func (x *Transfer) pick(s *pathsel.LaneSet) []pathsel.LaneShare {
	slice := max(64<<10, (x.Bytes+mostPicks-1)/mostPicks)
	x.Picks = (x.Bytes + slice - 1) / slice
	given, misses := s.PickSet().Compare(x.Policy, 1, x.Bytes, slice)
	x.UnreachablePicks = misses
	var shares []pathsel.LaneShare
	for i, n := range given {
		if n > 0 {
			shares = append(shares, pathsel.LaneShare{Lane: i, Bytes: n})
		}
	}
	return shares
}

// lanesText lists the lanes, how a transfer is shared, and what is no lane.
func (d *Document) lanesText(l *report.Look) string {
	s := d.Lanes
	rows := []report.Row{{Cells: []string{"rank", "local", "remote", "class", "reach", "alone", "share", "verdict", "why"}, Color: report.Faint}}
	for i := range s.Lanes {
		x := &s.Lanes[i]
		r := report.Row{Cells: []string{strconv.Itoa(i + 1), x.LocalName, x.RemoteName, classOr(x.LocalClass) + "/" + classOr(x.RemoteClass), string(x.Reach),
			l.Rate(x.BytesPerSec, x.Basis), "-", string(x.Verdict), x.Reason.Text}}
		if x.Verdict == pathsel.Chosen {
			r.Cells[6], r.Color = l.Rate(x.Share, ""), report.Good
		}
		if l.Verbose {
			for _, n := range append([]pathsel.Reason{x.Reason, x.ReachReason}, x.Notes...) {
				r.Below = append(r.Below, fmt.Sprintf("%s: %s", n.Code, n.Text))
			}
		}
		rows = append(rows, r)
	}
	if d.More > 0 {
		rows = append(rows, report.Row{Cells: []string{"", strconv.Itoa(d.More) + " more" + " for failover (--k 0 lists all)"}})
	}
	out := ""
	if len(s.Lanes) > 0 {
		out = "\n" + l.Listing(rows)
	}
	out += d.reachText(l) + "\n" + l.Listing(d.refusals(l)) + d.Transfer.text(l, s)
	for _, n := range s.Notes {
		if isBlind(n) {
			continue // the headline has it
		}
		out += "\n" + l.Wrap("", "note: "+n.Text, "")
	}
	return out
}

// reachText says why the chosen lanes reach the peer, where that is assumed.
func (d *Document) reachText(l *report.Look) string {
	var reasons []string
	for i := range d.Lanes.Lanes[:d.Lanes.Chosen] {
		if x := &d.Lanes.Lanes[i]; x.Reach == pathsel.ReachAssumed && !slices.Contains(reasons, x.ReachReason.Text) {
			reasons = append(reasons, x.ReachReason.Text)
		}
	}
	if len(reasons) == 0 || l.Verbose {
		return ""
	}
	return l.Wrap("  ", "reach is assumed: "+text.List(reasons, 2), "")
}

// refusals lists what is no lane: ports of either host with one reason
// together, and pairs of ports.
func (d *Document) refusals(l *report.Look) []report.Row {
	type group struct {
		where         string
		local, remote []string
		pairs         int
		reason        pathsel.Reason
		others        bool // with texts of their own
	}
	var list []*group
	here, there := d.Lanes.LocalHost, d.Lanes.RemoteHost
	if here == there {
		here, there = "local", "remote"
	}
	for i := range d.Lanes.Rejected {
		r := &d.Lanes.Rejected[i]
		g := &group{here, d.portNames(r.Local, true), d.portNames(r.Remote, false), r.Pairs, r.Reason, false}
		if len(r.Local) == 0 {
			g.where = there
		}
		at := slices.IndexFunc(list, func(o *group) bool {
			same := o.where == g.where && (o.pairs > 0) == (g.pairs > 0) && o.reason.Code == g.reason.Code
			return same && (g.pairs > 0 || o.reason.Text == g.reason.Text)
		})
		if at < 0 {
			list = append(list, g)
			continue
		}
		o := list[at]
		o.local, o.remote, o.pairs = unionOf(o.local, g.local), unionOf(o.remote, g.remote), o.pairs+g.pairs
		o.others = o.others || o.reason.Text != g.reason.Text
	}
	rows := make([]report.Row, len(list))
	for i, g := range list {
		names := text.List(append(g.local, g.remote...), 4)
		if g.pairs > 0 {
			g.where, names = text.Plural(g.pairs, "pair"), text.List(g.local, 2)+" -> "+text.List(g.remote, 2)
		}
		text := g.reason.Text
		if g.others {
			text += " (the first of several)"
		}
		rows[i].Cells = []string{string(pathsel.Rejected), g.where, names, text}
		if l.Verbose && g.reason.Evidence != "" {
			rows[i].Below = []string{string(g.reason.Code) + ", " + g.reason.Evidence}
		}
	}
	return rows
}

// unionOf appends the words that a list does not hold yet.
func unionOf(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// portNames names ports of this host, or of the peer, whose IDs say their names.
func (d *Document) portNames(ids []topo.ID, local bool) []string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = strings.TrimSuffix(id.Name(), "/1")
		if p, ok := d.h.Port(id); ok && local {
			names[i] = p.Name
		}
	}
	return names
}

// text says how a transfer is shared and how long it takes.
func (x *Transfer) text(l *report.Look, s *pathsel.LaneSet) string {
	if len(x.Shares) == 0 {
		return ""
	}
	parts := make([]string, len(x.Shares))
	for i, sh := range x.Shares {
		parts[i] = fmt.Sprintf("%s -> %s %.0f %%", sh.Local, sh.Remote, 100*float64(sh.Bytes)/float64(x.Bytes))
	}
	out := fmt.Sprintf("%s by %s: %s", units.Bytes(x.Bytes), x.Policy, text.List(parts, 4))
	out += doneText(x.FinishNS, x.basis)
	if x.Policy != pick.Adaptive && x.AdaptiveFinishNS != nil {
		out += "; adaptive" + doneText(x.AdaptiveFinishNS, x.adaptiveBasis)
	}
	if x.Policy == pick.Adaptive && s.Chosen > x.DeservedLanes {
		out += fmt.Sprintf("; worth %s of %d", text.Plural(x.DeservedLanes, "lane"), s.Chosen)
	}
	out = "\n" + l.Wrap("  ", out, "")
	if x.UnreachablePicks > 0 {
		out += l.Wrap("  ", fmt.Sprintf("%d of its draws for %d slices are pairs that cannot reach each other", x.UnreachablePicks, x.Picks), report.Bad)
	}
	return out
}

// doneText says when a transfer is through: not before the time that a bound gives.
func doneText(ns *int64, basis topo.Basis) string {
	if ns == nil {
		return ", time unknown"
	}
	end := roundTime(time.Duration(*ns))
	if basis == topo.BasisBound {
		return ", done not before " + end
	}
	return ", done after " + basis.Text(end)
}

// roundTime prints a time with three digits or so.
func roundTime(t time.Duration) string {
	unit := time.Nanosecond
	for t/unit >= 1000 {
		unit *= 10
	}
	return t.Round(unit).String()
}
