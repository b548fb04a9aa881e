package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Region is memory of this engine that transfers may touch. Its methods may be
// used by many goroutines.
type Region struct {
	engine       *Engine
	r            *mem.Region
	location     pathsel.Location
	offerAddress bool
	keys         map[string]string // by transport; replaced, under the lock of the offering
	unregistered uint32            // carriers that could not register it, by bit
	notes        []string          // why
	closed       atomic.Bool

	cutting sync.Mutex
	cut     uint32      // carriers that have given it up, by bit
	stuck   atomic.Bool // one could not: Close has left its pin, and asks again
}

// Alloc allocates memory outside Go's heap and registers it.
func (e *Engine) Alloc(size int64, o RegionOptions) (*Region, error) {
	block, err := memory.Alloc(size, o.Memory)
	if err != nil {
		return nil, o.failed(err)
	}
	r, err := e.Register(block, o)
	if err != nil {
		return nil, errors.Join(err, block.Free())
	}
	return r, nil
}

// failed is why the region cannot be made.
func (o *RegionOptions) failed(err error) error {
	if o.Name == "" {
		return pkgerr.Errorf("engine", "%w", err)
	}
	return pkgerr.Errorf("engine", "region %q: %w", o.Name, err)
}

// Register makes a region of a block, which may be GPU memory (engine/memory/cuda). The
// block then belongs to the engine, unless Register fails. Borrowed memory
// (memory.Foreign) remains its owner's, and must stay mapped until Region.Close has
// returned nil, or Engine.Close. o.Memory is ignored; an empty o.Location is replaced by
// the block's.
func (e *Engine) Register(b *memory.Block, o RegionOptions) (*Region, error) {
	regions, err := e.registerAll([]*mem.Block{(*mem.Block)(b)}, o)
	if err != nil {
		return nil, err
	}
	return regions[0], nil
}

// RegisterRanges makes regions of memory that somebody else mapped (see memory.Foreign), or
// that a device has (RegionOptions.Devices): one of each range, and one of ranges that touch
// and lie in one mapping, or in one allocation of a device. What lies between ranges is in no
// region. All are registered, or none, and peers are told of them at once. Regions are in the
// order of addresses, and their names are made up; o.Name and o.Memory are ignored.
//
// The memory must stay mapped until Region.Close has returned nil, or Engine.Close. The
// process's mappings are read once for all ranges.
func (e *Engine) RegisterRanges(ranges []memory.Range, o RegionOptions) ([]*Region, error) {
	var found mem.Devices
	if o.Devices != nil {
		found = devices{o.Devices}
	}
	own := make([]mem.Range, len(ranges))
	for i, r := range ranges {
		own[i] = mem.Range(r)
	}
	blocks, err := mem.ForeignRanges(own, found)
	if err != nil {
		return nil, pkgerr.Errorf("engine", "%w", err)
	}
	o.Name = ""
	regions, err := e.registerAll(blocks, o)
	if err != nil {
		return nil, errors.Join(err, mem.FreeAll(blocks))
	}
	return regions, nil
}

// devices are memory.Devices without the public types.
type devices struct{ all memory.Devices }

func (d devices) Allocation(address uintptr) (mem.Range, bool) {
	r, ok := d.all.Allocation(address)
	return mem.Range(r), ok
}

func (d devices) Foreign(r mem.Range) (*mem.Block, error) {
	b, err := d.all.Foreign(memory.Range(r))
	return (*mem.Block)(b), err
}

// registerAll makes regions of all blocks, or of none.
func (e *Engine) registerAll(blocks []*mem.Block, o RegionOptions) ([]*Region, error) {
	if err := e.alive(); err != nil {
		return nil, o.failed(err)
	}
	regions := make([]*Region, 0, len(blocks))
	for _, b := range blocks {
		r, err := e.add(b, o)
		if err != nil {
			return nil, errors.Join(err, e.CloseRegions(context.Background(), regions))
		}
		regions = append(regions, r)
	}
	if err := e.offer(regions); err != nil {
		return nil, errors.Join(err, e.CloseRegions(context.Background(), regions))
	}
	return regions, nil
}

// add makes a region of a block, of which peers are not told yet.
func (e *Engine) add(b *mem.Block, o RegionOptions) (*Region, error) {
	if o.Location == "" {
		o.Location = pathsel.Location(b.Location())
	}
	m, err := e.table.Add(b, o.Name, string(o.Location), mem.Grant(o.Grant))
	if err != nil {
		return nil, pkgerr.Errorf("engine", "%w", err)
	}
	r := &Region{engine: e, r: m, location: o.Location, offerAddress: o.OfferAddress}
	if err := r.register(); err != nil {
		return nil, errors.Join(err, m.Close(context.Background()))
	}
	return r, nil
}

// register gives the region to all transports. One that cannot take it (locked memory
// may be short, a device full) is not used for it as long as another can.
func (r *Region) register() error {
	var errs []error
	for i, c := range r.engine.carriers {
		key, err := c.t.Register(r.r)
		if err != nil {
			r.unregistered |= 1 << i
			r.notes = append(r.notes, fmt.Sprintf("not over %s: %v", c.name, err))
			errs = append(errs, pkgerr.Errorf("engine", "region %q: %s: %w", r.r.Name(), c.name, err))
			continue
		}
		if key != "" {
			if r.keys == nil {
				r.keys = map[string]string{}
			}
			r.keys[c.name] = key
		}
	}
	if len(errs) == len(r.engine.carriers) {
		return errors.Join(errs...)
	}
	for _, err := range errs {
		r.engine.log.Warn("a transport is not used for a region", "error", err)
	}
	return nil
}

// rekey asks the transports for the keys of all regions as they are now.
func (e *Engine) rekey() {
	o := &e.offering
	o.mu.Lock()
	defer o.mu.Unlock()
	told := false
	for _, r := range o.regions {
		told = r.rekey() || told
	}
	if told {
		o.room = 0 // keys may have become longer
		e.changed()
	}
}

// rekey says whether a key changed; the lock of the offering is held.
func (r *Region) rekey() bool {
	keys := maps.Clone(r.keys)
	for i, c := range r.engine.carriers {
		if c.ports == nil || r.unregistered&(1<<i) != 0 {
			continue
		}
		key := c.ports.Key(r.r)
		switch {
		case key == "":
			delete(keys, c.name)
		case keys == nil:
			keys = map[string]string{c.name: key}
		default:
			keys[c.name] = key
		}
	}
	if maps.Equal(keys, r.keys) {
		return false
	}
	r.keys = keys
	return true
}

// withdraw takes the region from all transports that have it.
func (r *Region) withdraw() error {
	r.cutting.Lock()
	defer r.cutting.Unlock()
	var errs []error
	for i, c := range r.engine.carriers {
		if (r.unregistered|r.cut)&(1<<i) != 0 {
			continue
		}
		if err := c.t.Deregister(r.r); err != nil {
			errs = append(errs, pkgerr.Errorf("engine", "region %q: %s: %w", r.r.Name(), c.name, err))
			continue
		}
		r.cut |= 1 << i
	}
	return errors.Join(errs...)
}

// Regions lists the open regions in the order of their IDs.
func (e *Engine) Regions() []*Region {
	own := e.bounce.region()
	e.offering.mu.Lock()
	defer e.offering.mu.Unlock()
	out := slices.Clone(e.offering.list())
	return slices.DeleteFunc(out, func(r *Region) bool { return r == own })
}

// Name is the name by which peers find the region.
func (r *Region) Name() string { return r.r.Name() }

// ID is the region's name on the wire, never 0. That of a region which was closed never becomes valid again.
func (r *Region) ID() uint64 { return uint64(r.r.ID()) }

// Size is the region's length in bytes.
func (r *Region) Size() int64 { return r.r.Size() }

// Address is where the memory is in this process; for device memory, what the device's
// driver calls it. Peers learn it only with RegionOptions.OfferAddress.
func (r *Region) Address() uintptr { return r.r.Block().Address() }

// Location is where the memory is, "" if that is unknown.
func (r *Region) Location() pathsel.Location { return r.location }

// Grant is what peers may do.
func (r *Region) Grant() memory.Grant { return memory.Grant(r.r.Grant()) }

// Info says what the memory is made of.
func (r *Region) Info() memory.Info { return (*memory.Block)(r.r.Block()).Info() }

// Bytes are the region's bytes; using them after Close faults, until enough other regions
// have been closed that the addresses are given away. For device memory they are
// nil: use ReadAt and WriteAt, or the device.
func (r *Region) Bytes() []byte { return r.r.Block().Bytes() }

// Span is a range of the region; Submit checks it.
func (r *Region) Span(offset, length int64) Span { return Span{r, offset, length} }

// All is the whole region.
func (r *Region) All() Span { return Span{r, 0, r.Size()} }

// ReadAt implements io.ReaderAt.
func (r *Region) ReadAt(p []byte, off int64) (int, error) {
	if !r.pin() {
		return 0, pkgerr.Errorf("engine", "region %q: %w", r.Name(), ErrClosed)
	}
	defer r.r.Unpin()
	if off < 0 {
		return 0, pkgerr.Errorf("engine", "region %q: read at %d: %w", r.Name(), off, ErrRange)
	}
	if off >= r.Size() {
		return 0, io.EOF
	}
	if r.r.Device() != nil {
		return r.onDevice(r.r.Block().ReadAt(p, off))
	}
	n := copy(p, r.Bytes()[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt. Bytes beyond the region's end are an error.
func (r *Region) WriteAt(p []byte, off int64) (int, error) {
	if !r.pin() {
		return 0, pkgerr.Errorf("engine", "region %q: %w", r.Name(), ErrClosed)
	}
	defer r.r.Unpin()
	if off < 0 || off > r.Size() {
		return 0, pkgerr.Errorf("engine", "region %q: write at %d: %w (%d bytes)", r.Name(), off, ErrRange, r.Size())
	}
	if r.r.Device() != nil {
		return r.onDevice(r.r.Block().WriteAt(p, off))
	}
	n := copy(r.Bytes()[off:], p)
	if n < len(p) {
		return n, pkgerr.Errorf("engine", "region %q: write of %d bytes at %d: %w (%d bytes)", r.Name(), len(p), off, ErrRange, r.Size())
	}
	return n, nil
}

// onDevice names the region in an error of its device memory.
func (r *Region) onDevice(n int, err error) (int, error) {
	if err != nil && !errors.Is(err, io.EOF) {
		err = pkgerr.Errorf("engine", "region %q: %w", r.Name(), err)
	}
	return n, err
}

func (r *Region) pin() bool { return !r.closed.Load() && r.r.Pin() }

// Close refuses new ops, cancels the batches that use the region, tells peers, cuts off
// those that are writing to it, and unmaps the memory as soon as nothing can touch it any
// more. If that takes longer than ctx, the region is closed all the same, the error wraps
// ctx's, and Close can be called again. The same goes for a transport that cannot release
// the region: peers may write to it until it can.
func (r *Region) Close(ctx context.Context) error {
	return r.engine.CloseRegions(ctx, []*Region{r})
}

// CloseRegions is Region.Close for many regions of the engine, such as those of RegisterRanges: it
// tells peers of all at once, and returns the errors of all, joined.
func (e *Engine) CloseRegions(ctx context.Context, regions []*Region) error {
	// The pins are there before anybody else sees that the regions are being closed.
	pinned, closing := make(map[*Region]bool, len(regions)), make(map[*Region]bool, len(regions))
	for _, r := range regions {
		if _, twice := pinned[r]; twice {
			continue
		}
		pinned[r] = r.r.Pin()
		if !r.closed.Swap(true) {
			closing[r] = true
		}
	}
	if len(closing) > 0 {
		e.withhold(closing)
		e.cancelUsers(closing)
	}
	var errs []error
	for r := range pinned {
		errs = append(errs, r.close(ctx, pinned[r], closing[r]))
	}
	return errors.Join(errs...)
}

// close is the rest of closing a region that peers are not told of any more; first says that it
// was open until now.
func (r *Region) close(ctx context.Context, pinned, first bool) error {
	if pinned && first {
		if err := r.cutOff(); err != nil {
			r.stuck.Store(true)
			return err // with the pin: the memory is not free
		}
	}
	if pinned {
		r.r.Unpin()
	}
	if r.stuck.Load() {
		if err := r.withdraw(); err != nil {
			return err
		}
		if r.stuck.Swap(false) {
			r.r.Unpin()
		}
	}
	if err := r.r.Close(ctx); err != nil {
		return pkgerr.Errorf("engine", "%w", err)
	}
	return nil
}

// cutOff ends what peers do with the region. It takes no new pins meanwhile, and
// its bytes stay visible until all transports have given it up, because the
// caller holds a pin: nobody must read what is left of hidden memory and take it
// for the region's.
func (r *Region) cutOff() error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.r.Close(over) // it fails, because of our pin, and refuses others from now on
	return r.withdraw()
}

// cancelUsers cancels the batches that touch any of the regions.
func (e *Engine) cancelUsers(regions map[*Region]bool) {
	for _, b := range e.running() {
		for _, used := range b.locals {
			if regions[used] {
				b.cancel(fmt.Errorf("region %q was %w", used.Name(), ErrClosed))
				break
			}
		}
	}
}
