//go:build cgo && linux && (amd64 || arm64)

package verbsfake

// #include <stdlib.h>
// #include "fake.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/topoctl/topoctl/internal/verbs"
)

// Missing is what an old library lacks. Each level lacks what those before it lack, too.
type Missing int

// The levels.
const (
	NoDMABuf   Missing = 1
	NoGIDTable Missing = 2
	NoIOVA     Missing = 3
)

// Options are what a fabric is made with.
type Options struct {
	Devices []Device
	// RetryAfter is when a sender gives up on what gets no answer: 0 is 20 ms, below 0
	// what the queue pair's timeout and retry count say.
	RetryAfter time.Duration
	// KeepCompletions of queue pairs that are destroyed, as rxe does; mlx5 drops them.
	KeepCompletions bool
	Missing         Missing
}

// Device is a device as it is made. Zero fields get what a usual one has.
type Device struct {
	Name         string
	GUID         uint64
	Limits       verbs.DeviceLimits // Ports comes from Ports
	MaxInline    int
	DMABuf       bool   // dma-bufs can be registered: any memory file is one
	MemlockBytes uint64 // so much can be registered at a time; 0 any
	Ports        []Port
}

// Port is a port as it is made. Zero fields get what a usual one has.
type Port struct {
	State        verbs.PortState // 0: active
	Link         verbs.LinkLayer
	LID, SMLID   uint16
	MTU, MaxMTU  int // bytes
	MaxMsgBytes  uint32
	Width, Speed int // as PortInfo numbers them: 2 and 32 are 4x EDR
	GIDs         []verbs.GID
	PKeys        []uint16
}

// RoCE is a device with one Ethernet port. Like those of mlx5 it has each address twice,
// as RoCE v1 and v2, after the link-local one.
func RoCE(name string, guid uint64, addrs ...string) Device {
	var local [16]byte
	local[0], local[1] = 0xfe, 0x80
	binary.BigEndian.PutUint64(local[8:], guid)
	gids := []verbs.GID{{Index: 0, Raw: local, Type: verbs.GIDRoCEv1}, {Index: 1, Raw: local, Type: verbs.GIDRoCEv2}}
	for _, a := range addrs {
		raw := netip.MustParseAddr(a).As16()
		gids = append(gids, verbs.GID{Index: len(gids), Raw: raw, Type: verbs.GIDRoCEv1},
			verbs.GID{Index: len(gids) + 1, Raw: raw, Type: verbs.GIDRoCEv2})
	}
	return Device{Name: name, GUID: guid, Ports: []Port{{Link: verbs.LinkEthernet, GIDs: gids}}}
}

// InfiniBand is a device with one InfiniBand port in the default subnet.
func InfiniBand(name string, guid uint64, lid uint16) Device {
	return Device{Name: name, GUID: guid, Ports: []Port{{Link: verbs.LinkInfiniBand, LID: lid, SMLID: 1,
		GIDs: []verbs.GID{{Raw: SubnetGID(0xfe80000000000000, guid)}}}}}
}

// SubnetGID is the GID of a port in a subnet.
func SubnetGID(prefix, guid uint64) (raw [16]byte) {
	binary.BigEndian.PutUint64(raw[:8], prefix)
	binary.BigEndian.PutUint64(raw[8:], guid)
	return raw
}

// Fabric is devices that reach each other.
type Fabric struct {
	c     *C.struct_fabric
	o     Options
	names map[string]int
}

// New makes a fabric. It panics on options that make no sense.
func New(o Options) *Fabric {
	if len(o.Devices) > C.MAX_DEVICES {
		panic("verbsfake: too many devices")
	}
	retry := o.RetryAfter
	switch {
	case retry == 0:
		retry = 20 * time.Millisecond
	case retry < 0:
		retry = 0
	}
	keep := C.int(0)
	if o.KeepCompletions {
		keep = 1
	}
	f := &Fabric{c: C.fake_new(C.int64_t(retry), keep), o: o, names: map[string]int{}}
	for _, d := range o.Devices {
		f.add(d)
	}
	return f
}

// Close stops the fabric and waits for its thread. What is left of its objects can still
// be closed; everything else fails.
func (f *Fabric) Close() { C.fake_close(f.c) }

// Lib is a library that sees some of the devices, none named: all of them. Several of
// them are several hosts.
func (f *Fabric) Lib(devices ...string) *verbs.Lib {
	var bits uint64
	for _, n := range devices {
		bits |= 1 << f.dev(n)
	}
	if len(devices) == 0 {
		bits = ^uint64(0)
	}
	return verbs.FromTable(unsafe.Pointer(C.fake_view(f.c, C.uint64_t(bits), C.int(f.o.Missing))))
}

func (f *Fabric) dev(name string) C.int {
	i, ok := f.names[name]
	if !ok {
		panic("verbsfake: no device " + name)
	}
	return C.int(i)
}

func or[T comparable](v, usual T) T {
	var zero T
	if v == zero {
		return usual
	}
	return v
}

func (f *Fabric) add(d Device) {
	if len(d.Name) >= C.MAX_NAME || len(d.Ports) > C.MAX_PORTS || len(d.Ports) == 0 {
		panic(fmt.Sprintf("verbsfake: device %q: bad name or number of ports", d.Name))
	}
	l := d.Limits
	var a C.struct_tv_device_attr
	for i, b := range []byte(or(l.Firmware, "1.2.3")) {
		a.fw_ver[i] = C.char(b)
	}
	a.vendor_id = C.uint32_t(l.VendorID)
	a.max_mr_size = C.uint64_t(or(l.MaxMRBytes, 1<<40))
	a.page_size_cap = 0xfffff000
	a.max_qp, a.max_qp_wr = C.int(or(l.MaxQP, 4096)), C.int(or(l.MaxQPWR, 8192))
	a.max_sge, a.max_sge_rd = C.int(or(l.MaxSGE, 30)), C.int(or(l.MaxSGE, 30))
	a.max_cq, a.max_cqe = C.int(or(l.MaxCQ, 1024)), C.int(or(l.MaxCQE, 1<<18))
	a.max_mr, a.max_pd = C.int(or(l.MaxMR, 1<<16)), C.int(or(l.MaxPD, 1024))
	a.max_qp_rd_atom = C.int(or(l.MaxQPReadAtomic, 16))
	a.max_qp_init_rd_atom = C.int(or(l.MaxInitReadDepth, 16))
	a.max_pkeys = C.uint16_t(or(l.MaxPKeys, C.MAX_PKEYS))
	a.local_ca_ack_delay = C.uint8_t(or(l.AckDelayLog2, 15))
	a.phys_port_cnt = C.uint8_t(len(d.Ports))
	name := C.CString(d.Name)
	defer C.free(unsafe.Pointer(name))
	dmabuf := C.int(0)
	if d.DMABuf {
		dmabuf = 1
	}
	i := C.fake_add_device(f.c, name, C.uint64_t(d.GUID), &a, C.int(or(l.CompVectors, 4)),
		C.int(or(d.MaxInline, 256)), dmabuf, C.uint64_t(d.MemlockBytes))
	f.names[d.Name] = int(i)
	for n, p := range d.Ports {
		f.addPort(d.Name, n+1, p)
	}
}

func mtuNumber(bytes int) C.int {
	for n := 1; n <= 5; n++ {
		if 128<<n == bytes {
			return C.int(n)
		}
	}
	panic(fmt.Sprintf("verbsfake: no MTU of %d", bytes))
}

func (f *Fabric) addPort(dev string, n int, p Port) {
	mtu := or(p.MTU, 4096)
	C.fake_set_port(f.c, f.dev(dev), C.int(n), C.int(or(p.State, verbs.PortActive)), C.int(p.Link),
		mtuNumber(or(p.MaxMTU, 4096)), mtuNumber(mtu), C.int(or(p.Width, 2)), C.int(or(p.Speed, 32)),
		C.uint32_t(or(p.MaxMsgBytes, 1<<30)))
	C.fake_set_lid(f.c, f.dev(dev), C.int(n), C.uint16_t(p.LID), C.uint16_t(p.SMLID))
	f.setGIDs(dev, n, p.GIDs)
	keys := p.PKeys
	if keys == nil {
		keys = []uint16{0xffff}
	}
	for i, k := range keys {
		C.fake_set_pkey(f.c, f.dev(dev), C.int(n), C.int(i), C.uint16_t(k))
	}
}

func (f *Fabric) setGIDs(dev string, port int, gids []verbs.GID) {
	C.fake_clear_gids(f.c, f.dev(dev), C.int(port))
	for _, g := range gids {
		if g.Index >= C.MAX_GIDS {
			panic("verbsfake: GID index too large")
		}
		raw := unsafe.Pointer(&g.Raw)
		C.fake_set_gid(f.c, f.dev(dev), C.int(port), C.int(g.Index), raw, C.int(g.Type), C.int(g.Interface))
	}
}
