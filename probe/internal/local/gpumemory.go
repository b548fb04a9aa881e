package local

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cuda"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// gpuEnd is one end of copies: memory of a GPU, or pinned memory of the host.
type gpuEnd struct {
	ctx     *cuda.Context // nil: the host's
	address uint64
	block   *memory.Block // of the host
	node    *int          // NUMA node that it is bound to
	notes   []string
}

// memoryAt allocates memory at an end of a pair. other is the GPU's context that pins memory of the host.
func (j *gpuJob) memoryAt(id topo.ID, ctx, other *cuda.Context, size int64) (*gpuEnd, error) {
	if ctx == nil {
		return j.pinned(id, other, size)
	}
	address, err := ctx.Alloc(size)
	if err != nil {
		return nil, err
	}
	j.undo = append(j.undo, func() error { return ctx.Free(address) })
	return &gpuEnd{ctx: ctx, address: address}, nil
}

// pinned allocates memory of a NUMA node, or of any, that GPUs access directly.
func (j *gpuJob) pinned(id topo.ID, ctx *cuda.Context, size int64) (*gpuEnd, error) {
	o := memory.Options{Backing: memory.Private, Pages: memory.Huge}
	e := &gpuEnd{}
	if node := j.p.numaNode(id); node != nil && j.p.memoryNodes() > 1 {
		o.Nodes, e.node = []int{node.Index}, &node.Index
	}
	var err error
	if e.block, err = j.p.system.alloc(size, o); err != nil {
		if len(o.Nodes) > 0 && refusesBinding(err) {
			return nil, lane.Waive(err)
		}
		return nil, err
	}
	j.undo = append(j.undo, e.block.Free)
	e.notes = e.block.Info().Notes
	address, err := ctx.PinBytes(e.block.Bytes())
	if err != nil {
		return nil, err
	}
	j.undo = append(j.undo, func() error { return ctx.Unpin(address) })
	e.address = uint64(address)
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

func (j *gpuJob) copies(from, to *gpuEnd, offset, bytes int64) (*copies, error) {
	c := &copies{from: from, to: to, offset: offset, bytes: bytes}
	ctx := cmp.Or(from.ctx, to.ctx)
	var err error
	if c.stream, err = ctx.NewStream(); err != nil {
		return nil, err
	}
	j.undo = append(j.undo, c.stream.Close)
	for _, timer := range []**cuda.Event{&c.start, &c.end} {
		if *timer, err = ctx.NewTimer(); err != nil {
			return nil, err
		}
		j.undo = append(j.undo, (*timer).Close)
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

// verifyBytes is how many bytes are checked.
const verifyBytes = 1 << 20

// verify checks once, before anything is timed, that what is copied arrives.
func (j *gpuJob) verify() error {
	bounce, err := j.pinned("", cmp.Or(j.from.ctx, j.to.ctx), verifyBytes)
	if err != nil {
		return err
	}
	n := min(verifyBytes, j.main.bytes)
	want, got := make([]byte, n), make([]byte, n)
	for i := range want {
		want[i] = byte(i*7 + i>>8)
	}
	if err := errors.Join(j.put(j.from, bounce, want), j.put(j.to, bounce, got)); err != nil {
		return err
	}
	if _, err := j.main.run(n, 1); err != nil {
		return err
	}
	j.main.at = 0
	if err := j.get(j.to, bounce, got); err != nil {
		return err
	}
	wrong := 0
	for i := range got {
		if got[i] != want[i] {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d bytes that were copied are wrong: the path corrupts data", wrong, n)
	}
	return nil
}

// put writes the beginning of an end's memory, get reads it.
func (j *gpuJob) put(e, bounce *gpuEnd, data []byte) error {
	if e.ctx == nil {
		copy(e.block.Bytes(), data)
		return nil
	}
	copy(bounce.block.Bytes(), data)
	return j.move(bounce, e, int64(len(data)))
}

func (j *gpuJob) get(e, bounce *gpuEnd, data []byte) error {
	from := e
	if e.ctx != nil {
		if err := j.move(e, bounce, int64(len(data))); err != nil {
			return err
		}
		from = bounce
	}
	copy(data, from.block.Bytes())
	return nil
}

// move copies between memory of the host and of a GPU, on a stream of that GPU.
func (j *gpuJob) move(from, to *gpuEnd, n int64) error {
	c, err := j.copies(from, to, 0, n)
	if err == nil {
		_, err = c.run(n, 1)
	}
	return err
}
