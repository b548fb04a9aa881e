package pathsel

import (
	"math"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
)

// Lane is a pair of ports, one of each host, that a transfer can use.
type Lane struct {
	Local      topo.ID `json:"local"`
	Remote     topo.ID `json:"remote"` // of the remote topology
	LocalName  string  `json:"local_name"`
	RemoteName string  `json:"remote_name"`
	Verdict    Verdict `json:"verdict"`
	// Tier counts from the nearest and most certain lanes, which are tier 0: a
	// farther tier is used only where it makes a transfer end much earlier.
	Tier        int        `json:"tier"`
	LocalClass  topo.Class `json:"local_class"`
	RemoteClass topo.Class `json:"remote_class"`
	Reach       Reach      `json:"reachable"` // yes or assumed
	ReachReason Reason     `json:"reach_reason"`
	Contact     Contact    `json:"contact"`
	// BytesPerSec is what the lane carries alone; nil unknown.
	BytesPerSec *topo.Rate  `json:"expected_bytes_per_sec"`
	Basis       topo.Basis  `json:"basis"`
	Limit       topo.LinkID `json:"limit_link,omitempty"`
	LimitHost   Side        `json:"limit_host,omitempty"`
	// Share is a chosen lane's part of the joint capacity, nil unknown or none.
	Share *topo.Rate `json:"share_bytes_per_sec"`
	// Reason says what the lane adds, or why it is not chosen.
	Reason Reason `json:"reason"`
	// Notes say what else there is to know: rail and leaf, legs of a bond.
	Notes []Reason `json:"notes,omitempty"`

	// LocalIndex and RemoteIndex are the ports' Port.Index in the two hosts: the
	// places of their loads in LaneStates and of their rates in PortRates.
	LocalIndex  int `json:"-"`
	RemoteIndex int `json:"-"`

	segments   []segment // that it crosses, each as often as it does
	rate       float64   // alone, bytes per second; infinite where unknown
	share      float64   // of the joint capacity, 0 for failover
	bounds     []bound   // of a lane for failover: what it shares with chosen ones
	upperBound bool      // the rate is no more than an upper bound
}

// bound is a link that a lane for failover shares with chosen lanes.
type bound struct {
	spare  float64 // what the chosen ones leave of it, bytes per second
	chosen []int32 // those that cross it
}

// Side tells the two hosts of a pair apart.
type Side string

// The sides.
const (
	SideLocal  Side = "local"
	SideRemote Side = "remote"
)

// LaneSet is the decision for one pair of memory locations. It does not change
// and may be used by many goroutines: prepare it once, keep it, and ask it for
// each transfer.
type LaneSet struct {
	LocalHost   string    `json:"local_host"`
	RemoteHost  string    `json:"remote_host"`
	Source      Location  `json:"source"`      // of the local host
	Destination Location  `json:"destination"` // of the remote host
	Transport   Transport `json:"transport"`
	// BytesPerSec is what the chosen lanes carry together, in either direction;
	// nil where a share is not known. Basis is the weakest of its limits.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	Basis       topo.Basis `json:"basis"`
	// Chosen is how many of Lanes are chosen: the first ones. Those after them
	// are in the order in which they step in when chosen ones fail.
	Chosen int    `json:"chosen_lanes"`
	Lanes  []Lane `json:"ranked"`
	// Rejected are the ports and pairs of ports that are no lanes.
	Rejected []Rejection `json:"rejected"`
	// Notes are what the fabric file and the hosts do not agree on.
	Notes []Reason `json:"notes,omitempty"`

	pair      *Pair // that the set is of: its links
	tiers     int
	prior     float64   // of lanes of unknown rate, bytes per second
	standIns  [][]int32 // for each chosen lane those that make up for its loss, in order
	wireHere  []float64 // what each port's wire carries, by Port.Index; 0 unknown
	wireThere []float64
	at        []int32 // the lane of each pair of places in the preferences, -1 for none
	fromHere  preference
	fromThere preference
}

// Rejection is one reason and everything that it rejects: ports of one host
// that cannot be used, or the pairs of some local and some remote ports.
type Rejection struct {
	Local  []topo.ID `json:"local,omitempty"`
	Remote []topo.ID `json:"remote,omitempty"`
	// Pairs is how many pairs of usable ports are rejected; 0 for ports that
	// are not usable at all.
	Pairs  int    `json:"pairs"`
	Reason Reason `json:"reason"` // of the first pair, where there are several
}

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

// Deserves says how many of the chosen lanes a transfer of that size should
// use: enough that each is busy for at least two round trips, and one in any
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
