package transporttest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Client is the active end of a connection and everything that it reported. What is against the rules
// of package transport fails the test.
type Client struct {
	Conn transport.Conn // what Dial gave
	p    *pair

	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each report
	state   map[*transport.Request]state
	ended   map[*transport.Request]transport.Completion
	open    int // requests that are posted, without end
	inEvent bool
	lost    bool
	lostErr error
	faults  []string // against the rules
	onDone  func()   // called inside Done, nil mostly
}

// state of a request that was handed to Post.
type state int

const (
	offered state = iota + 1 // Post has not returned
	taken
	completed
)

func newLink(p *pair) *Client {
	return &Client{
		p: p, changed: make(chan struct{}),
		state: map[*transport.Request]state{}, ended: map[*transport.Request]transport.Completion{},
	}
}

// NewClient is for a test that dials by itself, with Events. What the connection is goes to Conn.
func NewClient(t testing.TB) *Client {
	l := newLink(&pair{TB: t, h: Harness{Patience: time.Minute}})
	t.Cleanup(l.check)
	return l
}

// Post posts requests, which must all be taken.
func (l *Client) Post(requests ...*transport.Request) {
	l.p.Helper()
	if n := l.start(requests); n != len(requests) {
		l.p.Fatalf("%d of %d requests were taken: %s", n, len(requests), l.summary())
	}
}

// Wait waits for the ends of requests, and gives the first error. None of them may land later.
func (l *Client) Wait(requests ...*transport.Request) (first error) {
	l.p.Helper()
	for _, r := range requests {
		x := l.Ended(r)
		if x.MayLand {
			l.p.Errorf("a request may land: %v", x.Err)
		}
		if first == nil {
			first = x.Err
		}
	}
	return first
}

// Do posts requests, and waits.
func (l *Client) Do(requests ...*transport.Request) error {
	l.p.Helper()
	l.Post(requests...)
	return l.Wait(requests...)
}

// Ended waits for the end of a request.
func (l *Client) Ended(r *transport.Request) transport.Completion {
	l.p.Helper()
	if !l.wait([]*transport.Request{r}) {
		l.p.FailNow()
	}
	return l.End(r)
}

// Events are for Dial.
func (l *Client) Events() transport.Events {
	return transport.Events{Done: l.done, Lost: l.isLost}
}

func (l *Client) fault(format string, args ...any) {
	if len(l.faults) < 10 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

func (l *Client) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Client) done(c transport.Conn, completions []transport.Completion) {
	l.enter(c, "Done")
	l.mu.Lock()
	if calledFromPost() {
		l.fault("Done was called from inside Post")
	}
	l.record(completions)
	l.notify()
	onDone := l.onDone
	l.mu.Unlock()
	runtime.Gosched() // an event that overlaps with this one is seen on a single core too
	if onDone != nil {
		onDone()
	}
	l.exit()
}

func (l *Client) isLost(c transport.Conn, err error) {
	l.enter(c, "Lost")
	l.mu.Lock()
	if l.lost {
		l.fault("Lost was called twice")
	}
	if l.open > 0 {
		l.fault("Lost was called while %d requests had no completion", l.open)
	}
	l.lost, l.lostErr = true, err
	l.notify()
	l.mu.Unlock()
	l.exit()
}

// enter and exit see that events come one at a time and not after Lost.
func (l *Client) enter(c transport.Conn, event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inEvent {
		l.fault("%s was called while another event was being reported", event)
	}
	l.inEvent = true
	if event == "Done" && l.lost {
		l.fault("Done was called after Lost")
	}
	if l.Conn != nil && c != l.Conn {
		l.fault("%s was called with another connection", event)
	}
}

func (l *Client) exit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inEvent = false
}

// record takes completions, in the lock.
func (l *Client) record(completions []transport.Completion) {
	for _, c := range completions {
		switch l.state[c.Request] {
		case completed:
			l.fault("a request was completed twice")
			continue
		case taken:
			l.open--
		case offered:
		default:
			l.fault("a request was completed that was not posted")
			continue
		}
		if c.MayLand && (c.Err == nil || c.Request.Op != transport.Write) {
			l.fault("MayLand is set, but it is no failed WRITE (op %d, error %v)", c.Request.Op, c.Err)
		}
		l.state[c.Request] = completed
		l.ended[c.Request] = c
	}
}

// calledFromPost says whether this goroutine is inside link.post.
func calledFromPost() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "transporttest.(*Client).TryPost") {
			return true
		}
		if !more {
			return false
		}
	}
}

// TryPost calls Post once and says how many it took.
func (l *Client) TryPost(requests []*transport.Request) int {
	l.mu.Lock()
	for _, r := range requests {
		l.state[r] = offered
	}
	l.mu.Unlock()
	n, done := l.Conn.Post(requests, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > len(requests) {
		l.fault("Post took %d of %d requests", n, len(requests))
		n = max(0, min(n, len(requests)))
	}
	l.record(done)
	for i, r := range requests {
		switch {
		case i < n && l.state[r] == offered:
			l.state[r] = taken
			l.open++
			if l.lost {
				l.fault("Post took a request after Lost and did not complete it")
			}
		case i >= n && l.state[r] == completed:
			l.fault("a request was completed that Post did not take")
		case i >= n:
			delete(l.state, r)
		}
	}
	if len(done) > 0 {
		l.notify()
	}
	return n
}

// start posts all requests, as room comes, and does not wait for their ends. It
// says how many were taken before the connection ended.
func (l *Client) start(requests []*transport.Request) int {
	total := 0
	for total < len(requests) {
		l.mu.Lock()
		lost, changed := l.lost, l.changed
		l.mu.Unlock()
		if lost {
			return total
		}
		n := l.TryPost(requests[total:])
		total += n
		if n == 0 {
			if !l.await(changed) {
				return total
			}
		}
	}
	return total
}

// await waits for a report; false where none comes.
func (l *Client) await(changed chan struct{}) bool {
	timer := time.NewTimer(l.p.h.Patience)
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-timer.C:
		l.p.Errorf("connection %d: nothing happened for %v: %s", l.Conn.ID(), l.p.h.Patience, l.summary())
		return false
	}
}

func (l *Client) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d requests ended, %d have no completion, lost: %v", len(l.ended), l.open, l.lost)
}

// wait waits for the ends of requests that were taken.
func (l *Client) wait(requests []*transport.Request) bool {
	for _, r := range requests {
		for {
			l.mu.Lock()
			ended, changed := l.state[r] == completed, l.changed
			l.mu.Unlock()
			if ended {
				break
			}
			if !l.await(changed) {
				return false
			}
		}
	}
	return true
}

// do posts and waits; every request must end well.
func (l *Client) do(requests ...*transport.Request) {
	l.p.Helper()
	n := l.start(requests)
	if n < len(requests) {
		l.p.Fatalf("connection %d took %d of %d requests: %s", l.Conn.ID(), n, len(requests), l.summary())
	}
	if !l.wait(requests) {
		l.p.FailNow()
	}
	for _, r := range requests {
		if err := l.End(r).Err; err != nil {
			l.p.Fatalf("connection %d: request of %d bytes in %d spans: %v", l.Conn.ID(), r.Bytes, len(r.Spans), err)
		}
	}
}

// fails posts one request, which must fail, and gives its error.
func (l *Client) fails(r *transport.Request) error {
	l.p.Helper()
	if l.start([]*transport.Request{r}) != 1 || !l.wait([]*transport.Request{r}) {
		l.p.Fatalf("connection %d did not take or complete the request: %s", l.Conn.ID(), l.summary())
	}
	err := l.End(r).Err
	if err == nil {
		l.p.Fatalf("connection %d: the request succeeded", l.Conn.ID())
	}
	return err
}

// End is the end of a request, nothing as long as there was none.
func (l *Client) End(r *transport.Request) transport.Completion {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[r]
}

// WaitLost waits for Lost and gives its error.
func (l *Client) WaitLost() error {
	l.p.Helper()
	for {
		l.mu.Lock()
		lost, err, changed := l.lost, l.lostErr, l.changed
		l.mu.Unlock()
		if lost {
			return err
		}
		if !l.await(changed) {
			l.p.FailNow()
		}
	}
}

// HasEnded says whether a request has ended.
func (l *Client) HasEnded(r *transport.Request) bool { return l.End(r).Request != nil }

// LostNow says whether Lost came.
func (l *Client) LostNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// check reports what was against the rules until now.
func (l *Client) check() {
	l.p.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		l.p.Errorf("connection %d: %s", l.Conn.ID(), f)
	}
	l.faults = nil
}

// finish is called when both transports are closed: everything must have ended.
func (l *Client) finish() {
	l.mu.Lock()
	if !l.lost {
		l.fault("the transport is closed, and Lost was not called")
	}
	if l.open > 0 {
		l.fault("the transport is closed, and %d requests have no completion", l.open)
	}
	for r, c := range l.ended {
		if c.Err != nil && errors.Is(c.Err, transport.ErrClosed) == errors.Is(c.Err, transport.ErrRefused) {
			l.fault("a request of op %d failed with %q, which is not just one of ErrClosed and ErrRefused", r.Op, c.Err)
		}
	}
	l.mu.Unlock()
	l.check()
}
