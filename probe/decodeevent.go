package probe

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/topoctl/topoctl/internal/base/jsontext"
)

// DecodeEvent reads one line of a run's log and takes nothing in it on trust, as Decode does
// with a report. What the parts of a report say of each other is not checked: a line has but
// some of them.
func DecodeEvent(data []byte) (*Event, error) {
	e, err := decodeWhole(bytes.TrimSpace(data))
	if err != nil {
		return nil, fmt.Errorf("probe: event: %w", err)
	}
	return e, nil
}

func decodeWhole(data []byte) (*Event, error) {
	if len(data) > maxLine {
		return nil, fmt.Errorf("%d bytes: at most %d are read", len(data), maxLine)
	}
	l, err := decodeEvent(data)
	if err != nil {
		return nil, err
	}
	if err := within("at_ns", maxNS, l.AtNS); err != nil {
		return nil, err
	}
	e := &Event{Schema: EventSchema, Type: l.Type, AtNS: l.AtNS}
	if holds(l.Start) {
		if e.Start, err = part(l.Start); err != nil {
			return nil, fmt.Errorf("start: %w", err)
		}
		e.Start.Schema = Schema
	}
	if holds(l.End) {
		r, err := part(l.End)
		if err != nil {
			return nil, fmt.Errorf("end: %w", err)
		}
		e.End = &Outcome{DurationNS: r.DurationNS, Complete: r.Complete, Hosts: r.Hosts, Blame: r.Blame, Summary: r.Summary, Notes: r.Notes}
	}
	if holds(l.Result) {
		if len(l.Result) > maxElement {
			return nil, fmt.Errorf("result: %d bytes: at most %d are read", len(l.Result), maxElement)
		}
		e.Result = &Result{}
		if err := json.Unmarshal(l.Result, e.Result); err != nil {
			return nil, fmt.Errorf("result: %w", err)
		}
		if err := e.Result.check(); err != nil {
			return nil, fmt.Errorf("result %.80q: %w", e.Result.ID, err)
		}
	}
	return e, e.decodeRest(data)
}

// decodeRest reads the parts that are short.
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
		err = first(err, within("round", 1<<31, int64(r.Round), int64(r.Rounds)), checkNames("pair", r.Pairs...))
		if len(r.Pairs) > maxResults {
			err = first(err, fmt.Errorf("round: %w pairs: at most %d are read", jsontext.ErrTooMany, maxResults))
		}
	}
	if s := e.Sample; s != nil {
		err = first(err, checkName("pair", s.Pair), within("size_bytes", 1<<50, s.SizeBytes), within("bytes_per_sec", maxRate, s.BytesPerSec))
	}
	if t := e.Retest; t != nil {
		err = first(err, checkNames("retest", t.Of, t.How, t.Pair), checkRate("retest", t.BytesPerSec))
	}
	return err
}
