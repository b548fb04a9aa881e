//go:build vmlab && linux && cgo

package baseline

/*
#cgo CFLAGS: -O2 -Wall -I${SRCDIR}/../../../../../../internal/verbs
#cgo LDFLAGS: -ldl
#include "baseline.h"

static const char *bl_open_short(const char *device, size_t length, int gid_index, size_t size, int depth, struct bl_end *mine)
{
	char name[64] = {0};

	for (size_t i = 0; i < length && i < sizeof(name) - 1; i++)
		name[i] = device[i];
	return bl_open(name, gid_index, size, depth, mine);
}
*/
import "C"

import (
	"errors"
	"time"
)

// End is what one end tells the other.
type End struct {
	Addr           uint64
	QPN, PSN, RKey uint32
	GID            [16]byte
}

func wrong(text *C.char) error {
	if text == nil {
		return nil
	}
	return errors.New("baseline: " + C.GoString(text))
}

// Open makes this process's end.
func Open(device string, gidIndex, size, depth int) (End, error) {
	var e C.struct_bl_end
	var name [64]C.char
	for i := range min(len(device), len(name)) {
		name[i] = C.char(device[i])
	}
	text := C.bl_open_short(&name[0], C.size_t(len(device)), C.int(gidIndex), C.size_t(size), C.int(depth), &e)
	out := End{Addr: uint64(e.addr), QPN: uint32(e.qpn), PSN: uint32(e.psn), RKey: uint32(e.rkey)}
	for i := range out.GID {
		out.GID[i] = byte(e.gid[i])
	}
	return out, wrong(text)
}

// Connect joins it with the other one. mtu is as verbs count them (5 is 4096); timeout
// is an exponent.
func Connect(to End, mtu, timeout int) error {
	e := C.struct_bl_end{addr: C.uint64_t(to.Addr), qpn: C.uint32_t(to.QPN), psn: C.uint32_t(to.PSN), rkey: C.uint32_t(to.RKey)}
	for i := range to.GID {
		e.gid[i] = C.uint8_t(to.GID[i])
	}
	return wrong(C.bl_connect(&e, C.int(mtu), C.int(timeout)))
}

// Run moves count messages, depth at a time, and says how long that took.
func Run(read bool, bytes, depth, count int) (time.Duration, error) {
	total, _, err := run(read, bytes, depth, count, false)
	return total, err
}

// Times moves count messages, one at a time, and says how long each took.
func Times(read bool, bytes, count int) ([]time.Duration, error) {
	_, each, err := run(read, bytes, 1, count, true)
	return each, err
}

func run(read bool, bytes, depth, count int, times bool) (time.Duration, []time.Duration, error) {
	ns := make([]C.uint32_t, count)
	var at *C.uint32_t
	if times {
		at = &ns[0]
	}
	op := C.int(0)
	if read {
		op = 1
	}
	var total C.uint64_t
	text := C.bl_run(op, C.uint32_t(bytes), C.int(depth), C.int(count), &total, at)
	each := make([]time.Duration, 0, count)
	for _, n := range ns {
		each = append(each, time.Duration(n))
	}
	return time.Duration(total), each, wrong(text)
}

// Close ends it.
func Close() error { return wrong(C.bl_close()) }
