// Package sessiontest makes sessions for tests of what stands on them.
package sessiontest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/trust"
)

// Options say what both ends do. The zero value answers no calls.
type Options struct {
	Token []byte
	// Dialled handles calls that come to the dialling end, Served those that come to
	// the answering end.
	Dialled, Served session.Handler
	// Server is the rest of the server's options; its Identity and Handle are set
	// here.
	Server session.ServerOptions
}

// Pair is two ends of one session.
type Pair struct {
	Dialled, Served *session.Session
	Server          *session.Server
	Addr            netip.AddrPort // of the server, on the loopback interface
	// Client and Host are the identities of the dialling and the answering engine.
	Client, Host session.Identity
}

const methodMeet = 0xffff

// Connect makes a pair that lives until the test ends.
func Connect(tb testing.TB, o Options) *Pair {
	tb.Helper()
	p := &Pair{
		Client: session.Identity{Name: "client", Epoch: 1, Credentials: trust.Secret(o.Token)},
		Host:   session.Identity{Name: "host", Epoch: 2, Credentials: trust.Secret(o.Token)},
	}
	l, err := session.Listen(tb.Context(), "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p.Addr = l.Addr().(*net.TCPAddr).AddrPort()
	var once sync.Once
	so := o.Server
	so.Identity = p.Host
	so.Handle = func(ctx context.Context, s *session.Session, method uint16, body []byte) ([]byte, error) {
		if method == methodMeet {
			once.Do(func() { p.Served = s })
			return nil, nil
		}
		if o.Served == nil {
			return nil, nil
		}
		return o.Served(ctx, s, method, body)
	}
	p.Server = session.Serve([]net.Listener{l}, so)
	tb.Cleanup(func() { _ = p.Server.Close() })
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	p.Dialled, err = session.Dial(ctx, session.DialOptions{
		Identity: p.Client, Handle: o.Dialled, Limits: so.Limits,
		Routes: func() []session.Route { return []session.Route{{Remote: p.Addr}} },
		// Nothing moves because a test machine is slow.
		Silence: 20 * time.Second, GiveUp: time.Minute,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.Dialled.Close() })
	if _, err := p.Dialled.Call(ctx, methodMeet, nil); err != nil {
		tb.Fatal(err)
	}
	return p
}
