//go:build unix && !linux

package memory

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// allocate maps anonymous memory: there is no memfd here, no pool of huge pages
// and no binding to nodes.
func allocate(size int64, o Options) (*Block, error) {
	if o.Pages == Huge2MiB || o.Pages == Huge1GiB {
		return nil, fmt.Errorf("pages of the hugetlb pool: %w", errLinux)
	}
	if len(o.Nodes) > 0 {
		return nil, fmt.Errorf("bind to NUMA nodes %v: %w", o.Nodes, errLinux)
	}
	length := roundUp(size, basePage())
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	b := &Block{
		bytes: bytesAt(uintptr(p), size),
		size:  size,
		area:  area{start: uintptr(p), size: uintptr(length)},
		fd:    -1,
		info:  Info{Backing: Private, PageBytes: basePage()},
	}
	if o.Backing == Shared {
		b.info.Notes = append(b.info.Notes, "shared memory: memfd needs Linux; the block is private")
	}
	if o.Pages == Huge {
		b.info.Notes = append(b.info.Notes, "huge pages: advice needs Linux")
	}
	if !o.Lazy {
		touch(b.bytes, basePage())
	}
	if o.Lock {
		if err := unix.Mlock(b.bytes); err != nil {
			return nil, errors.Join(fmt.Errorf("mlock: %w (see RLIMIT_MEMLOCK, ulimit -l)", err), b.Free())
		}
		b.info.Locked = true
	}
	return b, nil
}

func (a area) unmap() error {
	if err := unix.MunmapPtr(pointer(a.start), a.size); err != nil {
		return fmt.Errorf("munmap: %w", err)
	}
	return nil
}

func (a area) hide() error {
	_, err := unix.MmapPtr(-1, 0, pointer(a.start), a.size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	return nil
}
