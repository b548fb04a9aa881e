package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/sched"
)

// reach is a range of bytes [lo, hi).
type reach struct{ lo, hi int64 }

// form is a checked op as both the scheduler and the checks need it.
type form struct {
	op            sched.Op // without the regions' handles
	local, remote reach    // first to last byte
}

// shape checks that an op makes sense by itself.
func shape(o *Op, f *form) error {
	f.op = sched.Op{Read: o.Kind == Read, LocalOffset: o.Local.Offset, RemoteOffset: o.Remote.Offset, Bytes: o.Local.Length, Count: 1}
	if o.Kind > Read {
		return fmt.Errorf("op of kind %d: want Write or Read", uint8(o.Kind))
	}
	l := o.Layout
	if l != nil {
		f.op.Bytes, f.op.Count = l.Bytes, l.Count
		f.op.LocalStride, f.op.RemoteStride = l.LocalStride, l.RemoteStride
		f.op.LocalPages, f.op.RemotePages = l.LocalPages, l.RemotePages
		if err := checkLayout(l, o.Local.Length); err != nil {
			return err
		}
		if f.op.LocalStride == 0 {
			f.op.LocalStride = l.Bytes
		}
		if f.op.RemoteStride == 0 {
			f.op.RemoteStride = l.Bytes
		}
	}
	if f.op.Bytes < 0 {
		return fmt.Errorf("%s of %d bytes", o.Kind, f.op.Bytes)
	}
	if f.op.Count > 1 && f.op.Bytes > math.MaxInt64/int64(f.op.Count) {
		return fmt.Errorf("%d pieces of %d bytes: %w", f.op.Count, f.op.Bytes, ErrRange)
	}
	var ok, okThere bool
	f.local, ok = span(f.op.LocalOffset, f.op.LocalStride, f.op.LocalPages, &f.op)
	f.remote, okThere = span(f.op.RemoteOffset, f.op.RemoteStride, f.op.RemotePages, &f.op)
	if !ok {
		return placeError(o, f, o.Local.Region.r.Name(), o.Local.Offset, o.Local.Region.Size(), "")
	}
	if !okThere {
		return placeError(o, f, o.Remote.Region.name, o.Remote.Offset, o.Remote.Region.t.Bytes, " of the peer")
	}
	return nil
}

func checkLayout(l *Layout, length int64) error {
	switch {
	case l.Count < 0:
		return fmt.Errorf("layout of %d pieces", l.Count)
	case l.LocalStride < 0 || l.RemoteStride < 0:
		return fmt.Errorf("layout with a negative stride")
	case l.LocalPages != nil && len(l.LocalPages) != l.Count:
		return fmt.Errorf("layout of %d pieces with %d local pages", l.Count, len(l.LocalPages))
	case l.RemotePages != nil && len(l.RemotePages) != l.Count:
		return fmt.Errorf("layout of %d pieces with %d remote pages", l.Count, len(l.RemotePages))
	case length != 0 && (l.Bytes <= 0 || length/l.Bytes != int64(l.Count) || length%l.Bytes != 0):
		return fmt.Errorf("layout of %d pieces of %d bytes with a span of %d bytes: want that many, or 0", l.Count, l.Bytes, length)
	}
	return nil
}

// span finds the first and the last byte of one side; false where that is no
// number.
func span(offset, stride int64, pages []uint32, o *sched.Op) (reach, bool) {
	if offset < 0 {
		return reach{}, false
	}
	if o.Count == 0 || o.Bytes == 0 {
		return reach{offset, offset}, true
	}
	first, last := int64(0), int64(o.Count-1)
	if pages != nil {
		first, last = int64(slices.Min(pages)), int64(slices.Max(pages))
	}
	if last > 0 && stride > math.MaxInt64/last {
		return reach{}, false
	}
	most := last * stride
	if most > math.MaxInt64-o.Bytes || most+o.Bytes > math.MaxInt64-offset {
		return reach{}, false
	}
	return reach{offset + first*stride, offset + most + o.Bytes}, true
}

// checkPlaces checks both ranges of an op and the peer's grant.
func checkPlaces(o *Op, f *form) error {
	if f.local.hi > o.Local.Region.Size() {
		return placeError(o, f, o.Local.Region.r.Name(), o.Local.Offset, o.Local.Region.Size(), "")
	}
	r := o.Remote.Region
	if f.remote.hi > r.t.Bytes {
		return placeError(o, f, r.name, o.Remote.Offset, r.t.Bytes, " of the peer")
	}
	want := memory.PeerWrite
	if o.Kind == Read {
		want = memory.PeerRead
	}
	if r.t.Grant&want == 0 {
		return fmt.Errorf("region %q of the peer: %s: %w", r.name, o.Kind, ErrDenied)
	}
	return nil
}

func placeError(o *Op, f *form, region string, offset, size int64, whose string) error {
	if o.Layout != nil {
		return fmt.Errorf("region %q%s: %s of %d pieces of %d bytes from %d: %w (%d bytes)",
			region, whose, o.Kind, f.op.Count, f.op.Bytes, offset, ErrRange, size)
	}
	return fmt.Errorf("region %q%s: %s of %d bytes at %d: %w (%d bytes)",
		region, whose, o.Kind, f.op.Bytes, offset, ErrRange, size)
}
