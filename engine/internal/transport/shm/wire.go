package shm

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// The protocol. One packet is one message; numbers are big-endian (docs/wire.md).
//
//	request of Dial to Accept: version (1 byte), the highest that is spoken
//	answer:                    version (1 byte), ticket (32 bytes)
//	hello, the first packet:   magic (8), session (16), conn (8), ticket (32)
//	all others, 24 bytes:      kind, status, grant, place, 4 zero bytes, region (8), bytes (8)
//	a move, behind these:      1 to 64 pieces of region (8), offset (8), length (4)
const (
	version    = 1
	ticketSize = 32
	helloSize  = 64
	frameSize  = 24
	spotSize   = 20
	maxSpots   = 64 // of a move
	maxPacket  = frameSize + maxSpots*spotSize
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

	// Of a device's memory, through the slots of a window. place is the device, region
	// the number of the window, bytes the slot.
	wantWindow kind = 7  // active: wants a window
	giveWindow kind = 8  // passive: the answer, when there is one: status, and with ok the bytes and the descriptor
	takeBack   kind = 9  // passive: nothing is copied through that window any more
	moveIt     kind = 10 // active: copy the pieces to the slot (grant 1) or out of it (2)
	moved      kind = 11 // passive: the answer: status
)

// status is how a mapIt, a wantWindow or a moveIt ended.
type status uint8

const (
	ok        status = 0
	noRegion  status = 1
	denied    status = 2
	noFile    status = 3
	noHandles status = 4
	windowed  status = 5 // of mapIt: not mapped, but copied through windows
	outside   status = 6
	deviceBad status = 7
	again     status = 8 // of moveIt: the window was withdrawn
)

var (
	errNoFile    = errors.New("the region is not shared memory (private or foreign)")
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
	case outside:
		return memory.ErrRange
	case deviceBad:
		return memory.ErrDevice
	default:
		return fmt.Errorf("unknown status %d", uint8(s))
	}
}

// frame is a message after the hello.
type frame struct {
	kind   kind
	status status
	grant  memory.Grant
	place  uint8
	region memory.ID
	bytes  uint64
}

func (f frame) append(b []byte) []byte {
	b = append(b, byte(f.kind), byte(f.status), byte(f.grant), f.place, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(f.region))
	return binary.BigEndian.AppendUint64(b, f.bytes)
}

// parseFrame reads a frame; unknown kinds are the caller's to refuse.
func parseFrame(b []byte) (frame, error) {
	if len(b) != frameSize {
		return frame{}, fmt.Errorf("a frame of %d bytes, want %d", len(b), frameSize)
	}
	if string(b[4:8]) != "\x00\x00\x00\x00" {
		return frame{}, errors.New("a frame with reserved bytes set")
	}
	return frame{
		kind:   kind(b[0]),
		status: status(b[1]),
		grant:  memory.Grant(b[2]),
		place:  b[3],
		region: memory.ID(binary.BigEndian.Uint64(b[8:])),
		bytes:  binary.BigEndian.Uint64(b[16:]),
	}, nil
}

// spot is a piece of a region.
type spot struct {
	region memory.ID
	offset uint64
	bytes  uint32
}

func (s spot) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(s.region))
	b = binary.BigEndian.AppendUint64(b, s.offset)
	return binary.BigEndian.AppendUint32(b, s.bytes)
}

// parsePacket reads a frame, and behind that of a move its pieces. Together they are
// no more than a slot takes.
func parsePacket(b []byte, spots []spot) (frame, []spot, error) {
	f, err := parseFrame(b[:min(len(b), frameSize)])
	if err != nil || f.kind != moveIt && len(b) == frameSize {
		return f, spots[:0], err
	}
	rest := b[frameSize:]
	if n := len(rest) / spotSize; f.kind != moveIt || len(rest)%spotSize != 0 || n == 0 || n > maxSpots {
		return frame{}, nil, fmt.Errorf("a frame of kind %d with %d bytes behind it", f.kind, len(rest))
	}
	spots, sum := spots[:0], uint64(0)
	for ; len(rest) > 0; rest = rest[spotSize:] {
		s := spot{memory.ID(binary.BigEndian.Uint64(rest)), binary.BigEndian.Uint64(rest[8:]), binary.BigEndian.Uint32(rest[16:])}
		spots = append(spots, s)
		sum += uint64(s.bytes)
	}
	if sum == 0 || sum > memory.PieceBytes {
		return frame{}, nil, fmt.Errorf("a move of %d bytes: a slot has %d", sum, int64(memory.PieceBytes))
	}
	return f, spots, nil
}

// hello is the active side's first packet.
type hello struct {
	key    transport.ConnKey
	ticket ticket
}

func (h hello) encode() []byte {
	b := append(make([]byte, 0, helloSize), magic...)
	b = append(b, h.key.Session[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(h.key.Conn))
	return append(b, h.ticket[:]...)
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloSize || string(b[:8]) != magic {
		return hello{}, errors.New("not a hello of this protocol")
	}
	copy(h.key.Session[:], b[8:24])
	h.key.Conn = transport.ConnID(binary.BigEndian.Uint64(b[24:32]))
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
