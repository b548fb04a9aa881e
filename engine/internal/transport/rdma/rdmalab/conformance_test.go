//go:build vmlab && linux && cgo

package rdma

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
)

// The transport's contract, between two machines.
func TestConformance(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma, which this is about")
	}
	mended(t)
	h := transporttest.Harness{New: newEnds, RegionBytes: 256 << 10, Requests: 1000, Cycles: 9, Patience: 30 * time.Second, Uncounted: true}
	if *long {
		h.RegionBytes, h.Requests, h.Cycles = 1<<20, 10_000, 1000
	}
	transporttest.Run(t, h)
}

// newEnds has its active end here and its passive one on machine 2.
func newEnds(t testing.TB) *transporttest.Ends {
	const rail = 0
	near, at, err := newRaw(rail)
	if err != nil {
		t.Fatal(err)
	}
	wire := func(do string) {
		if err := (Action{Do: do, Rail: rail, Host: 1}).on(bounded(t), 1); err != nil {
			t.Error(err)
		}
	}
	var ends []int
	t.Cleanup(func() {
		for _, end := range ends {
			if err := ask("RawEnd", end, &Nothing{}); err != nil {
				t.Error(err)
			}
		}
	})
	newFar := func(t testing.TB) transporttest.End {
		f := &farTransport{t: t}
		mustAsk(t, "RawStart", rail, &f.RawStarted)
		ends = append(ends, f.End)
		return transporttest.End{Transport: f, Endpoint: f.Endpoint, Far: f}
	}
	return &transporttest.Ends{
		Active:  transporttest.End{Transport: near.t, Regions: near.table, Endpoint: at},
		Passive: newFar(t),
		Restart: newFar,
		Stall: func(on bool) {
			if on {
				wire("cut")
			} else {
				wire("splice")
			}
		},
		Hold: func(transport.Conn) func() {
			wire("hold")
			return func() { wire("splice") }
		},
	}
}

// farTransport is a transport on machine 2, as its passive side is used.
type farTransport struct {
	t testing.TB
	RawStarted
}

func (f *farTransport) Name() string         { return f.RawStarted.Name }
func (f *farTransport) Caps() transport.Caps { return f.RawStarted.Caps }

func (f *farTransport) Register(*memory.Region) (string, error) {
	return "", errors.New("regions of machine 2 are made there")
}

func (f *farTransport) Deregister(*memory.Region) error {
	return errors.New("regions of machine 2 are made there")
}

func (f *farTransport) Dial(context.Context, transport.Dial) (transport.Conn, error) {
	return nil, errors.New("machine 2 dials nobody")
}

func (f *farTransport) call(ctx context.Context, what string, c RawCall, reply any) error {
	c.End, c.Left = f.End, within
	if at, ok := ctx.Deadline(); ok {
		c.Left = time.Until(at)
	}
	done := make(chan error, 1)
	go func() { done <- ask(what, c, reply) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *farTransport) Accept(ctx context.Context, from transport.Origin, request []byte) ([]byte, error) {
	answer := new([]byte)
	err := f.call(ctx, "RawAccept", RawCall{From: rawOrigin(from), Request: request}, answer)
	if err != nil {
		return nil, err
	}
	return *answer, nil
}

func (f *farTransport) Leave(ctx context.Context, from transport.Origin, conn transport.ConnID) error {
	return f.call(ctx, "RawLeave", RawCall{From: rawOrigin(from), Conn: conn}, &Nothing{})
}

func (f *farTransport) LeaveAll(ctx context.Context, session transport.SessionID) error {
	return f.call(ctx, "RawLeaveAll", RawCall{Session: session}, &Nothing{})
}

func (f *farTransport) Served() (s transport.Served) {
	if err := ask("RawServed", f.End, &s); err != nil {
		f.t.Error(err)
	}
	return s
}

func (f *farTransport) Close() error { return ask("RawClose", f.End, &Nothing{}) }

// Add has machine 2 make a region.
func (f *farTransport) Add(name string, bytes int64, grant memory.Grant) (transporttest.FarRegion, error) {
	r := &farRegion{end: f.End}
	return r, ask("RawAdd", RawRegion{End: f.End, Name: name, Bytes: bytes, Grant: grant}, &r.remote)
}

// farRegion is a region of machine 2.
type farRegion struct {
	end    int
	remote transport.RemoteRegion
}

func (r *farRegion) Remote() *transport.RemoteRegion { return &r.remote }

func (r *farRegion) ReadAt(p []byte, off int64) (int, error) {
	var data []byte
	err := ask("RawRead", RawRegion{End: r.end, ID: r.remote.ID, Offset: off, Bytes: int64(len(p))}, &data)
	return copy(p, data), err
}

func (r *farRegion) WriteAt(p []byte, off int64) (int, error) {
	return len(p), ask("RawWrite", RawRegion{End: r.end, ID: r.remote.ID, Offset: off, Data: p}, &Nothing{})
}

func (r *farRegion) Close(ctx context.Context) error {
	left := within
	if at, ok := ctx.Deadline(); ok {
		left = time.Until(at)
	}
	return ask("RawDrop", RawRegion{End: r.end, ID: r.remote.ID, Left: left}, &Nothing{})
}
