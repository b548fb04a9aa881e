package session

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// FuzzScript is the whole life of a session as a peer may lead it: calls, calls sent twice, cuts,
// resumes, acks and messages out of place. No call runs twice, and only calls that were made are
// answered, with their own answer.
func FuzzScript(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 3, 0, 1, 0, 2, 2, 0, 4, 5, 2, 0})
	f.Add([]byte{0, 1, 2, 11, 17, 2, 0, 3, 23, 2, 29, 2, 0, 0, 0, 0, 0, 2})
	f.Fuzz(func(t *testing.T, script []byte) {
		var mu sync.Mutex
		runs, made := map[uint64]int{}, map[uint64]bool{}
		ln := newPipes()
		s := Serve([]net.Listener{ln}, ServerOptions{
			Identity: Identity{Name: "n", Epoch: 1}, Limits: Limits{MessageBytes: 4096, CallsInFlight: 4},
			Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if len(b) == 8 {
					runs[binary.BigEndian.Uint64(b)]++
				}
				return b, nil
			},
		})
		defer s.Close()
		var (
			c          net.Conn
			key        sessionKey
			generation uint64
			last       uint64
			pending    []uint64
			readers    sync.WaitGroup
		)
		send := func(m message) { _, _ = c.Write(encode(m)) }
		call := func(n uint64) {
			send(message{kind: msgCall, number: n, method: 1, body: binary.BigEndian.AppendUint64(nil, n)})
		}
		connect := func() bool {
			c = ln.dial()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			h := controlHello(Identity{Name: "x", Epoch: 2}, Limits{}.withDefaults(), transport.SessionID{1}, nil)
			h.resume = generation > 0
			if h.resume {
				h.peerEpoch = 1
			}
			e, err := dialHandshake(c, h, tokenSecret(nil), key)
			if err != nil {
				return false
			}
			if generation == 0 {
				key = e.key
			}
			generation++
			mine := c
			readers.Go(func() {
				for {
					m, err := readMessage(mine, someBounds)
					if err != nil {
						return
					}
					mu.Lock()
					if m.kind == msgAnswer && (!made[m.number] || len(m.body) == 8 && binary.BigEndian.Uint64(m.body) != m.number) {
						t.Errorf("answer %x to call %d", m.body, m.number)
					}
					mu.Unlock()
				}
			})
			send(message{kind: msgSync, number: generation, numbers: pending})
			for _, n := range pending {
				call(n)
			}
			return true
		}
		open := connect()
		if !open {
			t.Fatal("no session")
		}
		for _, b := range script[:min(len(script), 40)] {
			switch n := uint64(b / 6); b % 6 {
			case 0:
				if len(pending) == 4 {
					continue
				}
				last++
				mu.Lock()
				made[last] = true
				mu.Unlock()
				pending = append(pending, last)
				call(last)
			case 1: // again, on the same connection
				if len(pending) > 0 {
					call(pending[n%uint64(len(pending))])
				}
			case 2:
				_ = c.Close()
				open = connect()
			case 3: // whether answered or not; what is acknowledged is not sent again
				acked := min(int(n), len(pending))
				send(message{kind: msgAck, numbers: pending[:acked]})
				pending = pending[acked:]
			case 4:
				send(message{kind: msgPing, number: n})
			case 5: // any message
				mu.Lock()
				made[n] = made[n] || uint8(n) == msgCall
				mu.Unlock()
				send(message{kind: uint8(n), number: n, body: []byte{b}})
			}
			if !open {
				break
			}
		}
		_ = c.Close()
		readers.Wait()
		_ = s.Close()
		for n, times := range runs {
			if times > 1 || !made[n] {
				t.Errorf("call %d ran %d times", n, times)
			}
		}
	})
}
