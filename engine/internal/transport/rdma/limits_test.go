//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// However many sessions peers open, and whether their connections arrive or not: none of them gets more than a
// quarter of the queue pairs, and a part is left for our own lanes.
func TestManySessionsCannotTakeAll(t *testing.T) {
	const all = 100
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, MaxQueuePairs: all})
	q := connectRequest()
	q.target, q.generation = w.b.Offers()[0].Port, w.b.openDevices()[0].generation
	q.toGID, q.from.gid = g(0, v2, "10.0.0.2", 0).raw(), g(0, v2, "10.0.0.1", 0).raw()
	peers := map[transport.Account]int{}
	for session := range byte(50) {
		if session == 30 { // three peers have what they may
			w.works(w.dial())
		}
		for id := range transport.ConnID(50) {
			from := transport.Origin{Session: transport.SessionID{100 + session}, Conn: id, Name: "a", Account: transport.Account(fmt.Sprint(session / 10))}
			if _, err := w.b.Accept(t.Context(), from, q.encode()); err != nil {
				if !errors.Is(err, ErrBudget) {
					t.Fatal(err)
				}
				break
			}
			peers[from.Account] += len(q.qps)
			if id%2 == 0 {
				if _, err := w.b.Accept(t.Context(), from, (&request{kind: askArrived}).encode()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w.b.mu.Lock()
	if w.b.qps > all*3/4 {
		t.Errorf("peers got %d of %d queue pairs", w.b.qps, all)
	}
	w.b.mu.Unlock()
	if len(peers) < 4 {
		t.Errorf("%d of 5 peers got queue pairs", len(peers))
	}
	for peer, n := range peers {
		if n > all/4 {
			t.Errorf("peer %s got %d of %d queue pairs", peer, n, all)
		}
	}
	for session := range byte(50) {
		if err := w.b.LeaveAll(t.Context(), transport.SessionID{100 + session}); err != nil {
			t.Error(err)
		}
	}
}

// What a session leaves does not make another one's connections be forgotten.
func TestLeftIsKeptForEachSession(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour})
	e, d := w.request()
	if err := w.b.Leave(t.Context(), w.origin(d.Conn), d.Conn); err != nil {
		t.Fatal(err)
	}
	other := transport.Origin{Session: transport.SessionID{77}}
	for id := range transport.ConnID(2 * transport.MaxLeft) {
		if err := w.b.Leave(t.Context(), other, id); err != nil {
			t.Fatal(err)
		}
	}
	d.Remote = w.b.Offers()[0]
	var err error
	if e.Conn, err = w.a.Dial(t.Context(), d); err == nil {
		t.Error("a connection that was left was let in")
		e.Conn.Close(nil)
	} else {
		says(t, err, fmt.Sprintf("connection %d was there before", d.Conn))
	}
	if err := w.b.LeaveAll(t.Context(), other.Session); err != nil {
		t.Fatal(err)
	}
}

// Completions of queue pairs that are gone keep their places in the queue until they are
// taken: connections that come and go do not make it overflow.
func TestCompletionQueueDoesNotOverflow(t *testing.T) {
	devices := ethernetDevices()
	devices[0].Limits.MaxCQE = 40
	w := newWorld(t, verbsfake.Options{Devices: devices, KeepCompletions: true}, Options{KeepAlive: time.Hour, Watch: time.Hour, QueuePairs: 1, Depth: 4, FlushTime: time.Millisecond})
	dev := w.a.openDevices()[0]
	dev.turn.Lock() // nobody takes completions
	refused := false
	for end := time.Now().Add(patience); !refused && time.Now().Before(end); {
		_, d := w.request()
		d.Remote = w.b.Offers()[0]
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		exchange := d.Exchange
		d.Exchange = func(ctx context.Context, request []byte) ([]byte, error) {
			defer time.AfterFunc(5*time.Millisecond, cancel) // nobody takes the completion that it waits for
			return exchange(ctx, request)
		}
		_, err := w.a.Dial(ctx, d)
		cancel()
		if refused = errors.Is(err, ErrBudget); refused {
			says(t, err, "the completion queue of 40 entries has no room")
			break
		}
		eventually(t, "the queue pair is not gone", func() bool {
			w.a.mu.Lock()
			defer w.a.mu.Unlock()
			return w.a.qps == 0
		})
	}
	if !refused {
		t.Error("queue pairs were made beyond what the completion queue holds")
	}
	dev.turn.Unlock()
	for range 60 { // and its places come back
		e := w.dial()
		w.works(e)
		e.Conn.Close(nil)
		_ = e.WaitLost()
	}
	if d := w.a.openDevices(); len(d) != 1 || d[0] != dev {
		t.Error("the device was lost")
	}
}

// A Dial whose device goes does not wait for the peer.
func TestDialEndsWithItsDevice(t *testing.T) {
	w := newWorld(t, verbsfake.Options{}, Options{KeepAlive: time.Hour, Watch: time.Hour})
	_, d := w.request()
	d.Remote = w.b.Offers()[0]
	asked := make(chan struct{})
	d.Exchange = func(ctx context.Context, _ []byte) ([]byte, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	gone := errors.New("it was pulled out")
	go func() {
		<-asked
		w.a.openDevices()[0].lose(gone)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := w.a.Dial(ctx, d); !errors.Is(err, gone) {
		t.Errorf("Dial: %v", err)
	}
	if ctx.Err() != nil {
		t.Error("Dial has waited for the peer")
	}
}

// Work requests are no longer than what the peer's port takes.
func TestPeersLargestMessage(t *testing.T) {
	devices := ethernetDevices()
	for i := range devices {
		if devices[i].Name[0] == 'b' {
			devices[i].Ports[0].MaxMsgBytes = 8192
		}
	}
	w := newWorld(t, verbsfake.Options{Devices: devices}, Options{QueuePairs: 1, KeepAlive: time.Hour})
	e := w.dial()
	if n := e.Conn.(*conn).maxMsg; n != 8192 {
		t.Errorf("messages of %d bytes to a port that takes 8192", n)
	}
	here, there := w.a.region(1<<16, memory.None), w.b.region(1<<16, both)
	if err := e.Do(requestOf(transport.Write, span(here, 0, w.b.remote(there), 0, 1<<16))); err != nil {
		t.Error(err)
	}
	_, err := parsePort("rdma1 b0/1 link=eth state=active mtu=4096 msg=1")
	says(t, err, "msg=1")
	if p, err := parsePort("rdma1 b0/1 link=eth state=active mtu=4096"); err != nil || p.maxMsg != 0 {
		t.Errorf("%+v %v: want the largest message not known", p, err)
	}
}
