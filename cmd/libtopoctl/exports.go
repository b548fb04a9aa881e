//go:build cgo && linux

// Command libtopoctl is the C library, built with -buildmode=c-shared by "make lib": what
// topoctl.h promises, over internal/bind. docs/c-api.md is its page.
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
	"runtime/debug"
	"unsafe"

	"github.com/topoctl/topoctl/internal/bind"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

func main() {}

func init() { C.golib_restore_limit() }

// engines are those that are open.
var engines bind.Handles[*bind.Engine]

// version is C's, for as long as the process lives.
var version = func() *C.char {
	v := build.Read().Version
	return C.strndup((*C.char)(unsafe.Pointer(unsafe.StringData(v))), C.size_t(len(v)))
}()

// The most that a text, and a list, of the caller may be.
const (
	maxText  = 1 << 20
	maxItems = 1 << 28
)

// status keeps an error's text for topoctl_error and gives its number.
func status(err error) int64 {
	if err == nil {
		return 0
	}
	keep(pkgerr.Message(err))
	return int64(bind.StatusOf(err))
}

func keep(text string) {
	C.golib_keep_error((*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.int64_t(len(text)))
}

// guarded makes an error, and a panic, what the call gives: no export lets one out.
func guarded(f func() (int64, error)) (out int64) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case *badArgument:
			out = status(x.err)
		default:
			keep(fmt.Sprintf("a defect of libtopoctl, please report it: %v\n%s", x, debug.Stack()))
			out = int64(bind.Internal)
		}
	}()
	n, err := f()
	if err != nil {
		return status(err)
	}
	return n
}

// give is for calls about an engine that give a number.
func give(engine C.int64_t, f func(*bind.Engine) (int64, error)) C.int64_t {
	return C.int64_t(guarded(func() (int64, error) {
		e, ok := engines.Get(int64(engine))
		if !ok {
			return 0, wrong(bind.NoHandle, "no engine %d: it was not opened, or is closed", int64(engine))
		}
		return f(e)
	}))
}

// call is for those that give a status.
func call(engine C.int64_t, f func(*bind.Engine) error) C.int32_t {
	return C.int32_t(give(engine, func(e *bind.Engine) (int64, error) { return 0, f(e) }))
}

// fill is for those that copy data to the caller's buffer, as much as it has room for, and give how much
// there is.
func fill(engine C.int64_t, out unsafe.Pointer, room C.int64_t, f func(*bind.Engine) ([]byte, error)) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		data, err := f(e)
		if err == nil && out != nil && room > 0 {
			copy(unsafe.Slice((*byte)(out), int(min(int64(room), int64(len(data))))), data)
		}
		return int64(len(data)), err
	})
}

// fillText is fill for texts: a zero ends what is copied, and is not counted.
func fillText(engine C.int64_t, out *C.char, room C.int64_t, f func(*bind.Engine) ([]byte, error)) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		data, err := f(e)
		if out != nil && room > 0 {
			to := unsafe.Slice((*byte)(unsafe.Pointer(out)), int(min(int64(room), int64(len(data))+1)))
			to[copy(to[:len(to)-1], data)] = 0
		}
		return int64(len(data)), err
	})
}

func wrong(s bind.Status, format string, args ...any) error {
	return &bind.Error{Status: s, Err: fmt.Errorf(format, args...)}
}

// badArgument is what the functions below panic with, which guarded makes the status of the call.
type badArgument struct{ err error }

func refuse(format string, args ...any) {
	panic(&badArgument{wrong(bind.Invalid, format, args...)})
}

// text copies a C string, "" of NULL.
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	n := C.strnlen(s, maxText+1)
	if n > maxText {
		refuse("a text of more than %d bytes", maxText)
	}
	return C.GoStringN(s, C.int(n))
}

// bytes is memory of the caller's, to be used during the call only; nil of NULL.
func bytes(p unsafe.Pointer, n C.int64_t) []byte { return items[byte]((*byte)(p), n) }

// items is a list of the caller's, to be used during the call only; nil of NULL, whose n must be 0.
func items[T, F any](p *F, n C.int64_t) []T {
	switch {
	case n < 0 || n > maxItems:
		refuse("%d items: want 0 to %d", int64(n), maxItems)
	case p != nil:
		return unsafe.Slice((*T)(unsafe.Pointer(p)), int(n))
	case n > 0:
		refuse("%d items at NULL", int64(n))
	}
	return nil
}

//export golib_version
func golib_version() *C.char { return version }

//export golib_open
func golib_open(options *C.char) C.int64_t {
	return C.int64_t(guarded(func() (int64, error) {
		e, err := bind.Open(context.Background(), text(options))
		if err != nil {
			return 0, err
		}
		if C.golib_handles_faults() == 0 {
			e.Warn("another handler of SIGSEGV or SIGBUS was set after libtopoctl was loaded (Python's faulthandler does so): " +
				"a fault that an engine would recover from ends the process; set it before libtopoctl is loaded")
		}
		return engines.Add(e), nil
	}))
}

//export golib_close
func golib_close(engine C.int64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error {
		if _, ok := engines.Remove(int64(engine)); !ok {
			return wrong(bind.NoHandle, "engine %d is being closed", int64(engine))
		}
		return e.Close()
	})
}

//export golib_port
func golib_port(engine C.int64_t) C.int32_t {
	return C.int32_t(give(engine, func(e *bind.Engine) (int64, error) { return int64(e.Port()), nil }))
}

//export golib_address
func golib_address(engine C.int64_t, out *C.char, room C.int64_t) C.int64_t {
	return fillText(engine, out, room, func(e *bind.Engine) ([]byte, error) { return []byte(e.Address()), nil })
}

//export golib_name
func golib_name(engine C.int64_t, out *C.char, room C.int64_t) C.int64_t {
	return fillText(engine, out, room, func(e *bind.Engine) ([]byte, error) { return []byte(e.Name()), nil })
}

//export golib_stats
func golib_stats(engine C.int64_t, out *C.char, room C.int64_t) C.int64_t {
	return fillText(engine, out, room, (*bind.Engine).Document)
}

//export golib_register
func golib_register(engine, n C.int64_t, address, length *C.uint64_t, location *C.char, grant C.int32_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error {
		return e.Register(items[uint64](address, n), items[uint64](length, n), text(location), int32(grant))
	})
}

//export golib_unregister
func golib_unregister(engine, n C.int64_t, address *C.uint64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.Unregister(items[uint64](address, n)) })
}

//export golib_alloc
func golib_alloc(engine C.int64_t, length C.uint64_t, location *C.char, grant C.int32_t, address *C.uint64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error {
		if address == nil {
			refuse("address is NULL")
		}
		x, err := e.Alloc(uint64(length), text(location), int32(grant))
		*address = C.uint64_t(x)
		return err
	})
}

//export golib_free
func golib_free(engine C.int64_t, address C.uint64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.Free(uint64(address)) })
}

//export golib_region
func golib_region(engine C.int64_t, name *C.char, address, length *C.uint64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error {
		if address == nil || length == nil {
			refuse("address or length is NULL")
		}
		at, n, err := e.Region(text(name))
		*address, *length = C.uint64_t(at), C.uint64_t(n)
		return err
	})
}

//export golib_metadata
func golib_metadata(engine C.int64_t, out unsafe.Pointer, room C.int64_t) C.int64_t {
	return fill(engine, out, room, (*bind.Engine).Metadata)
}

//export golib_add_peer
func golib_add_peer(engine C.int64_t, metadata unsafe.Pointer, length C.int64_t, out *C.char, room C.int64_t) C.int64_t {
	return fillText(engine, out, room, func(e *bind.Engine) ([]byte, error) {
		name, err := e.AddPeer(bytes(metadata, length))
		return []byte(name), err
	})
}

//export golib_remove_peer
func golib_remove_peer(engine C.int64_t, peer *C.char) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.RemovePeer(text(peer)) })
}

//export golib_peer_ranges
func golib_peer_ranges(engine C.int64_t, peer *C.char, timeout C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) { return e.PeerRanges(text(peer), int64(timeout)) })
}

//export golib_find
func golib_find(engine C.int64_t, peer, region *C.char, timeout C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) { return e.Find(text(peer), text(region), int64(timeout)) })
}

//export golib_call
func golib_call(engine C.int64_t, peer *C.char, request unsafe.Pointer, length, timeout C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		return e.Call(text(peer), bytes(request, length), int64(timeout))
	})
}

//export golib_result
func golib_result(engine, batch C.int64_t, out unsafe.Pointer, room C.int64_t) C.int64_t {
	return fill(engine, out, room, func(e *bind.Engine) ([]byte, error) { return e.Result(int64(batch)) })
}

//export golib_submit
func golib_submit(engine C.int64_t, peer *C.char, op C.int32_t, n C.int64_t, local, remote, length *C.uint64_t,
	notify unsafe.Pointer, notifyLength, timeout C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		return e.Submit(transferOf(peer, op, n, local, remote, length, notify, notifyLength, timeout))
	})
}

//export golib_transfer
func golib_transfer(engine C.int64_t, peer *C.char, op C.int32_t, n C.int64_t, local, remote, length *C.uint64_t,
	notify unsafe.Pointer, notifyLength, timeout, wait C.int64_t, batch *C.int64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error {
		if batch == nil {
			refuse("batch is NULL")
		}
		*batch = 0
		running, err := e.Transfer(transferOf(peer, op, n, local, remote, length, notify, notifyLength, timeout), int64(wait))
		*batch = C.int64_t(running)
		return err
	})
}

func transferOf(peer *C.char, op C.int32_t, n C.int64_t, local, remote, length *C.uint64_t,
	notify unsafe.Pointer, notifyLength, timeout C.int64_t) bind.Transfer {
	return bind.Transfer{
		Peer: text(peer), Op: int32(op), Notify: bytes(notify, notifyLength), TimeoutNS: int64(timeout),
		Local: items[uint64](local, n), Remote: items[uint64](remote, n), Length: items[uint64](length, n),
	}
}

//export golib_list
func golib_list(engine C.int64_t, peer *C.char, n C.int64_t, address, length *C.uint64_t, stride C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		if n < 0 || n > maxItems || stride < 1 || stride > maxItems || n > 0 && n-1 > (maxItems-1)/stride {
			refuse("list of %d entries, %d apart", int64(n), int64(stride))
		}
		room := C.int64_t(0)
		if n > 0 {
			room = (n-1)*stride + 1
		}
		return e.List(text(peer), int64(n), items[uint64](address, room), items[uint64](length, room), int64(stride))
	})
}

//export golib_list_free
func golib_list_free(engine, list C.int64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.FreeList(int64(list)) })
}

//export golib_submit_lists
func golib_submit_lists(engine C.int64_t, op C.int32_t, local C.int64_t, localIndex *C.int64_t, remote C.int64_t, remoteIndex *C.int64_t,
	n C.int64_t, notify unsafe.Pointer, notifyLength, timeout C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		p := bind.Pick{
			Op: int32(op), Local: int64(local), Remote: int64(remote), N: int64(n), TimeoutNS: int64(timeout), Notify: bytes(notify, notifyLength),
		}
		if localIndex != nil {
			p.LocalIndex = items[int64](localIndex, n)
		}
		if remoteIndex != nil {
			p.RemoteIndex = items[int64](remoteIndex, n)
		}
		return e.SubmitLists(p)
	})
}

//export golib_poll
func golib_poll(engine, batch C.int64_t) C.int32_t {
	return C.int32_t(give(engine, func(e *bind.Engine) (int64, error) {
		over, err := e.Poll(int64(batch))
		if over {
			return int64(bind.Done), err
		}
		return 0, err
	}))
}

//export golib_wait
func golib_wait(engine, n C.int64_t, batch *C.int64_t, timeout C.int64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.Wait(items[int64](batch, n), int64(timeout)) })
}

//export golib_wait_any
func golib_wait_any(engine, n C.int64_t, batch *C.int64_t, timeout C.int64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.WaitAny(items[int64](batch, n), int64(timeout)) })
}

//export golib_event_fd
func golib_event_fd(engine C.int64_t) C.int32_t {
	return C.int32_t(give(engine, func(e *bind.Engine) (int64, error) {
		fd, err := e.EventFD()
		return int64(fd), err
	}))
}

//export golib_event_close
func golib_event_close(engine C.int64_t, fd C.int32_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.CloseEventFD(int32(fd)) })
}

//export golib_release
func golib_release(engine, batch C.int64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error { return e.Release(int64(batch)) })
}

//export golib_telemetry
func golib_telemetry(engine, batch C.int64_t, out *C.topoctl_telemetry_v1, size C.int64_t) C.int32_t {
	return call(engine, func(e *bind.Engine) error {
		if out == nil || size < C.int64_t(unsafe.Sizeof(*out)) {
			refuse("telemetry into %d bytes: want %d", int64(size), unsafe.Sizeof(*out))
		}
		t, err := e.Telemetry(int64(batch))
		if err != nil {
			return err
		}
		out.start_unix_ns, out.post_ns, out.duration_ns = C.int64_t(t.StartUnixNS), C.int64_t(t.PostNS), C.int64_t(t.DurationNS)
		out.bytes, out.ops, out.retries = C.int64_t(t.Bytes), C.int64_t(t.Ops), C.int64_t(t.Retries)
		return nil
	})
}

//export golib_explain
func golib_explain(engine, batch C.int64_t, out *C.char, room C.int64_t) C.int64_t {
	return fillText(engine, out, room, func(e *bind.Engine) ([]byte, error) { return e.Explain(int64(batch)) })
}

//export golib_notifications
func golib_notifications(engine C.int64_t, out unsafe.Pointer, room C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		n, err := e.Notifications(bytes(out, min(room, maxItems)))
		return int64(n), err
	})
}

//export golib_calls
func golib_calls(engine C.int64_t, out unsafe.Pointer, room C.int64_t) C.int64_t {
	return give(engine, func(e *bind.Engine) (int64, error) {
		n, err := e.Calls(bytes(out, min(room, maxItems)))
		return int64(n), err
	})
}

//export golib_answer
func golib_answer(engine, number C.int64_t, answer unsafe.Pointer, length C.int64_t, refused *C.char) C.int32_t {
	return call(engine, func(e *bind.Engine) error {
		return e.Answer(int64(number), bytes(answer, length), text(refused))
	})
}
