package lanes

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/testkit/longtest"
)

const killBytes = 16 << 20

// content makes a batch's bytes known on the side that they come from.
func (n *nearEngine) content(l *lab, read bool, seed uint64) {
	n.t.Helper()
	if read {
		l.far.ask(ask{Do: "fill", Seed: seed, Bytes: killBytes})
	} else {
		fill(n.local.Bytes()[:killBytes], seed)
	}
}

// arrived verifies every byte on the other side.
func (n *nearEngine) arrived(l *lab, read bool, seed uint64) {
	n.t.Helper()
	bad := int64(0)
	if read {
		bad = wrong(n.local.Bytes()[:killBytes], seed)
	} else {
		bad = l.far.ask(ask{Do: "verify", Seed: seed, Bytes: killBytes}).Wrong
	}
	if bad > 0 {
		n.t.Fatalf("%d wrong bytes (read: %v)", bad, read)
	}
}

// Lanes die in the middle of transfers, loudly and silently, again and again: no
// batch fails, no byte is wrong, and each lane is used again when it is back. One
// of them carried the control connection.
func TestKills(t *testing.T) {
	kills := 4 // of which each two of lane, way and direction meet; 8 are all three
	if longtest.On() {
		kills = 20
	}
	const mbit = 300
	l := newLab(t, mbit, mbit)
	n := l.open(2, l.far.ask(ask{Do: "engine", Lanes: 2}))
	n.must(false, 0, killBytes)
	one := payload(mbit)
	var recovery, back []time.Duration
	for k := range kills {
		lane, silent, read := k%2, k/2%2 == 1, (k+k/2+k/4)%2 == 1
		kill, heal := l.down, l.up
		if silent {
			kill, heal = l.silence, l.heal
		}
		n.content(l, read, uint64(k))
		const healthy = 60 * time.Millisecond
		time.AfterFunc(healthy, func() { kill(lane) })
		took := n.must(read, 0, killBytes)
		n.arrived(l, read, uint64(k))
		// Without a lane, the other one would take so long for what was left.
		ideal := healthy + time.Duration((killBytes/one-2*healthy.Seconds())*float64(time.Second))
		recovery = append(recovery, took-ideal)
		heal(lane)
		back = append(back, n.usedAgain(lane))
		t.Logf("lane %d, silent: %v, read: %v: cost %v, back after %v", lane, silent, read,
			recovery[k].Round(time.Millisecond), back[k].Round(time.Millisecond))
	}
	slices.Sort(recovery)
	slices.Sort(back)
	t.Logf("%d kills: beyond what one lane needs for the rest, median %v, worst %v; back in use after median %v, worst %v",
		kills, recovery[kills/2].Round(time.Millisecond), recovery[kills-1].Round(time.Millisecond),
		back[kills/2].Round(time.Millisecond), back[kills-1].Round(time.Millisecond))
	if s := n.e.Stats(); s.Failed != 0 || s.Unsafe != 0 || s.Retries == 0 {
		t.Errorf("%d batches failed, %d were unsafe, %d slices were sent again", s.Failed, s.Unsafe, s.Retries)
	}
}

// usedAgain moves batches until a lane carries bytes of them.
func (n *nearEngine) usedAgain(lane int) time.Duration {
	n.t.Helper()
	start := time.Now()
	for before := n.lane(lane).Bytes; ; {
		n.must(false, 32<<20, 4<<20)
		if s := n.lane(lane); s.Bytes > before && s.Health == "healthy" {
			return time.Since(start)
		}
		if time.Since(start) > time.Minute {
			n.t.Fatalf("lane %d is not used again: %+v", lane, n.lane(lane))
		}
	}
}

// All lanes die: the batch ends with a clear error by its deadline, and where the
// peer could not be told, its memory stays out of use until it was.
func TestAllLanesDead(t *testing.T) {
	const deadline = 800 * time.Millisecond
	l := newLab(t, 300, 300)
	n := l.open(2, l.far.ask(ask{Do: "engine", Lanes: 2}))
	n.must(false, 0, killBytes)
	for k, fault := range []struct {
		name       string
		kill, heal func(int)
	}{{"silent", l.silence, l.heal}, {"down", l.down, l.up}} {
		n.content(l, false, uint64(100+k))
		time.AfterFunc(60*time.Millisecond, func() {
			fault.kill(0)
			fault.kill(1)
		})
		start := time.Now()
		_, err := n.move(false, 0, killBytes, deadline)
		took := time.Since(start)
		t.Logf("%s, after %v: %v", fault.name, took.Round(time.Millisecond), err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v; want the deadline in it", fault.name, err)
		}
		if took > deadline+time.Minute {
			t.Errorf("%s: it took %v to give up, the deadline was %v", fault.name, took, deadline)
		}
		_, again := n.move(false, 0, 4096, 500*time.Millisecond)
		if unsafe := errors.Is(err, engine.ErrUnsafeBuffer); unsafe != errors.Is(again, engine.ErrQuarantined) {
			t.Errorf("%s: unsafe: %v, and the next batch says %v", fault.name, unsafe, again)
		}
		fault.heal(0)
		fault.heal(1)
		// When a batch is let in again, nothing of the old one lands any more.
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if _, err = n.move(false, 0, 4096, 30*time.Second); err == nil {
				break
			}
			if time.Since(start) > time.Minute {
				t.Fatalf("%s: the peer's memory is still out of use: %v", fault.name, err)
			}
		}
		l.far.ask(ask{Do: "fill", Seed: 999, Bytes: killBytes})
		time.Sleep(300 * time.Millisecond)
		if bad := l.far.ask(ask{Do: "verify", Seed: 999, Bytes: killBytes}).Wrong; bad > 0 {
			t.Errorf("%s: %d bytes of a batch that failed landed afterwards", fault.name, bad)
		}
		n.must(false, 0, killBytes)
		n.arrived(l, false, uint64(100+k))
	}
}
