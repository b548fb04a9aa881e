//go:build vmlab && linux && cgo

package rdma

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

// Action is something that is done to a rail of one machine.
type Action struct {
	Do   string
	Rail int
	Host int // whose frames are held
	Net  guest.Netem
}

func (a Action) do(ctx context.Context, l *guest.Lab) error {
	simple := map[string]func(context.Context, int) error{
		"link down": l.LinkDown, "link up": l.LinkUp, "carrier lost": l.CarrierLost, "carrier back": l.CarrierBack,
		"address removed": l.RemoveAddress, "address back": l.AddAddress, "RDMA removed": l.RemoveRDMA, "RDMA back": l.AddRDMA,
		"device removed": l.RemoveDevice, "device back": l.Rescan, "cut": l.Cut, "splice": l.Splice,
		"no RoCE": func(ctx context.Context, rail int) error { return roce(ctx, rail, false) },
		"RoCE":    func(ctx context.Context, rail int) error { return roce(ctx, rail, true) },
		"hold": func(ctx context.Context, rail int) error {
			return l.Wire(ctx, rail, guest.Rule{Hold: [3]bool{1: a.Host == 1, 2: a.Host == 2}})
		},
		"netem": func(ctx context.Context, rail int) error { return l.Netem(ctx, rail, a.Net) },
	}
	f, ok := simple[a.Do]
	if !ok {
		return fmt.Errorf("unknown action %q", a.Do)
	}
	return f(ctx, a.Rail)
}

// on does it on machine 1 or 2.
func (a Action) on(ctx context.Context, host int) error {
	if host == 2 {
		return ask("Break", a, &Nothing{})
	}
	return a.do(ctx, lab)
}

// roce lets RoCE's packets to a rail in, or not; all others pass.
func roce(ctx context.Context, rail int, pass bool) error {
	dev := vmlab.RailNetDev(rail)
	lines := [][]string{{"qdisc", "del", "dev", dev, "ingress"}}
	if !pass {
		lines = [][]string{
			{"qdisc", "add", "dev", dev, "handle", "ffff:", "ingress"},
			{"filter", "add", "dev", dev, "parent", "ffff:", "protocol", "ip", "u32",
				"match", "ip", "protocol", "17", "0xff", "match", "ip", "dport", "4791", "0xffff", "action", "drop"},
		}
	}
	for _, line := range lines {
		if out, err := exec.CommandContext(ctx, "tc", line...).CombinedOutput(); err != nil {
			return fmt.Errorf("tc %v: %w: %s", line, err, out)
		}
	}
	return nil
}

// fault is a way to lose a lane, and to give it back.
type fault struct {
	name     string
	host     int // where it is done
	cut, fix string
}

// faults are those that the engine must live with.
var faults = []fault{
	{"own link down", 1, "link down", "link up"},
	{"peer's link down", 2, "link down", "link up"},
	{"carrier lost", 1, "carrier lost", "carrier back"},
	{"wire cut", 1, "cut", "splice"},
	{"address removed", 1, "address removed", "address back"},
	{"device removed", 1, "device removed", "device back"},
	{"peer's carrier lost", 2, "carrier lost", "carrier back"},
	{"peer's address removed", 2, "address removed", "address back"},
	{"peer's device removed", 2, "device removed", "device back"},
	{"RDMA device removed", 1, "RDMA removed", "RDMA back"},
	{"peer's RDMA device removed", 2, "RDMA removed", "RDMA back"},
}

// inCI are the first of faults.
const inCI = 6

func (f fault) begin(ctx context.Context, rail int) error {
	return Action{Do: f.cut, Rail: rail}.on(ctx, f.host)
}

func (f fault) end(ctx context.Context, rail int) error {
	return Action{Do: f.fix, Rail: rail}.on(ctx, f.host)
}

// shape limits what both machines send on rails, which is as if the cables were slow.
func shape(ctx context.Context, bitsPerSec map[int]int64) error {
	for rail, rate := range bitsPerSec {
		for host := 1; host <= 2; host++ {
			a := Action{Do: "netem", Rail: rail, Net: guest.Netem{RateBitsPerSec: rate}}
			if err := a.on(ctx, host); err != nil {
				return err
			}
		}
	}
	return nil
}

// pause is a wait that a test has to make.
func pause(d time.Duration) { time.Sleep(d) }
