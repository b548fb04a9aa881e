package tcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

const (
	tagBytes = 16
	// pieceBytes is what of a span one tag is for at most. Both ends cut in the same places, so
	// that it is of the protocol. It is in the processor's cache then.
	pieceBytes = 128 << 10
)

// guard makes or checks what protects the frames of one direction. Its zero value is the
// checksum of headers. With a key it is the tags of AES-GCM over what is not encrypted (GMAC),
// whose nonce has the number of the frame: a frame that is repeated, left out or moved has
// another one.
type guard struct {
	aead  cipher.AEAD
	next  uint64 // number of the next frame
	nonce [12]byte
	sum   [tagBytes]byte // the last one that was made
}

// The keys of the two directions.
const (
	labelRequester = "topoctl/2 frames requester\x00"
	labelResponder = "topoctl/2 frames responder\x00"
)

// guards are those of both directions.
func (g grant) guards() (requester, responder guard) {
	if !g.keyed() {
		return guard{}, guard{}
	}
	return guard{aead: gmac(g.key, labelRequester)}, guard{aead: gmac(g.key, labelResponder)}
}

// keyed says that the frames have tags. Within TLS they need none.
func (o offer) keyed() bool { return o.level == transport.Headers || o.level == transport.Payload }

func gmac(key transport.DataKey, label string) cipher.AEAD {
	m := hmac.New(sha256.New, key[:])
	m.Write([]byte(label))
	block, err := aes.NewCipher(m.Sum(nil))
	if err != nil {
		panic(err) // a key of 32 bytes is one
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return aead
}

// tail is how many bytes follow a header and its descriptors.
func (g *guard) tail() int {
	if g.aead == nil {
		return 0
	}
	return tagBytes
}

// seal completes a header with its descriptors, behind which there is room for the tail.
func (g *guard) seal(b []byte) {
	if g.aead == nil {
		binary.BigEndian.PutUint32(b[sumAt:], headSum(b))
		return
	}
	clear(b[sumAt:headBytes])
	g.begin()
	body := len(b) - tagBytes
	copy(b[body:], g.tag(0, b[:body]))
}

// check says whether a header is as the peer sealed it, and the peer's next.
func (g *guard) check(b []byte) bool {
	if g.aead == nil {
		return binary.BigEndian.Uint32(b[sumAt:]) == headSum(b)
	}
	g.begin()
	body := len(b) - tagBytes
	return subtle.ConstantTimeCompare(g.tag(0, b[:body]), b[body:]) == 1
}

// broken is what ends a connection on which check failed.
func (g *guard) broken() error {
	if g.aead == nil {
		return violation(headerChecksum, "the checksum of a header is wrong")
	}
	return violation(headerTag, "the tag of a header is wrong: the frame was changed, repeated, moved or made up on the way, or one before it is missing")
}

// begin goes on to the next frame.
func (g *guard) begin() {
	binary.BigEndian.PutUint64(g.nonce[4:], g.next)
	g.next++
}

// tag is that of a piece of the frame: the header is piece 0, the payload has the others. It
// is good until the next one.
func (g *guard) tag(piece uint32, b []byte) []byte {
	binary.BigEndian.PutUint32(g.nonce[:], piece)
	return g.aead.Seal(g.sum[:0], g.nonce[:], nil, b)
}

// pieces is how many tags a span has.
func pieces(bytes int64) int { return int(roundUp(bytes) / pieceBytes) }

// roundUp is the next place at which a piece may begin.
func roundUp(n int64) int64 { return (n + pieceBytes - 1) / pieceBytes * pieceBytes }
