package state_test

import (
	"fmt"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/tui/internal/state"
)

// news draws a record, of any kind and any time.
func news(hosts []*topo.Topology) *rapid.Generator[*record.Record] {
	return rapid.Custom(func(t *rapid.T) *record.Record {
		of := func(list ...string) string { return rapid.SampledFrom(list).Draw(t, "name") }
		few := func(most int) int { return rapid.IntRange(0, most).Draw(t, "n") }
		r := &record.Record{AtNS: rapid.OneOf(rapid.Int64Range(0, 300*second), rapid.Int64()).Draw(t, "at"),
			Source: of(record.SourceHost, record.SourceCounters, record.SourceProbe, agent, "agent b", "", fmt.Sprint("agent ", few(200)))}
		switch few(7) {
		case 0:
			r.Start = &record.Start{Host: of("live", "x")}
		case 1:
			r.Topology = rapid.SampledFrom(hosts).Draw(t, "host")
		case 2, 3:
			r.Counters = &counters.Sample{AtNS: r.AtNS}
			for range few(4) {
				p := port(topo.ID(of("net:eth0", "net:eth1", "port:a/1", fmt.Sprint("net:x", few(1<<20)))), rapid.Uint64().Draw(t, "sent"), uint64(few(5)))
				p.Errors = map[string]uint64{of("e", "f"): rapid.Uint64().Draw(t, "errors")}
				r.Counters.Ports = append(r.Counters.Ports, p)
				r.Counters.GPUs = append(r.Counters.GPUs, counters.GPU{ID: topo.GPUID(few(3)), UtilizationPercent: ptr(few(100)), NVLinkSentBytes: p.SentBytes})
				r.Counters.Links = append(r.Counters.Links, counters.Link{ID: p.ID})
			}
		case 4:
			r.Engine = &record.Engine{Stats: engine.Stats{Name: of("n1", "n2"), Batches: rapid.Int64().Draw(t, "batches"), ServedReadBytes: rapid.Int64().Draw(t, "read")}}
			for range few(4) {
				r.Engine.Lanes = append(r.Engine.Lanes, lane(of("a", "b"), of("x", "y"), rapid.Int64().Draw(t, "bytes"), rapid.Int64().Draw(t, "retries")))
				r.Engine.Served = append(r.Engine.Served, engine.ServedStats{Conn: uint64(few(2)), ReadBytes: ptr(int64(few(9))), WrittenBytes: ptr(rapid.Int64().Draw(t, "written"))})
			}
		case 5, 6:
			r.Probe = probeNews(t, of, few)
		case 7:
			r.State = &record.SourceState{Status: of(record.StatusOK, record.StatusWaiting, record.StatusFailed, record.StatusEnded, "odd"), Detail: of("", "why")}
		}
		return r
	})
}

func probeNews(t *rapid.T, of func(...string) string, few func(int) int) *probe.Event {
	e := &probe.Event{AtNS: rapid.Int64().Draw(t, "at"),
		Type: probe.EventType(of("start", "round", "sample", "result", "retest", "error", "end", "odd"))}
	pair := of("a", "b", "c", "d10", "d9")
	switch few(7) {
	case 0:
		e.Start = &probe.Report{Plan: probe.Plan{Rounds: int(rapid.Int64().Draw(t, "rounds")), TimeNS: rapid.Int64().Draw(t, "time"), Pairs: few(3)}}
	case 1:
		e.Round = &probe.RoundEvent{Round: int(rapid.Int64().Draw(t, "round")), Rounds: few(4), Pairs: []string{pair}}
	case 2:
		e.Sample = &probe.SampleEvent{Pair: pair}
	case 3:
		e.Result = &probe.Result{Pair: probe.Pair{ID: pair}, Round: few(2), Verdict: probe.Verdict(of("PASS", "FAIL", "WAIVED", "odd"))}
	case 4:
		e.Retest = &probe.RetestEvent{Of: pair}
	case 5:
		e.Error = "why"
	case 6:
		e.End = &probe.Outcome{Notes: []string{"end"}}
	}
	return e
}

// bounded checks what grows.
func bounded(t *rapid.T, s *state.State) {
	lanes := 0
	for _, e := range s.Engines {
		lanes = max(lanes, len(e.Lanes), len(e.Served))
	}
	if len(s.Sources) > state.MaxSources || len(s.Engines) > state.MaxSources || len(s.Ports) > state.MaxPorts || len(s.GPUs) > state.MaxGPUs ||
		len(s.Events) > state.MaxEvents || lanes > state.MaxLanes {
		t.Fatalf("%d sources, %d engines, %d ports, %d GPUs, %d events, %d lanes", len(s.Sources), len(s.Engines), len(s.Ports), len(s.GPUs), len(s.Events), lanes)
	}
	for id, p := range s.Ports {
		if n := len(p.RecentErrors); n > 2 {
			t.Fatalf("%s: %d counters move", id, n)
		}
	}
}

// Whatever comes in, nothing grows without bound, and a clone and its original do not know
// of each other.
func TestAnyNews(t *testing.T) {
	hosts := []*topo.Topology{fixturetest.Topology(t, "cpu-2eth"), fixturetest.Topology(t, "lab-softrdma")}
	rapid.Check(t, func(t *rapid.T) {
		s := state.New(state.Options{})
		n := rapid.IntRange(1, 25).Draw(t, "n")
		all := rapid.SliceOfN(news(hosts), n, n).Draw(t, "news")
		at := rapid.IntRange(0, len(all)).Draw(t, "freeze after")
		step := func(s *state.State, r *record.Record) {
			before := s.Now
			s.Apply(r)
			s.Tick(s.Now + second/3)
			if s.Now < before {
				t.Fatalf("time went from %d to %d", before, s.Now)
			}
		}
		twin := state.New(state.Options{}) // what the clone is to stay like, and shares nothing with it
		for _, r := range all[:at] {
			step(s, r)
			step(twin, r)
			bounded(t, s)
		}
		frozen := s.Clone()
		if d := differ(s, frozen); d != "" {
			t.Fatalf("a clone differs (-original +clone):\n%s", d)
		}
		for _, r := range all[at:] {
			step(s, r)
		}
		if d := differ(twin, frozen); d != "" {
			t.Fatalf("the original went on, and the clone has changed:\n%s", d)
		}
		for _, r := range all[at:] {
			step(twin, r)
		}
		for _, r := range all {
			step(frozen, r)
			bounded(t, frozen)
		}
		if d := differ(twin, s); d != "" {
			t.Fatalf("a clone went on, and the original has changed:\n%s", d)
		}
	})
}

func TestHostileAgent(t *testing.T) {
	s := state.New(state.Options{})
	e := record.Engine{}
	for i := range 1500 {
		e.Lanes = append(e.Lanes, lane("a", fmt.Sprint(i), 0, 0))
		e.Served = append(e.Served, engine.ServedStats{Conn: uint64(i)})
	}
	for i := range 150 {
		r := answer(int64(i)*second, e)
		r.Source = fmt.Sprint(record.AgentPrefix, i%100)
		s.Apply(r)
	}
	if n := s.Engines[0]; len(s.Engines) != state.MaxSources || len(n.Lanes) != state.MaxLanes || len(n.Served) != state.MaxLanes {
		t.Errorf("%d engines, %d lanes, %d connections", len(s.Engines), len(n.Lanes), len(n.Served))
	}
}

// busy is what a host with 44 NICs and an agent say in a second.
type busy struct {
	ids []topo.ID
	gpu []topo.ID
}

func busyHost(t testing.TB) busy {
	b := busy{}
	host := fixturetest.Topology(t, "aws-p5-44nic-synthetic")
	for i := range host.Ports {
		b.ids = append(b.ids, host.Ports[i].ID)
	}
	for i := range host.GPUs {
		b.gpu = append(b.gpu, host.GPUs[i].ID)
	}
	if len(b.ids) < 44 {
		t.Fatalf("%d ports", len(b.ids))
	}
	return b
}

func (b *busy) counters(sec int64) *record.Record {
	r := sample(sec * second)
	c := r.Counters
	for i, id := range b.ids {
		p := port(id, uint64(sec)*uint64(i)*1e6, uint64(sec)*2e6)
		p.State = "ACTIVE"
		if i == 3 && sec%40 > 35 {
			p.State = "DOWN"
		}
		p.Errors = map[string]uint64{"rx_drops": uint64(sec) * uint64(i%2), "retrans_pkts": uint64(sec / 7)}
		c.Ports = append(c.Ports, p)
	}
	for _, id := range b.gpu {
		c.GPUs = append(c.GPUs, counters.GPU{ID: id, UtilizationPercent: ptr(int(sec % 100)), NVLinkSentBytes: ptr(uint64(sec) * 1e6)})
	}
	// A port that is another one every ten seconds.
	c.Ports = append(c.Ports, port(topo.NetdevID(fmt.Sprint("veth", sec/10)), 0, 0))
	return r
}

func (b *busy) engine(sec int64) *record.Record {
	e := record.Engine{Stats: engine.Stats{Batches: sec}}
	for i := range 40 {
		e.Lanes = append(e.Lanes, lane("peer", fmt.Sprint("lane", i), sec*1e6, sec))
		e.Served = append(e.Served, engine.ServedStats{Conn: uint64(sec/5)*100 + uint64(i), ReadBytes: ptr(sec)})
	}
	return answer(sec*second, e)
}

// Forty minutes of a busy host take no memory.
func TestMemoryIsFlat(t *testing.T) {
	b, s := busyHost(t), state.New(state.Options{})
	s.Apply(&record.Record{Source: record.SourceHost, Topology: fixturetest.Topology(t, "aws-p5-44nic-synthetic")})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var warm int64
	for sec := range int64(2400) {
		s.Apply(b.counters(sec))
		s.Apply(b.engine(sec))
		s.Tick(sec*second + second/2)
		if sec == 600 {
			warm = heap()
		}
	}
	// A history that is never dropped is 2 kB, and there would be 200 of ports and 14,000 of
	// connections; kept samples would be 30 MB.
	if grown := heap() - warm; grown > 256<<10 {
		t.Errorf("%d bytes more than after ten minutes", grown)
	}
	if n := len(s.Ports); n > len(b.ids)+8 {
		t.Errorf("%d ports of %d", n, len(b.ids))
	}
	if p := s.Ports[b.ids[3]]; p.Flaps < 50 || p.RecentErrors["rx_drops"] != 60 {
		t.Errorf("flaps %d, moving %v", p.Flaps, p.RecentErrors)
	}
	runtime.KeepAlive(s)
}

// A look at the counters of 44 NICs, as it comes every second.
func BenchmarkApplyCounters(b *testing.B) {
	host, s := busyHost(b), state.New(state.Options{})
	s.Apply(&record.Record{Source: record.SourceHost, Topology: fixturetest.Topology(b, "aws-p5-44nic-synthetic")})
	var looks [64]*record.Record
	sec := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		if i := sec % int64(len(looks)); i == 0 {
			b.StopTimer()
			for k := range looks {
				looks[k] = host.counters(sec + int64(k))
			}
			b.StartTimer()
		}
		s.Apply(looks[sec%int64(len(looks))])
		sec++
	}
}
