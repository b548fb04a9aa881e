package shm

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/transport"
)

// The protocol. One packet is one message; numbers are big-endian (docs/wire.md).
//
//	request of Dial to Accept: version (1 byte), the highest that is spoken
//	answer:                    version (1 byte), ticket (32 bytes)
//	hello, the first packet:   magic (8), session (16), conn (8), ticket (32)
//	all others, 24 bytes:      kind, status, grant, 5 zero bytes, region (8), bytes (8)
const (
	version    = 1
	ticketSize = 32
	helloSize  = 64
	frameSize  = 24
	magic      = "toposhm1"
)

type ticket [ticketSize]byte

func (t *ticket) equal(o *ticket) bool { return subtle.ConstantTimeCompare(t[:], o[:]) == 1 }

// kind is what a frame is for.
type kind uint8

const (
	welcome kind = 1 // passive: the hello was right; with the descriptor of the board
	mapIt   kind = 2 // active: region: wants its descriptor
	mapped  kind = 3 // passive: the answer: status, and with ok grant, bytes and the descriptor
	revoke  kind = 4 // passive: the region is closed, unmap it
	stop    kind = 5 // passive: touch nothing any more
	stopped kind = 6 // active: the answer, the last frame
)

// status is how a mapIt ended.
type status uint8

const (
	ok        status = 0
	noRegion  status = 1
	denied    status = 2
	noFile    status = 3
	noHandles status = 4
)

var (
	errNoFile    = errors.New("the region is no shared memory (private or foreign)")
	errNoHandles = errors.New("the peer has no descriptors left")
)

// err is what a status means to the requester.
func (s status) err() error {
	switch s {
	case ok:
		return nil
	case noRegion:
		return memory.ErrNoRegion
	case denied:
		return memory.ErrDenied
	case noFile:
		return errNoFile
	case noHandles:
		return errNoHandles
	default:
		return fmt.Errorf("unknown status %d", uint8(s))
	}
}

// frame is a message after the hello.
type frame struct {
	kind   kind
	status status
	grant  memory.Grant
	region memory.ID
	bytes  uint64
}

func (f frame) append(b []byte) []byte {
	b = append(b, byte(f.kind), byte(f.status), byte(f.grant), 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(f.region))
	return binary.BigEndian.AppendUint64(b, f.bytes)
}

// parseFrame reads a frame; unknown kinds are the caller's to refuse.
func parseFrame(b []byte) (frame, error) {
	if len(b) != frameSize {
		return frame{}, fmt.Errorf("a frame of %d bytes, want %d", len(b), frameSize)
	}
	if string(b[3:8]) != "\x00\x00\x00\x00\x00" {
		return frame{}, errors.New("a frame with reserved bytes set")
	}
	return frame{
		kind:   kind(b[0]),
		status: status(b[1]),
		grant:  memory.Grant(b[2]),
		region: memory.ID(binary.BigEndian.Uint64(b[8:])),
		bytes:  binary.BigEndian.Uint64(b[16:]),
	}, nil
}

// key names a connection on the passive side.
type key struct {
	session transport.SessionID
	conn    transport.ConnID
}

// hello is the active side's first packet.
type hello struct {
	key
	ticket ticket
}

func (h hello) encode() []byte {
	b := append(make([]byte, 0, helloSize), magic...)
	b = append(b, h.session[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.conn))
	return append(b, h.ticket[:]...)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloSize || string(b[:8]) != magic {
		return hello{}, errors.New("not a hello of this protocol")
	}
	copy(h.session[:], b[8:24])
	h.conn = transport.ConnID(binary.BigEndian.Uint64(b[24:32]))
	copy(h.ticket[:], b[32:])
	return h, nil
}

func parseAnswer(b []byte) (t ticket, err error) {
	if len(b) != 1+ticketSize || b[0] != version {
		return ticket{}, fmt.Errorf("an answer of %d bytes that is not version %d's", len(b), version)
	}
	copy(t[:], b[1:])
	return t, nil
}
