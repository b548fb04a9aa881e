package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// fakeStreams are streams into memory with an environment of their own.
type fakeStreams struct {
	Streams
	Stdout, Stderr bytes.Buffer
	Environ        map[string]string
}

// newStreams is a Fake without a terminal.
func newStreams() *fakeStreams {
	f := &fakeStreams{Environ: map[string]string{}}
	f.Streams = Streams{In: strings.NewReader(""), Out: &f.Stdout, Err: &f.Stderr, Getenv: func(k string) string { return f.Environ[k] }}
	return f
}

// doctorReports runs all checks on every fixture.
func doctorReports(t *testing.T) map[string]*doctor.Report {
	t.Helper()
	out := map[string]*doctor.Report{}
	for _, name := range fixtures.Names() {
		var err error
		if out[name], err = doctor.Run(fixturetest.Topology(t, name), doctor.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Nasty asks a terminal to clear its screen, in the words of ESC and of U+009B, has a DEL, turns the writing direction
// and has a blank that cannot be seen. nastyJSON is the same in a string of JSON.
const (
	Nasty     = "\x1b[2J\u009b2J\x7f\u202e\u200b"
	nastyJSON = `\u001b[2J` + "\u009b2J\x7f\u202e\u200b"
)

// hiddenByte is where a text has what a terminal would obey or not show, -1 for nowhere. Lines and tabs are fine.
func hiddenByte(data []byte) int {
	return bytes.IndexFunc(data, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}

// checkSafe wants JSON, a document or lines, that a terminal obeys nowhere.
func checkSafe(t *testing.T, what string, data []byte, named bool) {
	t.Helper()
	if i := hiddenByte(data); i >= 0 {
		t.Errorf("%s: a terminal would obey %q", what, data[i:min(len(data), i+16)])
	}
	found := false
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var v any
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: no JSON: %v", what, err)
		}
		found = found || mentionsHost(v)
	}
	if named != found || len(data) == 0 {
		t.Errorf("%s: the nasty name is there: %v, want %v:\n%.2000s", what, found, named, data)
	}
}

// mentionsHost says whether a value holds the nasty name, a key counts too.
func mentionsHost(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, Nasty)
	case []any:
		return slices.ContainsFunc(v, mentionsHost)
	case map[string]any:
		for key, x := range v {
			if strings.Contains(key, Nasty) || mentionsHost(x) {
				return true
			}
		}
	}
	return false
}

// runFake runs the program with some commands, as far as ctx lets it.
func runFake(ctx context.Context, f *fakeStreams, args ...string) int {
	f.Stdout.Reset()
	f.Stderr.Reset()
	env := &Env{Streams: f.Streams, Now: time.Now}
	return Run(ctx, env, args, commands(env)...)
}
