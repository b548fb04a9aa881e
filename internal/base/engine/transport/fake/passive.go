package fake

import (
	"errors"
	"fmt"
	"sync"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

var errLeft = errors.New("the peer has left the connection")

// passive is the end of a connection that answers. Its lock is held while bytes
// move, so that leave returns only when none do.
type passive struct {
	transport *Transport
	key       transport.ConnKey
	conn      *Conn

	mu   sync.Mutex
	left bool
}

// leave ends it: nothing lands any more when this returns.
func (p *passive) leave() {
	p.mu.Lock()
	p.left = true
	p.mu.Unlock()
	p.conn.die(fmt.Errorf("%s: connection %d: %w", p.transport.options.Name, p.conn.id, errLeft))
	p.unbook()
}

// unbook takes it out of its transport's books, when nothing is on the wire.
func (p *passive) unbook() {
	p.transport.mu.Lock()
	defer p.transport.mu.Unlock()
	p.transport.ends.Close(p.key)
}

// serve checks spans against the table of regions and moves their bytes. sent, if
// not nil, is what was in the poster's memory when the request went out.
func (p *passive) serve(op transport.Op, spans []transport.Span, sent []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return errLeft
	}
	t := p.transport
	t.requests.Add(1)
	want := memory.PeerRead
	if op == transport.Write {
		want = memory.PeerWrite
	}
	pinned := make([]*memory.Region, 0, len(spans))
	defer func() {
		for _, region := range pinned {
			region.Unpin()
		}
	}()
	for _, s := range spans {
		region, err := t.regions.Pin(s.Remote.ID, uint64(s.RemoteOffset), uint64(s.Bytes), want)
		if err != nil {
			t.refused.Add(1)
			return fmt.Errorf("%s: %q: %w: %w", t.options.Name, t.address, transport.ErrRefused, err)
		}
		pinned = append(pinned, region)
	}
	for i, s := range spans {
		there := pinned[i].Bytes(s.RemoteOffset, s.Bytes)
		switch {
		case op == transport.Read:
			t.readBytes.Add(int64(copy(s.Local.Bytes(s.LocalOffset, s.Bytes), there)))
		case sent != nil:
			t.writtenBytes.Add(int64(copy(there, sent)))
			sent = sent[s.Bytes:]
		default:
			t.writtenBytes.Add(int64(copy(there, s.Local.Bytes(s.LocalOffset, s.Bytes))))
		}
	}
	return nil
}
