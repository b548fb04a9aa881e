package rdma

import (
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// remoteRegion is what a key says for this connection.
type remoteRegion struct {
	bytes int64
	grant memory.Grant
	rkey  uint32
	iova  uint64
	err   error // why it cannot be touched at all
	stale error // why not over this connection
}

// maxRemotes bounds the keys that are kept in parsed form.
const maxRemotes = 1 << 12

// remoteOf is what the key of a peer's region says for this connection.
func (c *conn) remoteOf(r *transport.RemoteRegion) *remoteRegion {
	if x := c.remotes[r]; x != nil {
		return x
	}
	if len(c.remotes) >= maxRemotes {
		clear(c.remotes)
	}
	x := c.parseRemote(r)
	c.remotes[r] = x
	return x
}

func (c *conn) parseRemote(r *transport.RemoteRegion) *remoteRegion {
	text := r.Key[c.t.Name()]
	if old, ok := c.gone[r.ID]; ok && old == text || text == "" {
		return &remoteRegion{err: fmt.Errorf("rdma: %w: region %#x: %w", transport.ErrRefused, uint64(r.ID), memory.ErrNoRegion)}
	}
	k, err := parseKey(text)
	if err != nil {
		return &remoteRegion{err: fmt.Errorf("%w: %w: %w", transport.ErrRefused, memory.ErrNoRegion, err)}
	}
	x := &remoteRegion{bytes: k.bytes, grant: k.grant}
	if d := k.of(c.generation); d != nil {
		x.rkey, x.iova = d.rkey, d.iova
	} else {
		x.stale = &PortError{Local: c.local.String(), Remote: c.remote.String(),
			What: fmt.Sprintf("region %#x has no key for the peer's device", uint64(r.ID)), Advice: "the device was opened again, and the region's new key is on its way"}
	}
	return x
}

// errStale is for requests that another connection may carry.
var errStale = errors.New("not over this connection")

// refuse says what is against a span, nil if nothing is.
func (x *remoteRegion) refuse(o transport.Op, s *transport.Span) error {
	want := memory.PeerRead
	if o == transport.Write {
		want = memory.PeerWrite
	}
	var reason error
	switch {
	case x.err != nil:
		return x.err
	case x.grant&want == 0:
		reason = memory.ErrDenied
	case s.Bytes < 0 || s.RemoteOffset < 0 || s.RemoteOffset > x.bytes || s.Bytes > x.bytes-s.RemoteOffset:
		reason = memory.ErrRange
	case x.stale != nil:
		return fmt.Errorf("rdma: %w: %w: %w", transport.ErrClosed, errStale, x.stale)
	default:
		return nil
	}
	return fmt.Errorf("rdma: %w: %s of %d bytes at %d of region %#x: %w", transport.ErrRefused, want, s.Bytes, s.RemoteOffset, uint64(s.Remote.ID), reason)
}

// forget remembers that the peer's device refuses a region: it was closed, and its ID
// is never used again.
func (c *conn) forget(r *transport.RemoteRegion) {
	if len(c.gone) >= maxRemotes {
		clear(c.gone)
	}
	c.gone[r.ID] = r.Key[c.t.Name()]
	clear(c.remotes)
}
