package lane

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/enginetest"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/probe"
)

// two are two engines of this process.
type two struct {
	t              *testing.T
	server, client *engine.Engine
	lane           Lane
}

func (x *two) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func open(t *testing.T, bytes int64, server, client []engine.TransportFactory) *two {
	t.Helper()
	x := &two{t: t}
	var err error
	x.server, err = engine.New(t.Context(), engine.Options{Name: "server", Transports: server})
	x.must(err)
	t.Cleanup(func() { x.server.Close() })
	_, err = x.server.Alloc(bytes, engine.RegionOptions{Name: "r", Grant: memory.PeerRead | memory.PeerWrite})
	x.must(err)
	x.client, err = engine.New(t.Context(), engine.Options{Name: "client", Transports: client})
	x.must(err)
	t.Cleanup(func() { x.client.Close() })
	x.lane.Peer, err = x.client.Open(t.Context(), x.server.Addrs()[0].String())
	x.must(err)
	x.lane.Local, err = x.client.Alloc(bytes, engine.RegionOptions{})
	x.must(err)
	x.lane.Remote, err = x.lane.Peer.Region(t.Context(), "r")
	x.must(err)
	return x
}

// only restricts the client to one lane.
func (x *two) only(transport string, from, to topo.ID) {
	x.t.Helper()
	var err error
	x.lane.Transport = transport
	x.lane.Name, err = Isolate(x.client, x.lane.Peer, x.lane.Local, x.lane.Remote, transport, from, to)
	x.must(err)
}

func quick() probe.Spec {
	return probe.Spec{Warmup: 10 * time.Millisecond, SampleTime: 10 * time.Millisecond, MinSamples: 3, MaxSamples: 5, CI: 0.025,
		SizesBytes: []int64{4096, 64 << 10}, LatencySamples: 50, PairTime: 20 * time.Second}
}

func both() []engine.TransportFactory { return []engine.TransportFactory{engine.SHM(), engine.TCP()} }

// Every size is measured over the lane that was asked for, in both directions, and told.
func TestMeasure(t *testing.T) {
	for _, transport := range []string{"tcp", "shm"} {
		x := open(t, 4<<20, both(), both())
		x.only(transport, "", "")
		x.lane.CPU = self.CPU
		for _, bothWays := range []bool{false, true} {
			x.lane.BothWays = bothWays
			spec, told := quick(), 0
			before := moved(x.lane.Peer)
			m := Measure(t.Context(), x.lane, spec, func(s probe.Sample) { told++ })
			if m.Err != nil || len(m.Bandwidth) != 2 || m.Latency == nil || m.CPUSecondsPerGB == nil {
				t.Fatalf("%s, both ways %v: %+v", transport, bothWays, m)
			}
			total := int64(0)
			for i, b := range m.Bandwidth {
				n := len(b.SamplesBytesPerSec)
				if b.SizeBytes != spec.SizesBytes[i] || n < 3 || n > 5 || b.MeanBytesPerSec <= 0 || b.DurationNS < int64(n)*int64(spec.SampleTime) || b.Bytes%b.SizeBytes != 0 {
					t.Errorf("%s, both ways %v: %+v", transport, bothWays, b)
				}
				told -= n
				total += b.Bytes
			}
			if after := moved(x.lane.Peer); told != 0 || after[x.lane.Name]-before[x.lane.Name] < total {
				t.Errorf("%s, both ways %v: %d samples were not told; %d bytes of %d went over the lane", transport, bothWays, -told, after[x.lane.Name]-before[x.lane.Name], total)
			}
			l := m.Latency
			if l.RTT == nil || l.RTT.N != 50 || l.OneWay == nil || l.OneWay.P50 != l.RTT.P50/2 || l.SizeBytes != 8 || l.Load != nil || l.Copy != nil {
				t.Errorf("%s, both ways %v: %+v", transport, bothWays, l)
			}
		}
	}
}

func moved(p *engine.Peer) map[string]int64 {
	out := map[string]int64{}
	for _, l := range p.Lanes() {
		out[l.Lane] += l.Bytes
	}
	return out
}

// Between engines of several ports exactly the pair that is asked for is used.
func TestOnly(t *testing.T) {
	for _, restricted := range []bool{false, true} {
		for _, from := range []string{"a0", "a1"} {
			for _, to := range []string{"b0", "b1"} {
				n := enginetest.NewNetwork()
				server, client := n.RDMA(enginetest.Options{}, "b0", "b1"), n.RDMA(enginetest.Options{}, "a0", "a1")
				here, there := topo.PortID(from, 1), topo.PortID(to, 1)
				if restricted {
					server, client = engine.OnPort(server, there), engine.OnPort(client, here)
				}
				x := open(t, 1<<20, []engine.TransportFactory{server, engine.TCP()}, []engine.TransportFactory{client, engine.TCP()})
				x.only("rdma", here, there)
				spec := quick()
				spec.SizesBytes, spec.LatencySamples = []int64{64 << 10}, 1
				if m := Measure(t.Context(), x.lane, spec, nil); m.Err != nil {
					t.Fatal(m.Err)
				}
				lanes := 0
				for _, l := range x.lane.Peer.Lanes() {
					if l.Transport != "rdma" {
						continue
					}
					lanes++
					if ours := l.LocalPort == here && l.RemotePort == there; ours != (l.Bytes > 0) || ours && l.Lane != x.lane.Name {
						t.Errorf("%s to %s: %d bytes over %s", from, to, l.Bytes, l.Lane)
					}
				}
				if want := map[bool]int{false: 4, true: 1}[restricted]; lanes != want {
					t.Errorf("restricted %v: %d lanes", restricted, lanes)
				}
			}
		}
	}
}

// What cannot be measured says why.
func TestNoLane(t *testing.T) {
	n := enginetest.NewNetwork()
	apart := func(topo.ID, topo.ID) error { return errors.New("another subnet") }
	x := open(t, 1<<20, []engine.TransportFactory{n.RDMA(enginetest.Options{}, "b0"), engine.TCP()}, []engine.TransportFactory{n.RDMA(enginetest.Options{Reach: apart}, "a0"), engine.TCP()})
	for _, c := range []struct {
		transport string
		from      topo.ID
		is        error
		text      string
	}{
		{"rdma", "port:a0/1", engine.ErrNoLane, "another subnet"},
		{"tcp", "net:eth0", engine.ErrNoLane, "over tcp from net:eth0 to the peer's any port"},
		{"shm", "", engine.ErrUnavailable, "the engine was made without it"},
	} {
		if _, err := Isolate(x.client, x.lane.Peer, x.lane.Local, x.lane.Remote, c.transport, c.from, ""); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s from %q: %v", c.transport, c.from, err)
		}
	}
}

// Bytes that went another way are not said to be the lane's.
func TestWrongLane(t *testing.T) {
	x := open(t, 1<<20, both(), both())
	x.only("tcp", "", "")
	x.lane.Name = "eth0 > elsewhere"
	spec := quick()
	spec.SizesBytes = nil
	if m := Measure(t.Context(), x.lane, spec, nil); m.Err == nil || !strings.Contains(m.Err.Error(), "400 bytes went over 127.0.0.1 > ") && !strings.Contains(m.Err.Error(), "not only this lane was measured") {
		t.Errorf("%v", m.Err)
	}
}

// A peer that dies, and a user who stops it, leave what was measured until then.
func TestEnded(t *testing.T) {
	for name, end := range map[string]func(x *two, cancel func()){
		"interrupted": func(_ *two, cancel func()) { cancel() },
		"peer dies":   func(x *two, _ func()) { go x.server.Close() },
	} {
		n := enginetest.NewNetwork()
		slow := enginetest.Options{BytesPerSec: 50e6}
		x := open(t, 4<<20, []engine.TransportFactory{n.RDMA(slow, "b0"), engine.TCP()}, []engine.TransportFactory{n.RDMA(slow, "a0"), engine.TCP()})
		x.only("rdma", "", "")
		spec := quick()
		spec.MinSamples, spec.MaxSamples, spec.LatencySamples, spec.CI = 10000, 10000, 0, 0
		ctx, cancel := context.WithCancel(t.Context())
		var told atomic.Int64
		m := Measure(ctx, x.lane, spec, func(probe.Sample) {
			if told.Add(1) == 3 {
				end(x, cancel)
			}
		})
		cancel()
		stopped := map[string]string{"interrupted": probe.StoppedInterrupted, "peer dies": probe.StoppedError}[name]
		if m.Err == nil || len(m.Bandwidth) != 1 || len(m.Bandwidth[0].SamplesBytesPerSec) < 3 || m.Bandwidth[0].Stopped != stopped {
			t.Errorf("%s: %+v", name, m)
		}
		if name == "interrupted" && !errors.Is(m.Err, context.Canceled) {
			t.Errorf("%s: %v", name, m.Err)
		}
		if want := map[string]probe.Cause{"peer dies": probe.CauseMove}[name]; probe.CauseOf(m.Err) != want {
			t.Errorf("%s: %v is about %q", name, m.Err, probe.CauseOf(m.Err))
		}
	}
}

// The time for a pair holds for all sizes and round trips together, and each has its part.
func TestPairTime(t *testing.T) {
	n := enginetest.NewNetwork()
	slow := enginetest.Options{BytesPerSec: 20e6, Latency: time.Millisecond}
	x := open(t, 4<<20, []engine.TransportFactory{n.RDMA(slow, "b0")}, []engine.TransportFactory{n.RDMA(slow, "a0")})
	x.only("rdma", "", "")
	spec := quick()
	spec.MinSamples, spec.MaxSamples, spec.LatencySamples = 10000, 10000, 10000
	var m probe.Measurement
	for spec.PairTime = 600 * time.Millisecond; ; spec.PairTime *= 4 { // more on a machine that stood still for that long
		began := time.Now()
		m = Measure(t.Context(), x.lane, spec, nil)
		took := time.Since(began)
		if m.Err != nil || len(m.Bandwidth) != 2 || m.Bandwidth[0].Stopped != probe.StoppedTime || m.Bandwidth[1].Stopped != probe.StoppedTime || m.Latency == nil || m.Latency.RTT.N >= 10000 {
			t.Fatalf("%+v", m)
		}
		if len(m.Bandwidth[0].SamplesBytesPerSec) > 0 && len(m.Bandwidth[1].SamplesBytesPerSec) > 0 && took < 10*spec.PairTime {
			break
		}
		if spec.PairTime > 30*time.Second {
			t.Fatalf("it took %v: %+v", took, m)
		}
	}
	if !strings.Contains(strings.Join(m.Notes, "\n"), "of 10000 round trips were timed") {
		t.Errorf("notes %q", m.Notes)
	}
}

// A rate limit holds, also where one batch would be more than what it allows.
func TestRateLimit(t *testing.T) {
	x := open(t, 4<<20, both(), both())
	x.only("shm", "", "")
	spec := quick()
	spec.SizesBytes, spec.LatencySamples, spec.RateLimit, spec.SampleTime = []int64{4096, 256 << 10}, 0, 10e6, 50*time.Millisecond
	m := Measure(t.Context(), x.lane, spec, nil)
	if m.Err != nil {
		t.Fatal(m.Err)
	}
	for _, b := range m.Bandwidth {
		if rate := float64(b.Bytes) / (float64(b.DurationNS) / 1e9); rate > 1.3*10e6 {
			t.Errorf("ops of %d bytes: %.0f bytes/s", b.SizeBytes, rate)
		}
	}
}

// What does not fit is refused before anything moves.
func TestRefused(t *testing.T) {
	x := open(t, 1<<20, both(), both())
	x.only("shm", "", "")
	for want, change := range map[string]func(*Lane, *probe.Spec){
		"2097152 bytes of memory are needed at each end": func(_ *Lane, s *probe.Spec) { s.SizesBytes = []int64{2 << 20} },
		"1310720 bytes of memory are needed at each end": func(l *Lane, s *probe.Spec) { l.BothWays, s.SizesBytes = true, []int64{640 << 10} },
	} {
		l, spec := x.lane, quick()
		change(&l, &spec)
		if m := Measure(t.Context(), l, spec, nil); m.Err == nil || !strings.Contains(m.Err.Error(), want) || len(m.Bandwidth) != 0 || probe.CauseOf(m.Err) != "" {
			t.Errorf("%s: %+v", want, m)
		}
	}
	if b := moved(x.lane.Peer)[x.lane.Name]; b != 0 {
		t.Errorf("%d bytes moved", b)
	}
}

// Ops lie inside both regions, those of different batches in flight apart where there is
// room, and neighbours are never in order on both sides, so that they stay ops of their size.
func TestPlaces(t *testing.T) {
	x := open(t, 1<<20, both(), both())
	rapid.Check(t, func(t *rapid.T) {
		ways := rapid.IntRange(1, 2).Draw(t, "ways")
		size := rapid.Int64Range(1, 1<<20/int64(ways)).Draw(t, "size")
		l := x.lane
		l.BothWays = ways == 2
		spec := quick()
		spec.RateLimit = rapid.SampledFrom([]int64{0, 1, 1e6, 1e12}).Draw(t, "limit")
		r := run{Lane: l, spec: &spec}
		batch := r.batch(size, ways)
		if batch < 1 || batch > batchOps {
			t.Fatalf("%d ops", batch)
		}
		for w := range inFlight * ways {
			wk := r.worker(w, size, batch, inFlight*ways, engine.Write)
			wk.ops = make([]engine.Op, batch)
			var last engine.Op
			for range 3 {
				for i, op := range wk.next() {
					if op.Local.Offset < 0 || op.Local.Offset+size > 1<<20 || op.Remote.Offset < 0 || op.Remote.Offset+size > 1<<20 || op.Local.Length != size {
						t.Fatalf("%+v", op)
					}
					if i > 0 && op.Local.Offset == last.Local.Offset+size && op.Remote.Offset == last.Remote.Offset+size {
						t.Fatalf("ops %+v and %+v are one", last, op)
					}
					last = op
				}
			}
			if part := int64(1<<20) / int64(inFlight*ways); size <= part && (wk.from != int64(w)*part || wk.slots < batch) {
				t.Fatalf("worker %d of ops of %d bytes: from %d, %d slots for %d ops", w, size, wk.from, wk.slots, batch)
			}
		}
	})
}

// A lane over which nothing comes is an error in time, not a wait for the engine's own limit.
func TestStalled(t *testing.T) {
	stallSoon(t)
	n := enginetest.NewNetwork()
	still := enginetest.Options{Latency: time.Minute}
	x := open(t, 1<<20, []engine.TransportFactory{n.RDMA(still, "b0")}, []engine.TransportFactory{n.RDMA(still, "a0")})
	x.only("rdma", "", "")
	for _, latency := range []int{0, 1} {
		spec := quick()
		spec.PairTime, spec.LatencySamples = 50*time.Millisecond, latency
		if m := Measure(t.Context(), x.lane, spec, nil); !errors.Is(m.Err, ErrStalled) || probe.CauseOf(m.Err) != probe.CauseMove {
			t.Errorf("%+v", m)
		}
	}
}
