package lanes

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// flood sends over a lane for so long and says how many bytes came through. Reads
// and writes end soon after the time is over, also where nothing moves.
func flood(lane int, port uint16, d time.Duration) (int64, error) {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(nearAddr(lane), 0))}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c, err := dialer.DialContext(ctx, "tcp4", netip.AddrPortFrom(farAddr(lane), port).String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(d))
	buffer := make([]byte, 128<<10)
	for err == nil {
		_, err = c.Write(buffer)
	}
	// What is in the socket's buffer still goes out.
	c.SetDeadline(time.Now().Add(time.Minute))
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var n int64
	_, err = fmt.Fscan(c, &n)
	return n, err
}

// The lab is what it says: each lane carries its rate, alone and beside others,
// goes down, falls silent and comes back.
func TestLab(t *testing.T) {
	if testing.Short() {
		t.Skip("rates mean nothing beside the race detector, which .ci/run has on with -short")
	}
	l := newLab(t, 200, 400)
	at := netip.MustParseAddrPort(l.far.ask(ask{Do: "sink"}).Address)
	rates := func(d time.Duration) (out [2]float64) {
		var all sync.WaitGroup
		for i := range out {
			all.Go(func() {
				start := time.Now()
				n, err := flood(i, at.Port(), d)
				if err != nil {
					t.Errorf("lane %d: %v", i, err)
				}
				out[i] = float64(n) / time.Since(start).Seconds()
			})
		}
		all.Wait()
		return out
	}
	got := rates(time.Second)
	for i, mbit := range []int{200, 400} {
		share := got[i] / payload(mbit)
		t.Logf("lane %d: %.1f MB/s, %.3f of what %d Mbit/s carry", i, got[i]/1e6, share, mbit)
		if share < goal(0.9, 0.5) || share > 1.1 {
			t.Errorf("lane %d carries %.3f of its rate", i, share)
		}
	}
	l.setRate(0, 50)
	if got := rates(500 * time.Millisecond); got[0] > payload(50)*1.5 || got[1] < payload(400)*goal(0.7, 0.4) {
		t.Errorf("lane 0 at 50 Mbit/s carries %.1f MB/s, lane 1 %.1f", got[0]/1e6, got[1]/1e6)
	}
	l.setRate(0, 200)
	before, _ := l.counters()
	for _, fault := range []struct {
		name      string
		make, end func(int)
	}{{"down", l.down, l.up}, {"silent", l.silence, l.heal}} {
		fault.make(0)
		if n, err := flood(0, at.Port(), 300*time.Millisecond); err == nil {
			t.Errorf("a lane that is %s carried %d bytes", fault.name, n)
		}
		if n, err := flood(1, at.Port(), 200*time.Millisecond); err != nil || n < 1<<20 {
			t.Errorf("lane 1 carried %d bytes while lane 0 was %s: %v", n, fault.name, err)
		}
		fault.end(0)
		// The kernel may take a second to see a link that is up again, and more to ask
		// for its neighbour once more.
		n, err := flood(0, at.Port(), 700*time.Millisecond)
		for end := time.Now().Add(time.Minute); (err != nil || n < 1<<20) && time.Now().Before(end); {
			n, err = flood(0, at.Port(), 700*time.Millisecond)
		}
		if err != nil || n < 1<<20 {
			t.Errorf("lane 0 carried %d bytes after it was %s: %v", n, fault.name, err)
		}
	}
	after, _ := l.counters()
	if after[1]-before[1] < 4<<20 {
		t.Errorf("lane 1 counts %d bytes", after[1]-before[1])
	}
}
