package session

import (
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// kept is a keeper whose clock is the test's, over a connection that nobody
// answers on.
func kept(t *testing.T, waiting bool) *keeper {
	a, b := net.Pipe()
	return keptOver(t, a, b, waiting)
}

func keptOver(t *testing.T, a, b net.Conn, waiting bool) *keeper {
	t.Helper()
	s := newSession(transport.SessionID{1}, trust.PeerID{}, welcome{messageBytes: 100, calls: 4}, Limits{}.withDefaults(), nil, sessionKey{})
	s.keeperWake = make(chan struct{}, 1)
	s.attach(a, 1, nil)
	// What is written sets the real time: the first message is read, and no other. The writer is done
	// with it when it takes another turn.
	if _, err := readMessage(b, someBounds); err != nil {
		t.Fatal(err)
	}
	s.link.wakeWriter()
	for len(s.link.wake) > 0 {
		time.Sleep(time.Millisecond)
	}
	if waiting {
		s.mu.Lock()
		s.sentCalls[1] = &sentCall{done: make(chan struct{})}
		s.mu.Unlock()
	}
	s.lastHeard.Store(int64(base))
	k := &keeper{s: s, o: DialOptions{Routes: func() []Route { return nil }}.withDefaults(), patience: 1, searchTime: firstSearchTime}
	k.searchResult = make(chan searchOutcome, 1)
	t.Cleanup(func() {
		k.endSearch()
		s.end(nil)
		<-s.finished
		_ = b.Close()
	})
	s.link.lastActive.Store(int64(base))
	return k
}

// run steps to a time, always when the keeper asks for it, and says whether it
// searches then.
func (k *keeper) runTo(t *testing.T, from, to time.Duration) bool {
	t.Helper()
	for now := from; now <= to; {
		wait, err := k.step(int64(now))
		if err != nil {
			t.Fatal(err)
		}
		if k.cancelSearch != nil {
			return true
		}
		now += wait
	}
	return false
}

const base = time.Hour // the test's clock: far from the real one

func TestSilenceIsFound(t *testing.T) {
	for _, c := range []struct {
		waiting bool
		until   time.Duration
		want    bool
	}{
		{true, 40 * time.Millisecond, false},
		{true, 120 * time.Millisecond, true},
		{false, 1400 * time.Millisecond, false},
		{false, 1800 * time.Millisecond, true},
	} {
		k := kept(t, c.waiting)
		if got := k.runTo(t, base, base+c.until); got != c.want {
			t.Errorf("waiting %v, %v: searches: %v", c.waiting, c.until, got)
		}
	}
}

// TestLateKeeperBlamesNobody: time in which our own process did not run is no
// silence of the peer's.
func TestLateKeeperBlamesNobody(t *testing.T) {
	for _, pause := range []time.Duration{200 * time.Millisecond, time.Minute} {
		k := kept(t, true)
		now := base + 45*time.Millisecond
		if k.runTo(t, base, now) {
			t.Fatal("searches")
		}
		now += pause
		wait, err := k.step(int64(now))
		if err != nil || k.cancelSearch != nil {
			t.Fatal(err, "searches at once")
		}
		k.s.link.lastActive.Store(int64(now)) // what had come is read
		k.s.lastHeard.Store(int64(now))
		if k.runTo(t, now+wait, now+40*time.Millisecond) {
			t.Error("searches")
		}
	}
}

// TestHungPeer: a process that stands still is given up though its kernel takes what we call,
// and one that takes a large message in slowly is not.
func TestHungPeer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells what a peer's kernel has taken (TCP_INFO)")
	}
	for _, slow := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		a, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		k := keptOver(t, a, b, true)
		written := make(chan struct{})
		if slow {
			go func() {
				defer close(written)
				for part := make([]byte, 8<<20); ; { // until a is closed
					if _, err := a.Write(part); err != nil {
						return
					}
				}
			}()
		} else {
			close(written)
		}
		var end error
		called, came := base, base
		for now := base; now < base+time.Minute && end == nil; {
			if now-called >= 4*time.Second { // a call goes out
				called = now
				k.s.link.lastActive.Store(int64(now))
			}
			if slow && now-came >= time.Second { // a part comes in, until the kernel has said so, and has more to send
				came = now
				before, _, _ := delivered(a)
				for bytes := before; bytes == before; bytes, _, _ = delivered(a) {
					if _, err := io.CopyN(io.Discard, b, 1<<20); err != nil {
						t.Fatal(err)
					}
				}
				for all := true; all; _, all, _ = delivered(a) { // the writer has its turn
					time.Sleep(100 * time.Microsecond)
				}
			}
			var wait time.Duration
			wait, end = k.step(int64(now))
			k.endSearch() // nobody is found
			now += wait
		}
		if slow != (end == nil) || end != nil && !errors.Is(end, ErrUnreachable) {
			t.Errorf("slow %v: %v", slow, end)
		}
		_ = a.Close()
		<-written
	}
}

// TestAlwaysLate: a machine that is always busy finds silence too.
func TestAlwaysLate(t *testing.T) {
	k := kept(t, true)
	now := base
	for range 100 {
		wait, err := k.step(int64(now))
		if err != nil {
			t.Fatal(err)
		}
		if k.cancelSearch != nil {
			return
		}
		now += wait + 100*time.Millisecond
	}
	t.Fatal("does not search")
}

// TestRefused: the peer is gone where its address refuses connections, but only if the one that it
// had is gone too.
func TestRefused(t *testing.T) {
	refused := searchOutcome{refused: ErrUnreachable, err: ErrUnreachable}
	k := kept(t, true)
	if !k.runTo(t, base, base+time.Second) {
		t.Fatal("does not search beside a silent connection")
	}
	k.endSearch()
	if k.adopt(refused) || k.s.Over() {
		t.Error("over although there is a connection")
	}
	l := k.s.link
	k.s.detach(l)
	l.close()
	if !k.runTo(t, base+time.Second, base+2*time.Second) {
		t.Fatal("does not search without a connection")
	}
	k.endSearch()
	if !k.adopt(refused) || !k.s.Over() || !errors.Is(k.s.endError(), ErrUnreachable) {
		t.Error("not over")
	}
}

func TestGiveUp(t *testing.T) {
	k := kept(t, true)
	now := base
	for {
		wait, err := k.step(int64(now))
		if err != nil {
			if !errors.Is(err, ErrUnreachable) || now < base+10*time.Second || now > base+11*time.Second {
				t.Fatal(now-base, err)
			}
			return
		}
		if now > base+time.Minute {
			t.Fatal("does not give up")
		}
		now += wait
	}
}
