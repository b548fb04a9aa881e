package pathsel

import (
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/pick"
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
	// Notes are further remarks: rail and leaf, legs of a bond.
	Notes []Reason `json:"notes,omitempty"`

	// LocalIndex and RemoteIndex are the ports' Port.Index in the two hosts.
	LocalIndex  int `json:"-"`
	RemoteIndex int `json:"-"`
}

// Side tells the two hosts of a pair apart.
type Side string

// The sides.
const (
	SideLocal  Side = "local"
	SideRemote Side = "remote"
)

// LaneSet is the decision for one pair of memory locations. It does not change and may be used by
// many goroutines: make it once and use it for every transfer.
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
	// Notes are disagreements between the fabric file and the hosts, and hosts that do not tell which ports
	// are near.
	Notes []Reason `json:"notes,omitempty"`

	pair  *Pair     // that the set is of: its links
	picks *pick.Set // nil for a set that was read from JSON
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

// PickSet is for the engine and the simulator of this module: the set as their policies use it. It
// is nil for a set that was read from JSON.
func (s *LaneSet) PickSet() *pick.Set { return s.picks }

// index prepares what decisions for transfers need.
func (b *laneBuilder) index() {
	spec := pick.Spec{Lanes: b.picks, Chosen: b.s.Chosen, Capacities: b.p.caps,
		Local: pickPorts(b.p.local, b.here), Remote: pickPorts(b.p.remote, b.there)}
	if b.s.Transport == TCP {
		spec.RTT = pick.DefaultTCPRTT
	}
	b.s.picks = pick.New(spec)
}

func pickPorts(h *Host, a *Affinity) pick.Ports {
	out := pick.Ports{Rates: make([]float64, len(h.ports)), Places: make([]int, len(h.ports)), Ranked: len(a.Ranked), Preferred: len(a.Preferred())}
	for i := range h.ports {
		if r := h.ports[i].BytesPerSec; r != nil {
			out.Rates[i] = float64(*r)
		}
	}
	for i := range a.Ranked {
		out.Places[a.Ranked[i].index] = i
	}
	return out
}

// Deserves returns how many of the chosen lanes a transfer of this many bytes should use: as many
// as are busy for at least two round trips, and at least one. An rtt of 0 means 10 µs, or 100 µs
// over TCP.
func (s *LaneSet) Deserves(bytes int64, rtt time.Duration) int { return s.picks.Deserves(bytes, rtt) }

// LaneShare is a lane's part of one transfer.
type LaneShare struct {
	Lane  int   `json:"lane"` // place in LaneSet.Lanes
	Bytes int64 `json:"bytes"`
	// FinishNS is when the lane alone would be done with it.
	FinishNS int64 `json:"finish_ns"`
}

// Predict divides a transfer of this many bytes among as many chosen lanes as it deserves (see
// Deserves), so that idle lanes all finish at the same time. The shares are in the order of lanes
// and add up to bytes; without lanes there are none.
//
// An engine, whose lanes take slices as they have room, ends up close to it.
func (s *LaneSet) Predict(bytes int64) []LaneShare {
	var out []LaneShare
	for _, x := range s.picks.Predict(bytes) {
		out = append(out, LaneShare(x))
	}
	return out
}

// Finish returns when the last byte of a transfer arrives that is shared among lanes like this, in
// nanoseconds from its start, with nothing else on their links. No link of either host carries
// bytes faster than its rate, so the most loaded link decides: lanes that share a port or an
// uplink wait for each other there.
//
// It assumes that the links are kept busy; an engine may take longer. basis is that of the most
// loaded link's rate: assumed if a rate on the way is an upper bound, so that the transfer cannot
// end earlier; unknown, with 0 ns, if a lane's rate is not known or nothing is shared. Shares
// without bytes, or of lanes that are not in the set, are ignored.
func (s *LaneSet) Finish(shares []LaneShare) (ns int64, basis topo.Basis) {
	picks := make([]pick.Share, len(shares))
	for i, x := range shares {
		picks[i] = pick.Share(x)
	}
	ns, last, bounded := s.picks.Finish(picks)
	switch {
	case last == maxmin.None:
		return 0, topo.BasisUnknown
	case bounded:
		return ns, s.pair.linkOf(last).Basis.Bounded()
	}
	return ns, s.pair.linkOf(last).Basis
}
