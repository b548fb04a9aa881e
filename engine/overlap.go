package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/sched"
)

// maxPieces bounds what is expanded to find out whether ops that interleave
// overlap.
const maxPieces = 1 << 22

// opSide is one side of an op: where its pieces are, and whether they are written.
type opSide struct {
	region  int32 // handle
	op      int32
	written bool
	all     byteRange
	offset  int64
	stride  int64
	pages   []uint32
	bytes   int64
	count   int
}

// solid says that nothing lies between the first and the last byte.
func (s *opSide) solid() bool {
	return s.count == 1 || s.pages == nil && s.stride == s.bytes
}

// piece gives the range of piece k.
func (s *opSide) piece(k int) byteRange {
	i := int64(k)
	if s.pages != nil {
		i = int64(s.pages[k])
	}
	lo := s.offset + i*s.stride
	return byteRange{lo, lo + s.bytes}
}

// extent is a range that one op touches.
type extent struct {
	byteRange
	op      int32
	written bool
}

func sideOf(o *sched.Op, op int32, all byteRange, remote bool) opSide {
	s := opSide{op: op, all: all, bytes: o.Bytes, count: o.Count}
	if remote {
		s.region, s.offset, s.stride, s.pages, s.written = o.Remote, o.RemoteOffset, o.RemoteStride, o.RemotePages, o.Kind == direction.Write
	} else {
		s.region, s.offset, s.stride, s.pages, s.written = o.Local, o.LocalOffset, o.LocalStride, o.LocalPages, o.Kind == direction.Read
	}
	return s
}

// selfOverlap says whether pieces of one op, which are written, overlap.
func (s *opSide) selfOverlap() bool {
	if s.count <= 1 || s.bytes == 0 {
		return false
	}
	if s.pages == nil {
		return s.stride < s.bytes
	}
	pages := s.pages
	apart := func(a, b uint32) bool { return int64(b-a)*s.stride >= s.bytes && b > a }
	sorted := true
	for i := 1; i < len(pages) && sorted; i++ {
		sorted = pages[i] > pages[i-1]
	}
	if !sorted {
		pages = slices.Clone(pages)
		slices.Sort(pages)
	}
	for i := 1; i < len(pages); i++ {
		if !apart(pages[i-1], pages[i]) {
			return true
		}
	}
	return false
}

// overlapSearch finds ops that touch the same bytes. It is used again.
type overlapSearch struct {
	outlines []outline // of all sides at one end
	met      []opSide
}

// outline is the range of a side, which has a number. Sorting these is most of the search, and they
// are small.
type outline struct {
	byteRange
	region, side int32
}

// find finds two ops of which one writes what the other touches. It answers -1, -1 where there
// are none. side gives the sides of outlines that meet.
func (s *overlapSearch) find(side func(number int32) opSide) (a, b int32, err error) {
	list := s.outlines
	slices.SortFunc(list, func(x, y outline) int {
		if x.region != y.region {
			return cmp.Compare(x.region, y.region)
		}
		return cmp.Compare(x.lo, y.lo)
	})
	for i := 0; i < len(list); {
		j, hi := i+1, list[i].hi
		for j < len(list) && list[j].region == list[i].region && list[j].lo < hi {
			hi = max(hi, list[j].hi)
			j++
		}
		if j-i > 1 {
			s.met = s.met[:0]
			for _, o := range list[i:j] {
				s.met = append(s.met, side(o.side))
			}
			if a, b, err = resolve(s.met); a >= 0 || err != nil {
				return a, b, err
			}
		}
		i = j
	}
	return -1, -1, nil
}

// forget lets go of the user's pages.
func (s *overlapSearch) forget() {
	clear(s.met)
	s.met = s.met[:0]
}

// resolve decides about ops whose outlines meet.
func resolve(sides []opSide) (a, b int32, err error) {
	solid, regular, pieces := true, true, 0
	written := false
	for i := range sides {
		s := &sides[i]
		written = written || s.written
		solid = solid && s.solid()
		regular = regular && s.pages == nil && s.stride == sides[0].stride && s.bytes <= s.stride
		if !s.solid() {
			pieces += s.count
		} else {
			pieces++
		}
	}
	if !written {
		return -1, -1, nil
	}
	var extents []extent
	if regular && !solid {
		for i := range sides {
			extents = sides[i].residues(extents)
		}
		if a, _ = sweep(extents); a < 0 {
			return -1, -1, nil
		}
		extents = extents[:0]
	}
	if pieces > maxPieces {
		return -1, -1, fmt.Errorf("%d interleaved pieces, too many to see whether they overlap (at most %d): submit them apart: %w", pieces, maxPieces, ErrLimit)
	}
	for i := range sides {
		s := &sides[i]
		if s.solid() {
			extents = append(extents, extent{s.all, s.op, s.written})
			continue
		}
		for k := range s.count {
			extents = append(extents, extent{s.piece(k), s.op, s.written})
		}
	}
	a, b = sweep(extents)
	return a, b, nil
}

// residues are the pieces of a regular op, all moved into the first stride: where
// those of two ops do not meet, the ops do not.
func (s *opSide) residues(out []extent) []extent {
	lo := s.offset % s.stride
	hi := lo + s.bytes
	if hi <= s.stride {
		return append(out, extent{byteRange{lo, hi}, s.op, s.written})
	}
	return append(out, extent{byteRange{lo, s.stride}, s.op, s.written}, extent{byteRange{0, hi - s.stride}, s.op, s.written})
}

// sweep finds two extents of different ops that meet and of which one is written.
func sweep(extents []extent) (a, b int32) {
	slices.SortFunc(extents, func(x, y extent) int {
		return cmp.Or(cmp.Compare(x.lo, y.lo), cmp.Compare(x.op, y.op))
	})
	wrote, read := extent{op: -1}, extent{op: -1} // those that reach farthest
	for _, x := range extents {
		if x.lo < wrote.hi && x.op != wrote.op {
			return min(wrote.op, x.op), max(wrote.op, x.op)
		}
		if x.written && x.lo < read.hi && x.op != read.op {
			return min(read.op, x.op), max(read.op, x.op)
		}
		if x.written {
			if x.hi > wrote.hi {
				wrote = x
			}
		} else if x.hi > read.hi {
			read = x
		}
	}
	return -1, -1
}
