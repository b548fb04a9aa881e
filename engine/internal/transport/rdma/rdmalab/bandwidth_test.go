//go:build vmlab && linux && cgo

package rdma

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/internal/transport/rdma/rdmalab/baseline"
	"github.com/topoctl/topoctl/test/vmlab"
)

// What both sides of a comparison move.
const (
	messageBytes = 64 << 10
	messageDepth = 16
	ipv4GID      = 1 // of a rail's port, as it is after the boot
)

// shapedRate is far below what the emulated processors carry.
const shapedRate = 12_000_000

// On a shaped cable the engine carries what perftest's programs do.
func TestShapedSpeed(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma, which this is about")
	}
	mended(t)
	if err := shape(bounded(t), map[int]int64{0: shapedRate}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		tool string
		read bool
	}{{"ib_write_bw", false}, {"ib_read_bw", true}} {
		t.Run(x.tool, func(t *testing.T) {
			compareRates(t, x.tool, 0.95, func() float64 { return perftest(t, x.tool) }, func() float64 { return engineRate(t, x.read, time.Second, 3*time.Second) })
		})
	}
}

// compareRates measures both in turn, until ours is enough of theirs.
func compareRates(t *testing.T, what string, part float64, theirs, ours func() float64) {
	t.Helper()
	for try := 1; ; try++ {
		a, b := theirs(), ours()
		text := fmt.Sprintf("%s %.1f Mbit/s, engine %.1f Mbit/s: %.3f of it", what, a/1e6, b/1e6, b/a)
		if enough(t, try, text, b >= part*a) {
			return
		}
	}
}

// engineRate is what the engine carries over rail 0 in bits per second, in messages of
// the size and depth.
func engineRate(t *testing.T, read bool, settle, steady time.Duration) (rate float64) {
	t.Run("engine", func(t *testing.T) {
		near := Spec{Transports: []string{"rdma"}, Rails: []int{0}, Bytes: messageBytes * messageDepth}
		rate = 8 * newDuo(t, near).stream(read, messageDepth, messageBytes, settle, steady)
	})
	return rate
}

// perftest runs one of its programs between the machines and gives what it says, in
// bits per second.
func perftest(t *testing.T, tool string) float64 {
	t.Helper()
	args := []string{tool, "-d", vmlab.RDMADev(0), "-x", strconv.Itoa(ipv4GID), "-s", strconv.Itoa(messageBytes), "-t", strconv.Itoa(messageDepth),
		"-n", "60", "-u", "18", "-F", "--report_gbits"}
	mustAsk(t, "Begin", Run{Name: tool, Args: args}, &Nothing{})
	var out Ended
	// The far one takes a moment until it listens.
	for try := range 20 {
		pause(time.Duration(300+100*try) * time.Millisecond)
		c, err := Run{Args: append(slices.Clone(args), lab.Addr(2, vmlab.ManagementRail))}.start()
		if err == nil {
			out, err = c.wait(within)
		}
		if err != nil {
			t.Fatal(err)
		}
		if out.Code == 0 {
			break
		}
	}
	var there Ended
	mustAsk(t, "Finish", Stopping{Name: tool, Interrupt: out.Code != 0}, &there)
	if out.Code != 0 || there.Code != 0 {
		t.Fatalf("%s: %+v, there %+v", tool, out, there)
	}
	for line := range strings.Lines(out.Out) {
		f := strings.Fields(line)
		if len(f) >= 5 && f[0] == strconv.Itoa(messageBytes) {
			if average, err := strconv.ParseFloat(f[3], 64); err == nil && average > 0 {
				return average * 1e9
			}
		}
	}
	t.Fatalf("%s: no rate in what it says:\n%s", tool, out.Out)
	return 0
}

// Without limits the engine comes near a loop in C that posts one and polls one. They
// take turns, often: other work on the host hits both.
func TestUnshapedSpeed(t *testing.T) {
	if *over != "rdma" {
		t.Skip("-over is not rdma, which this is about")
	}
	for _, read := range []bool{false, true} {
		op := map[bool]string{false: "WRITE", true: "READ"}[read]
		t.Run(op, func(t *testing.T) {
			openBaseline(t)
			defer closeBaseline(t)
			t.Run("engine", func(t *testing.T) {
				d := newDuo(t, Spec{Transports: []string{"rdma"}, Rails: []int{0}, Bytes: 2 * messageBytes * messageDepth})
				d.compareBandwidth(t, read)
			})
		})
	}
}

// loopDepth is what the engine's window holds at such a rate: two slices for each of two
// queue pairs.
const loopDepth = 4

// turns are those of one comparison.
const turns = 4

func (d *duo) compareBandwidth(t *testing.T, read bool) {
	inC := func() float64 {
		const count = 150
		took, err := baseline.Run(read, messageBytes, loopDepth, count)
		if err != nil {
			t.Fatal(err)
		}
		return 8 * messageBytes * count / took.Seconds()
	}
	for try := 1; ; try++ {
		var theirs, ours float64
		for range turns {
			theirs += inC() / turns
			ours += 8 * d.stream(read, 4, messageBytes, 200*time.Millisecond, time.Second) / turns
		}
		text := fmt.Sprintf("64 KiB, %d at a time: in C %.1f Mbit/s, engine %.1f Mbit/s: %.2f of it", loopDepth, theirs/1e6, ours/1e6, ours/theirs)
		if enough(t, try, text, ours >= 0.85*theirs) {
			return
		}
	}
}

// enough prints a comparison, and ends the test where the last try fell short.
func enough(t *testing.T, try int, text string, ok bool) bool {
	t.Helper()
	switch {
	case ok:
		t.Log(text)
	case try == tries || t.Failed():
		t.Fatalf("fell short, try %d, the last: %s", try, text)
	default:
		t.Logf("fell short, try %d: %s", try, text)
	}
	return ok
}

func openBaseline(t *testing.T) {
	t.Helper()
	mine, err := baseline.Open(vmlab.RDMADev(0), ipv4GID, messageBytes*messageDepth, messageDepth)
	if err != nil {
		t.Fatal(err)
	}
	var theirs baseline.End
	mustAsk(t, "Baseline", mine, &theirs)
	if err := baseline.Connect(theirs, mtu4096, 17); err != nil {
		t.Fatal(err)
	}
}

const mtu4096 = 5 // as verbs count them

func closeBaseline(t *testing.T) {
	t.Helper()
	if err := baseline.Close(); err != nil {
		t.Error(err)
	}
	mustAsk(t, "BaselineEnd", Nothing{}, &Nothing{})
}

// Baseline makes the passive end of the loop in C.
func (f *Far) Baseline(theirs baseline.End, mine *baseline.End) (err error) {
	if *mine, err = baseline.Open(vmlab.RDMADev(0), ipv4GID, messageBytes*messageDepth, messageDepth); err != nil {
		return err
	}
	return baseline.Connect(theirs, mtu4096, 17)
}

// BaselineEnd ends it.
func (f *Far) BaselineEnd(Nothing, *Nothing) error { return baseline.Close() }
