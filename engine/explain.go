package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// SchemaExplain is the name and major version of an explanation.
const SchemaExplain = "topoctl.explain/v1"

// Explanation says how a batch was carried, or would be: which lanes there are for each
// pair of memory locations, what was expected of them, and what each of them did.
type Explanation struct {
	Schema string     `json:"schema"`
	Peer   string     `json:"peer"`
	Label  string     `json:"label,omitempty"`
	State  BatchState `json:"state"`
	Error  string     `json:"error,omitempty"`
	Bytes  int64      `json:"bytes"`    // in place
	Total  int64      `json:"of_bytes"` // of the batch
	Ops    int        `json:"ops"`
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

// BatchState is what has become of a batch.
type BatchState string

// The states of batches.
const (
	BatchPlanned BatchState = "planned" // Peer.Explain: there is no batch
	BatchRunning BatchState = "running"
	BatchDone    BatchState = "done"
	BatchFailed  BatchState = "failed"
	BatchUnsafe  BatchState = "unsafe" // failed, with ErrUnsafeBuffer
)

// Fence is a connection that, at the end of a batch, the peer had not confirmed to be
// closed on its side.
type Fence struct {
	Conn      uint64            `json:"conn"`
	Transport pathsel.Transport `json:"transport,omitempty"`
	Fenced    bool              `json:"fenced"` // it has confirmed it since
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
	Transport pathsel.Transport `json:"transport"`
	// Reason says why there is no lane, or why the lanes are not chosen from the topologies.
	Reason string       `json:"reason,omitempty"`
	Lanes  []LaneRecord `json:"lanes"`
	// Rejected are ports and pairs of ports that cannot be lanes, with the reason.
	Rejected []string `json:"rejected,omitempty"`
}

// LaneRecord is one candidate.
type LaneRecord struct {
	Lane string `json:"lane"`
	// Verdict is pathsel.Chosen or pathsel.Failover.
	Verdict pathsel.Verdict `json:"verdict"`
	// ExpectedBytesPerSec is what it carries alone, nil if unknown.
	ExpectedBytesPerSec *topo.Rate `json:"expected_bytes_per_sec"`
	// PredictedBytes is its part of the batch if all lanes are idle and healthy.
	PredictedBytes int64      `json:"predicted_bytes"`
	Reason         string     `json:"reason"`
	Health         LaneHealth `json:"health"`
}

// LaneUse is what one lane did for the batch.
type LaneUse struct {
	Lane       string            `json:"lane"`
	Transport  pathsel.Transport `json:"transport"`
	Connection string            `json:"connection"`
	Bytes      int64             `json:"bytes"`
	Slices     int64             `json:"slices"`
	Retries    int64             `json:"retries"`
	FirstNS    int64             `json:"first_ns"` // since Submit
	LastNS     int64             `json:"last_ns"`
	Error      string            `json:"error,omitempty"`
}

// Text is the explanation in words, on several lines.
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
	if x.State != BatchPlanned {
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
				rate = l.ExpectedBytesPerSec.String()
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

// userOp is the place in the user's list of an op of the part.
func (p *part) userOp(i int) int {
	if p.opBuffers != nil && i >= 0 && i < len(p.places) {
		return int(p.places[i].op)
	}
	return i
}

// note counts, logs and keeps what people should hear of.
func (e *Engine) note(n *sched.Note) {
	args := []any{"code", string(n.Code)}
	if n.PeerName != "" {
		args = append(args, "peer", n.PeerName)
	}
	if n.Err != nil {
		args = append(args, "error", n.Err)
	}
	switch n.Code {
	case sched.Fallback:
		e.count.fallbacks.Add(1)
		e.log.Warn(n.Text, args...)
	case sched.LaneSick, sched.PeerStalled, sched.UnsafeBuffer:
		e.log.Warn(n.Text, args...)
	default:
		e.log.Info(n.Text, args...)
	}
}

// Explain says how the batch was carried, or how it has been so far.
func (b *Batch) Explain() *Explanation { return b.explain(b.engine.laneStates(b.peer)) }

func (b *Batch) explain(health map[*lane]LaneStats) *Explanation {
	e := b.engine
	x := &Explanation{
		Schema: SchemaExplain, Peer: b.peer.name, Label: b.o.Label, State: BatchRunning,
		Total: b.total, Ops: b.ops, Routes: []RouteRecord{}, Unavailable: texts(e.unavailable),
	}
	b.mu.Lock()
	end := e.now()
	if b.over {
		x.EndedAgoNS = end - b.end
		end = b.end
		x.State = BatchDone
		if len(b.errs) > 0 {
			x.State = BatchFailed
		}
	}
	x.DurationNS, x.Bytes = end-b.begin, min(b.moved.Load(), b.total)
	leaves := false
	for _, p := range b.parts {
		leaves = leaves || p.route.leaves.Load()
		x.Retries += p.result.Retries
		for i := range p.result.Notes {
			note := p.result.Notes[i].Text
			if err := p.result.Notes[i].Err; err != nil {
				note += ": " + err.Error()
			}
			x.Notes = append(x.Notes, note)
		}
		for _, conn := range p.result.Unsafe {
			x.Fences = append(x.Fences, Fence{Conn: uint64(conn)})
		}
	}
	if len(x.Fences) > 0 {
		x.State = BatchUnsafe
	}
	b.mu.Unlock()
	if err := b.Err(); err != nil && x.State != BatchRunning {
		x.Error = err.Error()
	}
	var unchecked []string
	for _, p := range b.parts {
		unchecked = append(unchecked, b.peer.uncheckedOver(p.route)...)
	}
	x.Check = notOver(e.checkReason(b.o.Check, leaves), unchecked, e.wantsDigest(b.o.Check))
	e.mu.Lock()
	for i := range x.Fences {
		key, waits := e.unfenced[sched.ConnID(x.Fences[i].Conn)]
		x.Fences[i].Fenced, x.Fences[i].Transport = !waits, pathsel.Transport(key.transport)
	}
	e.mu.Unlock()
	for _, p := range b.parts {
		x.Routes = append(x.Routes, p.record(health))
	}
	return x
}

// record is what was decided for a part, and what became of it.
func (p *part) record(health map[*lane]LaneStats) RouteRecord {
	b := p.batch
	b.mu.Lock()
	result, total := p.result, p.bytes
	b.mu.Unlock()
	r := b.peer.routeRecord(p.route, total, health)
	r.Bytes = result.Bytes
	for i := range result.Lanes {
		u := &result.Lanes[i]
		l := u.User.(*lane)
		used := LaneUse{
			Lane: l.name, Transport: pathsel.Transport(l.carrier.name), Connection: health[l].Connection,
			Bytes: u.Bytes, Slices: u.Slices, Retries: u.Retries, FirstNS: u.FirstNS - b.begin, LastNS: max(u.LastNS-b.begin, 0),
		}
		if u.Err != nil {
			used.Error = u.Err.Error()
		}
		r.Used = append(r.Used, used)
	}
	return r
}

// Explain says which lanes a transfer between two memory locations would have now. "" is
// memory whose location is unknown.
func (p *Peer) Explain(src, dst pathsel.Location) (*Explanation, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	e := p.engine
	r, err := p.route(routeKey{src, dst, "", 1<<len(e.carriers) - 1})
	if err != nil {
		return nil, pkgerr.Errorf("engine", "peer %q: %w", p.name, err)
	}
	const example = 64 << 20
	x := &Explanation{
		Schema: SchemaExplain, Peer: p.name, State: BatchPlanned, Total: example, Unavailable: texts(e.unavailable),
		Check:  notOver(e.checkReason(CheckAuto, r.leaves.Load()), p.uncheckedOver(r), e.wantsDigest(CheckAuto)),
		Routes: []RouteRecord{p.routeRecord(r, example, e.laneStates(p))},
	}
	return x, nil
}

// routeRecord is what is decided for a route, with its lanes' shares of a transfer of that many bytes.
func (p *Peer) routeRecord(r *route, bytes int64, health map[*lane]LaneStats) RouteRecord {
	p.mu.RLock()
	groups := r.groups
	p.mu.RUnlock()
	out := RouteRecord{Local: r.key.local, Remote: r.key.remote, Groups: []GroupRecord{}, Used: []LaneUse{}}
	for i := range groups {
		out.Groups = append(out.Groups, groups[i].record(bytes, health))
	}
	return out
}

func (g *group) record(bytes int64, health map[*lane]LaneStats) GroupRecord {
	out := GroupRecord{Transport: pathsel.Transport(g.carrier.name), Reason: g.reason, Lanes: []LaneRecord{}, Rejected: slices.Clone(g.notes)}
	if g.set == nil {
		return out
	}
	shares := g.set.Predict(bytes)
	for i, l := range g.lanes {
		from := &g.set.Lanes[i]
		record := LaneRecord{
			Lane: l.name, Verdict: pathsel.Chosen, ExpectedBytesPerSec: from.BytesPerSec(),
			Reason: g.whyLane(i), Health: health[l].Health,
		}
		if record.Health == "" { // the scheduler has forgotten it
			record.Health = LaneGone
		}
		if i >= g.set.Chosen {
			record.Verdict = pathsel.Failover
		}
		for _, s := range shares {
			if s.Lane == i {
				record.PredictedBytes = s.Bytes
			}
		}
		out.Lanes = append(out.Lanes, record)
	}
	if g.plan != nil {
		for i := range g.plan.Rejected {
			out.Rejected = append(out.Rejected, rejection(&g.plan.Rejected[i]))
		}
	}
	return out
}

// whyLane is the reason for the lane at a place of the set.
func (g *group) whyLane(place int) string {
	switch {
	case g.plan != nil:
		return g.plan.Lanes[place].Reason.Text
	case place >= g.set.Chosen:
		return "the caller's choice for when others fail"
	case g.set.Lanes[place].BytesPerSec() == nil:
		return "the list has no rate: measure it"
	}
	return "the caller's choice"
}

func rejection(x *pathsel.Rejection) string {
	switch {
	case len(x.Local) > 0 && len(x.Remote) > 0:
		return fmt.Sprintf("%v to the peer's %v: %s", x.Local, x.Remote, x.Reason.Text)
	case len(x.Remote) > 0:
		return fmt.Sprintf("the peer's %v: %s", x.Remote, x.Reason.Text)
	}
	return fmt.Sprintf("%v: %s", x.Local, x.Reason.Text)
}

// How many batches Recent tells of, by what has become of them, and how much of each.
const (
	recentRunning = 16
	recentDone    = 24
	recentTrouble = 8

	recentRoutes   = 4
	recentLanes    = 16 // of a transport
	recentRejected = 8
	recentNotes    = 8
	recentText     = 512 // bytes
)

// recent are the latest batches that are over. They are explained when somebody asks: a
// batch of a few KiB is over in less time than that takes. They keep their peers in memory,
// also closed ones, until others take their place.
type recent struct {
	done    ring
	trouble ring // that failed, or had to send slices again: others do not push them out
}

// ring holds the last batches. The zero value holds none.
type ring struct {
	list [recentDone]atomic.Pointer[Batch]
	n    atomic.Uint64
}

func (r *ring) add(b *Batch, most uint64) { r.list[(r.n.Add(1)-1)%most].Store(b) }

func (r *recent) add(b *Batch, trouble bool) {
	if trouble {
		r.trouble.add(b, recentTrouble)
	} else {
		r.done.add(b, recentDone)
	}
}

// batches are those that are over, the last one first.
func (r *recent) batches() []*Batch {
	var out []*Batch
	for _, x := range []*ring{&r.trouble, &r.done} {
		for i := range x.list {
			if b := x.list[i].Load(); b != nil {
				out = append(out, b)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *Batch) int { return cmp.Compare(b.endedAt(), a.endedAt()) })
	return out
}

// endedAt is when the batch was over, in the engine's time.
func (b *Batch) endedAt() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.end
}

// Recent explains the latest batches: up to 16 that are running, the newest first, then
// up to 24 that have ended and up to 8 more that failed or sent slices again, the last to
// end first. Long lists and texts are cut, and Notes say so. A call takes a few µs for each
// batch; keeping them costs next to nothing.
func (e *Engine) Recent() []*Explanation {
	var list []*Batch
	e.mu.Lock()
	for b := e.first; b != nil && len(list) < recentRunning; b = b.next {
		list = append(list, b)
	}
	e.mu.Unlock()
	for _, b := range e.recent.batches() {
		if !slices.Contains(list, b) { // it has ended meanwhile
			list = append(list, b)
		}
	}
	lanes := e.laneStates(nil)
	out := make([]*Explanation, 0, len(list))
	for _, b := range list {
		x := b.explain(lanes)
		x.shorten()
		out = append(out, x)
	}
	return out
}

// shorten cuts what could be long.
func (x *Explanation) shorten() {
	x.Label, x.Error = shortText(x.Label), shortText(x.Error)
	x.Notes = shortList(x.Notes, recentNotes)
	x.Unavailable = shortList(x.Unavailable, recentNotes)
	cut := func(n, most int, what string) int {
		if n > most {
			x.Notes = append(x.Notes, fmt.Sprintf("%d more %s are left out here", n-most, what))
		}
		return min(n, most)
	}
	x.Fences = x.Fences[:cut(len(x.Fences), recentNotes, "connections that were not fenced")]
	x.Routes = x.Routes[:cut(len(x.Routes), recentRoutes, "pairs of memory locations")]
	for i := range x.Routes {
		r := &x.Routes[i]
		for k := range r.Groups {
			g := &r.Groups[k]
			g.Reason, g.Rejected = shortText(g.Reason), shortList(g.Rejected, recentRejected)
			g.Lanes = g.Lanes[:cut(len(g.Lanes), recentLanes, string(g.Transport)+" lanes")]
		}
		r.Used = r.Used[:cut(len(r.Used), recentLanes, "lanes that were used")]
		for k := range r.Used {
			r.Used[k].Error = shortText(r.Used[k].Error)
		}
	}
}

// shortList cuts a list of texts, and says so in place of the last one.
func shortList(list []string, most int) []string {
	if n := len(list) - most; n > 0 {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", n))
	}
	for i, s := range list {
		if len(s) > recentText {
			list = slices.Clone(list)
			list[i] = shortText(s)
		}
	}
	return list
}

func shortText(s string) string {
	if len(s) <= recentText {
		return s
	}
	return strings.ToValidUTF8(s[:recentText], "") + "..."
}
