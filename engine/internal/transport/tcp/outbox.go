package tcp

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

const (
	// chunkBytes is what one system call sends at most: more gains nothing.
	chunkBytes = 2 << 20
	// sumBytesAtOnce is over how many bytes a checksum runs before they are sent, or
	// after they came: they are in the processor's cache then.
	sumBytesAtOnce = 128 << 10
	// chunkPieces are the pieces of a chunk, and its frames at most.
	chunkPieces = spansLimit + 256
	// arenaBytes hold the headers of one chunk.
	arenaBytes = 2 * (headBytes + spansLimit*descBytes)
)

// outbox gathers frames into a chunk that one system call sends: headers from the
// arena, payloads from the regions. Whoever is sending owns it.
type outbox struct {
	guard guard
	vec   *memory.Vector
	arena []byte
	used  int // of the arena
	added int // of the arena, in vec
	size  int // of the chunk
	gone  int // handed to the kernel
	marks []mark

	// The frame whose payload is not all in the chunk yet.
	open   bool
	spans  []transport.Span
	span   int
	offset int64
	sum    bool
	crc    uint32
	token  uint32

	// Where payloads have tags.
	tagged bool
	piece  uint32 // number of the last one
	tags   []byte // of the chunk's payloads
	first  int    // of them that the open frame has
}

// mark is where a frame ends in the chunk.
type mark struct {
	at    int
	token uint32
}

func (o *outbox) init() {
	o.vec = memory.NewVector(chunkPieces)
	o.arena = make([]byte, arenaBytes)
	o.marks = make([]mark, 0, chunkPieces)
}

// reset begins a chunk; the last one is gone.
func (o *outbox) reset() {
	o.vec.Reset()
	o.used, o.added, o.size, o.gone = 0, 0, 0, 0
	o.marks = o.marks[:0]
	o.tags = o.tags[:copy(o.tags, o.tags[o.first:])]
	o.first = 0
}

// left is what of the chunk is not sent.
func (o *outbox) left() int { return o.size - o.gone }

// fits says whether a frame with so large a header can begin in this chunk.
func (o *outbox) fits(header int) bool {
	return !o.open && o.size < chunkBytes && o.vec.Room() > 4 && len(o.marks) < cap(o.marks) &&
		o.used+header+o.guard.tail()+sumBytes <= len(o.arena)
}

// header is room for a header, which fits, with its descriptors and what guard.seal adds.
func (o *outbox) header(n int) []byte { return o.take(n + o.guard.tail()) }

func (o *outbox) take(n int) []byte {
	b := o.arena[o.used : o.used+n : o.used+n]
	o.used += n
	o.size += n
	return b
}

// end marks the end of a frame.
func (o *outbox) end(token uint32) {
	o.marks = append(o.marks, mark{at: o.size, token: token})
}

// payload begins a frame's payload, of which more adds what fits.
func (o *outbox) payload(spans []transport.Span, sum bool, token uint32) {
	o.open, o.spans, o.span, o.offset = true, spans, 0, 0
	o.sum, o.crc, o.token, o.piece = sum, 0, token, 0
	o.more()
}

func (o *outbox) more() {
	limit := chunkBytes
	if o.sum || o.tagged {
		limit = sumBytesAtOnce
	}
	o.flushArena()
	for o.span < len(o.spans) {
		s := &o.spans[o.span]
		if n := min(s.Bytes-o.offset, int64(limit-o.size)); n > 0 && o.vec.Room() > 2 {
			if o.tagged {
				o.tag(s, n)
			}
			b := s.Local.Bytes(s.LocalOffset+o.offset, n)
			o.vec.Add(b)
			o.size += int(n)
			o.offset += n
			if o.sum {
				o.crc = crc32.Update(o.crc, crc32.IEEETable, b)
			}
		}
		if o.offset < s.Bytes {
			return
		}
		o.span, o.offset = o.span+1, 0
	}
	if o.sum {
		if o.used+sumBytes > len(o.arena) {
			return
		}
		binary.BigEndian.PutUint32(o.take(sumBytes), o.crc)
	}
	if o.tagged {
		o.vec.Add(o.tags[o.first:])
		o.size += len(o.tags) - o.first
		o.first = len(o.tags)
	}
	o.open, o.spans = false, nil
	o.end(o.token)
}

// tag makes the tags of those pieces that begin within the span's next n bytes.
func (o *outbox) tag(s *transport.Span, n int64) {
	for at := roundUp(o.offset); at < o.offset+n; at += pieceBytes {
		o.piece++
		piece := s.Local.Bytes(s.LocalOffset+at, min(pieceBytes, s.Bytes-at))
		o.tags = append(o.tags, o.guard.tag(o.piece, piece)...)
	}
}

// flushArena adds the headers that were made since the last payload.
func (o *outbox) flushArena() {
	o.vec.Add(o.arena[o.added:o.used])
	o.added = o.used
}
