package peertls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/text"
)

// Error is why a TLS connection did not come about: what one end found wrong with the other.
type Error struct {
	Cause  Cause
	Remote bool   // the peer refused us
	About  string // names the certificate, the times or the names that it is about; "" without
	Err    error  // of crypto/tls; may be nil
}

// Cause is what was wrong.
type Cause uint8

// The values of Cause.
const (
	OtherTLS         Cause = iota // no TLS 1.3, or no TLS at all
	OtherProtocol                 // TLS, and inside it another protocol than engines speak
	Altered                       // what arrived is not what the other end sent
	NoCertificate                 // one is demanded, none came
	UnknownAuthority              // signed by none of the CAs
	Expired
	NotYetValid
	WrongName  // not that by which the peer was opened
	WrongUsage // not for servers, or not for clients
	BadCertificate
)

// causes are the texts, of what we found and of what the peer did, with the next step.
var causes = [...]struct{ ours, theirs string }{
	OtherTLS:         {"the TLS handshake failed: both ends must be engines of this version", "the peer refused the TLS handshake: both ends must be engines of this version"},
	OtherProtocol:    {"the other end speaks TLS, but not " + protocol + ": it is no engine, or one of another version", "the peer does not speak " + protocol + ": it is no engine, or one of another version"},
	Altered:          {"bytes of the TLS connection were changed on the way: look for what changes them between the hosts", "bytes of the TLS connection were changed on the way to the peer: look for what changes them between the hosts"},
	NoCertificate:    {"the peer showed no certificate, and this engine demands one: give the peer one of the same CA", "the peer demands a certificate, and none is set here: give this engine one of the peer's CA"},
	UnknownAuthority: {"the peer's certificate is signed by no CA that this engine knows: give both ends certificates of one CA", "the peer does not know the CA that signed this engine's certificate: give both ends certificates of one CA"},
	Expired:          {"the peer's certificate has expired: renew it", "the peer says that this engine's certificate has expired, or is not valid yet: renew it, and compare the clocks of both hosts"},
	NotYetValid:      {"the peer's certificate is not valid yet: compare the clocks of both hosts", ""},
	WrongName:        {"the peer's certificate is for another name than it was opened by: open it by a name of its certificate, or give it one with this name", ""},
	WrongUsage:       {"the peer's certificate is not made for this use: it needs serverAuth and clientAuth", ""},
	BadCertificate:   {"the peer's certificate is not valid: replace it", "the peer refused this engine's certificate: the peer's log says why"},
}

func (e *Error) Error() string {
	said := causes[e.Cause].ours
	if e.Remote {
		said = causes[e.Cause].theirs
	}
	if e.About == "" {
		return said
	}
	what, next, _ := strings.Cut(said, ": ")
	return what + " (" + e.About + "): " + next
}

// Unwrap gives trust.ErrCertificate where it is about one, and the error of crypto/tls.
func (e *Error) Unwrap() []error {
	var out []error
	if e.Cause >= NoCertificate {
		out = append(out, trust.ErrCertificate)
	}
	if e.Err != nil {
		out = append(out, e.Err)
	}
	return out
}

// Explain puts the error of a connection that Dial made in words: a server's refusal of our
// certificate comes with the first read, and so does what was changed on the way. Others are
// returned as they are.
func Explain(err error, c *trust.Credentials) error {
	if out := alert(err, c); out != nil {
		return out
	}
	return err
}

// IsAltered says whether a TLS connection ended, or did not come about, because bytes arrived, at
// either end, that the other had not sent.
func IsAltered(err error) bool {
	// The header of a record is read before its tag; Conn is set where the peer does not speak TLS.
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return header.Conn == nil
	}
	said, ok := errors.AsType[*Error](err)
	if !ok {
		said = alert(err, nil)
	}
	return said != nil && said.Cause == Altered
}

// alert is what one end said of the other in TLS, nil if err is something else.
func alert(err error, c *trust.Credentials) *Error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" && op.Op != "local error" {
		return nil
	}
	out := &Error{Remote: op.Op == "remote error", Err: err}
	// The type of crypto/tls for alerts is not exported; its number is what RFC 8446 gives it.
	if number := reflect.ValueOf(op.Err); number.Kind() == reflect.Uint8 {
		switch number.Uint() {
		case 20, 22, 50, 51: // bad_record_mac, record_overflow, decode_error, decrypt_error
			out.Cause = Altered
		case 120:
			out.Cause = OtherProtocol
		case 116:
			out.Cause = NoCertificate
		case 48:
			out.Cause = UnknownAuthority
		case 45:
			out.Cause = Expired
		case 42, 43, 44, 46:
			out.Cause = BadCertificate
		}
	}
	switch {
	case !out.Remote || out.Cause <= NoCertificate:
	case c == nil || c.Certificate == nil:
		out.Cause = NoCertificate // what the peer refused was made because there is none
	default:
		out.About = trust.Describe(c.Certificate.Leaf) + ", valid to " + stamp(c.Certificate.Leaf.NotAfter)
	}
	return out
}

// explain says what a handshake failed of.
func (e *Endpoint) explain(err error, c *trust.Credentials, name string) error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return own
	}
	if out := alert(err, c); out != nil {
		return out
	}
	if v, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e.verification(v, name)
	}
	if _, network := errors.AsType[net.Error](err); network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return &Error{Cause: OtherTLS, About: text.Printable(err.Error()), Err: err}
}

// verification says what x509 found.
func (e *Endpoint) verification(v *tls.CertificateVerificationError, name string) error {
	leaf := v.UnverifiedCertificates[0]
	out := &Error{Cause: BadCertificate, About: trust.Describe(leaf) + ", " + text.Printable(v.Err.Error()), Err: v}
	if _, ok := errors.AsType[x509.HostnameError](v.Err); ok {
		out.Cause, out.About = WrongName, fmt.Sprintf("%s, not for %q", trust.Describe(leaf), name)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](v.Err); ok {
		out.Cause, out.About = UnknownAuthority, trust.Describe(leaf)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](v.Err); ok {
		now, bad := e.now(), invalid.Cert // which may be the CA's
		switch {
		case invalid.Reason == x509.Expired && now.Before(bad.NotBefore):
			out.Cause, out.About = NotYetValid, fmt.Sprintf("%s, valid from %s, here it is %s", trust.Describe(bad), stamp(bad.NotBefore), stamp(now))
		case invalid.Reason == x509.Expired:
			out.Cause, out.About = Expired, fmt.Sprintf("%s, valid to %s, here it is %s", trust.Describe(bad), stamp(bad.NotAfter), stamp(now))
		case invalid.Reason == x509.IncompatibleUsage:
			out.Cause, out.About = WrongUsage, trust.Describe(leaf)
		}
	}
	if leaf.Subject.CommonName == ephemeralName && len(trust.Names(leaf)) == 0 {
		out.Cause, out.About = NoCertificate, ""
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
