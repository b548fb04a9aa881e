package bind

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/topoctl/topoctl/engine"
)

// Notify delivers a message to a peer, and waits until it is there.
func (e *Engine) Notify(peer string, message []byte, timeoutNS int64) error {
	ctx, cancel := e.bounded(nanoseconds(timeoutNS))
	defer cancel()
	for {
		x, err := e.peer(ctx, peer)
		if err != nil {
			return err
		}
		if x.stock != nil {
			return x.stock.Notify(ctx, string(message))
		}
		if message == nil {
			message = []byte{}
		}
		x.settle(ctx, e.settle)
		b, err := x.p.Submit(ctx, nil, engine.SubmitOptions{Notify: message})
		if err != nil && x.lost() && ctx.Err() == nil {
			continue // nothing was sent: it is opened again
		}
		if err != nil {
			return err
		}
		return b.Wait(context.Background()) // ctx ends the batch
	}
}

// inbox holds a notification that did not fit into the buffer of the call that took it.
type inbox struct {
	mu   sync.Mutex
	held *engine.Notification
}

// Notifications writes those that came to out, as many whole ones as fit, and says how much it
// wrote.
func (e *Engine) Notifications(out []byte) (int, error) {
	in := &e.inbox
	in.mu.Lock()
	defer in.mu.Unlock()
	written := 0
	var stock chan engine.Notification
	if m := e.compat.Load(); m != nil {
		stock = m.received
	}
	for {
		if in.held == nil {
			select {
			case n, ok := <-e.e.Notifications():
				if !ok {
					return written, nil
				}
				in.held = &n
			case n := <-stock:
				in.held = &n
			default:
				return written, nil
			}
		}
		n := in.held
		size := 8 + len(n.Peer) + len(n.Payload)
		if size > len(out)-written {
			if written == 0 {
				return 0, fail(Limit, "a notification needs a buffer of %d bytes, this one has %d", size, len(out))
			}
			return written, nil
		}
		at := binary.LittleEndian.AppendUint32(out[:written], uint32(len(n.Peer)))
		at = binary.LittleEndian.AppendUint32(at, uint32(len(n.Payload)))
		at = append(append(at, n.Peer...), n.Payload...)
		written, in.held = len(at), nil
	}
}
