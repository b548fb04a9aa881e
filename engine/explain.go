package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/pathsel"
)

// SchemaExplain is the name and major version of an explanation.
const SchemaExplain = "topoctl.explain/v1"

// Explanation says how a batch was, or would be, carried: which lanes there are
// for each pair of memory locations, what was expected of them and what each did.
type Explanation struct {
	Schema string `json:"schema"`
	Peer   string `json:"peer"`
	Label  string `json:"label,omitempty"`
	State  string `json:"state"` // "planned", "running", "done", "failed", "unsafe"
	Error  string `json:"error,omitempty"`
	Bytes  int64  `json:"bytes"`    // in place
	Total  int64  `json:"of_bytes"` // of the batch
	Ops    int    `json:"ops"`
	// DurationNS is from Submit to the end, or to now.
	DurationNS int64 `json:"duration_ns"`
	// EndedAgoNS is from the end to now, 0 while it runs.
	EndedAgoNS int64 `json:"ended_ago_ns"`
	// Check says whether slices carry a checksum, and why or why not.
	Check   string `json:"check"`
	Retries int64  `json:"retries"` // slices that were sent again
	// Fences are the connections over which bytes could still land at the end.
	Fences []Fence       `json:"fences,omitempty"`
	Routes []RouteRecord `json:"routes"`
	// Notes are what came up while it ran.
	Notes []string `json:"notes,omitempty"`
	// Unavailable are the transports that this host cannot have.
	Unavailable []string `json:"unavailable,omitempty"`
}

// Fence is a connection that the peer had not confirmed to have left at the end.
type Fence struct {
	Conn      uint64 `json:"conn"`
	Transport string `json:"transport,omitempty"`
	Fenced    bool   `json:"fenced"` // it has left it since
}

// RouteRecord is what was decided for one pair of memory locations.
type RouteRecord struct {
	Local  pathsel.Location `json:"local"`  // "" not known
	Remote pathsel.Location `json:"remote"` // of the peer
	Bytes  int64            `json:"bytes"`
	// Groups are the transports, best first.
	Groups []GroupRecord `json:"groups"`
	Used   []LaneUse     `json:"used"` // in the order of first use
}

// GroupRecord is what one transport offers.
type GroupRecord struct {
	Transport string `json:"transport"`
	// Reason says why there is no lane, or why the lanes are not those of ports.
	Reason string       `json:"reason,omitempty"`
	Lanes  []LaneRecord `json:"lanes"`
	// Rejected are the ports and pairs that are no lanes, with the reason.
	Rejected []string `json:"rejected,omitempty"`
}

// LaneRecord is one candidate.
type LaneRecord struct {
	Lane string `json:"lane"`
	// Verdict is "chosen" or "failover".
	Verdict string `json:"verdict"`
	// ExpectedBytesPerSec is what it carries alone, nil not known.
	ExpectedBytesPerSec *topo.Rate `json:"expected_bytes_per_sec"`
	// PredictedBytes is its part of the batch, were all lanes idle and well.
	PredictedBytes int64  `json:"predicted_bytes"`
	Reason         string `json:"reason"`
	Health         string `json:"health"`
}

// LaneUse is what one lane did for the batch.
type LaneUse struct {
	Lane       string `json:"lane"`
	Transport  string `json:"transport"`
	Connection string `json:"connection"`
	Bytes      int64  `json:"bytes"`
	Slices     int64  `json:"slices"`
	Retries    int64  `json:"retries"`
	FirstNS    int64  `json:"first_ns"` // since Submit
	LastNS     int64  `json:"last_ns"`
	Error      string `json:"error,omitempty"`
}

// Text is the explanation for people.
func (x *Explanation) Text() string {
	var b strings.Builder
	x.head(&b)
	for i := range x.Routes {
		x.Routes[i].text(&b)
	}
	for _, f := range x.Fences {
		state := "its bytes may still land there"
		if f.Fenced {
			state = "the peer has left it since"
		}
		fmt.Fprintf(&b, "  connection %d was not fenced in time: %s\n", f.Conn, state)
	}
	for _, n := range x.Notes {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	for _, n := range x.Unavailable {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	return b.String()
}

func (x *Explanation) head(b *strings.Builder) {
	what := "transfer"
	if x.Label != "" {
		what = x.Label
	}
	fmt.Fprintf(b, "%s with peer %s: %s", what, x.Peer, x.State)
	if x.State != "planned" {
		took := time.Duration(x.DurationNS)
		fmt.Fprintf(b, ", %s of %s in %d ops, %v", units.Bytes(x.Bytes), units.Bytes(x.Total), x.Ops, took.Round(time.Microsecond))
		if took > 0 && x.Bytes > 0 {
			fmt.Fprintf(b, ", %s", units.Rate(int64(float64(x.Bytes)/took.Seconds()), units.Auto))
		}
	}
	b.WriteByte('\n')
	if x.Error != "" {
		fmt.Fprintf(b, "  error: %s\n", x.Error)
	}
	fmt.Fprintf(b, "  check: %s\n", x.Check)
	if x.Retries > 0 {
		fmt.Fprintf(b, "  sent again: %d slices\n", x.Retries)
	}
}

func (r *RouteRecord) text(b *strings.Builder) {
	fmt.Fprintf(b, "  %s to the peer's %s\n", locationName(r.Local), locationName(r.Remote))
	for i := range r.Groups {
		g := &r.Groups[i]
		fmt.Fprintf(b, "    %s", g.Transport)
		if g.Reason != "" {
			fmt.Fprintf(b, ": %s", g.Reason)
		}
		b.WriteByte('\n')
		for k := range g.Lanes {
			l := &g.Lanes[k]
			rate := "rate not known"
			if l.ExpectedBytesPerSec != nil {
				rate = units.Rate(int64(*l.ExpectedBytesPerSec), units.Auto)
			}
			fmt.Fprintf(b, "      %s: %s, %s, share %s, %s (%s)\n", l.Lane, l.Verdict, rate, units.Bytes(l.PredictedBytes), l.Health, l.Reason)
		}
		for _, s := range g.Rejected {
			fmt.Fprintf(b, "      not used: %s\n", s)
		}
	}
	for i := range r.Used {
		u := &r.Used[i]
		fmt.Fprintf(b, "    used %s: %s in %d slices, %v to %v", u.Lane, units.Bytes(u.Bytes), u.Slices,
			time.Duration(u.FirstNS).Round(time.Microsecond), time.Duration(u.LastNS).Round(time.Microsecond))
		if u.Retries > 0 {
			fmt.Fprintf(b, ", %d not delivered", u.Retries)
		}
		if u.Connection != "" {
			fmt.Fprintf(b, " (%s)", u.Connection)
		}
		if u.Error != "" {
			fmt.Fprintf(b, ", last error: %s", u.Error)
		}
		b.WriteByte('\n')
	}
}
