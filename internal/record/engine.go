package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
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
var engineFields = fields(`name peers lanes served served_unlisted batches failed_batches unsafe_batches failures slices retried_slices
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

// encode is the engine as a record has it: as it will be read.
func (e *Engine) encode() (json.RawMessage, error) {
	all, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	read, err := decodeEngine(all, true)
	if err != nil {
		return nil, err
	}
	if all, err = json.Marshal(read); err != nil {
		return nil, err
	}
	return keepFields(all, engineFields)
}

// SchemaEngine is the name and major version of what an agent answers.
const SchemaEngine = "topoctl.engine/v1"

// answerLimits are what an answer may be; an engine with 4096 lanes says 2 MB.
var answerLimits = document.Limits{Bytes: 8 << 20, Text: 1 << 14, Elements: 1 << 17, Depth: 32}

// mostShown is how much of each list of an answer is shown.
var mostShown = map[string]int{
	"peers": 1024, "lanes": 4096, "served": 1024, "served_uncounted_transports": 64, "recent_batches": 64, "notes": 64,
	"recent_batches.notes": 64, "recent_batches.routes": 16, "recent_batches.routes.groups": 16, "recent_batches.routes.used": 256,
	"recent_batches.routes.groups.lanes": 256, "recent_batches.routes.groups.rejected": 64,
}

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
	var cut []string
	err = walk(reflect.ValueOf(e).Elem(), "", "", func(list reflect.Value, kind string) {
		n, most := list.Len(), mostShown[kind]
		switch {
		case list.IsNil():
			list.Set(reflect.MakeSlice(list.Type(), 0, 0))
		case most > 0 && n > most:
			list.Set(list.Slice3(0, most, most))
			cut = append(cut, fmt.Sprintf("%d of %d %s are shown", most, n, kind))
		}
	})
	if err != nil {
		return nil, err
	}
	e.Notes = append(e.Notes, cut...)
	e.Notes = e.Notes[:min(len(e.Notes), mostShown["notes"])]
	return e, nil
}

// walk visits all that a document holds: it refuses figures below zero, and those that sums would not hold, and calls
// list for each list. at is where v stands, "lanes[3]", and kind the same without places.
func walk(v reflect.Value, at, kind string, list func(v reflect.Value, kind string)) error {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return walk(v.Elem(), at, kind, list)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			below, kindBelow := strings.TrimPrefix(at+"."+name, "."), strings.TrimPrefix(kind+"."+name, ".")
			if name == "" { // embedded
				below, kindBelow = at, kind
			}
			if err := walk(v.Field(i), below, kindBelow, list); err != nil {
				return err
			}
		}
	case reflect.Slice:
		list(v, kind)
		for i := range v.Len() {
			if err := walk(v.Index(i), fmt.Sprintf("%s[%d]", at, i), kind, list); err != nil {
				return err
			}
		}
	case reflect.Int, reflect.Int64:
		most := int64(math.MaxInt64 / 4)
		if v.Type() == reflect.TypeFor[topo.Rate]() {
			most = int64(maxRate)
		}
		if n := v.Int(); n < 0 || n > most {
			return fmt.Errorf("%s: %d: want 0 to %d", at, n, most)
		}
	}
	return nil
}
