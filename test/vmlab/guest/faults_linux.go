package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
)

// faults of one rail.
type faults struct {
	shaped, wire, carrier, other bool
	unplugged                    bool
}

func (l *Lab) note(rail int, change func(*faults)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.broken[rail]
	change(&f)
	l.broken[rail] = f
}

// nic is a rail's NIC as it was stated.
func (l *Lab) nic(rail int) (vmlab.NIC, error) {
	for _, n := range l.Hardware().NICs() {
		if n.Rail == rail {
			return n, nil
		}
	}
	return vmlab.NIC{}, fmt.Errorf("guest: machine %d has no rail %d", l.host, rail)
}

// Netem is what the kernel does to what this machine sends on a rail (man tc-netem).
type Netem struct {
	RateBitsPerSec int64 // 0 is unlimited
	Delay, Jitter  time.Duration
	LossPercent    float64
	Packets        int // that its queue holds, what comes then is refused; 0: more than any window
}

// Shape limits the rate of what this machine sends on a rail. Together the guests carry
// about 120 Mbit/s.
func (l *Lab) Shape(ctx context.Context, rail int, bitsPerSec int64) error {
	return l.Netem(ctx, rail, Netem{RateBitsPerSec: bitsPerSec})
}

// Netem replaces what is done to a rail; the zero value ends it.
func (l *Lab) Netem(ctx context.Context, rail int, n Netem) error {
	if _, err := l.nic(rail); err != nil {
		return err
	}
	dev := vmlab.RailNetDev(rail)
	l.mu.Lock()
	shaped := l.broken[rail].shaped
	l.mu.Unlock()
	if shaped {
		// What is not named in a replacement stays as it was: so begin anew.
		if err := l.unshape(ctx, rail); err != nil {
			return err
		}
		l.note(rail, func(f *faults) { f.shaped = false })
	}
	if n == (Netem{}) {
		return nil
	}
	args := []string{"qdisc", "add", "dev", dev, "root", "netem", "limit", strconv.Itoa(cmp.Or(n.Packets, 20000))}
	if n.Delay > 0 {
		args = append(args, "delay", fmt.Sprintf("%dus", n.Delay.Microseconds()))
		if n.Jitter > 0 {
			args = append(args, fmt.Sprintf("%dus", n.Jitter.Microseconds()))
		}
	}
	if n.LossPercent > 0 {
		args = append(args, "loss", strconv.FormatFloat(n.LossPercent, 'f', -1, 64)+"%")
	}
	if n.RateBitsPerSec > 0 {
		args = append(args, "rate", fmt.Sprintf("%dbit", n.RateBitsPerSec))
	}
	if err := vmlab.Command(ctx, "tc", args...); err != nil {
		return err
	}
	l.note(rail, func(f *faults) { f.shaped = true })
	return nil
}

// Cut cuts the cable of a rail. Both machines' ports stay up and see nothing.
func (l *Lab) Cut(ctx context.Context, rail int) error {
	return l.Wire(ctx, rail, vmlab.Rule{Cut: [3]bool{1: true, 2: true}})
}

// CutFrom cuts the cable for what one machine sends.
func (l *Lab) CutFrom(ctx context.Context, rail, host int) error {
	var r vmlab.Rule
	if host < 1 || host > 2 {
		return fmt.Errorf("guest: no machine %d", host)
	}
	r.Cut[host] = true
	return l.Wire(ctx, rail, r)
}

// Splice makes the cable of a rail whole.
func (l *Lab) Splice(ctx context.Context, rail int) error { return l.Wire(ctx, rail, vmlab.Rule{}) }

// Rule is what a cable does to frames.
type Rule = vmlab.Rule

// Wire sets what the cable of a rail does, for both machines, from now on.
func (l *Lab) Wire(ctx context.Context, rail int, rule Rule) error {
	if _, err := l.line.Call(ctx, vmlab.Request{Op: vmlab.OpWire, Rail: rail, Rule: &rule}); err != nil {
		return err
	}
	l.note(rail, func(f *faults) { f.wire = rule != Rule{} })
	return nil
}

// WireCount tells what the cable of a rail gave to this machine since the boot.
func (l *Lab) WireCount(ctx context.Context, rail int) (vmlab.Count, error) {
	var n vmlab.Count
	r, err := l.line.Call(ctx, vmlab.Request{Op: vmlab.OpCount, Rail: rail})
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal(r.Result, &n)
}

// LinkDown takes this machine's interface of a rail down, as an administrator would.
func (l *Lab) LinkDown(ctx context.Context, rail int) error {
	if err := vmlab.Command(ctx, "ip", "link", "set", vmlab.RailNetDev(rail), "down"); err != nil {
		return err
	}
	l.note(rail, func(f *faults) { f.other = true })
	return nil
}

// LinkUp takes it up again and waits until its RDMA port is active.
func (l *Lab) LinkUp(ctx context.Context, rail int) error {
	if err := vmlab.Command(ctx, "ip", "link", "set", vmlab.RailNetDev(rail), "up"); err != nil {
		return err
	}
	return vmlab.Wait(ctx, func() error { return vmlab.PortActive(rail) })
}

// CarrierLost pulls the cable out of this machine's NIC, and waits until the kernel
// has noticed. It is for virtio NICs: the driver of an emulated e1000e (QEMU 7.2) was
// not told within 90 seconds.
func (l *Lab) CarrierLost(ctx context.Context, rail int) error {
	nic, err := l.nic(rail)
	if err != nil {
		return err
	}
	if nic.Model != vmlab.Virtio {
		return fmt.Errorf("guest: rail %d: %w: an emulated %s does not tell its driver that the carrier is lost", rail, errors.ErrUnsupported, nic.Model)
	}
	if err := l.setLink(ctx, rail, false); err != nil {
		return err
	}
	l.note(rail, func(f *faults) { f.carrier = true })
	return vmlab.Wait(ctx, func() error {
		if vmlab.Carrier(vmlab.RailNetDev(rail)) == nil {
			return fmt.Errorf("guest: rail %d still has its carrier", rail)
		}
		return nil
	})
}

// CarrierBack plugs it in again and waits until the RDMA port is active.
func (l *Lab) CarrierBack(ctx context.Context, rail int) error {
	if err := l.setLink(ctx, rail, true); err != nil {
		return err
	}
	l.note(rail, func(f *faults) { f.carrier = false })
	return vmlab.Wait(ctx, func() error { return vmlab.PortActive(rail) })
}

func (l *Lab) setLink(ctx context.Context, rail int, up bool) error {
	_, err := l.QMP(ctx, "set_link", map[string]any{"name": fmt.Sprintf("nic%d", rail), "up": up})
	return err
}

// RemoveAddress takes the IPv4 address of a rail from this machine, and so its GID.
func (l *Lab) RemoveAddress(ctx context.Context, rail int) error {
	l.note(rail, func(f *faults) { f.other = true })
	return vmlab.Command(ctx, "ip", "addr", "del", vmlab.Address(l.host, rail)+"/24", "dev", vmlab.RailNetDev(rail))
}

// AddAddress gives it back.
func (l *Lab) AddAddress(ctx context.Context, rail int) error {
	return vmlab.Command(ctx, "ip", "addr", "replace", vmlab.Address(l.host, rail)+"/24", "dev", vmlab.RailNetDev(rail))
}

// SetMTU sets the MTU of this machine's interface of a rail.
func (l *Lab) SetMTU(ctx context.Context, rail, mtu int) error {
	l.note(rail, func(f *faults) { f.other = true })
	return vmlab.Command(ctx, "ip", "link", "set", vmlab.RailNetDev(rail), "mtu", strconv.Itoa(mtu))
}

// RemoveRDMA takes the RDMA device away and leaves the interface. The kernel waits until
// the last process has closed the device.
func (l *Lab) RemoveRDMA(ctx context.Context, rail int) error {
	l.note(rail, func(f *faults) { f.other = true })
	return vmlab.Command(ctx, "rdma", "link", "del", vmlab.RDMADev(rail))
}

// AddRDMA makes it again and waits until its port is active.
func (l *Lab) AddRDMA(ctx context.Context, rail int) error {
	if err := vmlab.AddRDMA(ctx, rail); err != nil {
		return err
	}
	return vmlab.Wait(ctx, func() error { return vmlab.PortActive(rail) })
}

// RemoveDevice removes the PCI function of a rail's NIC, as writing to its "remove" in
// sysfs does. The kernel waits until the last process has closed the RDMA device: then
// the error is the context's, and the removal goes on.
func (l *Lab) RemoveDevice(ctx context.Context, rail int) error {
	dir, err := vmlab.PCI(rail)
	if err != nil {
		return fmt.Errorf("guest: rail %d: %w", rail, err)
	}
	l.note(rail, func(f *faults) { f.other = true })
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(filepath.Join(dir, "remove"), []byte("1"), 0o200) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("guest: remove %s: %w: is %s still open somewhere?", dir, context.Cause(ctx), vmlab.RDMADev(rail))
	}
}

// Rescan finds functions that were removed, and sets the rail up as at boot.
func (l *Lab) Rescan(ctx context.Context, rail int) error {
	if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0o200); err != nil {
		return err
	}
	return l.setUp(ctx, rail)
}

// Unplug takes the NIC out of its slot, which takes the kernel five seconds and, as
// RemoveDevice, waits for those who have the RDMA device open.
func (l *Lab) Unplug(ctx context.Context, rail int) error {
	if _, err := l.nic(rail); err != nil {
		return err
	}
	if _, err := l.QMP(ctx, "device_del", map[string]any{"id": fmt.Sprintf("nic%d", rail)}); err != nil {
		return err
	}
	l.note(rail, func(f *faults) { f.unplugged = true })
	return vmlab.Wait(ctx, func() error {
		if _, err := vmlab.NetDev(l.host, rail); err == nil {
			return fmt.Errorf("guest: rail %d: the NIC is still there: is %s still open somewhere?", rail, vmlab.RDMADev(rail))
		}
		return nil
	})
}

// Plug puts the NIC back in its slot and sets the rail up as at boot.
func (l *Lab) Plug(ctx context.Context, rail int) error {
	nic, err := l.nic(rail)
	if err != nil {
		return err
	}
	arguments := map[string]any{}
	for _, f := range l.Hardware().Functions() {
		if f.NIC != nil && f.NIC.Rail == rail {
			arguments["bus"] = f.Parent
		}
	}
	for _, p := range vmlab.NICProperties(l.host, nic) {
		arguments[p.Name] = p.JSON()
	}
	// The emulator refuses a name that is still in use: the old NIC leaves a moment after
	// the kernel has let go of it.
	err = vmlab.Wait(ctx, func() error {
		_, err := l.QMP(ctx, "device_add", arguments)
		return err
	})
	if err != nil {
		return err
	}
	l.note(rail, func(f *faults) { f.unplugged = false })
	return l.setUp(ctx, rail)
}

// setUp does to a rail what is done at boot, and waits until it carries data.
func (l *Lab) setUp(ctx context.Context, rail int) error {
	nic, err := l.nic(rail)
	if err != nil {
		return err
	}
	if err := vmlab.Wait(ctx, func() error { return vmlab.Configure(ctx, l.host, nic) }); err != nil {
		return err
	}
	if err := vmlab.AddRDMA(ctx, rail); err != nil {
		return err
	}
	return vmlab.Wait(ctx, func() error {
		return errors.Join(vmlab.Carrier(vmlab.RailNetDev(rail)), vmlab.PortActive(rail))
	})
}

// Mend undoes what was done to a rail through this Lab.
func (l *Lab) Mend(ctx context.Context, rail int) error {
	l.mu.Lock()
	f, was := l.broken[rail]
	l.mu.Unlock()
	if !was {
		return nil
	}
	var errs []error
	step := func(needed bool, mend func(context.Context, int) error) {
		if needed {
			errs = append(errs, mend(ctx, rail))
		}
	}
	step(f.wire, l.Splice)
	step(f.unplugged, l.Plug)
	step(f.carrier, l.CarrierBack)
	step(f.other, l.Rescan)
	step(f.shaped, func(ctx context.Context, rail int) error { return l.unshape(ctx, rail) })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("guest: mend rail %d: %w", rail, err)
	}
	l.mu.Lock()
	delete(l.broken, rail)
	l.mu.Unlock()
	return nil
}

// MendAll mends every rail that was broken through this Lab.
func (l *Lab) MendAll(ctx context.Context) error {
	l.mu.Lock()
	list := slices.Sorted(maps.Keys(l.broken))
	l.mu.Unlock()
	var errs []error
	for _, rail := range list {
		errs = append(errs, l.Mend(ctx, rail))
	}
	return errors.Join(errs...)
}

// unshape ends what Netem did. A NIC that was removed since took it along.
func (l *Lab) unshape(ctx context.Context, rail int) error {
	if err := vmlab.Command(ctx, "tc", "qdisc", "replace", "dev", vmlab.RailNetDev(rail), "root", "pfifo"); err != nil {
		return err
	}
	return vmlab.Command(ctx, "tc", "qdisc", "del", "dev", vmlab.RailNetDev(rail), "root")
}
