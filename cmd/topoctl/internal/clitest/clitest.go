// Package clitest helps to test commands: streams into memory, a run of some commands, the flags
// of one.
package clitest

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

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/cmd/topoctl/internal/command"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// Fake are streams into memory with an environment of their own.
type Fake struct {
	command.Streams
	Stdout, Stderr bytes.Buffer
	Environ        map[string]string
}

// New is a Fake without a terminal.
func New() *Fake {
	f := &Fake{Environ: map[string]string{}}
	f.Streams = command.Streams{In: strings.NewReader(""), Out: &f.Stdout, Err: &f.Stderr, Getenv: func(k string) string { return f.Environ[k] }}
	return f
}

// Parse runs the flag handling of one command only.
func Parse[O any](t *testing.T, s command.Streams, newCmd func(*command.Env, func(context.Context, *O) error) *cobra.Command, args ...string) (*O, error) {
	t.Helper()
	f := &command.Env{Streams: s, Now: time.Now}
	root := command.NewRoot(f)
	var got *O
	cmd := newCmd(f, func(_ context.Context, o *O) error { got = o; return nil })
	for _, c := range root.Commands() {
		if c.Name() == cmd.Name() {
			root.RemoveCommand(c)
		}
	}
	root.AddCommand(cmd)
	root.SetArgs(append([]string{cmd.Name()}, args...))
	err := root.ExecuteContext(context.Background())
	return got, err
}

// DoctorReports runs all checks on every fixture.
func DoctorReports(t *testing.T) map[string]*doctor.Report {
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
// and has a blank that cannot be seen. NastyJSON is the same in a string of JSON.
const (
	Nasty     = "\x1b[2J\u009b2J\x7f\u202e\u200b"
	NastyJSON = `\u001b[2J` + "\u009b2J\x7f\u202e\u200b"
)

// Hidden is where a text has what a terminal would obey or not show, -1 for nowhere. Lines and tabs are fine.
func Hidden(data []byte) int {
	return bytes.IndexFunc(data, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}

// CheckSafe wants JSON, a document or lines, that a terminal obeys nowhere.
func CheckSafe(t *testing.T, what string, data []byte, named bool) {
	t.Helper()
	if i := Hidden(data); i >= 0 {
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
		found = found || mentions(v)
	}
	if named != found || len(data) == 0 {
		t.Errorf("%s: the nasty name is there: %v, want %v:\n%.2000s", what, found, named, data)
	}
}

// mentions says whether a value holds the nasty name, a key counts too.
func mentions(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, Nasty)
	case []any:
		return slices.ContainsFunc(v, mentions)
	case map[string]any:
		for key, x := range v {
			if strings.Contains(key, Nasty) || mentions(x) {
				return true
			}
		}
	}
	return false
}

// Run runs the program with some commands, as far as ctx lets it.
func Run(ctx context.Context, f *Fake, commands func(*command.Env) []*cobra.Command, args ...string) int {
	f.Stdout.Reset()
	f.Stderr.Reset()
	env := &command.Env{Streams: f.Streams, Now: time.Now}
	return command.Run(ctx, env, args, commands(env)...)
}
