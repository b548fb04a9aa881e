//go:build cgo && linux && (amd64 || arm64)

package verbsfake

// #include <stdlib.h>
// #include "fake.h"
import "C"

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"github.com/topoctl/topoctl/internal/verbs"
)

// Unnamed is the verb, for Fail, of an ibv_post_send that queues everything and then
// fails without saying which request is bad.
const Unnamed = "ibv_post_send without bad_wr"

// Lie is something that is not laid out as the ABI says.
type Lie int

// The lies.
const (
	LieDevice  Lie = C.LIE_DEVICE
	LieOps     Lie = C.LIE_OPS
	LieCmdFD   Lie = C.LIE_CMD_FD
	LieAsyncFD Lie = C.LIE_ASYNC_FD
	LieVectors Lie = C.LIE_VECTORS
	LiePD      Lie = C.LIE_PD
	LieMR      Lie = C.LIE_MR
	LieChannel Lie = C.LIE_CHANNEL
	LieCQ      Lie = C.LIE_CQ
	LieQP      Lie = C.LIE_QP
)

// Objects are those that live.
type Objects struct{ Contexts, PDs, MRs, Channels, CQs, QueuePairs int }

// Objects of a device, "" all of them.
func (f *Fabric) Objects(dev string) Objects {
	var o Objects
	for name, i := range f.names {
		if dev != "" && name != dev {
			continue
		}
		c := C.fake_live(f.c, C.int(i))
		o.Contexts += int(c.contexts)
		o.PDs += int(c.pds)
		o.MRs += int(c.mrs)
		o.Channels += int(c.channels)
		o.CQs += int(c.cqs)
		o.QueuePairs += int(c.qps)
	}
	return o
}

// Fail makes the nth call of a verb from now (1: the next; below 0: all; 0: none) fail. The verb is named as in
// libibverbs: "ibv_reg_mr" (in all its forms), "ibv_post_send". An errno below zero is
// given back as it is, which some providers do. "ibv_get_device_list" is of all devices.
func (f *Fabric) Fail(dev, verb string, nth int, errno syscall.Errno) {
	name := C.CString(verb)
	defer C.free(unsafe.Pointer(name))
	i := C.int(0)
	if verb != "ibv_get_device_list" {
		i = f.dev(dev)
	}
	if C.fake_fail(f.c, i, name, C.int(nth), C.int(errno)) == 0 {
		panic("verbsfake: no verb " + verb)
	}
}

func (f *Fabric) knob(dev string, knob C.int, on bool) {
	v := C.int(0)
	if on {
		v = 1
	}
	C.fake_knob(f.c, f.dev(dev), knob, v)
}

// Hold keeps what a device sends from now in the network, until Release.
func (f *Fabric) Hold(dev string, on bool) { f.knob(dev, C.K_HOLD, on) }

// Held is how many of a device's work requests are held in the network.
func (f *Fabric) Held(dev string) int { return int(C.fake_held(f.c, f.dev(dev))) }

// Release lets what is held arrive, in order. Hold stays on or off.
func (f *Fabric) Release(dev string) { C.fake_release(f.c, f.dev(dev)) }

// DropHeld loses what is held.
func (f *Fabric) DropHeld(dev string) { C.fake_drop_held(f.c, f.dev(dev)) }

// Drop loses the next n work requests of a device: their senders retry in vain.
func (f *Fabric) Drop(dev string, n int) { C.fake_knob(f.c, f.dev(dev), C.K_DROP, C.int(n)) }

// Stall keeps a device from sending. Queue pairs that go to ERR are flushed.
func (f *Fabric) Stall(dev string, on bool) { f.knob(dev, C.K_STALL, on) }

// Silence keeps a device from sending, answering and completing anything, flushes too, as
// rxe of Linux 6.1 does when its link goes down. When it ends, what is due comes late.
func (f *Fabric) Silence(dev string, on bool) { f.knob(dev, C.K_SILENT, on) }

// Fatal kills a device: DEVICE_FATAL, flushes, and EIO for ever.
func (f *Fabric) Fatal(dev string) { f.knob(dev, C.K_FATAL, true) }

// Remove takes a device away as ib_uverbs does where the driver lets it: first every verb
// that needs the kernel fails with EIO, those that end something too, while its queue pairs
// still work; then, done, these have all ended and DEVICE_FATAL says so. Nothing brings it
// back.
func (f *Fabric) Remove(dev string, done bool) {
	v := C.int(1)
	if done {
		v = 2
	}
	C.fake_knob(f.c, f.dev(dev), C.K_REMOVED, v)
}

// Lie makes what a device gives from now be laid out wrong.
func (f *Fabric) Lie(dev string, l Lie) { C.fake_knob(f.c, f.dev(dev), C.K_LIE, C.int(l)) }

// Inject ends the nth work request that a device sends from now with a status. Nothing of
// it lands, whatever the status. After a good one the queue pair goes to ERR, as rxe's does
// when the answer to a READ makes no sense.
func (f *Fabric) Inject(dev string, nth int, s verbs.WCStatus, vendor uint32) {
	C.fake_inject(f.c, f.dev(dev), C.int(nth), C.int(s), C.int(vendor))
}

// DestroyDelay is how long ibv_destroy_qp blocks before it does anything.
func (f *Fabric) DestroyDelay(dev string, d time.Duration) {
	C.fake_destroy_delay(f.c, f.dev(dev), C.int64_t(d))
}

// Memlock limits how many bytes can be registered at a time, 0: any number.
func (f *Fabric) Memlock(dev string, bytes uint64) {
	C.fake_memlock(f.c, f.dev(dev), C.uint64_t(bytes))
}

// Cut cuts the way between two devices, without events, or mends it.
func (f *Fabric) Cut(a, b string, cut bool) {
	v := C.int(0)
	if cut {
		v = 1
	}
	C.fake_cut(f.c, f.dev(a), f.dev(b), v)
}

// SetPort changes a port's state, with the event of that: PORT_ACTIVE or PORT_ERR.
func (f *Fabric) SetPort(dev string, port int, s verbs.PortState) {
	C.fake_set_state(f.c, f.dev(dev), C.int(port), C.int(s))
	if s == verbs.PortActive {
		f.Event(dev, verbs.EventPortActive, port)
	} else {
		f.Event(dev, verbs.EventPortErr, port)
	}
}

// SetGIDs replaces a port's addresses, with GID_CHANGE. The table does not get shorter.
func (f *Fabric) SetGIDs(dev string, port int, gids []verbs.GID) {
	f.setGIDs(dev, port, gids)
	f.Event(dev, verbs.EventGIDChange, port)
}

// SetLID changes a port's LID, with LID_CHANGE.
func (f *Fabric) SetLID(dev string, port int, lid, smLID uint16) {
	C.fake_set_lid(f.c, f.dev(dev), C.int(port), C.uint16_t(lid), C.uint16_t(smLID))
	f.Event(dev, verbs.EventLIDChange, port)
}

// Event sends an asynchronous event of a port or of the device; it changes nothing else.
// The error of a completion queue comes when one overflows.
func (f *Fabric) Event(dev string, t verbs.EventType, port int) {
	if t == verbs.EventCQErr {
		panic("verbsfake: the error of a completion queue names the queue")
	}
	C.fake_event(f.c, f.dev(dev), C.int(t), C.int(port))
}

// QPEvent sends an asynchronous event of a queue pair.
func (f *Fabric) QPEvent(dev string, num uint32, t verbs.EventType) {
	if C.fake_qp_event(f.c, f.dev(dev), C.uint32_t(num), C.int(t)) == 0 {
		panic(fmt.Sprintf("verbsfake: %s has no QP %d", dev, num))
	}
}
