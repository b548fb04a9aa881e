package tui

import (
	"context"
	"maps"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
)

// latest is the last of what each source said: what a recording that begins now has to
// begin with.
type latest struct {
	start         *record.Record
	topology      *record.Record
	counters      *record.Record
	engines       map[string]*record.Record // by source
	states        map[string]*record.Record
	probeStart    *record.Record            // of the last probe: its start,
	probeResults  map[string]*record.Record // its results by pair,
	probeProgress *record.Record            // and its end, or the round it is in
}

// The most that is kept of sources and of a probe's results.
const (
	maxKeptSources = 64
	maxKeptResults = 1 << 14
)

func keepIn(m *map[string]*record.Record, key string, r *record.Record, most int) {
	if *m == nil {
		*m = map[string]*record.Record{}
	}
	if (*m)[key] != nil || len(*m) < most {
		(*m)[key] = r
	}
}

func (l *latest) keep(r *record.Record) {
	switch {
	case r.Start != nil:
		l.start = r
	case r.Topology != nil:
		l.topology = r
	case r.Counters != nil:
		l.counters = r
	case r.Engine != nil:
		keepIn(&l.engines, r.Source, r, maxKeptSources)
	case r.State != nil:
		keepIn(&l.states, r.Source, r, maxKeptSources)
	case r.Probe != nil:
		l.keepProbe(r)
	}
}

func (l *latest) keepProbe(r *record.Record) {
	switch e := r.Probe; e.Type {
	case probe.EventStart:
		l.probeStart, l.probeResults, l.probeProgress = r, nil, nil
	case probe.EventRound, probe.EventEnd:
		l.probeProgress = r
	case probe.EventResult:
		if e.Result != nil {
			keepIn(&l.probeResults, e.Result.ID, r, maxKeptResults)
		}
	}
}

// all is what is known, in an order in which it can be taken in.
func (l *latest) all() []*record.Record {
	out := []*record.Record{l.start, l.topology, l.counters}
	for _, m := range []map[string]*record.Record{l.states, l.engines} {
		for _, source := range slices.Sorted(maps.Keys(m)) {
			out = append(out, m[source])
		}
	}
	out = append(out, l.probeStart)
	for _, pair := range slices.Sorted(maps.Keys(l.probeResults)) {
		out = append(out, l.probeResults[pair])
	}
	out = append(out, l.probeProgress)
	return slices.DeleteFunc(out, func(r *record.Record) bool { return r == nil })
}

// recorder writes records in a goroutine of its own: a slow disk must not hold the
// dashboard up.
type recorder struct {
	to     Recording
	fromNS int64 // the time of the feed at which it began
	queue  chan *record.Record
	err    error // what it ended with; read it after the goroutine
}

const maxQueuedRecords = 4096

// toggleRecord begins a recording, or ends the one that runs.
func (m *model) toggleRecord() {
	switch {
	case m.rec != nil:
		m.endRecord("recorded: " + m.look.Safe(m.rec.to.Name()))
	case m.o.Record == nil || m.work == nil:
		m.say("there is nowhere to write a recording")
	default:
		m.work.background(func(context.Context) tea.Msg {
			to, err := m.o.Record()
			return answered(func(m *model) tea.Cmd {
				m.beginRecord(to, err)
				return nil
			})
		})
	}
}

func (m *model) beginRecord(to Recording, err error) {
	if err != nil {
		m.say("cannot record: " + m.look.Safe(err.Error()))
		return
	}
	first := m.latest.all()
	rec := &recorder{to: to, fromNS: m.now(), queue: make(chan *record.Record, len(first)+maxQueuedRecords)}
	if m.rec != nil {
		m.endRecord("")
	}
	m.rec = rec
	for _, r := range first {
		if r.Start != nil {
			r = startedAt(r, rec.fromNS)
		}
		m.record(r)
	}
	m.work.background(func(context.Context) tea.Msg {
		rec.write()
		return answered(func(m *model) tea.Cmd {
			if rec.err != nil {
				m.failedRecord(rec)
			}
			return nil
		})
	})
	m.say("recording to " + m.look.Safe(to.Name()))
}

// startedAt is a start with the time at which the recording began.
func startedAt(r *record.Record, fromNS int64) *record.Record {
	start := *r.Start
	if began, err := time.Parse(time.RFC3339, start.At); err == nil {
		start.At = began.Add(time.Duration(fromNS)).UTC().Format(time.RFC3339)
	}
	out := *r
	out.Start = &start
	return &out
}

// write writes what comes until the queue is closed, or something goes wrong.
func (rec *recorder) write() {
	for r := range rec.queue {
		if rec.err = rec.to.Write(r); rec.err != nil {
			break
		}
	}
	if err := rec.to.Close(); rec.err == nil {
		rec.err = err
	}
}

// record hands a record to the recording, with its time since that began.
func (m *model) record(r *record.Record) {
	if m.rec == nil {
		return
	}
	line := *r
	line.Schema, line.AtNS = record.Schema, max(0, r.AtNS-m.rec.fromNS)
	select {
	case m.rec.queue <- &line:
	default:
		m.recErr = pkgerr.Errorf("tui", "recording %s: the disk is slower than what comes in", m.rec.to.Name())
		m.endRecord("recording stopped: the disk is slower than what comes in")
	}
}

func (m *model) endRecord(message string) {
	close(m.rec.queue)
	m.rec = nil
	if message != "" {
		m.say(message)
	}
}

// failedRecord stops a recording that cannot go on; the dashboard does.
func (m *model) failedRecord(rec *recorder) {
	if m.rec == rec {
		m.endRecord("")
	}
	m.recErr = rec.failure()
	m.say("recording stopped: " + m.look.Safe(rec.err.Error()))
}

// failure is what the recording ended with, and which it was.
func (rec *recorder) failure() error {
	if rec.err == nil {
		return nil
	}
	return pkgerr.Errorf("tui", "recording %s: %w", rec.to.Name(), rec.err)
}
