package bind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// region is memory that is registered in one piece.
type region struct {
	*engine.Region
	ranges []memory.Range // as they were given, in the order of addresses; nil: allocated by Alloc
	o      engine.RegionOptions
}

const maxRanges = 1 << 20 // that one call registers

// Register registers ranges: all or none.
func (e *Engine) Register(addresses, lengths []uint64, location string, grant int32) error {
	if len(addresses) != len(lengths) || len(addresses) > maxRanges {
		return fail(Invalid, "%d addresses and %d lengths: want as many of both, at most %d", len(addresses), len(lengths), maxRanges)
	}
	o, err := e.regionOptions(location, grant)
	if err != nil {
		return err
	}
	want := make([]memory.Range, len(addresses))
	for i, a := range addresses {
		if a == 0 || lengths[i] == 0 || lengths[i] > math.MaxInt64 || a > math.MaxUint64-lengths[i] {
			return fail(Invalid, "range %d: %d bytes at %#x: not a range of memory", i, lengths[i], a)
		}
		want[i] = memory.Range{Address: uintptr(a), Bytes: int64(lengths[i])}
	}
	slices.SortFunc(want, func(a, b memory.Range) int { return cmp.Compare(a.Address, b.Address) })
	if err := e.findGPUs(&o); err != nil {
		return err
	}
	e.registering.Lock()
	defer e.registering.Unlock()
	have := *e.local.Load()
	for i, x := range want {
		lo, hi := uint64(x.Address), end(x)
		k := have.after(lo)
		if k < len(have) && have[k].lo < hi || i > 0 && end(want[i-1]) > lo {
			return fail(Exists, "%d bytes at %#x: some of them are registered, or given twice", x.Bytes, lo)
		}
	}
	regions, err := e.regions(want, o)
	if err != nil {
		return err
	}
	e.keep(have.with(regions))
	if err := e.publish(); err != nil {
		e.keep(have)
		return errors.Join(err, e.closeRegions(regions))
	}
	return nil
}

func end(r memory.Range) uint64 { return uint64(r.Address) + uint64(r.Bytes) }

func (e *Engine) keep(s space[*region]) { e.local.Store(&s) }

// closeRegions gives memory back that was registered just now.
func (e *Engine) closeRegions(list []interval[*region]) error {
	ctx, cancel := context.WithTimeout(context.Background(), e.release)
	defer cancel()
	var errs []error
	for _, x := range list {
		errs = append(errs, x.of.Close(ctx))
	}
	return errors.Join(errs...)
}

// regions makes regions of ranges in the order of addresses.
func (e *Engine) regions(want []memory.Range, o engine.RegionOptions) ([]interval[*region], error) {
	made, err := e.e.RegisterRanges(want, o)
	if err != nil {
		if s := StatusOf(err); s != Limit && s != Canceled {
			err = &Error{Invalid, err}
		}
		return nil, err
	}
	out := make([]interval[*region], len(made))
	for i, r := range made {
		x := interval[*region]{lo: uint64(r.Address()), hi: uint64(r.Address()) + uint64(r.Size())}
		n := 0
		for n < len(want) && uint64(want[n].Address) < x.hi {
			n++
		}
		x.of = &region{r, want[:n:n], o}
		out[i], want = x, want[n:]
	}
	return out, nil
}

// Unregister gives ranges back by their addresses, and waits until nothing can touch them.
func (e *Engine) Unregister(addresses []uint64) error { return e.giveBack(addresses, false) }

// Free gives back what Alloc gave.
func (e *Engine) Free(address uint64) error { return e.giveBack([]uint64{address}, true) }

// giveBack closes what is at those addresses. Where a range was registered as one piece with
// others that stay, those are registered again.
func (e *Engine) giveBack(addresses []uint64, allocated bool) error {
	e.registering.Lock()
	defer e.registering.Unlock()
	have := *e.local.Load()
	going := map[uint64]bool{}
	closing := map[*region]bool{}
	for i, a := range addresses {
		k := have.after(a)
		switch {
		case k == len(have) || !have[k].of.begins(a, have[k].lo):
			return fail(NoRegion, "range %d: nothing was registered at %#x", i, a)
		case (have[k].of.ranges == nil) != allocated:
			return fail(Invalid, "range %d: %#x: what was allocated is freed, what was registered is unregistered", i, a)
		case going[a]:
			return fail(Invalid, "range %d: %#x is given twice", i, a)
		}
		going[a], closing[have[k].of] = true, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.release)
	defer cancel()
	var together []*engine.Region
	for r := range closing {
		together = append(together, r.Region)
	}
	_ = e.e.CloseRegions(ctx, together) // peers are told once; what could not be closed says so below, again
	var errs, lost []error
	left, again := make([]interval[*region], 0, len(have)), []interval[*region]{}
	for _, x := range have {
		if !closing[x.of] {
			left = append(left, x)
			continue
		}
		if err := x.of.Close(ctx); err != nil {
			left = append(left, x) // to be closed again
			errs = append(errs, err)
			continue
		}
		stays := slices.DeleteFunc(slices.Clone(x.of.ranges), func(r memory.Range) bool { return going[uint64(r.Address)] })
		if len(stays) == 0 {
			continue
		}
		regions, err := e.regions(stays, x.of.o)
		if err != nil {
			lost = append(lost, err)
		}
		again = append(again, regions...)
	}
	if len(again) > 0 {
		left = space[*region](left).with(again)
	}
	e.keep(left)
	if err := e.publish(); err != nil {
		e.log.Warn("peers are still told of memory that is not registered any more", "error", err)
	}
	if len(errs) > 0 {
		return &Error{Unsafe, fmt.Errorf("%d of %d regions can still be touched: %w", len(errs), len(closing), errors.Join(errs...))}
	}
	return errors.Join(lost...)
}

// begins says whether a range that was given begins at an address; lo is the region's.
func (r *region) begins(address, lo uint64) bool {
	if r.ranges == nil {
		return address == lo
	}
	_, ok := slices.BinarySearchFunc(r.ranges, address, func(x memory.Range, a uint64) int { return cmp.Compare(uint64(x.Address), a) })
	return ok
}

// allocNamed makes the regions of Options.Regions in an engine that nobody can open yet.
func (e *Engine) allocNamed(made *engine.Engine) error {
	e.e = made
	for _, r := range e.o.Regions {
		_, err := e.alloc(r.Name, r.Bytes, r.Location, r.Grant)
		if _, ok := errors.AsType[*Error](err); ok { // those of the engine name it
			err = fmt.Errorf("region %.80q: %w", r.Name, pkgerr.Plain(err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Region is where the region of Options.Regions with that name is.
func (e *Engine) Region(name string) (address, length uint64, err error) {
	for _, x := range *e.local.Load() {
		if x.of.Name() == name {
			return x.lo, x.hi - x.lo, nil
		}
	}
	return 0, 0, fail(NoRegion, "region %.80q: the options of this engine name no such region, or it was freed", name)
}

// Alloc gives memory that engines of this host share, registered, by its address.
func (e *Engine) Alloc(length uint64, location string, grant int32) (uint64, error) {
	return e.alloc("", length, location, grant)
}

func (e *Engine) alloc(name string, length uint64, location string, grant int32) (uint64, error) {
	o, err := e.regionOptions(location, grant)
	if err != nil {
		return 0, err
	}
	o.Name = name
	switch node, ok := strings.CutPrefix(string(o.Location), "cpu:"); {
	case ok:
		n, err := strconv.Atoi(node)
		if err != nil {
			return 0, fail(Invalid, "location %.40q: %w", location, err)
		}
		o.Memory.Nodes = []int{n}
	case o.Location != "":
		return 0, fail(Invalid, "location %.40q: only memory of the host is allocated here", location)
	}
	if length == 0 || length > math.MaxInt64 {
		return 0, fail(Invalid, "allocation of %d bytes", length)
	}
	e.registering.Lock()
	defer e.registering.Unlock()
	r, err := e.e.Alloc(int64(length), o)
	if err != nil {
		if s := StatusOf(err); s == Failed {
			err = &Error{Invalid, err}
		}
		return 0, err
	}
	address := uint64(r.Address())
	have := *e.local.Load()
	one := []interval[*region]{{address, address + length, &region{Region: r, o: o}}}
	e.keep(have.with(one))
	if err := e.publish(); err != nil {
		e.keep(have)
		return 0, errors.Join(err, e.closeRegions(one))
	}
	return address, nil
}

// regionOptions checks where memory is said to be, and what peers may do with it.
func (e *Engine) regionOptions(location string, grant int32) (engine.RegionOptions, error) {
	o := engine.RegionOptions{OfferAddress: true}
	if grant < 0 || grant > 3 {
		return o, fail(Invalid, "grant %d: want 0 to 3, the sum of TOPOCTL_PEER_READ and TOPOCTL_PEER_WRITE", grant)
	}
	if grant&1 != 0 {
		o.Grant |= memory.PeerRead
	}
	if grant&2 != 0 {
		o.Grant |= memory.PeerWrite
	}
	if location == "" || location == "*" {
		return o, nil
	}
	kind, number, _ := strings.Cut(location, ":")
	if n, err := strconv.ParseUint(number, 10, 16); kind != "cpu" && kind != "gpu" || err != nil || strconv.FormatUint(n, 10) != number {
		return o, fail(Invalid, "location %.40q: want cpu:N or gpu:N, or * to find out", location)
	}
	o.Location = pathsel.Location(location)
	return o, nil
}

// findGPUs lets a registration find out by the address whether memory is a GPU's. Without a
// location that is tried only where this process has loaded CUDA, as who has such memory must.
func (e *Engine) findGPUs(o *engine.RegionOptions) error {
	said := strings.HasPrefix(string(o.Location), "gpu:")
	if !said && o.Location != "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	if e.gpus == nil {
		if !said && !cuda.Loaded() {
			return nil
		}
		d, err := topoctl.OpenGPUs(e.e)
		switch {
		case err == nil:
			e.gpus = d
		case said:
			return &Error{Invalid, err}
		default:
			e.log.Warn("memory is taken for the host's", "error", err)
			return nil
		}
	}
	o.Devices = e.gpus
	return nil
}
