package peertls

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// authority is a CA that is valid for the whole of 2026.
func authority(t *testing.T, name string) trust.Pair {
	t.Helper()
	ca, err := trust.NewCA(trust.Subject{CommonName: name, From: noon.AddDate(0, -5, 0), Until: noon.AddDate(0, 7, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// host is the subject of a certificate that is valid for thirty days around noon.
func host(names ...string) trust.Subject {
	return trust.Subject{CommonName: names[0], DNS: names, From: noon.AddDate(0, 0, -15), Until: noon.AddDate(0, 0, 15)}
}

func issue(t *testing.T, ca trust.Pair, s trust.Subject) *trust.Credentials {
	t.Helper()
	p, err := ca.Issue(s)
	if err != nil {
		t.Fatal(err)
	}
	return with(t, p, ca)
}

// with makes credentials of a certificate that trust one CA.
func with(t *testing.T, p, ca trust.Pair) *trust.Credentials {
	t.Helper()
	cert, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca.Certificate) {
		t.Fatal("no CA")
	}
	return &trust.Credentials{Certificate: &cert, Roots: roots}
}

// usage makes credentials with a certificate for one use only.
func usage(t *testing.T, ca trust.Pair, name string, use x509.ExtKeyUsage) *trust.Credentials {
	t.Helper()
	signer, err := tls.X509KeyPair(ca.Certificate, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	own := issue(t, ca, host(name))
	template := *own.Certificate.Leaf
	template.ExtKeyUsage = []x509.ExtKeyUsage{use}
	der, err := x509.CreateCertificate(rand.Reader, &template, signer.Leaf, template.PublicKey, signer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if own.Certificate.Leaf, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	own.Certificate.Certificate = [][]byte{der}
	return own
}

// shake has a dialler and a server meet on a socket. The dialler reads once, because a
// server's refusal comes after its part of the handshake.
func shake(t *testing.T, dial, serve func(net.Conn) (*tls.Conn, error)) (dialler, server *tls.Conn, dialErr, serveErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			serveErr = err
			return
		}
		t.Cleanup(func() { _ = raw.Close() })
		if server, serveErr = serve(raw); serveErr == nil {
			_, serveErr = server.Write([]byte{1})
		} else {
			_ = raw.Close()
		}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	if dialler, dialErr = dial(raw); dialErr == nil {
		_, dialErr = dialler.Read(make([]byte, 1))
	} else {
		_ = raw.Close()
	}
	<-done
	return dialler, server, dialErr, serveErr
}

func TestHandshake(t *testing.T) {
	ca, other := authority(t, "our CA"), authority(t, "another CA")
	node1, node2 := issue(t, ca, host("node1")), issue(t, ca, host("node2", "node2.lan"))
	addressed := host("node2")
	addressed.IPs = []net.IP{net.ParseIP("10.0.0.2"), net.ParseIP("fe80::2")}
	node2IP := issue(t, ca, addressed)
	token := &trust.Credentials{Tokens: []trust.Token{{Secret: []byte("0123456789abcdef")}}}
	for name, c := range map[string]struct {
		dialler, server *trust.Credentials
		name            string
		now             time.Time
		dial, serve     string // in the errors; "" for none
		cause           Cause
	}{
		"certificates":                      {dialler: node1, server: node2, name: "node2"},
		"second name":                       {dialler: node1, server: node2, name: "node2.lan"},
		"address":                           {dialler: node1, server: node2IP, name: "10.0.0.2"},
		"address with zone":                 {dialler: node1, server: node2IP, name: "fe80::2%eth0"},
		"neither has any":                   {name: "node2"},
		"a name that no CA was asked about": {dialler: token, server: &trust.Credentials{Certificate: node2.Certificate}, name: "node2"},
		"tokens only":                       {dialler: token, server: token, name: "node2"},
		"only the dialler's":                {dialler: node1, server: token, name: "node2", cause: NoCertificate, dial: "the peer showed no certificate, and this engine demands one: give", serve: "the peer demands a certificate, and none is set here: give"},
		"only the server's":                 {dialler: token, server: node2, name: "node2", cause: NoCertificate, dial: "the peer demands a certificate, and none is set here: give", serve: "the peer showed no certificate, and this engine demands one: give"},
		"wrong CA of server":                {dialler: node1, server: issue(t, other, host("node2")), name: "node2", cause: UnknownAuthority, dial: "the peer's certificate is signed by no CA that this engine knows (for node2): give both ends", serve: "the peer refused this engine's certificate (for node2, valid to 2026-06-16T12:00:00Z): the peer's log says why"},
		"wrong CA of dialler":               {dialler: &trust.Credentials{Certificate: issue(t, other, host("node1")).Certificate, Roots: node1.Roots}, server: node2, name: "node2", cause: UnknownAuthority, dial: "the peer does not know the CA that signed this engine's certificate (for node1, valid to 2026-06-16T12:00:00Z): give both ends", serve: "signed by no CA that this engine knows (for node1): give both ends"},
		"server's has expired":              {dialler: node1, server: issue(t, ca, trust.Subject{DNS: []string{"node2"}, From: noon.AddDate(0, 0, -9), Until: noon}), name: "node2", now: noon.Add(time.Minute), cause: Expired, dial: "the peer's certificate has expired (for node2, valid to 2026-06-01T12:00:00Z, here it is 2026-06-01T12:01:00Z): renew it", serve: "the peer's log says why"},
		"dialler's has expired": {dialler: issue(t, ca, trust.Subject{DNS: []string{"node1"}, From: noon.AddDate(0, 0, -9), Until: noon}), server: node2, name: "node2", now: noon.Add(time.Minute), cause: Expired,
			dial: "the peer says that this engine's certificate has expired, or is not valid yet (for node1, valid to 2026-06-01T12:00:00Z): renew it", serve: "the peer's certificate has expired (for node1, valid to 2026-06-01T12:00:00Z, here it is 2026-06-01T12:01:00Z): renew it"},
		"not yet valid":        {dialler: node1, server: node2, name: "node2", now: noon.AddDate(0, -1, 0), cause: NotYetValid, dial: "the peer's certificate is not valid yet (for node2, node2.lan, valid from 2026-05-17T12:00:00Z, here it is 2026-05-01T12:00:00Z): compare the clocks", serve: "the peer's log says why"},
		"the CA has expired":   {dialler: node1, server: node2, name: "node2", now: noon.AddDate(1, 0, 0), cause: Expired, dial: "has expired", serve: "the peer's log says why"},
		"wrong name":           {dialler: node1, server: node2, name: "node3", cause: WrongName, dial: `the peer's certificate is for another name than it was opened by (for node2, node2.lan, not for "node3"): open it by`, serve: "the peer's log says why"},
		"address not in it":    {dialler: node1, server: node2, name: "10.0.0.2", cause: WrongName, dial: `not for "10.0.0.2"`, serve: "the peer's log says why"},
		"no name to look for":  {dialler: node1, server: node2, name: "", cause: WrongName, dial: "than it was opened by (by none)", serve: "EOF"},
		"server's is a client": {dialler: node1, server: usage(t, ca, "node2", x509.ExtKeyUsageClientAuth), name: "node2", cause: WrongUsage, dial: "the peer's certificate is not made for this use (for node2): it needs serverAuth and clientAuth", serve: "the peer's log says why"},
		"dialler's is a server": {dialler: usage(t, ca, "node1", x509.ExtKeyUsageServerAuth), server: node2, name: "node2", cause: WrongUsage,
			dial: "the peer refused this engine's certificate (for node1, valid to 2026-06-16T12:00:00Z): the peer's log says why", serve: "the peer's certificate is not made for this use (for node1): it needs serverAuth and clientAuth"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.now.IsZero() {
				c.now = noon
			}
			e := NewEndpoint(at(c.now))
			dialler, server, dialErr, serveErr := shake(t,
				func(raw net.Conn) (*tls.Conn, error) { return e.Dial(t.Context(), raw, c.dialler, c.name) },
				func(raw net.Conn) (*tls.Conn, error) { return e.Server(t.Context(), raw, c.server) })
			dialErr = Explain(dialErr, c.dialler)
			if c.dial == "" {
				if dialErr != nil || serveErr != nil {
					t.Fatalf("dialler: %v; server: %v", dialErr, serveErr)
				}
				seen := [][]string{PeerNames(dialler), PeerNames(server)}
				want := [][]string{nil, nil}
				if c.dialler != nil && c.dialler.Roots != nil {
					want = [][]string{c.server.Certificate.Leaf.DNSNames, {"node1"}}
				}
				if !reflect.DeepEqual(seen, want) {
					t.Errorf("proven %q, want %q", seen, want)
				}
				return
			}
			for _, end := range []struct {
				err  error
				want string
			}{{dialErr, c.dial}, {serveErr, c.serve}} {
				if end.err == nil || !strings.Contains(end.err.Error(), end.want) {
					t.Errorf("%v\n want %q", end.err, end.want)
				}
			}
			found, ok := errors.AsType[*Error](dialErr)
			if !ok || found.Remote {
				found, ok = errors.AsType[*Error](serveErr)
			}
			if !ok || found.Remote || found.Cause != c.cause || !errors.Is(found, trust.ErrCertificate) {
				t.Errorf("dialler: %#v; server: %#v; want the cause %d", dialErr, serveErr, c.cause)
			}
		})
	}
}

// TestOtherClients is about those that are no engines, or try to be older ones.
func TestOtherClients(t *testing.T) {
	ca := authority(t, "our CA")
	node2 := issue(t, ca, host("node2"))
	e := NewEndpoint(at(noon))
	for name, c := range map[string]struct {
		config *tls.Config
		want   string
		cause  Cause
	}{
		"TLS 1.2":             {&tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{protocol}}, "the TLS handshake failed (tls: client offered only unsupported versions: [303]): both ends", OtherTLS},
		"no protocol":         {&tls.Config{}, "the other end speaks TLS, but not topoctl/2: it is no engine", OtherProtocol},
		"another protocol":    {&tls.Config{NextProtos: []string{"h2"}}, "h2", OtherTLS},
		"an earlier protocol": {&tls.Config{NextProtos: []string{"topoctl/1"}}, "topoctl/1", OtherTLS},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.InsecureSkipVerify = true
			_, _, dialErr, err := shake(t,
				func(raw net.Conn) (*tls.Conn, error) {
					conn := tls.Client(raw, c.config)
					return conn, conn.Handshake()
				},
				func(raw net.Conn) (*tls.Conn, error) { return e.Server(t.Context(), raw, nil) })
			found, ok := errors.AsType[*Error](err)
			if !ok || found.Remote || found.Cause != c.cause || !strings.Contains(err.Error(), c.want) || dialErr == nil {
				t.Errorf("server: %v; client: %v; want %q", err, dialErr, c.want)
			}
		})
	}
	for name, c := range map[string]struct {
		config *tls.Config
		want   string
		cause  Cause
	}{
		"server of TLS 1.2":         {&tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{protocol}}, "both ends must be engines of this version", OtherTLS},
		"server without protocol":   {&tls.Config{}, "the other end speaks TLS, but not topoctl/2: it is no engine", OtherProtocol},
		"server of another (alert)": {&tls.Config{NextProtos: []string{"h2"}}, "the peer does not speak topoctl/2: it is no engine", OtherProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Certificates = []tls.Certificate{*node2.Certificate}
			_, _, err, serveErr := shake(t,
				func(raw net.Conn) (*tls.Conn, error) { return e.Dial(t.Context(), raw, nil, "node2") },
				func(raw net.Conn) (*tls.Conn, error) {
					conn := tls.Server(raw, c.config)
					return conn, conn.Handshake()
				})
			found, ok := errors.AsType[*Error](err)
			if !ok || found.Cause != c.cause || !strings.Contains(err.Error(), c.want) {
				t.Errorf("dialler: %v; server: %v; want %q", err, serveErr, c.want)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		_, _, err, _ := shake(t,
			func(raw net.Conn) (*tls.Conn, error) { return e.Dial(t.Context(), raw, nil, "node2") },
			func(raw net.Conn) (*tls.Conn, error) {
				_, _ = raw.Write([]byte("TPCT and more"))
				return nil, errors.New("not TLS")
			})
		if header, ok := errors.AsType[tls.RecordHeaderError](err); !ok || string(header.RecordHeader[:4]) != "TPCT" {
			t.Errorf("%v does not have what came", err)
		}
	})
}

// alteredConn changes one byte of the next that is read.
type alteredConn struct {
	net.Conn
	at  int
	xor byte // 0 once it did
}

func (c *alteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.xor != 0 && c.at < n {
		b[c.at] ^= c.xor
		c.xor = 0
	}
	return n, err
}

// Whichever bit of a record is changed, of its header or of its tag, the end that gets it says that
// it was.
func TestAltered(t *testing.T) {
	e := NewEndpoint(nil)
	check := func(at int, xor byte) {
		var way *alteredConn
		dialler, server, err, serveErr := shake(t,
			func(raw net.Conn) (*tls.Conn, error) { return e.Dial(t.Context(), raw, nil, "node2") },
			func(raw net.Conn) (*tls.Conn, error) {
				way = &alteredConn{Conn: raw}
				return e.Server(t.Context(), way, nil)
			})
		if err != nil || serveErr != nil {
			t.Fatal(err, serveErr)
		}
		way.at, way.xor = at, xor
		record := make([]byte, 1000)
		for range 20 { // a record that became longer ends with others
			if _, err := dialler.Write(record); err != nil {
				break
			}
		}
		if _, err = server.Read(record); !IsAltered(err) {
			t.Errorf("byte %d ^ %#x: %v", at, xor, err)
		}
	}
	for at := range 5 { // type, version, length: RFC 8446, 5.1
		for bit := range 8 {
			check(at, 1<<bit)
		}
	}
	check(0, 23^20) // application data as change_cipher_spec
	check(5, 1)
	check(5+1000, 1)
}

// TestExporters: what a proof is bound to is the same at both ends of a channel, and another
// one on each side of a relay.
func TestExporters(t *testing.T) {
	channel := func() (a, b string) {
		e := NewEndpoint(nil)
		dialler, server, dialErr, serveErr := shake(t,
			func(raw net.Conn) (*tls.Conn, error) { return e.Dial(t.Context(), raw, nil, "") },
			func(raw net.Conn) (*tls.Conn, error) { return e.Server(t.Context(), raw, nil) })
		if err := errors.Join(dialErr, serveErr); err != nil {
			t.Fatal(err)
		}
		var out [2]string
		for i, c := range []*tls.Conn{dialler, server} {
			state := c.ConnectionState()
			secret, err := state.ExportKeyingMaterial("EXPORTER-topoctl", nil, 32)
			if err != nil {
				t.Fatal(err)
			}
			out[i] = string(secret)
		}
		return out[0], out[1]
	}
	a, b := channel()
	c, _ := channel()
	if a != b || a == c {
		t.Errorf("ends of one channel: %x and %x; of another: %x", a, b, c)
	}
}

// TestHandshakeEnds: a peer that says nothing costs no more than the time that it is given.
func TestHandshakeEnds(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewEndpoint(nil).Server(ctx, ours, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{"node2:7411": "node2", "[fe80::2%eth0]:1": "fe80::2%eth0", "node2": "node2", "::1": "::1"} {
		if got := HostOf(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
