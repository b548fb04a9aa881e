package bind

import (
	"encoding/binary"
	"sync"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
)

// inbox holds a notification that did not fit into the buffer of the call that took it.
type inbox struct {
	mu     sync.Mutex
	held   *engine.Notification
	pumped chan engine.Notification // what they come through, nil: from where they arrive
}

// from are the channels that notifications come from.
func (in *inbox) from(e *Engine) []<-chan engine.Notification {
	if in.pumped != nil {
		return []<-chan engine.Notification{in.pumped}
	}
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
	p := packer{out: out}
	if in.held != nil && !p.add("a notification", 0, in.held.From, in.held.Payload) {
		return p.written, p.err
	}
	in.held = nil
	for _, c := range in.from(e) {
		for more := true; more; {
			select {
			case n, ok := <-c:
				if more = ok; ok && !p.add("a notification", 0, n.From, n.Payload) {
					in.held = &n
					return p.written, p.err
				}
			default:
				more = false
			}
		}
	}
	return p.written, nil
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
