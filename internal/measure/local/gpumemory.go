package local

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/internal/measure/lane"
)

// gpuEnd is one end of copies: memory of a GPU, or pinned memory of the host.
type gpuEnd struct {
	ctx     *cuda.Context // nil: the host's
	address uint64
	block   *memory.Block // of the host
	node    *int          // NUMA node that it is bound to
	notes   []string
	free    func() error
}

// gpuAt allocates memory at an end of a pair. other is the GPU's context that pins memory of the host.
func (p *Prober) gpuAt(id topo.ID, ctx, other *cuda.Context, size int64) (*gpuEnd, error) {
	if ctx == nil {
		return p.pinned(id, other, size)
	}
	address, err := ctx.Alloc(size)
	if err != nil {
		return nil, err
	}
	return &gpuEnd{ctx: ctx, address: address, free: func() error { return ctx.Free(address) }}, nil
}

// pinned allocates memory of a NUMA node that GPUs access directly.
func (p *Prober) pinned(id topo.ID, ctx *cuda.Context, size int64) (*gpuEnd, error) {
	o := memory.Options{Backing: memory.Private, Pages: memory.Huge}
	e := &gpuEnd{}
	if id != "" {
		node := p.numaNode(id)
		if node == nil {
			return nil, fmt.Errorf("%s: the topology has no such NUMA node", id)
		}
		if p.memoryNodes() > 1 {
			o.Nodes, e.node = []int{node.Index}, &node.Index
		}
	}
	var err error
	if e.block, err = p.system.alloc(size, o); err != nil {
		if len(o.Nodes) > 0 && refusesBinding(err) {
			return nil, lane.Waive(err)
		}
		return nil, err
	}
	e.notes = e.block.Info().Notes
	address, err := ctx.PinBytes(e.block.Bytes())
	if err != nil {
		return nil, errors.Join(err, e.block.Free())
	}
	e.address = uint64(address)
	e.free = func() error { return errors.Join(ctx.Unpin(address), e.block.Free()) }
	return e, nil
}

// copies are those of one direction, on a stream of their own.
type copies struct {
	from, to   *gpuEnd
	offset     int64 // of the part of the memory at both ends
	bytes      int64 // of it
	at         int64
	stream     *cuda.Stream
	start, end *cuda.Event
	pieces     []cuda.Piece
}

func newCopies(from, to *gpuEnd, offset, bytes int64) (*copies, error) {
	c := &copies{from: from, to: to, offset: offset, bytes: bytes}
	ctx := from.ctx
	if ctx == nil {
		ctx = to.ctx
	}
	var err error
	if c.stream, err = ctx.NewStream(); err != nil {
		return nil, err
	}
	if c.start, err = ctx.NewTimer(); err == nil {
		c.end, err = ctx.NewTimer()
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// run copies size bytes the given number of times and says how long the GPU took for all of them. When it
// returns nothing is under way.
func (c *copies) run(size int64, times int) (time.Duration, error) {
	if err := c.stream.Record(c.start); err != nil {
		return 0, err
	}
	recorded, err := c.queue(size, times)
	if recorded {
		err = errors.Join(err, c.end.Wait())
	}
	if err != nil {
		return 0, err
	}
	return c.end.Since(c.start)
}

func (c *copies) queue(size int64, times int) (recorded bool, err error) {
	if c.from.ctx != nil && c.to.ctx != nil {
		at := uint64(c.offset)
		return c.stream.CopyPeer(c.to.ctx, c.to.address+at, c.from.ctx, c.from.address+at, size, times, c.end)
	}
	device, host, toHost := c.to, c.from, false
	if c.from.ctx != nil {
		device, host, toHost = c.from, c.to, true
	}
	c.pieces = c.pieces[:0]
	for range times { // through all of the memory, which no cache of the host holds
		if c.at+size > c.bytes {
			c.at = 0
		}
		at := uint64(c.offset + c.at)
		c.pieces = append(c.pieces, cuda.Piece{Device: device.address + at, Host: host.address + at, Bytes: uint64(size)})
		c.at += size
	}
	return c.stream.Copy(toHost, c.pieces, c.end)
}

func (c *copies) close() error {
	var errs []error
	for _, e := range []*cuda.Event{c.start, c.end} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(append(errs, c.stream.Close())...)
}

// verifyBytes is how many bytes are checked.
const verifyBytes = 1 << 20

// verify copies a pattern and checks that it has arrived. bounce is pinned memory of verifyBytes.
func (c *copies) verify(bounce *gpuEnd) error {
	n := min(verifyBytes, c.bytes)
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i*7 + i>>8)
	}
	if err := c.put(c.from, bounce, want); err != nil {
		return err
	}
	if err := c.put(c.to, bounce, make([]byte, n)); err != nil {
		return err
	}
	c.at = 0
	if _, err := c.run(n, 1); err != nil {
		return err
	}
	c.at = 0
	got, err := c.get(c.to, bounce, n)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		wrong := 0
		for i := range got {
			if got[i] != want[i] {
				wrong++
			}
		}
		return fmt.Errorf("%d of %d bytes that were copied are wrong: the path corrupts data", wrong, n)
	}
	return nil
}

// put writes the beginning of an end's memory, get reads it.
func (c *copies) put(e, bounce *gpuEnd, data []byte) error {
	if e.ctx == nil {
		copy(e.block.Bytes()[c.offset:], data)
		return nil
	}
	copy(bounce.block.Bytes(), data)
	return c.through(bounce, e, int64(len(data)), false)
}

// get reads the beginning of the memory at an end.
func (c *copies) get(e, bounce *gpuEnd, n int64) ([]byte, error) {
	if e.ctx == nil {
		return e.block.Bytes()[c.offset : c.offset+n], nil
	}
	err := c.through(bounce, e, n, true)
	return bounce.block.Bytes()[:n], err
}

// through copies between the bounce buffer and a GPU, on a stream of that GPU.
func (c *copies) through(bounce, e *gpuEnd, n int64, toHost bool) error {
	stream, err := e.ctx.NewStream()
	if err != nil {
		return err
	}
	event, err := e.ctx.NewEvent()
	if err != nil {
		return errors.Join(err, stream.Close())
	}
	recorded, err := stream.Copy(toHost, []cuda.Piece{{Device: e.address + uint64(c.offset), Host: bounce.address, Bytes: uint64(n)}}, event)
	if recorded {
		err = errors.Join(err, event.Wait())
	}
	return errors.Join(err, event.Close(), stream.Close())
}
