package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/tui"
)

// A frame is as large as the terminal but for the prompt's line, or as --size has it.
func TestFrameSize(t *testing.T) {
	f := newStreams()
	f.OutTTY, f.Width, f.Height = true, 90, 25
	for size, want := range map[string]int{"": 24, " --size 100x30": 30} {
		runFake(t.Context(), f, strings.Fields("tui --once --fixture cpu-2eth"+size)...)
		if n := strings.Count(f.Stdout.String(), "\n"); n != want {
			t.Errorf("%q: %d lines, want %d: %s", size, n, want, f.Stderr.String())
		}
	}
}

// Without a terminal there is no dashboard, and what there is instead is named.
func TestTUINeedsATerminal(t *testing.T) {
	for name, tt := range map[string]struct {
		in, out bool
		term    string
		want    string
	}{
		"no input":      {false, true, "xterm", "standard input is not a terminal"},
		"no output":     {true, false, "xterm", "standard output is not a terminal"},
		"dumb":          {true, true, "dumb", "does not support a dashboard"},
		"no TERM":       {true, true, "", "does not support a dashboard"},
		"a terminal":    {true, true, "xterm", ""},
		"linux console": {true, true, "linux", ""},
	} {
		s := Streams{InTTY: tt.in, OutTTY: tt.out, Getenv: func(string) string { return tt.term }}
		err := s.Screen()
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(Hint(err), "topoctl tui --once") ||
			!strings.Contains(Hint(err), "topoctl watch -o jsonl") || exitCode(err) != exitFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A record that cannot be written as a line is left out and told of; the rest is there.
func TestRecordFile(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRecordFile(file)
	start := &record.Record{Start: &record.Start{Tool: topo.Tool{Name: "topoctl"}, At: "2026-01-10T12:00:00Z", Host: "live"}}
	state := &record.Record{AtNS: 1, Source: record.SourceHost, State: &record.SourceState{Status: record.StatusOK}}
	for _, x := range []*record.Record{start, start, state} { // a second start is none
		if err := r.Write(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "1 record left out") {
		t.Errorf("closed with %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closed again with %v", err)
	}
	data, err := os.ReadFile(file.Name())
	if n := strings.Count(string(data), "\n"); err != nil || n != 2 {
		t.Errorf("%d lines, %v: %s", n, err, data)
	}
}

func TestRecordFileFull(t *testing.T) {
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("/dev/full is not there: no file that is always full")
	}
	r := newRecordFile(file)
	if err := r.Write(&record.Record{Start: &record.Start{At: "2026-01-10T12:00:00Z", Host: "live"}}); err == nil || err.Error() != "no space left on device" {
		t.Errorf("written to a full disk: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closed with %v", err)
	}
}

// What is read is not overwritten, whatever it is called.
func TestRecordOverwrites(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("run.jsonl", []byte("text"), 0o600), os.Symlink("run.jsonl", "link.jsonl")); err != nil {
		t.Fatal(err)
	}
	in := func() *Host { return &Host{Streams: newStreams().Streams} }
	for name, o := range map[string]*tuiOptions{
		"replay":   {Host: in(), replay: "run.jsonl", record: "link.jsonl"},
		"baseline": {Host: in(), baseline: "link.jsonl", record: "./run.jsonl"},
	} {
		err := o.recorder(&tui.Options{}, &tuiCleanup{})
		if data, _ := os.ReadFile("run.jsonl"); err == nil || !strings.Contains(err.Error(), "overwrite the file of --"+name) || string(data) != "text" {
			t.Errorf("%s: %v, and then %q", name, err, data)
		}
	}
	var files tuiCleanup
	o := &tuiOptions{Host: in(), replay: "run.jsonl", record: "other.jsonl"}
	if err := errors.Join(o.recorder(&tui.Options{}, &files), files.close()); err != nil {
		t.Error(err)
	}
}

// A file goes into the working directory, else where temporary files go.
func TestSaveHere(t *testing.T) {
	t.Chdir(t.TempDir())
	where, err := saveHere("x.txt", []byte("text"))
	if err != nil || !filepath.IsAbs(where) {
		t.Fatalf("%q, %v", where, err)
	}
	if data, err := os.ReadFile("x.txt"); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
}
