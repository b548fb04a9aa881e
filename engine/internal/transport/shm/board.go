package shm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	// places is how many a memory.Table can have.
	places     = 1 << 20
	boardBytes = places * 4
)

// board tells all peers at once which regions are open: a page of memory that
// they map for reading. At a region's place stands how often the place was used,
// plus one; 0 where no region is registered. Requesters look there before each
// request, so that a region that was deregistered is refused from that moment.
type board struct {
	block *memory.Block
}

// newBoard makes ours. The table seals it: nobody else can write it.
func newBoard() (*board, *memory.Table, error) {
	block, err := memory.Alloc(boardBytes, memory.Options{Lazy: true})
	if err != nil {
		return nil, nil, err
	}
	table := memory.NewTable(1)
	if _, err := table.Add(block, "board", "", memory.PeerRead); err != nil {
		return nil, nil, errors.Join(err, block.Free())
	}
	fd, has, err := block.File(false)
	closeFD(fd)
	if err == nil && !has {
		err = errors.New("this kernel cannot make memory read-only for peers: shared memory needs Linux 5.1")
	}
	if err != nil {
		return nil, nil, errors.Join(err, table.Close())
	}
	return &board{block}, table, nil
}

// mapBoard maps a peer's. Pages of the hugetlb pool could be taken away under us.
func mapBoard(fd int) (*board, error) {
	block, err := memory.Map(fd, boardBytes, false)
	if err != nil {
		return nil, fmt.Errorf("the peer's list of regions: %w", err)
	}
	if block.Info().PageBytes != int64(os.Getpagesize()) {
		return nil, errors.Join(errors.New("the peer's list of regions is made of huge pages"), block.Free())
	}
	return &board{block}, nil
}

// word is where a region stands, and what stands there while it is open; nil for
// IDs that no table gives.
func (b *board) word(id memory.ID) (at *atomic.Uint32, open uint32) {
	place := uint64(id&0xffffffff) - 1
	open = uint32(id>>32) + 1
	if place >= places || open == 0 {
		return nil, 0
	}
	return (*atomic.Uint32)(unsafe.Pointer(&b.block.Bytes()[place*4])), open
}

func (b *board) set(id memory.ID, isOpen bool) error {
	at, open := b.word(id)
	if at == nil {
		return pkgerr.Errorf("shm", "region %#x: %w", uint64(id), memory.ErrNoRegion)
	}
	if isOpen {
		at.Store(open)
	} else {
		at.CompareAndSwap(open, 0) // the place may be another region's by now
	}
	return nil
}

func (b *board) open(id memory.ID) bool {
	at, open := b.word(id)
	return at != nil && at.Load() == open
}
