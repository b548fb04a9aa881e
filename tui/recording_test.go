package tui

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// tape is a recording in memory.
type tape struct {
	mu      sync.Mutex
	records []*record.Record
	fails   int           // the write that fails, counted from 1; 0 none
	hold    chan struct{} // writes wait for it; nil they do not
	closed  int
}

func (p *tape) Write(r *record.Record) error {
	if p.hold != nil {
		<-p.hold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, r)
	if len(p.records) == p.fails {
		return errors.New("no space left on device")
	}
	return nil
}

func (p *tape) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed++
	return nil
}

func (p *tape) Name() string { return "run.jsonl" }

func (p *tape) written() []*record.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records
}

func recordingTo(p *tape) Options {
	return Options{Record: func() (Recording, error) { return p, nil }}
}

// A recording that begins late replays to the same picture.
func TestRecordIsComplete(t *testing.T) {
	p := &tape{}
	b := open(t, recordingTo(p), "dgx-h100", 5, 160, 40)
	b.take(agentSays(6), agentSays(7), &record.Record{AtNS: 7 * second, Source: "agent http://gone", State: &record.SourceState{Status: record.StatusFailed, Detail: "refused"}})
	b.take(probed(b, &probe.Event{Type: probe.EventStart, Start: &probe.Report{Plan: probe.Plan{Pairs: 2, Rounds: 1}}}),
		probed(b, &probe.Event{Type: probe.EventRound, Round: &probe.RoundEvent{Round: 1, Rounds: 1, Pairs: []string{"a"}}}),
		probed(b, &probe.Event{Type: probe.EventResult, Result: &probe.Result{Pair: probe.Pair{ID: "a"}, Verdict: probe.Inconclusive}}))
	b.press("r")
	b.wait(func() bool { return b.rec != nil })
	b.has("REC")
	b.has("run.jsonl")
	x := b.live.Topology
	for k := 8; k <= 10; k++ {
		b.take(&record.Record{AtNS: int64(k) * second, Source: record.SourceCounters, Counters: sample(x, k)}, agentSays(k))
	}
	b.press("r")
	b.lacks("REC  ")
	b.wait(func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.closed == 1 })

	all := p.written()
	if all[0].Start == nil || all[0].Start.At != "2026-01-10T12:00:07Z" || all[0].Start.Host != "fixture:dgx-h100" {
		t.Errorf("the first record is %+v", all[0])
	}
	last := int64(0)
	for i, r := range all {
		if r.AtNS < last || i == 0 && r.AtNS != 0 || r.Schema != record.Schema {
			t.Errorf("record %d: at %d after %d, schema %q", i, r.AtNS, last, r.Schema)
		}
		last = r.AtNS
	}
	if last != 3*second {
		t.Errorf("the last record is at %d, want 3 s", last)
	}
	replay := open(t, Options{}, "", 0, 160, 40)
	replay.take(all...)
	for _, o := range []struct {
		what      string
		want, got any
	}{
		{"topology", b.live.Topology, replay.live.Topology},
		{"agents", len(b.live.Engines), len(replay.live.Engines)},
		{"ports", len(b.live.Ports), len(replay.live.Ports)},
		{"results of the probe", b.live.Probe.Report.Results, replay.live.Probe.Report.Results},
	} {
		if diff := cmp.Diff(o.want, o.got); diff != "" {
			t.Errorf("%s: -want +got\n%.500s", o.what, diff)
		}
	}
	for _, s := range b.live.Sources {
		i := 0
		for i < len(replay.live.Sources) && replay.live.Sources[i].Name != s.Name {
			i++
		}
		if i == len(replay.live.Sources) || replay.live.Sources[i].Status != s.Status {
			t.Errorf("%s: not in the replay, or not %s", s.Name, s.Status)
		}
	}
	for id, port := range b.live.Ports {
		other := replay.live.Ports[id]
		if diff := cmp.Diff(port.SentBytesPerSec, other.SentBytesPerSec); diff != "" {
			t.Errorf("%s: sent: -want +got\n%s", id, diff)
		}
	}
}

func probed(b *board, e *probe.Event) *record.Record {
	return &record.Record{Schema: record.Schema, AtNS: 7 * second, Source: record.SourceProbe, Probe: e}
}

// A disk that fails ends the recording, not the dashboard.
func TestRecordFails(t *testing.T) {
	p := &tape{fails: 3}
	b := open(t, recordingTo(p), "cpu-2eth", 3, 120, 30)
	b.press("r")
	b.wait(func() bool { return strings.Contains(b.shared.Message, "recording stopped: no space left on device") })
	if b.rec != nil || p.closed != 1 {
		t.Errorf("the recording goes on, or its file is open (%d)", p.closed)
	}
	b.lacks(" REC")
	b.take(agentSays(5))
	b.press("2")
	b.has("[2 matrix]")

	b = open(t, Options{Record: func() (Recording, error) { return nil, errors.New("permission denied") }}, "cpu-2eth", 1, 120, 30)
	b.press("r")
	b.wait(func() bool { return strings.Contains(b.shared.Message, "cannot record: permission denied") })
	b = open(t, Options{}, "cpu-2eth", 1, 120, 30)
	b.press("r")
	b.has("nowhere to write a recording")
}

// A disk that hangs holds nothing up: the recording ends when too much waits for it.
func TestRecordSlowDisk(t *testing.T) {
	p := &tape{hold: make(chan struct{})}
	b := open(t, recordingTo(p), "cpu-2eth", 1, 120, 30)
	b.press("r")
	b.wait(func() bool { return b.rec != nil })
	for k := range maxQueuedRecords + 10 {
		b.Update(news{{record: &record.Record{AtNS: int64(k) * second, Source: record.SourceCounters, State: &record.SourceState{Status: record.StatusOK}}}})
	}
	b.dirty = true
	b.has("recording stopped: the disk is slower than what comes in")
	close(p.hold)
}

// What was recorded is closed and whole when the dashboard ends; what went wrong is its
// error.
func TestRecordAtOnce(t *testing.T) {
	for _, fails := range []int{0, 2} {
		p := &tape{fails: fails}
		o := recordingTo(p)
		o.Feed, o.RecordAtOnce = feedOf(t, "cpu-2eth", 3), true
		x := start(t, o, 120, 30)
		if fails == 0 {
			x.see("REC", "run.jsonl")
		} else {
			x.see("recording stopped")
		}
		x.type_("q")
		err := x.wait()
		if p.closed != 1 {
			t.Errorf("closed %d times", p.closed)
		}
		if fails == 0 && err != nil || fails > 0 && (err == nil || !strings.Contains(err.Error(), "recording run.jsonl: no space left on device")) {
			t.Errorf("write %d fails: it ended with %v", fails, err)
		}
		if all := p.written(); fails == 0 && (len(all) < 6 || all[0].Start == nil) {
			t.Errorf("%d records", len(all))
		}
	}
}

func TestFrame(t *testing.T) {
	o := Options{Feed: feedOf(t, "dgx-h100", 3), Counters: true, ASCII: true}
	text, whole, err := Frame(t.Context(), o, 100, 30)
	if err != nil || !whole {
		t.Fatalf("whole %v, %v", whole, err)
	}
	if strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 30 || !strings.Contains(text, "mlx5_0") || !strings.Contains(text, "12:00:02Z") {
		t.Errorf("the frame is\n%s", text)
	}
	// A host without counters needs the topology only; one of which the counters are missing
	// is not whole.
	o = Options{Feed: &script{records: looked(fixturetest.Topology(t, "cpu-2eth"), "cpu-2eth", 0)}}
	if _, whole, err = Frame(t.Context(), o, 100, 30); err != nil || !whole {
		t.Errorf("without counters: whole %v, %v", whole, err)
	}
	for wait := 200 * time.Millisecond; ; wait *= 4 { // until it has drawn at least once in that time
		short, stop := context.WithTimeout(t.Context(), wait)
		o = Options{Feed: &script{records: looked(fixturetest.Topology(t, "cpu-2eth"), "cpu-2eth", 0)}, Counters: true}
		text, whole, err = Frame(short, o, 100, 30)
		stop()
		if err != nil || whole || wait > time.Minute {
			t.Errorf("counters are missing: whole %v, %v:\n%s", whole, err, text)
		}
		if t.Failed() || strings.Contains(text, "cpu-2eth") {
			break
		}
	}
	o = Options{Feed: &script{ends: true, err: errors.New("line 1: no record")}, Replay: "x"}
	if _, _, err = Frame(t.Context(), o, 100, 30); err == nil || !strings.Contains(err.Error(), "line 1: no record") {
		t.Errorf("a feed that fails: %v", err)
	}
}
