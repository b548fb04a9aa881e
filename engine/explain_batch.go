package engine

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/base/engine/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// userOp is the place in the user's list of an op of the part.
func (p *part) userOp(i int) int {
	if p.opBuffers != nil && i >= 0 && i < len(p.places) {
		return int(p.places[i].op)
	}
	return i
}

// note counts, logs and keeps what people should hear of.
func (e *Engine) note(n *sched.Note) {
	e.mu.Lock()
	peer := ""
	if l := e.lanes[n.Lane]; l != nil {
		peer = l.peer.name
	}
	e.mu.Unlock()
	args := []any{"code", string(n.Code)}
	if peer != "" {
		args = append(args, "peer", peer)
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

// Explain says how the batch was carried, or is so far.
func (b *Batch) Explain() *Explanation { return b.explain(b.engine.laneStates(b.peer)) }

func (b *Batch) explain(health map[*lane]LaneStats) *Explanation {
	e := b.engine
	x := &Explanation{
		Schema: SchemaExplain, Peer: b.peer.name, Label: b.o.Label, State: "running",
		Total: b.total, Ops: b.ops, Routes: []RouteRecord{}, Unavailable: texts(e.unavailable),
	}
	b.mu.Lock()
	end := e.now()
	if b.over {
		x.EndedAgoNS = end - b.end
		end = b.end
		x.State = "done"
		if len(b.errs) > 0 {
			x.State = "failed"
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
		x.State = "unsafe"
	}
	b.mu.Unlock()
	if err := b.Err(); err != nil && x.State != "running" {
		x.Error = err.Error()
	}
	var unchecked []string
	for _, p := range b.parts {
		unchecked = append(unchecked, b.peer.uncheckedOver(p.route)...)
	}
	x.Check = notOver(e.checkReason(b.o.Check, leaves), unchecked)
	e.mu.Lock()
	for i := range x.Fences {
		key, waits := e.unfenced[sched.ConnID(x.Fences[i].Conn)]
		x.Fences[i].Fenced, x.Fences[i].Transport = !waits, key.transport
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
	var lanes []*lane
	if b.over {
		lanes = p.used
	} else {
		result.Lanes = nil // whose they are is looked up at the end
	}
	b.mu.Unlock()
	r := b.peer.routeRecord(p.route, total, health)
	r.Bytes = result.Bytes
	for i := range result.Lanes {
		u := &result.Lanes[i]
		used := LaneUse{Bytes: u.Bytes, Slices: u.Slices, Retries: u.Retries, FirstNS: u.FirstNS - b.begin, LastNS: max(u.LastNS-b.begin, 0)}
		if u.Err != nil {
			used.Error = u.Err.Error()
		}
		if l := lanes[i]; l != nil {
			used.Lane, used.Transport, used.Connection = l.name, l.carrier.name, health[l].Connection
		}
		r.Used = append(r.Used, used)
	}
	return r
}

// Explain says what lanes a transfer between two memory locations would have, as
// things are; "" is memory of which nothing is known.
func (p *Peer) Explain(src, dst pathsel.Location) (*Explanation, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	e := p.engine
	r, err := p.route(routeKey{src, dst, "", 1<<len(e.carriers) - 1})
	if err != nil {
		return nil, fmt.Errorf("engine: peer %q: %w", p.name, err)
	}
	const example = 64 << 20
	x := &Explanation{
		Schema: SchemaExplain, Peer: p.name, State: "planned", Total: example, Unavailable: texts(e.unavailable),
		Check:  notOver(e.checkReason(CheckAuto, r.leaves.Load()), p.uncheckedOver(r)),
		Routes: []RouteRecord{p.routeRecord(r, example, e.laneStates(p))},
	}
	return x, nil
}

// routeRecord is what is decided for a route, with the shares of so many bytes.
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
	out := GroupRecord{Transport: g.carrier.name, Reason: g.reason, Lanes: []LaneRecord{}, Rejected: slices.Clone(g.notes)}
	if g.set == nil {
		return out
	}
	shares := g.set.Predict(bytes, pathsel.LaneStates{}, nil)
	for i, l := range g.lanes {
		from := &g.set.Lanes[i]
		record := LaneRecord{
			Lane: l.name, Verdict: "chosen", ExpectedBytesPerSec: from.BytesPerSec,
			Reason: from.Reason.Text, Health: health[l].Health,
		}
		if record.Health == "" { // the scheduler has forgotten it
			record.Health = "gone"
		}
		if i >= g.set.Chosen {
			record.Verdict = "failover"
		}
		for _, s := range shares {
			if s.Lane == i {
				record.PredictedBytes = s.Bytes
			}
		}
		out.Lanes = append(out.Lanes, record)
	}
	for i := range g.set.Rejected {
		x := &g.set.Rejected[i]
		out.Rejected = append(out.Rejected, rejection(x))
	}
	return out
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
