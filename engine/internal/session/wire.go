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
	b := []byte(magic)
	b = binary.BigEndian.AppendUint16(b, h.min)
	b = binary.BigEndian.AppendUint16(b, h.max)
	b = append(b, 0, 0)
	b = append(b, h.kind, flags(h.token, flagToken)|flags(h.resume, flagResume))
	b = binary.BigEndian.AppendUint64(b, h.features)
	b = binary.BigEndian.AppendUint32(b, h.messageBytes)
	b = binary.BigEndian.AppendUint32(b, h.calls)
	b = binary.BigEndian.AppendUint64(b, h.epoch)
	b = binary.BigEndian.AppendUint64(b, h.peerEpoch)
	b = append(b, h.session[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.conn))
	b = append(b, h.nonce[:]...)
	b = appendName(b, h.name)
	b = appendName(b, h.tokenName)
	binary.BigEndian.PutUint16(b[helloHead-2:], uint16(len(b)-helloHead))
	return b
}

// parseHello reads a whole packet. With a version range that has nothing in
// common with ours, only the range is read: the rest may look otherwise.
func parseHello(packet []byte) (hello, error) {
	var h hello
	p := parser{b: packet}
	if string(p.bytes(len(magic))) != magic {
		return h, fmt.Errorf("%w: not a topoctl connection", errMalformed)
	}
	h.min, h.max = p.u16(), p.u16()
	p.sub(int(p.u16()))
	if p.bad || h.min == 0 || h.min > h.max {
		return h, errMalformed
	}
	if h.version() == 0 {
		return h, nil
	}
	h.kind = p.u8()
	f := p.u8()
	h.token, h.resume = f&flagToken != 0, f&flagResume != 0
	h.features = p.u64()
	h.messageBytes, h.calls = p.u32(), p.u32()
	h.epoch, h.peerEpoch = p.u64(), p.u64()
	copy(h.session[:], p.bytes(len(h.session)))
	h.conn = transport.ConnID(p.u64())
	copy(h.nonce[:], p.bytes(nonceSize))
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
	b := []byte(magic)
	b = binary.BigEndian.AppendUint16(b, a.min)
	b = binary.BigEndian.AppendUint16(b, a.max)
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint16(b, a.version)
	b = binary.BigEndian.AppendUint16(b, uint16(a.status))
	b = append(b, flags(a.token, flagToken)|flags(a.certificate, flagCertificate))
	b = binary.BigEndian.AppendUint64(b, a.features)
	b = append(b, a.nonce[:]...)
	binary.BigEndian.PutUint16(b[helloHead-2:], uint16(len(b)-helloHead))
	return b
}

func parseAnswer(packet []byte) (answer, error) {
	var a answer
	p := parser{b: packet}
	if string(p.bytes(len(magic))) != magic {
		return a, ErrNotEngine
	}
	a.min, a.max = p.u16(), p.u16()
	p.sub(int(p.u16()))
	a.version = p.u16()
	a.status = status(p.u16())
	f := p.u8()
	a.token, a.certificate = f&flagToken != 0, f&flagCertificate != 0
	a.features = p.u64()
	copy(a.nonce[:], p.bytes(nonceSize))
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
	n := proofSize
	if p.hasResume {
		n += proofSize
	}
	b := binary.BigEndian.AppendUint16(nil, uint16(n))
	b = append(b, p.client[:]...)
	if p.hasResume {
		b = append(b, p.resume[:]...)
	}
	return b
}

func parseProof(packet []byte, resume bool) (proof, error) {
	out := proof{hasResume: resume}
	p := parser{b: packet}
	p.sub(int(p.u16()))
	copy(out.client[:], p.bytes(proofSize))
	if resume {
		copy(out.resume[:], p.bytes(proofSize))
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
	b := []byte{0, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(w.status))
	b = append(b, w.proof[:]...)
	b = binary.BigEndian.AppendUint64(b, w.epoch)
	b = binary.BigEndian.AppendUint32(b, w.messageBytes)
	b = binary.BigEndian.AppendUint32(b, w.calls)
	b = appendName(b, w.name)
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	return b
}

func parseWelcome(packet []byte) (welcome, error) {
	var w welcome
	p := parser{b: packet}
	p.sub(int(p.u16()))
	w.status = status(p.u16())
	copy(w.proof[:], p.bytes(proofSize))
	w.epoch = p.u64()
	w.messageBytes, w.calls = p.u32(), p.u32()
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

// sub leaves the next n bytes, which must be all there are.
func (p *parser) sub(n int) {
	if n != len(p.b) {
		p.bad, p.b = true, nil
	}
}

func (p *parser) u8() uint8 {
	if b := p.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (p *parser) u16() uint16 {
	if b := p.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (p *parser) u32() uint32 {
	if b := p.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (p *parser) name() string {
	n := string(p.bytes(int(p.u8())))
	if !validName(n) {
		p.bad = true
		return ""
	}
	return n
}
