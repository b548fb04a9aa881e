package transport

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func key(session byte, conn int) ConnKey {
	return ConnKey{Session: SessionID{session}, Conn: ConnID(conn)}
}

// end is a passive end that has ended at once.
type end int

func (end) Leave(context.Context) error { return nil }

// A connection is let in once, in time, and not after it was left.
func TestEnds(t *testing.T) {
	now := time.Now()
	e := MakeEnds[string, end](new(sync.Mutex), nil)
	expect := func(k ConnKey, agreed string, until time.Time) {
		if err := e.Expect(k, "a", agreed, until); err != nil {
			t.Error(err)
		}
	}
	expect(key(1, 1), "in time", now.Add(time.Second))
	expect(key(1, 2), "late", now.Add(-time.Second))
	if e.CheckNew(key(1, 1)) == nil || e.CheckNew(key(1, 3)) != nil || e.OfSession(SessionID{1}) != 2 {
		t.Error("one is expected and may come again, or is new and may not")
	}
	if agreed, ok := e.Expected(key(1, 1), now); !ok || agreed != "in time" {
		t.Errorf("%q, %t", agreed, ok)
	}
	if _, ok := e.Expected(key(1, 2), now); ok {
		t.Error("a late one is let in")
	}
	e.Expire(now)
	e.Open(key(1, 1), 11)
	e.Open(key(2, 1), 21)
	if expected, open := e.Len(); expected != 0 || open != 2 || e.CheckNew(key(1, 1)) == nil {
		t.Errorf("%d expected, %d open", expected, open)
	}
	if p, ok := e.leave(key(1, 1)); !ok || p != 11 {
		t.Errorf("left %d, %t", p, ok)
	}
	e.Close(key(1, 1))
	e.Close(key(1, 1))
	if e.OfSession(SessionID{1}) != 0 || e.CheckNew(key(1, 1)) == nil {
		t.Error("a connection that was left is still counted, or may come again")
	}
	expect(key(2, 5), "", now.Add(time.Second))
	if open := e.leaveAll(SessionID{2}); len(open) != 1 || open[0] != 21 || e.OfSession(SessionID{2}) != 1 {
		t.Errorf("of the session: %v", open)
	}
}

// A place is taken from Expect until the end, whichever it is, and one peer's sessions together
// cannot have all.
func TestPlaces(t *testing.T) {
	places := NewShares("connections", 4)
	e := MakeEnds[string, end](new(sync.Mutex), Price{{Of: places, N: 1}})
	now := time.Now()
	want := func(taken int64, when string) {
		t.Helper()
		if n, _ := places.Taken(); n != taken {
			t.Errorf("%d places are taken %s, want %d", n, when, taken)
		}
	}
	expect := func(k ConnKey, a Account) error { return e.Expect(k, a, "", now) }
	var full *FullError
	if expect(key(1, 1), "a") != nil || expect(key(2, 1), "a") != nil || !errors.As(expect(key(3, 1), "a"), &full) {
		t.Error("not half of all for one peer")
	}
	if err := expect(key(1, 1), "b"); err == nil || errors.As(err, &full) {
		t.Errorf("expected twice: %v", err)
	}
	if expect(key(9, 1), "b") != nil {
		t.Error("nothing for another peer")
	}
	want(3, "by three that are expected")
	e.Open(key(1, 1), 11)
	want(3, "when one has arrived")
	e.Close(key(1, 1))
	e.Close(key(1, 1))
	want(2, "when it is over")
	e.leave(key(2, 1))
	want(1, "when one was left")
	e.Expire(now.Add(time.Second))
	want(0, "when one did not arrive")
	e.Open(key(1, 7), 17)
	e.Close(key(1, 7))
	want(0, "by one that was not expected")
}

// What a session leaves is remembered within bounds, and makes none of another be forgotten.
func TestLeftIsBounded(t *testing.T) {
	e := MakeEnds[string, end](new(sync.Mutex), nil)
	e.leave(key(2, 1))
	for i := range 2 * MaxLeft {
		e.leave(key(1, i))
		e.leave(key(1, i))
	}
	if l := e.left[SessionID{1}]; len(l.known) != MaxLeft || len(l.list) != MaxLeft {
		t.Errorf("%d and %d are remembered", len(l.known), len(l.list))
	}
	if e.CheckNew(key(1, 2*MaxLeft-1)) == nil || e.CheckNew(key(2, 1)) == nil {
		t.Error("the last ones, or another session's, are forgotten")
	}
	e.leaveAll(SessionID{1})
	if len(e.left) != 1 {
		t.Errorf("%d sessions are remembered, one is over", len(e.left))
	}
}
