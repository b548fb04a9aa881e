package stage

import (
	"sync"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Bounce is one staging buffer with what is copied through it, between the memory of
// devices and of the host. It can be used again after Release.
type Bounce struct {
	// Spans are those that were laid out, with host memory in the place of the
	// device's.
	Spans  []transport.Span
	buffer *memory.Buffer
	copies []copies
	left   atomic.Int32 // copies that are under way
	mu     sync.Mutex
	err    error
	done   func(error)
	// finish is one, bound once.
	finish func(error)
}

// copies are those of one region.
type copies struct {
	region *memory.Region
	pieces []memory.DevicePiece
}

// Needs says how many bytes of a buffer the spans take, and whose memory it is.
func Needs(spans []transport.Span) (bytes int64, device memory.DeviceMemory) {
	for i := range spans {
		s := &spans[i]
		if d := s.Local.Device(); d != nil && s.Bytes > 0 {
			bytes += s.Bytes
			if device == nil {
				device = d
			}
		}
	}
	return bytes, device
}

// Lay takes a buffer and makes host spans of spans, whose device memory fits it. The
// buffer is the Bounce's until Release.
func (x *Bounce) Lay(spans []transport.Span, b *memory.Buffer) {
	x.buffer = b
	at := int64(0)
	for i := range spans {
		s := spans[i]
		if s.Local.Device() != nil && s.Bytes > 0 {
			x.add(s.Local, s.LocalOffset, b.Offset+at, s.Bytes)
			s.Local, s.LocalOffset = b.Region, b.Offset+at
			at += s.Bytes
		}
		x.Spans = append(x.Spans, s)
	}
}

// add notes a copy. Pieces that follow each other on the device do so in the buffer,
// too, and are one.
func (x *Bounce) add(r *memory.Region, offset, at, bytes int64) {
	k := len(x.copies) - 1
	if k < 0 || x.copies[k].region != r {
		k++
		if k == cap(x.copies) {
			x.copies = append(x.copies, copies{})
		}
		x.copies = x.copies[:k+1] // with the pieces of an earlier use
		x.copies[k].region, x.copies[k].pieces = r, x.copies[k].pieces[:0]
	}
	c := &x.copies[k]
	if n := len(c.pieces); n > 0 && c.pieces[n-1].Offset+int64(len(c.pieces[n-1].Host)) == offset {
		last := &c.pieces[n-1]
		before := int64(len(last.Host))
		last.Host = x.buffer.Region.Bytes(at-before, before+bytes)
		return
	}
	c.pieces = append(c.pieces, memory.DevicePiece{Offset: offset, Host: x.buffer.Region.Bytes(at, bytes)})
}

// Copy copies all that was laid out, and calls done once when nothing of it touches
// memory any more: from a goroutine of the device.
func (x *Bounce) Copy(toHost bool, done func(error)) {
	if x.finish == nil {
		x.finish = x.one
	}
	x.done, x.err = done, nil
	n := len(x.copies)
	x.left.Store(int32(n))
	for i := range n {
		x.copies[i].region.Device().Copy(x.copies[i].pieces, toHost, x.finish)
	}
}

// one is the end of one region's copies.
func (x *Bounce) one(err error) {
	if err != nil {
		x.mu.Lock()
		if x.err == nil {
			x.err = err
		}
		x.mu.Unlock()
	}
	if x.left.Add(-1) == 0 {
		x.mu.Lock()
		err := x.err
		x.mu.Unlock()
		x.done(err)
	}
}

// Staged says whether there is anything to copy.
func (x *Bounce) Staged() bool { return len(x.copies) > 0 }

// Release gives the buffer back.
func (x *Bounce) Release() {
	if x.buffer != nil {
		x.buffer.Release()
		x.buffer = nil
	}
	clear(x.Spans)
	x.Spans = x.Spans[:0]
	for i := range x.copies {
		clear(x.copies[i].pieces)
		x.copies[i].region = nil
	}
	x.copies = x.copies[:0]
}
