//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// iovaMask keeps what of an address must stay the same in the address space of a
// device: the place within a page, the largest being 2 MiB. The rest of the address
// is nobody's business.
const iovaMask = 2<<20 - 1

// Where a region begins to a device is drawn among these places, 1 GiB apart: devices use
// keys of registrations again, and a request that is late, or made up, must not find another
// region at the address that it has.
const (
	iovaPlaces = 1 << 24
	iovaApart  = 1 << 30
)

// newIOVA is the address of a region's first byte to a device; at is where the bytes are.
func newIOVA(at uint64) (uint64, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return uint64(binary.BigEndian.Uint32(b[:])%iovaPlaces)*iovaApart | at&iovaMask, nil
}

// mr is a region as a device knows it. It does not change.
type mr struct {
	mr   *verbs.MR
	lkey uint32
	iova uint64
	// shift leads from the device's addresses to those of this process, 0 where it has
	// none.
	shift uint64
}

// entry is a region of a device, registered or on the way there or back.
type entry struct {
	mu   sync.Mutex
	mr   *mr
	over bool
}

// Register registers the region with every device that is open, all at once. If one refuses,
// that is an error: a program that asked for RDMA must not silently get less.
func (t *Transport) Register(r *memory.Region) (string, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return "", pkgerr.Errorf("rdma", "register region %q: %w", r.Name(), net.ErrClosed)
	}
	t.regions[r] = true
	devices := slices.Collect(maps.Values(t.devices))
	t.mu.Unlock()
	errs := transport.Concurrently(devices, func(d *device) error { return d.register(r) })
	t.mu.Lock()
	for i, d := range devices {
		if d.gone != nil {
			errs[i] = nil // it went away meanwhile, which costs the others nothing
		}
	}
	t.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return "", errors.Join(err, t.Deregister(r))
	}
	return t.Key(r), nil
}

// Deregister takes the region from all devices: when it returns, none of them touches
// it any more. Requests that still use it fail.
func (t *Transport) Deregister(r *memory.Region) error {
	t.mu.Lock()
	delete(t.regions, r)
	devices := t.allDevices()
	t.mu.Unlock()
	return errors.Join(transport.Concurrently(devices, func(d *device) error { return d.deregister(r) })...)
}

// Key is what peers need to name the region now: other devices mean another key, see
// Options.Changed. It is "" for a region that is not registered, and for memory of
// another device that no RDMA device can reach.
func (t *Transport) Key(r *memory.Region) string {
	t.mu.Lock()
	known := t.regions[r]
	t.mu.Unlock()
	if !known {
		return ""
	}
	k := regionKey{bytes: r.Size(), grant: r.Grant()}
	if k.grant != memory.None {
		for _, d := range t.openDevices() {
			if m := d.mrOf(r); m != nil && len(k.devices) < maxDevices {
				k.devices = append(k.devices, deviceKey{d.generation, m.mr.RKey(), m.iova})
			}
		}
	}
	if r.Device() != nil && len(k.devices) == 0 {
		return ""
	}
	return k.text()
}

// Reaches says whether the region's key names a device at all.
func (t *Transport) Reaches(r *transport.RemoteRegion) bool {
	k, err := parseKey(r.Key[t.Name()])
	return err == nil && len(k.devices) > 0
}

// dropIfClosed undoes the registration of a region that was closed meanwhile.
func (t *Transport) dropIfClosed(d *device, r *memory.Region) {
	t.mu.Lock()
	known := t.regions[r]
	t.mu.Unlock()
	if !known {
		_ = d.deregister(r)
	}
}

// mrOf is a region that is registered, nil if it is not.
func (d *device) mrOf(r *memory.Region) *mr {
	v, ok := d.mrs.Load(r)
	if !ok {
		return nil
	}
	return v.(*mr)
}

// rights are those that the grant gives; we ourselves always read and write.
func rights(g memory.Grant) verbs.Access {
	a := verbs.LocalWrite
	if g&memory.PeerRead != 0 {
		a |= verbs.RemoteRead
	}
	if g&memory.PeerWrite != 0 {
		a |= verbs.RemoteWrite
	}
	return a
}

// register makes the region known to the device, once.
func (d *device) register(r *memory.Region) error {
	d.entries.Lock()
	e := d.known[r]
	if e == nil {
		if d.over {
			d.entries.Unlock()
			return pkgerr.Errorf("rdma", "%s: the device is %w", d.name, net.ErrClosed)
		}
		e = &entry{}
		d.known[r] = e
	}
	d.entries.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mr != nil || e.over {
		return nil
	}
	m, err := d.registerBlock(r)
	if r.Device() != nil && (errors.Is(err, memory.ErrNoExport) || errors.Is(err, errors.ErrUnsupported)) {
		return nil // nothing is wrong: others carry it, through memory of the host
	}
	if err != nil {
		return &PortError{Local: d.name, What: fmt.Sprintf("region %q of %d bytes cannot be registered", r.Name(), r.Size()),
			Advice: resourceAdvice(err), Err: err}
	}
	e.mr = m
	d.mrs.Store(r, m)
	return nil
}

func (d *device) registerBlock(r *memory.Region) (*mr, error) {
	size := uint64(r.Size())
	if limit := d.limits.MaxMRBytes; size > limit && limit > 0 {
		return nil, fmt.Errorf("the device registers at most %d bytes at once: make several regions of it", limit)
	}
	if r.Device() != nil {
		return d.registerExported(r)
	}
	address := r.Block().Address()
	iova, err := newIOVA(uint64(address))
	if err != nil {
		return nil, err
	}
	m, err := d.pd.Register(address, size, iova, rights(r.Grant()))
	if err != nil {
		return nil, err
	}
	return &mr{m, m.LKey(), iova, uint64(address) - iova}, nil
}

// registerExported registers memory of another device by what its driver exports.
func (d *device) registerExported(r *memory.Region) (*mr, error) {
	fd, offset, err := r.Device().DMABuf()
	if err != nil {
		return nil, err
	}
	iova, err := newIOVA(uint64(offset))
	if err != nil {
		return nil, errors.Join(err, closeFD(fd))
	}
	m, err := d.pd.RegisterDMABuf(fd, uint64(offset), uint64(r.Size()), iova, rights(r.Grant()))
	closeErr := closeFD(fd)
	if err != nil {
		return nil, err
	}
	if closeErr != nil {
		return nil, errors.Join(fmt.Errorf("closing the exported descriptor: %w", closeErr), m.Close())
	}
	return &mr{m, m.LKey(), iova, 0}, nil
}

// Direct says whether the devices touch the region by themselves: all that are open
// now. Host memory they always do.
func (t *Transport) Direct(r *memory.Region) bool {
	for _, d := range t.openDevices() {
		if d.mrOf(r) == nil {
			return false
		}
	}
	return true
}

// closeFD closes a descriptor that is ours.
func closeFD(fd int) error { return os.NewFile(uintptr(fd), "dma-buf").Close() }

// deregister undoes register.
func (d *device) deregister(r *memory.Region) error {
	d.entries.Lock()
	e := d.known[r]
	d.entries.Unlock()
	d.mrs.Delete(r)
	if e == nil {
		return nil
	}
	e.mu.Lock() // waits for another call that does the same
	defer e.mu.Unlock()
	e.over = true
	if e.mr != nil {
		d.mrs.Delete(r)                         // it may have been stored in between
		if err := e.mr.mr.Close(); err != nil { // it stays known, and can be tried again
			return resourceError(err, d.name, fmt.Sprintf("region %q cannot be deregistered", r.Name()))
		}
		e.mr = nil
	}
	d.entries.Lock()
	defer d.entries.Unlock()
	if d.known[r] == e {
		delete(d.known, r)
	}
	return nil
}

// deregisterAll is for a device that is being closed.
func (d *device) deregisterAll() error {
	d.entries.Lock()
	d.over = true
	list := slices.Collect(maps.Keys(d.known))
	d.entries.Unlock()
	var errs []error
	for _, r := range list {
		errs = append(errs, d.deregister(r))
	}
	return errors.Join(errs...)
}

// remoteRegion is what a key says for this connection.
type remoteRegion struct {
	bytes int64
	grant memory.Grant
	rkey  uint32
	iova  uint64
	err   error // why it cannot be touched at all
	stale error // why not over this connection
}

// maxRemotes bounds the keys that are kept in parsed form.
const maxRemotes = 1 << 12

// remoteOf is what the key of a peer's region says for this connection.
func (c *conn) remoteOf(r *transport.RemoteRegion) *remoteRegion {
	if x := c.remotes[r]; x != nil {
		return x
	}
	if len(c.remotes) >= maxRemotes {
		clear(c.remotes)
	}
	x := c.parseRemote(r)
	c.remotes[r] = x
	return x
}

func (c *conn) parseRemote(r *transport.RemoteRegion) *remoteRegion {
	text := r.Key[c.t.Name()]
	if old, ok := c.gone[r.ID]; ok && old == text || text == "" {
		return &remoteRegion{err: pkgerr.Errorf("rdma", "%w: region %#x: %w", transport.ErrRefused, uint64(r.ID), memory.ErrNoRegion)}
	}
	k, err := parseKey(text)
	if err != nil {
		return &remoteRegion{err: fmt.Errorf("%w: %w: %w", transport.ErrRefused, memory.ErrNoRegion, err)}
	}
	x := &remoteRegion{bytes: k.bytes, grant: k.grant}
	if d := k.of(c.generation); d != nil {
		x.rkey, x.iova = d.rkey, d.iova
	} else {
		x.stale = &PortError{Local: c.local.String(), Remote: c.remote.String(),
			What: fmt.Sprintf("region %#x has no key for the peer's device", uint64(r.ID)), Advice: "the device was opened again, and the region's new key is on its way"}
	}
	return x
}

// errStale is for requests that another connection may carry.
var errStale = errors.New("not over this connection")

// refuse says what is against a span, nil if nothing is.
func (x *remoteRegion) refuse(o transport.Op, s *transport.Span) error {
	want := memory.PeerRead
	if o == transport.Write {
		want = memory.PeerWrite
	}
	var reason error
	switch {
	case x.err != nil:
		return x.err
	case x.grant == memory.None:
		reason = memory.ErrNoRegion
	case x.grant&want == 0:
		reason = memory.ErrDenied
	case s.Bytes < 0 || s.RemoteOffset < 0 || s.RemoteOffset > x.bytes || s.Bytes > x.bytes-s.RemoteOffset:
		reason = memory.ErrRange
	case x.stale != nil:
		return pkgerr.Errorf("rdma", "%w: %w: %w", transport.ErrClosed, errStale, x.stale)
	default:
		return nil
	}
	return pkgerr.Errorf("rdma", "%w: %s of %d bytes at %d of region %#x: %w", transport.ErrRefused, want, s.Bytes, s.RemoteOffset, uint64(s.Remote.ID), reason)
}

// forget remembers that the peer's device refuses a region: it was closed, and its ID
// is never used again.
func (c *conn) forget(r *transport.RemoteRegion) {
	if len(c.gone) >= maxRemotes {
		clear(c.gone)
	}
	c.gone[r.ID] = r.Key[c.t.Name()]
	clear(c.remotes)
}
