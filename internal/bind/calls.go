package bind

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
)

// calls are those of peers' applications that wait for this one's answer, by number.
type calls struct {
	mu      sync.Mutex
	last    int64
	waiting map[int64]*call
	given   int64 // the last one that Calls has written
}

type call struct {
	from    trust.PeerID
	request []byte
	reply   chan reply // has room for one
}

type reply struct {
	answer []byte
	err    error
}

// answer answers the calls of peers: probes at once, others when the application has.
func (e *Engine) answer(ctx context.Context, from trust.PeerID, request []byte) ([]byte, error) {
	switch {
	case len(request) == 0:
		return nil, nil
	case !e.o.Answer:
		return nil, errors.New("this engine's application answers no calls")
	}
	c := &call{from, request, make(chan reply, 1)}
	w := &e.calls
	w.mu.Lock()
	w.last++
	n := w.last
	if w.waiting == nil {
		w.waiting = map[int64]*call{}
	}
	w.waiting[n] = c
	w.mu.Unlock()
	e.events.signal()
	select {
	case r := <-c.reply:
		return r.answer, r.err
	case <-ctx.Done():
		w.take(n)
		return nil, context.Cause(ctx)
	}
}

func (w *calls) take(n int64) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiting[n]
	delete(w.waiting, n)
	return c
}

// Calls writes those that came since the last call to out, as many whole ones as fit, and says how
// much it wrote.
func (e *Engine) Calls(out []byte) (int, error) {
	w := &e.calls
	w.mu.Lock()
	defer w.mu.Unlock()
	p := packer{out: out}
	for _, n := range slices.Sorted(maps.Keys(w.waiting)) {
		if n <= w.given {
			continue
		}
		c := w.waiting[n]
		if !p.add("a call", n, c.from, c.request) {
			return p.written, p.err
		}
		w.given = n
	}
	return p.written, nil
}

// Answer answers a call that Calls has given. With refused, the text of an error, the peer gets that.
func (e *Engine) Answer(n int64, answer []byte, refused string) error {
	if len(answer) > engine.MaxAnswerBytes {
		return fail(Limit, "an answer of %d bytes: at most %d", len(answer), engine.MaxAnswerBytes)
	}
	c := e.calls.take(n)
	if c == nil {
		return fail(NoHandle, "no call %d: it was answered, or its peer is gone", n)
	}
	r := reply{answer: slices.Clone(answer)}
	if refused != "" {
		r = reply{err: errors.New(refused)}
	}
	c.reply <- r
	return nil
}
