package stage

import (
	"sync"
	"sync/atomic"

	"github.com/topoctl/topoctl/internal/base/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// Window is one staging buffer with what is copied through it. It can be used again
// after Release.
type Window struct {
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
// buffer is the window's until Release.
func (w *Window) Lay(spans []transport.Span, b *memory.Buffer) {
	w.buffer = b
	at := int64(0)
	for i := range spans {
		s := spans[i]
		if s.Local.Device() != nil && s.Bytes > 0 {
			w.add(s.Local, s.LocalOffset, b.Offset+at, s.Bytes)
			s.Local, s.LocalOffset = b.Region, b.Offset+at
			at += s.Bytes
		}
		w.Spans = append(w.Spans, s)
	}
}

// add notes a copy. Pieces that follow each other on the device do so in the buffer,
// too, and are one.
func (w *Window) add(r *memory.Region, offset, at, bytes int64) {
	k := len(w.copies) - 1
	if k < 0 || w.copies[k].region != r {
		k++
		if k == cap(w.copies) {
			w.copies = append(w.copies, copies{})
		}
		w.copies = w.copies[:k+1] // with the pieces of an earlier use
		w.copies[k].region, w.copies[k].pieces = r, w.copies[k].pieces[:0]
	}
	c := &w.copies[k]
	if n := len(c.pieces); n > 0 && c.pieces[n-1].Offset+int64(len(c.pieces[n-1].Host)) == offset {
		last := &c.pieces[n-1]
		before := int64(len(last.Host))
		last.Host = w.buffer.Region.Bytes(at-before, before+bytes)
		return
	}
	c.pieces = append(c.pieces, memory.DevicePiece{Offset: offset, Host: w.buffer.Region.Bytes(at, bytes)})
}

// Copy copies all that was laid out, and calls done once when nothing of it touches
// memory any more: from a goroutine of the device.
func (w *Window) Copy(toHost bool, done func(error)) {
	if w.finish == nil {
		w.finish = w.one
	}
	w.done, w.err = done, nil
	n := len(w.copies)
	w.left.Store(int32(n))
	for i := range n {
		w.copies[i].region.Device().Copy(w.copies[i].pieces, toHost, w.finish)
	}
}

// one is the end of one region's copies.
func (w *Window) one(err error) {
	if err != nil {
		w.mu.Lock()
		if w.err == nil {
			w.err = err
		}
		w.mu.Unlock()
	}
	if w.left.Add(-1) == 0 {
		w.mu.Lock()
		err := w.err
		w.mu.Unlock()
		w.done(err)
	}
}

// Staged says whether there is anything to copy.
func (w *Window) Staged() bool { return len(w.copies) > 0 }

// Release gives the buffer back.
func (w *Window) Release() {
	if w.buffer != nil {
		w.buffer.Release()
		w.buffer = nil
	}
	clear(w.Spans)
	w.Spans = w.Spans[:0]
	for i := range w.copies {
		clear(w.copies[i].pieces)
		w.copies[i].region = nil
	}
	w.copies = w.copies[:0]
}
