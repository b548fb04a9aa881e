// Package stage moves memory that only a device can touch, a GPU's, over transports
// that need memory of the host: through pinned staging buffers, in pieces, of which
// several are under way at a time, so that the copy of one overlaps the sending of
// another.
//
// Wrap does it for our own requests, over any transport: a request that touches
// device memory here is cut into parts, each with a buffer. A WRITE's part is copied
// to its buffer and then posted, a READ's is posted and then copied. The request
// completes when its last part has, so that a READ is in the device's memory by then.
//
// Bounce is for both sides, and what a transport uses whose passive side answers by
// itself: it lays spans out in a buffer and copies them. Such a transport gives its
// regions of device memory the key Key, which has peers ask for no more than
// memory.PieceBytes at a time.
package stage

import (
	"context"
	"fmt"
	"sync"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Key is the key of a region of device memory, of a transport that stages it.
const Key = "staged"

// Transport is a transport with staging for our own requests.
type Transport struct {
	transport.Transport
	regions *memory.Table
	direct  director
	conns   sync.WaitGroup

	mu    sync.Mutex
	pools map[*memory.Pool]error // registered with the transport, or why not
}

// director is what a transport is that touches some device memory by itself.
type director interface {
	Direct(r *memory.Region) bool
}

// Wrap adds staging to a transport. regions are the engine's.
func Wrap(t transport.Transport, regions *memory.Table) *Transport {
	w := &Transport{Transport: t, regions: regions, pools: map[*memory.Pool]error{}}
	w.direct, _ = transport.As[director](t)
	return w
}

// Unwrap gives the transport.
func (t *Transport) Unwrap() transport.Transport { return t.Transport }

// Register registers a region, and with it the buffers that requests of it go through,
// where it needs any: hardware takes long for that, and the first request would wait.
func (t *Transport) Register(r *memory.Region) (string, error) {
	key, err := t.Transport.Register(r)
	if err == nil && t.staged(r) {
		_, _ = t.pool(r.Device()) // where it fails, requests do, and say why
	}
	return key, err
}

// Dial makes a connection that stages.
func (t *Transport) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	c := &Conn{t: t, gone: make(chan struct{})}
	c.reports = transport.Reports{Mu: &c.mu, Conn: c, Events: d.Events}
	d.Events = transport.Events{Done: c.ended, Lost: c.lost}
	t.conns.Add(1)
	inner, err := t.Transport.Dial(ctx, d)
	if err != nil {
		t.conns.Done()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inner, c.limits = inner, inner.Limits()
	if p, ok := inner.(transport.Poller); ok {
		c.reports.Conn = &polled{c, p}
	}
	return c.reports.Conn, nil
}

// polled is a connection that can be polled.
type polled struct {
	*Conn
	transport.Poller
}

// Close ends all connections.
func (t *Transport) Close() error {
	err := t.Transport.Close()
	t.conns.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for pool, failed := range t.pools {
		if failed == nil {
			_ = t.Deregister(pool.Region()) // after Close there is nothing left of it
		}
	}
	clear(t.pools)
	return err
}

// pool gives the buffers of a device. The transport is told of their memory, which
// hardware must know.
func (t *Transport) pool(d memory.DeviceMemory) (*memory.Pool, error) {
	s, err := memory.PoolOf(d, memory.ForRequests)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err, known := t.pools[s]
	if !known {
		if _, err = t.Register(s.Region()); err != nil {
			err = fmt.Errorf("%s: staging buffers of %s: %w", t.Name(), d.Device(), err)
		}
		t.pools[s] = err
	}
	return s, err
}

// staged says whether the transport cannot touch a region's memory by itself.
func (t *Transport) staged(r *memory.Region) bool {
	return r.Device() != nil && (t.direct == nil || !t.direct.Direct(r))
}

// here says whether a span's memory on our side must be staged.
func (t *Transport) here(s *transport.Span) bool {
	return t.staged(s.Local)
}

// concerns says whether a request must be cut: because device memory of ours is in
// it, or because it asks for much of the peer's.
func (t *Transport) concerns(r *transport.Request, devices bool) bool {
	if devices {
		for i := range r.Spans {
			if t.here(&r.Spans[i]) {
				return true
			}
		}
	}
	if r.Bytes > memory.PieceBytes {
		for i := range r.Spans {
			if r.Spans[i].Remote.Key[t.Name()] == Key {
				return true
			}
		}
	}
	return false
}
