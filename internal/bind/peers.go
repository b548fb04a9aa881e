package bind

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/bind/mooncake"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// peer is a peer that is opened, or being opened: ready is closed when p or err is there.
type peer struct {
	ready chan struct{}
	p     *engine.Peer
	stock *mooncake.Peer // in place of p: a stock Mooncake process
	err   error

	unsettled  atomic.Bool   // see settle
	refreshing chan struct{} // holds one while the peer is asked
	offered    atomic.Pointer[space[*engine.RemoteRegion]]
}

// directory finds peers by their metadata, else by host:port.
type directory struct {
	registry.Registry
	engine *Engine
}

// Lookup implements registry.Registry.
func (d *directory) Lookup(ctx context.Context, name string) (registry.Record, error) {
	d.engine.mu.Lock()
	r, ok := d.engine.added[name]
	d.engine.mu.Unlock()
	if ok {
		return r, nil
	}
	return d.Registry.Lookup(ctx, name)
}

// opened is a peer that is open already, nil where it is not.
func (e *Engine) opened(name string) *peer {
	e.mu.Lock()
	x := e.peers[name]
	e.mu.Unlock()
	if x == nil {
		return nil
	}
	select {
	case <-x.ready:
	default:
		return nil
	}
	if x.err != nil || x.lost() {
		return nil
	}
	return x
}

// peer gives a peer that is open, and opens it where it is not, or is lost. One call at a time
// does so; others wait for it.
func (e *Engine) peer(ctx context.Context, name string) (*peer, error) {
	for {
		x, err := e.peerNow(name)
		if err != nil {
			return nil, err
		}
		select {
		case <-x.ready:
		case <-ctx.Done():
			if e.ctx.Err() != nil {
				return nil, errClosed
			}
			return nil, fail(NoPeer, "peer %.80q: no answer in time: %w", name, context.Cause(ctx))
		}
		if x.err != nil {
			return nil, x.err
		}
		if !x.lost() {
			return x, nil
		}
		e.forget(name, x)
	}
}

// peerNow is the peer as it is. One that is not open yet is being opened from now on.
func (e *Engine) peerNow(name string) (*peer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.peers[name]
	if x != nil {
		return x, nil
	}
	if e.closed {
		return nil, errClosed
	}
	x = &peer{ready: make(chan struct{}), refreshing: make(chan struct{}, 1)}
	x.offered.Store(&space[*engine.RemoteRegion]{})
	epoch := e.added[name].Epoch
	e.peers[name] = x
	e.tasks.Go(func() { e.open(name, epoch, x) })
	return x, nil
}

// checkName refuses what can be no peer's name: without a registry those are addresses and the names of AddPeer.
func (e *Engine) checkName(name string) error {
	e.mu.Lock()
	_, added := e.added[name]
	e.mu.Unlock()
	if added || e.names != nil || e.o.Compat {
		return nil
	}
	if _, _, err := net.SplitHostPort(name); err != nil {
		return fail(Invalid, "peer %.80q: want host:port, a name that was added by its metadata, or a registry", name)
	}
	return nil
}

// open opens a peer for all that wait for it.
func (e *Engine) open(name string, epoch uint64, x *peer) {
	defer close(x.ready)
	ctx, cancel := e.bounded(0)
	defer cancel()
	var at string
	if x.stock, at, x.err = e.find(ctx, name); x.stock == nil && x.err == nil {
		x.p, x.err = e.e.Open(ctx, at)
	}
	if x.p != nil && x.err == nil && epoch != 0 && x.p.Epoch() != epoch {
		x.err = errors.Join(fail(PeerLost, "peer %.80q was restarted since its metadata was made: get its new metadata", name), x.p.Close())
	}
	if x.p != nil && x.err == nil {
		_ = x.refresh(ctx) // so that what is submitted first need not ask; one that fails asks again
	}
	if x.err != nil {
		if StatusOf(x.err) != PeerLost {
			x.err = &Error{NoPeer, x.err}
		}
		e.mu.Lock()
		if e.peers[name] == x {
			delete(e.peers, name)
		}
		e.mu.Unlock()
	}
}

// forget takes a peer out, and closes it.
func (e *Engine) forget(name string, x *peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.peers[name] != x {
		return
	}
	delete(e.peers, name)
	if e.closed {
		return // the engine closes its peers
	}
	e.tasks.Go(func() {
		<-x.ready
		x.close()
	})
}

// settleTime is a little more than the pause between two attempts to connect again: a peer that
// is there again is found in it.
const settleTime = 600 * time.Millisecond

// settle waits until it is known what became of a peer that is not connected: it may have been
// started again, and what is submitted now is for the one that is there now. Where that takes long
// it waits once.
func (x *peer) settle(ctx context.Context, most time.Duration) {
	if x.connected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	x.unsettled.Store(x.p.Ready(ctx) != nil && !x.lost())
}

// connected says whether a batch can be handed to the peer without waiting for settle.
func (x *peer) connected() bool {
	if x.stock != nil || x.p.Ready(over) == nil {
		x.unsettled.Store(false)
		return true
	}
	return x.unsettled.Load()
}

// over is a context that is.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// lost says whether the peer has to be opened again, which a stock one never has.
func (x *peer) lost() bool { return x.p != nil && x.p.Err() != nil }

func (x *peer) close() {
	if x.p != nil {
		_ = x.p.Close()
	}
	if x.stock != nil {
		x.stock.Close()
	}
}

// refresh asks the peer what it offers. One call at a time does so.
func (x *peer) refresh(ctx context.Context) error {
	select {
	case x.refreshing <- struct{}{}:
		defer func() { <-x.refreshing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var list []interval[*engine.RemoteRegion]
	if x.stock != nil {
		ranges, err := x.stock.Ranges(ctx)
		for _, r := range ranges {
			list = append(list, interval[*engine.RemoteRegion]{lo: r.Address, hi: r.Address + r.Length})
		}
		s := newSpace(list)
		x.offered.Store(&s)
		return err
	}
	regions, err := x.p.Regions(ctx)
	if err != nil {
		return err
	}
	for _, r := range regions {
		if a, ok := r.Address(); ok {
			list = append(list, interval[*engine.RemoteRegion]{a, a + uint64(r.Size()), r})
		}
	}
	s := newSpace(list)
	x.offered.Store(&s)
	return nil
}

// metadata is what one engine tells others of itself, by whatever way its user has.
type metadata struct {
	Schema string `json:"schema"`
	registry.Record
}

const (
	schemaMetadata   = "topoctl.metadata/v1"
	maxMetadata      = 64 << 10 // bytes
	maxMetadataItems = 1 << 10
)

// Metadata is what peers give to AddPeer.
func (e *Engine) Metadata() ([]byte, error) {
	data, err := json.Marshal(metadata{schemaMetadata, e.e.Record()})
	if err != nil {
		return nil, fail(Internal, "metadata: %w", err)
	}
	return data, nil
}

// AddPeer takes a peer's metadata in and gives the peer's name. Newer metadata of the same name
// replaces what is there, and the peer is opened again.
func (e *Engine) AddPeer(data []byte) (string, error) {
	limits := document.Limits{Bytes: maxMetadata, Elements: maxMetadataItems, Depth: 4}
	var m metadata
	err := limits.Check(data)
	if err == nil {
		err = document.Locate(data, json.Unmarshal(data, &m))
	}
	if err == nil {
		err = document.CheckSchema(m.Schema, schemaMetadata, "")
	}
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return "", fail(Invalid, "metadata of a peer: %w", pkgerr.Plain(err))
	}
	e.mu.Lock()
	known, again := e.added[m.Name]
	e.added[m.Name] = m.Record
	x := e.peers[m.Name]
	e.mu.Unlock()
	if again && known.Epoch != m.Epoch && x != nil {
		e.forget(m.Name, x)
	}
	return m.Name, nil
}

// RemovePeer closes a peer and forgets its metadata. Its batches are cancelled.
func (e *Engine) RemovePeer(name string) error {
	e.mu.Lock()
	_, added := e.added[name]
	delete(e.added, name)
	x := e.peers[name]
	e.mu.Unlock()
	if x != nil {
		e.forget(name, x)
	} else if !added {
		return fail(NoPeer, "peer %.80q: it was not added, and is not open", name)
	}
	return nil
}
