package bind

import (
	"encoding/binary"
	"sync"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
)

// inbox is where the application takes its notifications from.
type inbox struct {
	mu       sync.Mutex
	taken    []engine.Notification // from where they arrive: the watchers', and one that had no room in a buffer
	watchers []watcher
}

// watcher takes a notification where one arrives, to signal that.
type watcher struct {
	taken  chan []engine.Notification // gives it, and then rests
	resume chan struct{}
}

// from are the channels that notifications arrive by.
func (e *Engine) from() []<-chan engine.Notification {
	if m := e.compat.Load(); m != nil {
		return []<-chan engine.Notification{e.e.Notifications(), m.received}
	}
	return []<-chan engine.Notification{e.e.Notifications()}
}

// Notifications writes those that came to out, as many whole ones as fit, and says how much it
// wrote.
func (e *Engine) Notifications(out []byte) (int, error) {
	in := &e.inbox
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, w := range in.watchers {
		select {
		case first := <-w.taken:
			in.taken = append(in.taken, first...)
			defer func() { w.resume <- struct{}{} }()
		case <-e.ctx.Done():
		}
	}
	p := packer{out: out}
	for len(in.taken) > 0 {
		if n := in.taken[0]; !p.add("a notification", 0, n.From, n.Payload) {
			return p.written, p.err
		}
		in.taken = in.taken[1:]
	}
	for _, c := range e.from() {
		for more := true; more; {
			select {
			case n, ok := <-c:
				if more = ok; ok && !p.add("a notification", 0, n.From, n.Payload) {
					in.taken = append(in.taken, n)
					return p.written, p.err
				}
			default:
				more = false
			}
		}
	}
	return p.written, nil
}

// watchNotifications has each that comes from now on be signalled.
func (e *Engine) watchNotifications() {
	in := &e.inbox
	in.mu.Lock()
	defer in.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	for _, c := range e.from() {
		w := watcher{make(chan []engine.Notification), make(chan struct{}, 1)}
		in.watchers = append(in.watchers, w)
		e.tasks.Go(func() { w.run(e, c) })
	}
}

func (w watcher) run(e *Engine, arrive <-chan engine.Notification) {
	var taken []engine.Notification
	for {
		c := arrive
		if taken != nil {
			c = nil
		}
		select {
		case n, ok := <-c:
			if !ok {
				return
			}
			taken = []engine.Notification{n}
			e.events.signal()
		case w.taken <- taken:
			taken = nil
			<-w.resume
		case <-e.ctx.Done():
			return
		}
	}
}

// packer writes messages of peers one after the other: u64 number, u32 length of what the peer calls itself, u32
// length of what it has proven to be, u32 length of the message, u32 0, and these three; all little endian.
type packer struct {
	out     []byte
	written int
	err     error // that not even the first fits
}

// add says whether there was room.
func (p *packer) add(what string, number int64, from trust.PeerID, message []byte) bool {
	proven := from.Proven()
	size := 24 + len(from.Claimed) + len(proven) + len(message)
	if size > len(p.out)-p.written {
		if p.written == 0 {
			p.err = fail(Limit, "%s needs a buffer of %d bytes, this one has %d", what, size, len(p.out))
		}
		return false
	}
	b := p.out[:p.written]
	b = binary.LittleEndian.AppendUint64(b, uint64(number))
	for _, n := range []int{len(from.Claimed), len(proven), len(message), 0} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = append(append(append(b, from.Claimed...), proven...), message...)
	p.written = len(b)
	return true
}
