package sim

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

func engineOf(t testing.TB, c *Cluster, host int, o EngineOptions) *Engine {
	t.Helper()
	e, err := c.Engine(host, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// move submits work and lets time pass until it is over.
func move(t testing.TB, c *Cluster, e *Engine, w Work) *sched.Job {
	t.Helper()
	j := submit(t, e, w)
	finish(t, c, e, j)
	return j
}

func submit(t testing.TB, e *Engine, w Work) *sched.Job {
	t.Helper()
	j, err := e.Submit(w)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func finish(t testing.TB, c *Cluster, e *Engine, j *sched.Job) {
	t.Helper()
	if !c.RunUntil(c.Now()+600*second, func() bool { return e.Over(j) }) {
		t.Fatalf("not over: %+v", e.Lanes())
	}
	for _, n := range e.Notes() {
		if n.Code == sched.Descheduled {
			t.Fatalf("the core was not stepped in time: %s", n.Text)
		}
	}
}

func took(j *sched.Job) float64 { return float64(j.Result.EndNS-j.Result.StartNS) / 1e9 }

// checkWhole: a job has ended well with every byte in place, and the ports of the
// two hosts have counted as many.
func checkWhole(t *testing.T, j *sched.Job, bytes int64) {
	t.Helper()
	lanes := int64(0)
	for _, u := range j.Result.Lanes {
		lanes += u.Bytes
	}
	if j.Result.Err != nil || j.Result.Bytes != bytes || lanes != bytes {
		t.Fatalf("%d of %d bytes, lanes %d: %v", j.Result.Bytes, bytes, lanes, j.Result.Err)
	}
}

func portsOut(t *testing.T, c *Cluster, host int) (tx, rx int64) {
	t.Helper()
	for _, p := range c.Kind(host).DataPorts() {
		x, err := c.PortCounters(host, p)
		if err != nil {
			t.Fatal(err)
		}
		tx, rx = tx+x.TxBytes, rx+x.RxBytes
	}
	return tx, rx
}

// A transfer ends when pathsel says that its shares would: with one lane and with
// several, by write and by read.
func TestTransfersEndAsPredicted(t *testing.T) {
	for _, tt := range []struct {
		fixture  string
		src, dst pathsel.Location
		overlay  topo.Overlay
	}{
		{"dgx-h100", "gpu:0", "gpu:0", nil},
		{"dgx-h100", "cpu:0", "cpu:0", nil},
		{"dgx-h100", "cpu:0", "cpu:1", nil},
		{"hgx-h20-8nic", "gpu:3", "cpu:0", nil},
		{"a10-2nic", "cpu:0", "cpu:0", topo.Overlay{"port:mlx5_1/1": 6 * gb}}, // 2 : 1
		{"mi300x-8nic", "gpu:2", "gpu:5", nil},
		{"gb200-tray", "gpu:1", "gpu:2", nil},
		{"nvl72-synthetic", "gpu:0", "gpu:71", nil},
	} {
		for _, read := range []bool{false, true} {
			name := fmt.Sprintf("%s %s %s read %v", tt.fixture, tt.src, tt.dst, read)
			k := kind(t, tt.fixture, KindOptions{Overlay: tt.overlay, Believed: tt.overlay})
			s := Shape{Hosts: 2, Ports: k.DataPorts(), PortBytesPerSec: 400 * gb, Spines: 1}
			f, err := s.RailOptimized()
			if err != nil {
				t.Fatal(err)
			}
			c := build(t, Spec{Hosts: named(2, k), Fabric: f})
			e := engineOf(t, c, 0, EngineOptions{})
			const bytes = 4 << 30
			j := move(t, c, e, Work{Peer: 1, Local: tt.src, Remote: tt.dst, Read: read, Bytes: bytes})
			checkWhole(t, j, bytes)
			set := e.LaneSet(j)
			ns, _ := set.Finish(set.Predict(bytes))
			most := 1.04
			if !set.Basis.Sure() {
				most = 1.15 // lanes of unknown rate are tried before much is given to them
			}
			if want := float64(ns) / 1e9; took(j) < 0.96*want || took(j) > most*want {
				t.Errorf("%s: took %.2f ms, predicted %.2f ms over %d lanes", name, took(j)*1e3, want*1e3, set.Chosen)
			}
			tx, rx := portsOut(t, c, 0)
			if read {
				tx, rx = rx, tx
			}
			if tx != bytes || rx != 0 {
				t.Errorf("%s: the ports of the source sent %d bytes and got %d", name, tx, rx)
			}
		}
	}
}

// Two lanes of which one is promised twice what it carries: the engine finds out
// and gives each its part.
func TestEngineFindsOut(t *testing.T) {
	k := kind(t, "a10-2nic", KindOptions{Overlay: topo.Overlay{"port:mlx5_1/1": 6 * gb}})
	s := Shape{Hosts: 2, Ports: k.DataPorts(), PortBytesPerSec: 400 * gb, Spines: 1}
	f, err := s.RailOptimized()
	if err != nil {
		t.Fatal(err)
	}
	c := build(t, Spec{Hosts: named(2, k), Fabric: f})
	e := engineOf(t, c, 0, EngineOptions{})
	j := move(t, c, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Bytes: 16 << 30})
	checkWhole(t, j, 16<<30)
	if want := float64(16<<30) / 18.5e9; took(j) > 1.05*want {
		t.Errorf("took %.1f ms, both lanes together %.1f ms", took(j)*1e3, want*1e3)
	}
}

// A NIC that dies in mid-transfer costs bandwidth, never data, and carries its part
// again after it came back; whether its host hears of it, or not, or it is the
// peer's.
func TestNICDiesAndComesBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		host int
		deaf bool
		read bool
	}{{"our own", 0, false, false}, {"our own, unheard", 0, true, false}, {"the peer's", 1, false, false}, {"the peer's, read", 1, false, true}} {
		c := dgx(t, 2, false, nil, Options{Seed: 3})
		e := engineOf(t, c, 0, EngineOptions{IgnoreLinkEvents: tt.deaf, Sched: sched.Config{SliceMaxBytes: 4 << 20}})
		const bytes = 200 << 30
		j := submit(t, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Read: tt.read, Bytes: bytes})
		port := e.LaneSet(j).Lanes[0].Local
		wire, err := c.Cable(tt.host, port)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Inject(Fault{Name: "nic", Links: wire, Effect: Effect{Down: true}, FromNS: 100 * millisecond, UntilNS: 700 * millisecond}); err != nil {
			t.Fatal(err)
		}
		carried := func() int64 {
			x, err := c.PortCounters(tt.host, port)
			if err != nil {
				t.Fatal(err)
			}
			return x.TxBytes + x.RxBytes
		}
		c.Run(100 * millisecond)
		before := carried()
		c.Run(699 * millisecond)
		during := carried()
		finish(t, c, e, j)
		checkWhole(t, j, bytes)
		if before == 0 || during != before || carried() <= during {
			t.Errorf("%s: it carried %d bytes, then %d, at the end %d", tt.name, before, during, carried())
		}
		if j.Result.Retries == 0 {
			t.Errorf("%s: nothing was sent again", tt.name)
		}
		x, err := c.PortCounters(tt.host, port)
		if err != nil || x.LinkDowned != 1 || x.Down {
			t.Errorf("%s: counters %+v, %v", tt.name, x, err)
		}
		healthy := float64(bytes) / float64(*e.LaneSet(j).BytesPerSec)
		if took(j) < healthy || took(j) > healthy+0.9 {
			t.Errorf("%s: took %.2f s, healthy %.2f s", tt.name, took(j), healthy)
		}
	}
}

// A host that dies ends its peers' jobs at their deadline, unsafe where a write
// may still land; one that comes back in time costs time only.
func TestHostDies(t *testing.T) {
	for _, back := range []bool{false, true} {
		c := dgx(t, 2, false, nil, Options{})
		e := engineOf(t, c, 0, EngineOptions{})
		all, err := c.HostLinks(1)
		if err != nil {
			t.Fatal(err)
		}
		f := Fault{Name: "host", Links: all, Effect: Effect{Down: true}, FromNS: 100 * millisecond}
		if back {
			f.UntilNS = 400 * millisecond
		}
		if err := c.Inject(f); err != nil {
			t.Fatal(err)
		}
		j := submit(t, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Bytes: 64 << 30, DeadlineNS: 5 * second})
		finish(t, c, e, j)
		if back {
			checkWhole(t, j, 64<<30)
			continue
		}
		if !errors.Is(j.Result.Err, sched.ErrUnsafe) || len(j.Result.Unsafe) == 0 || j.Result.EndNS > 6*second {
			t.Errorf("ended at %d: %v", j.Result.EndNS, j.Result.Err)
		}
	}
}

// Who gives a job up, or says that its peer is gone, ends it: unsafe while a write
// may still land, which it may not in a peer that was started again.
func TestJobsEndEarly(t *testing.T) {
	errUser := errors.New("no more")
	for _, tt := range []struct {
		name string
		down bool
		end  func(e *Engine, j *sched.Job)
		want error
		safe bool
	}{
		{"cancelled", false, func(e *Engine, j *sched.Job) { e.Cancel(j, errUser) }, errUser, true},
		{"cancelled, and the peer is cut off", true, func(e *Engine, j *sched.Job) { e.Cancel(j, errUser) }, sched.ErrUnsafe, false},
		{"the peer is gone", true, func(e *Engine, _ *sched.Job) { e.PeerGone(1, false) }, sched.ErrUnsafe, false},
		{"the peer was started again", true, func(e *Engine, _ *sched.Job) { e.PeerGone(1, true) }, errPeerGone, true},
	} {
		c := dgx(t, 2, false, nil, Options{})
		e := engineOf(t, c, 0, EngineOptions{})
		if tt.down {
			all := links(t)(c.HostLinks(1))
			inject(t, c, Fault{Name: "host", Links: all, Effect: Effect{Down: true}, FromNS: 10 * millisecond})
		}
		j := submit(t, e, Work{Peer: 1, Local: "gpu:0", Remote: "gpu:0", Bytes: 8 << 30})
		c.Run(20 * millisecond)
		tt.end(e, j)
		finish(t, c, e, j)
		if r := &j.Result; !errors.Is(r.Err, tt.want) || (len(r.Unsafe) == 0) != tt.safe || r.Bytes == 0 || r.Bytes >= 8<<30 || r.EndNS > second {
			t.Errorf("%s: ended at %d with %d bytes, unsafe %v: %v", tt.name, r.EndNS, r.Bytes, r.Unsafe, r.Err)
		}
	}
}

// A connection over which nothing gets through is given up after a while, no sooner.
func TestConnectionsAreGivenUp(t *testing.T) {
	for _, tt := range []struct {
		retry int64
		lost  bool
	}{{50 * millisecond, true}, {10 * second, false}} {
		c := dgx(t, 2, false, nil, Options{})
		e := engineOf(t, c, 0, EngineOptions{RetryNS: tt.retry})
		all, err := c.HostLinks(1)
		if err != nil {
			t.Fatal(err)
		}
		inject(t, c, Fault{Name: "host", Links: all, Effect: Effect{Down: true}, FromNS: 20 * millisecond, UntilNS: 320 * millisecond})
		j := move(t, c, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Bytes: 8 << 30})
		checkWhole(t, j, 8<<30)
		lost := false
		for _, u := range j.Result.Lanes {
			lost = lost || errors.Is(u.Err, errRetries)
		}
		if lost != tt.lost || j.Result.EndNS < 320*millisecond {
			t.Errorf("retry %d ms: lost %v, ended at %d", tt.retry/millisecond, lost, j.Result.EndNS)
		}
	}
}

// While answers do not get through no slice is done, though its bytes are there.
func TestAnswersAreNeeded(t *testing.T) {
	c := dgx(t, 2, false, nil, Options{})
	e := engineOf(t, c, 0, EngineOptions{})
	w := Work{Peer: 1, Local: "gpu:0", Remote: "gpu:0", Bytes: 1 << 20}
	move(t, c, e, w)
	var back []Link
	for _, p := range c.Kind(1).DataPorts() {
		back = append(back, links(t)(c.Cable(1, p))[0])
	}
	until := c.Now() + 30*millisecond
	inject(t, c, Fault{Name: "no answers", Links: back, Effect: Effect{Down: true}, UntilNS: until})
	j := submit(t, e, w)
	c.Run(until - millisecond)
	if tx, _ := portsOut(t, c, 0); tx != 2<<20 || e.Over(j) {
		t.Errorf("%d bytes have left, over: %v", tx, e.Over(j))
	}
	finish(t, c, e, j)
	checkWhole(t, j, 1<<20)
	if j.Result.EndNS < until || j.Result.EndNS > until+2*millisecond {
		t.Errorf("ended at %d, answers get through from %d", j.Result.EndNS, until)
	}
}

// Engines of several hosts share what is between them: two that send to one take
// twice as long, and both ends of the ports bound them.
func TestEnginesShare(t *testing.T) {
	alone, both := 0.0, 0.0
	for _, senders := range []int{1, 2} {
		c := dgx(t, 3, false, nil, Options{})
		var jobs []*sched.Job
		var engines []*Engine
		for h := range senders {
			e := engineOf(t, c, h, EngineOptions{})
			engines = append(engines, e)
			jobs = append(jobs, submit(t, e, Work{Peer: 2, Local: "gpu:0", Remote: "gpu:0", Bytes: 8 << 30}))
		}
		for i := range jobs {
			finish(t, c, engines[i], jobs[i])
			checkWhole(t, jobs[i], 8<<30)
		}
		if senders == 1 {
			alone = took(jobs[0])
			continue
		}
		both = (took(jobs[0]) + took(jobs[1])) / 2
	}
	if both < 1.9*alone || both > 2.1*alone {
		t.Errorf("one sender takes %.1f ms, two %.1f ms", alone*1e3, both*1e3)
	}
}

// What a connection's processor spends bounds what many small pieces get.
func TestCostsOfPieces(t *testing.T) {
	run := func(o EngineOptions) float64 {
		c := dgx(t, 2, false, nil, Options{})
		e := engineOf(t, c, 0, o)
		j := move(t, c, e, Work{Peer: 1, Local: "gpu:0", Remote: "gpu:0",
			Ops: []sched.Op{{Local: 1, Remote: 2, Bytes: 4096, Count: 100_000, LocalStride: 8192, RemoteStride: 8192}}})
		checkWhole(t, j, 4096*100_000)
		return took(j)
	}
	free, dear := run(EngineOptions{}), run(EngineOptions{SpanNS: 500})
	if free > 0.012 || math.Abs(dear-0.05) > 0.005 { // 400 MB at 50 GB/s; 100,000 pieces of 500 ns
		t.Errorf("without costs %.1f ms, with them %.1f ms", free*1e3, dear*1e3)
	}
	if capped := run(EngineOptions{ConnBytesPerSec: 10 * gb}); math.Abs(capped-0.041) > 0.004 {
		t.Errorf("at 10 GB/s for a connection %.1f ms", capped*1e3)
	}
}

// Whatever fails on the way, as long as it comes back: every byte arrives, and is
// counted once.
func TestNoFaultCostsData(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := dgx(t, 3, rapid.Bool().Draw(rt, "by host"), nil, Options{Seed: rapid.Uint64Range(1, 1e6).Draw(rt, "seed"), Jitter: 0.02})
		var jobs []*sched.Job
		var engines []*Engine
		for h := range 3 {
			e := engineOf(t, c, h, EngineOptions{IgnoreLinkEvents: rapid.Bool().Draw(rt, "deaf"), RetryNS: rapid.SampledFrom([]int64{0, 20 * millisecond}).Draw(rt, "retry")})
			for range rapid.IntRange(0, 3).Draw(rt, "jobs") {
				loc := rapid.SampledFrom(c.Kind(0).Host().Locations())
				w := Work{Peer: (h + rapid.IntRange(0, 2).Draw(rt, "peer")) % 3, Local: loc.Draw(rt, "local"), Remote: loc.Draw(rt, "remote"), Read: rapid.Bool().Draw(rt, "read"), Bytes: 512 << 20}
				jobs, engines = append(jobs, submit(t, e, w)), append(engines, e)
			}
		}
		for range rapid.IntRange(1, 6).Draw(rt, "faults") {
			var where []Link
			host, port := rapid.IntRange(0, 2).Draw(rt, "host"), rapid.SampledFrom(c.Kind(0).DataPorts()).Draw(rt, "port")
			switch rapid.IntRange(0, 2).Draw(rt, "where") {
			case 0:
				where = links(t)(c.Cable(host, port))[rapid.IntRange(0, 1).Draw(rt, "direction"):]
			case 1:
				where = links(t)(c.NIC(host, port))
			case 2:
				where = links(t)(c.HostLinks(host))
			}
			effect := rapid.SampledFrom([]Effect{{Down: true}, {Factor: 0.01}, {MostBytesPerSec: 1 * topo.MBPerSec}}).Draw(rt, "effect")
			if effect.Factor > 0 { // of links whose rate is known
				where = links(t)(c.Cable(host, port))
			}
			from := rapid.Int64Range(0, 20*millisecond).Draw(rt, "from")
			inject(t, c, Fault{Name: "f", Links: where, Effect: effect, FromNS: from, UntilNS: from + rapid.Int64Range(1, 2*second).Draw(rt, "for")})
		}
		for i, j := range jobs {
			if !c.RunUntil(c.Now()+600*second, func() bool { return engines[i].Over(j) }) {
				rt.Fatalf("job %d is not over: %+v", i, engines[i].Lanes())
			}
			lanes := int64(0)
			for _, u := range j.Result.Lanes {
				lanes += u.Bytes
			}
			if j.Result.Err != nil || j.Result.Bytes != 512<<20 || lanes != 512<<20 {
				rt.Fatalf("job %d: %d bytes, lanes %d: %v", i, j.Result.Bytes, lanes, j.Result.Err)
			}
		}
		if c.Active() != 0 {
			rt.Fatalf("%d flows are left", c.Active())
		}
	})
}

// Equal seeds give the same events to the byte, other seeds others.
func TestDeterministic(t *testing.T) {
	run := func(seed uint64) string {
		var log strings.Builder
		c := dgx(t, 8, true, nil, Options{Seed: seed, Jitter: 0.01, Trace: logTo(&log)})
		var engines []*Engine
		var jobs []*sched.Job
		for h := range 8 {
			e := engineOf(t, c, h, EngineOptions{})
			engines = append(engines, e)
			for g := range 4 {
				jobs = append(jobs, submit(t, e, Work{Peer: (h + 1 + g) % 8, Local: pathsel.Location(fmt.Sprintf("gpu:%d", g)), Remote: "cpu:1", Bytes: 256 << 20, Read: g%2 == 0}))
			}
		}
		nic, err := c.NIC(2, c.Kind(2).DataPorts()[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Inject(Fault{Name: "bad nic", Links: nic, Effect: Effect{Down: true}, FromNS: 5 * millisecond, UntilNS: 200 * millisecond}); err != nil {
			t.Fatal(err)
		}
		for i, j := range jobs {
			finish(t, c, engines[i/4], j)
			checkWhole(t, j, 256<<20)
		}
		c.Run(second)
		return log.String()
	}
	a := run(1)
	if b := run(1); a != b {
		t.Error("two runs of one seed differ")
	}
	if a == run(2) {
		t.Error("another seed gives the same events")
	}
	if strings.Count(a, "\n") < 1000 || !strings.Contains(a, "bad nic is over") {
		t.Errorf("the log has %d lines", strings.Count(a, "\n"))
	}
}
