package tcp

import (
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

const (
	// stageBytes is the staging buffer: small frames are copied out of it.
	stageBytes = 64 << 10
	// directMin is from how many bytes on a payload is received in its place.
	directMin = 16 << 10
	// tailBytes is what is read beyond a payload that is received in its place, in
	// the hope of the next header.
	tailBytes = 4 << 10
	// readBytes is what one system call receives at most.
	readBytes = 4 << 20
)

// Phases of a frame.
const (
	inHeader = iota
	inPayload
	inTrailer
)

// inbox takes frames from the stream: headers and small payloads through the
// staging buffer, large payloads straight to their place. Whoever has the link's turn owns it.
type inbox struct {
	guard guard
	stage []byte
	r, w  int // what is staged and not consumed
	vec   *memory.Vector
	place int // bytes of vec that are received in their place

	phase int
	need  int // bytes that the header takes, as far as known
	ahead int // what is staged beyond a large payload
	h     header

	// The payload.
	left   int64
	drain  bool // goes nowhere
	spans  []transport.Span
	span   int
	offset int64
	sum    bool
	crc    uint32
	big    bool // the last payload was received in its place
	tagged bool // payloads have tags
	piece  uint32

	// What follows the payload: a checksum, or the tags of its pieces.
	trail   int    // bytes that are to come
	trailer []byte // what they should be
	wrong   bool

	// Of the last system call.
	n   int
	err error

	// Of the reader's wait.
	waiting bool
	since   time.Time
	polls   int
	parked  bool
	spin    spin

	// For the watchdog.
	received atomic.Uint64 // counts calls that brought something
	amid     atomic.Bool   // in the midst of a frame
}

func (in *inbox) init() {
	in.stage = make([]byte, stageBytes)
	in.vec = memory.NewVector(spansLimit + 1)
	in.need, in.ahead = headBytes+in.guard.tail(), tailBytes
	in.aim()
}

// expect says where the payload of the frame that was just begun goes: to spans,
// or nowhere, and how many bytes follow it.
func (in *inbox) expect(bytes int64, spans []transport.Span, drain bool, trail int) {
	in.left, in.spans, in.span, in.offset = bytes, spans, 0, 0
	in.drain, in.sum, in.crc, in.piece = drain, trail > 0 && !in.tagged, 0, 0
	in.trail, in.trailer, in.wrong = trail, in.trailer[:0], false
	in.ahead = min(in.ahead+trail, len(in.stage))
	in.big = bytes >= directMin && !drain
	in.phase = inPayload
}

// consume handles what is staged. It returns when it needs more.
func (in *inbox) consume(e end) error {
	for {
		staged := in.stage[in.r:in.w]
		switch in.phase {
		case inHeader:
			if len(staged) < in.need {
				return nil
			}
			in.h.get(staged)
			size, err := e.headerSize(&in.h)
			switch {
			case err != nil && in.guard.aead != nil:
				return in.guard.broken() // nothing in it is the peer's word without its tag
			case err != nil:
				return err
			}
			tail := in.guard.tail()
			if len(staged) < size+tail {
				in.need = size + tail
				return nil
			}
			if !in.guard.check(staged[:size+tail]) {
				return in.guard.broken()
			}
			in.r += size + tail
			in.need, in.ahead = headBytes+tail, max(tailBytes, size+tail+headBytes)
			if err := e.begin(&in.h, staged[headBytes:size]); err != nil {
				return err
			}
		case inPayload:
			n := int(min(int64(len(staged)), in.left))
			in.put(staged[:n])
			in.r += n
			if in.left > 0 {
				return nil
			}
			in.phase = inTrailer
			if in.sum {
				in.trailer = binary.BigEndian.AppendUint32(in.trailer, in.crc)
			}
		case inTrailer:
			n := min(len(staged), in.trail)
			if !in.drain {
				want := in.trailer[len(in.trailer)-in.trail:]
				in.wrong = subtle.ConstantTimeCompare(staged[:n], want[:n]) == 0 || in.wrong
			}
			in.r += n
			if in.trail -= n; in.trail > 0 {
				return nil
			}
			in.phase = inHeader
			e.complete(!in.wrong)
		}
	}
}

// put copies staged bytes of the payload to their place.
func (in *inbox) put(b []byte) {
	in.left -= int64(len(b))
	if in.drain {
		return
	}
	if in.sum {
		in.crc = crc32.Update(in.crc, crc32.IEEETable, b)
	}
	for len(b) > 0 {
		s := &in.spans[in.span]
		n := min(int64(len(b)), s.Bytes-in.offset)
		copy(s.Local.Bytes(s.LocalOffset+in.offset, n), b)
		b = b[n:]
		in.forward(s, n)
	}
}

// forward moves the place where the next byte goes by n, within a span.
func (in *inbox) forward(s *transport.Span, n int64) {
	if in.tagged {
		in.tag(s, n)
	}
	in.offset += n
	if in.offset == s.Bytes {
		in.span, in.offset = in.span+1, 0
	}
}

// tag makes the tags of those pieces that end with the span's next n bytes, which are in
// their place.
func (in *inbox) tag(s *transport.Span, n int64) {
	for at := in.offset / pieceBytes * pieceBytes; at < in.offset+n; at += pieceBytes {
		end := min(at+pieceBytes, s.Bytes)
		if end > in.offset+n {
			return
		}
		in.piece++
		in.trailer = append(in.trailer, in.guard.tag(in.piece, s.Local.Bytes(s.LocalOffset+at, end-at))...)
	}
}

// aim makes the list of places for the next system call.
func (in *inbox) aim() {
	in.vec.Reset()
	in.place = 0
	if in.phase == inPayload && !in.drain && in.left >= directMin {
		in.r, in.w = 0, 0
		in.aimDirect()
		return
	}
	if in.r == in.w {
		in.r, in.w = 0, 0
	}
	want := len(in.stage) // as much as there is
	if in.big {
		// Little is wanted beyond this frame: what follows is large and should not
		// come through the staging buffer.
		want = max(in.ahead, in.need)
		if in.phase == inPayload {
			want += int(in.left)
		}
	}
	if want > len(in.stage)-in.r {
		in.w = copy(in.stage, in.stage[in.r:in.w])
		in.r = 0
	}
	want = min(want, len(in.stage))
	in.vec.Add(in.stage[in.w:max(in.r+want, in.w+1)])
}

func (in *inbox) aimDirect() {
	limit := int64(readBytes)
	if in.sum || in.tagged {
		limit = sumBytesAtOnce - in.offset%sumBytesAtOnce
	}
	span, offset, left := in.span, in.offset, in.left
	for left > 0 && limit > 0 && in.vec.Room() > 1 {
		s := &in.spans[span]
		n := min(s.Bytes-offset, limit)
		in.vec.Add(s.Local.Bytes(s.LocalOffset+offset, n))
		in.place += int(n)
		left, limit = left-n, limit-n
		span, offset = span+1, 0
	}
	if left == 0 {
		in.vec.Add(in.stage[:in.ahead])
	}
}

// receive makes one system call, and says whether it came to anything: bytes, the
// end or an error.
func (in *inbox) receive(fd uintptr) bool {
	n, errno := in.vec.Readv(fd)
	for errno == syscall.EINTR {
		n, errno = in.vec.Readv(fd)
	}
	if errno == syscall.EAGAIN {
		return false
	}
	in.n, in.err = n, nil
	if errno != 0 {
		in.err = errno
	}
	return true
}

// took accounts for n bytes that a system call brought.
func (in *inbox) took(n int) {
	in.w += max(n-in.place, 0)
	placed := int64(min(n, in.place))
	in.left -= placed
	for placed > 0 {
		s := &in.spans[in.span]
		k := min(placed, s.Bytes-in.offset)
		if in.sum {
			in.crc = crc32.Update(in.crc, crc32.IEEETable, s.Local.Bytes(s.LocalOffset+in.offset, k))
		}
		placed -= k
		in.forward(s, k)
	}
	// The places may be given back by now: without aim nothing is received any more.
	in.vec.Reset()
	in.place = 0
}

// violated is a breach of the protocol, which ends the connection.
type violated struct {
	reason string // counted
	text   string
}

func (v *violated) Error() string { return "tcp: protocol violation: " + v.text }

func violation(reason, format string, args ...any) error {
	return &violated{reason: reason, text: fmt.Sprintf(format, args...)}
}
