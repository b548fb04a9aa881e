package session_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/trust"
)

// buffer is a log that is read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestWithdrawn takes from a host what the peer of a session has proven. The session ends, and the
// peer hears why, unless it has a renewed token or certificate of the same name.
func TestWithdrawn(t *testing.T) {
	const grace = time.Hour
	for name, c := range map[string]struct {
		change func(l *lab, client, host *engineOf)
		what   string // of the host's log, "" nothing
		ends   bool
	}{
		"another token is gone": {func(l *lab, _, host *engineOf) {
			host.credentials.Store(l.credentials("node2", oldToken))
		}, "", false},
		"the token is gone": {func(l *lab, _, host *engineOf) {
			host.credentials.Store(l.credentials("node2", another))
		}, "token ops", true},
		"the token is renewed": {func(l *lab, client, host *engineOf) {
			client.credentials.Store(l.credentials("node1", newToken))
			host.credentials.Store(l.credentials("node2", newToken, another))
		}, "token ops", false},
		"the token is renewed, and not the client's": {func(l *lab, _, host *engineOf) {
			host.credentials.Store(l.credentials("node2", newToken, another))
		}, "token ops", true},
		"certificates expire": {func(l *lab, _, host *engineOf) {
			l.now.Store(int64(2 * time.Hour))
			host.credentials.Store(l.credentials("node2", oldToken, another))
		}, "", false},
		"the CA is renewed": {func(l *lab, client, host *engineOf) {
			l.ca = newLab(l.t).ca
			client.credentials.Store(l.credentials("node1", oldToken))
			host.credentials.Store(l.credentials("node2", oldToken, another))
		}, `CA "ca"`, false},
		"the CA is renewed, and not the client's certificate": {func(l *lab, client, host *engineOf) {
			former := client.credentials.Load()
			l.ca = newLab(l.t).ca
			renewed := l.credentials("node2", oldToken, another)
			host.credentials.Store(renewed)
			client.credentials.Store(&trust.Credentials{Tokens: former.Tokens, Certificate: former.Certificate, Roots: renewed.Roots})
		}, `CA "ca"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			giveUp := time.Minute
			if c.ends {
				giveUp = time.Second
			}
			l := newLab(t)
			client, host := l.engine("c", 1, l.credentials("node1", oldToken)), l.engine("h", 2, l.credentials("node2", oldToken, another))
			log := &buffer{}
			var gone ends
			server, addr := serve(t, session.ServerOptions{Identity: host.Identity, Handle: echo, Ended: gone.add,
				Limits: session.Limits{Withdrawn: grace}, Logger: slog.New(slog.NewTextHandler(log, nil))}, "127.0.0.1:0")
			var over ends
			s := mustDial(t, session.DialOptions{Identity: client.Identity, PeerName: "node2", Routes: to(addr), Ended: over.add, GiveUp: giveUp})
			defer s.Close()
			if _, err := s.Call(limited(t), 1, []byte("x")); err != nil {
				t.Fatal(err)
			}
			c.change(l, client, host)
			began := time.Now()
			server.WithdrawAt(began)
			asked := began.Add(grace/2 + grace/4)
			for until := time.Now().Add(time.Minute); server.WithdrawAt(asked) > 0 && !c.ends; time.Sleep(time.Millisecond) {
				if time.Now().After(until) {
					t.Fatal("the peer has not proven what it has now")
				}
			}
			server.WithdrawAt(began.Add(2 * grace))
			if c.ends {
				err := over.wait(t, 1)[0]
				if !errors.Is(err, session.ErrWithdrawn) {
					t.Errorf("the peer's session ended with %v, want that its credential was withdrawn", err)
				}
				gone.wait(t, 1)
			} else if _, err := s.Call(limited(t), 1, []byte("x")); err != nil || server.Counts().Sessions != 1 {
				t.Errorf("the session goes on with %v", err)
			}
			said := strings.ReplaceAll(log.String(), `\"`, `"`)
			for want, is := range map[string]bool{" end in 1h0m0s": c.what != "", " ended\" count=1": c.ends} {
				if strings.Contains(said, "sessions of withdrawn "+c.what+want) != is {
					t.Errorf("%q in the log: want %t:\n%s", want, is, said)
				}
			}
		})
	}
}
