package cuda

import (
	"errors"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// driver is the library. Addresses of contexts, streams and events are opaque.
type driver interface {
	canExport() bool
	canFlush() bool
	init() Result
	count() (int, Result)
	device(ordinal int) (int, Result)
	name(device int) (string, Result)
	pci(device int) (string, Result)
	uuid(device int) ([16]byte, Result)
	total(device int) (int64, Result)
	attribute(device, attribute int) (int, Result)
	retain(device int) (uintptr, Result)
	release(device int) Result
	alloc(ctx uintptr, bytes int64) (uint64, Result)
	free(ctx uintptr, address uint64) Result
	pin(ctx, address uintptr, bytes int64) Result
	unpin(ctx, address uintptr) Result
	stream(ctx uintptr) (uintptr, Result)
	streamEnd(ctx, stream uintptr) Result
	event(ctx uintptr) (uintptr, Result)
	eventEnd(ctx, event uintptr) Result
	eventWait(ctx, event uintptr) Result
	copy(ctx, stream, event uintptr, toHost bool, pieces []Piece) (recorded bool, _ Result)
	copyPeer(ctx, stream, event uintptr, p peerCopy) (recorded bool, _ Result)
	timer(ctx uintptr) (uintptr, Result)
	record(ctx, stream, event uintptr) Result
	elapsed(ctx, from, to uintptr) (ms float32, _ Result)
	canAccessPeer(device, peer int) (bool, Result)
	enablePeer(ctx, peer uintptr) Result
	disablePeer(ctx, peer uintptr) Result
	pointer(address uint64) (Pointer, Result)
	syncMemops(ctx uintptr, address uint64) Result
	export(ctx uintptr, address uint64, bytes int64) (int, Result)
	flush(ctx uintptr) Result
	errorName(r Result) (name, text string)
}

// Lib is the loaded library, initialised.
type Lib struct {
	d       driver
	devices []DeviceInfo
	handles []int // CUdevice
}

// start initialises the driver and lists what it shows.
func start(d driver) (*Lib, error) {
	l := &Lib{d: d}
	if r := d.init(); r != 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, l.fail("cuInit", "", "", r))
	}
	n, r := d.count()
	if r != 0 && r != NoDevice {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, l.fail("cuDeviceGetCount", "", "", r))
	}
	if n <= 0 {
		return nil, pkgerr.Errorf("cuda", "the driver shows no GPU (nvidia-smi, CUDA_VISIBLE_DEVICES): %w", ErrUnavailable)
	}
	var broken []error
	for i := range n {
		if err := l.describe(i); err != nil {
			broken = append(broken, err)
		}
	}
	if len(l.devices) == 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(broken...))
	}
	return l, nil
}

// describe asks for one GPU. A broken one is left out.
func (l *Lib) describe(ordinal int) error {
	where := fmt.Sprintf("CUDA device %d", ordinal)
	dev, r := l.d.device(ordinal)
	if r != 0 {
		return l.fail("cuDeviceGet", "", where, r)
	}
	info := DeviceInfo{Ordinal: ordinal}
	if info.PCIBusID, r = l.d.pci(dev); r != 0 {
		return l.fail("cuDeviceGetPCIBusId", "", where, r)
	}
	info.PCIBusID = strings.ToLower(info.PCIBusID)
	if info.TotalBytes, r = l.d.total(dev); r != 0 {
		return l.fail("cuDeviceTotalMem", "", where, r)
	}
	info.Name, _ = l.d.name(dev)
	if id, r := l.d.uuid(dev); r == 0 {
		info.UUID = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	// An attribute that an older driver does not know is not there.
	ask := func(attribute int) int { v, _ := l.d.attribute(dev, attribute); return v }
	info.GPUDirect = ask(attributeGPUDirect) == 1
	info.FlushWrites = ask(attributeFlushWrites)
	info.DMABuf = l.d.canExport() && ask(attributeDMABuf) == 1
	l.devices = append(l.devices, info)
	l.handles = append(l.handles, dev)
	return nil
}

// Devices are the GPUs in CUDA's order.
func (l *Lib) Devices() []DeviceInfo { return append([]DeviceInfo(nil), l.devices...) }

// Pointer asks what an address is. It is an error where the driver does not know it.
func (l *Lib) Pointer(address uint64) (Pointer, error) {
	p, r := l.d.pointer(address)
	if r != 0 {
		return Pointer{}, l.fail("cuPointerGetAttribute", fmt.Sprintf("address %#x", address), "", r)
	}
	return p, nil
}

// Find is Pointer for an address that may be of no device at all: false where the driver does
// not know it.
func (l *Lib) Find(address uint64) (Pointer, bool) {
	p, r := l.d.pointer(address)
	return p, r == 0
}

func (l *Lib) fail(call, what, where string, r Result) error {
	e := &Error{Call: call, What: what, Where: where, Code: r}
	e.Name, e.Text = l.d.errorName(r)
	return e
}

// Context is the primary context of a GPU, which other users of CUDA in this
// process share. Its methods may be used by many goroutines.
type Context struct {
	lib    *Lib
	info   DeviceInfo
	handle int
	ctx    uintptr
	where  string
}

// Retain takes hold of the primary context of a GPU, by CUDA's ordinal. Release
// gives it back.
func (l *Lib) Retain(ordinal int) (*Context, error) {
	for i, info := range l.devices {
		if info.Ordinal != ordinal {
			continue
		}
		c := &Context{lib: l, info: info, handle: l.handles[i], where: fmt.Sprintf("CUDA device %d (%s)", ordinal, info.PCIBusID)}
		var r Result
		if c.ctx, r = l.d.retain(c.handle); r != 0 {
			return nil, c.fail("cuDevicePrimaryCtxRetain", "", r)
		}
		return c, nil
	}
	return nil, pkgerr.Errorf("cuda", "there is no CUDA device %d (%d are visible)", ordinal, len(l.devices))
}

// check makes an error of a result that is one.
func (c *Context) check(call, what string, r Result) error {
	if r == 0 {
		return nil
	}
	return c.fail(call, what, r)
}

func (c *Context) fail(call, what string, r Result) error { return c.lib.fail(call, what, c.where, r) }

// Info is the GPU's.
func (c *Context) Info() DeviceInfo { return c.info }

// Release gives the context back. Nothing of it may be used afterwards.
func (c *Context) Release() error {
	return c.check("cuDevicePrimaryCtxRelease", "", c.lib.d.release(c.handle))
}

// Alloc allocates device memory. It holds whatever was there before.
func (c *Context) Alloc(bytes int64) (uint64, error) {
	p, r := c.lib.d.alloc(c.ctx, bytes)
	return p, c.check("cuMemAlloc", fmt.Sprintf("%d bytes", bytes), r)
}

// Free frees what Alloc gave.
func (c *Context) Free(address uint64) error {
	return c.check("cuMemFree", fmt.Sprintf("address %#x", address), c.lib.d.free(c.ctx, address))
}

// Pin locks host memory and makes it known to all GPUs of this process.
func (c *Context) Pin(address uintptr, bytes int64) error {
	return c.check("cuMemHostRegister", fmt.Sprintf("%d bytes", bytes), c.lib.d.pin(c.ctx, address, bytes))
}

// Unpin undoes Pin.
func (c *Context) Unpin(address uintptr) error {
	return c.check("cuMemHostUnregister", fmt.Sprintf("address %#x", address), c.lib.d.unpin(c.ctx, address))
}

// SyncMemops has synchronous copies to and from the allocation be complete when
// they return, which hardware that reads it by itself relies on.
func (c *Context) SyncMemops(address uint64) error {
	return c.check("cuPointerSetAttribute", "CU_POINTER_ATTRIBUTE_SYNC_MEMOPS", c.lib.d.syncMemops(c.ctx, address))
}

// Export gives a dma-buf of a range, whose ends must be multiples of the host's
// page size. The caller closes it.
func (c *Context) Export(address uint64, bytes int64) (fd int, err error) {
	fd, r := c.lib.d.export(c.ctx, address, bytes)
	if r != 0 {
		return -1, c.fail("cuMemGetHandleForAddressRange", fmt.Sprintf("dma-buf of %d bytes at %#x", bytes, address), r)
	}
	return fd, nil
}

// CanFlush says whether FlushWrites is there and of use.
func (c *Context) CanFlush() bool { return c.lib.d.canFlush() && c.info.FlushWrites&1 != 0 }

// FlushWrites makes what RDMA hardware has written to the GPU's memory visible to
// work on the GPU that is started from now on.
func (c *Context) FlushWrites() error {
	return c.check("cuFlushGPUDirectRDMAWrites", "", c.lib.d.flush(c.ctx))
}

// Stream is a queue of copies, which run in order.
type Stream struct {
	c *Context
	s uintptr
}

// NewStream makes a stream that does not wait for the legacy default stream.
func (c *Context) NewStream() (*Stream, error) {
	s, r := c.lib.d.stream(c.ctx)
	if r != 0 {
		return nil, c.fail("cuStreamCreate", "", r)
	}
	return &Stream{c, s}, nil
}

// Close frees the stream. What is queued still runs.
func (s *Stream) Close() error {
	return s.c.check("cuStreamDestroy", "", s.c.lib.d.streamEnd(s.c.ctx, s.s))
}

// Copy queues copies between device and pinned host memory, and the event behind
// them; with pageable host memory it may wait for them. Where it fails, recorded says
// whether the event tells when the copies that were queued are over.
func (s *Stream) Copy(toHost bool, pieces []Piece, e *Event) (recorded bool, err error) {
	call := "cuMemcpyHtoDAsync"
	if toHost {
		call = "cuMemcpyDtoHAsync"
	}
	if len(pieces) == 0 {
		return false, pkgerr.New("cuda", "a copy of no pieces")
	}
	recorded, r := s.c.lib.d.copy(s.c.ctx, s.s, e.e, toHost, pieces)
	if r == 0 {
		return recorded, nil
	}
	bytes := uint64(0)
	for _, p := range pieces {
		bytes += p.Bytes
	}
	return recorded, s.c.fail(call, fmt.Sprintf("%d bytes in %d pieces", bytes, len(pieces)), r)
}

// Event marks a place in a stream.
type Event struct {
	c *Context
	e uintptr
}

// NewEvent makes an event. Waiting for it sleeps.
func (c *Context) NewEvent() (*Event, error) {
	e, r := c.lib.d.event(c.ctx)
	if r != 0 {
		return nil, c.fail("cuEventCreate", "", r)
	}
	return &Event{c, e}, nil
}

// Wait sleeps until what was queued before the event is over. An error is that of
// any of it, or of anything else that broke the context.
func (e *Event) Wait() error {
	return e.c.check("cuEventSynchronize", "the copies before it", e.c.lib.d.eventWait(e.c.ctx, e.e))
}

// Close frees the event.
func (e *Event) Close() error {
	return e.c.check("cuEventDestroy", "", e.c.lib.d.eventEnd(e.c.ctx, e.e))
}
