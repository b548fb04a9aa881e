package transport

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"
	"time"
)

// ConnKey names the passive end of a connection. The peer chose the second part.
type ConnKey struct {
	Session SessionID
	Conn    ConnID
}

// MaxLeft is how many connections of a session are remembered as left.
const MaxLeft = 1024

// End is the passive end of a connection.
type End interface {
	// Leave ends it. Where it returns nil, nothing that was posted on the connection can
	// touch memory here any more.
	Leave(ctx context.Context) error
}

// Ends are the passive ends of a transport's connections. A connection is expected from
// Accept on, with what was agreed on (an A), then open (a P) and closed; and from Leave on
// it is never let in. The transport's mutex guards them: Leave, LeaveAll and Select take it,
// and everything else is called with it held.
type Ends[A any, P End] struct {
	mu       *sync.Mutex
	expected map[ConnKey]expectation[A]
	open     map[ConnKey]P
	left     map[SessionID]*leftConns
	sessions map[SessionID]int   // connections that are expected or open
	price    Price               // of a connection that is or was expected
	accounts map[ConnKey]Account // of those that paid it
}

type expectation[A any] struct {
	agreed A
	until  time.Time
}

// MakeEnds makes an empty table, which the transport's mutex guards. A connection costs the price
// from when it is expected until it is over; nil: it costs nothing.
func MakeEnds[A any, P End](mu *sync.Mutex, price Price) Ends[A, P] {
	return Ends[A, P]{
		mu: mu, expected: map[ConnKey]expectation[A]{}, open: map[ConnKey]P{},
		left: map[SessionID]*leftConns{}, sessions: map[SessionID]int{},
		price: price, accounts: map[ConnKey]Account{},
	}
}

// CheckNew refuses a connection that is expected, open or left.
func (e *Ends[A, P]) CheckNew(k ConnKey) error {
	_, expected := e.expected[k]
	_, open := e.open[k]
	if expected || open || e.left[k.Session].has(k.Conn) {
		return fmt.Errorf("connection %d was there before", k.Conn)
	}
	return nil
}

// Expect has a new connection let in until some time, if its peer may have another.
func (e *Ends[A, P]) Expect(k ConnKey, a Account, agreed A, until time.Time) error {
	if err := e.CheckNew(k); err != nil {
		return err
	}
	if err := e.price.Take(a); err != nil {
		return err
	}
	e.accounts[k] = a
	e.expected[k] = expectation[A]{agreed, until}
	e.sessions[k.Session]++
	return nil
}

// Expected is what was agreed on about a connection that may be let in now.
func (e *Ends[A, P]) Expected(k ConnKey, now time.Time) (agreed A, ok bool) {
	x, ok := e.expected[k]
	return x.agreed, ok && !now.After(x.until)
}

// Expire ends the expectation of connections that did not arrive in time.
func (e *Ends[A, P]) Expire(now time.Time) {
	for k, x := range e.expected {
		if now.After(x.until) {
			e.unexpect(k)
		}
	}
}

func (e *Ends[A, P]) unexpect(k ConnKey) {
	if _, ok := e.expected[k]; ok {
		delete(e.expected, k)
		e.countDown(k)
	}
}

func (e *Ends[A, P]) countDown(k ConnKey) {
	if e.sessions[k.Session]--; e.sessions[k.Session] == 0 {
		delete(e.sessions, k.Session)
	}
	if a, ok := e.accounts[k]; ok {
		delete(e.accounts, k)
		e.price.Give(a)
	}
}

// Account is the account that a connection counts for, which is or was expected.
func (e *Ends[A, P]) Account(k ConnKey) Account { return e.accounts[k] }

// Open notes the end of a connection that has arrived. It has paid the price where it was
// expected.
func (e *Ends[A, P]) Open(k ConnKey, p P) {
	if _, ok := e.expected[k]; ok {
		delete(e.expected, k)
	} else {
		e.sessions[k.Session]++
	}
	e.open[k] = p
}

// Find is the open end of a connection.
func (e *Ends[A, P]) Find(k ConnKey) (p P, ok bool) {
	p, ok = e.open[k]
	return p, ok
}

// All are the ends that are open.
func (e *Ends[A, P]) All() iter.Seq2[ConnKey, P] { return maps.All(e.open) }

// Select lists the open ends of which something is true; nil: all of them. It takes the mutex.
func (e *Ends[A, P]) Select(which func(P) bool) []P {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []P
	for _, p := range e.open {
		if which == nil || which(p) {
			list = append(list, p)
		}
	}
	return list
}

// Len is how many connections are expected, and how many are open.
func (e *Ends[A, P]) Len() (expected, open int) { return len(e.expected), len(e.open) }

// OfSession is how many connections of a session are expected or open.
func (e *Ends[A, P]) OfSession(s SessionID) int { return e.sessions[s] }

// Leave is the transport's Leave: the connection is never let in from now on, and its end
// is left where it is open. Whoever leaves it at the same time waits as well: an end stays
// open until it calls Close here. It takes the mutex.
func (e *Ends[A, P]) Leave(ctx context.Context, k ConnKey) error {
	e.mu.Lock()
	p, open := e.leave(k)
	e.mu.Unlock()
	if !open {
		return nil
	}
	return p.Leave(ctx)
}

// LeaveAll is Leave of all connections of a session, which is over and asks for no others.
func (e *Ends[A, P]) LeaveAll(ctx context.Context, s SessionID) error {
	e.mu.Lock()
	open := e.leaveAll(s)
	e.mu.Unlock()
	return LeaveEach(ctx, open)
}

func (e *Ends[A, P]) leave(k ConnKey) (p P, open bool) {
	e.unexpect(k)
	if e.left[k.Session] == nil {
		e.left[k.Session] = &leftConns{known: map[ConnID]bool{}}
	}
	e.left[k.Session].add(k.Conn)
	return e.Find(k)
}

func (e *Ends[A, P]) leaveAll(s SessionID) (open []P) {
	delete(e.left, s)
	for k := range e.expected {
		if k.Session == s {
			e.unexpect(k)
		}
	}
	for k, p := range e.open {
		if k.Session == s {
			open = append(open, p)
		}
	}
	return open
}

// Close forgets an end that touches nothing any more.
func (e *Ends[A, P]) Close(k ConnKey) {
	if _, ok := e.open[k]; ok {
		delete(e.open, k)
		e.countDown(k)
	}
}

// leftConns are the connections of a session that were left last.
type leftConns struct {
	known map[ConnID]bool
	list  []ConnID // in the order in which they were left
}

func (l *leftConns) has(c ConnID) bool { return l != nil && l.known[c] }

func (l *leftConns) add(c ConnID) {
	if l.known[c] {
		return
	}
	if len(l.list) == MaxLeft {
		delete(l.known, l.list[0])
		l.list = l.list[1:]
	}
	l.known[c] = true
	l.list = append(l.list, c)
}

// LeaveEach leaves several ends at the same time, and waits for all of them.
func LeaveEach[P End](ctx context.Context, ends []P) error {
	return errors.Join(Concurrently(ends, func(p P) error { return p.Leave(ctx) })...)
}

// Concurrently does something with every item at the same time, waits for all of it, and
// gives the errors in the order of the items, nil where there was none.
func Concurrently[T any](items []T, do func(T) error) []error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = do(item) })
	}
	wg.Wait()
	return errs
}
