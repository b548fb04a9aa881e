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
	"github.com/topoctl/topoctl/engine/memory/cuda"
	"github.com/topoctl/topoctl/pathsel"
)

// region is memory that was registered, or allocated, in one piece.
type region struct {
	*engine.Region
	ours bool // allocated by Alloc
}

const maxRanges = 1 << 20 // that one call registers

// Register registers ranges: all or none.
func (e *Engine) Register(addresses, lengths []uint64, location string, grant int32) error {
	if len(addresses) != len(lengths) || len(addresses) > maxRanges {
		return fail(Invalid, "%d addresses and %d lengths: want as many of both, at most %d", len(addresses), len(lengths), maxRanges)
	}
	g, err := grantOf(grant)
	if err != nil {
		return err
	}
	at, err := e.locationOf(location)
	if err != nil {
		return err
	}
	want := make([]interval[*region], len(addresses))
	for i, a := range addresses {
		if a == 0 || lengths[i] == 0 || lengths[i] > math.MaxInt64 || a > math.MaxUint64-lengths[i] {
			return fail(Invalid, "range %d: %d bytes at %#x: not a range of memory", i, lengths[i], a)
		}
		want[i] = interval[*region]{lo: a, hi: a + lengths[i]}
	}
	slices.SortFunc(want, func(a, b interval[*region]) int { return cmp.Compare(a.lo, b.lo) })
	e.registering.Lock()
	defer e.registering.Unlock()
	have := *e.local.Load()
	for i, x := range want {
		other := interval[*region]{}
		if k := have.after(x.lo); k < len(have) {
			other = have[k]
		}
		if i > 0 && want[i-1].hi > x.lo {
			other = want[i-1]
		}
		if other.lo < x.hi && x.lo < other.hi {
			return fail(Exists, "%d bytes at %#x: %d bytes at %#x are registered", x.hi-x.lo, x.lo, other.hi-other.lo, other.lo)
		}
	}
	for i := range want {
		r, err := e.registerOne(want[i].lo, want[i].hi-want[i].lo, at, g)
		if err != nil {
			return errors.Join(err, e.closeRegions(want[:i]))
		}
		want[i].of = &region{Region: r}
	}
	e.keep(have.with(want))
	if err := e.publish(); err != nil {
		e.keep(have)
		return errors.Join(err, e.closeRegions(want))
	}
	return nil
}

func (e *Engine) keep(s space[*region]) { e.local.Store(&s) }

func (e *Engine) registerOne(address, length uint64, at pathsel.Location, g memory.Grant) (*engine.Region, error) {
	b, err := e.foreign(address, length, at)
	if err != nil {
		return nil, &Error{Invalid, err}
	}
	return e.e.Register(b, engine.RegionOptions{Location: at, Grant: g, OfferAddress: true})
}

// foreign wraps the caller's memory, of the host or of a GPU.
func (e *Engine) foreign(address, length uint64, at pathsel.Location) (*memory.Block, error) {
	if !strings.HasPrefix(string(at), "gpu:") {
		return memory.Foreign(uintptr(address), int64(length))
	}
	gpus, err := e.openGPUs()
	if err != nil {
		return nil, err
	}
	g, err := gpus.GPU(string(at))
	if err != nil {
		return nil, err
	}
	return g.Foreign(uintptr(address), int64(length))
}

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

// Unregister gives ranges back by their addresses, and waits until nothing can touch them.
func (e *Engine) Unregister(addresses []uint64) error { return e.giveBack(addresses, false) }

// Free gives back what Alloc gave.
func (e *Engine) Free(address uint64) error { return e.giveBack([]uint64{address}, true) }

func (e *Engine) giveBack(addresses []uint64, ours bool) error {
	e.registering.Lock()
	defer e.registering.Unlock()
	have := *e.local.Load()
	going := map[uint64]bool{}
	var list []interval[*region]
	for i, a := range addresses {
		k := have.after(a)
		switch {
		case k == len(have) || have[k].lo != a:
			return fail(NoRegion, "range %d: nothing is registered at %#x", i, a)
		case have[k].of.ours && !ours:
			return fail(Invalid, "range %d: %#x was allocated here: free it", i, a)
		case !have[k].of.ours && ours:
			return fail(Invalid, "%#x was registered, not allocated: unregister it", a)
		case going[a]:
			return fail(Invalid, "range %d: %#x is given twice", i, a)
		}
		going[a], list = true, append(list, have[k])
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.release)
	defer cancel()
	var errs []error
	for _, x := range list {
		if err := x.of.Close(ctx); err != nil {
			delete(going, x.lo) // it stays, to be closed again
			errs = append(errs, err)
		}
	}
	left := make(space[*region], 0, len(have))
	for _, x := range have {
		if !going[x.lo] {
			left = append(left, x)
		}
	}
	e.keep(left)
	if err := e.publish(); err != nil {
		e.log.Warn("peers are still told of memory that is not registered any more", "error", err)
	}
	if len(errs) > 0 {
		return &Error{Unsafe, fmt.Errorf("%d of %d ranges can still be touched: %w", len(errs), len(list), errors.Join(errs...))}
	}
	return nil
}

// Alloc gives memory that engines of this host share, registered, by its address.
func (e *Engine) Alloc(length uint64, location string, grant int32) (uint64, error) {
	g, err := grantOf(grant)
	if err != nil {
		return 0, err
	}
	at, err := e.locationOf(location)
	if err != nil {
		return 0, err
	}
	var o memory.Options
	if node, ok := strings.CutPrefix(string(at), "cpu:"); ok {
		n, err := strconv.Atoi(node)
		if err != nil {
			return 0, fail(Invalid, "location %.40q: %w", location, err)
		}
		o.Nodes = []int{n}
	} else if at != "" {
		return 0, fail(Invalid, "location %.40q: only memory of the host is allocated here", location)
	}
	if length == 0 || length > math.MaxInt64 {
		return 0, fail(Invalid, "allocation of %d bytes", length)
	}
	b, err := memory.Alloc(int64(length), o)
	if err != nil {
		return 0, err
	}
	e.registering.Lock()
	defer e.registering.Unlock()
	r, err := e.e.Register(b, engine.RegionOptions{Location: at, Grant: g, OfferAddress: true})
	if err != nil {
		return 0, errors.Join(err, b.Free())
	}
	address := uint64(r.Address())
	have := *e.local.Load()
	one := []interval[*region]{{address, address + length, &region{r, true}}}
	e.keep(have.with(one))
	if err := e.publish(); err != nil {
		e.keep(have)
		return 0, errors.Join(err, e.closeRegions(one))
	}
	return address, nil
}

// grantOf checks what peers may do.
func grantOf(grant int32) (memory.Grant, error) {
	switch grant {
	case 0:
		return memory.None, nil
	case 1:
		return memory.PeerRead, nil
	case 2:
		return memory.PeerWrite, nil
	case 3:
		return memory.PeerRead | memory.PeerWrite, nil
	}
	return 0, fail(Invalid, "grant %d: want 0 to 3, the sum of TOPOCTL_PEER_READ and TOPOCTL_PEER_WRITE", grant)
}

// locationOf checks where memory is said to be; "" and "*" are not known.
func (e *Engine) locationOf(location string) (pathsel.Location, error) {
	if location == "" || location == "*" {
		return "", nil
	}
	kind, number, _ := strings.Cut(location, ":")
	if n, err := strconv.ParseUint(number, 10, 16); kind != "cpu" && kind != "gpu" || err != nil || strconv.FormatUint(n, 10) != number {
		return "", fail(Invalid, "location %.40q: want cpu:N or gpu:N, or * to find out", location)
	}
	return pathsel.Location(location), nil
}

// openGPUs opens the GPUs, once.
func (e *Engine) openGPUs() (*cuda.Driver, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	if e.gpus == nil {
		d, err := topoctl.OpenGPUs(e.e)
		if err != nil {
			return nil, err
		}
		e.gpus = d
	}
	return e.gpus, nil
}
