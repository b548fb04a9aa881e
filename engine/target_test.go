package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

// A peer that was stopped and started again is opened again, for all that use the target, and what belongs to its
// former life fails.
func TestTarget(t *testing.T) {
	checkLeaks(t)
	ctx := testContext(t)
	options := Options{Name: "server", Serve: Serve{Prepare: func(e *Engine) error {
		return errOf(e.Alloc(4096, RegionOptions{Name: "kv", Grant: memory.PeerRead | memory.PeerWrite}))
	}}}
	server := newEngine(t, options)
	options.Listen = []string{server.Addrs()[0].String()}
	client := newEngine(t, Options{Name: "client"})
	mine, err := client.Alloc(4096, RegionOptions{})
	must(t, err)
	target := client.Target(options.Listen[0])
	var last *Peer
	var theirs *RemoteRegion
	for range 3 {
		var mu sync.Mutex
		peers := map[*Peer]bool{}
		var users sync.WaitGroup
		for range 8 {
			users.Go(func() {
				p, err := target.Peer(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := p.Region(ctx, "kv")
				if err == nil {
					err = p.Write(ctx, mine.All(), r.At(0))
				}
				ok(t, err)
				mu.Lock()
				peers[p], theirs = true, r
				mu.Unlock()
			})
		}
		users.Wait()
		if len(peers) != 1 || peers[last] {
			t.Fatalf("%d peers; the former one among them: %v", len(peers), peers[last])
		}
		for p := range peers {
			last = p
		}
		must(t, server.Close())
		<-last.Done()
		again := make(chan *Engine)
		go func() {
			time.Sleep(50 * time.Millisecond) // the target looks for it meanwhile
			again <- newEngine(t, options)
		}()
		if _, err := target.Peer(ctx); err != nil {
			t.Error(err)
		}
		server = <-again
		if err := last.Write(ctx, mine.All(), theirs.At(0)); !errors.Is(err, ErrPeerLost) {
			t.Errorf("with the former peer: %v", err)
		}
	}
	if p, err := target.Peer(ctx); err != nil || p == last || len(client.Stats().Peers) != 1 {
		t.Errorf("%v, %v, %d peers", p, err, len(client.Stats().Peers))
	}
	must(t, target.Close())
	if _, err := target.Peer(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A target that is not there is waited for until the context ends; one that does not want us is not.
func TestTargetWaits(t *testing.T) {
	checkLeaks(t)
	client := newEngine(t, Options{})
	nobody := client.Target("127.0.0.1:1")
	short, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
	defer cancel()
	if _, err := nobody.Peer(short); !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody: %v", err)
	}
	stopped := make(chan error)
	go func() { stopped <- errOf(nobody.Peer(testContext(t))) }()
	time.Sleep(10 * time.Millisecond)
	must(t, nobody.Close())
	if err := <-stopped; !errors.Is(err, ErrClosed) {
		t.Errorf("closed meanwhile: %v", err)
	}
	guarded := newEngine(t, Options{Security: Security{Credentials: trust.Secret([]byte("a token of 16 bytes"))}})
	if _, err := client.Target(guarded.Addrs()[0].String()).Peer(testContext(t)); !errors.Is(err, ErrToken) {
		t.Errorf("without a token: %v", err)
	}
}
