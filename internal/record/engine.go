package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Engine is what an agent (or a bench) says of its engine over HTTP: topoctl.engine/v1.
// A record keeps of it what the dashboard shows.
type Engine struct {
	engine.Stats
	// Recent are the latest batches, the newest first.
	Recent []engine.Explanation `json:"recent_batches"`
	// Notes say what of an answer was left out.
	Notes []string `json:"notes,omitempty"`
}

// field is a key of an object, and those that are kept of the object or list of objects
// that it has as a value; none keeps all.
type field struct {
	name string
	of   []field
}

func fields(names string, more ...field) []field {
	var out []field
	for name := range strings.FieldsSeq(names) {
		f := field{name: name}
		for _, m := range more {
			if m.name == name {
				f = m
			}
		}
		out = append(out, f)
	}
	return out
}

// engineFields are the fields of topoctl.engine/v1 that a topoctl.record/v1 has, in their
// order.
var engineFields = fields(`name peers lanes served served_unlisted batches failed_batches unsafe_batches slices retried_slices
	transport_fallbacks served_read_bytes served_written_bytes served_uncounted_transports refused_requests served_sessions
	recent_batches notes`,
	field{"peers", fields("name state round_trip_ns batches error")},
	field{"lanes", fields(`peer lane id transport health service_bytes_per_sec measured bytes slices inflight_bytes inflight_slices
		window_bytes retries failures last_error local_port remote_port local_address remote_address`)},
	field{"recent_batches", fields("peer label state error bytes of_bytes ops duration_ns ended_ago_ns retries routes notes",
		field{"routes", fields("local remote bytes groups used",
			field{"groups", fields("transport reason lanes rejected",
				field{"lanes", fields("lane verdict reason health expected_bytes_per_sec")})},
			field{"used", fields("lane transport bytes slices retries first_ns last_ns error")})})})

// keepFields is a JSON value with those fields only.
func keepFields(value json.RawMessage, of []field) (json.RawMessage, error) {
	switch {
	case len(of) == 0 || len(value) == 0:
		return value, nil
	case value[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(value, &list); err != nil {
			return nil, err
		}
		for i := range list {
			var err error
			if list[i], err = keepFields(list[i], of); err != nil {
				return nil, err
			}
		}
		return json.Marshal(list)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, f := range of {
		v, ok := object[f.name]
		if !ok {
			continue
		}
		v, err := keepFields(v, f.of)
		if err != nil {
			return nil, err
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.WriteString(`"` + f.name + `":`)
		out.Write(v)
	}
	return json.RawMessage("{" + out.String() + "}"), nil
}

// encode is the engine as a record has it.
func (e *Engine) encode() (json.RawMessage, error) {
	all, err := json.Marshal(e.normal())
	if err != nil {
		return nil, err
	}
	return keepFields(all, engineFields)
}

// SchemaEngine is the name and major version of what an agent answers.
const SchemaEngine = "topoctl.engine/v1"

// answerLimits are what an answer may be; an engine with 4096 lanes says 2 MB.
var answerLimits = document.Limits{Bytes: 8 << 20, Text: 1 << 14, Elements: 1 << 17, Depth: 32}

// How much of an answer is shown.
const (
	maxPeers       = 1024
	maxEngineLanes = 4096
	maxServed      = 1024
	maxBatches     = 64
	maxRoutes      = 16 // of a batch
	maxGroups      = 16 // of a route
	maxUsedLanes   = 256
	maxNotes       = 64
)

// DecodeEngine reads the topoctl.engine/v1 document that an agent answers and takes nothing
// in it on trust: it is bounded, lists that are too long are cut and Notes say so, and no
// figure is negative. Texts are bounded by their length only: whoever draws them must make them
// printable.
func DecodeEngine(data []byte) (*Engine, error) {
	e, err := decodeEngine(data, false)
	if err != nil {
		return nil, pkgerr.Errorf("record", "engine: %w", err)
	}
	return e, nil
}

// decodeEngine reads an answer, or the engine of a record, which has notes of its own and
// no schema.
func decodeEngine(data []byte, recorded bool) (*Engine, error) {
	if err := answerLimits.Check(data); err != nil {
		return nil, err
	}
	var doc struct {
		Schema string `json:"schema"`
		Engine
	}
	err := json.Unmarshal(data, &doc)
	if !recorded {
		if wrong := document.CheckSchema(doc.Schema, SchemaEngine, ""); wrong != nil && (err == nil || doc.Schema != "") {
			return nil, wrong
		}
		doc.Notes = nil
	}
	if err != nil {
		return nil, fmt.Errorf("no %s: %w", SchemaEngine, err)
	}
	e := &doc.Engine
	e.cut()
	if err := e.check(); err != nil {
		return nil, err
	}
	return e.normal(), nil
}

// cut shortens what is too long, and notes it.
func (e *Engine) cut() {
	note := func(what string, n, most int) {
		if n > most {
			e.Notes = append(e.Notes, fmt.Sprintf("%d of %d %s are shown", most, n, what))
		}
	}
	note("peers", shorten(&e.Peers, maxPeers), maxPeers)
	note("lanes", shorten(&e.Lanes, maxEngineLanes), maxEngineLanes)
	note("served connections", shorten(&e.Served, maxServed), maxServed)
	note("batches", shorten(&e.Recent, maxBatches), maxBatches)
	shorten(&e.ServedUncounted, maxNotes)
	for i := range e.Recent {
		b := &e.Recent[i]
		note("notes of a batch", shorten(&b.Notes, maxNotes), maxNotes)
		note("routes of a batch", shorten(&b.Routes, maxRoutes), maxRoutes)
		for k := range b.Routes {
			r := &b.Routes[k]
			note("transports of a route", shorten(&r.Groups, maxGroups), maxGroups)
			note("used lanes of a route", shorten(&r.Used, maxUsedLanes), maxUsedLanes)
			for g := range r.Groups {
				note("lanes of a transport", shorten(&r.Groups[g].Lanes, maxUsedLanes), maxUsedLanes)
				note("rejected ports of a transport", shorten(&r.Groups[g].Rejected, maxNotes), maxNotes)
			}
		}
	}
	shorten(&e.Notes, maxNotes)
}

// shorten cuts a list and says how long it was.
func shorten[T any](list *[]T, most int) int {
	n := len(*list)
	if n > most {
		*list = (*list)[:most:most]
	}
	return n
}

var errNegative = errors.New("want 0 or more")

// checkCounts refuses figures below zero, and those that sums would not hold.
func checkCounts(values ...int64) error {
	for _, v := range values {
		if v < 0 || v > math.MaxInt64/4 {
			return fmt.Errorf("%d: %w", v, errNegative)
		}
	}
	return nil
}

// check refuses figures that count nothing.
func (e *Engine) check() error {
	err := checkCounts(e.Batches, e.Failed, e.Unsafe, e.Slices, e.Retries, e.Fallback, e.ServedReadBytes, e.ServedWrittenBytes, e.Refused,
		int64(e.Sessions), int64(e.ServedUnlisted))
	if err != nil {
		return err
	}
	for i := range e.Peers {
		if err := checkCounts(e.Peers[i].RoundTripNS, e.Peers[i].Batches); err != nil {
			return fmt.Errorf("peers[%d]: %w", i, err)
		}
	}
	for i := range e.Lanes {
		l := &e.Lanes[i]
		if err := checkCounts(int64(l.BytesPerSec), l.Bytes, l.Slices, l.InflightBytes, int64(l.InflightSlices), l.WindowBytes, l.Retries, l.Failures); err != nil {
			return fmt.Errorf("lanes[%d]: %w", i, err)
		}
	}
	for i := range e.Served {
		for _, n := range []*int64{e.Served[i].ReadBytes, e.Served[i].WrittenBytes} {
			if n != nil && checkCounts(*n) != nil {
				return fmt.Errorf("served[%d]: %w", i, checkCounts(*n))
			}
		}
	}
	for i := range e.Recent {
		if err := checkBatch(&e.Recent[i]); err != nil {
			return fmt.Errorf("recent_batches[%d]: %w", i, err)
		}
	}
	return nil
}

func checkBatch(b *engine.Explanation) error {
	if err := checkCounts(b.Bytes, b.Total, int64(b.Ops), b.DurationNS, b.EndedAgoNS, b.Retries); err != nil {
		return err
	}
	for i := range b.Routes {
		r := &b.Routes[i]
		if err := checkCounts(r.Bytes); err != nil {
			return err
		}
		for g := range r.Groups {
			for k := range r.Groups[g].Lanes {
				if err := checkRate(r.Groups[g].Lanes[k].ExpectedBytesPerSec); err != nil {
					return err
				}
			}
		}
		for k := range r.Used {
			u := &r.Used[k]
			if err := checkCounts(u.Bytes, u.Slices, u.Retries, u.FirstNS, u.LastNS); err != nil {
				return err
			}
		}
	}
	return nil
}

// normal has no list that is nil. The engine is left as it is.
func (e *Engine) normal() *Engine {
	n := *e
	n.Peers, n.Lanes, n.Served, n.ServedUncounted = notNil(n.Peers), notNil(n.Lanes), notNil(n.Served), notNil(n.ServedUncounted)
	n.Recent = mapped(n.Recent, func(b *engine.Explanation) {
		b.Routes = mapped(b.Routes, func(r *engine.RouteRecord) {
			r.Used = notNil(r.Used)
			r.Groups = mapped(r.Groups, func(g *engine.GroupRecord) { g.Lanes = notNil(g.Lanes) })
		})
	})
	return &n
}

// mapped is a copy of a list whose elements were changed.
func mapped[T any](list []T, change func(*T)) []T {
	out := append([]T{}, list...)
	for i := range out {
		change(&out[i])
	}
	return out
}
