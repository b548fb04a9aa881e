package memory

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readMappings reads what is mapped in this process now, at least where the ranges are.
func readMappings(ranges []Range) (*mappings, error) {
	probe := heapByte()
	if m := query(ranges); m != nil {
		return m, nil
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("cannot check what is mapped there: %w", err)
	}
	m := newMappings(parseMaps(text), uint64(uintptr(unsafe.Pointer(probe))))
	heapStart.Store(m.heap)
	return m, nil
}

// heapByte is a byte of Go's heap.
//
//go:noinline
func heapByte() *byte { return new(byte) }

// heapStart is where the mappings begin that Go's heap lies in, as the last look at all mappings
// has found it; 0 before. The heap grows behind it.
var heapStart atomic.Uint64

// maxQueries is how many mappings are asked for one by one: a look at all of them reads a few in
// the time of one question.
const maxQueries = 64

// query asks the kernel for the mappings of the ranges and of Go's heap alone: a process may have
// ten thousands. It is nil where the kernel (before Linux 6.11) cannot be asked so, or where the
// ranges have too many.
func query(ranges []Range) *mappings {
	heap := heapStart.Load()
	if heap == 0 || len(ranges) > maxQueries/2 {
		return nil
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil
	}
	defer f.Close()
	asked := 0
	ask := func(at uint64) (v vma, mapped, ok bool) {
		if asked++; asked > maxQueries {
			return vma{}, false, false
		}
		v, err := mappingAt(f, at)
		return v, err == nil, err == nil || errors.Is(err, unix.ENOENT)
	}
	m := &mappings{heap: heap, heapBehind: heap}
	for {
		v, mapped, ok := ask(m.heapBehind)
		if !ok {
			return nil
		}
		if !mapped || v.inode != 0 {
			break
		}
		m.heapBehind = v.end
	}
	for _, r := range ranges {
		for at := uint64(r.Address); at < uint64(r.end()); {
			v, mapped, ok := ask(at)
			if !ok {
				return nil
			}
			if !mapped {
				break // check says so
			}
			if n := len(m.list); n == 0 || m.list[n-1].start < v.start {
				m.list = append(m.list, v)
			}
			at = v.end
		}
	}
	if m.heapBehind == heap {
		return nil
	}
	return m
}

// procmapQuery is struct procmap_query of linux/fs.h.
type procmapQuery struct {
	size, queryFlags, queryAddress                    uint64
	start, end, flags, pageBytes, offset, inode       uint64
	deviceMajor, deviceMinor, nameBytes, buildIDBytes uint32
	nameAddress, buildIDAddress                       uint64
}

// mappingAt is the mapping that an address lies in, ENOENT without one. The names of files may be
// cut off.
func mappingAt(f *os.File, address uint64) (vma, error) {
	const procmapQueryIoctl = 0xc0686611 // _IOWR('f', 17, struct procmap_query)
	var name [128]byte
	q := procmapQuery{size: uint64(unsafe.Sizeof(procmapQuery{})), queryAddress: address, nameBytes: uint32(len(name))}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&name)
	q.nameAddress = uint64(uintptr(unsafe.Pointer(&name)))
	errno := unix.ENAMETOOLONG
	for errno == unix.ENAMETOOLONG {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, f.Fd(), procmapQueryIoctl, uintptr(unsafe.Pointer(&q)))
		q.nameBytes, q.nameAddress = 0, 0
	}
	if errno != 0 {
		return vma{}, errno
	}
	perms := []byte("---p")
	for i, c := range "rwx" {
		if q.flags&(1<<i) != 0 {
			perms[i] = byte(c)
		}
	}
	text, _, _ := strings.Cut(string(name[:]), "\x00")
	return vma{start: q.start, end: q.end, perms: string(perms), inode: q.inode, name: text}, nil
}
