package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
)

// issuer is a CA of two hosts, and the tokens that they have.
type issuer struct {
	t   *testing.T
	dir string
}

func (i issuer) write(name string, data ...[]byte) string {
	i.t.Helper()
	path := filepath.Join(i.dir, name)
	var all []byte
	for _, d := range data {
		all = append(all, d...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		i.t.Fatal(err)
	}
	return path
}

func (i issuer) ca(name string) trust.Pair {
	i.t.Helper()
	ca, err := trust.NewCA(trust.Subject{CommonName: name, From: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)})
	if err != nil {
		i.t.Fatal(err)
	}
	return ca
}

// credentials are read from files: a certificate of the CA for this host's loopback address.
func (i issuer) credentials(tokens string, ca trust.Pair, roots ...[]byte) *trust.Credentials {
	i.t.Helper()
	p, err := ca.Issue(trust.Subject{DNS: []string{"node1"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, From: time.Now().Add(-time.Minute), Until: time.Now().Add(time.Minute * 30)})
	if err != nil {
		i.t.Fatal(err)
	}
	c, err := trust.Files{
		Token: i.write("token", []byte(tokens)), Certificate: i.write("node1.crt", p.Certificate), Key: i.write("node1.key", p.Key), CA: i.write("ca.crt", roots...),
	}.Read()
	if err != nil {
		i.t.Fatal(err)
	}
	return c
}

// TestRotation renews tokens, certificates and the CA while transfers run and connections are
// cut: no op fails. At the end the former ones open nothing.
func TestRotation(t *testing.T) {
	checkLeaks(t)
	const size = 1 << 20
	const former, renewed = "ops the-former-secret\n", "ops the-renewed-secret\n"
	i := issuer{t, t.TempDir()}
	ca1, ca2 := i.ca("ca1"), i.ca("ca2")
	first := i.credentials(former, ca1, ca1.Certificate)
	var theirs, ours atomic.Pointer[trust.Credentials]
	theirs.Store(first)
	ours.Store(first)
	tcp := []TransportFactory{TCP()}
	server := newEngine(t, Options{Name: "server", Transports: tcp, Security: Security{Credentials: theirs.Load}})
	client := newEngine(t, Options{Name: "client", Transports: tcp, Security: Security{Credentials: ours.Load}, GiveUp: 20 * time.Second})
	way := newProxy(t, server.Addrs()[0].String())
	region, err := server.Alloc(size, RegionOptions{Name: "kv", Grant: memory.PeerWrite})
	must(t, err)
	mine, err := client.Alloc(size, RegionOptions{})
	must(t, err)
	ctx := testContext(t)
	peer, err := client.Open(ctx, way.Address())
	must(t, err)
	to, err := peer.Region(ctx, "kv")
	must(t, err)
	var written atomic.Int64
	stop, ended := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		var err error
		for n := byte(1); err == nil && stop.Err() == nil; n++ {
			mine.Bytes()[0], mine.Bytes()[size-1] = n, n
			if err = peer.Write(ctx, mine.Span(0, size), to.At(0)); err == nil && (region.Bytes()[0] != n || region.Bytes()[size-1] != n) {
				err = errors.New("what was written is not there")
			}
			written.Add(1)
		}
		failed <- err
	}()
	for _, step := range []struct {
		name         string
		theirs, ours *trust.Credentials
	}{
		{"the server takes both", i.credentials(former+renewed, ca1, ca1.Certificate, ca2.Certificate), first},
		{"the client is renewed", theirs.Load(), i.credentials(renewed+former, ca2, ca1.Certificate, ca2.Certificate)},
		{"the server is renewed", i.credentials(renewed+former, ca2, ca1.Certificate, ca2.Certificate), nil},
		{"the former are gone", i.credentials(renewed, ca2, ca2.Certificate), i.credentials(renewed, ca2, ca2.Certificate)},
	} {
		if step.name != "the client is renewed" {
			theirs.Store(step.theirs)
		}
		if step.ours != nil {
			ours.Store(step.ours)
		}
		for range 2 { // the second after the connections were cut
			before := written.Load()
			eventually(t, step.name+": ops go on", func() bool { return written.Load() > before+1 || len(failed) > 0 })
			way.Cut()
		}
	}
	before := written.Load()
	eventually(t, "ops go on at the end", func() bool { return written.Load() > before+1 || len(failed) > 0 })
	ended()
	must(t, <-failed)
	for want, c := range map[error]*trust.Credentials{
		ErrCertificate: i.credentials(renewed, ca1, ca1.Certificate, ca2.Certificate),
		ErrToken:       i.credentials(former, ca2, ca2.Certificate),
	} {
		late := newEngine(t, Options{Name: "late", Transports: tcp, Security: Security{Credentials: func() *trust.Credentials { return c }}})
		if _, err := late.Open(ctx, server.Addrs()[0].String()); !errors.Is(err, want) {
			t.Errorf("with what is gone: %v, want %v", err, want)
		}
	}
}

func TestCredentialOptions(t *testing.T) {
	i := issuer{t, t.TempDir()}
	ca := i.ca("ca")
	good := i.credentials("ops the-former-secret\n", ca, ca.Certificate)
	given := func(c *trust.Credentials) Options {
		return Options{Security: Security{Credentials: func() *trust.Credentials { return c }}, Listen: []string{"127.0.0.1:0", "[::]:0"}, Transports: []TransportFactory{TCP()}}
	}
	for want, o := range map[string]Options{
		"without a token or certificate":          given(nil),
		"could read and write without":            given(&trust.Credentials{}),
		"the token has 5 bytes":                   given(&trust.Credentials{Tokens: []trust.Token{{Secret: []byte("short")}}}),
		"a certificate and the CAs of peers come": given(&trust.Credentials{Roots: good.Roots}),
	} {
		if _, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	newEngine(t, given(good))
}

// TestCredentialsAreNotLost: what an engine demands does not end because a source fails.
func TestCredentialsAreNotLost(t *testing.T) {
	good := &trust.Credentials{Tokens: []trust.Token{{Secret: []byte("0123456789abcdef")}}}
	renewed := &trust.Credentials{Tokens: []trust.Token{{Secret: []byte("0123456789abcdeg")}}}
	var now *trust.Credentials
	source := (&Security{Credentials: func() *trust.Credentials { return now }}).credentials()
	if !source().None() {
		t.Error("an engine without credentials has some")
	}
	for _, step := range []struct{ gives, want *trust.Credentials }{
		{good, good}, {nil, good}, {&trust.Credentials{}, good}, {renewed, renewed}, {&trust.Credentials{Tokens: []trust.Token{{}}}, renewed}, {good, good},
	} {
		if now = step.gives; source() != step.want {
			t.Errorf("%+v gives %+v, want %+v", step.gives, source(), step.want)
		}
	}
}
