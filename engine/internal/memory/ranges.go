package memory

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Range is memory by its address.
type Range struct {
	Address uintptr
	Bytes   int64
}

// end is the first address after the range.
func (r Range) end() uintptr { return r.Address + uintptr(r.Bytes) }

func (r Range) check() error {
	if r.Address == 0 || r.Bytes <= 0 || uint64(r.Bytes) > uint64(math.MaxInt) || uintptr(r.Bytes) > math.MaxUint-r.Address {
		return errors.New("not a range of memory")
	}
	return nil
}

// Devices finds memory of devices by address.
type Devices interface {
	// Allocation is the device's allocation that an address lies in; false where the address
	// is not a device's.
	Allocation(address uintptr) (Range, bool)
	// Foreign wraps memory of an allocation that somebody else owns.
	Foreign(r Range) (*Block, error)
}

// ErrOverlap says that memory was named twice.
var ErrOverlap = errors.New("overlap")

// ForeignRanges wraps memory that somebody else owns, in any order: a block for each range,
// and one for ranges that touch and lie in one mapping, or in one allocation of a device.
// Blocks are in the order of addresses. What holds for the memory is said at Foreign; the
// mappings are read once. devices may be nil.
func ForeignRanges(ranges []Range, devices Devices) ([]*Block, error) {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return cmp.Compare(a.Address, b.Address) })
	for i, r := range ranges {
		if err := r.check(); err != nil {
			return nil, foreignError(r, err)
		}
		if i > 0 && ranges[i-1].end() > r.Address {
			return nil, foreignError(r, fmt.Errorf("%w with %d bytes at %#x", ErrOverlap, ranges[i-1].Bytes, ranges[i-1].Address))
		}
	}
	w := wrapper{devices: devices}
	for len(ranges) > 0 {
		n, err := w.next(ranges)
		if err != nil {
			return nil, errors.Join(err, FreeAll(w.blocks))
		}
		ranges = ranges[n:]
	}
	return w.blocks, nil
}

// FreeAll frees blocks, all of them whatever goes wrong.
func FreeAll(blocks []*Block) error {
	var errs []error
	for _, b := range blocks {
		errs = append(errs, b.Free())
	}
	return errors.Join(errs...)
}

func foreignError(r Range, err error) error {
	return pkgerr.Errorf("memory", "foreign range of %d bytes at %#x: %w", r.Bytes, r.Address, err)
}

// wrapper makes blocks of ranges in the order of addresses.
type wrapper struct {
	devices Devices
	maps    *mappings // nil: not read yet
	blocks  []*Block
}

// next makes a block of the first of the ranges and those that join it, and says of how many.
func (w *wrapper) next(ranges []Range) (n int, err error) {
	if w.devices != nil {
		if all, ok := w.devices.Allocation(ranges[0].Address); ok {
			r, n := join(ranges, func(at uintptr) bool { return at < all.end() })
			b, err := w.devices.Foreign(r)
			if err != nil {
				return 0, err
			}
			w.blocks = append(w.blocks, b)
			return n, nil
		}
	}
	if w.maps == nil {
		if w.maps, err = readMappings(ranges); err != nil {
			return 0, foreignError(ranges[0], err)
		}
	}
	r, n := join(ranges, w.maps.inside)
	if err := w.maps.check(r); err != nil {
		return 0, foreignError(r, err)
	}
	w.blocks = append(w.blocks, &Block{
		bytes: bytesAt(r.Address, r.Bytes), size: r.Bytes, fd: -1,
		info: Info{Backing: Private, PageBytes: basePage()},
	})
	return n, nil
}

// join adds to the first range those that follow it without a gap; inside says of an address
// whether that one and the one before it lie in one piece.
func join(ranges []Range, inside func(at uintptr) bool) (r Range, n int) {
	r, n = ranges[0], 1
	for n < len(ranges) && ranges[n].Address == r.end() && inside(r.end()) {
		r.Bytes += ranges[n].Bytes
		n++
	}
	return r, n
}
