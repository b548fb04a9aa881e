package engine

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
)

// mute accepts connections and says nothing.
func mute(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	return l.Addr().String()
}

// Open ends on a peer that accepts and says nothing, whatever its context.
func TestOpenMutePeer(t *testing.T) {
	e, err := New(t.Context(), Options{DefaultTimeout: 50 * time.Millisecond})
	must(t, err)
	defer e.Close()
	if _, err := e.Open(context.Background(), mute(t)); !errors.Is(err, ErrUnreachable) {
		t.Errorf("open: %v, want ErrUnreachable", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := e.Open(ctx, mute(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("open: %v, want the deadline", err)
	}
}

// Close ends the calls of Open that are running, and waits for them.
func TestCloseEndsOpen(t *testing.T) {
	checkLeaks(t)
	e, err := New(t.Context(), Options{})
	must(t, err)
	done := make(chan error, 1)
	address := mute(t)
	go func() {
		_, err := e.Open(context.Background(), address)
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	ok(t, e.Close())
	select {
	case err := <-done:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("open: %v, want ErrClosed", err)
		}
	case <-time.After(within):
		t.Fatal("Open still waits")
	}
}

// soon is a context that is over after a while: for what is not there, and is waited for.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A region that grants nothing is not offered, and a caller that asks for it gets an error when its time is over.
func TestRegionWithoutGrant(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 4096, fake.Options{})
	must(t, errOf(p.server.Alloc(4096, RegionOptions{Name: "mine alone"})))
	_, err := p.peer.Region(soon(t), "mine alone")
	want := `engine: peer "` + p.peer.Name() + `": region "mine alone": no such region: it offers ["kv"] (regions that grant nothing are not offered)`
	if !errors.Is(err, ErrNoRegion) || !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// An engine can be opened before it has its regions: a caller that wants one gets it when it is there, also where one of
// that name is gone, and is not asked again and again meanwhile.
func TestRegionIsWaitedFor(t *testing.T) {
	checkLeaks(t)
	server := newEngine(t, Options{Name: "server"})
	client := newEngine(t, Options{Name: "client"})
	p, err := client.Open(testContext(t), server.Addrs()[0].String())
	must(t, err)
	for round := range 20 {
		type found struct {
			r   *RemoteRegion
			err error
		}
		waiting, ctx := make(chan found, 4), testContext(t)
		for range cap(waiting) {
			go func() { r, err := p.Region(ctx, "kv"); waiting <- found{r, err} }()
		}
		if round%2 == 1 { // both orders of asking and offering
			time.Sleep(time.Millisecond)
		}
		other, err := server.Alloc(4096, RegionOptions{Name: "other", Grant: memory.PeerRead})
		must(t, err)
		r, err := server.Alloc(4096, RegionOptions{Name: "kv", Grant: memory.PeerRead})
		must(t, err)
		for range cap(waiting) {
			if f := <-waiting; f.err != nil || f.r.ID() != r.ID() {
				t.Fatalf("%v", f.err)
			}
		}
		for _, r := range []*Region{other, r} {
			must(t, r.Close(ctx))
		}
		eventually(t, "the client knows that it is closed", func() bool {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_, err := p.Region(gone, "kv")
			return err != nil
		})
	}

	// Waiting ends with the peer.
	ended := make(chan error, 1)
	go func() { _, err := p.Region(context.Background(), "kv"); ended <- err }()
	must(t, server.Close())
	if err := <-ended; !errors.Is(err, ErrPeerLost) {
		t.Errorf("%v", err)
	}
}
