package probe

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// EventSchema is the name and major version of the lines that a run writes.
const EventSchema = "topoctl.probe-event/v1"

// EventType says what an event tells.
type EventType string

// The events, each a line of JSON. A run begins with start and, unless it is stopped,
// ends with end.
const (
	EventStart  EventType = "start"  // Start: what is about to be measured
	EventRound  EventType = "round"  // Round: pairs begin
	EventSample EventType = "sample" // Sample
	EventResult EventType = "result" // Result; a later one of the same pair replaces it
	EventRetest EventType = "retest" // Retest
	EventError  EventType = "error"  // Error: something went wrong, the run goes on
	EventEnd    EventType = "end"    // End
)

// Event is one line of a run's log (topoctl.probe-event/v1). Only the field of its type
// is set.
type Event struct {
	Schema string    `json:"schema"`
	Type   EventType `json:"event"`
	AtNS   int64     `json:"at_ns"` // since the run began
	// Start is the report before the first measurement: hosts, links and plan, no results.
	Start  *Report      `json:"start,omitempty"`
	Round  *RoundEvent  `json:"round,omitempty"`
	Sample *SampleEvent `json:"sample,omitempty"`
	Result *Result      `json:"result,omitempty"`
	Retest *RetestEvent `json:"retest,omitempty"`
	Error  string       `json:"error,omitempty"`
	End    *Outcome     `json:"end,omitempty"`
}

// RoundEvent says that a round begins.
type RoundEvent struct {
	Round  int      `json:"round"`  // counts from 1; retests go on counting
	Rounds int      `json:"rounds"` // as planned, without retests
	Pairs  []string `json:"pairs"`  // IDs
}

// SampleEvent is one sample of a pair.
type SampleEvent struct {
	Pair string `json:"pair"`
	Sample
}

// RetestEvent is a retest because of a pair.
type RetestEvent struct {
	Of string `json:"of_pair"` // the doubtful one
	Retest
}

// Outcome is what is known at the end only.
type Outcome struct {
	DurationNS int64    `json:"duration_ns"`
	Complete   bool     `json:"complete"`
	Hosts      []Host   `json:"hosts"` // with the errors that they met
	Blame      []Blame  `json:"blame"`
	Summary    Summary  `json:"summary"`
	Notes      []string `json:"notes,omitempty"`
}

// StartEvent is the first line of a run: the report without results.
func StartEvent(r *Report) *Event {
	start := *r
	start.Results, start.Blame = nil, nil
	return &Event{Type: EventStart, Start: &start}
}

// EndEvent is the last line of a run.
func EndEvent(r *Report) *Event {
	return &Event{Type: EventEnd, AtNS: r.DurationNS, End: &Outcome{DurationNS: r.DurationNS, Complete: r.Complete,
		Hosts: r.Hosts, Blame: r.Blame, Summary: r.Summary, Notes: r.Notes}}
}

// Encode writes the event as one line with its line end. The event is left as it is.
func (e *Event) Encode() ([]byte, error) {
	n := *e
	n.Schema = EventSchema
	if n.Start != nil {
		n.Start = n.Start.normal()
	}
	if n.Round != nil {
		round := *n.Round
		round.Pairs = names(round.Pairs)
		n.Round = &round
	}
	if n.Result != nil {
		result := *n.Result
		result.normal()
		n.Result = &result
	}
	if n.End != nil {
		r := (&Report{Hosts: n.End.Hosts, Blame: n.End.Blame}).normal()
		end := *n.End
		end.Hosts, end.Blame = r.Hosts, r.Blame
		n.End = &end
	}
	line, err := document.Line(&n)
	if err != nil {
		return nil, pkgerr.Errorf("probe", "encode event %q: %w", e.Type, err)
	}
	return line, nil
}

// DecodeEvent reads one line of a run's log and checks it as Decode checks a report, except for
// references between the parts of a report, of which a line has only some.
func DecodeEvent(data []byte) (*Event, error) {
	data = bytes.TrimSpace(data)
	e, err := decodeEvent(data)
	if err == nil {
		err = e.decodeRest(data)
	}
	if err != nil {
		return nil, pkgerr.Errorf("probe", "event: %w", err)
	}
	return e, nil
}

// decodeEvent reads the parts of an event that a report is put together from. They stay text at first: a
// list of empty elements takes hundreds of times its length once it is read.
func decodeEvent(line []byte) (*Event, error) {
	if len(line) > maxLine {
		return nil, fmt.Errorf("%d bytes: at most %d are read", len(line), maxLine)
	}
	if err := checkUTF8(line); err != nil {
		return nil, err
	}
	var l struct {
		Schema string          `json:"schema"`
		Type   EventType       `json:"event"`
		AtNS   int64           `json:"at_ns"`
		Start  json.RawMessage `json:"start"`
		Result json.RawMessage `json:"result"`
		End    json.RawMessage `json:"end"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		if name := schemaName(line); name != "" && name != EventSchema {
			return nil, checkSchema(name, EventSchema)
		}
		return nil, fmt.Errorf("no event: %w", err)
	}
	if err := cmp.Or(checkSchema(l.Schema, EventSchema), within("at_ns", maxNS, l.AtNS)); err != nil {
		return nil, err
	}
	e := &Event{Schema: EventSchema, Type: l.Type, AtNS: l.AtNS}
	var err error
	if holds(l.Start) {
		if err := checkSchema(schemaName(l.Start), Schema); err != nil {
			return nil, fmt.Errorf("start: %w", err)
		}
		if e.Start, err = decodePart(l.Start); err != nil {
			return nil, fmt.Errorf("start: %w", err)
		}
	}
	if holds(l.End) { // its keys are those of a report
		r, err := decodePart(l.End)
		if err != nil {
			return nil, fmt.Errorf("end: %w", err)
		}
		e.End = &Outcome{DurationNS: r.DurationNS, Complete: r.Complete, Hosts: r.Hosts, Blame: r.Blame, Summary: r.Summary, Notes: r.Notes}
	}
	if holds(l.Result) {
		e.Result, err = decodeResult(l.Result)
	}
	return e, err
}

// holds says whether an event has a part: null counts as missing.
func holds(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// decodePart reads what an event has of a report.
func decodePart(raw json.RawMessage) (*Report, error) {
	in, r := document.NewReader(raw), &Report{Schema: Schema}
	if err := r.read(in); err != nil {
		return nil, fmt.Errorf("%s: %w", in.At(), err)
	}
	return r, nil
}

func decodeResult(raw json.RawMessage) (*Result, error) {
	if len(raw) > maxElement {
		return nil, fmt.Errorf("result: %d bytes: at most %d are read", len(raw), maxElement)
	}
	x := &Result{}
	if err := json.Unmarshal(raw, x); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if err := x.check(); err != nil {
		return nil, fmt.Errorf("result %.80q: %w", x.ID, err)
	}
	return x, nil
}

// decodeRest reads and checks the parts of which nothing gets into a report.
func (e *Event) decodeRest(data []byte) error {
	var rest struct {
		Round  *RoundEvent  `json:"round"`
		Sample *SampleEvent `json:"sample"`
		Retest *RetestEvent `json:"retest"`
		Error  string       `json:"error"`
	}
	if err := json.Unmarshal(data, &rest); err != nil {
		return err
	}
	e.Round, e.Sample, e.Retest, e.Error = rest.Round, rest.Sample, rest.Retest, rest.Error
	var err error
	if r := e.Round; r != nil {
		err = cmp.Or(err, within("round", 1<<31, int64(r.Round), int64(r.Rounds)), checkNames("pair", r.Pairs...))
		if len(r.Pairs) > maxResults {
			err = cmp.Or(err, fmt.Errorf("round: %w pairs: at most %d are read", document.ErrTooMany, maxResults))
		}
	}
	if s := e.Sample; s != nil {
		err = cmp.Or(err, checkName("pair", s.Pair), within("size_bytes", 1<<50, s.SizeBytes), within("bytes_per_sec", maxRate, s.BytesPerSec))
	}
	if t := e.Retest; t != nil {
		err = cmp.Or(err, checkNames("retest", t.Of, t.How, t.Pair), checkRate("retest", t.BytesPerSec))
	}
	return err
}

// maxLine bounds one event; the longest is start, which lists all links.
const maxLine = 1 << 28

// ReadEvents returns the report so far from a run's events, or the report that r holds. If the run
// was cut off in the middle of a line, that line is lost, and Notes say so; damage elsewhere is an
// error. A run without its end event is not complete.
func ReadEvents(r io.Reader) (*Report, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, maxDocument+1), 1<<16)
	head, err := in.Peek(len(`{"schema":"`) + 256)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, pkgerr.Errorf("probe", "read the events: %w", err)
	}
	if schemaName(head) != EventSchema {
		data, err := io.ReadAll(in)
		if err != nil {
			return nil, pkgerr.Errorf("probe", "read the report: %w", err)
		}
		if name := schemaName(data); name != "" && name != Schema {
			return nil, pkgerr.Errorf("probe", "schema %.40q: want %q or %q", name, Schema, EventSchema)
		}
		return Decode(data)
	}
	log := eventLog{at: map[string]int{}}
	for n := 1; ; n++ {
		line, err := readLine(in)
		cut := errors.Is(err, io.EOF)
		if err != nil && !cut {
			return nil, pkgerr.Errorf("probe", "line %d: %w", n, err)
		}
		if err := log.line(line, cut); err != nil {
			return nil, pkgerr.Errorf("probe", "line %d: %w", n, err)
		}
		if cut {
			return log.finish()
		}
	}
}

// readLine reads up to a line end, which is taken off; io.EOF comes with what follows
// the last one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSuffix(line, []byte{'\n'}), err
	}
}

// eventLog puts a report together from events.
type eventLog struct {
	r     *Report
	at    map[string]int // index of a pair's result
	ended bool
	torn  bool
}

// line takes in one line; last: no line end follows it.
func (l *eventLog) line(line []byte, last bool) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	if last && l.r != nil && !json.Valid(line) {
		l.torn = true
		return nil
	}
	e, err := decodeEvent(line)
	if err != nil {
		return err
	}
	return l.take(e)
}

// take adds an event to the report. Events that are not known are a newer writer's.
func (l *eventLog) take(e *Event) error {
	switch {
	case e.Type == EventStart && l.r != nil:
		return errors.New("a second start event: want the events of one run")
	case e.Type == EventStart:
		return l.start(e.Start)
	case l.r == nil:
		return fmt.Errorf("event %.40q before the start", e.Type)
	}
	l.r.DurationNS = max(l.r.DurationNS, e.AtNS)
	switch {
	case e.Type == EventResult && e.Result != nil:
		return l.result(e.Result)
	case e.Type == EventEnd && e.End != nil:
		l.ended = true
		l.r.DurationNS, l.r.Complete = e.End.DurationNS, e.End.Complete
		l.r.Hosts, l.r.Blame, l.r.Notes = e.End.Hosts, e.End.Blame, e.End.Notes
	}
	return nil
}

// start takes over what was known before the first measurement.
func (l *eventLog) start(r *Report) error {
	switch {
	case r == nil:
		return errors.New("a start event without a report")
	case len(r.Results) > 0:
		return errors.New("a start event with results")
	}
	r.Complete, r.Blame = false, nil
	l.r = r
	return nil
}

func (l *eventLog) result(x *Result) error {
	if i, ok := l.at[x.ID]; ok {
		l.r.Results[i] = *x
		return nil
	}
	if len(l.r.Results) == maxResults {
		return fmt.Errorf("%w results: at most %d are read", document.ErrTooMany, maxResults)
	}
	l.at[x.ID] = len(l.r.Results)
	l.r.Results = append(l.r.Results, *x)
	return nil
}

func (l *eventLog) finish() (*Report, error) {
	if l.r == nil {
		return nil, pkgerr.New("probe", "the events end before the start event: nothing was measured")
	}
	if l.torn {
		l.r.Notes = append(l.r.Notes, "the events end in the middle of a line, which is lost")
	}
	if !l.ended {
		l.r.Notes = append(l.r.Notes, "the events have no end: the run was cut off")
	}
	n := l.r.normal()
	n.Summary = Count(n.Results)
	return n, n.check()
}
