package record

import (
	"encoding/json"
	"fmt"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/probe"
)

// lineLimits are what one line may be. The longest have a topology: 0.6 MB for 72 GPUs.
var lineLimits = document.Limits{Bytes: 32 << 20, Text: maxDetail, Elements: 1 << 18, Depth: 64}

// line is a record as it is written: a probe's event is a document of its own.
type line struct {
	Schema   string           `json:"schema"`
	AtNS     int64            `json:"at_ns"`
	Source   string           `json:"source"`
	Start    *Start           `json:"start,omitempty"`
	Topology *topo.Topology   `json:"topology,omitempty"`
	Counters *counters.Sample `json:"counters,omitempty"`
	Engine   json.RawMessage  `json:"engine,omitempty"`
	Probe    json.RawMessage  `json:"probe,omitempty"`
	State    *SourceState     `json:"state,omitempty"`
}

// Encode writes the record as one line of JSON with its line end. A topology is written
// without what is derived from it, which readers derive again. What could not be read back
// is an error.
func (r *Record) Encode() ([]byte, error) {
	if r.empty() {
		return nil, pkgerr.New("record", "a record without news")
	}
	err := r.check()
	l := line{Schema: Schema, AtNS: r.AtNS, Source: r.Source, Start: r.Start, Counters: normalSample(r.Counters), State: r.State}
	if r.Topology != nil {
		bare := *r.Topology
		bare.Derived = nil
		l.Topology = &bare
	}
	if err == nil && r.Probe != nil {
		l.Probe, err = r.Probe.Encode()
	}
	if err == nil && r.Engine != nil {
		l.Engine, err = r.Engine.encode()
	}
	var out []byte
	if err == nil {
		out, err = document.Line(&l)
	}
	if err == nil {
		err = lineLimits.Check(out)
	}
	if err != nil {
		return nil, pkgerr.Errorf("record", "%w", err)
	}
	return out, nil
}

// Decode reads what Encode writes and takes nothing in it on trust: sizes and counts are
// bounded, texts by their length only, so that whoever draws them must make them printable. Keys
// that are not known are left out, and so is news of a kind that is not known: the record
// then has none. Another major version is refused.
func Decode(data []byte) (*Record, error) {
	r, err := decode(data)
	if err != nil {
		return nil, pkgerr.Errorf("record", "%w", err)
	}
	return r, nil
}

func decode(data []byte) (*Record, error) {
	if err := lineLimits.Check(data); err != nil {
		return nil, err
	}
	var l line
	err := json.Unmarshal(data, &l)
	if wrong := document.CheckSchema(l.Schema, Schema, ""); wrong != nil && (err == nil || l.Schema != "") {
		return nil, wrong
	}
	if err != nil {
		return nil, fmt.Errorf("no record: %w", err)
	}
	r := &Record{Schema: Schema, AtNS: l.AtNS, Source: l.Source, Start: l.Start, Topology: l.Topology, Counters: normalSample(l.Counters), State: l.State}
	if isSet(l.Probe) {
		if r.Probe, err = probe.DecodeEvent(l.Probe); err != nil {
			return nil, err
		}
	}
	if isSet(l.Engine) {
		if r.Engine, err = decodeEngine(l.Engine, true); err != nil {
			return nil, pkgerr.Errorf("engine", "%w", err)
		}
	}
	return r, r.check()
}

// isSet says whether there is a value: null is none.
func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// normalSample has no list that is nil.
func normalSample(s *counters.Sample) *counters.Sample {
	if s == nil {
		return nil
	}
	n := *s
	n.Ports, n.Links, n.GPUs = notNil(n.Ports), notNil(n.Links), notNil(n.GPUs)
	return &n
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
