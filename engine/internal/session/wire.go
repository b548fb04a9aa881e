package session

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/text"
)

// The handshake's packets. docs/wire.md specifies them; integers are big endian.
const (
	magic      = "TPCT"
	minVersion = 2
	maxVersion = 2

	helloHead = 10   // magic, version range, length of the rest
	maxPacket = 4096 // of the handshake, whole
	nonceSize = 32
	proofSize = 32 // HMAC-SHA256
	maxName   = 255
)

// ourFeatures are the optional parts of the protocol that we understand.
const ourFeatures uint64 = 0

// The kinds of connections.
const (
	kindControl uint8 = 1
	kindData    uint8 = 2
)

// Flags of the hello and the answer.
const (
	flagToken       uint8 = 1 << 0 // the sender has a token
	flagResume      uint8 = 1 << 1 // hello: the session exists already
	flagCertificate uint8 = 1 << 1 // answer: the server demands a certificate
)

// status says how a server takes a connection.
type status uint16

const (
	statusOK        status = 0
	statusVersion   status = 1
	statusToken     status = 2 // or certificate: what the dialler has shown is not what is demanded
	statusBusy      status = 3 // too many connections in their handshake: try again
	statusLimit     status = 4 // too many sessions, or data connections of this one
	statusRestarted status = 5 // the session was that of another epoch
	statusEnded     status = 6 // no such session
)

var errMalformed = errors.New("malformed packet")

// ErrNotEngine says that something answers that is not an engine.
var ErrNotEngine = fmt.Errorf("%w: not a topoctl engine", errMalformed)

// hello opens every connection.
type hello struct {
	min, max     uint16
	kind         uint8
	token        bool
	resume       bool
	features     uint64
	messageBytes uint32 // of a call or an answer that the dialler takes
	calls        uint32 // in flight that the dialler takes
	epoch        uint64
	peerEpoch    uint64 // that the session belongs to; 0 not known
	session      transport.SessionID
	conn         transport.ConnID
	nonce        [nonceSize]byte
	name         string
	tokenName    string // of the token that the dialler proves, which may have none
}

func (h *hello) encode() []byte {
	b := appendFields([]byte(magic), h.min, h.max, uint16(0),
		h.kind, flags(h.token, flagToken)|flags(h.resume, flagResume), h.features, h.messageBytes, h.calls,
		h.epoch, h.peerEpoch, h.session, h.conn, h.nonce)
	return withLength(appendName(appendName(b, h.name), h.tokenName), helloHead)
}

// parseHello reads a whole packet. With a version range that has nothing in
// common with ours, only the range is read: the rest may look otherwise.
func parseHello(packet []byte) (hello, error) {
	var h hello
	p := parser{b: packet}
	if string(p.bytes(len(magic))) != magic {
		return h, fmt.Errorf("%w: not a topoctl connection", errMalformed)
	}
	p.fields(&h.min, &h.max)
	p.length()
	if p.bad || h.min == 0 || h.min > h.max {
		return h, errMalformed
	}
	if h.version() == 0 {
		return h, nil
	}
	var f uint8
	p.fields(&h.kind, &f, &h.features, &h.messageBytes, &h.calls, &h.epoch, &h.peerEpoch, &h.session, &h.conn, &h.nonce)
	h.token, h.resume = f&flagToken != 0, f&flagResume != 0
	h.name, h.tokenName = p.name(), p.name()
	switch {
	case p.bad:
		return h, errMalformed
	case h.kind != kindControl && h.kind != kindData:
		return h, fmt.Errorf("%w: unknown kind %d", errMalformed, h.kind)
	case h.kind == kindData && h.resume:
		return h, fmt.Errorf("%w: a data connection does not resume", errMalformed)
	case h.kind == kindControl && (h.messageBytes == 0 || h.calls == 0):
		return h, fmt.Errorf("%w: limits of 0", errMalformed)
	}
	return h, nil
}

// version is the highest that both have, 0 none.
func (h *hello) version() uint16 {
	v := min(h.max, maxVersion)
	if v < max(h.min, minVersion) {
		return 0
	}
	return v
}

// answer is the server's word before anybody has proven anything: it tells no
// more than is needed to go on.
type answer struct {
	min, max uint16
	version  uint16 // chosen, 0 none
	status   status
	token    bool
	// certificate: the server demands one.
	certificate bool
	features    uint64 // that both have
	nonce       [nonceSize]byte
}

func (a *answer) encode() []byte {
	return withLength(appendFields([]byte(magic), a.min, a.max, uint16(0), a.version, a.status,
		flags(a.token, flagToken)|flags(a.certificate, flagCertificate), a.features, a.nonce), helloHead)
}

func parseAnswer(packet []byte) (answer, error) {
	var a answer
	p := parser{b: packet}
	if string(p.bytes(len(magic))) != magic {
		return a, ErrNotEngine
	}
	p.fields(&a.min, &a.max)
	p.length()
	var f uint8
	p.fields(&a.version, &a.status, &f, &a.features, &a.nonce)
	a.token, a.certificate = f&flagToken != 0, f&flagCertificate != 0
	if p.bad || a.min == 0 || a.min > a.max {
		return a, errMalformed
	}
	if a.status == statusOK && (a.version < minVersion || a.version > maxVersion) {
		return a, fmt.Errorf("%w: version %d was not offered", errMalformed, a.version)
	}
	return a, nil
}

// proof shows that the dialler has the secret, and the session's key where it
// resumes one.
type proof struct {
	client    [proofSize]byte
	resume    [proofSize]byte
	hasResume bool
}

func (p *proof) encode() []byte {
	b := appendFields(nil, uint16(0), p.client)
	if p.hasResume {
		b = appendFields(b, p.resume)
	}
	return withLength(b, 2)
}

func parseProof(packet []byte, resume bool) (proof, error) {
	out := proof{hasResume: resume}
	p := parser{b: packet}
	p.length()
	p.fields(&out.client)
	if resume {
		p.fields(&out.resume)
	}
	if p.bad {
		return out, errMalformed
	}
	return out, nil
}

// welcome ends the handshake: the server proves itself and says who it is.
type welcome struct {
	status       status
	proof        [proofSize]byte // over all packets, this one with zeros here
	epoch        uint64
	messageBytes uint32
	calls        uint32
	name         string
}

const welcomeProofAt = 4

func (w *welcome) encode() []byte {
	return withLength(appendName(appendFields(nil, uint16(0), w.status, w.proof, w.epoch, w.messageBytes, w.calls), w.name), 2)
}

func parseWelcome(packet []byte) (welcome, error) {
	var w welcome
	p := parser{b: packet}
	p.length()
	p.fields(&w.status, &w.proof, &w.epoch, &w.messageBytes, &w.calls)
	w.name = p.name()
	if p.bad || (w.status == statusOK && (w.messageBytes == 0 || w.calls == 0)) {
		return w, errMalformed
	}
	return w, nil
}

func flags(set bool, f uint8) uint8 {
	if set {
		return f
	}
	return 0
}

// appendFields appends integers and arrays of bytes, one after the other.
func appendFields(b []byte, fields ...any) []byte {
	for _, f := range fields {
		b, _ = binary.Append(b, binary.BigEndian, f) // they have a size
	}
	return b
}

// withLength sets the last two bytes of a packet's head to the length of the rest.
func withLength(b []byte, head int) []byte {
	binary.BigEndian.PutUint16(b[head-2:], uint16(len(b)-head))
	return b
}

func appendName(b []byte, name string) []byte {
	b = append(b, uint8(len(name)))
	return append(b, name...)
}

// validName: names are printed in messages and logs.
func validName(name string) bool { return len(name) <= maxName && text.Printable(name) == name }

// parser takes fields off the front and remembers that one was missing.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) bytes(n int) []byte {
	if n < 0 || n > len(p.b) {
		p.bad, p.b = true, nil
		return nil
	}
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}

// fields reads what appendFields appends; into are pointers.
func (p *parser) fields(into ...any) {
	for _, f := range into {
		n, err := binary.Decode(p.b, binary.BigEndian, f)
		if err != nil {
			p.bad, p.b = true, nil
			return
		}
		p.b = p.b[n:]
	}
}

// length reads the length of the rest, which must be all there is.
func (p *parser) length() {
	var n uint16
	p.fields(&n)
	p.bad = p.bad || int(n) != len(p.b)
}

func (p *parser) name() string {
	var length uint8
	p.fields(&length)
	n := string(p.bytes(int(length)))
	if !validName(n) {
		p.bad = true
		return ""
	}
	return n
}
