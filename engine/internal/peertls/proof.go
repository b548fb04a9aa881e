package peertls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
)

// Proof is what a peer has proven itself with when it connected.
type Proof struct {
	Token *trust.Token        // nil where none was demanded
	chain []*x509.Certificate // its own first; nil where none was demanded
	at    time.Time
}

// Proof is that of a TLS connection, without a token.
func (e *Endpoint) Proof(c *tls.Conn) Proof {
	state := c.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return Proof{}
	}
	return Proof{chain: state.PeerCertificates, at: e.now()}
}

// Withdrawn says what of a proof credentials do not accept any more since it was made, "" if all is, and
// whether the peer may have something else by now to prove itself with and still be the same. A
// certificate that has expired since was not withdrawn.
func (p *Proof) Withdrawn(c *trust.Credentials) (what string, renewable bool) {
	if c == nil {
		return "", false
	}
	if t := p.Token; t != nil && !slices.ContainsFunc(c.Tokens, func(x trust.Token) bool { return x.Name == t.Name && bytes.Equal(x.Secret, t.Secret) }) {
		what = "token " + t.Name
		if t.Name == "" {
			what = "token without a name"
		}
		return what, c.Token(t.Name) != nil
	}
	if p.chain == nil || c.Roots == nil {
		return "", false
	}
	o := x509.VerifyOptions{Roots: c.Roots, Intermediates: x509.NewCertPool(), CurrentTime: p.at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, x := range p.chain[1:] {
		o.Intermediates.AddCert(x)
	}
	if _, err := p.chain[0].Verify(o); err != nil {
		return fmt.Sprintf("CA %.80q", p.chain[len(p.chain)-1].Issuer.CommonName), true
	}
	return "", false
}
