package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
)

// asked is an engine whose application answers, and a peer that has it open.
func asked(t *testing.T, server Options) *Peer {
	t.Helper()
	server.Name = "server"
	s, c := newEngine(t, server), newEngine(t, Options{Name: "client"})
	p, err := c.Open(testContext(t), s.Addrs()[0].String())
	must(t, err)
	return p
}

func TestCall(t *testing.T) {
	checkLeaks(t)
	long := strings.Repeat("long ", 2000)
	p := asked(t, Options{Serve: Serve{Answer: func(_ context.Context, from trust.PeerID, request []byte) ([]byte, error) {
		switch string(request) {
		case "fail":
			return nil, errors.New("no such thing")
		case "fail at length":
			return nil, errors.New(long)
		case "too much":
			return make([]byte, MaxAnswerBytes+1), nil
		}
		return append([]byte(from.Claimed+": "), request...), nil
	}}})
	big := bytes.Repeat([]byte{7}, MaxCallBytes)
	for _, request := range [][]byte{nil, []byte("x"), big} {
		answer, err := p.Call(testContext(t), request)
		if err != nil || string(answer) != "client: "+string(request) {
			t.Errorf("%d bytes: %.20q, %v", len(request), answer, err)
		}
	}
	var remote *RemoteError
	if _, err := p.Call(testContext(t), []byte("fail")); !errors.As(err, &remote) || remote.Text != "no such thing" ||
		err.Error() != fmt.Sprintf("engine: peer %q: call: peer: no such thing", p.Name()) {
		t.Errorf("the application's error: %v", err)
	}
	if _, err := p.Call(testContext(t), []byte("fail at length")); !errors.As(err, &remote) || len(remote.Text) != maxCallError {
		t.Errorf("a long error: %.100v", err)
	}
	if _, err := p.Call(testContext(t), []byte("too much")); !errors.As(err, &remote) || !strings.Contains(remote.Text, "answer of 4194305 bytes: limit: 4194304") {
		t.Errorf("an answer that is too large: %v", err)
	}
	if _, err := p.Call(testContext(t), append(big, 0)); !errors.Is(err, ErrLimit) {
		t.Errorf("a request that is too large: %v", err)
	}
	// A peer that does not keep to the limits itself.
	if _, err := p.callEngine(testContext(t), methodAsk, append(big, 0)); !errors.As(err, &remote) || !strings.Contains(remote.Text, "request of 1048577 bytes") {
		t.Errorf("a request that is too large, sent all the same: %v", err)
	}
}

func TestCallNobodyAnswers(t *testing.T) {
	checkLeaks(t)
	p := asked(t, Options{})
	var remote *RemoteError
	if _, err := p.Call(testContext(t), nil); !errors.As(err, &remote) || !strings.Contains(remote.Text, "answers no calls") {
		t.Error(err)
	}
}

// So many run at a time and no more; the caller waits, and one that does not is refused.
func TestCallsAtATime(t *testing.T) {
	checkLeaks(t)
	var running, most atomic.Int32
	release := make(chan struct{})
	p := asked(t, Options{Serve: Serve{Answer: func(context.Context, trust.PeerID, []byte) ([]byte, error) {
		now := running.Add(1)
		defer running.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		<-release
		return nil, nil
	}}})
	var wg sync.WaitGroup
	for range 2 * maxPeerCalls {
		wg.Go(func() {
			ok(t, errOf(p.Call(testContext(t), nil)))
		})
	}
	eventually(t, "as many as may run do", func() bool { return running.Load() == maxPeerCalls })
	var remote *RemoteError
	if _, err := p.callEngine(testContext(t), methodAsk, nil); !errors.As(err, &remote) || !strings.Contains(remote.Text, "32 calls of one peer") {
		t.Errorf("one more: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Call(short, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for its turn: %v", err)
	}
	close(release)
	wg.Wait()
	if most.Load() != maxPeerCalls {
		t.Errorf("%d at a time, want %d", most.Load(), maxPeerCalls)
	}
}

// All peers together have a limit, too; whoever comes later is told.
func TestCallsOfAllPeers(t *testing.T) {
	checkLeaks(t)
	release, entered := make(chan struct{}), make(chan struct{})
	p := asked(t, Options{Limits: Limits{Calls: 1}, Serve: Serve{Answer: func(context.Context, trust.PeerID, []byte) ([]byte, error) {
		entered <- struct{}{}
		<-release
		return nil, nil
	}}})
	done := make(chan error, 1)
	go func() { _, err := p.Call(context.Background(), nil); done <- err }()
	<-entered
	var remote *RemoteError
	if _, err := p.Call(testContext(t), nil); !errors.As(err, &remote) || !strings.Contains(remote.Text, "all peers have 1 of 1: try again") {
		t.Errorf("one more: %v", err)
	}
	close(release)
	ok(t, <-done)
}

// The end of either engine, and of the deadline, ends the waiting.
func TestCallEnds(t *testing.T) {
	checkLeaks(t)
	entered := make(chan struct{}, 1)
	wait := func(ctx context.Context, _ trust.PeerID, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		<-ctx.Done() // as long as the peer is there
		return nil, ctx.Err()
	}
	p := asked(t, Options{Serve: Serve{Answer: wait}})
	asked := false
	for wait := 20 * time.Millisecond; !asked; wait *= 4 { // until the peer was asked in that time
		short, cancel := context.WithTimeout(t.Context(), wait)
		if _, err := p.Call(short, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("deadline: %v", err)
		}
		cancel()
		select {
		case <-entered:
			asked = true
		case <-time.After(wait):
		}
	}
	done := make(chan error, 1)
	go func() { _, err := p.Call(context.Background(), nil); done <- err }()
	<-entered
	ok(t, p.Close())
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := p.Call(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// A call whose connection dies runs once.
func TestCallSurvivesItsConnection(t *testing.T) {
	checkLeaks(t)
	var runs atomic.Int32
	entered, release := make(chan struct{}), make(chan struct{})
	s := newEngine(t, Options{Serve: Serve{Answer: func(context.Context, trust.PeerID, []byte) ([]byte, error) {
		runs.Add(1)
		entered <- struct{}{}
		<-release
		return []byte("done"), nil
	}}})
	x := newProxy(t, s.Addrs()[0].String())
	c := newEngine(t, Options{})
	p, err := c.Open(testContext(t), x.Address())
	must(t, err)
	done := make(chan error, 1)
	go func() {
		answer, err := p.Call(context.Background(), nil)
		if string(answer) != "done" {
			err = errors.Join(err, fmt.Errorf("answer %q", answer))
		}
		done <- err
	}()
	<-entered
	x.Cut()
	close(release)
	if err := <-done; err != nil || runs.Load() != 1 {
		t.Errorf("%v, ran %d times", err, runs.Load())
	}
}
