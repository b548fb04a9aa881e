package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/topoctl/topoctl/discover/topo"
	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// RemoteRegion is a region that a peer offers.
type RemoteRegion struct {
	peer     *Peer
	t        transport.RemoteRegion // without the keys
	name     string
	address  uint64 // 0: not told
	location pathsel.Location
	// keyed is t with the keys as they are now; reach are the carriers that can be
	// used with those, by bit.
	keyed  atomic.Pointer[transport.RemoteRegion]
	reach  atomic.Uint32
	closed atomic.Bool // by the peer
}

// setKeys replaces the peer's keys; requests that are under way have those of before.
func (r *RemoteRegion) setKeys(keys map[string]string) {
	if now := r.keyed.Load(); now != nil && maps.Equal(now.Key, keys) {
		return
	}
	x := r.t
	x.Key = keys
	r.keyed.Store(&x)
	r.reach.Store(r.peer.engine.reach(&x))
}

// Name is the region's name at the peer.
func (r *RemoteRegion) Name() string { return r.name }

// ID is the region's name on the wire.
func (r *RemoteRegion) ID() uint64 { return uint64(r.t.ID) }

// Size is the region's length in bytes.
func (r *RemoteRegion) Size() int64 { return r.t.Bytes }

// Address is where the memory is in the peer's process; false where the peer does not tell
// (RegionOptions.OfferAddress).
func (r *RemoteRegion) Address() (address uint64, ok bool) { return r.address, r.address != 0 }

// Location is where the memory is, "" not known.
func (r *RemoteRegion) Location() pathsel.Location { return r.location }

// Grant is what this engine may do with the region.
func (r *RemoteRegion) Grant() memory.Grant { return memory.Grant(r.t.Grant) }

// Peer is the peer that the region belongs to.
func (r *RemoteRegion) Peer() *Peer { return r.peer }

// At is a place in the region; Submit checks it.
func (r *RemoteRegion) At(offset int64) RemoteSpan { return RemoteSpan{r, offset} }

// ReadAt implements io.ReaderAt. It copies through a buffer of the engine; Submit with a
// region of your own is faster. Each piece of up to 1 MiB may take Options.DefaultTimeout.
func (r *RemoteRegion) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pkgerr.Errorf("engine", "peer %q: region %q: read at %d: %w", r.peer.name, r.name, off, ErrRange)
	}
	if off >= r.t.Bytes {
		return 0, io.EOF
	}
	short := int64(len(p)) > r.t.Bytes-off
	if short {
		p = p[:r.t.Bytes-off]
	}
	n, err := r.pieces(p, off, true)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// WriteAt implements io.WriterAt, in the same way as ReadAt.
func (r *RemoteRegion) WriteAt(p []byte, off int64) (int, error) {
	return r.pieces(p, off, false)
}

func (r *RemoteRegion) pieces(p []byte, off int64, read bool) (n int, err error) {
	e := r.peer.engine
	for n < len(p) || n == 0 && len(p) == 0 && !read {
		slot, err := e.bounce.get(e)
		if err != nil {
			return n, err
		}
		size := min(len(p)-n, bounceBytes)
		at := e.bounce.r.Span(slot*bounceBytes, int64(size))
		buffer := e.bounce.r.Bytes()[at.Offset : at.Offset+at.Length]
		if read {
			if err = r.peer.Read(context.Background(), at, r.At(off+int64(n))); err == nil {
				copy(p[n:], buffer)
			}
		} else {
			copy(buffer, p[n:])
			err = r.peer.Write(context.Background(), at, r.At(off+int64(n)))
		}
		// A batch that failed has left the local buffer, too.
		e.bounce.put(slot)
		if err != nil {
			return n, err
		}
		n += size
		if size == 0 {
			break
		}
	}
	return n, nil
}

const (
	bounceBytes = 1 << 20
	bounceSlots = 8
)

// bounce lends buffers to those who have no region.
type bounce struct {
	mu    sync.Mutex
	r     *Region // made when it is first wanted
	slots chan int64
}

func (b *bounce) get(e *Engine) (int64, error) {
	b.mu.Lock()
	if b.r == nil {
		r, err := e.Alloc(bounceSlots*bounceBytes, RegionOptions{Name: ".bounce"})
		if err != nil {
			b.mu.Unlock()
			return 0, pkgerr.Errorf("engine", "buffers for ReadAt and WriteAt: %w", errors.Unwrap(err))
		}
		b.r, b.slots = r, make(chan int64, bounceSlots)
		for i := range int64(bounceSlots) {
			b.slots <- i
		}
	}
	b.mu.Unlock()
	slot := <-b.slots
	if !b.r.pin() {
		b.slots <- slot
		return 0, pkgerr.Errorf("engine", "buffers for ReadAt and WriteAt: %w", errEngineClosed)
	}
	return slot, nil
}

func (b *bounce) put(slot int64) {
	b.r.r.Unpin()
	b.slots <- slot
}

func (b *bounce) region() *Region {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.r
}

// Topology is that of the peer's host, nil if the peer did not send it.
func (p *Peer) Topology() *topo.Topology {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.topology
}

// Region finds a region of the peer by name, and waits for one that is not there yet: a peer that was just
// started can be opened before it has made its regions, and tells of them as they come. ctx bounds that;
// without a deadline, Options.DefaultTimeout does. If the peer does not offer it by then, the error wraps ErrNoRegion and
// ctx's.
func (p *Peer) Region(ctx context.Context, name string) (*RemoteRegion, error) {
	bounded, cancel := p.engine.bounded(ctx)
	defer cancel()
	for asked := false; ; {
		if err := p.Err(); err != nil {
			return nil, err
		}
		p.mu.RLock()
		r, change := p.regions[name], p.change
		p.mu.RUnlock()
		if r != nil {
			return r, nil
		}
		if !asked { // what the peer tells by itself may be on its way
			if err := p.ask(bounded); err != nil {
				return nil, err
			}
			asked = true
			continue
		}
		select {
		case <-change:
		case <-p.gone:
		case <-bounded.Done():
			err := fmt.Errorf("region %q: %w: it offers %s (regions that grant nothing are not offered)", name, ErrNoRegion, p.offers())
			return nil, pkgerr.Errorf("engine", "peer %q: %w", p.name, &knownError{err, []error{bounded.Err()}})
		}
	}
}

// offers lists some of the peer's regions, for a message.
func (p *Peer) offers() string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	names := []string{}
	for i := range p.desc.Regions {
		if i == 8 {
			return fmt.Sprintf("%q and %d others", names, len(p.desc.Regions)-i)
		}
		names = append(names, p.desc.Regions[i].Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%q", names)
}

// Regions asks the peer which regions it offers, and lists them in the order of IDs.
func (p *Peer) Regions(ctx context.Context) ([]*RemoteRegion, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := p.ask(ctx); err != nil {
		return nil, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Clone(p.ordered), nil
}

// setRegions keeps the regions that are still there as they are: users hold them.
func (p *Peer) setRegions(d *peerdoc.Descriptor) {
	ordered := make([]*RemoteRegion, len(d.Regions))
	var opened []*RemoteRegion
	for i := range d.Regions {
		x := &d.Regions[i]
		r := p.byID[x.ID]
		if r == nil {
			r = &RemoteRegion{peer: p, name: x.Name, address: x.Address, location: pathsel.Location(x.Location)}
			r.t = transport.RemoteRegion{ID: x.ID, Bytes: x.Bytes}
			if x.Read {
				r.t.Grant |= mem.PeerRead
			}
			if x.Write {
				r.t.Grant |= mem.PeerWrite
			}
			opened = append(opened, r)
		}
		r.setKeys(x.Keys)
		ordered[i] = r
	}
	at := 0
	for _, r := range p.ordered {
		for at < len(ordered) && ordered[at].t.ID < r.t.ID {
			at++
		}
		if at == len(ordered) || ordered[at] != r {
			r.closed.Store(true)
			delete(p.byID, r.t.ID)
			delete(p.regions, r.name)
		}
	}
	for _, r := range opened { // a name may be that of one that is closed
		p.byID[r.t.ID], p.regions[r.name] = r, r
	}
	p.ordered = ordered
	p.offered.Store(int64(len(ordered)))
}
