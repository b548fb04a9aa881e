package session_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/peertls"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/trust"
)

// engineOf is one end: its credentials can be renewed.
type engineOf struct {
	session.Identity
	credentials atomic.Pointer[trust.Credentials]
}

// lab is a CA and a clock for two engines.
type lab struct {
	t     *testing.T
	ca    trust.Pair
	start time.Time
	now   atomic.Int64 // after start
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t, start: time.Now()}
	var err error
	if l.ca, err = trust.NewCA(trust.Subject{CommonName: "ca", From: l.start.Add(-time.Hour), Until: l.start.AddDate(1, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	return l
}

// credentials are a certificate for one name that is valid for an hour from now on, and tokens.
func (l *lab) credentials(name string, tokens ...trust.Token) *trust.Credentials {
	l.t.Helper()
	from := l.start.Add(time.Duration(l.now.Load()) - time.Minute)
	p, err := l.ca.Issue(trust.Subject{DNS: []string{name}, From: from, Until: from.Add(time.Hour)})
	if err != nil {
		l.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		l.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(l.ca.Certificate)
	return &trust.Credentials{Tokens: tokens, Certificate: &cert, Roots: roots}
}

func (l *lab) engine(name string, epoch uint64, c *trust.Credentials) *engineOf {
	e := &engineOf{}
	e.credentials.Store(c)
	e.Identity = session.Identity{Name: name, Epoch: epoch, Credentials: e.credentials.Load,
		TLS: peertls.NewEndpoint(func() time.Time { return l.start.Add(time.Duration(l.now.Load())) })}
	return e
}

var (
	oldToken = trust.Token{Name: "ops", Secret: []byte("the former secret")}
	newToken = trust.Token{Name: "ops", Secret: []byte("the renewed secret")}
	another  = trust.Token{Name: "others", Secret: []byte("the renewed secret")}
)

// TestRenewal has a session lose its connection after the credentials of both ends were
// renewed. With the same names it goes on; a peer whose certificate has expired, or has another name, stays out.
func TestRenewal(t *testing.T) {
	for name, c := range map[string]struct {
		renew func(l *lab, client, host *engineOf)
		want  error  // of the session's end, nil: it goes on
		text  string // in it
	}{
		"nothing renewed": {func(*lab, *engineOf, *engineOf) {}, nil, ""},
		"certificates and tokens": {func(l *lab, client, host *engineOf) {
			l.now.Store(int64(2 * time.Hour))
			client.credentials.Store(l.credentials("node1", newToken))
			host.credentials.Store(l.credentials("node2", newToken, oldToken))
		}, nil, ""},
		"the host's has expired": {func(l *lab, client, host *engineOf) {
			l.now.Store(int64(2 * time.Hour))
			client.credentials.Store(l.credentials("node1", oldToken))
		}, trust.ErrCertificate, "the peer's certificate has expired (for node2, valid to "},
		"the client's has expired": {func(l *lab, client, host *engineOf) {
			l.now.Store(int64(2 * time.Hour))
			host.credentials.Store(l.credentials("node2", oldToken))
		}, trust.ErrCertificate, "the peer says that this engine's certificate has expired"},
		"the client has another name": {func(l *lab, client, host *engineOf) {
			client.credentials.Store(l.credentials("node3", oldToken))
		}, session.ErrEnded, ""},
		"the host has another name": {func(l *lab, client, host *engineOf) {
			host.credentials.Store(l.credentials("node3", oldToken))
		}, trust.ErrCertificate, `not for "node2"`},
		"the client's token is gone": {func(l *lab, client, host *engineOf) {
			host.credentials.Store(l.credentials("node2", newToken))
		}, session.ErrToken, "tokens differ"},
		"a token of another name": {func(l *lab, client, host *engineOf) {
			client.credentials.Store(l.credentials("node1", another))
			host.credentials.Store(l.credentials("node2", another))
		}, session.ErrEnded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			giveUp := time.Minute
			if c.want != nil {
				giveUp = time.Second
			}
			l := newLab(t)
			client, host := l.engine("c", 1, l.credentials("node1", oldToken)), l.engine("h", 2, l.credentials("node2", oldToken))
			ids := make(chan trust.PeerID, 8)
			_, addr := serve(t, session.ServerOptions{Identity: host.Identity,
				Handle: func(_ context.Context, s *session.Session, _ uint16, body []byte) ([]byte, error) {
					ids <- s.PeerID()
					return body, nil
				}}, "127.0.0.1:0")
			p := newProxy(t, addr)
			var over ends
			s := mustDial(t, session.DialOptions{Identity: client.Identity, PeerName: "node2", Routes: to(p.addr), Ended: over.add, GiveUp: giveUp})
			defer s.Close()
			call := func() error {
				_, err := s.Call(limited(t), 1, nil)
				return err
			}
			if err := call(); err != nil {
				t.Fatal(err)
			}
			if got := <-ids; !slices.Equal(got.Certificate, []string{"node1"}) || got.Token != "ops" || got.Claimed != "c" {
				t.Errorf("the host sees %+v", got)
			}
			if got := s.PeerID(); !slices.Equal(got.Certificate, []string{"node2"}) || got.Token != "ops" || got.Claimed != "h" {
				t.Errorf("the client sees %+v", got)
			}
			c.renew(l, client, host)
			if err := call(); err != nil {
				t.Errorf("over the connection that it had: %v", err)
			}
			conns := p.Accepted()
			p.Cut()
			if c.want == nil {
				if err := call(); err != nil || p.Accepted() == conns {
					t.Errorf("%v over %d more connections", err, p.Accepted()-conns)
				}
				return
			}
			if err := over.wait(t, 1)[0]; !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("ended with %v, want %v, %q", err, c.want, c.text)
			}
		})
	}
}

// TestExpiredData: a data connection at sealed is a TLS connection of this moment. One whose certificate has
// expired since its session began is refused, with the reason, and without TLS it is not looked at.
func TestExpiredData(t *testing.T) {
	l := newLab(t)
	client, host := l.engine("c", 1, l.credentials("node1")), l.engine("h", 2, l.credentials("node2"))
	_, addr := serve(t, session.ServerOptions{Identity: host.Identity, Handle: echo,
		DataKey: func(transport.SessionID, transport.ConnID) (transport.DataKey, bool) {
			return transport.DataKey{1}, true
		},
		Data: func(_ transport.SessionID, _ transport.ConnID, _ string, c net.Conn) error { return c.Close() },
	}, "127.0.0.1:0")
	s := mustDial(t, session.DialOptions{Identity: client.Identity, PeerName: "node2", Routes: to(addr)})
	defer s.Close()
	dial := func(conn transport.ConnID, sealed bool) error {
		c, err := session.DialData(limited(t), session.DataDial{
			Identity: client.Identity, Session: s.ID(), Conn: conn, Key: transport.DataKey{1}, Sealed: sealed, Route: session.Route{Remote: addr},
		})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := dial(1, true); err != nil {
		t.Fatal(err)
	}
	l.now.Store(int64(2 * time.Hour))
	host.credentials.Store(l.credentials("node2"))
	if err := dial(2, false); err != nil {
		t.Errorf("without TLS: %v", err)
	}
	if err := dial(3, true); !errors.Is(err, trust.ErrCertificate) || !strings.Contains(err.Error(), "this engine's certificate has expired") {
		t.Errorf("the client's has expired: %v", err)
	}
	client.credentials.Store(l.credentials("node1"))
	if err := dial(4, true); err != nil {
		t.Errorf("renewed: %v", err)
	}
}

// TestCredentialsThatDiffer: what one side has configured it demands of the other.
func TestCredentialsThatDiffer(t *testing.T) {
	l := newLab(t)
	certified, both := l.credentials("node2"), l.credentials("node2", oldToken)
	secret := &trust.Credentials{Tokens: []trust.Token{oldToken}}
	for name, c := range map[string]struct {
		client, host *trust.Credentials
		want         error
		counted      session.Refusal
	}{
		"certificates":               {certified, certified, nil, ""},
		"both":                       {both, both, nil, ""},
		"one of several tokens":      {secret, &trust.Credentials{Tokens: []trust.Token{another, newToken, oldToken}}, nil, ""},
		"the host wants a token too": {certified, both, session.ErrToken, session.RefusedToken},
		"the client wants it":        {both, certified, session.ErrToken, session.RefusedToken},
		"a token is no certificate":  {secret, certified, trust.ErrCertificate, session.RefusedCertificate},
		"a certificate is no token":  {certified, secret, trust.ErrCertificate, ""}, // the client refuses, and its word may be lost
		"nothing":                    {nil, certified, trust.ErrCertificate, session.RefusedCertificate},
		"nothing to a token":         {nil, secret, session.ErrToken, session.RefusedToken},
		"another name":               {&trust.Credentials{Tokens: []trust.Token{another}}, &trust.Credentials{Tokens: []trust.Token{newToken}}, session.ErrToken, session.RefusedToken},
		"another secret":             {&trust.Credentials{Tokens: []trust.Token{newToken}}, secret, session.ErrToken, session.RefusedToken},
		"a token to nothing":         {secret, nil, session.ErrToken, session.RefusedToken},
		"without name":               {&trust.Credentials{Tokens: []trust.Token{{Secret: oldToken.Secret}}}, secret, session.ErrToken, session.RefusedToken},
	} {
		t.Run(name, func(t *testing.T) {
			srv, addr := serve(t, session.ServerOptions{
				Identity: l.engine("h", 2, c.host).Identity,
				Handle: func(context.Context, *session.Session, uint16, []byte) ([]byte, error) {
					t.Error("a handler ran")
					return nil, nil
				},
				Data: func(_ transport.SessionID, _ transport.ConnID, _ string, c net.Conn) error {
					t.Error("a data connection was let in")
					return c.Close()
				},
			}, "127.0.0.1:0")
			s, err := session.Dial(limited(t), session.DialOptions{Identity: l.engine("c", 1, c.client).Identity, PeerName: "node2", Routes: to(addr)})
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if c.want == nil {
				_ = s.Close()
				return
			}
			_ = srv.Close()
			if n := srv.Counts().Refused[c.counted]; n != 1 && c.counted != "" {
				t.Errorf("counted %v, want %s", srv.Counts().Refused, c.counted)
			}
		})
	}
}
