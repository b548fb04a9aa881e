package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds one event; the longest is start, which lists all links.
const maxLine = 1 << 28

// ReadEvents gives the report so far of a run's events, or the report that r holds. Of
// a run that was cut off in the middle of a line that line is lost, and Notes say so;
// what is broken elsewhere is an error. A run without its end event is not complete.
func ReadEvents(r io.Reader) (*Report, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, maxDocument+1), 1<<16)
	head, err := in.Peek(len(`{"schema":"`) + 256)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("probe: read the events: %w", err)
	}
	if beginsWith(head) != EventSchema {
		data, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("probe: read the report: %w", err)
		}
		if name := schemaName(data); name != "" && name != Schema {
			return nil, fmt.Errorf("probe: schema %.40q: want %q or %q", name, Schema, EventSchema)
		}
		return Decode(data)
	}
	log := eventLog{at: map[string]int{}}
	for n := 1; ; n++ {
		line, err := readLine(in)
		cut := errors.Is(err, io.EOF)
		if err != nil && !cut {
			return nil, fmt.Errorf("probe: line %d: %w", n, err)
		}
		if err := log.line(line, cut); err != nil {
			return nil, fmt.Errorf("probe: line %d: %w", n, err)
		}
		if cut {
			return log.finish()
		}
	}
}

// beginsWith is the schema that the first bytes of a file name, "" none.
func beginsWith(head []byte) string {
	dec := json.NewDecoder(bytes.NewReader(head))
	var tokens [3]json.Token
	for i := range tokens {
		t, err := dec.Token()
		if err != nil {
			return ""
		}
		tokens[i] = t
	}
	name, _ := tokens[2].(string)
	if tokens[0] != json.Delim('{') || tokens[1] != "schema" {
		return ""
	}
	return name
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
	e, err := decodeEvent(line)
	if err != nil && last && l.r != nil {
		l.torn = true
		return nil
	}
	if err != nil {
		return err
	}
	return l.take(e)
}

func decodeEvent(line []byte) (*Event, error) {
	if err := checkUTF8(line); err != nil {
		return nil, err
	}
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		if name := schemaName(line); name != "" && name != EventSchema {
			return nil, checkSchema(name, EventSchema)
		}
		return nil, fmt.Errorf("no event: %w", err)
	}
	return &e, checkSchema(e.Schema, EventSchema)
}

// take adds an event to the report. Events that are not known are a newer writer's.
func (l *eventLog) take(e *Event) error {
	if err := within("at_ns", maxNS, e.AtNS); err != nil {
		return err
	}
	if e.Type == EventStart {
		if l.r != nil {
			return errors.New("a second start event: want the events of one run")
		}
		return l.start(e.Start)
	}
	if l.r == nil {
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
	case len(r.Hosts) > maxHosts || len(r.Devices) > maxLinks || len(r.Links) > maxLinks || len(r.Results) > 0:
		return fmt.Errorf("a start event with %d hosts, %d links, %d results", len(r.Hosts), len(r.Links), len(r.Results))
	}
	for i := range r.Links {
		if err := r.Links[i].check(); err != nil {
			return fmt.Errorf("links[%d]: %w", i, err)
		}
	}
	if err := checkSchema(r.Schema, Schema); err != nil {
		return err
	}
	l.r = r
	l.r.Complete, l.r.Blame = false, nil
	return nil
}

func (l *eventLog) result(x *Result) error {
	if err := x.check(); err != nil {
		return fmt.Errorf("result %.80q: %w", x.ID, err)
	}
	if i, ok := l.at[x.ID]; ok {
		l.r.Results[i] = *x
		return nil
	}
	if len(l.r.Results) == maxResults {
		return fmt.Errorf("%w results: at most %d are read", errTooMany, maxResults)
	}
	l.at[x.ID] = len(l.r.Results)
	l.r.Results = append(l.r.Results, *x)
	return nil
}

func (l *eventLog) finish() (*Report, error) {
	if l.r == nil {
		return nil, errors.New("probe: the events end before the start event: nothing was measured")
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
