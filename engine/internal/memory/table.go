package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// MaxName is the length of the longest name of a region or location, in bytes.
const MaxName = 255

// maxRegions bounds a table: each place costs 16 bytes from the start.
const maxRegions = 1 << 20

// Table holds an engine's regions. It may be used by many goroutines; looking a
// region up and pinning it takes no lock.
type Table struct {
	places []atomic.Pointer[Region]

	mu     sync.Mutex
	used   []uint32 // how often each place that was ever taken was given up
	free   []uint32 // places that can be taken again
	names  map[string]*Region
	closed bool
	// devices says that a region of device memory was ever added.
	devices atomic.Bool
	// gone are closed regions whose memory is still there: they are pinned, or a device
	// did not take it back.
	gone map[*Region]bool
	// hidden are blocks of closed regions whose addresses are taken, the oldest first.
	hidden      []*Block
	hiddenBytes int64
	number      int // of the last name that was given
}

// Addresses of closed regions are given back to the system in the order in which the
// regions were closed, when there are more than these.
//
// No late write of a peer can come to them. A region is hidden only when it has no pins,
// which everything of ours that touches bytes holds meanwhile, and the engine lets go of
// its own pin only when every transport has given the region up (a device by deregistering
// it, so that no key of it is valid). Its ID is never used again, so what a peer still asks
// for is refused; and a process of this host that has mapped the block's memfd has pages of
// its own at addresses of its own. What is left is the program: it may have kept a slice of
// the bytes. That such a slice faults for a while, rather than reaching somebody else's
// memory, is what the latest ones are kept for.
const (
	maxHidden      = 1024
	maxHiddenBytes = 1 << 40
)

// NewTable makes a table for at most limit regions at a time (1 to 1,048,576;
// other values are moved there).
func NewTable(limit int) *Table {
	return &Table{
		places: make([]atomic.Pointer[Region], min(max(limit, 1), maxRegions)),
		names:  map[string]*Region{},
		gone:   map[*Region]bool{},
	}
}

// Add registers a block under a name that is unique among the open regions ("" is
// given "region-N"). location is where the memory is ("gpu:0", "cpu:1", "" not
// known). The block is the table's from then on.
func (t *Table) Add(b *Block, name, location string, grant Grant) (*Region, error) {
	if err := checkName(name); err != nil {
		return nil, pkgerr.Errorf("memory", "region name %.40q: %w", name, err)
	}
	if err := checkName(location); err != nil {
		return nil, pkgerr.Errorf("memory", "region %q: location %.40q: %w", name, location, err)
	}
	if grant&^(PeerRead|PeerWrite) != 0 {
		return nil, pkgerr.Errorf("memory", "region %q: unknown grant %#x", name, grant)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, pkgerr.Errorf("memory", "region %q: the table is closed", name)
	}
	if _, taken := t.names[name]; taken {
		return nil, pkgerr.Errorf("memory", "region %q: an open region has that name", name)
	}
	if len(t.free) == 0 && len(t.used) == len(t.places) {
		return nil, pkgerr.Errorf("memory", "region %q: there are %d regions, the limit", name, len(t.places))
	}
	if err := b.own(grant); err != nil {
		return nil, pkgerr.Errorf("memory", "region %q: %w", name, err)
	}
	for name == "" {
		t.number++
		name = fmt.Sprintf("region-%d", t.number)
		if _, taken := t.names[name]; taken {
			name = ""
		}
	}
	r := &Region{table: t, block: b, bytes: b.bytes, size: b.size, device: b.device, name: name, location: location, grant: grant}
	r.idle = make(chan struct{}, 1)
	r.closing = make(chan struct{}, 1)
	if r.device != nil {
		t.devices.Store(true)
	}
	t.names[name] = r
	place := t.takePlace()
	r.id = makeID(place, t.used[place])
	t.places[place].Store(r)
	return r, nil
}

// takePlace finds a place that is free; there is one.
func (t *Table) takePlace() uint32 {
	if n := len(t.free); n > 0 {
		place := t.free[n-1]
		t.free = t.free[:n-1]
		return place
	}
	t.used = append(t.used, 0)
	return uint32(len(t.used) - 1)
}

// makeID names a place (they count from 1 in IDs, so that no ID is 0).
func makeID(place, used uint32) ID { return ID(used)<<32 | ID(place+1) }

// checkName bounds a name: it is printed, sent, and used as a key.
func checkName(name string) error {
	if len(name) > MaxName {
		return fmt.Errorf("longer than %d bytes", MaxName)
	}
	if !utf8.ValidString(name) {
		return errors.New("not UTF-8")
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("%q is not printable", c)
		}
	}
	return nil
}

// Regions lists the open regions in the order of their IDs.
func (t *Table) Regions() []*Region {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*Region, 0, len(t.names))
	for _, r := range t.names {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *Region) int { return cmp.Compare(a.id, b.id) })
	return list
}

// HasDevices says whether a region of device memory was ever added.
func (t *Table) HasDevices() bool { return t.devices.Load() }

// Pin finds the region that a peer names, checks range and grant, and keeps it
// open until Unpin. All of its arguments may be hostile. It refuses device memory,
// whose bytes the caller could not touch: that is for PinAny.
func (t *Table) Pin(id ID, offset, length uint64, want Grant) (*Region, error) {
	r, err := t.PinAny(id, offset, length, want)
	if err == nil && r.device != nil {
		r.Unpin()
		return nil, pkgerr.Errorf("memory", "region %q: %w", r.name, ErrNotHost)
	}
	return r, err
}

// PinAny is Pin for callers that know what to do with device memory.
func (t *Table) PinAny(id ID, offset, length uint64, want Grant) (*Region, error) {
	return t.PinFor(nil, id, offset, length, want)
}

// PinFor is PinAny for a peer that has these rights.
func (t *Table) PinFor(x *Rights, id ID, offset, length uint64, want Grant) (*Region, error) {
	r, grant := t.find(id), None
	if r != nil {
		grant = x.Grant(r)
	}
	if grant == None { // peers are not told of the region either
		return nil, pkgerr.Errorf("memory", "region %#x: %w", uint64(id), ErrNoRegion)
	}
	if grant&want != want {
		return nil, pkgerr.Errorf("memory", "region %q: %s: %w", r.name, want, ErrDenied)
	}
	if size := uint64(r.Size()); offset > size || length > size-offset {
		return nil, pkgerr.Errorf("memory", "region %q: %d bytes at %d: %w (%d bytes)", r.name, length, offset, ErrRange, size)
	}
	if !r.Pin() {
		return nil, pkgerr.Errorf("memory", "region %#x: %w", uint64(id), ErrNoRegion)
	}
	return r, nil
}

// find is the open region with an ID, nil without.
func (t *Table) find(id ID) *Region {
	place := uint64(id&0xffffffff) - 1
	if place >= uint64(len(t.places)) {
		return nil
	}
	r := t.places[place].Load()
	if r == nil || r.id != id {
		return nil
	}
	return r
}

// drop takes a region that was closed out of the table. Its place is used again
// until the ID's high half is used up.
func (t *Table) drop(r *Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place := uint32(r.id&0xffffffff) - 1
	t.places[place].Store(nil)
	t.used[place]++
	if t.used[place] != 0 {
		t.free = append(t.free, place)
	}
	delete(t.names, r.name)
	t.gone[r] = true
}

// retire takes a region in whose memory is hidden, and gives back the addresses of those
// that were before it. An address that the system does not take is tried again by Close.
func (t *Table) retire(r *Region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.gone[r] {
		return // it was here already
	}
	delete(t.gone, r)
	if r.block.addresses() == 0 {
		return // device memory, and what belongs to others
	}
	t.hidden = append(t.hidden, r.block)
	t.hiddenBytes += r.block.addresses()
	for len(t.hidden) > maxHidden || t.hiddenBytes > maxHiddenBytes {
		b := t.hidden[0]
		t.hiddenBytes -= b.addresses()
		t.hidden = t.hidden[1:]
		if err := b.unmap(); err != nil {
			t.hidden, t.hiddenBytes = append(t.hidden, b), t.hiddenBytes+b.addresses()
			return
		}
	}
}

// Close hides every region that is still open and unmaps all blocks that were
// allocated here. Nothing may be pinned: a region that is stays mapped, and the
// error names it. Close can be called again.
func (t *Table) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	var errs []error
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range t.Regions() {
		if err := r.Close(expired); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.gone {
		if pins := r.Pins(); pins > 0 {
			errs = append(errs, pkgerr.Errorf("memory", "region %q: still pinned %d times, left mapped", r.name, pins))
			continue
		}
		if err := r.block.Free(); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(t.gone, r)
	}
	t.hidden = slices.DeleteFunc(t.hidden, func(b *Block) bool {
		err := b.Free()
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	})
	return errors.Join(errs...)
}
