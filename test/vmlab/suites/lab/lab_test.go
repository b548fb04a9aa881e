//go:build vmlab && linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/guest"
)

func open(t *testing.T) (*guest.Lab, context.Context) {
	t.Helper()
	l, ctx := guest.ForTest(t, 60*time.Second)
	if l.Peer() == 0 {
		t.Skip("the lab has one machine: this needs a second")
	}
	return l, ctx
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

const probePort = 7007

// echo answers what comes in on all rails of machine 2, until the test ends.
func echo(t *testing.T) {
	c, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", probePort))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from) // a probe that is not answered is asked again
		}
	}()
}

// answered sends probes over a rail until one comes back or the time is over. It gives
// the round trip of that one.
func answered(t *testing.T, l *guest.Lab, rail int, limit time.Duration) (time.Duration, bool) {
	t.Helper()
	local := &net.UDPAddr{IP: net.ParseIP(l.Addr(l.Host(), rail))}
	c, err := net.DialUDP("udp4", local, &net.UDPAddr{IP: net.ParseIP(l.Addr(l.Peer(), rail)), Port: probePort})
	if err != nil {
		return 0, false // the address is gone
	}
	defer c.Close()
	end := time.Now().Add(limit)
	buf := make([]byte, 64)
	for i := 0; time.Now().Before(end); i++ {
		sent := time.Now()
		probe := fmt.Appendf(nil, "%d", i)
		if _, err := c.Write(probe); err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		must(t, c.SetReadDeadline(time.Now().Add(250*time.Millisecond)))
		for {
			n, err := c.Read(buf)
			if err != nil {
				time.Sleep(20 * time.Millisecond)
				break
			}
			if bytes.Equal(buf[:n], probe) {
				return time.Since(sent), true
			}
		}
	}
	return 0, false
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func portState(rail int) string {
	state, err := os.ReadFile("/sys/class/infiniband/" + vmlab.RDMADev(rail) + "/ports/1/state")
	if err != nil {
		return "gone"
	}
	return strings.TrimSpace(string(state))
}

// Machines meet by name, and each gets what the other brought.
func TestExchange(t *testing.T) {
	l, ctx := open(t)
	for i := range 3 {
		theirs, err := l.Exchange(ctx, "number", fmt.Sprint(l.Host()*10+i))
		must(t, err)
		if want := fmt.Sprint(l.Peer()*10 + i); theirs != want {
			t.Errorf("the other brought %q, want %q", theirs, want)
		}
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := l.QMP(ctx, "no-such-command", nil); err == nil {
		t.Error("the emulator takes any command")
	}
	if err := l.Barrier(short, fmt.Sprint("alone", l.Host())); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a barrier that nobody comes to: %v", err)
	}
	must(t, l.Barrier(ctx, "end"))
}

// Each fault stops a rail, is seen by this machine's port or is not, and is mended.
func TestFaults(t *testing.T) {
	l, ctx := open(t)
	if l.Host() == 2 {
		echo(t)
		must(t, l.Barrier(ctx, "begin"), l.Barrier(ctx, "end"))
		return
	}
	must(t, l.Barrier(ctx, "begin"))
	for _, f := range []struct {
		name        string
		rail        int
		fault, mend func(context.Context, int) error
		port        string // of this machine, with the fault
	}{
		{"cut", 0, l.Cut, l.Splice, "4: ACTIVE"},
		{"cut from here", 0, func(ctx context.Context, r int) error { return l.CutFrom(ctx, r, 1) }, l.Splice, "4: ACTIVE"},
		{"cut to here", 1, func(ctx context.Context, r int) error { return l.CutFrom(ctx, r, 2) }, l.Splice, "4: ACTIVE"},
		{"all lost", 1, func(ctx context.Context, r int) error { return l.Netem(ctx, r, guest.Netem{LossPercent: 100}) }, l.Mend, "4: ACTIVE"},
		{"link down", 2, l.LinkDown, l.LinkUp, "1: DOWN"},
		{"carrier lost", 3, l.CarrierLost, l.CarrierBack, "1: DOWN"},
		{"address removed", 0, l.RemoveAddress, l.AddAddress, "4: ACTIVE"},
		{"device removed", 1, l.RemoveDevice, l.Rescan, "gone"},
		{"unplugged", 2, l.Unplug, l.Plug, "gone"},
	} {
		if _, ok := answered(t, l, f.rail, 5*time.Second); !ok {
			t.Fatalf("%s: rail %d does not carry anything before", f.name, f.rail)
		}
		must(t, f.fault(ctx, f.rail))
		if _, ok := answered(t, l, f.rail, 300*time.Millisecond); ok {
			t.Errorf("%s: rail %d still carries", f.name, f.rail)
		}
		if got := portState(f.rail); got != f.port {
			t.Errorf("%s: the port is %s, want %s", f.name, got, f.port)
		}
		must(t, f.mend(ctx, f.rail))
		if _, ok := answered(t, l, f.rail, 5*time.Second); !ok {
			t.Errorf("%s: rail %d does not carry anything after", f.name, f.rail)
		}
		if got := portState(f.rail); got != "4: ACTIVE" {
			t.Errorf("%s: the port is %s after", f.name, got)
		}
	}
	must(t, l.Barrier(ctx, "end"))
}

// The RDMA device goes alone, and comes back.
func TestRDMADevice(t *testing.T) {
	l, ctx := open(t)
	must(t, l.RemoveRDMA(ctx, 3))
	if exists("/sys/class/infiniband/rxe3") || !exists("/sys/class/net/rail3") {
		t.Error("rxe3 is still there, or rail3 is not")
	}
	must(t, l.AddRDMA(ctx, 3))
	if got := portState(3); got != "4: ACTIVE" {
		t.Errorf("the port is %s", got)
	}
}

// A shaped rail carries what it was given; a delay is a delay.
func TestShape(t *testing.T) {
	l, ctx := open(t)
	const size, rate = 2 << 20, 20_000_000
	if l.Host() == 2 {
		echo(t)
		ln, err := net.Listen("tcp4", net.JoinHostPort(l.Addr(2, 0), "7008"))
		must(t, err, l.Barrier(ctx, "begin"))
		defer ln.Close()
		c, err := ln.Accept()
		must(t, err)
		defer c.Close()
		start := time.Now()
		n, err := io.Copy(io.Discard, c)
		took := time.Since(start)
		must(t, err, l.Barrier(ctx, "end"))
		got := float64(n) * 8 / took.Seconds()
		t.Logf("%d bytes at %.1f of %.1f Mbit/s", n, got/1e6, rate/1e6)
		if n != size || got > 1.2*rate {
			t.Errorf("%d bytes of %d, %.1f Mbit/s of %.1f", n, size, got/1e6, rate/1e6)
		}
		return
	}
	must(t, l.Shape(ctx, 0, rate), l.Barrier(ctx, "begin"))
	c, err := net.Dial("tcp4", net.JoinHostPort(l.Addr(2, 0), "7008"))
	must(t, err)
	_, err = c.Write(make([]byte, size))
	must(t, err, c.Close(), l.Netem(ctx, 0, guest.Netem{Delay: 60 * time.Millisecond}))
	if rtt, ok := answered(t, l, 0, 5*time.Second); !ok || rtt < 60*time.Millisecond {
		t.Errorf("answered %v in %v, with a delay of 60 ms", ok, rtt)
	}
	must(t, l.Barrier(ctx, "end"))
}

// What others measure with works here.
func TestPerftest(t *testing.T) {
	l, ctx := open(t)
	args := []string{"-d", vmlab.RDMADev(0), "-x", "1", "-s", "65536", "-n", "50"}
	cmd := exec.CommandContext(ctx, "ib_write_bw", args...)
	var out bytes.Buffer
	if l.Host() == 2 {
		cmd.Stdout, cmd.Stderr = &out, &out
		must(t, cmd.Start(), listening(ctx, 18515), l.Barrier(ctx, "listening"))
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, out.Bytes())
		}
		return
	}
	must(t, l.Barrier(ctx, "listening"))
	text, err := exec.CommandContext(ctx, "ib_write_bw", append(args, l.Addr(2, vmlab.ManagementRail))...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	t.Log(strings.Join(lines[max(0, len(lines)-3):], "\n"))
}

// listening waits until something listens on a TCP port.
func listening(ctx context.Context, port int) error {
	want := fmt.Sprintf(":%04X", port)
	for ctx.Err() == nil {
		for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(data)) {
				if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], want) {
					return nil
				}
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}
