package pathsel

import (
	"cmp"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/maxmin"
)

// codeListed is the reason of lanes that nobody chose: the caller lists them.
const codeListed Code = "listed"

// FixedOptions list lanes that no topology knows of: loopback, shared memory,
// lanes that a user wants, those of a simulated host.
type FixedOptions struct {
	LocalHost, RemoteHost string
	Source, Destination   Location // "" where that makes no difference
	Transport             Transport
	Lanes                 []FixedLane
	// LocalRates and RemoteRates are what ports carry, by name, in bytes per
	// second in each direction: lanes of one port share that. Ports that are not
	// there, or have 0, are not known to limit anything.
	LocalRates, RemoteRates map[string]topo.Rate
}

// FixedLane is one lane of a list. Ports have names only: lanes that give the
// same name on one side share that port.
type FixedLane struct {
	LocalName, RemoteName string
	BytesPerSec           topo.Rate // of the lane alone; 0 not known
	Tier                  int       // 0 is the nearest, see Lane.Tier
	Failover              bool      // for when others fail
	Contact               Contact
}

// FixedLanes is a set of exactly the given lanes: the chosen ones, then those for
// failover, each in the order of their tiers and within one as given. Ports have
// the Port.Index in which they are first named, and their name as ID. Several
// lanes may join the same two ports; Mooncake's policy knows the first of them only.
func FixedLanes(o FixedOptions) *LaneSet {
	s := &LaneSet{LocalHost: o.LocalHost, RemoteHost: o.RemoteHost, Source: o.Source, Destination: o.Destination,
		Transport: o.Transport, Basis: topo.BasisUnknown, Lanes: make([]Lane, len(o.Lanes)), Rejected: []Rejection{}}
	f := fixedBuilder{host: &Host{}, indexHere: map[string]int{}, indexThere: map[string]int{}}
	for i := range o.Lanes {
		s.Lanes[i] = f.lane(&o.Lanes[i], &o)
		if s.Lanes[i].Verdict == Chosen {
			s.Chosen++
		}
	}
	slices.SortStableFunc(s.Lanes, func(x, y Lane) int {
		return cmp.Or(compareBools(x.Verdict == Failover, y.Verdict == Failover), cmp.Compare(x.Tier, y.Tier))
	})
	for i, given := 0, 0; i < len(s.Lanes); i++ {
		if tier := s.Lanes[i].Tier; i == 0 || i == s.Chosen || tier != given {
			given = tier
			s.tiers++
		}
		s.Lanes[i].Tier = s.tiers - 1
	}
	f.share(s)
	s.fromHere, s.fromThere = preference{len(f.wireHere), len(f.wireHere)}, preference{len(f.wireThere), len(f.wireThere)}
	s.wireHere, s.wireThere = f.wireHere, f.wireThere
	s.findPlaces(func(l *Lane) (here, there int) { return l.LocalIndex, l.RemoteIndex })
	return s
}

// fixedBuilder makes a set from a list. Its host has nothing but links: the
// wire of each port, and one for each lane of known rate.
type fixedBuilder struct {
	host                  *Host
	indexHere, indexThere map[string]int
	wireHere, wireThere   []float64
	segHere, segThere     []segment // of each port's wire
}

func (f *fixedBuilder) lane(given *FixedLane, o *FixedOptions) Lane {
	l := Lane{Local: topo.ID(given.LocalName), Remote: topo.ID(given.RemoteName), LocalName: given.LocalName, RemoteName: given.RemoteName,
		Verdict: Chosen, Tier: given.Tier, Reach: ReachYes, ReachReason: Reason{codeListed, "as the list has it", ""}, Contact: given.Contact,
		Reason: Reason{codeListed, "the caller's choice", ""}, Basis: topo.BasisUnknown}
	if given.Failover {
		l.Verdict, l.Reason = Failover, Reason{codeListed, "the caller's choice for when others fail", ""}
	}
	here, ok := f.indexHere[given.LocalName]
	if !ok {
		here = len(f.wireHere)
		f.indexHere[given.LocalName] = here
		rate := o.LocalRates[given.LocalName]
		f.wireHere, f.segHere = append(f.wireHere, float64(knownRate(rate))), append(f.segHere, f.link(topo.LinkID("port:"+given.LocalName), rate))
	}
	there, ok := f.indexThere[given.RemoteName]
	if !ok {
		there = len(f.wireThere)
		f.indexThere[given.RemoteName] = there
		rate := o.RemoteRates[given.RemoteName]
		f.wireThere, f.segThere = append(f.wireThere, float64(knownRate(rate))), append(f.segThere, f.link(topo.LinkID("port:"+given.RemoteName), rate))
	}
	l.LocalIndex, l.RemoteIndex = here, there
	l.segments = []segment{f.segHere[here], f.link("", given.BytesPerSec), f.segThere[there]}
	return l
}

// link adds a link and gives the segment of its one direction that counts.
func (f *fixedBuilder) link(id topo.LinkID, rate topo.Rate) segment {
	l := topo.Link{ID: id, Kind: topo.LinkPort, Basis: topo.BasisUnknown}
	if r := knownRate(rate); r > 0 {
		l.BytesPerSec, l.Basis = &r, topo.BasisConstant
	}
	f.host.segLinks = append(f.host.segLinks, l)
	return segment(2 * (len(f.host.segLinks) - 1))
}

// knownRate is a rate within bounds, 0 where it is not known.
func knownRate(r topo.Rate) topo.Rate { return min(max(r, 0), mostRate) }

// share says what each lane carries alone and beside the others.
func (f *fixedBuilder) share(s *LaneSet) {
	f.host.findCaps()
	s.pair = &Pair{local: f.host, remote: f.host, caps: f.host.caps}
	b := &laneBuilder{p: s.pair, s: s, allocator: maxmin.New(f.host.caps)}
	for i := range s.Lanes {
		l := &s.Lanes[i]
		alone := [1]maxmin.Flow{{Segments: l.segments, Weight: 1}}
		b.allocator.Share(alone[:])
		l.rate = alone[0].Rate
		if alone[0].Unlimited() {
			if l.Verdict == Chosen {
				l.Reason = Reason{codeRateGap, "the list has no rate: measure it", ""}
			}
			continue
		}
		rate, link := roundRate(l.rate), s.pair.linkOf(alone[0].Limit)
		l.BytesPerSec, l.Basis, l.Limit = &rate, link.Basis, link.ID
		switch alone[0].Limit {
		case l.segments[0]:
			l.LimitHost = SideLocal
		case l.segments[2]:
			l.LimitHost = SideRemote
		}
	}
	for i := range s.Chosen {
		b.flows = append(b.flows, maxmin.Flow{Segments: s.Lanes[i].segments, Weight: 1})
	}
	b.allocator.Share(b.flows)
	users := b.users()
	for i := s.Chosen; i < len(s.Lanes); i++ {
		l := &s.Lanes[i]
		l.bounds = b.bounds(&edge{segments: l.segments, rate: l.rate}, users)
	}
	for i := range b.flows {
		l := &s.Lanes[i]
		l.share = b.flows[i].Rate
		if !b.flows[i].Unlimited() {
			share := roundRate(l.share)
			l.Share = &share
		}
	}
	b.sumUp()
}
