package soak

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
)

// detour is TCP whose data connections go through proxies, in turn. Passive sides
// are as they are.
type detour struct {
	transport.Transport
	proxies   []*faulty.Proxy
	addresses []string // theirs
	mu        sync.Mutex
	next      int
}

func (d *detour) Unwrap() transport.Transport { return d.Transport }

func (d *detour) Dial(ctx context.Context, to transport.Dial) (transport.Conn, error) {
	d.mu.Lock()
	to.Remote.Address = d.addresses[d.next%len(d.addresses)]
	d.next++
	d.mu.Unlock()
	return d.Transport.Dial(ctx, to)
}

// onTCP are both ends of TCP; the first one's data takes the detour.
func onTCP(d *detour, around func(transport.Transport) transport.Transport) (a, b engine.TransportFactory) {
	a = &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		t, err := engine.TCP().(*transport.Factory).Make(env)
		if err != nil {
			return nil, err
		}
		d.Transport = t
		return around(d), nil
	}}
	return a, engine.TCP()
}

// start makes proxies in front of an engine, which end with the test.
func (d *detour) start(t *testing.T, engine string, n int) {
	t.Helper()
	for i := range n {
		p, err := faulty.Listen("127.0.0.1:0", engine, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		d.proxies, d.addresses = append(d.proxies, p), append(d.addresses, p.Address())
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Real connections through proxies that flip bits, delay, stand still and cut: the
// control connection goes through one, too. Checksums find each flipped bit.
func TestBadNetwork(t *testing.T) {
	d := &detour{}
	a, b := onTCP(d, func(t transport.Transport) transport.Transport { return t })
	w := newWorld(t, a, b, engine.CheckAlways)
	d.start(t, w.b.Addrs()[0].String(), 4)
	control := &detour{}
	control.start(t, w.b.Addrs()[0].String(), 1)
	w.open(control.proxies[0].Address())
	for _, p := range d.proxies {
		p.Update(func(up, down *faulty.Line) {
			up.CorruptEvery, down.CorruptEvery = 16<<20, 16<<20
			up.CorruptAfter, down.CorruptAfter = 2000, 2000 // the handshake has tests of its own
		})
	}
	stop := make(chan struct{})
	var trouble sync.WaitGroup
	trouble.Go(func() { disturb(d.proxies, control.proxies[0], stop) })
	w.run(4, int64(length(500, 2_000, 40_000)))
	close(stop)
	trouble.Wait()
	flipped := int64(0)
	for _, p := range d.proxies {
		flipped += p.Flipped()
	}
	t.Logf("%d bits were flipped", flipped)
	if flipped == 0 {
		t.Error("no bit was flipped")
	}
}

// disturb does something to one of the proxies every now and then.
func disturb(data []*faulty.Proxy, control *faulty.Proxy, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(3, 3))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		p := data[rng.IntN(len(data))]
		calm := func(up, down *faulty.Line) { up.Stall, up.Hold, up.Delay, down.Stall = false, false, 0, false }
		switch rng.IntN(6) {
		case 0:
			p.Cut()
		case 1:
			p.Update(func(up, _ *faulty.Line) { up.Stall = true })
		case 2:
			p.Update(func(_, down *faulty.Line) { down.Stall = true })
		case 3:
			p.Update(func(up, _ *faulty.Line) { up.Hold = true })
		case 4:
			p.Update(func(up, _ *faulty.Line) { up.Delay = 5 * time.Millisecond })
		case 5:
			if i%4 == 0 {
				control.Cut()
			}
		}
		select {
		case <-stop:
		case <-time.After(time.Duration(rng.IntN(300)) * time.Millisecond):
		}
		for _, p := range data {
			p.Update(calm)
		}
	}
}
