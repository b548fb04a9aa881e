package transporttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
)

// broken is a fake that breaks a rule: hooks that are nil leave things alone.
type broken struct {
	transport.Transport
	dial   func(ctx context.Context, d transport.Dial, next func(context.Context, transport.Dial) (transport.Conn, error)) (transport.Conn, error)
	leave  func(from transport.Origin, id transport.ConnID, next func(transport.Origin) error) error
	done   func(c *brokenConn, done []transport.Completion)
	lost   func(c *brokenConn, err error)
	post   func(c *brokenConn, r []*transport.Request, done []transport.Completion) (int, []transport.Completion)
	limits func(transport.Caps) transport.Caps
	served func(transport.Served) transport.Served
}

type brokenConn struct {
	transport.Conn
	b      *broken
	events transport.Events
	kept   []transport.Completion
}

func (b *broken) Dial(ctx context.Context, d transport.Dial) (transport.Conn, error) {
	c := &brokenConn{b: b, events: d.Events}
	d.Events = transport.Events{
		Done: func(_ transport.Conn, done []transport.Completion) {
			if b.done != nil {
				b.done(c, done)
			} else {
				c.events.Done(c, done)
			}
		},
		Lost: func(_ transport.Conn, err error) {
			if b.lost != nil {
				b.lost(c, err)
			} else {
				c.events.Lost(c, err)
			}
		},
	}
	next := b.Transport.Dial
	if b.dial != nil {
		next = func(ctx context.Context, d transport.Dial) (transport.Conn, error) {
			return b.dial(ctx, d, b.Transport.Dial)
		}
	}
	conn, err := next(ctx, d)
	if err != nil {
		return nil, err
	}
	c.Conn = conn
	return c, nil
}

func (c *brokenConn) Post(r []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
	if c.b.post != nil {
		return c.b.post(c, r, done)
	}
	return c.Conn.Post(r, done)
}

func (c *brokenConn) Limits() transport.Caps {
	if c.b.limits != nil {
		return c.b.limits(c.Conn.Limits())
	}
	return c.Conn.Limits()
}

func (b *broken) Leave(ctx context.Context, from transport.Origin, id transport.ConnID) error {
	next := func(from transport.Origin) error { return b.Transport.Leave(ctx, from, id) }
	if b.leave != nil {
		return b.leave(from, id, next)
	}
	return next(from)
}

func (b *broken) Served() transport.Served {
	if b.served != nil {
		return b.served(b.Transport.Served())
	}
	return b.Transport.Served()
}

// brokenHarness has the same rules broken at both ends.
func brokenHarness(b broken) Harness {
	h := Harness{RegionBytes: 1 << 18, Requests: 500, Cycles: 20}
	h.New = func(testing.TB) *Ends {
		n := fake.NewNetwork()
		active, passive := memory.NewTable(16), memory.NewTable(16)
		o := fake.Options{Latency: 10 * time.Microsecond} // so that time passes under load
		from, to := n.Transport("a", active, o), n.Transport("b", passive, o)
		activeB, passiveB := b, b
		activeB.Transport, passiveB.Transport = from, to
		return &Ends{
			Active:  End{Transport: &activeB, Regions: active, Endpoint: from.Endpoint("")},
			Passive: End{Transport: &passiveB, Regions: passive, Endpoint: to.Endpoint("")},
			Stall: func(on bool) {
				for _, c := range from.Conns() {
					c.Stall(on)
				}
			},
			Hold: func(c transport.Conn) func() {
				conn := c.(*brokenConn).Conn.(*fake.Conn)
				conn.HoldWrites()
				return func() { conn.ReleaseWrites() }
			},
		}
	}
	return h
}

// each calls f with each completion, changed in place.
func each(f func(c *brokenConn, d *transport.Completion)) func(*brokenConn, []transport.Completion) {
	return func(c *brokenConn, done []transport.Completion) {
		for i := range done {
			f(c, &done[i])
		}
		c.events.Done(c, done)
	}
}

// The suite finds each of these, in virtual time.
func TestSuiteFindsWhatIsBroken(t *testing.T) {
	// Of each case: what hangs or leaks by intention goes on until stop is closed.
	var stop chan struct{}
	var leakers *sync.WaitGroup
	background := context.Background()
	local := func(d *transport.Completion, at int64) *byte {
		s := d.Request.Spans[0]
		return &s.Local.Bytes(0, 1<<18)[(s.LocalOffset+at)%(1<<18)]
	}
	posted := 0
	for _, c := range []struct {
		rule, check, says string
		broken            broken
	}{
		{"completes twice", "move/sizes", "completed twice", broken{done: func(c *brokenConn, done []transport.Completion) {
			c.events.Done(c, done)
			c.events.Done(c, done)
		}}},
		{"does not complete what fails", "close/peer does not answer", "had no completion", broken{done: func(c *brokenConn, done []transport.Completion) {
			if done[0].Err == nil {
				c.events.Done(c, done)
			}
		}}},
		{"never completes", "move/mixed", "nothing happened", broken{done: func(*brokenConn, []transport.Completion) {}}},
		{"completes what was not posted", "move/sizes", "not posted", broken{done: func(c *brokenConn, done []transport.Completion) {
			c.events.Done(c, append(done, transport.Completion{Request: &transport.Request{}}))
		}}},
		{"reports Lost first", "close/peer does not answer", "Done was called after Lost", broken{
			done: func(c *brokenConn, done []transport.Completion) {
				if done[0].Err != nil {
					c.kept = append(c.kept, done...)
					return
				}
				c.events.Done(c, done)
			},
			lost: func(c *brokenConn, err error) {
				c.events.Lost(c, err)
				c.events.Done(c, c.kept)
			},
		}},
		{"reports Lost twice", "close/idle", "Lost was called twice", broken{lost: func(c *brokenConn, err error) {
			c.events.Lost(c, err)
			c.events.Lost(c, err)
		}}},
		{"never reports Lost", "close/idle", "nothing happened", broken{lost: func(*brokenConn, error) {}}},
		{"reports several at a time", "move/mixed", "while another event", broken{done: func(c *brokenConn, done []transport.Completion) {
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					for range 20 {
						c.events.Done(c, nil)
					}
				})
			}
			c.events.Done(c, done)
			all.Wait()
		}}},
		{"calls Done from Post", "move/sizes", "from inside Post", broken{post: func(c *brokenConn, r []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
			c.events.Done(c, []transport.Completion{{Request: r[0]}})
			return 1, done
		}}},
		{"takes more than there is", "move/sizes", "Post took", broken{post: func(c *brokenConn, r []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
			n, done := c.Conn.Post(r, done)
			return n + 1, done
		}}},
		{"takes more than its limit", "post/never blocks", "the limit is", broken{limits: func(l transport.Caps) transport.Caps {
			l.MaxPosted /= 2
			return l
		}}},
		{"blocks in Post", "post/never blocks", "Post has not returned", broken{post: func(c *brokenConn, r []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
			n, done := c.Conn.Post(r, done)
			if n < len(r) {
				<-stop
			}
			return n, done
		}}},
		{"does not move some bytes", "move/many requests", "bytes are wrong", broken{post: func(c *brokenConn, r []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
			if posted++; posted%50 == 0 {
				return 1, append(done, transport.Completion{Request: r[0]})
			}
			return c.Conn.Post(r[:1], done)
		}}},
		{"changes a byte", "move/mixed", "bytes are wrong", broken{done: each(func(_ *brokenConn, d *transport.Completion) { *local(d, 0)++ })}},
		{"writes beside the range", "move/sizes", "bytes are wrong", broken{done: each(func(_ *brokenConn, d *transport.Completion) { *local(d, d.Request.Bytes)++ })}},
		{"writes before the range", "move/strides", "bytes are wrong", broken{done: each(func(_ *brokenConn, d *transport.Completion) { *local(d, -1)++ })}},
		{"lets refused requests succeed", "refuse/not granted", "succeeded", broken{done: each(func(_ *brokenConn, d *transport.Completion) { d.Err = nil })}},
		{"does not say why", "refuse/outside the region", "want it refused", broken{done: each(func(_ *brokenConn, d *transport.Completion) {
			if d.Err != nil {
				d.Err = transport.ErrRefused
			}
		})}},
		{"gives errors of its own", "refuse/no such region", "want it refused", broken{done: each(func(_ *brokenConn, d *transport.Completion) {
			if d.Err != nil {
				d.Err = errors.New(d.Err.Error())
			}
		})}},
		{"dies of a refused request", "refuse/one among many", "", broken{done: each(func(c *brokenConn, d *transport.Completion) {
			if d.Err != nil {
				c.Close(nil)
			}
		})}},
		{"announces too much", "move/sizes", "MayLand is set", broken{done: each(func(_ *brokenConn, d *transport.Completion) { d.MayLand = true })}},
		{"does not announce late writes", "leave/may land", "did not say that it may", broken{done: each(func(_ *brokenConn, d *transport.Completion) { d.MayLand = false })}},
		{"does not leave", "leave/held writes", "bytes are wrong", broken{leave: func(transport.Origin, transport.ConnID, func(transport.Origin) error) error { return nil }}},
		{"leaves later", "leave/during traffic", "bytes are wrong", broken{leave: func(from transport.Origin, _ transport.ConnID, next func(transport.Origin) error) error {
			leakers.Go(func() {
				time.Sleep(5 * time.Millisecond)
				_ = next(from)
			})
			return nil
		}}},
		{"lets in what was left", "leave/before arrival", "made a connection", broken{leave: func(transport.Origin, transport.ConnID, func(transport.Origin) error) error { return nil }}},
		{"leaves for others", "leave/unknown and twice", "", broken{leave: func(from transport.Origin, id transport.ConnID, next func(transport.Origin) error) error {
			mine := from
			mine.Session[3] ^= 1
			return errors.Join(next(from), next(mine))
		}}},
		{"fails to leave twice", "leave/unknown and twice", "leave:", broken{leave: func(_ transport.Origin, id transport.ConnID, next func(transport.Origin) error) error {
			return fmt.Errorf("no connection %d", id)
		}}},
		{"has no error for Lost", "leave/all", "Lost has no error", broken{lost: func(c *brokenConn, _ error) { c.events.Lost(c, nil) }}},
		{"has an error for Close", "close/idle", "Lost says", broken{lost: func(c *brokenConn, _ error) { c.events.Lost(c, errTest) }}},
		{"takes posts when it is over", "close/idle", "took a request", broken{post: func(c *brokenConn, r []*transport.Request, done []transport.Completion) (int, []transport.Completion) {
			n, done := c.Conn.Post(r, done)
			return max(n, 1), done
		}}},
		{"ignores the context", "dial/cancelled", "made a connection", broken{dial: func(_ context.Context, d transport.Dial, next func(context.Context, transport.Dial) (transport.Conn, error)) (transport.Conn, error) {
			return next(background, d)
		}}},
		{"waits past the deadline", "dial/exchange hangs", "has not returned", broken{dial: func(_ context.Context, d transport.Dial, next func(context.Context, transport.Dial) (transport.Conn, error)) (transport.Conn, error) {
			ctx, cancel := context.WithCancel(background)
			leakers.Go(func() { <-stop; cancel() })
			return next(ctx, d)
		}}},
		{"does not tell why a dial failed", "dial/exchange fails", "exchange failed", broken{dial: func(ctx context.Context, d transport.Dial, next func(context.Context, transport.Dial) (transport.Conn, error)) (transport.Conn, error) {
			c, err := next(ctx, d)
			if err != nil {
				err = errors.New(err.Error())
			}
			return c, err
		}}},
		{"leaves a goroutine behind", "cycles", "goroutines at the end", broken{dial: func(ctx context.Context, d transport.Dial, next func(context.Context, transport.Dial) (transport.Conn, error)) (transport.Conn, error) {
			leakers.Go(func() { <-stop })
			return next(ctx, d)
		}}},
		{"counts what is gone", "served", "still counted", broken{served: func(s transport.Served) transport.Served {
			s.Conns = 2
			return s
		}}},
		{"does not count", "served", "served", broken{served: func(s transport.Served) transport.Served {
			s.Requests = 0
			return s
		}}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop, leakers = make(chan struct{}), &sync.WaitGroup{}
				defer leakers.Wait()
				defer close(stop)
				got := record(t, brokenHarness(c.broken), c.check)
				if got == "" || !strings.Contains(got, c.says) {
					t.Errorf("%q says %q, want something with %q", c.check, got, c.says)
				}
			})
		})
	}
}
