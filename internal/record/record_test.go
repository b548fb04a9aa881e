package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/schematest"
)

const (
	schemaFile = "schema/record.v1.schema.json"
	goldenFile = "testdata/recording.jsonl"
)

// document is the schema of a document with a schema of its own.
func document(name string) schematest.Object {
	return schematest.Object{"type": "object", "properties": schematest.Object{"schema": schematest.Object{"const": name}}, "required": []string{"schema"}}
}

var generator = schematest.Generator{Types: map[reflect.Type]schematest.Object{
	reflect.TypeFor[topo.Topology](): document(topo.SchemaTopology), // without "derived"
	reflect.TypeFor[probe.Event]():   document(probe.EventSchema),
}}

// The published schema says what the types say.
func TestSchemaMatchesTheTypes(t *testing.T) {
	engines := schematest.Generator{}
	generator := schematest.Generator{Types: maps.Clone(generator.Types)}
	generator.Types[reflect.TypeFor[record.Engine]()] = record.EngineSchema(engines.Of(reflect.TypeFor[record.Engine]()))
	s := generator.Document(record.Schema, reflect.TypeFor[record.Record]())
	schematest.Compare(t, schemaFile, s)
}

func p[T any](v T) *T { return &v }

// recording has a record of each kind.
func recording(tb testing.TB) []*record.Record {
	tb.Helper()
	host := fixturetest.Topology(tb, "cpu-2eth")
	return []*record.Record{
		{Source: "", Start: &record.Start{Tool: topo.Tool{Name: "topoctl", Version: "1"}, At: "2026-01-02T03:04:05Z", Host: "fixture:cpu-2eth", Synthetic: "counters (seed 1)"}},
		{AtNS: 1, Source: record.SourceHost, Topology: host},
		{AtNS: 2, Source: record.SourceCounters, Counters: &counters.Sample{AtNS: 7, Ports: []counters.Port{
			{ID: "net:eno1", State: "up", BytesPerSec: p(topo.Rate(125e6)), SentBytes: p(uint64(1 << 63)), Errors: map[string]uint64{"rx_crc_errors": 3}},
			{ID: "net:ens5f0"}},
			Links: []counters.Link{{ID: "pci:0000:01:00.0", SpeedMTs: p(5000), Width: p(4)}}, Notes: []string{"<a> & \x1b[2J"}}},
		{AtNS: 3, Source: record.AgentPrefix + "http://127.0.0.1:9411", Engine: &record.Engine{Stats: engine.Stats{Name: "n1",
			Lanes:  []engine.LaneStats{{Peer: "n2", Lane: "eth0 > n2:eth0", Transport: "tcp", Health: "healthy", BytesPerSec: 1e9, Bytes: 5}},
			Served: []engine.ServedStats{{Conn: 1 << 63, Peer: "n2", Transport: "tcp", ReadBytes: p(int64(9))}},
		},
			Recent: []engine.Explanation{{Peer: "n2", State: "done", Routes: []engine.RouteRecord{{Local: "cpu:0", Groups: []engine.GroupRecord{{Transport: "tcp"}}}}}}}},
		{AtNS: 4, Source: record.SourceProbe, Probe: &probe.Event{Type: probe.EventRound, AtNS: 1, Round: &probe.RoundEvent{Round: 1, Rounds: 2, Pairs: []string{"a>b"}}}},
		{AtNS: 5, Source: record.SourceProbe, Probe: &probe.Event{Type: probe.EventSample, AtNS: 2, Sample: &probe.SampleEvent{Pair: "a>b", Sample: probe.Sample{SizeBytes: 4096, BytesPerSec: 7}}}},
		{AtNS: 6, Source: record.SourceHost, State: &record.SourceState{Status: record.StatusFailed, Detail: "no /sys"}},
	}
}

func written(tb testing.TB, list []*record.Record) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := record.NewWriter(&out)
	for _, r := range list {
		if err := w.Write(r); err != nil {
			tb.Fatal(err)
		}
	}
	return out.Bytes()
}

func read(data []byte) (list []*record.Record, note string, err error) {
	r := record.NewReader(bytes.NewReader(data))
	for {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			return list, r.Note(), nil
		}
		if err != nil {
			return list, r.Note(), err
		}
		list = append(list, rec)
	}
}

// What is written is valid by the published schema, as it was, and the same when it is
// read back and written again.
func TestRoundTrip(t *testing.T) {
	data := written(t, recording(t))
	golden.Check(t, goldenFile, data)
	schema := schematest.Open(t, schemaFile)
	for line := range bytes.Lines(data) {
		if err := schema.Validate(line); err != nil {
			t.Errorf("%v\n%.200s", err, line)
		}
	}
	back, note, err := read(data)
	if err != nil || note != "" {
		t.Fatal(err, note)
	}
	if again := written(t, back); !bytes.Equal(again, data) {
		t.Errorf("reading changes the recording:\n%s", cmp.Diff(strings.Split(string(data), "\n"), strings.Split(string(again), "\n")))
	}
	host := fixturetest.Topology(t, "cpu-2eth")
	if got := back[1].Topology; got.Derived == nil || got.Host.Fingerprint != host.Host.Fingerprint {
		t.Error("the topology is not what it was")
	}
	if s := back[2].Counters; *s.Ports[0].SentBytes != 1<<63 || s.Ports[1].SentBytes != nil || s.Notes[0] != "<a> & \x1b[2J" {
		t.Errorf("the counters are not what they were: %+v", s)
	}
}

// A recording that was cut off anywhere gives all whole lines before, and says what was lost.
func TestCutOff(t *testing.T) {
	list := recording(t)
	data := written(t, append(list[:1:1], list[2:]...)) // without the long one
	ends := []int{}
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	for n := ends[0]; n < len(data); n++ {
		whole := 0
		for whole < len(ends) && ends[whole] <= n {
			whole++
		}
		got, note, err := read(data[:n])
		cut := n > ends[whole-1]
		if cut && n == ends[whole]-1 {
			whole, cut = whole+1, false // all but its line end
		}
		if err != nil || len(got) != whole || (note != "") != cut {
			t.Fatalf("%d bytes: %d records, %d lines are whole; note %q, %v", n, len(got), whole, note, err)
		}
	}
}

// What is no recording is refused, with the line and what to do.
func TestReaderRefuses(t *testing.T) {
	start := string(written(t, recording(t)[:1]))
	state := `{"schema":"topoctl.record/v1","at_ns":5,"source":"host","state":{"status":"ok"}}` + "\n"
	with := func(tail string) string { return start + state + tail + "\n" + state }
	for name, tt := range map[string]struct{ text, want string }{
		"empty":          {"", "record: nothing in it: no recording"},
		"no JSON":        {"hello\n", "record: line 1: no record: invalid character"},
		"other document": {`{"schema":"topoctl.probe/v1"}` + "\n", `record: line 1: schema "topoctl.probe/v1" is not "topoctl.record/v1"`},
		"newer":          {`{"schema":"topoctl.record/v2","at_ns":{}}` + "\n", `record: line 1: schema "topoctl.record/v2" is newer than this program reads ("topoctl.record/v1"): use a newer topoctl`},
		"no schema":      {"{}\n", `record: line 1: no "schema" key: want "topoctl.record/v1"`},
		"no start":       {state, "record: line 1: no start before it: the beginning of the recording is missing"},
		"two":            {start + state + start, "record: line 3: a second start: two recordings in one"},
		"broken":         {with(`{"schema":"topoctl.record/v1","at_ns":7`), "record: line 3: no record: unexpected end of JSON input"},
		"time":           {with(`{"schema":"topoctl.record/v1","at_ns":4,"source":"host"}`), "record: line 3: at_ns 4 after 5: time goes back"},
		"negative time":  {with(`{"schema":"topoctl.record/v1","at_ns":-1,"source":"host"}`), "record: line 3: at_ns -1: want 0 or more"},
		"source":         {with(`{"schema":"topoctl.record/v1","at_ns":7}`), "record: line 3: source of 0 bytes: want 1 to 4096"},
		"two news":       {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","state":{"status":"ok"},"engine":{}}`), "record: line 3: 2 pieces of news in one record: want one"},
		"status":         {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","state":{"status":"fine"}}`), `record: line 3: state: status "fine": want ok, waiting, failed or ended`},
		"counter":        {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","counters":{"ports":[{"id":"a","sent_bytes":-1}]}}`), "record: line 3: no record: json: cannot unmarshal number -1"},
		"same port":      {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","counters":{"ports":[{"id":"a"},{"id":"a"}]}}`), `record: line 3: counters: ports[1]: id "a": there is one of that name already`},
		"rate":           {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","counters":{"ports":[{"id":"a","bytes_per_sec":-1}]}}`), "record: line 3: counters: ports[0].bytes_per_sec: -1: want 0 to 1000000000000000"},
		"speed":          {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","counters":{"pcie_links":[{"id":"a","speed_mts":1000001,"width":16}]}}`), "record: line 3: counters: pcie_links[0]: speed_mts 1000001: want 0 to 1000000, or null"},
		"negative speed": {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","counters":{"pcie_links":[{"id":"a","speed_mts":-1}]}}`), "record: line 3: counters: pcie_links[0].speed_mts: -1: want 0 to"},
		"width":          {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","counters":{"pcie_links":[{"id":"a","speed_mts":32000,"width":9223372036854775807}]}}`), "record: line 3: counters: pcie_links[0].width: 9223372036854775807: want 0 to"},
		"topology":       {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","topology":{"schema":"topoctl.topology/v2"}}`), "record: line 3: no record: topo: schema \"topoctl.topology/v2\" is newer"},
		"probe":          {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","probe":{"schema":"topoctl.probe-event/v1","event":"result","result":{"id":"a","verdict":"odd"}}}`), `record: line 3: probe: event: result "a": verdict "odd"`},
		"engine":         {with(`{"schema":"topoctl.record/v1","at_ns":7,"source":"x","engine":{"lanes":[{"bytes":-5}]}}`), "record: line 3: engine: lanes[0].bytes: -5: want 0 to"},
		"elements":       {with(`{"schema":"topoctl.record/v1","counters":{"ports":[` + strings.Repeat("{},", 1<<18) + `{}]}}`), "record: line 3: more than 262144 elements of lists"},
		"text":           {with(`{"schema":"topoctl.record/v1","source":"` + strings.Repeat("x", 1<<17) + `"}`), "record: line 3: a text of 131073 bytes"},
		"deep":           {with(strings.Repeat("[", 1<<20)), "record: line 3: lists and objects in each other: at most 64 deep are read"},
		"long":           {with(strings.Repeat(" ", 32<<20)), "record: line 3: longer than 33554432 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read([]byte(tt.text))
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v\nwant %s...", err, tt.want)
			}
		})
	}
}

// A reader passes over what a newer writer of this version adds, and over empty lines.
func TestReaderIgnoresNewKeys(t *testing.T) {
	text := strings.Replace(string(written(t, recording(t)[:1])), "{", `{"new":[{}],`, 1) + "\n" +
		`{"schema":"topoctl.record/v1","at_ns":7,"source":"moon","phase":{"full":true}}` + "\n" +
		`{"schema":"topoctl.record/v1","at_ns":8,"source":"host","state":{"status":"ok","since":1},"topology":null}`
	got, note, err := read([]byte(text))
	if err != nil || note != "" || len(got) != 2 || got[1].State.Status != record.StatusOK {
		t.Errorf("%d records, %q, %v", len(got), note, err)
	}
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("no space left")
	}
	return len(b), nil
}

// A writer begins with the start, keeps time from going back, refuses what could not be
// read, and stops where nothing can be written.
func TestWriter(t *testing.T) {
	start := &record.Record{Start: &record.Start{Host: "live"}}
	ok := func(at int64) *record.Record {
		return &record.Record{AtNS: at, Source: "host", State: &record.SourceState{Status: record.StatusOK}}
	}
	var out bytes.Buffer
	w := record.NewWriter(&out)
	for i, tt := range []struct {
		r    *record.Record
		want string
	}{
		{ok(0), "record: want a start first, and once"}, {start, ""}, {start, "record: want a start first, and once"},
		{ok(5), ""}, {ok(3), ""}, {&record.Record{Source: "x"}, "record: a record without news"},
		{&record.Record{Source: "x", State: &record.SourceState{Status: "odd"}}, `record: state: status "odd": want ok, waiting, failed or ended`},
		{&record.Record{AtNS: 6, Source: "x", State: &record.SourceState{Status: record.StatusOK, Detail: strings.Repeat("x", 1<<17)}}, "record: a text of 131073 bytes: at most 65536 are read"},
		{ok(7), ""},
	} {
		if err := w.Write(tt.r); (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%d: %v, want %q", i, err, tt.want)
		}
	}
	got, _, err := read(out.Bytes())
	if err != nil || len(got) != 4 || got[2].AtNS != 5 || got[3].AtNS != 7 {
		t.Errorf("%d records, %v:\n%s", len(got), err, out.String())
	}
	w = record.NewWriter(&failing{left: 1})
	if err := w.Write(start); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Write(ok(1)); err == nil || err.Error() != "record: write: no space left" {
			t.Errorf("got %v", err)
		}
	}
}

// The largest machine fits, with room to spare.
func TestLargestTopologyFits(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: encodes the largest machine, in one goroutine")
	}
	line, err := (&record.Record{Source: "host", Topology: fixturetest.Topology(t, "nvl72-synthetic")}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", len(line))
	if len(line) > 4<<20 {
		t.Errorf("%d bytes", len(line))
	}
	if _, err := record.Decode(line); err != nil {
		t.Error(err)
	}
}

// FuzzRecord reads anything, and what it reads is the same when it is written and read
// again.
func FuzzRecord(f *testing.F) {
	for line := range bytes.Lines(written(f, recording(f))) {
		f.Add(line)
	}
	f.Add([]byte(`{"schema":"topoctl.record/v1","source":"x","counters":{"pcie_links":[{"id":"a","speed_mts":9223372036854775807,"width":33}]}}`))
	f.Add([]byte(`{"schema":"topoctl.record/v1","source":"x","probe":{"schema":"topoctl.probe-event/v1","event":"end","end":{"hosts":[]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := record.Decode(data)
		if err != nil {
			return
		}
		line, err := r.Encode()
		if err != nil {
			return // without news, or longer when it is written as we do
		}
		if bytes.Count(line, []byte{'\n'}) != 1 {
			t.Fatalf("more than a line: %q", line)
		}
		if s := r.Counters; s != nil {
			for _, l := range s.Links {
				if rate := topo.PCIeRate(known(l.SpeedMTs), known(l.Width)); rate < 0 || rate > 1e13 {
					t.Fatalf("a PCIe link of %d bytes/s: %q", rate, line)
				}
			}
		}
		again, err := record.Decode(line)
		if err != nil {
			t.Fatalf("cannot be read back: %v\n%s", err, line)
		}
		if second, err := again.Encode(); err != nil || !bytes.Equal(line, second) {
			t.Fatalf("otherwise when written again (%v):\n%s\n%s", err, line, second)
		}
	})
}

// known is a figure, 0 without one.
func known(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// valid says whether JSON of a record is valid.
func valid(tb testing.TB, s *schematest.Schema, v any) {
	tb.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = s.Validate(data)
	}
	if err != nil {
		tb.Error(fmt.Errorf("%w\n%.300s", err, data))
	}
}
