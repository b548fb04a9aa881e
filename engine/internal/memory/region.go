package memory

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Region is a block that peers may be allowed to touch.
type Region struct {
	// state counts the pins; its lowest bit says that the region is closed. One
	// word holds both, so that no pin can slip in beside the closing.
	state atomic.Int64

	id       ID
	grant    Grant
	table    *Table
	block    *Block
	bytes    []byte // the block's, nil for device memory
	size     int64
	device   DeviceMemory
	name     string
	location string

	// idle has a token after the last pin of a closed region was undone.
	idle chan struct{}
	// closing is a lock that can be waited for with a context.
	closing chan struct{}
}

const (
	closedBit = 1
	onePin    = 2
)

// ID is the region's name on the wire.
func (r *Region) ID() ID { return r.id }

// Name is the region's name for people and peers.
func (r *Region) Name() string { return r.name }

// Location is where the memory is.
func (r *Region) Location() string { return r.location }

// Grant is what peers may do.
func (r *Region) Grant() Grant { return r.grant }

// Block is the memory.
func (r *Region) Block() *Block { return r.block }

// Size is the region's length in bytes.
func (r *Region) Size() int64 { return r.size }

// Device is the memory of a region that is on a device, nil for the host's.
func (r *Region) Device() DeviceMemory { return r.device }

// Pin keeps the region open until Unpin; false when it is closed.
func (r *Region) Pin() bool {
	if r.state.Add(onePin)&closedBit == 0 {
		return true
	}
	r.Unpin()
	return false
}

// Unpin undoes one Pin.
func (r *Region) Unpin() {
	if now := r.state.Add(-onePin); now <= closedBit {
		r.lastUnpin(now)
	}
}

// lastUnpin wakes a Close that waits. It is apart so that Unpin can be inlined.
func (r *Region) lastUnpin(now int64) {
	if now < 0 {
		panic(fmt.Sprintf("memory: region %q: more Unpin than Pin", r.name))
	}
	if now == closedBit {
		select {
		case r.idle <- struct{}{}:
		default: // there is a token already
		}
	}
}

// Pins is how many pins are held now.
func (r *Region) Pins() int64 { return r.state.Load() / onePin }

// Closed says whether Close was called.
func (r *Region) Closed() bool { return r.state.Load()&closedBit != 0 }

// Bytes are length bytes at offset; the caller has checked the range and holds a
// pin. Device memory has none: nil.
func (r *Region) Bytes(offset, length int64) []byte {
	if r.bytes == nil {
		return nil
	}
	return r.bytes[offset : offset+length : offset+length]
}

// Close refuses new pins, waits for those that are held, and hides the bytes. Their
// addresses are given back when enough other regions have been closed.
// Where pins are left when ctx ends, the region stays closed and hidden memory is
// not touched: the error says how many, and Close can be called again.
//
// Processes of this host that have mapped the region are not waited for: the
// pages that they see are not used again (see Block.Hide).
func (r *Region) Close(ctx context.Context) error {
	if r.state.Or(closedBit)&closedBit == 0 {
		r.table.drop(r)
	}
	select {
	case r.closing <- struct{}{}:
		defer func() { <-r.closing }()
	default:
		select {
		case r.closing <- struct{}{}:
			defer func() { <-r.closing }()
		case <-ctx.Done():
			return pkgerr.Errorf("memory", "region %q: close: it is already being closed: %w", r.name, ctx.Err())
		}
	}
	for r.Pins() > 0 {
		select {
		case <-r.idle:
		case <-ctx.Done():
			return pkgerr.Errorf("memory", "region %q: close: %d pins are held: %w", r.name, r.Pins(), ctx.Err())
		}
	}
	if err := r.block.Hide(); err != nil {
		return err
	}
	r.table.retire(r)
	return nil
}
