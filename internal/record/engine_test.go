package record_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// answer is what an agent answers.
func answer(tb testing.TB) []byte {
	tb.Helper()
	bytes, rate := int64(5), topo.Rate(9)
	data, err := json.Marshal(agent.EngineDocument{Schema: agent.SchemaEngine,
		Stats: engine.Stats{Name: "n1\x1b[2J", Epoch: 1 << 63, Batches: 7, Failed: 1, Unsafe: 2, Slices: 100, Retries: 3, Fallback: 4, ServedReadBytes: 5, ServedWrittenBytes: 6,
			ServedUncounted: []string{"shm"}, Refused: 8, Failures: engine.Failures{Opens: map[string]int64{"unreachable": 1}, Submits: map[string]int64{"lost": 2}, Batches: map[string]int64{"deadline": 3}}, Sessions: 2, ServedUnlisted: 3,
			Peers: []engine.PeerStats{{Name: "n2", State: "lost", RoundTripNS: 1500, Batches: 1, Error: "gone"}},
			Lanes: []engine.LaneStats{{Peer: "n2", Lane: "eth0 > n2:eth1", ID: 9, Transport: "tcp", Health: "sick", BytesPerSec: 1e9, Measured: true, Bytes: 5, Slices: 6,
				InflightBytes: 3, InflightSlices: 2, WindowBytes: 7, Retries: 2, Failures: 1, LastError: "reset", LocalPort: "net:eth0", RemotePort: "net:eth1", LocalAddress: "a", RemoteAddress: "b"}},
			Served: []engine.ServedStats{{Conn: 1 << 63, Peer: "n3", Transport: "tcp", LocalAddress: "a", RemoteAddress: "b", LocalPort: "net:eth0", ReadBytes: &bytes}}},
		Recent: []*engine.Explanation{{Peer: "n2", Label: "l", State: "failed", Error: "e", Bytes: 1, Total: 2, Ops: 3, DurationNS: 4, EndedAgoNS: 12, Retries: 5, Notes: []string{"n"},
			Routes: []engine.RouteRecord{{Local: "cpu:0", Remote: "gpu:1", Bytes: 6, Used: []engine.LaneUse{{Lane: "x", Transport: "tcp", Bytes: 7, Slices: 8, Retries: 9, FirstNS: 10, LastNS: 11, Error: "u"}},
				Groups: []engine.GroupRecord{{Transport: "tcp", Reason: "r", Rejected: []string{"no"}, Lanes: []engine.LaneRecord{{Lane: "x", ExpectedBytesPerSec: &rate, Verdict: "chosen", Reason: "best", Health: "idle"}}}}}}}}})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// All that an agent says and the dashboard shows arrives: no field of an engine is at zero.
func TestDecodeEngine(t *testing.T) {
	if record.SchemaEngine != agent.SchemaEngine {
		t.Fatalf("%s is not %s", record.SchemaEngine, agent.SchemaEngine)
	}
	e, err := record.DecodeEngine(answer(t))
	if err != nil {
		t.Fatal(err)
	}
	data, err := (&record.Record{Source: "agent x", Engine: e}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Engine any `json:"engine"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 {
				t.Errorf("%s: empty", at)
			}
			for k, x := range v {
				walk(at+"."+k, x)
			}
		case []any:
			if len(v) == 0 {
				t.Errorf("%s: empty", at)
			}
			for i, x := range v {
				walk(fmt.Sprintf("%s[%d]", at, i), x)
			}
		case nil:
			if at != "engine.served[0].written_bytes" { // not known
				t.Errorf("%s: null", at)
			}
		case float64:
			if v == 0 {
				t.Errorf("%s: 0", at)
			}
		case string:
			if v == "" {
				t.Errorf("%s: \"\"", at)
			}
		}
	}
	walk("engine", doc.Engine)
	if e.Served[0].WrittenBytes != nil || e.Served[0].Conn != 1<<63 {
		t.Errorf("served: %+v", e.Served[0])
	}
	schema := schematest.Open(t, schemaFile)
	valid(t, schema, &record.Record{Schema: record.Schema, Source: "agent x", Engine: e})
}

// An answer that is too large is refused, lists that are too long are cut with a note, and
// figures below zero are no figures.
func TestHostileEngine(t *testing.T) {
	many := func(key string, n int) string {
		return fmt.Sprintf(`{"schema":"topoctl.engine/v1","notes":["all is well"],%q:[%s{}]}`, key, strings.Repeat("{},", n-1))
	}
	for name, tt := range map[string]struct{ text, want string }{
		"empty":       {"", "record: engine: no topoctl.engine/v1: unexpected end"},
		"HTML":        {"<html>", "record: engine: no topoctl.engine/v1: invalid character '<'"},
		"list":        {"[]", "record: engine: no topoctl.engine/v1: json: cannot unmarshal array"},
		"newer":       {`{"schema":"topoctl.engine/v2","lanes":5}`, `record: engine: schema "topoctl.engine/v2" is newer than this program reads`},
		"other":       {`{"schema":"topoctl.topology/v1"}`, `record: engine: schema "topoctl.topology/v1" is not`},
		"wrong type":  {`{"schema":"topoctl.engine/v1","lanes":5}`, "record: engine: no topoctl.engine/v1: json: cannot unmarshal number"},
		"cut off":     {`{"schema":"topoctl.engine/v1","lanes":[`, "record: engine: "},
		"negative":    {`{"schema":"topoctl.engine/v1","lanes":[{"inflight_bytes":-1}]}`, "record: engine: lanes[0].inflight_bytes: -1: want 0 to"},
		"served":      {`{"schema":"topoctl.engine/v1","served":[{"conn":"1","read_bytes":-1}]}`, "record: engine: served[0].read_bytes: -1: want 0 to"},
		"batch":       {`{"schema":"topoctl.engine/v1","recent_batches":[{"routes":[{"used":[{"bytes":-1}]}]}]}`, "record: engine: recent_batches[0].routes[0].used[0].bytes: -1: want 0 to"},
		"overflow":    {`{"schema":"topoctl.engine/v1","slices":9223372036854775807}`, "record: engine: slices: 9223372036854775807"},
		"long text":   {`{"schema":"topoctl.engine/v1","name":"` + strings.Repeat("x", 1<<15) + `"}`, "record: engine: a text of 32769 bytes"},
		"elements":    {many("lanes", 1<<18), "record: engine: more than 131072 elements"},
		"large":       {`{"schema":"topoctl.engine/v1"}` + strings.Repeat(" ", 8<<20), "record: engine: 8388638 bytes: at most"},
		"two answers": {`{"schema":"topoctl.engine/v1"}{"schema":"topoctl.engine/v1"}`, "record: engine: no topoctl.engine/v1: invalid character '{'"},
	} {
		if e, err := record.DecodeEngine([]byte(tt.text)); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, %+v\nwant %s...", name, err, e, tt.want)
		}
	}
	for key, most := range map[string]int{"peers": 1024, "lanes": 4096, "served": 1024, "recent_batches": 64} {
		e, err := record.DecodeEngine([]byte(many(key, most+5)))
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if n := len(e.Peers) + len(e.Lanes) + len(e.Served) + len(e.Recent); n != most || len(e.Notes) != 1 || !strings.HasPrefix(e.Notes[0], fmt.Sprintf("%d of %d ", most, most+5)) {
			t.Errorf("%s: %d are left, notes %q", key, n, e.Notes)
		}
	}
}

// FuzzEngine reads any answer; what it gives is within bounds and can be recorded.
func FuzzEngine(f *testing.F) {
	f.Add(answer(f))
	f.Add([]byte(`{"schema":"topoctl.engine/v1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := record.DecodeEngine(data)
		if err != nil {
			return
		}
		if len(e.Lanes) > 4096 || len(e.Recent) > 64 || len(e.Notes) > 64 {
			t.Fatalf("%d lanes, %d batches, %d notes", len(e.Lanes), len(e.Recent), len(e.Notes))
		}
		line, err := (&record.Record{Source: "agent x", Engine: e}).Encode()
		if err != nil {
			return // a text that grew when it was escaped
		}
		back, err := record.Decode(line)
		if err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		if again, err := back.Encode(); err != nil || !bytes.Equal(line, again) {
			t.Fatalf("otherwise when read back (%v):\n%s\n%s", err, line, again)
		}
	})
}
