package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/topoctl/topoctl/internal/base/jsontext"
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

// logged is an Event of which the parts that may be long are text still: a list of empty
// elements takes hundreds of times its length once it is read. What a report is not put
// together from is left out.
type logged struct {
	Schema string          `json:"schema"`
	Type   EventType       `json:"event"`
	AtNS   int64           `json:"at_ns"`
	Start  json.RawMessage `json:"start"`
	Result json.RawMessage `json:"result"`
	End    json.RawMessage `json:"end"`
}

func decodeEvent(line []byte) (*logged, error) {
	if err := checkUTF8(line); err != nil {
		return nil, err
	}
	var e logged
	if err := json.Unmarshal(line, &e); err != nil {
		if name := schemaName(line); name != "" && name != EventSchema {
			return nil, checkSchema(name, EventSchema)
		}
		return nil, fmt.Errorf("no event: %w", err)
	}
	return &e, checkSchema(e.Schema, EventSchema)
}

// holds says whether an event has a part: null is none.
func holds(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// take adds an event to the report. Events that are not known are a newer writer's.
func (l *eventLog) take(e *logged) error {
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
	case e.Type == EventResult && holds(e.Result):
		return l.result(e.Result)
	case e.Type == EventEnd && holds(e.End):
		return l.end(e.End)
	}
	return nil
}

// start takes over what was known before the first measurement.
func (l *eventLog) start(raw json.RawMessage) error {
	if !holds(raw) {
		return errors.New("a start event without a report")
	}
	if err := checkSchema(schemaName(raw), Schema); err != nil {
		return err
	}
	r, err := part(raw)
	switch {
	case err != nil:
		return fmt.Errorf("start: %w", err)
	case len(r.Results) > 0:
		return errors.New("a start event with results")
	}
	r.Schema, r.Complete, r.Blame = Schema, false, nil
	l.r = r
	return nil
}

// end takes over what is known at the end only. An Outcome's keys are those of a report.
func (l *eventLog) end(raw json.RawMessage) error {
	r, err := part(raw)
	if err != nil {
		return fmt.Errorf("end: %w", err)
	}
	l.ended = true
	l.r.DurationNS, l.r.Complete = r.DurationNS, r.Complete
	l.r.Hosts, l.r.Blame, l.r.Notes = r.Hosts, r.Blame, r.Notes
	return nil
}

// part reads what an event has of a report.
func part(raw json.RawMessage) (*Report, error) {
	in, r := jsontext.NewReader(raw), &Report{}
	if err := r.read(in); err != nil {
		return nil, fmt.Errorf("%s: %w", in.At(), err)
	}
	return r, nil
}

func (l *eventLog) result(raw json.RawMessage) error {
	if len(raw) > maxElement {
		return fmt.Errorf("result: %d bytes: at most %d are read", len(raw), maxElement)
	}
	var x Result
	if err := json.Unmarshal(raw, &x); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := x.check(); err != nil {
		return fmt.Errorf("result %.80q: %w", x.ID, err)
	}
	if i, ok := l.at[x.ID]; ok {
		l.r.Results[i] = x
		return nil
	}
	if len(l.r.Results) == maxResults {
		return fmt.Errorf("%w results: at most %d are read", jsontext.ErrTooMany, maxResults)
	}
	l.at[x.ID] = len(l.r.Results)
	l.r.Results = append(l.r.Results, x)
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
