//go:build cgo && linux && (amd64 || arm64)

package verbs

// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Device is an open RDMA device. Its methods may be called from several goroutines, as
// those of everything that is made with it.
type Device struct {
	lib    *Lib
	name   string
	limits DeviceLimits
	ports  int
	vector atomic.Uint32 // where the next completion channel's interrupt goes
	events *waiter
	gone   atomic.Bool // it was removed, and the kernel has ended all that was made with it

	mu  sync.RWMutex // held for writing to end ctx and spare
	ctx *C.struct_tv_context
	// spare is a protection domain that nothing uses, nil without: a device that has failed
	// gives it back, and one that was removed does not.
	spare *C.struct_tv_pd
	uses  atomic.Int32 // domains and queues that are open
}

// failed is the error of a verb.
func (d *Device) failed(rc C.int, verb, what string) error {
	return &Error{Verb: verb, Device: d.name, What: what, Errno: syscall.Errno(rc)}
}

// ended says whether a verb that ends something has: rc is 0, or the device was removed.
// Then the kernel has ended everything, and verbs give EIO from just before it does so until
// the device is closed (ibv_open_device(3), RDMAV_ALLOW_DISASSOC_DESTROY). DEVICE_FATAL comes
// when all is done since Linux 5.7 (ib_uverbs: uverbs_async_event_destroy_uobj), shortly
// before in older kernels. The library keeps what it has allocated.
func (d *Device) ended(rc C.int) bool {
	return rc == 0 || rc == C.int(syscall.EIO) && d.gone.Load()
}

// saidFatal finds out what DEVICE_FATAL means: the device has failed, and may be removed
// later, or it was removed.
func (d *Device) saidFatal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil {
		return
	}
	rc := C.int(0)
	if d.spare != nil {
		if rc = C.tv_dealloc_pd(d.lib.c, d.spare); rc == 0 {
			d.spare = nil
		}
	} else {
		var a C.struct_tv_port_attr
		rc = C.tv_query_port(d.lib.c, d.ctx, 1, &a)
	}
	if rc == C.int(syscall.EIO) {
		d.gone.Store(true)
	}
}

// wrong is the error of an object that is not laid out as expected.
func (d *Device) wrong(what string) error {
	return pkgerr.Errorf("verbs", "%s: %w: %s", d.name, ErrABI, what)
}

// busy is the error of an object that others still stand on.
func (d *Device) busy(verb, what string) error {
	return &Error{Verb: verb, Device: d.name, What: what, Errno: syscall.EBUSY}
}

func (d *Device) queryLimits() error {
	var a C.struct_tv_device_attr
	if rc := C.tv_query_device(d.lib.c, d.ctx, &a); rc != 0 {
		return d.failed(rc, "ibv_query_device", "")
	}
	d.limits = DeviceLimits{
		Firmware: C.GoString(&a.fw_ver[0]), VendorID: uint32(a.vendor_id), Ports: int(a.phys_port_cnt),
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge),
		MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe), MaxMR: int(a.max_mr),
		MaxMRBytes: uint64(a.max_mr_size), MaxPD: int(a.max_pd),
		MaxQPReadAtomic: int(a.max_qp_rd_atom), MaxInitReadDepth: int(a.max_qp_init_rd_atom),
		MaxPKeys: int(a.max_pkeys), CompVectors: int(d.ctx.num_comp_vectors),
		AckDelayLog2: int(a.local_ca_ack_delay),
	}
	return nil
}

// Name of the device: "mlx5_0".
func (d *Device) Name() string { return d.name }

// Limits are what the device said when it was opened.
func (d *Device) Limits() DeviceLimits { return d.limits }

// QueryPort asks for the state of a port, 1 and up.
func (d *Device) QueryPort(port int) (PortAttr, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.queryPort(port)
}

// queryPort is QueryPort with the mutex held.
func (d *Device) queryPort(port int) (PortAttr, error) {
	if d.ctx == nil {
		return PortAttr{}, ErrClosed
	}
	what := "port " + strconv.Itoa(port)
	if port < 1 || port > d.limits.Ports {
		return PortAttr{}, &Error{Verb: "ibv_query_port", Device: d.name, What: what, Errno: syscall.EINVAL}
	}
	var a C.struct_tv_port_attr
	if rc := C.tv_query_port(d.lib.c, d.ctx, C.int(port), &a); rc != 0 {
		return PortAttr{}, d.failed(rc, "ibv_query_port", what)
	}
	return PortAttr{
		State: PortState(a.state), LinkLayer: LinkLayer(a.link_layer),
		MaxMTU: mtuBytes(int(a.max_mtu)), ActiveMTU: mtuBytes(int(a.active_mtu)),
		LID: uint16(a.lid), SMLID: uint16(a.sm_lid), GIDs: int(a.gid_tbl_len), PKeys: int(a.pkey_tbl_len),
		MaxMsgBytes: uint32(a.max_msg_sz),
		BytesPerSec: portBytesPerSec(int(a.active_width), int(a.active_speed)),
	}, nil
}

// PKeys are the partition keys of a port, by index; 0 is an unused entry.
func (d *Device) PKeys(port int) ([]uint16, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p, err := d.queryPort(port)
	if err != nil {
		return nil, err
	}
	keys := make([]uint16, p.PKeys)
	for i := range keys {
		var key C.uint16_t
		if rc := C.tv_query_pkey(d.lib.c, d.ctx, C.int(port), C.int(i), &key); rc != 0 {
			return nil, d.failed(rc, "ibv_query_pkey", fmt.Sprintf("port %d, index %d", port, i))
		}
		keys[i] = uint16(key)
	}
	return keys, nil
}

// GIDs are the addresses of a port, by index, without unused entries. Libraries that
// cannot tell types and interfaces leave that to sysfs.
func (d *Device) GIDs(port int) ([]GID, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p, err := d.queryPort(port)
	if err != nil {
		return nil, err
	}
	entries, err := d.gidTable()
	if err != nil {
		return d.gidsOneByOne(port, p)
	}
	var out []GID
	for _, e := range entries {
		if int(e.port_num) != port {
			continue
		}
		out = append(out, GID{Index: int(e.gid_index), Raw: *(*[16]byte)(unsafe.Pointer(&e.gid)),
			Type: GIDType(e.gid_type), Interface: int(e.ndev_ifindex)})
	}
	return out, nil
}

// gidTable asks for the used entries of all ports at once.
func (d *Device) gidTable() ([]C.struct_tv_gid_entry, error) {
	room := 0
	for port := 1; port <= d.limits.Ports; port++ {
		p, err := d.queryPort(port)
		if err != nil {
			return nil, err
		}
		room += p.GIDs
	}
	if room == 0 {
		return nil, nil
	}
	entries := make([]C.struct_tv_gid_entry, room)
	n := C.tv_gid_table(d.lib.c, d.ctx, &entries[0], C.size_t(room))
	if n < 0 {
		return nil, d.failed(C.int(-n), "ibv_query_gid_table", "")
	}
	return entries[:min(int(n), room)], nil
}

func (d *Device) gidsOneByOne(port int, p PortAttr) ([]GID, error) {
	var out []GID
	for i := range p.GIDs {
		g := GID{Index: i}
		rc := C.tv_query_gid(d.lib.c, d.ctx, C.int(port), C.int(i), (*C.uint8_t)(&g.Raw[0]))
		if rc != 0 {
			return nil, d.failed(rc, "ibv_query_gid", fmt.Sprintf("port %d, index %d", port, i))
		}
		if g.Raw == [16]byte{} {
			continue
		}
		dir := fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/gid_attrs", d.name, port)
		text, err := os.ReadFile(fmt.Sprintf("%s/types/%d", dir, i))
		if err == nil {
			g.Type, err = parseGIDType(string(text), p.LinkLayer)
		} else if p.LinkLayer != LinkEthernet {
			err = nil // all GIDs of InfiniBand are of its own type
		}
		if err != nil {
			return nil, err
		}
		if name, err := os.ReadFile(fmt.Sprintf("%s/ndevs/%d", dir, i)); err == nil {
			g.Interface = interfaceIndex(string(name))
		}
		out = append(out, g)
	}
	return out, nil
}

// AllocPD makes a protection domain: what is registered in it can be named by its own
// queue pairs only.
func (d *Device) AllocPD() (*PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil {
		return nil, ErrClosed
	}
	var pd *C.struct_tv_pd
	if rc := C.tv_alloc_pd(d.lib.c, d.ctx, &pd); rc != 0 {
		return nil, d.failed(rc, "ibv_alloc_pd", "")
	}
	if pd.context != d.ctx {
		return nil, d.wrong("ibv_pd.context is another one")
	}
	if d.spare == nil && C.tv_alloc_pd(d.lib.c, d.ctx, &d.spare) != 0 {
		d.spare = nil // a device with few domains can do without
	}
	d.uses.Add(1)
	return &PD{dev: d, pd: pd}, nil
}

// NextEvent waits for an asynchronous event, in Go's net poller, and acknowledges it. One
// goroutine calls it until it fails: ErrClosed after Close, an Error when the device is gone.
func (d *Device) NextEvent() (Event, error) {
	d.mu.RLock()
	ctx := d.ctx
	d.mu.RUnlock()
	if ctx == nil {
		return Event{}, ErrClosed
	}
	var e C.struct_tv_taken_event
	rc, err := d.events.wait(func() C.int { return C.tv_take_async_event(d.lib.c, ctx, &e) })
	if err != nil {
		return Event{}, err
	}
	if rc != 0 {
		return Event{}, d.failed(rc, "ibv_get_async_event", "")
	}
	if e._type == C.int(EventDeviceFatal) {
		d.saidFatal()
	}
	return Event{Type: EventType(e._type), Port: int(e.port), QPNum: uint32(e.qp_num)}, nil
}

// Close ends NextEvent for good, waits until it has returned, and closes the device. What was
// made with the device must be closed before: otherwise it fails with EBUSY, and the device
// stays open without events.
func (d *Device) Close() error {
	d.events.close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil {
		return nil
	}
	if n := d.uses.Load(); n != 0 {
		return d.busy("ibv_close_device", fmt.Sprintf("%d protection domains or completion queues are open", n))
	}
	if d.spare != nil && d.ended(C.tv_dealloc_pd(d.lib.c, d.spare)) {
		d.spare = nil
	}
	if rc := C.tv_close(d.lib.c, d.ctx); rc != 0 {
		return d.failed(rc, "ibv_close_device", "")
	}
	d.ctx = nil
	return nil
}
