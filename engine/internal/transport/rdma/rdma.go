//go:build cgo && linux && (amd64 || arm64)

package rdma

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/verbs"
)

// Transport is RDMA. It implements transport.Transport and transport.Ported.
type Transport struct {
	o        Options
	onChange func() // that ports or keys have changed; may be nil
	lib      *verbs.Lib
	list     func() ([]verbs.DeviceInfo, error) // lib.Devices but in tests; under scanning
	ctx      context.Context                    // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	refused transport.Refusals

	scanning sync.Mutex // one scan of the devices at a time

	mu         sync.Mutex
	closed     bool
	devices    map[string]*device // those that are open, by name
	closing    map[*device]bool   // those that are being closed; false: that has failed
	attempts   map[string]*attempt
	regions    map[*memory.Region]bool
	active     map[*conn]bool
	ends       transport.Ends[struct{}, *passive]
	qps        int    // of all devices
	lastOffers string // what Changed last told of
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Ported    = (*Transport)(nil)
	_ transport.Selective = (*Transport)(nil)
)

// New opens the RDMA devices. If none can be opened it fails with ErrUnavailable, which is also
// transport.ErrUnavailable and says why each of them could not. Devices that come later, or come
// back, are opened then.
//
// A nil lib loads libibverbs. changed is called when Offers, LocalPorts or keys of regions
// have changed: from a goroutine of the transport, which it may call, but for Close.
func New(o Options, lib *verbs.Lib, changed func()) (*Transport, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if lib == nil {
		if lib, err = verbs.Load(); err != nil {
			return nil, pkgerr.Errorf("rdma", "%w", unavailable{err})
		}
	}
	t := &Transport{
		o: o, onChange: changed, lib: lib, list: lib.Devices,
		devices: map[string]*device{}, closing: map[*device]bool{}, attempts: map[string]*attempt{},
		regions: map[*memory.Region]bool{}, active: map[*conn]bool{},
	}
	t.ends = transport.MakeEnds[struct{}, *passive](&t.mu, nil)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	err = t.scan(time.Now())
	if len(t.devices) == 0 {
		why := errors.Join(append([]error{err}, t.problems()...)...)
		if why == nil {
			why = errors.New("no RDMA device on this host")
			if known := t.names(); len(o.Devices) > 0 && len(known) > 0 {
				why = unknownDevice{o.Devices, known}
			}
		}
		_ = t.Close()
		return nil, pkgerr.Errorf("rdma", "%w", unavailable{why})
	}
	t.lastOffers = t.offerText()
	t.wg.Go(func() { t.every(o.Watch, t.watch) })
	t.wg.Go(func() { t.every(o.KeepAlive, t.tick) })
	return t, nil
}

// names are those of all devices of the host.
func (t *Transport) names() []string {
	t.scanning.Lock()
	defer t.scanning.Unlock()
	list, err := t.list()
	var names []string
	for _, d := range list {
		if err == nil && validDevice(d.Name) {
			names = append(names, d.Name)
		}
	}
	return names
}

// Name is "rdma".
func (t *Transport) Name() string { return "rdma" }

// Caps are the limits of requests, at most.
func (t *Transport) Caps() transport.Caps {
	return transport.Caps{MaxSpans: maxSpans, MaxBytes: maxBytes, MaxPosted: t.o.QueuePairs * t.o.Depth, Parallel: t.o.QueuePairs}
}

// Served counts the passive ends. Bytes and requests are not seen here: devices move
// them. Refused are the requests that our devices refused, as far as they tell.
func (t *Transport) Served() transport.Served {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, conns := t.ends.Len()
	return transport.Served{Uncounted: true, Refused: t.refused.Counts(), Conns: conns}
}

// Serves lists the passive ends, each with the GIDs that it goes between, as addresses.
func (t *Transport) Serves() []transport.Passive {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []transport.Passive
	for key, p := range t.ends.All() {
		x := transport.Passive{
			Origin:    transport.Origin{Session: key.Session, Conn: key.Conn, Name: p.from.Name},
			LocalPort: topo.PortID(p.local.device, p.local.number),
		}
		if p.way.global { // else ports know each other by LID
			x.LocalAddress, x.RemoteAddress = p.way.local.addr.Unmap().String(), p.way.remote.addr.Unmap().String()
		}
		list = append(list, x)
	}
	return list
}

// Problems says what is wrong with devices that are not used, by name.
func (t *Transport) Problems() map[string]error {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]error{}
	for name, a := range t.attempts {
		if a.err != nil {
			out[name] = a.err
		}
	}
	return out
}

func (t *Transport) problems() []error {
	var errs []error
	all := t.Problems()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		errs = append(errs, all[name])
	}
	return errs
}

// openDevices are those that can be used, in the order of their names.
func (t *Transport) openDevices() []*device {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*device
	for _, name := range slices.Sorted(maps.Keys(t.devices)) {
		if d := t.devices[name]; d.ready {
			list = append(list, d)
		}
	}
	return list
}

// Offers are the ports that peers can dial now.
func (t *Transport) Offers() []transport.Endpoint {
	var list []transport.Endpoint
	for _, d := range t.openDevices() {
		for _, p := range d.usablePorts() {
			list = append(list, transport.Endpoint{
				Transport: "rdma", Port: topo.PortID(p.device, p.number), Address: p.text(), BytesPerSec: topo.Rate(p.rate),
			})
		}
	}
	return list
}

// LocalPorts are those that can be dialled from now.
func (t *Transport) LocalPorts() []transport.LocalPort {
	var list []transport.LocalPort
	for _, d := range t.openDevices() {
		for _, p := range d.usablePorts() {
			list = append(list, transport.LocalPort{ID: topo.PortID(p.device, p.number), Name: p.String(), BytesPerSec: topo.Rate(p.rate)})
		}
	}
	return list
}

// PortReaches says why a local port cannot reach a peer's endpoint.
func (t *Transport) PortReaches(local topo.ID, remote transport.Endpoint) error {
	there, err := parsePort(remote.Address)
	if err != nil {
		return err
	}
	_, here := t.portOf(local)
	if here == nil {
		return pkgerr.Errorf("rdma", "no port %q is open here", local)
	}
	_, err = reach(here, there, &t.o, routeFrom)
	return err
}

// portOf finds an open port by its ID.
func (t *Transport) portOf(id topo.ID) (*device, *port) {
	for _, d := range t.openDevices() {
		for _, p := range d.portList() {
			if topo.PortID(p.device, p.number) == id {
				return d, p
			}
		}
	}
	return nil, nil
}

// offerText is all that Changed is about, to be compared.
func (t *Transport) offerText() string {
	var b strings.Builder
	for _, e := range t.Offers() {
		b.WriteString(e.Address + "\n")
	}
	return b.String()
}

// changed tells the owner if something is different from what it knows.
func (t *Transport) changed() {
	now := t.offerText()
	t.mu.Lock()
	news := now != t.lastOffers && !t.closed
	t.lastOffers = now
	t.mu.Unlock()
	if news && t.onChange != nil {
		t.onChange()
	}
}

// tick looks at idle connections and at those that do not arrive.
func (t *Transport) tick(now time.Time) {
	for _, c := range t.conns(nil) {
		c.keepAlive()
	}
	for _, p := range t.ends.Select(func(p *passive) bool { return p.late(now) }) {
		p.end()
	}
}

// every does something from time to time until the transport is closed.
func (t *Transport) every(d time.Duration, do func(now time.Time)) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-t.ctx.Done():
			return
		case now := <-ticker.C:
			do(now)
		}
	}
}

// conns are the active ends on a device, or all.
func (t *Transport) conns(d *device) []*conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*conn
	for c := range t.active {
		if d == nil || c.dev == d {
			list = append(list, c)
		}
	}
	return list
}

// Close ends all connections of both sides, closes the devices and waits for the
// transport's goroutines.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	for _, c := range t.conns(nil) {
		c.Close(pkgerr.Errorf("rdma", "the transport is %w", net.ErrClosed))
	}
	for _, p := range t.ends.Select(nil) {
		p.end()
	}
	t.scanning.Lock() // no device is opened any more
	t.mu.Lock()
	for _, d := range t.devices {
		t.retire(d, nil)
	}
	t.mu.Unlock()
	t.scanning.Unlock()
	t.wg.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.attempts)) {
		if a := t.attempts[name]; a.closeErr != nil {
			errs = append(errs, a.closeErr)
		}
	}
	return errors.Join(errs...)
}
