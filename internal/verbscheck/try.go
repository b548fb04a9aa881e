//go:build cgo && linux && (amd64 || arm64)

package verbscheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/verbs"
)

// Try asks every device, one after the other: memory that several had registered at
// a time would count together against the limit of this process.
func (s *Source) Try(ctx context.Context) *replies.VerbsReport {
	lib, err := s.load()
	if err != nil {
		return &replies.VerbsReport{Unavailable: reason(err)}
	}
	list, err := lib.Devices()
	if err != nil {
		return &replies.VerbsReport{Unavailable: reason(err)}
	}
	slices.SortFunc(list, func(a, b verbs.DeviceInfo) int { return topo.NaturalCompare(a.Name, b.Name) })
	r := &replies.VerbsReport{}
	for _, d := range list {
		if ctx.Err() != nil {
			break
		}
		r.Devices = append(r.Devices, s.one(ctx, lib, d.Name))
	}
	return r
}

// one tries one device and gives it up when it does not answer.
func (s *Source) one(ctx context.Context, lib *verbs.Lib, name string) replies.VerbsDevice {
	ctx, stop := context.WithTimeout(ctx, s.limit)
	defer stop()
	t := &trial{answer: replies.VerbsDevice{Name: name}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.run != nil {
			s.run(t, lib)
			return
		}
		t.run(lib)
	}()
	select {
	case <-done:
		return t.answer
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return replies.VerbsDevice{Name: name, Silent: true, Step: t.step}
}

func (t *trial) at(step string) {
	t.mu.Lock()
	t.step = step
	t.mu.Unlock()
}

func (t *trial) run(lib *verbs.Lib) {
	t.at("ibv_open_device")
	d, err := lib.Open(t.answer.Name)
	if err != nil {
		t.answer.Open = failed("ibv_open_device", err)
		return
	}
	defer func() {
		t.at("ibv_close_device")
		_ = d.Close() // what cannot be closed ends with the process
	}()
	limits := d.Limits()
	if limits.MaxMRBytes > 0 {
		most := int64(min(limits.MaxMRBytes, math.MaxInt64))
		t.answer.MaxMRBytes = &most
	}
	for n := 1; n <= limits.Ports; n++ {
		t.answer.Ports = append(t.answer.Ports, t.port(d, n))
	}
	t.at("ibv_alloc_pd")
	pd, err := d.AllocPD()
	if err != nil {
		t.answer.Domain = failed("ibv_alloc_pd", err)
		return
	}
	defer func() {
		t.at("ibv_dealloc_pd")
		_ = pd.Close()
	}()
	for _, size := range []int{onePage, region} {
		err := t.register(pd, size)
		t.answer.Registrations = append(t.answer.Registrations, replies.VerbsRegistration{Bytes: int64(size), Failed: err})
		if err != nil {
			return
		}
	}
	t.answer.DMABuf = t.dmabuf(pd)
}

func (t *trial) port(d *verbs.Device, n int) replies.VerbsPort {
	p := replies.VerbsPort{Number: n, GIDs: -1}
	t.at(fmt.Sprintf("ibv_query_port of port %d", n))
	a, err := d.QueryPort(n)
	if err != nil {
		p.Failed = failed("ibv_query_port", err)
		return p
	}
	p.ActiveMTUBytes, p.MaxMTUBytes = a.ActiveMTU, a.MaxMTU
	t.at(fmt.Sprintf("ibv_query_gid of port %d", n))
	if gids, err := d.GIDs(n); err == nil {
		p.GIDs = len(gids)
	}
	return p
}

// register has the device take memory as an engine would give it, for a moment. The
// memory is no part of Go's heap, and is kept where the device does not let go of it.
func (t *trial) register(pd *verbs.PD, size int) *replies.VerbsError {
	memory, err := unix.MmapPtr(-1, 0, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return failed("mmap", err)
	}
	t.at(fmt.Sprintf("ibv_reg_mr of %d bytes", size))
	mr, err := pd.Register(uintptr(memory), uint64(size), uint64(uintptr(memory)), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	if err == nil {
		t.at("ibv_dereg_mr")
		if err := mr.Close(); err != nil {
			return failed("ibv_dereg_mr", err)
		}
	}
	_ = unix.MunmapPtr(memory, uintptr(size))
	if err != nil {
		return failed("ibv_reg_mr", err)
	}
	return nil
}

// dmabuf asks whether the driver knows dma-bufs, with a descriptor that is not open: a driver that
// knows them complains about the descriptor.
// Source: drivers/infiniband/core/uverbs_std_types_mr.c (UVERBS_METHOD_REG_DMABUF_MR).
func (t *trial) dmabuf(pd *verbs.PD) *bool {
	t.at("ibv_reg_dmabuf_mr")
	mr, err := pd.RegisterDMABuf(-1, 0, onePage, 0, verbs.LocalWrite)
	if err == nil {
		_ = mr.Close()
		return nil
	}
	for _, e := range []syscall.Errno{unix.EOPNOTSUPP, unix.ENOSYS, unix.EPROTONOSUPPORT} {
		if errors.Is(err, e) {
			return new(false)
		}
	}
	if errors.Is(err, unix.EBADF) {
		return new(true)
	}
	return nil
}

// failed is an error as a report has it. verb is the one that was called, if the
// error does not say which one failed.
func failed(verb string, err error) *replies.VerbsError {
	out := &replies.VerbsError{Verb: verb, Text: err.Error()}
	if e, ok := errors.AsType[*verbs.Error](err); ok {
		out.Verb = cmp.Or(e.Verb, verb)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		out.Errno = cmp.Or(unix.ErrnoName(errno), fmt.Sprintf("errno %d", int(errno)))
	}
	return out
}
