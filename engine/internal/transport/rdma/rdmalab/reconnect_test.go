//go:build vmlab && linux && cgo

package rdma

import (
	"testing"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
)

// Connections that come and go leave nothing behind, on either machine: newDuo's end
// counts queue pairs, completion queues, memory regions, goroutines and files.
func TestReconnect(t *testing.T) {
	d := newDuo(t, Spec{Transports: []string{*over}, Rails: []int{0}, Bytes: 1 << 20})
	ctx := bounded(t)
	times := 40
	if *long {
		times = 1000
	}
	use := func(at int64) {
		p, err := d.engine.Open(ctx, d.peer.Name())
		if err != nil {
			t.Fatal(err)
		}
		to, err := p.Region(ctx, "data")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Write(ctx, d.mine.Span(at, 1000), to.At(at)); err != nil {
			t.Fatal(err)
		}
		copy(d.there[at:], d.here[at:at+1000])
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	use(0)
	here, err := countHeld(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var there Held
	mustAsk(t, "Held", Nothing{}, &there)
	began := time.Now()
	for i := range times {
		ctx = bounded(t)
		use(int64(i) * 1000)
	}
	took := time.Since(began)
	if left := here.left(); left != "" {
		t.Errorf("machine 1 has %s", left)
	}
	var left string
	mustAsk(t, "Left", there, &left)
	if left != "" {
		t.Errorf("machine 2 has %s", left)
	}
	t.Logf("%d reconnects in %v; %s: %v", times, took.Round(time.Millisecond), vmlab.RDMADev(0), here.Objects)
}
