//go:build cgo && linux && (amd64 || arm64)

package verbs

// #cgo noescape tv_post_send
// #cgo nocallback tv_post_send
// #cgo noescape tv_poll_cq
// #cgo nocallback tv_poll_cq
// #cgo noescape tv_req_notify_cq
// #cgo nocallback tv_req_notify_cq
// #cgo noescape tv_take_cq_event
// #cgo nocallback tv_take_cq_event
// #cgo LDFLAGS: -ldl -lpthread
// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Lib is libibverbs, or what stands for it in tests. It has no end: the library stays
// loaded while the program runs.
type Lib struct {
	c *C.struct_tv_lib
}

// Load finds libibverbs.so.1 as the dynamic loader does, and checks that it has what is
// relied upon. It does not ask for fork safety (ibv_fork_init): Go programs start others
// with vfork and exec, so that no child ever writes to our pages, and that call would
// split huge pages at every registration.
func Load() (*Lib, error) {
	c := (*C.struct_tv_lib)(C.calloc(1, C.sizeof_struct_tv_lib))
	var text [512]C.char
	if why := C.tv_load(c, &text[0], C.size_t(len(text))); why != nil {
		C.free(unsafe.Pointer(c))
		return nil, fmt.Errorf("%w: %s: install libibverbs1 and ibverbs-providers (Debian) or rdma-core",
			ErrUnavailable, C.GoString(why))
	}
	return &Lib{c: c}, nil
}

// FromTable makes a Lib of a table of functions, a C struct tv_lib of abi.h, which must
// live as long as the Lib: tests have a library of their own.
func FromTable(table unsafe.Pointer) *Lib { return &Lib{c: (*C.struct_tv_lib)(table)} }

// Devices lists the RDMA devices. The list is empty on a host that has none; ErrUnavailable says
// that the kernel has no RDMA loaded.
func (l *Lib) Devices() ([]DeviceInfo, error) {
	var out []DeviceInfo
	err := l.eachDevice(func(dev *C.struct_tv_device, name string) bool {
		out = append(out, DeviceInfo{Name: name, GUID: uint64(C.tv_guid(l.c, dev))})
		return true
	})
	return out, err
}

func (l *Lib) eachDevice(visit func(dev *C.struct_tv_device, name string) bool) error {
	var list **C.struct_tv_device
	var n C.int
	if rc := C.tv_list(l.c, &list, &n); rc != 0 {
		errno := syscall.Errno(rc)
		if errors.Is(errno, syscall.ENOSYS) {
			return fmt.Errorf("%w: the kernel has no RDMA devices for programs: load the module ib_uverbs", ErrUnavailable)
		}
		return &Error{Verb: "ibv_get_device_list", Device: "all devices", Errno: errno}
	}
	defer C.tv_free_list(l.c, list)
	for _, dev := range unsafe.Slice(list, int(n)) {
		if !visit(dev, C.GoString(C.tv_name(l.c, dev))) {
			break
		}
	}
	return nil
}

// Open opens a device by its name, asks for its limits, and checks that what came is laid
// out as expected (ErrABI).
func (l *Lib) Open(name string) (*Device, error) {
	var d *Device
	var failed error
	err := l.eachDevice(func(dev *C.struct_tv_device, is string) bool {
		if is != name {
			return true
		}
		d, failed = l.open(dev, name)
		return false
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	if d == nil {
		return nil, &Error{Verb: "ibv_open_device", Device: name, Errno: syscall.ENODEV,
			Advice: "there is no RDMA device of this name"}
	}
	return d, nil
}

func (l *Lib) open(dev *C.struct_tv_device, name string) (*Device, error) {
	d := &Device{lib: l, name: name}
	if rc := C.tv_open(l.c, dev, &d.ctx); rc != 0 {
		return nil, d.failed(rc, "ibv_open_device", "")
	}
	if wrong := C.tv_check_context(d.ctx, dev); wrong != nil {
		// Nothing that it says of itself can be trusted, so it is not closed either.
		return nil, pkgerr.Errorf("verbs", "%s: %w: %s", name, ErrABI, C.GoString(wrong))
	}
	err := d.queryLimits()
	if err == nil {
		d.events, err = newWaiter(int(d.ctx.async_fd), name+" events")
	}
	if err != nil {
		C.tv_close(l.c, d.ctx)
		return nil, err
	}
	return d, nil
}
