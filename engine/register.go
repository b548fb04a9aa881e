package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Record is what a registry is told of the engine, and what others need to open it by name.
func (e *Engine) Record() registry.Record {
	r := registry.Record{Name: e.name, Epoch: e.epoch, Boot: e.boot, Serves: slices.Clone(e.o.Serves)}
	for _, a := range e.Advertised() {
		if at, err := netip.ParseAddrPort(a.Address); err == nil && a.Transport == "tcp" {
			r.Addresses = append(r.Addresses, at)
		}
	}
	if now := e.ports.Load(); now != nil {
		r.Fingerprint = now.topology.Fingerprint()
	}
	return r
}

// publish tells the registry where we are. Where that cannot be reached, or another engine has the name, it is
// told when it can: peers that know an address need no registry.
func (e *Engine) publish(ctx context.Context) error {
	r := e.Record()
	lease, err := e.registry.Publish(ctx, r)
	if err != nil && !errors.Is(err, registry.ErrUnavailable) && !errors.Is(err, registry.ErrOldEpoch) {
		return err
	}
	e.notePublished(lease, err)
	e.start(func() { e.keepPublished(r, lease) })
	return nil
}

// notePublished keeps whether the registry has the record, for Stats, and logs what is new; err says why not.
func (e *Engine) notePublished(lease registry.Lease, err error) {
	before := e.publishError
	e.publishError = err
	switch {
	case err == nil && lease.Lost() == nil: // there is no registry
		return
	case err == nil:
		e.published.Store(&RegistryStats{Published: true})
		if before != nil {
			e.log.Info("the registry has this engine's record", "engine", e.name)
		}
		return
	}
	e.published.Store(&RegistryStats{Error: pkgerr.Message(err)})
	taken := errors.Is(err, registry.ErrOldEpoch)
	switch {
	case before != nil && !errors.Is(before, errRecordLost) && errors.Is(before, registry.ErrOldEpoch) == taken: // it is tried again and again
	case taken:
		e.log.Warn("another engine, started later, has this engine's name in the registry: peers find that one by it, and this one by its address alone; give one of them another name", "engine", e.name, "error", err)
	default:
		e.log.Warn("the registry does not have this engine: it is told again and again", "engine", e.name, "error", err)
	}
}

// The pause before an engine publishes again grows from minPublishPause to maxPublishPause, and to takenPause where
// its name is another's. It is drawn, so that engines that have lost their records together do not all come back
// together.
const (
	minPublishPause = 250 * time.Millisecond
	maxPublishPause = 5 * time.Second
	takenPause      = 30 * time.Second
)

var errRecordLost = errors.New("the registry has lost the record")

// keepPublished publishes the record when it has changed, and again when the registry has lost it; lease is nil
// where it is not published.
func (e *Engine) keepPublished(r registry.Record, lease registry.Lease) {
	defer func() {
		if lease == nil {
			return
		}
		if err := lease.Close(); err != nil {
			e.log.Warn("closing the lease of the registry", "error", err)
		}
	}()
	pause := minPublishPause
	for e.ctx.Err() == nil {
		if lease != nil {
			since := time.Now()
			select {
			case <-lease.Lost():
				e.notePublished(nil, errRecordLost)
				lease = nil
			case <-e.recordChanged:
				if now := e.Record(); r.Equal(&now) || len(now.Addresses) == 0 {
					continue
				}
			case <-e.ctx.Done():
				return
			}
			if time.Since(since) > takenPause { // else two engines may be taking it from each other
				pause = minPublishPause
			}
		}
		var next registry.Lease
		if next, pause = e.publishAgain(&r, pause); next == nil {
			return
		}
		lease = next // the registry has ended the former one
	}
}

// publishAgain publishes until the registry has taken the record; nil: the engine has ended, or the registry.
func (e *Engine) publishAgain(r *registry.Record, pause time.Duration) (registry.Lease, time.Duration) {
	for {
		if !rest(e.ctx, pause/2+rand.N(pause/2)) {
			return nil, 0
		}
		if now := e.Record(); len(now.Addresses) > 0 {
			*r = now
		}
		lease, err := e.registry.Publish(e.ctx, *r)
		if errors.Is(err, registry.ErrClosed) || e.ctx.Err() != nil && err != nil {
			return nil, 0
		}
		e.notePublished(lease, err)
		most := maxPublishPause
		if errors.Is(err, registry.ErrOldEpoch) {
			most = takenPause
		}
		pause = min(2*pause, most)
		if err == nil {
			return lease, pause
		}
	}
}

// rest waits; false: ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// noteRecordChange has the registry be told, where there is something new.
func (e *Engine) noteRecordChange() {
	select {
	case e.recordChanged <- struct{}{}:
	default: // it will look anyway
	}
}

// expect refuses engines that are not the one of a record, which answer where two hosts have an address in
// common. The same engine, started again, is later than its record.
func (e *Engine) expect(r *registry.Record) func(name string, epoch uint64) error {
	if r.Epoch == 0 {
		return nil
	}
	name, at := r.Name, r.Epoch
	return func(self string, epoch uint64) error {
		switch {
		case self != name:
			return fmt.Errorf("%w: it calls itself %q", ErrOtherEngine, self)
		case epoch == e.epoch && epoch != at:
			return fmt.Errorf("%w: it is this one, which is also called %q", ErrOtherEngine, self)
		case registry.Precedes(at, epoch, time.Now()):
			return fmt.Errorf("%w: it is also called %q, and was started earlier", ErrOtherEngine, self)
		}
		return nil
	}
}

// addressesFor are the addresses of a record that lead to its engine from a host of this boot. Loopback and
// link-local addresses of another host are others here; where it is not known whose they are, they come last.
func addressesFor(r *registry.Record, boot string) []netip.AddrPort {
	if r.Epoch == 0 || r.Boot != "" && r.Boot == boot {
		return r.Addresses // a user's, or those of this host
	}
	var out, last []netip.AddrPort
	for _, a := range r.Addresses {
		switch of := a.Addr().Unmap(); {
		case !of.IsLoopback() && (of.Is4() || !of.IsLinkLocalUnicast()):
			out = append(out, a)
		case r.Boot == "" || boot == "":
			last = append(last, a)
		}
	}
	return append(out, last...)
}

// follow looks at what the registry says of the peer for as long as that is open. Where it says that the
// engine was started again, the session asks: it finds out itself whether that is so, by the new addresses as
// well, and ends with ErrPeerRestarted then. What a registry says ends no session by itself.
func (p *Peer) follow() {
	e := p.engine
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	e.start(func() {
		select {
		case <-p.gone:
			cancel()
		case <-ctx.Done():
		}
	})
	e.watchRecord(ctx, p.name, func(r registry.Record) {
		p.mu.Lock()
		p.record = r
		p.mu.Unlock()
		if registry.Precedes(r.Epoch, p.epoch, time.Now()) {
			e.log.Info("the registry says that a peer was started again", "peer", p.name, "epoch", r.Epoch, "addresses", r.Addresses)
			asking, stop := context.WithTimeout(ctx, e.o.GiveUp)
			_ = p.ask(asking) // the end of the session says what came of it
			stop()
		}
	})
}

// watchRecord calls changed with the record of a name as it changes, until ctx ends, also where it is gone
// for a while; not at all where the registry cannot watch.
func (e *Engine) watchRecord(ctx context.Context, name string, changed func(registry.Record)) {
	for again := true; again; {
		err := e.registry.Watch(ctx, name, func(r registry.Record, gone bool) {
			if !gone && r.Epoch != 0 {
				changed(r)
			}
		})
		if errors.Is(err, registry.ErrNoWatch) || errors.Is(err, registry.ErrClosed) {
			return
		}
		again = rest(ctx, followPause/2+rand.N(followPause/2)) // the record is gone: it may come back
	}
}

// openUnlessMoved opens a peer by its record. Where that takes long, because nothing answers there, it looks
// whether the engine was started elsewhere: next is its record then.
func (e *Engine) openUnlessMoved(ctx context.Context, name string, record registry.Record) (p *Peer, next *registry.Record, err error) {
	if record.Epoch == 0 {
		p, err = e.openAt(ctx, name, record)
		return p, nil, err
	}
	trying, stop := context.WithCancel(ctx)
	defer stop()
	moved := make(chan registry.Record, 1)
	var looking sync.WaitGroup
	looking.Go(func() {
		if !rest(trying, patientTime) {
			return
		}
		e.watchRecord(trying, name, func(r registry.Record) {
			if r.Epoch != record.Epoch {
				select {
				case moved <- r:
				default:
				}
				stop()
			}
		})
	})
	p, err = e.openAt(trying, name, record)
	stop()
	looking.Wait()
	if err != nil && ctx.Err() == nil {
		select {
		case r := <-moved:
			return nil, &r, nil
		default:
		}
	}
	return p, nil, err
}

// patientTime is how long opening a peer may take before it is asked whether that is elsewhere.
const patientTime = 250 * time.Millisecond

// followPause is the time between two looks for the record of a peer that has none.
const followPause = time.Second
