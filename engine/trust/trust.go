// Package trust is how engines know each other: the credentials that one has, the files they are in,
// and who a peer has proven to be. docs/wire.md specifies what of it peers see.
package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrCertificate is that a certificate is missing or not accepted.
var ErrCertificate = errors.New("certificate refused")

// Credentials are what an engine proves itself with, and what it demands of its peers: with
// tokens, the proof of one of them; with roots, a certificate that they signed. Without any it
// lets everybody in. They are not changed after they were made: renewed ones are new ones.
type Credentials struct {
	// Tokens are shared secrets. The first is shown to peers, all are accepted from them.
	Tokens []Token
	// Certificate and Roots come together: a certificate with its key and its Leaf, and the CAs
	// by which the certificates of peers are judged. nil: neither is there.
	Certificate *tls.Certificate
	Roots       *x509.CertPool
}

// Token is a shared secret with the name by which both sides find it. One may be without name.
type Token struct {
	Name   string
	Secret []byte
}

// Format prints the name and the length of the secret, whatever the verb: a token that is printed or
// logged by mistake shows no secret.
func (t Token) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "token %q with a secret of %d bytes", t.Name, len(t.Secret))
}

// Secret gives the credentials of one shared secret without a name, of at least MinSecret bytes. It is nil for an
// empty secret.
func Secret(secret []byte) func() *Credentials {
	if len(secret) == 0 {
		return nil
	}
	c := &Credentials{Tokens: []Token{{Secret: secret}}}
	return func() *Credentials { return c }
}

// Check says what is wrong with credentials that a program made.
func (c *Credentials) Check() error {
	if c == nil {
		return nil
	}
	for _, t := range c.Tokens {
		if len(t.Secret) < MinSecret {
			return ShortError(len(t.Secret))
		}
		if t.Name != "" && !tokenName.MatchString(t.Name) {
			return errTokenName
		}
	}
	switch {
	case (c.Certificate == nil) != (c.Roots == nil):
		return errors.New("a certificate and the CAs of peers come together")
	case c.Certificate != nil && (c.Certificate.Leaf == nil || c.Certificate.PrivateKey == nil):
		return errors.New("a certificate needs its key and its Leaf (tls.LoadX509KeyPair gives both)")
	}
	return nil
}

// None says that nothing is proven and nothing demanded.
func (c *Credentials) None() bool { return c == nil || len(c.Tokens) == 0 && c.Roots == nil }

// Token is the one of that name, nil without.
func (c *Credentials) Token(name string) *Token {
	if c != nil {
		for i := range c.Tokens {
			if c.Tokens[i].Name == name {
				return &c.Tokens[i]
			}
		}
	}
	return nil
}

// Shown is the token that peers are shown, nil without.
func (c *Credentials) Shown() *Token {
	if c == nil || len(c.Tokens) == 0 {
		return nil
	}
	return &c.Tokens[0]
}

// PeerID says who a peer is. Certificate and Token were proven; Claimed was not: any peer
// can claim any name.
type PeerID struct {
	Certificate []string // the URIs and DNS names of its certificate, in its order; nil without one
	Token       string   // the name of the token that it has; "" for none, and for one without name
	Claimed     string   // what it calls itself
}

// Proven is the name that the peer has proven to have: the first one of its certificate, or that of its token; "" for
// none.
func (p PeerID) Proven() string {
	if len(p.Certificate) > 0 {
		return p.Certificate[0]
	}
	return p.Token
}

// Names are those that a certificate gives its owner: what could not be printed is left out.
func Names(c *x509.Certificate) []string {
	var out []string
	for _, u := range c.URIs {
		out = append(out, u.String())
	}
	return slices.DeleteFunc(append(out, c.DNSNames...), func(name string) bool {
		return name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
	})
}

// AllNames are Names and the addresses: all by which a peer with the certificate can be opened.
func AllNames(c *x509.Certificate) []string {
	out := Names(c)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// Describe names a certificate in one line, for messages. Its names come from the peer.
func Describe(c *x509.Certificate) string {
	names := AllNames(c)
	const most = 3
	switch {
	case len(names) == 0:
		return fmt.Sprintf("of %.80q", c.Subject.CommonName)
	case len(names) > most:
		return fmt.Sprintf("for %.200s and %d more names", strings.Join(names[:most], ", "), len(names)-most)
	}
	return fmt.Sprintf("for %.200s", strings.Join(names, ", "))
}
