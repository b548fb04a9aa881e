package engine

import (
	"errors"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/trust"
)

// Credentials are what an engine proves itself with, and what it demands of its peers: with
// Tokens, the proof that they have one of these; with Certificate and Roots, a certificate that
// one of these CAs signed, for the name or address that the peer was opened by.
type Credentials = trust.Credentials

// Token is a secret that engines share, with a name or without.
type Token = trust.Token

// CredentialFiles names the files that credentials are read from. Its method Watch gives
// Options.Credentials, and reads files again that have changed.
type CredentialFiles = trust.Files

// credentials gives those of the moment.
func (o *Options) credentials() func() *Credentials {
	if o.Credentials == nil {
		return trust.OfSecret(o.Token)
	}
	return steady(o.Credentials)
}

// steady keeps the former credentials where a source gives unusable ones, or none any more: an
// engine that has demanded something of its peers does not let them in without because of that.
func steady(source func() *Credentials) func() *Credentials {
	var last atomic.Pointer[Credentials]
	return func() *Credentials {
		c, before := source(), last.Load()
		if c.Check() != nil || c.None() && !before.None() {
			return before
		}
		last.Store(c)
		return c
	}
}

// checkCredentials checks those that the engine begins with, and says whether there are any.
func (o *Options) checkCredentials() (any bool, err error) {
	if o.Credentials == nil {
		if n := len(o.Token); n > 0 && n < trust.MinSecret {
			return false, trust.ShortError(n)
		}
		return len(o.Token) > 0, nil
	}
	if len(o.Token) > 0 {
		return false, errors.New("a token and credentials: want one of them")
	}
	c := o.Credentials()
	return !c.None(), c.Check()
}
