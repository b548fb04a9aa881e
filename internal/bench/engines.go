package bench

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
)

// Engines shows the engines that measure as one: counters are added up, and the peer's name
// says whose lane or batch something is where there are several. They take turns, each with
// its own lanes, so the figures of one include nothing of another.
type Engines struct {
	list   []*engine.Engine
	labels []string // of the peer as each has opened it; "" no label
}

// show passes the engines to Options.Show.
func (r *run) show() (hide func(), err error) {
	x := &Engines{}
	for _, p := range r.o.Policies {
		x.add(r.ends[p], string(p))
	}
	if r.verifier != nil {
		x.add(r.verifier, "verifying")
	}
	if len(x.list) == 1 {
		x.labels[0] = ""
	}
	hide, err = r.o.Show(x)
	if hide == nil {
		hide = func() {}
	}
	return hide, err
}

func (x *Engines) add(e *end, label string) {
	x.list, x.labels = append(x.list, e.engine), append(x.labels, label)
}

// Topology is this host's, nil not known.
func (x *Engines) Topology() *topo.Topology { return x.list[0].Topology() }

// Stats are those of all engines together.
func (x *Engines) Stats() engine.Stats {
	all := x.list[0].Stats()
	label(&all, x.labels[0])
	for i, e := range x.list[1:] {
		s := e.Stats()
		label(&s, x.labels[i+1])
		add(&all, &s)
	}
	return all
}

// Recent are the latest batches of all engines: running ones, then finished ones, the latest
// first.
func (x *Engines) Recent() []*engine.Explanation {
	out := []*engine.Explanation{}
	for i, e := range x.list {
		list := e.Recent()
		for _, b := range list {
			b.Peer = labelled(b.Peer, x.labels[i])
		}
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b *engine.Explanation) int { return cmp.Compare(a.EndedAgoNS, b.EndedAgoNS) })
	return out[:min(len(out), maxRecent)]
}

// maxRecent bounds the batches of several engines.
const maxRecent = 48

func labelled(name, label string) string {
	if label == "" {
		return name
	}
	return label + ": " + name // label first: the end is cut off where space is short
}

func label(s *engine.Stats, text string) {
	for i := range s.Peers {
		s.Peers[i].Name = labelled(s.Peers[i].Name, text)
	}
	for i := range s.Lanes {
		s.Lanes[i].Peer = labelled(s.Lanes[i].Peer, text)
	}
	for i := range s.Regions {
		s.Regions[i].Name = labelled(s.Regions[i].Name, text)
	}
}

// add adds the second to the first, whose name and epoch stay.
func add(all, s *engine.Stats) {
	all.Peers = append(all.Peers, s.Peers...)
	all.Lanes = append(all.Lanes, s.Lanes...)
	all.Regions = append(all.Regions, s.Regions...)
	all.RegionsUnlisted += s.RegionsUnlisted
	all.RegionsUnlistedBytes += s.RegionsUnlistedBytes
	all.Served = append(all.Served, s.Served...)
	all.ServedUnlisted += s.ServedUnlisted
	for _, n := range []struct {
		to *int64
		of int64
	}{
		{&all.Batches, s.Batches}, {&all.Failed, s.Failed}, {&all.Unsafe, s.Unsafe}, {&all.Slices, s.Slices}, {&all.Retries, s.Retries},
		{&all.Fallback, s.Fallback}, {&all.ServedReadBytes, s.ServedReadBytes}, {&all.ServedWrittenBytes, s.ServedWrittenBytes},
		{&all.Refused, s.Refused}, {&all.Notifications, s.Notifications},
	} {
		*n.to += n.of
	}
	all.ServedConns += s.ServedConns
	all.Sessions += s.Sessions
}
