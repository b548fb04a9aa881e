package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		err := o.overwrites()
		if data, _ := os.ReadFile("run.jsonl"); err == nil || !strings.Contains(err.Error(), "overwrite the file of --"+name) || string(data) != "text" {
			t.Errorf("%s: %v, and then %q", name, err, data)
		}
	}
	if err := (&tuiOptions{Host: in(), replay: "run.jsonl", record: "other.jsonl"}).overwrites(); err != nil {
		t.Error(err)
	}
}

// A file goes into the working directory, and replaces none; that of --record is replaced, wherever it is.
func TestCreate(t *testing.T) {
	t.Chdir(t.TempDir())
	o := &tuiOptions{record: "run.jsonl"}
	write := func(name, text string) string {
		t.Helper()
		f, err := o.create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return f.(*os.File).Name()
	}
	const name = "topoctl-test.txt"
	if where := write(name, "text"); !filepath.IsAbs(where) || filepath.Base(where) != name {
		t.Errorf("written to %q", where)
	}
	second := write(name, "other")
	defer os.Remove(second)
	if first, err := os.ReadFile(name); err != nil || string(first) != "text" || filepath.Dir(second) != filepath.Clean(os.TempDir()) {
		t.Errorf("%q, %v, and the second one is %s", first, err, second)
	}
	write("run.jsonl", "longer")
	if where := write("run.jsonl", "short"); where != "run.jsonl" {
		t.Errorf("recorded to %q", where)
	}
	if data, err := os.ReadFile("run.jsonl"); err != nil || string(data) != "short" {
		t.Errorf("%q, %v", data, err)
	}
	o.record = "no/such/directory"
	if _, err := o.create(o.record); err == nil || err.Error() != "--record no/such/directory: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
