//go:build cgo && linux && (amd64 || arm64)

package verbs

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// PD is a protection domain.
type PD struct {
	dev  *Device
	mu   sync.RWMutex // held for writing to end pd
	pd   *C.struct_tv_pd
	uses atomic.Int32 // memory regions and queue pairs that are open
}

// MR is registered memory.
type MR struct {
	pd         *PD
	lkey, rkey uint32
	mu         sync.Mutex
	mr         *C.struct_tv_mr
}

// Register pins memory of this process and lets the device at it. iova is what work
// requests and peers call its first byte: its offset within a page must be addr's. The
// memory must be off Go's heap and stay mapped until Close. Errors: ENOMEM wherever the
// limit of locked memory is too small (Advice says so), EFAULT for memory that is not
// there or not writable, EINVAL beyond the device's limits, ENOSYS for an iova that is not
// addr with a library older than 1.7 of the ABI.
func (p *PD) Register(addr uintptr, length, iova uint64, a Access) (*MR, error) {
	what := fmt.Sprintf("%d bytes, %s", length, a)
	return p.register("ibv_reg_mr", what, func(m **C.struct_tv_mr) C.int {
		return C.tv_reg_mr(p.dev.lib.c, p.pd, C.uintptr_t(addr), C.size_t(length), C.uint64_t(iova), C.uint(a), m)
	})
}

// RegisterDMABuf lets the device at memory of another device, through a descriptor that
// its driver gave. The descriptor may be closed afterwards. Errors: EOPNOTSUPP or ENOSYS
// where kernel, device or library cannot.
func (p *PD) RegisterDMABuf(fd int, offset, length, iova uint64, a Access) (*MR, error) {
	what := fmt.Sprintf("%d bytes at %d of a dma-buf, %s", length, offset, a)
	return p.register("ibv_reg_dmabuf_mr", what, func(m **C.struct_tv_mr) C.int {
		return C.tv_reg_dmabuf(p.dev.lib.c, p.pd, C.int(fd), C.uint64_t(offset), C.size_t(length),
			C.uint64_t(iova), C.uint(a), m)
	})
}

func (p *PD) register(verb, what string, call func(**C.struct_tv_mr) C.int) (*MR, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.pd == nil {
		return nil, ErrClosed
	}
	// Not &m.mr: cgo refuses a pointer into memory that holds Go pointers, as m does.
	var mr *C.struct_tv_mr
	if rc := call(&mr); rc != 0 {
		return nil, &Error{Verb: verb, Device: p.dev.name, What: what, Errno: syscall.Errno(rc),
			Advice: registerAdvice(syscall.Errno(rc), memlockLimit())}
	}
	if mr.context != p.pd.context || mr.pd != p.pd {
		return nil, p.dev.wrong("ibv_mr.context or .pd is another one")
	}
	m := &MR{pd: p, mr: mr, lkey: uint32(mr.lkey), rkey: uint32(mr.rkey)}
	p.uses.Add(1)
	return m, nil
}

// memlockLimit is what this process may lock, in bytes; math.MaxUint64 is all it likes.
func memlockLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return math.MaxUint64
	}
	return l.Cur
}

func registerAdvice(errno syscall.Errno, limit uint64) string {
	if !errors.Is(errno, syscall.ENOMEM) {
		return ""
	}
	if limit == math.MaxUint64 {
		return "RLIMIT_MEMLOCK is unlimited, so the device or the host is out of memory or of memory regions"
	}
	return fmt.Sprintf("RLIMIT_MEMLOCK is %d bytes, and registered memory counts: raise it (ulimit -l unlimited, "+
		"LimitMEMLOCK=infinity in the unit, --ulimit memlock=-1 for a container) or grant CAP_IPC_LOCK", limit)
}

// LKey names the memory in our own work requests.
func (m *MR) LKey() uint32 { return m.lkey }

// RKey names it in those of peers. It means nothing without remote rights.
func (m *MR) RKey() uint32 { return m.rkey }

// Close takes the memory away from the device: once it has returned nil, nothing lands
// there any more.
func (m *MR) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mr == nil {
		return nil
	}
	if rc := C.tv_dereg_mr(m.pd.dev.lib.c, m.mr); !m.pd.dev.ended(rc) {
		return m.pd.dev.failed(rc, "ibv_dereg_mr", "")
	}
	m.mr = nil
	m.pd.uses.Add(-1)
	return nil
}

// Close ends the domain. EBUSY: its memory regions and queue pairs must be closed before.
func (p *PD) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pd == nil {
		return nil
	}
	if n := p.uses.Load(); n != 0 {
		return p.dev.busy("ibv_dealloc_pd", fmt.Sprintf("%d memory regions or queue pairs are open", n))
	}
	if rc := C.tv_dealloc_pd(p.dev.lib.c, p.pd); !p.dev.ended(rc) {
		return p.dev.failed(rc, "ibv_dealloc_pd", "")
	}
	p.pd = nil
	p.dev.uses.Add(-1)
	return nil
}
