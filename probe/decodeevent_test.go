package probe_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/probe"
)

// Every event is the same when it is read and written again.
func TestDecodeEvent(t *testing.T) {
	for _, name := range reportNames() {
		for line := range bytes.Lines(lines(t, events(t, reports[name](t)))) {
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
		head + `"start":{"links":[{"key":"a","basis":"x"}]}}`:         `start: links[0]: basis "x"`,
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
	for line := range bytes.Lines(lines(f, events(f, reports[reportNames()[0]](f)))) {
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
