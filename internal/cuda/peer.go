package cuda

import (
	"fmt"
	"time"
	"unsafe"
)

// PinBytes is Pin of memory that is mapped, outside Go's heap, and gives its address for
// Piece and Unpin.
func (c *Context) PinBytes(b []byte) (address uintptr, err error) {
	address = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return address, c.Pin(address, int64(len(b)))
}

// CanAccessPeer says whether this GPU can reach the memory of another directly, over
// NVLink or PCIe.
func (c *Context) CanAccessPeer(peer *Context) (bool, error) {
	can, r := c.lib.d.canAccessPeer(c.handle, peer.handle)
	return can, c.check("cuDeviceCanAccessPeer", peer.where, r)
}

// EnablePeer lets this GPU reach the memory of another; copies between the two then go
// directly. An error that is PeerAlreadyEnabled says that it was so before.
func (c *Context) EnablePeer(peer *Context) error {
	return c.check("cuCtxEnablePeerAccess", peer.where, c.lib.d.enablePeer(c.ctx, peer.ctx))
}

// DisablePeer undoes EnablePeer.
func (c *Context) DisablePeer(peer *Context) error {
	return c.check("cuCtxDisablePeerAccess", peer.where, c.lib.d.disablePeer(c.ctx, peer.ctx))
}

// peerCopy is a copy between the memory of two GPUs, repeated.
type peerCopy struct {
	to, from       uint64
	toCtx, fromCtx uintptr
	bytes          int64
	times          int
}

// CopyPeer queues a copy between the memory of two GPUs as often as times says, and the event
// behind them. Where neither can reach the other, or may not (EnablePeer), the driver copies through
// memory of the host. recorded is as for Copy.
func (s *Stream) CopyPeer(to *Context, toAddress uint64, from *Context, fromAddress uint64, bytes int64, times int, e *Event) (recorded bool, err error) {
	recorded, r := s.c.lib.d.copyPeer(s.c.ctx, s.s, e.e, peerCopy{to: toAddress, from: fromAddress, toCtx: to.ctx, fromCtx: from.ctx, bytes: bytes, times: times})
	return recorded, s.c.check("cuMemcpyPeerAsync", fmt.Sprintf("%d times %d bytes from %s to %s", times, bytes, from.where, to.where), r)
}

// NewTimer makes an event that takes the time at which it is reached. Waiting for it sleeps.
func (c *Context) NewTimer() (*Event, error) {
	e, r := c.lib.d.timer(c.ctx)
	if r != 0 {
		return nil, c.fail("cuEventCreate", "", r)
	}
	return &Event{c, e}, nil
}

// Record queues an event.
func (s *Stream) Record(e *Event) error {
	return s.c.check("cuEventRecord", "", s.c.lib.d.record(s.c.ctx, s.s, e.e))
}

// Since is the time between two events of NewTimer that are over, to about half a microsecond.
func (e *Event) Since(start *Event) (time.Duration, error) {
	ms, r := e.c.lib.d.elapsed(e.c.ctx, start.e, e.e)
	return time.Duration(float64(ms) * float64(time.Millisecond)), e.c.check("cuEventElapsedTime", "", r)
}
