// Package peertls makes the TLS connections of engines: what each end shows and demands, what a peer has proven by
// it, and why one did not come about, in words.
package peertls

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
)

// protocol is what both ends of a connection must name in the handshake (ALPN).
const protocol = "topoctl/2"

// Endpoint makes an engine's TLS connections. Certificates are judged by crypto/tls; without a CA they
// are not judged, and the peer must prove over the channel who it is.
type Endpoint struct {
	now       func() time.Time
	ephemeral func() (*tls.Certificate, error)
}

// NewEndpoint makes one. now is the clock that certificates are judged by, nil is the host's.
func NewEndpoint(now func() time.Time) *Endpoint {
	if now == nil {
		now = time.Now
	}
	return &Endpoint{now: now, ephemeral: sync.OnceValues(newEphemeral)}
}

// Server does the server's side of a handshake with the credentials of this moment. The
// caller bounds it by ctx or by a deadline; after an error it closes raw.
func (e *Endpoint) Server(ctx context.Context, raw net.Conn, c *trust.Credentials) (*tls.Conn, error) {
	config := e.config()
	if c != nil && c.Certificate != nil {
		config.Certificates = []tls.Certificate{*c.Certificate}
	} else {
		own, err := e.ephemeral()
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{*own}
	}
	if c != nil && c.Roots != nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = c.Roots
	}
	return e.handshake(ctx, tls.Server(raw, config), c, "")
}

// Dial does the dialling side. name is the one that the peer's certificate must have where
// certificates are demanded: a DNS name or an IP address (HostOf). A server judges our
// certificate after this has returned: Explain says what the first read gave then.
func (e *Endpoint) Dial(ctx context.Context, raw net.Conn, c *trust.Credentials, name string) (*tls.Conn, error) {
	config := e.config()
	name, _, _ = strings.Cut(name, "%") // the zone of an address is this host's own
	config.ServerName = name
	if c != nil && c.Roots != nil {
		if name == "" {
			return nil, &Error{Cause: WrongName, About: "by none"}
		}
		config.RootCAs = c.Roots
	} else {
		config.InsecureSkipVerify = true // the peer has what no CA signed
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if c == nil || c.Certificate == nil {
			return &tls.Certificate{}, nil
		}
		return c.Certificate, nil // of whichever CA: the server says what is wrong with it
	}
	return e.handshake(ctx, tls.Client(raw, config), c, name)
}

func (e *Endpoint) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS13,
		NextProtos:             []string{protocol},
		SessionTicketsDisabled: true,
		Time:                   e.now,
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.NegotiatedProtocol != protocol {
				return &Error{Cause: OtherProtocol}
			}
			return nil
		},
	}
}

func (e *Endpoint) handshake(ctx context.Context, conn *tls.Conn, c *trust.Credentials, name string) (*tls.Conn, error) {
	err := conn.HandshakeContext(ctx)
	if err == nil {
		return conn, nil
	}
	if state := conn.ConnectionState(); name == "" && c != nil && c.Roots != nil && state.NegotiatedProtocol == protocol &&
		len(state.PeerCertificates) == 0 && !judged(err) {
		return nil, &Error{Cause: NoCertificate, Err: err}
	}
	return nil, e.explain(err, c, name)
}

// newEphemeral makes the certificate of an engine that has none. It proves nothing: the channel
// needs one.
func newEphemeral() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	forever := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: ephemeralName}, NotAfter: forever}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// ephemeralName tells peers that look for a CA's signature what they see.
const ephemeralName = "topoctl engine without certificate"

// judged says that an error has its own explanation: the network's, the peer's word, or what
// x509 found.
func judged(err error) bool {
	_, network := errors.AsType[net.Error](err)
	_, verified := errors.AsType[*tls.CertificateVerificationError](err)
	return network || verified
}

// PeerNames are the names of the peer's certificate where one was demanded and verified, nil
// otherwise.
func PeerNames(c *tls.Conn) []string {
	state := c.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return nil
	}
	return trust.Names(state.PeerCertificates[0])
}

// HostOf is the name that a peer's certificate must have where it is dialled at this address:
// the host of a host:port, or the address itself.
func HostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
