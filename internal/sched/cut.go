package sched

// sliceUnit is what sizes of slices are multiples of.
const sliceUnit = 4 << 10

// cursor is how far a job has been cut.
type cursor struct {
	op    int
	piece int
	off   int64 // in the piece
}

// empty says whether an op moves nothing.
func (o *Op) empty() bool { return o.Bytes <= 0 || o.Count <= 0 }

// dense says whether an op's pieces follow each other without gaps on both
// sides: then it is one piece.
func (o *Op) dense() bool {
	return o.Count == 1 && o.LocalPages == nil && o.RemotePages == nil ||
		o.LocalPages == nil && o.RemotePages == nil && o.LocalStride == o.Bytes && o.RemoteStride == o.Bytes
}

// totalBytes is what the ops of a job move.
func totalBytes(ops []Op) int64 {
	n := int64(0)
	for i := range ops {
		if o := &ops[i]; !o.empty() {
			n += o.Bytes * int64(o.Count)
		}
	}
	return n
}

// cut fills a slice from where the cursor stands with about want bytes: less
// where the direction changes or the spans are used up, and up to a quarter less
// where a piece would be torn for it.
func (c *cursor) cut(ops []Op, s *Slice, want int64, maxSpans int) {
	s.Spans, s.Bytes = s.Spans[:0], 0
	for c.op < len(ops) && s.Bytes < want {
		o := &ops[c.op]
		if o.empty() {
			c.next()
			continue
		}
		if len(s.Spans) == 0 {
			s.Read, s.firstOp = o.Read, c.op
		} else if s.Read != o.Read {
			return
		}
		before := s.Bytes
		var more bool
		if o.dense() {
			more = c.cutDense(o, s, want, maxSpans)
		} else {
			more = c.cutPieces(o, s, want, maxSpans)
		}
		if s.Bytes > before {
			s.lastOp = c.op
		}
		if !more {
			return
		}
		c.next()
	}
}

func (c *cursor) next() { c.op, c.piece, c.off = c.op+1, 0, 0 }

// cutDense takes from an op that is one piece, and says whether it is used up.
func (c *cursor) cutDense(o *Op, s *Slice, want int64, maxSpans int) bool {
	left := o.Bytes*int64(o.Count) - c.off
	n := fit(s, left, want, s.follows(o.Local, o.Remote, o.LocalOffset+c.off, o.RemoteOffset+c.off))
	if n == 0 || !s.add(o.Local, o.Remote, o.LocalOffset+c.off, o.RemoteOffset+c.off, n, maxSpans) {
		return false
	}
	c.off += n
	return n == left
}

// cutPieces takes pieces of a regular op, and says whether it is used up.
func (c *cursor) cutPieces(o *Op, s *Slice, want int64, maxSpans int) bool {
	for c.piece < o.Count {
		if s.Bytes >= want {
			return false
		}
		here, there := int64(c.piece), int64(c.piece)
		if o.LocalPages != nil {
			here = int64(o.LocalPages[c.piece])
		}
		if o.RemotePages != nil {
			there = int64(o.RemotePages[c.piece])
		}
		local, remote := o.LocalOffset+here*o.LocalStride+c.off, o.RemoteOffset+there*o.RemoteStride+c.off
		left := o.Bytes - c.off
		n := left
		if s.Bytes+left > want {
			n = fit(s, left, want, s.follows(o.Local, o.Remote, local, remote))
		}
		if n == 0 || !s.add(o.Local, o.Remote, local, remote, n, maxSpans) {
			return false
		}
		if n < left {
			c.off += n
			return false
		}
		c.piece, c.off = c.piece+1, 0
	}
	return true
}

// fit is how much of a piece a slice takes: all of it, what there is room for,
// or nothing where a small piece would be torn although the slice is nearly full.
func fit(s *Slice, left, want int64, follows bool) int64 {
	room := want - s.Bytes
	switch {
	case left <= room:
		return left
	case !follows && left <= want/4 && s.Bytes >= want-want/4:
		return 0
	}
	return room
}

// follows says whether a piece continues the slice's last span on both sides.
func (s *Slice) follows(local, remote int32, here, there int64) bool {
	if len(s.Spans) == 0 {
		return false
	}
	l := &s.Spans[len(s.Spans)-1]
	return l.LocalOffset+l.Bytes == here && l.RemoteOffset+l.Bytes == there && l.Local == local && l.Remote == remote
}

// add appends a piece, or lengthens the last span by it. It says whether there
// was room.
func (s *Slice) add(local, remote int32, here, there, bytes int64, maxSpans int) bool {
	if n := len(s.Spans); n > 0 {
		l := &s.Spans[n-1]
		if l.LocalOffset+l.Bytes == here && l.RemoteOffset+l.Bytes == there && l.Local == local && l.Remote == remote {
			l.Bytes += bytes
			s.Bytes += bytes
			return true
		}
		if n >= maxSpans {
			return false
		}
	}
	s.Spans = append(s.Spans, Span{local, remote, here, there, bytes})
	s.Bytes += bytes
	return true
}

// carve moves the first bytes of a slice, whole spans where possible, to
// another: a lane that takes less than the one that failed gets a part of it.
func (s *Slice) carve(part *Slice, want int64, maxSpans int) {
	part.Spans, part.Bytes = part.Spans[:0], 0
	part.Read, part.Probe, part.firstOp, part.lastOp, part.Attempt, part.index = s.Read, s.Probe, s.firstOp, s.lastOp, s.Attempt, s.index
	used := 0
	for used < len(s.Spans) && len(part.Spans) < maxSpans && part.Bytes < want {
		x := &s.Spans[used]
		n := min(x.Bytes, want-part.Bytes)
		part.Spans = append(part.Spans, Span{x.Local, x.Remote, x.LocalOffset, x.RemoteOffset, n})
		part.Bytes += n
		if n < x.Bytes {
			x.LocalOffset, x.RemoteOffset, x.Bytes = x.LocalOffset+n, x.RemoteOffset+n, x.Bytes-n
			break
		}
		used++
	}
	s.Spans = append(s.Spans[:0], s.Spans[used:]...)
	s.Bytes -= part.Bytes
}
