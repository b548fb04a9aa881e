package tui

import (
	"context"
	"maps"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/internal/base/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// known is the last of what each source said: what a recording that begins now has to
// begin with.
type known struct {
	start    *record.Record
	topology *record.Record
	counters *record.Record
	engines  map[string]*record.Record // by source
	states   map[string]*record.Record
	began    *record.Record            // of the last probe: its start,
	results  map[string]*record.Record // its results by pair,
	probed   *record.Record            // and its end, or the round it is in
}

// The most that is kept of sources and of a probe's results.
const (
	mostSources = 64
	mostResults = 1 << 14
)

func keep(m *map[string]*record.Record, key string, r *record.Record, most int) {
	if *m == nil {
		*m = map[string]*record.Record{}
	}
	if (*m)[key] != nil || len(*m) < most {
		(*m)[key] = r
	}
}

func (k *known) note(r *record.Record) {
	switch {
	case r.Start != nil:
		k.start = r
	case r.Topology != nil:
		k.topology = r
	case r.Counters != nil:
		k.counters = r
	case r.Engine != nil:
		keep(&k.engines, r.Source, r, mostSources)
	case r.State != nil:
		keep(&k.states, r.Source, r, mostSources)
	case r.Probe != nil:
		k.noteProbe(r)
	}
}

func (k *known) noteProbe(r *record.Record) {
	switch e := r.Probe; e.Type {
	case probe.EventStart:
		k.began, k.results, k.probed = r, nil, nil
	case probe.EventRound, probe.EventEnd:
		k.probed = r
	case probe.EventResult:
		if e.Result != nil {
			keep(&k.results, e.Result.ID, r, mostResults)
		}
	}
}

// all is what is known, in an order in which it can be taken in.
func (k *known) all() []*record.Record {
	out := []*record.Record{k.start, k.topology, k.counters}
	for _, m := range []map[string]*record.Record{k.states, k.engines} {
		for _, source := range slices.Sorted(maps.Keys(m)) {
			out = append(out, m[source])
		}
	}
	out = append(out, k.began)
	for _, pair := range slices.Sorted(maps.Keys(k.results)) {
		out = append(out, k.results[pair])
	}
	out = append(out, k.probed)
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

// waiting is how many records may wait for the disk.
const waiting = 4096

// toggleRecord begins a recording, or ends the one that runs.
func (m *model) toggleRecord() {
	switch {
	case m.rec != nil:
		m.endRecord("recorded: " + m.look.Safe(m.rec.to.Name()))
	case m.o.Record == nil || m.work == nil:
		m.say("there is nowhere to write a recording")
	default:
		m.work.do(func(context.Context) tea.Msg {
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
	first := m.known.all()
	rec := &recorder{to: to, fromNS: m.now(), queue: make(chan *record.Record, len(first)+waiting)}
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
	m.work.do(func(context.Context) tea.Msg {
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
