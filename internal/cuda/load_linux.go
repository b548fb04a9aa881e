//go:build cgo && linux

package cuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "api.h"
*/
import "C"

import (
	"cmp"
	"strings"
	"unsafe"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Soname is the library that comes with the driver.
const Soname = "libcuda.so.1"

// Loaded says whether this process has the library in it.
func Loaded() bool { return C.tc_loaded() != 0 }

// Load loads the library ("": Soname), initialises the driver and lists the GPUs
// that it shows to this process.
func Load(path string) (*Lib, error) {
	path = cmp.Or(path, Soname)
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	o := C.tc_open(name)
	if o.error != nil {
		why := C.GoString(o.error)
		C.free(unsafe.Pointer(o.error))
		if strings.Contains(why, "No such file") {
			why = path + " is not installed (it comes with NVIDIA's driver)"
		}
		return nil, pkgerr.Errorf("cuda", "%s: %w", why, ErrUnavailable)
	}
	return bound(o, path)
}

// Bind takes the functions from find, a C function of type tc_find, which is called
// with from: a stand-in for the library.
func Bind(find, from unsafe.Pointer) (*Lib, error) {
	return bound(C.tc_bind(C.tc_find(find), from), "the given functions")
}

func bound(o C.tc_opened, path string) (*Lib, error) {
	if o.missing != nil {
		return nil, pkgerr.Errorf("cuda", "%s has no %s: not a driver that this program supports: %w", path, C.GoString(o.missing), ErrUnavailable)
	}
	if o.lib == nil {
		return nil, pkgerr.Errorf("cuda", "%s: no memory: %w", path, ErrUnavailable)
	}
	return start(calls{o.lib})
}

// calls is the driver through C.
type calls struct{ l *C.tc_lib }

func (c calls) canExport() bool { return C.tc_can_export(c.l) != 0 }
func (c calls) canFlush() bool  { return C.tc_can_flush(c.l) != 0 }
func (c calls) init() Result    { return Result(C.tc_init(c.l)) }

func (c calls) count() (int, Result) {
	var n C.int
	r := C.tc_count(c.l, &n)
	return int(n), Result(r)
}

func (c calls) device(ordinal int) (int, Result) {
	var d C.int
	r := C.tc_device(c.l, C.int(ordinal), &d)
	return int(d), Result(r)
}

func (c calls) name(device int) (string, Result) {
	var text [256]C.char
	r := C.tc_name(c.l, C.int(device), &text[0], C.int(len(text)-1))
	return C.GoString(&text[0]), Result(r)
}

func (c calls) pci(device int) (string, Result) {
	var text [64]C.char
	r := C.tc_pci(c.l, C.int(device), &text[0], C.int(len(text)-1))
	return C.GoString(&text[0]), Result(r)
}

func (c calls) uuid(device int) (id [16]byte, r Result) {
	r = Result(C.tc_uuid(c.l, C.int(device), (*C.uchar)(&id[0])))
	return id, r
}

func (c calls) total(device int) (int64, Result) {
	var n C.size_t
	r := C.tc_total(c.l, C.int(device), &n)
	return int64(n), Result(r)
}

func (c calls) attribute(device, attribute int) (int, Result) {
	var v C.int
	r := C.tc_attribute(c.l, C.int(device), C.int(attribute), &v)
	return int(v), Result(r)
}

func (c calls) retain(device int) (uintptr, Result) {
	var ctx C.uintptr_t
	r := C.tc_retain(c.l, C.int(device), &ctx)
	return uintptr(ctx), Result(r)
}

func (c calls) release(device int) Result { return Result(C.tc_release(c.l, C.int(device))) }

func (c calls) alloc(ctx uintptr, bytes int64) (uint64, Result) {
	var p C.uint64_t
	r := C.tc_alloc(c.l, C.uintptr_t(ctx), C.size_t(bytes), &p)
	return uint64(p), Result(r)
}

func (c calls) free(ctx uintptr, address uint64) Result {
	return Result(C.tc_free(c.l, C.uintptr_t(ctx), C.uint64_t(address)))
}

func (c calls) pin(ctx, address uintptr, bytes int64) Result {
	return Result(C.tc_pin(c.l, C.uintptr_t(ctx), C.uintptr_t(address), C.size_t(bytes)))
}

func (c calls) unpin(ctx, address uintptr) Result {
	return Result(C.tc_unpin(c.l, C.uintptr_t(ctx), C.uintptr_t(address)))
}

func (c calls) stream(ctx uintptr) (uintptr, Result) {
	var s C.uintptr_t
	r := C.tc_stream(c.l, C.uintptr_t(ctx), &s)
	return uintptr(s), Result(r)
}

func (c calls) streamEnd(ctx, stream uintptr) Result {
	return Result(C.tc_stream_end(c.l, C.uintptr_t(ctx), C.uintptr_t(stream)))
}

func (c calls) event(ctx uintptr) (uintptr, Result) {
	var e C.uintptr_t
	r := C.tc_event(c.l, C.uintptr_t(ctx), &e)
	return uintptr(e), Result(r)
}

func (c calls) eventEnd(ctx, event uintptr) Result {
	return Result(C.tc_event_end(c.l, C.uintptr_t(ctx), C.uintptr_t(event)))
}

func (c calls) eventWait(ctx, event uintptr) Result {
	return Result(C.tc_event_wait(c.l, C.uintptr_t(ctx), C.uintptr_t(event)))
}

func (c calls) copy(ctx, stream, event uintptr, toHost bool, pieces []Piece) (bool, Result) {
	var recorded, to C.int
	if toHost {
		to = 1
	}
	r := C.tc_copy(c.l, C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(event), to,
		(*C.tc_piece)(unsafe.Pointer(&pieces[0])), C.int(len(pieces)), &recorded)
	return recorded != 0, Result(r)
}

func (c calls) copyPeer(ctx, stream, event uintptr, p peerCopy) (bool, Result) {
	var recorded C.int
	r := C.tc_copy_peer(c.l, C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(event), C.uint64_t(p.to), C.uintptr_t(p.toCtx),
		C.uint64_t(p.from), C.uintptr_t(p.fromCtx), C.size_t(p.bytes), C.int(p.times), &recorded)
	return recorded != 0, Result(r)
}

func (c calls) timer(ctx uintptr) (uintptr, Result) {
	var e C.uintptr_t
	r := C.tc_timer(c.l, C.uintptr_t(ctx), &e)
	return uintptr(e), Result(r)
}

func (c calls) record(ctx, stream, event uintptr) Result {
	return Result(C.tc_record(c.l, C.uintptr_t(ctx), C.uintptr_t(stream), C.uintptr_t(event)))
}

func (c calls) elapsed(ctx, from, to uintptr) (float32, Result) {
	var ms C.float
	r := C.tc_elapsed(c.l, C.uintptr_t(ctx), C.uintptr_t(from), C.uintptr_t(to), &ms)
	return float32(ms), Result(r)
}

func (c calls) canAccessPeer(device, peer int) (bool, Result) {
	var can C.int
	r := C.tc_can_access_peer(c.l, C.int(device), C.int(peer), &can)
	return can != 0, Result(r)
}

func (c calls) enablePeer(ctx, peer uintptr) Result {
	return Result(C.tc_enable_peer(c.l, C.uintptr_t(ctx), C.uintptr_t(peer)))
}

func (c calls) disablePeer(ctx, peer uintptr) Result {
	return Result(C.tc_disable_peer(c.l, C.uintptr_t(ctx), C.uintptr_t(peer)))
}

func (c calls) pointer(address uint64) (Pointer, Result) {
	var p C.tc_pointer
	r := C.tc_pointer_of(c.l, C.uint64_t(address), &p)
	return Pointer{
		Type: int(p._type), Ordinal: int(p.ordinal), Managed: p.managed != 0,
		Start: uint64(p.start), Bytes: int64(p.bytes),
	}, Result(r)
}

func (c calls) syncMemops(ctx uintptr, address uint64) Result {
	return Result(C.tc_sync_memops(c.l, C.uintptr_t(ctx), C.uint64_t(address)))
}

func (c calls) export(ctx uintptr, address uint64, bytes int64) (int, Result) {
	fd := C.int(-1)
	r := C.tc_export(c.l, C.uintptr_t(ctx), C.uint64_t(address), C.size_t(bytes), &fd)
	return int(fd), Result(r)
}

func (c calls) flush(ctx uintptr) Result { return Result(C.tc_flush(c.l, C.uintptr_t(ctx))) }

func (c calls) errorName(r Result) (name, text string) {
	if s := C.tc_error_name(c.l, C.int(r)); s != nil {
		name = C.GoString(s)
	}
	if s := C.tc_error_text(c.l, C.int(r)); s != nil {
		text = C.GoString(s)
	}
	return name, text
}
