package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const deltaTimeout = 30 * time.Second

// offering is what this engine tells its peers, and who has been told what.
type offering struct {
	mu          sync.Mutex
	regions     map[mem.ID]*Region
	ordered     []*Region // the same in the order of IDs, nil until somebody wants it
	topology    json.RawMessage
	endpoints   []transport.Endpoint
	reason      string // for the first endpoint, "" without one
	sequence    uint64 // counts changes
	all         view   // that is not narrowed
	room        int    // bytes that a descriptor certainly has left
	subscribers map[*session.Session]*subscriber
}

// view is what peers with the same permissions are told; the lock of the offering guards it.
type view struct {
	now     *peerdoc.Descriptor // nil, or of an earlier sequence, until somebody wants it
	encoded []byte              // of now, nil until a peer asks: one for all of them
	last    delta               // one for all that know as much
}

// delta is a change from one sequence to another, encoded when the first peer is told.
type delta struct {
	from, to uint64
	body     func() ([]byte, error)
}

// delta is the change between two descriptors of the view; the lock is held.
func (v *view) delta(from, to *peerdoc.Descriptor) func() ([]byte, error) {
	if v.last.body == nil || v.last.from != from.Sequence || v.last.to != to.Sequence {
		v.last = delta{from.Sequence, to.Sequence, sync.OnceValues(func() ([]byte, error) { return encodeDelta(from, to) })}
	}
	return v.last.body
}

// subscriber is a session whose engine is told of changes.
type subscriber struct {
	session *session.Session
	permit  *permit
	told    *peerdoc.Descriptor
	pushing bool
}

// offer makes regions known to peers, all of one grant, unless there is no room left in what
// peers are told.
func (e *Engine) offer(regions []*Region) error {
	o := &e.offering
	o.mu.Lock()
	defer o.mu.Unlock()
	granted := false
	o.ordered = nil
	for _, r := range regions {
		o.regions[r.r.ID()] = r
		r.rekey() // it may have missed a change
		granted = granted || r.r.Grant() != mem.None
	}
	if !granted {
		return nil
	}
	o.sequence++
	o.all.now = nil
	if err := e.makeRoom(regions); err != nil {
		for _, r := range regions {
			delete(o.regions, r.r.ID())
		}
		o.all.now, o.ordered = nil, nil
		return err
	}
	e.tellAll()
	return nil
}

// makeRoom sees that the descriptor can be sent with regions that are new in it. It is only
// measured where it may be too long; the lock is held.
func (e *Engine) makeRoom(added []*Region) error {
	o := &e.offering
	if len(added) == 1 {
		offered := added[0].offered(nil)
		if most := offered.MostBytes(); most <= o.room {
			o.room -= most
			return nil
		}
	}
	v := e.view(nil)
	encoded, err := v.now.Encode()
	if err != nil {
		return pkgerr.Errorf("engine", "region %q: %w: peers cannot be told of more regions: %w", added[0].Name(), ErrLimit, err)
	}
	v.encoded, o.room = encoded, peerdoc.MaxBytes-len(encoded)
	return nil
}

func (e *Engine) withhold(regions map[*Region]bool) {
	o := &e.offering
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ordered = nil
	granted := false
	for r := range regions {
		delete(o.regions, r.r.ID())
		granted = granted || r.r.Grant() != mem.None
	}
	if granted {
		e.changed()
	}
}

// list gives the open regions in the order of their IDs, to be read only; the lock is held.
func (o *offering) list() []*Region {
	if o.ordered == nil {
		o.ordered = slices.SortedFunc(maps.Values(o.regions), func(a, b *Region) int { return cmp.Compare(a.ID(), b.ID()) })
	}
	return o.ordered
}

// reoffer changes topology and endpoints.
func (e *Engine) reoffer(topology json.RawMessage, endpoints []transport.Endpoint, reason string) {
	o := &e.offering
	o.mu.Lock()
	defer o.mu.Unlock()
	same := bytes.Equal(o.topology, topology) && slices.Equal(o.endpoints, endpoints)
	o.topology, o.endpoints, o.reason, o.room = topology, endpoints, reason, 0
	if !same {
		e.changed()
		e.noteRecordChange()
	}
}

// changed counts a change and tells subscribers; the lock is held.
func (e *Engine) changed() {
	e.offering.sequence++
	e.tellAll()
}

// tellAll tells all subscribers what changed; the lock is held.
func (e *Engine) tellAll() {
	for _, s := range e.offering.subscribers {
		if !s.pushing {
			s.pushing = e.start(func() { e.push(s) })
		}
	}
}

// view is what peers with these permissions are told now; the lock is held.
func (e *Engine) view(p *permit) *view {
	o := &e.offering
	v := &o.all
	if p != nil {
		v = &p.view
	}
	if v.now != nil && v.now.Sequence == o.sequence {
		return v
	}
	d := &peerdoc.Descriptor{
		Schema: peerdoc.SchemaPeer, Name: e.name, Epoch: e.epoch, Sequence: o.sequence,
		Machine: e.machine, Boot: e.boot, Topology: o.topology, Endpoints: o.endpoints,
	}
	var rights *mem.Rights
	if p != nil {
		rights = p.rights
	}
	if p != nil && !p.Topology {
		d.Topology = nil
	}
	for _, r := range o.list() {
		if rights.Grant(r.r) != mem.None {
			d.Regions = append(d.Regions, r.offered(rights))
		}
	}
	v.now, v.encoded = d, nil
	return v
}

// offered is what peers with these rights are told of a region; the lock of the offering is held.
func (r *Region) offered(rights *mem.Rights) peerdoc.Region {
	grant := rights.Grant(r.r)
	out := peerdoc.Region{
		ID: r.r.ID(), Name: r.Name(), Bytes: r.Size(), Location: string(r.location),
		Read: grant&mem.PeerRead != 0, Write: grant&mem.PeerWrite != 0,
	}
	if rights.All(r.r) { // else only what checks each access here may reach it, and that needs no key
		out.Keys = r.keys
	}
	if r.offerAddress {
		out.Address = uint64(r.Address())
	}
	return out
}

// describe answers with the descriptor; from then on the session's engine is told
// of changes.
func (e *Engine) describe(s *session.Session) ([]byte, error) {
	o, p := &e.offering, e.permitOf(s)
	o.mu.Lock()
	v := e.view(p)
	d, encoded := v.now, v.encoded
	if old := o.subscribers[s]; old != nil {
		old.told = d // a push that is under way goes on from here
	} else {
		o.subscribers[s] = &subscriber{session: s, permit: p, told: d}
	}
	o.mu.Unlock()
	if encoded != nil {
		return encoded, nil
	}
	encoded, err := d.Encode()
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if v.now == d {
		v.encoded = encoded
	}
	return encoded, nil
}

func (e *Engine) unsubscribe(s *session.Session) {
	o := &e.offering
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.subscribers, s)
}

// push tells one engine what changed, until it knows all.
func (e *Engine) push(s *subscriber) {
	o := &e.offering
	for {
		o.mu.Lock()
		v := e.view(s.permit)
		from, to := s.told, v.now
		if from.Sequence == to.Sequence || o.subscribers[s.session] != s {
			s.pushing = false
			o.mu.Unlock()
			return
		}
		s.told = to
		encode := v.delta(from, to)
		o.mu.Unlock()
		body, err := encode()
		if err != nil {
			e.log.Error("a change cannot be told to peers", "error", err)
			continue
		}
		ctx, cancel := context.WithTimeout(e.ctx, deltaTimeout)
		// A peer that cannot apply it asks for the whole descriptor by itself.
		_, err = s.session.Call(ctx, methodDelta, body)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			o.mu.Lock()
			if s.told == to { // it does not know that it has missed something, and may wait for that
				s.told = from
			}
			o.mu.Unlock()
		}
	}
}

// encodeDelta makes a delta, or one that no peer can apply where it would be too
// large: then peers ask for the descriptor.
func encodeDelta(from, to *peerdoc.Descriptor) ([]byte, error) {
	x, err := peerdoc.Diff(from, to)
	if err != nil {
		return nil, err
	}
	body, err := x.Encode()
	if err != nil {
		return (&peerdoc.Delta{From: to.Sequence, To: to.Sequence + 1}).Encode()
	}
	return body, nil
}
