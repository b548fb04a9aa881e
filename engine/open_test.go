package engine

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport/fake"
)

// mute accepts connections and says nothing.
func mute(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	address := mute(t)
	go func() {
		_, err := e.Open(context.Background(), address)
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("open: %v, want ErrClosed", err)
		}
	case <-time.After(within):
		t.Fatal("Open still waits")
	}
}

// A region that grants nothing is not offered, and who asks for it is told so.
func TestRegionWithoutGrant(t *testing.T) {
	checkLeaks(t)
	p, _ := fakePair(t, 4096, fake.Options{})
	if _, err := p.server.Alloc(4096, RegionOptions{Name: "mine alone"}); err != nil {
		t.Fatal(err)
	}
	_, err := p.peer.Region(testContext(t), "mine alone")
	if !errors.Is(err, ErrNoRegion) || !strings.Contains(err.Error(), `it offers ["kv"] (regions that grant nothing are not offered)`) {
		t.Errorf("%v", err)
	}
}
