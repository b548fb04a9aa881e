package state_test

import (
	"slices"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/tui/internal/state"
)

func lane(peer, name string, bytes, retries int64) engine.LaneStats {
	return engine.LaneStats{Peer: peer, Lane: name, Bytes: bytes, Retries: retries}
}

func answer(at int64, e record.Engine) *record.Record {
	return &record.Record{AtNS: at, Source: agent, Engine: &e}
}

func TestLanesFollowTheirNames(t *testing.T) {
	s := state.New(state.Options{})
	s.Apply(answer(0, record.Engine{Stats: engine.Stats{Lanes: []engine.LaneStats{lane("a", "x", 100, 7), lane("b", "x", 0, 0)}}}))
	// Another order, one lane more, the same name twice.
	s.Apply(answer(second, record.Engine{Stats: engine.Stats{Lanes: []engine.LaneStats{lane("b", "x", 50, 1), lane("a", "x", 300, 9), lane("a", "x", 1e6, 0), lane("c", "x", 5, 5)}}}))
	s.Apply(answer(3*second, record.Engine{Stats: engine.Stats{Lanes: []engine.LaneStats{lane("b", "x", 40, 3), lane("a", "x", 300, 9)}}})) // b has begun anew
	e := s.Engine(agent)
	var got []string
	for _, l := range e.Lanes {
		got = append(got, l.Peer+values(&l.Throughput))
	}
	if want := []string{"b[? 50 ?]", "a[? 200 0]"}; !slices.Equal(got, want) {
		t.Errorf("lanes %v, want %v", got, want)
	}
	if e.Lanes[0].Retried != 3 || e.Lanes[1].Retried != 2 {
		t.Errorf("sent again: %d and %d, want 3 and 2: what was before this dashboard does not count", e.Lanes[0].Retried, e.Lanes[1].Retried)
	}
	if e.Last.Lanes[0].Bytes != 40 || e.LastNS != 3*second {
		t.Errorf("%+v", e.Last)
	}
}

func TestServedConnections(t *testing.T) {
	conn := func(id uint64, peer string, read, written *int64) engine.ServedStats {
		return engine.ServedStats{Conn: id, Peer: peer, ReadBytes: read, WrittenBytes: written}
	}
	n := func(v int64) *int64 { return &v }
	s := state.New(state.Options{})
	s.Apply(answer(0, record.Engine{Stats: engine.Stats{Served: []engine.ServedStats{conn(1, "a", n(0), n(0)), conn(1, "b", n(5), n(5)), conn(2, "c", nil, nil)}}}))
	s.Apply(answer(second, record.Engine{Stats: engine.Stats{ServedReadBytes: 15, ServedWrittenBytes: 7,
		Served: []engine.ServedStats{conn(1, "b", n(10), n(7)), conn(1, "a", n(10), n(0)), conn(2, "c", nil, nil)},
	}}))
	e := s.Engine(agent)
	var got []string
	for _, c := range e.Served {
		got = append(got, c.Peer+values(&c.Throughput))
	}
	if want := []string{"b[? 7]", "a[? 10]", "c[? ?]"}; !slices.Equal(got, want) {
		t.Errorf("connections %v, want %v", got, want)
	}
	if r, w := values(&e.ReadBytesPerSec), values(&e.WrittenBytesPerSec); r != "[? 15]" || w != "[? 7]" {
		t.Errorf("read %s, written %s", r, w)
	}
}

// An agent that was started again has counters that mean nothing beside the old ones, also
// those that have caught up already.
func TestAgentStartedAgain(t *testing.T) {
	s := state.New(state.Options{})
	at := func(sec, batches, bytes int64, name string) *state.Engine {
		s.Apply(answer(sec*second, record.Engine{Stats: engine.Stats{Name: name, Batches: batches, ServedReadBytes: bytes, Lanes: []engine.LaneStats{lane("a", "x", bytes, bytes)}}}))
		return s.Engine(agent)
	}
	at(0, 10, 0, "n1")
	at(1, 11, 100, "n1")
	e := at(2, 1, 900, "n1")
	if got := values(&e.Lanes[0].Throughput); got != "[? 100 ?]" || e.Lanes[0].Retried != 100 {
		t.Errorf("lane %s, %d sent again", got, e.Lanes[0].Retried)
	}
	if got := values(&e.ReadBytesPerSec); got != "[? 100 ?]" {
		t.Errorf("read %s", got)
	}
	if got := values(&at(3, 1, 950, "n1").Lanes[0].Throughput); got != "[? 100 ? 50]" {
		t.Errorf("after it %s", got)
	}
	e = at(4, 2, 990, "n2")
	if got := values(&e.Lanes[0].Throughput); got != "[?]" || e.Lanes[0].Retried != 0 || len(s.Engines) != 1 {
		t.Errorf("another engine at the same address goes on with %s", got)
	}
}

// Of agents that say nothing the lanes stay, and what they carry is not known.
func TestSilentAgent(t *testing.T) {
	s := state.New(state.Options{})
	for at := range int64(4) {
		s.Apply(answer(at*second, record.Engine{Stats: engine.Stats{Lanes: []engine.LaneStats{lane("a", "x", at, 0)}}}))
	}
	s.Apply(&record.Record{AtNS: 5 * second, Source: agent, State: &record.SourceState{Status: record.StatusFailed, Detail: "connection refused"}})
	s.Tick(9 * second)
	l := s.Engine(agent).Lanes[0]
	if _, known := l.Throughput.Last(); known || l.Throughput.Len() != 4+6 {
		t.Errorf("history %s", values(&l.Throughput))
	}
	x, _ := s.SourceOf(agent)
	if x.Status != record.StatusFailed || x.Detail != "connection refused" {
		t.Errorf("source %+v", x)
	}
}
