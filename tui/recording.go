package tui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/probe"
)

// latest is the last of what each source said: what a recording that begins now has to
// begin with. Keys sort in an order in which the records can be taken in.
type latest map[string]*record.Record

// maxLatest is the most that is kept; results of a probe are most of it.
const maxLatest = 1 << 14

func (l latest) keep(r *record.Record) {
	key := ""
	switch e := r.Probe; {
	case r.Start != nil:
		key = "0"
	case r.Topology != nil:
		key = "1"
	case r.Counters != nil:
		key = "2"
	case r.State != nil:
		key = "3 " + r.Source
	case r.Engine != nil:
		key = "4 " + r.Source
	case e == nil:
	case e.Type == probe.EventStart:
		maps.DeleteFunc(l, func(key string, _ *record.Record) bool { return key >= "5" })
		key = "5"
	case e.Type == probe.EventResult && e.Result != nil:
		key = "6 " + e.Result.ID
	case e.Type == probe.EventRound, e.Type == probe.EventEnd:
		key = "7"
	}
	if key != "" && (len(l) < maxLatest || l[key] != nil || key == "7") {
		l[key] = r
	}
}

// all is what is known, in that order.
func (l latest) all() []*record.Record {
	var out []*record.Record
	for _, key := range slices.Sorted(maps.Keys(l)) {
		out = append(out, l[key])
	}
	return out
}

// recorder writes records in a goroutine of its own: a slow disk must not hold the
// dashboard up.
type recorder struct {
	to     io.WriteCloser
	name   string
	fromNS int64 // the time of the feed at which it began
	queue  chan *record.Record
	err    error // what it ended with; read it after the goroutine
}

const maxQueuedRecords = 4096

// toggleRecord begins a recording, or ends the one that runs.
func (m *model) toggleRecord() {
	switch {
	case m.rec != nil:
		m.endRecord("recorded: " + m.look.Safe(m.rec.name))
	case m.o.Create == nil || m.work == nil:
		m.say("there is nowhere to write a recording")
	default:
		name := m.fileName("", ".jsonl")
		m.work.background(func(context.Context) tea.Msg {
			file, err := m.o.Create(name)
			return answered(func(m *model) tea.Cmd {
				if err != nil {
					m.say("cannot record: " + m.look.Safe(err.Error()))
				} else {
					m.beginRecord(file, name)
				}
				return nil
			})
		})
	}
}

func (m *model) beginRecord(to io.WriteCloser, name string) {
	first := m.latest.all()
	rec := &recorder{to: to, name: nameOf(to, name), fromNS: m.now(), queue: make(chan *record.Record, len(first)+maxQueuedRecords)}
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
	m.say("recording to " + m.look.Safe(rec.name))
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

// write writes what comes until the queue is closed, or the file takes no more. A record that
// cannot be written as one is left out, and told of at the end.
func (rec *recorder) write() {
	w, refused := record.NewWriter(rec.to), 0
	var why error
	for r := range rec.queue {
		err := w.Write(r)
		if w.Broken() {
			rec.err = cause(err)
			break
		}
		if err != nil {
			why = cmp.Or(why, err)
			refused++
		}
	}
	if err := rec.to.Close(); rec.err == nil && err != nil {
		rec.err = cause(err)
	}
	if rec.err == nil && refused > 0 {
		rec.err = fmt.Errorf("%s left out: %w", text.Plural(refused, "record"), why)
	}
}

// cause is an error without the operation and the file, which the caller names.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return pkgerr.Plain(err)
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
		m.recErr = pkgerr.Errorf("tui", "recording %s: the disk is slower than what comes in", m.rec.name)
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
	return pkgerr.Errorf("tui", "recording %s: %w", rec.name, rec.err)
}
