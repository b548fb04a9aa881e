package session

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// FuzzScript is the whole life of a session as a peer may lead it, with a token and TLS or without: calls,
// calls sent twice, cuts, resumes, acks, messages out of place, frames that are none, and data connections with the right key and
// with others. No call runs twice, only calls that were made are answered, with their own answer, only the right key is let in,
// and nothing is left afterwards.
func FuzzScript(f *testing.F) {
	f.Add([]byte{0, 0, 2, 0, 3, 0, 1, 0, 2, 2, 0, 4, 5, 2, 0})
	f.Add([]byte{0, 1, 2, 11, 17, 2, 0, 3, 23, 2, 29, 2, 0, 0, 0, 0, 0, 2})
	f.Add([]byte{128, 8, 2, 6, 14, 22, 62, 0, 3, 15, 2, 0, 11, 7, 2, 6, 2, 0})
	f.Add([]byte{136, 6, 70, 255, 2, 1, 9, 7, 2, 2, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		goroutines := runtime.NumGoroutine()
		secured := len(script) > 0 && script[0] >= 128
		identity, token := Identity{Name: "n", Epoch: 1}, (*trust.Token)(nil)
		if secured {
			identity.Credentials, token = trust.Secret(secret), held
		}
		dataKey := transport.DataKey{7}
		var mu sync.Mutex
		letIn := map[transport.ConnID]bool{}
		runs, made := map[uint64]int{}, map[uint64]bool{}
		ln := newPipes()
		s := Serve([]net.Listener{ln}, ServerOptions{
			Identity: identity, Limits: Limits{MessageBytes: 4096, CallsInFlight: 4},
			Handle: func(_ context.Context, _ *Session, _ uint16, b []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if len(b) == 8 {
					runs[binary.BigEndian.Uint64(b)]++
				}
				return b, nil
			},
			DataKey: func(_ transport.SessionID, conn transport.ConnID) (transport.DataKey, bool) {
				return dataKey, conn < 4
			},
			Data: func(_ transport.SessionID, conn transport.ConnID, _ string, c net.Conn) error {
				mu.Lock()
				defer mu.Unlock()
				letIn[conn] = true
				return c.Close()
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
		// dial is nil where the server does not do its part of TLS.
		dial := func() net.Conn {
			c := ln.dial()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if !secured {
				return c
			}
			over, err := secureDialled(t.Context(), c, endpoint, nil, "")
			if err != nil {
				t.Errorf("TLS: %v", err)
				return c
			}
			return over
		}
		data := func(conn transport.ConnID, key transport.DataKey) {
			d := dial()
			defer d.Close()
			h := hello{kind: kindData, session: transport.SessionID{1}, conn: conn}
			if _, err := dialHandshake(d, h, dataSecret(key), sessionKey{}); (err == nil) && (key != dataKey || conn >= 4) {
				t.Errorf("data connection %d is let in with another key", conn)
			}
			_, _ = d.Read(make([]byte, 1))
			mu.Lock()
			defer mu.Unlock()
			if letIn[conn] && (key != dataKey || conn >= 4) {
				t.Errorf("data connection %d was handed on", conn)
			}
			delete(letIn, conn)
		}
		connect := func() bool {
			c = dial()
			h := controlHello(Identity{Name: "x", Epoch: 2}, Limits{}.withDefaults(), transport.SessionID{1}, token)
			h.resume = generation > 0
			if h.resume {
				h.peerEpoch = 1
			}
			e, err := dialHandshake(c, h, tokenSecret(token), key)
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
			switch n := uint64(b / 8); b % 8 {
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
			case 6:
				key := dataKey
				key[n%4] ^= byte(n / 4 % 2) // half of them are right
				data(transport.ConnID(n%8), key)
			case 7: // what is no message, or only the beginning of one
				frame := encode(message{kind: msgPing, number: n})
				frame[n%uint64(len(frame))] ^= b
				_, _ = c.Write(frame[:1+(int(b)*7)%len(frame)])
			}
			if !open {
				break
			}
		}
		_ = c.Close()
		readers.Wait()
		_ = s.Close()
		for until := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
				break
			}
		}
		for n, times := range runs {
			if times > 1 || !made[n] {
				t.Errorf("call %d ran %d times", n, times)
			}
		}
	})
}
