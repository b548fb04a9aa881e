//go:build vmlab && linux && cgo

package rdma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/rdma"
	"github.com/topoctl/topoctl/test/vmlab"
)

// rawEnd is a transport without an engine, and its regions.
type rawEnd struct {
	t       *rdma.Transport
	table   *memory.Table
	regions map[memory.ID]*memory.Region
}

// rawTimeout ends connections to a queue pair that is gone within a second, where the
// default takes four: some checks make many of them. Nothing queues on these cables.
const rawTimeout = 15

func newRaw(rail int) (*rawEnd, transport.Endpoint, error) {
	t, err := rdma.New(rdma.Options{Devices: []string{vmlab.RDMADev(rail)}, Timeout: rawTimeout}, nil, nil)
	if err != nil {
		return nil, transport.Endpoint{}, err
	}
	offers := t.Offers()
	if len(offers) != 1 {
		return nil, transport.Endpoint{}, errors.Join(fmt.Errorf("%d offers: want one of rail %d", len(offers), rail), t.Close())
	}
	return &rawEnd{t: t, table: memory.NewTable(64), regions: map[memory.ID]*memory.Region{}}, offers[0], nil
}

// RawStarted is where a transport is.
type RawStarted struct {
	End      int
	Endpoint transport.Endpoint
	Caps     transport.Caps
	Name     string
}

// RawStart makes a transport.
func (f *Far) RawStart(rail int, s *RawStarted) error {
	r, at, err := newRaw(rail)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastRaw++
	f.raw[f.lastRaw] = r
	*s = RawStarted{f.lastRaw, at, r.t.Caps(), r.t.Name()}
	return nil
}

func (f *Far) rawOf(end int) (*rawEnd, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.raw[end]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("no transport %d", end)
}

// RawEnd closes a transport's table, after its Close.
func (f *Far) RawEnd(end int, _ *Nothing) error {
	r, err := f.rawOf(end)
	if err != nil {
		return err
	}
	f.mu.Lock()
	delete(f.raw, end)
	f.mu.Unlock()
	return errors.Join(r.t.Close(), r.table.Close())
}

// RawRegion says what a region is to be, or which one it is.
type RawRegion struct {
	End           int
	Name          string
	Grant         memory.Grant
	ID            memory.ID
	Offset, Bytes int64
	Data          []byte
	Left          time.Duration
}

// RawAdd makes a region.
func (f *Far) RawAdd(a RawRegion, out *transport.RemoteRegion) error {
	r, err := f.rawOf(a.End)
	if err != nil {
		return err
	}
	b, err := memory.Alloc(a.Bytes, memory.Options{})
	if err != nil {
		return err
	}
	m, err := r.table.Add(b, a.Name, "", a.Grant)
	if err != nil {
		return err
	}
	key, err := r.t.Register(m)
	if err != nil {
		return err
	}
	f.mu.Lock()
	r.regions[m.ID()] = m
	f.mu.Unlock()
	*out = transport.RemoteRegion{ID: m.ID(), Bytes: a.Bytes, Grant: a.Grant, Key: map[string]string{r.t.Name(): key}}
	return nil
}

func (f *Far) rawBytes(a RawRegion) ([]byte, error) {
	r, err := f.rawOf(a.End)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := r.regions[a.ID]
	if m == nil {
		return nil, fmt.Errorf("no region %#x", uint64(a.ID))
	}
	return m.Bytes(a.Offset, a.Bytes), nil
}

// RawRead gives bytes of a region.
func (f *Far) RawRead(a RawRegion, data *[]byte) error {
	b, err := f.rawBytes(a)
	*data = append([]byte(nil), b...)
	return err
}

// RawWrite fills bytes of a region.
func (f *Far) RawWrite(a RawRegion, _ *Nothing) error {
	a.Bytes = int64(len(a.Data))
	b, err := f.rawBytes(a)
	copy(b, a.Data)
	return err
}

// RawDrop closes a region as an engine does.
func (f *Far) RawDrop(a RawRegion, _ *Nothing) error {
	r, err := f.rawOf(a.End)
	if err != nil {
		return err
	}
	f.mu.Lock()
	m := r.regions[a.ID]
	delete(r.regions, a.ID)
	f.mu.Unlock()
	pinned := m.Pin()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Close(over) // fails for our pin
	err = r.t.Deregister(m)
	if pinned {
		m.Unpin()
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.Left)
	defer cancel()
	return errors.Join(err, m.Close(ctx))
}

// RawCall is one of the passive side's. Of its origin it has what gob carries: rights are the
// passive engine's own, and without them a peer may do all that regions grant.
type RawCall struct {
	End     int
	From    RawOrigin
	Conn    transport.ConnID
	Session transport.SessionID
	Request []byte
	Left    time.Duration // of its context
}

// RawOrigin is transport.Origin on its way to the other machine.
type RawOrigin struct {
	Session transport.SessionID
	Conn    transport.ConnID
	Name    string
	Account transport.Account
}

func rawOrigin(o transport.Origin) RawOrigin { return RawOrigin{o.Session, o.Conn, o.Name, o.Account} }

func (o RawOrigin) origin() transport.Origin {
	return transport.Origin{Session: o.Session, Conn: o.Conn, Name: o.Name, Account: o.Account}
}

func (c *RawCall) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.Left)
}

// RawAccept is Accept.
func (f *Far) RawAccept(c RawCall, answer *[]byte) error {
	r, err := f.rawOf(c.End)
	if err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	*answer, err = r.t.Accept(ctx, c.From.origin(), c.Request)
	return err
}

// RawLeave is Leave.
func (f *Far) RawLeave(c RawCall, _ *Nothing) error {
	r, err := f.rawOf(c.End)
	if err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	return r.t.Leave(ctx, c.From.origin(), c.Conn)
}

// RawLeaveAll is LeaveAll.
func (f *Far) RawLeaveAll(c RawCall, _ *Nothing) error {
	r, err := f.rawOf(c.End)
	if err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	return r.t.LeaveAll(ctx, c.Session)
}

// RawServed is Served.
func (f *Far) RawServed(end int, s *transport.Served) error {
	r, err := f.rawOf(end)
	if err == nil {
		*s = r.t.Served()
	}
	return err
}

// RawClose is Close.
func (f *Far) RawClose(end int, _ *Nothing) error {
	r, err := f.rawOf(end)
	if err != nil {
		return err
	}
	return r.t.Close()
}
