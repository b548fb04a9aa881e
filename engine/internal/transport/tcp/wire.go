package tcp

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// The frames of a data connection, as docs/wire.md has them under "Data
// connections over TCP". All numbers are big-endian.

// Types of frames.
const (
	frameWrite = 1 // requester to responder: descriptors, payload
	frameRead  = 2 // requester to responder: descriptors
	frameAck   = 3 // responder to requester: the end of a request
	frameData  = 4 // responder to requester: the payload of a READ
	frameReady = 5 // responder to requester, first of all: the connection is let in
)

// flagSum says that a checksum follows the payload; in a READ it asks for one.
const flagSum = 1

// Sizes in bytes.
const (
	headBytes = 24
	descBytes = 20
	sumBytes  = 4
	sumAt     = headBytes - sumBytes // of a header's own checksum
)

// What an ack says.
const (
	statusOK       = 0
	statusNoRegion = 1
	statusRange    = 2
	statusDenied   = 3
	statusSum      = 4
	statusDevice   = 5
)

// header is the beginning of each frame.
type header struct {
	kind, flags uint8
	count       uint16 // descriptors, or the status of an ack
	id          uint32
	bytes       uint64 // of the payload; in a READ of its answer
	detail      uint32 // the place of the descriptor that an ack complains of
}

func (h *header) get(b []byte) {
	_ = b[headBytes-1]
	h.kind, h.flags = b[0], b[1]
	h.count = binary.BigEndian.Uint16(b[2:])
	h.id = binary.BigEndian.Uint32(b[4:])
	h.bytes = binary.BigEndian.Uint64(b[8:])
	h.detail = binary.BigEndian.Uint32(b[16:])
}

// put writes the header but for its checksum, which guard.seal adds.
func (h *header) put(b []byte) {
	_ = b[headBytes-1]
	b[0], b[1] = h.kind, h.flags
	binary.BigEndian.PutUint16(b[2:], h.count)
	binary.BigEndian.PutUint32(b[4:], h.id)
	binary.BigEndian.PutUint64(b[8:], h.bytes)
	binary.BigEndian.PutUint32(b[16:], h.detail)
}

// headSum is the checksum of a header and its descriptors.
func headSum(b []byte) uint32 {
	sum := crc32.ChecksumIEEE(b[:sumAt])
	if len(b) > headBytes {
		sum = crc32.Update(sum, crc32.IEEETable, b[headBytes:])
	}
	return sum
}

// readyFrame is what a connection that is let in begins with.
func readyFrame(g *guard) []byte {
	b := make([]byte, headBytes+g.tail())
	h := header{kind: frameReady}
	h.put(b)
	g.seal(b)
	return b
}

// desc is a contiguous piece of the responder's memory.
type desc struct {
	region memory.ID
	offset uint64
	length uint32
}

func getDesc(b []byte) desc {
	_ = b[descBytes-1]
	return desc{
		region: memory.ID(binary.BigEndian.Uint64(b)),
		offset: binary.BigEndian.Uint64(b[8:]),
		length: binary.BigEndian.Uint32(b[16:]),
	}
}

func (d desc) put(b []byte) {
	_ = b[descBytes-1]
	binary.BigEndian.PutUint64(b, uint64(d.region))
	binary.BigEndian.PutUint64(b[8:], d.offset)
	binary.BigEndian.PutUint32(b[16:], d.length)
}

// statusOf is what an ack says about an error of the table of regions.
func statusOf(err error) uint16 {
	switch {
	case errors.Is(err, memory.ErrRange):
		return statusRange
	case errors.Is(err, memory.ErrDenied):
		return statusDenied
	default:
		return statusNoRegion
	}
}

// statusError is the completion's error for an ack. known is false for a status
// that the protocol has not.
func statusError(status uint16, span uint32) (err error, known bool) {
	switch status {
	case statusOK:
		return nil, true
	case statusSum:
		return pkgerr.Errorf("tcp", "%w", transport.ErrChecksum), true
	case statusNoRegion:
		err = memory.ErrNoRegion
	case statusRange:
		err = memory.ErrRange
	case statusDenied:
		err = memory.ErrDenied
	case statusDevice:
		err = memory.ErrDevice
	default:
		return nil, false
	}
	return pkgerr.Errorf("tcp", "%w: span %d: %w", transport.ErrRefused, span, err), true
}

// Bounds of what can be negotiated.
const (
	offerBytes   = 24
	offerVersion = 2
	featureSum   = 1 // CRC-32 (IEEE) over payloads
	spansLimit   = 512
	bytesLimit   = 1 << 30
	postedLimit  = 1024
)

// offer is what one end of a connection can do; both go over the session before
// the connection is made.
type offer struct {
	level    transport.Protection // the least that is accepted; what is agreed on in the answer
	features uint32
	spans    uint32
	posted   uint32
	bytes    uint64
}

func (o offer) put() []byte {
	b := make([]byte, offerBytes, grantBytes)
	binary.BigEndian.PutUint16(b, offerVersion)
	b[2] = uint8(o.level)
	binary.BigEndian.PutUint32(b[4:], o.features)
	binary.BigEndian.PutUint32(b[8:], o.spans)
	binary.BigEndian.PutUint32(b[12:], o.posted)
	binary.BigEndian.PutUint64(b[16:], o.bytes)
	return b
}

// getOffer reads an offer. Bytes behind it are of later versions of the protocol,
// which add but do not change.
func getOffer(b []byte) (offer, error) {
	if len(b) < offerBytes {
		return offer{}, pkgerr.Errorf("tcp", "offer of %d bytes, want at least %d", len(b), offerBytes)
	}
	if v := binary.BigEndian.Uint16(b); v != offerVersion {
		return offer{}, pkgerr.Errorf("tcp", "offer of version %d, want %d", v, offerVersion)
	}
	if b[3] != 0 {
		return offer{}, pkgerr.Errorf("tcp", "offer with %d in its fourth byte, want 0", b[3])
	}
	o := offer{
		level:    transport.Protection(b[2]),
		features: binary.BigEndian.Uint32(b[4:]),
		spans:    binary.BigEndian.Uint32(b[8:]),
		posted:   binary.BigEndian.Uint32(b[12:]),
		bytes:    binary.BigEndian.Uint64(b[16:]),
	}
	if o.spans == 0 || o.posted == 0 || o.bytes == 0 || o.spans > spansLimit || o.posted > postedLimit || o.bytes > bytesLimit {
		return offer{}, pkgerr.Errorf("tcp", "offer of %d spans, %d requests, %d bytes: want 1 to %d, %d, %d",
			o.spans, o.posted, o.bytes, spansLimit, postedLimit, bytesLimit)
	}
	return o, nil
}

// grant is a responder's answer to an offer: what both ends can do, and the key of the
// connection.
type grant struct {
	offer
	key    transport.DataKey
	rights *memory.Rights // of the peer; the responder's own, not sent
}

const grantBytes = offerBytes + len(transport.DataKey{})

func (g grant) put() []byte { return append(g.offer.put(), g.key[:]...) }

func getGrant(b []byte) (grant, error) {
	o, err := getOffer(b)
	if err != nil {
		return grant{}, err
	}
	if len(b) < grantBytes {
		return grant{}, pkgerr.Errorf("tcp", "answer of %d bytes, want at least %d", len(b), grantBytes)
	}
	return grant{offer: o, key: transport.DataKey(b[offerBytes:])}, nil
}

// mostProtection is the highest level that this end has.
const mostProtection = transport.Sealed

// common is what both ends can do. Each gives the other at least the level that it accepts.
func (o offer) common(other offer) (offer, error) {
	if other.level > mostProtection {
		return offer{}, pkgerr.Errorf("tcp", "the peer accepts no less protection than %q: this engine has %q to %q", other.level, o.level, mostProtection)
	}
	c := offer{
		level:    max(o.level, other.level),
		features: o.features & other.features,
		spans:    min(o.spans, other.spans),
		posted:   min(o.posted, other.posted),
		bytes:    min(o.bytes, other.bytes),
	}
	if c.level >= transport.Payload {
		c.features &^= featureSum // tags and TLS find more than that
	}
	return c, nil
}
