package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
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
		t.Fatalf("not over: %+v", e.core.Lanes(nil))
	}
	for _, n := range e.notes {
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
		wire, err := c.Cable(host, p)
		if err != nil {
			t.Fatal(err)
		}
		tx, rx = tx+c.Bytes(wire[0]), rx+c.Bytes(wire[1])
	}
	return tx, rx
}

// A transfer ends when pathsel says that its shares would: with one lane and with
// several, by write and by read.
func TestTransfersEndAsPredicted(t *testing.T) {
	for _, tt := range []struct {
		fixture  string
		src, dst pathsel.Location
	}{
		{"dgx-h100", "gpu:0", "gpu:0"},
		{"dgx-h100", "cpu:0", "cpu:0"},
		{"dgx-h100", "cpu:0", "cpu:1"},
		{"hgx-h20-8nic", "gpu:3", "cpu:0"},
		{"a10-2nic", "cpu:0", "cpu:0"},
		{"mi300x-8nic", "gpu:2", "gpu:5"},
		{"gb200-tray", "gpu:1", "gpu:2"},
		{"nvl72-synthetic", "gpu:0", "gpu:71"},
	} {
		for _, way := range []direction.Direction{direction.Write, direction.Read} {
			name := fmt.Sprintf("%s %s %s %s", tt.fixture, tt.src, tt.dst, way)
			k := kind(t, tt.fixture)
			f := Shape{Hosts: 2, Ports: k.DataPorts(), Rate: 400 * gb, Spines: 1}.fabric(false)
			c := build(t, Spec{Hosts: named(2, k), Fabric: f})
			e := engineOf(t, c, 0, EngineOptions{})
			const bytes = 4 << 30
			j := move(t, c, e, Work{Peer: 1, Local: tt.src, Remote: tt.dst, Kind: way, Bytes: bytes})
			checkWhole(t, j, bytes)
			set := e.routes[j.Route].set
			ns, _ := set.Finish(set.Predict(bytes))
			most := 1.04
			if !set.Basis.Sure() {
				most = 1.15 // lanes of unknown rate are tried before much is given to them
			}
			if want := float64(ns) / 1e9; took(j) < 0.96*want || took(j) > most*want {
				t.Errorf("%s: took %.2f ms, predicted %.2f ms over %d lanes", name, took(j)*1e3, want*1e3, set.Chosen)
			}
			tx, rx := portsOut(t, c, 0)
			if way == direction.Read {
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
	k := kind(t, "a10-2nic")
	f := Shape{Hosts: 2, Ports: k.DataPorts(), Rate: 400 * gb, Spines: 1}.fabric(false)
	for i := range f.Cables {
		if f.Cables[i].Port == "port:mlx5_1/1" {
			f.Cables[i].BytesPerSec = 6 * gb
		}
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
// again after it came back, whether it is our own or the peer's.
func TestNICDiesAndComesBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		host int
		kind direction.Direction
	}{{"our own", 0, direction.Write}, {"the peer's", 1, direction.Write}, {"the peer's, read", 1, direction.Read}} {
		c := dgx(t, 2, false, nil, 3)
		e := engineOf(t, c, 0, EngineOptions{Sched: sched.Config{SliceMaxBytes: 4 << 20}})
		const bytes = 200 << 30
		j := submit(t, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Kind: tt.kind, Bytes: bytes})
		port := e.routes[j.Route].set.Lanes[0].Local
		wire, err := c.Cable(tt.host, port)
		if err != nil {
			t.Fatal(err)
		}
		down(t, c, tt.host, []topo.ID{port}, 100*millisecond, 700*millisecond)
		carried := func() int64 { return c.Bytes(wire[0]) + c.Bytes(wire[1]) }
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
		healthy := float64(bytes) / float64(*e.routes[j.Route].set.BytesPerSec)
		if took(j) < healthy || took(j) > healthy+0.9 {
			t.Errorf("%s: took %.2f s, healthy %.2f s", tt.name, took(j), healthy)
		}
	}
}

// A host that dies ends its peers' jobs at their deadline, unsafe where a write
// may still land; one that comes back in time costs time only.
func TestHostDies(t *testing.T) {
	for _, back := range []bool{false, true} {
		c := dgx(t, 2, false, nil, 0)
		e := engineOf(t, c, 0, EngineOptions{})
		until := int64(0)
		if back {
			until = 400 * millisecond
		}
		down(t, c, 1, c.Kind(1).DataPorts(), 100*millisecond, until)
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

// A connection over which nothing gets through is given up after a while, no sooner.
func TestConnectionsAreGivenUp(t *testing.T) {
	for _, outage := range []int64{retryNS / 2, 2 * retryNS} {
		c := dgx(t, 2, false, nil, 0)
		e := engineOf(t, c, 0, EngineOptions{})
		until := 20*millisecond + outage
		down(t, c, 1, c.Kind(1).DataPorts(), 20*millisecond, until)
		j := move(t, c, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Bytes: 8 << 30})
		checkWhole(t, j, 8<<30)
		lost := false
		for _, u := range j.Result.Lanes {
			lost = lost || errors.Is(u.Err, errRetries)
		}
		if lost != (outage > retryNS) || j.Result.EndNS < until {
			t.Errorf("%d ms without answers: lost %v, ended at %d", outage/millisecond, lost, j.Result.EndNS)
		}
	}
}

// While answers do not get through no slice is done, though its bytes are there.
func TestAnswersAreNeeded(t *testing.T) {
	c := dgx(t, 2, false, nil, 0)
	e := engineOf(t, c, 0, EngineOptions{})
	w := Work{Peer: 1, Local: "gpu:0", Remote: "gpu:0", Bytes: 1 << 20}
	move(t, c, e, w)
	j := submit(t, e, w)
	// The last byte leaves, and before its answer is there the ports of the peer go down.
	if !c.RunUntil(c.Now()+second, func() bool { tx, _ := portsOut(t, c, 0); return tx == 2<<20 }) || e.Over(j) {
		t.Fatalf("over: %v", e.Over(j))
	}
	until := c.Now() + 30*millisecond
	down(t, c, 1, c.Kind(1).DataPorts(), 0, until)
	c.Run(until - millisecond)
	if e.Over(j) {
		t.Error("it is over without answers")
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
		c := dgx(t, 3, false, nil, 0)
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

// Whatever fails on the way, as long as it comes back: every byte arrives, and is
// counted once.
func TestNoFaultCostsData(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := dgx(t, 3, rapid.Bool().Draw(rt, "by host"), nil, rapid.Uint64Range(1, 1e6).Draw(rt, "seed"))
		var jobs []*sched.Job
		var engines []*Engine
		for h := range 3 {
			e := engineOf(t, c, h, EngineOptions{})
			for range rapid.IntRange(0, 3).Draw(rt, "jobs") {
				loc := rapid.SampledFrom(c.Kind(0).Host().Locations())
				w := Work{Peer: (h + rapid.IntRange(0, 2).Draw(rt, "peer")) % 3, Local: loc.Draw(rt, "local"), Remote: loc.Draw(rt, "remote"), Kind: rapid.SampledFrom([]direction.Direction{direction.Write, direction.Read}).Draw(rt, "kind"), Bytes: 512 << 20}
				jobs, engines = append(jobs, submit(t, e, w)), append(engines, e)
			}
		}
		for range rapid.IntRange(1, 6).Draw(rt, "faults") {
			host, ports := rapid.IntRange(0, 2).Draw(rt, "host"), c.Kind(0).DataPorts()
			if rapid.Bool().Draw(rt, "one") {
				ports = []topo.ID{rapid.SampledFrom(ports).Draw(rt, "port")}
			}
			from := rapid.Int64Range(0, 20*millisecond).Draw(rt, "from")
			down(t, c, host, ports, from, from+rapid.Int64Range(1, 2*second).Draw(rt, "for"))
		}
		for i, j := range jobs {
			if !c.RunUntil(c.Now()+600*second, func() bool { return engines[i].Over(j) }) {
				rt.Fatalf("job %d is not over: %+v", i, engines[i].core.Lanes(nil))
			}
			lanes := int64(0)
			for _, u := range j.Result.Lanes {
				lanes += u.Bytes
			}
			if j.Result.Err != nil || j.Result.Bytes != 512<<20 || lanes != 512<<20 {
				rt.Fatalf("job %d: %d bytes, lanes %d: %v", i, j.Result.Bytes, lanes, j.Result.Err)
			}
		}
		if c.active != 0 {
			rt.Fatalf("%d flows are left", c.active)
		}
	})
}

// Equal seeds give the same results to the nanosecond, other seeds others.
func TestDeterministic(t *testing.T) {
	run := func(seed uint64) string {
		c := dgx(t, 8, true, nil, seed)
		var engines []*Engine
		var jobs []*sched.Job
		for h := range 8 {
			e := engineOf(t, c, h, EngineOptions{})
			engines = append(engines, e)
			for g := range 4 {
				jobs = append(jobs, submit(t, e, Work{Peer: (h + 1 + g) % 8, Local: pathsel.Location(fmt.Sprintf("gpu:%d", g)), Remote: "cpu:1", Bytes: 256 << 20, Kind: direction.Direction(1 - g%2)}))
			}
		}
		down(t, c, 2, c.Kind(2).DataPorts()[1:2], 5*millisecond, 200*millisecond)
		var log strings.Builder
		for i, j := range jobs {
			finish(t, c, engines[i/4], j)
			checkWhole(t, j, 256<<20)
			fmt.Fprintf(&log, "%d %+v\n", i, j.Result)
		}
		for _, e := range engines {
			for _, n := range e.notes {
				fmt.Fprintln(&log, n.Code, n.Text)
			}
		}
		return log.String()
	}
	a := run(1)
	if b := run(1); a != b {
		t.Error("two runs of one seed differ")
	}
	if a == run(2) {
		t.Error("another seed gives the same results")
	}
}

// BenchmarkEngine is an engine that moves 4 GiB between two hosts over five lanes, in slices.
func BenchmarkEngine(b *testing.B) {
	c := dgx(b, 2, false, nil, 0)
	e := engineOf(b, c, 0, EngineOptions{})
	b.SetBytes(4 << 30)
	b.ReportAllocs()
	for b.Loop() {
		move(b, c, e, Work{Peer: 1, Local: "cpu:0", Remote: "cpu:0", Bytes: 4 << 30})
	}
}

// BenchmarkHosts is 64 engines, each of which writes 256 MiB to the next host, from all of its GPUs.
func BenchmarkHosts(b *testing.B) {
	for b.Loop() {
		c := dgx(b, 64, false, func(s *Shape) { s.HostsPerGroup, s.Spines = 32, 32 }, 1)
		over := 0
		for h := range 64 {
			e := engineOf(b, c, h, EngineOptions{})
			for g := range 8 {
				loc := pathsel.Location(fmt.Sprintf("gpu:%d", g))
				submit(b, e, Work{Peer: (h + 1) % 64, Local: loc, Remote: loc, Bytes: 32 << 20, Done: func(*sched.Job) { over++ }})
			}
		}
		if !c.RunUntil(100*second, func() bool { return over == 64*8 }) {
			b.Fatalf("%d jobs are over", over)
		}
	}
}
