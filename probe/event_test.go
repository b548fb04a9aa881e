package probe_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// events are those that a run of the report writes.
func events(t testing.TB, r *probe.Report) []*probe.Event {
	t.Helper()
	out := []*probe.Event{probe.StartEvent(r), {Type: probe.EventRound, AtNS: 5, Round: &probe.RoundEvent{Round: 1, Rounds: 7, Pairs: []string{r.Results[0].ID}}}}
	for i := range r.Results {
		x := &r.Results[i]
		at := int64(i+1) * 1000
		out = append(out, &probe.Event{Type: probe.EventSample, AtNS: at, Sample: &probe.SampleEvent{Pair: x.ID, Sample: probe.Sample{SizeBytes: 4096, BytesPerSec: 1e9}}})
		first := *x
		first.Verdict = probe.Inconclusive
		out = append(out, &probe.Event{Type: probe.EventResult, AtNS: at, Result: &first}, &probe.Event{Type: probe.EventResult, AtNS: at + 1, Result: x})
		for k := range x.Retests {
			out = append(out, &probe.Event{Type: probe.EventRetest, AtNS: at, Retest: &probe.RetestEvent{Of: x.ID, Retest: x.Retests[k]}})
		}
	}
	return append(out, &probe.Event{Type: probe.EventError, AtNS: 9, Error: "n4: connection reset"}, probe.EndEvent(r))
}

func lines(t testing.TB, list []*probe.Event) []byte {
	t.Helper()
	var out []byte
	for _, e := range list {
		line, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(line, []byte{'\n'}) != 1 {
			t.Fatalf("%s: more than a line", e.Type)
		}
		out = append(out, line...)
	}
	return out
}

// The events of a whole run give its report; each is valid by the published schema.
func TestEvents(t *testing.T) {
	schema := schematest.Open(t, eventFile)
	for _, name := range reportNames {
		r := report(t, name)
		log := lines(t, events(t, r))
		for line := range bytes.Lines(log) {
			if err := schema.Validate(line); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		back, err := probe.ReadEvents(bytes.NewReader(log))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := encode(t, back), encode(t, r); !bytes.Equal(got, want) {
			t.Errorf("%s: the events give another report", name)
		}
		whole, err := probe.ReadEvents(bytes.NewReader(encode(t, r)))
		if err != nil || !bytes.Equal(encode(t, whole), encode(t, r)) {
			t.Errorf("%s: from the report itself: %v", name, err)
		}
	}
}

// A run that was cut off loses the line in which it was, and no other.
func TestEventsCutOff(t *testing.T) {
	r := report(t, "local-cpu")
	list := events(t, r)
	log := lines(t, list)
	first, _ := list[0].Encode()
	for n := range log {
		if n%211 != 0 && log[n] != '\n' { // the ends of lines, and some places between
			continue
		}
		back, err := probe.ReadEvents(bytes.NewReader(log[:n]))
		if n < len(first)-1 {
			if err == nil {
				t.Fatalf("%d bytes: a report without its start", n)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		want := map[string]bool{}
		for line := range strings.Lines(string(log[:n])) {
			whole := strings.HasSuffix(strings.TrimSpace(line), "}") && strings.Count(line, "{") == strings.Count(line, "}")
			if strings.Contains(line, `"event":"result"`) && whole {
				_, id, _ := strings.Cut(line, `"id":"`)
				id, _, _ = strings.Cut(id, `"`)
				want[id] = true
			}
		}
		if len(back.Results) != len(want) {
			t.Fatalf("%d bytes: %d results, want %d", n, len(back.Results), len(want))
		}
		if back.Complete && n < len(log)-1 || len(back.Notes) == 0 {
			t.Fatalf("%d bytes: complete %v, notes %q", n, back.Complete, back.Notes)
		}
	}
}

func TestEventsRefused(t *testing.T) {
	r := report(t, "local-cpu")
	log := string(lines(t, events(t, r)))
	start, rest, _ := strings.Cut(log, "\n")
	for name, tt := range map[string]struct{ data, want string }{
		"empty":            {"", "empty: not a probe report"},
		"no start":         {rest, "line 1: event \"round\" before the start"},
		"two runs":         {log + log, "a second start event"},
		"broken inside":    {start + "\n{\"schema\":\n" + rest, "line 2: no event"},
		"not UTF-8":        {start + "\n\xff\n" + rest, "line 2: byte 0"},
		"newer":            {strings.ReplaceAll(log, "probe-event/v1", "probe-event/v2"), `want "topoctl.probe/v1" or "topoctl.probe-event/v1"`},
		"newer inside":     {start + "\n" + strings.ReplaceAll(rest, "probe-event/v1", "probe-event/v2"), "is newer than this program reads"},
		"another document": {`{"schema":"topoctl.bench/v1"}` + "\n", `"topoctl.bench/v1": want`},
		"of no host":       {start + "\n" + strings.ReplaceAll(rest, `"host":"node17"`, `"host":"x"`), `host "x" is not among the hosts`},
		"a time before":    {start + "\n" + strings.Replace(rest, `"at_ns":5`, `"at_ns":-5`, 1), "at_ns -5"},
	} {
		if _, err := probe.ReadEvents(strings.NewReader(tt.data)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	later := start + "\n" + `{"schema":"topoctl.probe-event/v1","event":"later","at_ns":1,"later":{}}` + "\n" + rest
	if _, err := probe.ReadEvents(strings.NewReader(later)); err != nil {
		t.Errorf("an event that is not known: %v", err)
	}
}

// A hostile line of events costs no more memory than some times its length.
func TestEventsThatUnfold(t *testing.T) {
	r := report(t, "local-cpu")
	start, _, _ := strings.Cut(string(lines(t, events(t, r))), "\n")
	event := func(kind, body string) string {
		return fmt.Sprintf("{%q:%q,%q:%q,%q:1,%q:%s}\n", "schema", probe.EventSchema, "event", kind, "at_ns", kind, body)
	}
	report := `{"schema":"` + probe.Schema + `",`
	empty := strings.Repeat("{},", 1<<20) + "{}"
	for name, tt := range map[string]struct{ data, want string }{
		"results of a start":     {event("start", report+`"results":[`+empty+`]}`), "line 1: start: results[0]: "},
		"hosts of a start":       {event("start", report+`"hosts":[`+empty+`]}`), "line 1: start: hosts[16384]: too many"},
		"spec of a start":        {event("start", report+`"spec":{"sizes_bytes":[0`+strings.Repeat(",1", 4<<20)+`]}}`), "line 1: start: spec: 8388627 bytes: at most"},
		"a newer start":          {event("start", `{"schema":"topoctl.probe/v2","hosts":[`+empty+`]}`), "is newer than this program reads"},
		"hosts of an end":        {start + "\n" + event("end", `{"hosts":[`+empty+`]}`), "line 2: end: hosts[16384]: too many"},
		"blame of an end":        {start + "\n" + event("end", `{"blame":[`+empty+`]}`), "line 2: end: blame[16384]: too many"},
		"retests of a result":    {start + "\n" + event("result", `{"retests":[`+empty+`,`+empty+`]}`), "line 2: result: 6291475 bytes: at most"},
		"what an event has more": {start + "\n" + event("round", `{"pairs":[""`+strings.Repeat(`,""`, 1<<20)+`]}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := probe.ReadEvents(strings.NewReader(tt.data))
			runtime.ReadMemStats(&after)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if took, most := after.TotalAlloc-before.TotalAlloc, uint64(20*len(tt.data)+64<<20); took > most {
				t.Errorf("%d MB for a line of %d MB", took>>20, len(tt.data)>>20)
			}
		})
	}
}

func FuzzReadEvents(f *testing.F) {
	log := lines(f, events(f, report(f, "local-cpu")))
	f.Add(log)
	f.Add(log[:len(log)/2])
	f.Add([]byte(fmt.Sprintf("{%q:%q}\n", "schema", probe.EventSchema)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := probe.ReadEvents(bytes.NewReader(data))
		if err != nil {
			return
		}
		if _, err := probe.Decode(encode(t, r)); err != nil {
			t.Fatalf("what events gave cannot be read: %v", err)
		}
	})
}

// Every event is the same when it is read and written again.
func TestDecodeEvent(t *testing.T) {
	for _, name := range reportNames {
		for line := range bytes.Lines(lines(t, events(t, report(t, name)))) {
			e, err := probe.DecodeEvent(line)
			if err != nil {
				t.Fatalf("%s: %v\n%.200s", name, err, line)
			}
			if again := lines(t, []*probe.Event{e}); !bytes.Equal(again, line) {
				t.Fatalf("%s: otherwise when written again:\n%.500s\n%.500s", name, line, again)
			}
		}
	}
}

func TestDecodeEventRefuses(t *testing.T) {
	const head = `{"schema":"topoctl.probe-event/v1","event":"x",`
	for text, want := range map[string]string{
		``:                                    "no event",
		`{}`:                                  `no "schema" key`,
		`{"schema":"topoctl.probe-event/v2"}`: `schema "topoctl.probe-event/v2" is newer than this program reads`,
		`{"schema":"topoctl.probe/v1"}`:       `schema "topoctl.probe/v1" is not`,
		head + `"at_ns":-1}`:                  "at_ns -1: want 0",
		head + `"result":{"id":"a"}}`:         `result "a": verdict ""`,
		head + `"result":[]}`:                 "result: json: cannot unmarshal array",
		head + `"start":{"schema":"topoctl.probe/v1","links":[{"key":"a","basis":"x"}]}}`: `start: links[0]: basis "x"`,
		head + `"start":{}}`:                                          `start: no "schema" key`,
		head + `"end":{"hosts":5}}`:                                   "end: hosts: want a list",
		head + `"round":{"round":-1}}`:                                "round -1: want 0",
		head + `"round":{"pairs":["\u001b"]}}`:                        "a character of it cannot be printed",
		head + `"sample":{"bytes_per_sec":-1}}`:                       "bytes_per_sec -1: want 0",
		head + `"retest":{"of_pair":"\u202e"}}`:                       "a character of it cannot be printed",
		head + `"result":{"x":"` + strings.Repeat("x", 1<<22) + `"}}`: "result: 4194312 bytes: at most",
		head + `"error":5}`:                                           "cannot unmarshal number",
	} {
		if e, err := probe.DecodeEvent([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "probe: event: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, %+v\nwant ...%s...", text, err, e, want)
		}
	}
}

// FuzzDecodeEvent reads any line; what it reads can be written and read again.
func FuzzDecodeEvent(f *testing.F) {
	for line := range bytes.Lines(lines(f, events(f, report(f, reportNames[0])))) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := probe.DecodeEvent(data)
		if err != nil {
			return
		}
		line, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := probe.DecodeEvent(line); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
	})
}
