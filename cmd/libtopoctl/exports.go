//go:build cgo && linux

// Command libtopoctl is the C library, built with -buildmode=c-shared by "make lib": what
// topoctl.h promises, over internal/app/bind. docs/c-api.md is its page.
package main

/*
#include <string.h>
#include "entry.h"
#include "topoctl.h"
*/
import "C"

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"unsafe"

	"github.com/topoctl/topoctl/internal/app/bind"
	"github.com/topoctl/topoctl/internal/app/cli/build"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
)

func main() {}

// engines are those that are open.
var engines bind.Handles[*bind.Engine]

var version = C.CString(build.Read().Version) // for as long as the process lives

func init() { C.golib_remember_handlers() }

// The most that a text, and a list, of the caller may be.
const (
	maxText  = 1 << 20
	maxItems = 1 << 28
)

// status keeps an error's text for topoctl_error and gives its number.
func status(err error) C.int32_t {
	if err == nil {
		return 0
	}
	keep(pkgerr.Message(err))
	return C.int32_t(bind.StatusOf(err))
}

func keep(text string) {
	C.golib_keep_error((*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.int64_t(len(text)))
}

// number is int32_t or int64_t, as functions give it.
type number interface{ ~int32 | ~int64 | ~uint64 }

// caught makes a panic an error of the call: no export lets one out.
func caught[N number](out *N, value N) {
	if x := recover(); x != nil {
		keep(fmt.Sprintf("a defect of libtopoctl, please report it: %v\n%s", x, debug.Stack()))
		*out = value
	}
}

const internal = C.TOPOCTL_INTERNAL

// engineOf finds an engine.
func engineOf(n C.int64_t) (*bind.Engine, error) {
	e, ok := engines.Get(int64(n))
	if !ok {
		return nil, wrong(bind.NoHandle, "no engine %d", int64(n))
	}
	return e, nil
}

func wrong(s bind.Status, format string, args ...any) error {
	return &bind.Error{Status: s, Err: fmt.Errorf(format, args...)}
}

// text copies a C string, "" of NULL.
func text(s *C.char) (string, error) {
	if s == nil {
		return "", nil
	}
	n := C.strnlen(s, maxText+1)
	if n > maxText {
		return "", wrong(bind.Invalid, "a text of more than %d bytes", maxText)
	}
	return C.GoStringN(s, C.int(n)), nil
}

// items is a list of the caller's, to be used during the call only. NULL is none.
func items[T, F any](p *F, n C.int64_t) ([]T, error) {
	switch {
	case n < 0 || n > maxItems:
		return nil, wrong(bind.Invalid, "%d items: want 0 to %d", int64(n), maxItems)
	case p == nil && n > 0:
		return nil, wrong(bind.Invalid, "%d items at NULL", int64(n))
	case p == nil:
		return nil, nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(p)), int(n)), nil
}

// bytes is items of void.
func bytes(p unsafe.Pointer, n C.int64_t) ([]byte, error) { return items[byte]((*byte)(p), n) }

// fill copies data to the caller's buffer and gives how much there is.
func fill(data []byte, out unsafe.Pointer, room C.int64_t) C.int64_t {
	if out != nil && room > 0 {
		copy(unsafe.Slice((*byte)(out), int(min(int64(room), int64(len(data))))), data)
	}
	return C.int64_t(len(data))
}

//export golib_version
func golib_version() *C.char { return version }

//export golib_open
func golib_open(options *C.char) (out C.int64_t) {
	defer caught(&out, internal)
	o, err := text(options)
	if err != nil {
		return C.int64_t(status(err))
	}
	e, err := bind.Open(context.Background(), o)
	if err != nil {
		return C.int64_t(status(err))
	}
	if C.golib_handlers_replaced() != 0 {
		e.Warn("another handler of SIGSEGV or SIGBUS was set after libtopoctl was loaded (Python's faulthandler does so): " +
			"a fault that an engine would recover from ends the process; set it before libtopoctl is loaded")
	}
	return C.int64_t(engines.Add(e))
}

//export golib_close
func golib_close(engine C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, ok := engines.Remove(int64(engine))
	if !ok {
		return status(wrong(bind.NoHandle, "no engine %d", int64(engine)))
	}
	return status(e.Close())
}

//export golib_port
func golib_port(engine C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	return C.int32_t(e.Port())
}

//export golib_address
func golib_address(engine C.int64_t, to *C.char, room C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	return fill([]byte(e.Address()), unsafe.Pointer(to), room)
}

//export golib_name
func golib_name(engine C.int64_t, to *C.char, room C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	return fill([]byte(e.Name()), unsafe.Pointer(to), room)
}

//export golib_stats
func golib_stats(engine C.int64_t, to *C.char, room C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	data, err := e.Stats()
	if err != nil {
		return C.int64_t(status(err))
	}
	return fill(data, unsafe.Pointer(to), room)
}

//export golib_register
func golib_register(engine, n C.int64_t, address, length *C.uint64_t, location *C.char, grant C.int32_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	addresses, err := items[uint64](address, n)
	if err != nil {
		return status(err)
	}
	lengths, err := items[uint64](length, n)
	if err != nil {
		return status(err)
	}
	at, err := text(location)
	if err != nil {
		return status(err)
	}
	return status(e.Register(addresses, lengths, at, int32(grant)))
}

//export golib_unregister
func golib_unregister(engine, n C.int64_t, address *C.uint64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	addresses, err := items[uint64](address, n)
	if err != nil {
		return status(err)
	}
	return status(e.Unregister(addresses))
}

//export golib_alloc
func golib_alloc(engine C.int64_t, length C.uint64_t, location *C.char, grant C.int32_t) (out C.uint64_t) {
	defer caught(&out, 0)
	e, err := engineOf(engine)
	if err != nil {
		status(err)
		return 0
	}
	at, err := text(location)
	if err != nil {
		status(err)
		return 0
	}
	address, err := e.Alloc(uint64(length), at, int32(grant))
	status(err)
	return C.uint64_t(address)
}

//export golib_free
func golib_free(engine C.int64_t, address C.uint64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	return status(e.Free(uint64(address)))
}

//export golib_probe
func golib_probe(engine C.int64_t, peer *C.char, timeout C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, name, err := engineAndPeer(engine, peer)
	if err != nil {
		return status(err)
	}
	return status(e.Probe(name, int64(timeout)))
}

// engineAndPeer finds an engine and copies a peer's name.
func engineAndPeer(engine C.int64_t, peer *C.char) (*bind.Engine, string, error) {
	e, err := engineOf(engine)
	if err != nil {
		return nil, "", err
	}
	name, err := text(peer)
	return e, name, err
}

//export golib_metadata
func golib_metadata(engine C.int64_t, to unsafe.Pointer, room C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	data, err := e.Metadata()
	if err != nil {
		return C.int64_t(status(err))
	}
	return fill(data, to, room)
}

//export golib_add_peer
func golib_add_peer(engine C.int64_t, metadata unsafe.Pointer, length C.int64_t, to *C.char, room C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	data, err := bytes(metadata, length)
	if err != nil {
		return C.int64_t(status(err))
	}
	name, err := e.AddPeer(data)
	if err != nil {
		return C.int64_t(status(err))
	}
	return fill([]byte(name), unsafe.Pointer(to), room)
}

//export golib_remove_peer
func golib_remove_peer(engine C.int64_t, peer *C.char) (out C.int32_t) {
	defer caught(&out, internal)
	e, name, err := engineAndPeer(engine, peer)
	if err != nil {
		return status(err)
	}
	return status(e.RemovePeer(name))
}

//export golib_peer_range
func golib_peer_range(engine C.int64_t, peer *C.char, i C.int64_t, address, length *C.uint64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, name, err := engineAndPeer(engine, peer)
	if err != nil {
		return status(err)
	}
	if address == nil || length == nil {
		return status(wrong(bind.Invalid, "address or length is NULL"))
	}
	a, n, err := e.PeerRange(name, int64(i))
	if err != nil {
		return status(err)
	}
	*address, *length = C.uint64_t(a), C.uint64_t(n)
	return 0
}

//export golib_submit
func golib_submit(engine C.int64_t, peer *C.char, op C.int32_t, n C.int64_t, local, remote, length *C.uint64_t,
	notify unsafe.Pointer, notifyLength, timeout C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, name, err := engineAndPeer(engine, peer)
	if err != nil {
		return C.int64_t(status(err))
	}
	t := bind.Transfer{Peer: name, Op: int32(op), TimeoutNS: int64(timeout)}
	for _, list := range []struct {
		from *C.uint64_t
		to   *[]uint64
	}{{local, &t.Local}, {remote, &t.Remote}, {length, &t.Length}} {
		if *list.to, err = items[uint64](list.from, n); err != nil {
			return C.int64_t(status(err))
		}
	}
	if t.Notify, err = bytes(notify, notifyLength); err != nil {
		return C.int64_t(status(err))
	}
	batch, err := e.Submit(t)
	if err != nil {
		return C.int64_t(status(err))
	}
	return C.int64_t(batch)
}

//export golib_list
func golib_list(engine C.int64_t, peer *C.char, n C.int64_t, address, length *C.uint64_t, stride C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, name, err := engineAndPeer(engine, peer)
	if err != nil {
		return C.int64_t(status(err))
	}
	if n < 0 || n > maxItems || stride < 1 || stride > maxItems || n > 0 && n-1 > (math.MaxInt32-1)/stride {
		return C.int64_t(status(wrong(bind.Invalid, "list of %d entries, %d apart", int64(n), int64(stride))))
	}
	room := max(0, (n-1)*stride+1)
	addresses, err := items[uint64](address, room)
	if err != nil {
		return C.int64_t(status(err))
	}
	lengths, err := items[uint64](length, room)
	if err != nil {
		return C.int64_t(status(err))
	}
	list, err := e.List(name, int64(n), addresses, lengths, int64(stride))
	if err != nil {
		return C.int64_t(status(err))
	}
	return C.int64_t(list)
}

//export golib_list_free
func golib_list_free(engine, list C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	return status(e.FreeList(int64(list)))
}

//export golib_submit_lists
func golib_submit_lists(engine C.int64_t, op C.int32_t, local C.int64_t, localIndex *C.int64_t, remote C.int64_t, remoteIndex *C.int64_t,
	n C.int64_t, notify unsafe.Pointer, notifyLength, timeout C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	p := bind.Pick{Op: int32(op), Local: int64(local), Remote: int64(remote), N: int64(n), TimeoutNS: int64(timeout)}
	for _, list := range []struct {
		from *C.int64_t
		to   *[]int64
	}{{localIndex, &p.LocalIndex}, {remoteIndex, &p.RemoteIndex}} {
		if list.from == nil {
			continue
		}
		if *list.to, err = items[int64](list.from, n); err != nil {
			return C.int64_t(status(err))
		}
	}
	if p.Notify, err = bytes(notify, notifyLength); err != nil {
		return C.int64_t(status(err))
	}
	batch, err := e.SubmitLists(p)
	if err != nil {
		return C.int64_t(status(err))
	}
	return C.int64_t(batch)
}

//export golib_poll
func golib_poll(engine, batch C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	over, err := e.Poll(int64(batch))
	switch {
	case err != nil:
		return status(err)
	case over:
		return C.int32_t(bind.Done)
	}
	return 0
}

//export golib_wait
func golib_wait(engine, n C.int64_t, batch *C.int64_t, timeout C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	batches, err := items[int64](batch, n)
	if err != nil {
		return status(err)
	}
	return status(e.Wait(batches, int64(timeout)))
}

//export golib_release
func golib_release(engine, batch C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	return status(e.Release(int64(batch)))
}

//export golib_telemetry
func golib_telemetry(engine, batch C.int64_t, to *C.topoctl_telemetry_v1, size C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return status(err)
	}
	if to == nil || size < C.int64_t(unsafe.Sizeof(*to)) {
		return status(wrong(bind.Invalid, "telemetry into %d bytes: want %d", int64(size), unsafe.Sizeof(*to)))
	}
	t, err := e.Telemetry(int64(batch))
	if err != nil {
		return status(err)
	}
	to.start_unix_ns, to.post_ns, to.duration_ns = C.int64_t(t.StartUnixNS), C.int64_t(t.PostNS), C.int64_t(t.DurationNS)
	to.bytes, to.ops, to.retries = C.int64_t(t.Bytes), C.int64_t(t.Ops), C.int64_t(t.Retries)
	return 0
}

//export golib_explain
func golib_explain(engine, batch C.int64_t, to *C.char, room C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	data, err := e.Explain(int64(batch))
	if err != nil {
		return C.int64_t(status(err))
	}
	return fill(data, unsafe.Pointer(to), room)
}

//export golib_notify
func golib_notify(engine C.int64_t, peer *C.char, message unsafe.Pointer, length, timeout C.int64_t) (out C.int32_t) {
	defer caught(&out, internal)
	e, name, err := engineAndPeer(engine, peer)
	if err != nil {
		return status(err)
	}
	data, err := bytes(message, length)
	if err != nil {
		return status(err)
	}
	return status(e.Notify(name, data, int64(timeout)))
}

//export golib_notifications
func golib_notifications(engine C.int64_t, to unsafe.Pointer, room C.int64_t) (out C.int64_t) {
	defer caught(&out, internal)
	e, err := engineOf(engine)
	if err != nil {
		return C.int64_t(status(err))
	}
	buffer, err := bytes(to, min(room, maxItems))
	if err != nil {
		return C.int64_t(status(err))
	}
	n, err := e.Notifications(buffer)
	if err != nil {
		return C.int64_t(status(err))
	}
	return C.int64_t(n)
}
