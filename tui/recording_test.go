package tui

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
)

func recordingTo(f *file) Options { return Options{Create: f.creating} }

// written are the records of a recording.
func (f *file) written(t *testing.T) (out []*record.Record) {
	t.Helper()
	for in := record.NewReader(strings.NewReader(f.text())); ; {
		r, err := in.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
}

// A recording that begins late replays to the same picture.
func TestRecordIsComplete(t *testing.T) {
	p := &file{}
	b := open(t, recordingTo(p), "dgx-h100", 5, 160, 40)
	b.take(agentSays(6), agentSays(7), &record.Record{AtNS: 7 * second, Source: "agent http://gone", State: &record.SourceState{Status: record.StatusFailed, Detail: "refused"}})
	b.take(probed(b, &probe.Event{Type: probe.EventStart, Start: &probe.Report{Plan: probe.Plan{Pairs: 2, Rounds: 1}}}),
		probed(b, &probe.Event{Type: probe.EventRound, Round: &probe.RoundEvent{Round: 1, Rounds: 1, Pairs: []string{"a"}}}),
		probed(b, &probe.Event{Type: probe.EventResult, Result: &probe.Result{Pair: probe.Pair{ID: "a"}, Verdict: probe.Inconclusive}}))
	b.press("r")
	b.wait(func() bool { return b.rec != nil })
	b.has("REC")
	b.has("REC  topoctl-20260110-120007.jsonl")
	b.has("recording to /tmp/topoctl-20260110-120007.jsonl")
	x := b.live.Topology
	for k := 8; k <= 10; k++ {
		b.take(&record.Record{AtNS: int64(k) * second, Source: record.SourceCounters, Counters: sample(x, k)}, agentSays(k))
	}
	b.press("r")
	b.lacks("REC  ")
	b.wait(p.ended)

	all := p.written(t)
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

// probed is an event of a probe as a recording has it.
func probed(b *board, e *probe.Event) *record.Record {
	data, err := (&record.Record{AtNS: 7 * second, Source: record.SourceProbe, Probe: e}).Encode()
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := record.Decode(data)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// A disk that fails ends the recording, not the dashboard.
func TestRecordFails(t *testing.T) {
	p := &file{fails: 3}
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

	b = open(t, Options{Create: func(string) (io.WriteCloser, error) { return nil, os.ErrPermission }}, "cpu-2eth", 1, 120, 30)
	b.press("r")
	b.wait(func() bool { return strings.Contains(b.shared.Message, "cannot record: permission denied") })
	b = open(t, Options{}, "cpu-2eth", 1, 120, 30)
	b.press("r")
	b.has("nowhere to write a recording")
}

// A record that cannot be written as one is left out and told of; the rest is there.
func TestRecordLeavesOut(t *testing.T) {
	p := &file{}
	b := open(t, recordingTo(p), "cpu-2eth", 1, 120, 30)
	b.press("r")
	b.wait(func() bool { return b.rec != nil })
	n := len(b.latest)
	b.take(&record.Record{AtNS: second, Source: "x", State: &record.SourceState{Status: "odd"}}, &record.Record{AtNS: second, Source: "x", State: &record.SourceState{Status: record.StatusOK}})
	b.press("r")
	b.wait(func() bool { return strings.Contains(b.shared.Message, "recording stopped: 1 record left out") })
	if got := len(p.written(t)); got != n+1 {
		t.Errorf("%d records, want %d", got, n+1)
	}
}

// A disk that hangs holds nothing up: the recording ends when too much waits for it.
func TestRecordSlowDisk(t *testing.T) {
	p := &file{hold: make(chan struct{})}
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
		p := &file{fails: fails}
		o := recordingTo(p)
		o.Feed, o.Record = feedOf(t, "cpu-2eth", 3), "run.jsonl"
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
		if fails == 0 && err != nil || fails > 0 && (err == nil || !strings.Contains(err.Error(), "recording /tmp/run.jsonl: no space left on device")) {
			t.Errorf("write %d fails: it ended with %v", fails, err)
		}
		if all := p.written(t); fails == 0 && (len(all) < 6 || all[0].Start == nil) {
			t.Errorf("%d records", len(all))
		}
	}
}

func TestFrame(t *testing.T) {
	o := Options{Feed: feedOf(t, "dgx-h100", 3), ASCII: true}
	o.Feed.counters = true
	text, whole, err := Frame(t.Context(), o, 100, 30)
	if err != nil || !whole {
		t.Fatalf("whole %v, %v", whole, err)
	}
	if strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 30 || !strings.Contains(text, "mlx5_0") || !strings.Contains(text, "12:00:02Z") {
		t.Errorf("the frame is\n%s", text)
	}
	// A host without counters needs the topology only; one of which the counters are missing
	// is not whole.
	o = Options{Feed: feedOf(t, "cpu-2eth", 0)}
	if _, whole, err = Frame(t.Context(), o, 100, 30); err != nil || !whole {
		t.Errorf("without counters: whole %v, %v", whole, err)
	}
	for wait := 200 * time.Millisecond; ; wait *= 4 { // until it has drawn at least once in that time
		short, stop := context.WithTimeout(t.Context(), wait)
		o = Options{Feed: feedOf(t, "cpu-2eth", 0)}
		o.Feed.counters = true
		text, whole, err = Frame(short, o, 100, 30)
		stop()
		if err != nil || whole || wait > time.Minute {
			t.Errorf("counters are missing: whole %v, %v:\n%s", whole, err, text)
		}
		if t.Failed() || strings.Contains(text, "cpu-2eth") {
			break
		}
	}
	o = Options{Feed: &Feed{source: &script{ends: true, err: errors.New("line 1: no record")}, replay: "x"}}
	if _, _, err = Frame(t.Context(), o, 100, 30); err == nil || !strings.Contains(err.Error(), "line 1: no record") {
		t.Errorf("a feed that fails: %v", err)
	}
}
