package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/draw"
	"github.com/topoctl/topoctl/internal/base/units"
)

// fake are streams into memory with an environment of their own.
type fake struct {
	Streams
	out, err bytes.Buffer
	env      map[string]string
}

func newFake() *fake {
	f := &fake{env: map[string]string{}}
	f.Streams = Streams{In: strings.NewReader(""), Out: &f.out, Err: &f.err, Getenv: func(k string) string { return f.env[k] }}
	return f
}

// parse runs the flag handling of one command only.
func parse[O any](t *testing.T, s Streams, newCmd func(*factory, func(context.Context, *O) error) *cobra.Command, args ...string) (*O, error) {
	t.Helper()
	f := &factory{streams: s, now: time.Now}
	root := newRootCmd(f)
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

func TestParseDiscover(t *testing.T) {
	got, err := parse(t, newFake().Streams, newDiscoverCmd, "--sources", "netlink,ghw", "--sources=nvml", "--redact", "--strict",
		"--capture", "-", "-o", "yaml", "--root", "/host", "-v", "--timeout", "5s")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"netlink", "ghw", "nvml"}, got.input.sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	if !got.redact || !got.strict || got.capture != "-" || got.format != formatYAML {
		t.Errorf("got %+v", got)
	}
	if g := got.globals; g.root != "/host" || !g.debug || g.timeout != 5*time.Second {
		t.Errorf("globals: %+v", g)
	}
	if got, err := parse(t, newFake().Streams, newDiscoverCmd); err != nil || got.format != formatJSON || got.globals.timeout != time.Minute {
		t.Errorf("defaults: %+v, %v", got, err)
	}
}

func TestParseTopo(t *testing.T) {
	s := newFake().Streams
	s.OutTTY, s.Width = true, 100
	got, err := parse(t, s, newTopoCmd, "--only", "gpu,nic", "--ascii", "--units", "gbit")
	if err != nil {
		t.Fatal(err)
	}
	want := draw.TreeOptions{ASCII: true, Color: true, Width: 100, Only: []topo.Kind{topo.KindGPU, topo.KindNIC}, Units: units.Gbit}
	if diff := cmp.Diff(want, got.tree); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseMatrix(t *testing.T) {
	got, err := parse(t, newFake().Streams, newMatrixCmd, "--json", "--show", "nccl", "--rows", "numa", "--cols", "gpu,nic")
	if err != nil {
		t.Fatal(err)
	}
	if got.format != formatJSON || got.show != "nccl" || got.color {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([]topo.Kind{topo.KindNUMA}, got.rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]topo.Kind{topo.KindGPU, topo.KindNIC}, got.cols); diff != "" {
		t.Errorf("cols (-want +got):\n%s", diff)
	}
}

func TestColor(t *testing.T) {
	tests := []struct {
		name   string
		tty    bool
		env    map[string]string
		choice string
		never  bool
		want   bool
	}{
		{"terminal", true, nil, colorAuto, false, true},
		{"pipe", false, nil, colorAuto, false, false},
		{"always in a pipe", false, nil, colorAlways, false, true},
		{"never on a terminal", true, nil, colorNever, false, false},
		{"--no-color", true, nil, colorAuto, true, false},
		{"NO_COLOR=1", true, map[string]string{"NO_COLOR": "1"}, colorAuto, false, false},
		{"NO_COLOR=0 is set too", true, map[string]string{"NO_COLOR": "0"}, colorAuto, false, false},
		{"NO_COLOR=anything", true, map[string]string{"NO_COLOR": "anything"}, colorAuto, false, false},
		{"NO_COLOR empty", true, map[string]string{"NO_COLOR": ""}, colorAuto, false, true},
		{"TOPOCTL_NO_COLOR", true, map[string]string{"TOPOCTL_NO_COLOR": "false"}, colorAuto, false, false},
		{"the flag wins over NO_COLOR", true, map[string]string{"NO_COLOR": "1"}, colorAlways, false, true},
		{"dumb", true, map[string]string{"TERM": "dumb"}, colorAuto, false, false},
		{"the flag wins over dumb", true, map[string]string{"TERM": "dumb"}, colorAlways, false, true},
	}
	for _, tt := range tests {
		s := Streams{OutTTY: tt.tty, Getenv: func(k string) string { return tt.env[k] }}
		if got := s.color(tt.choice, tt.never); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	tests := []struct {
		err  error
		code int
		text string
	}{
		{nil, 0, ""},
		{errPartial, 3, ""},
		{fmt.Errorf("discover: %w", context.Canceled), 130, "topoctl: interrupted\n"},
		{errors.New("discover: /x: no sys"), 2, "topoctl: topo: /x: no sys\n"},
		{withHint(errors.New("bad"), "do %s", "this"), 2, "topoctl: topo: bad\nhint: do this\n"},
		{errors.Join(errors.New("one"), errors.New("two")), 2, "topoctl: topo: one; two\n"},
		{errors.New("a name \x1b[2J\u202e"), 2, "topoctl: topo: a name \\x1b[2J\\u202e\n"},
	}
	for _, tt := range tests {
		var b bytes.Buffer
		if code := report(&b, "topo", tt.err); code != tt.code || b.String() != tt.text {
			t.Errorf("report(%v) = %d, %q; want %d, %q", tt.err, code, b.String(), tt.code, tt.text)
		}
	}
}

func TestPrintWarnings(t *testing.T) {
	var list []topo.Warning
	for i := range mostWarnings + 37 {
		list = append(list, topo.Warning{Code: topo.CodeNUMAUnknown, Subject: topo.GPUID(i), Detail: "numa_node is -1"})
	}
	list = append(list, topo.Warning{Code: topo.CodeUnreadable, Detail: "x\x1b[2J", Evidence: "/sys/y"})
	var b bytes.Buffer
	printWarnings(&b, list)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != mostWarnings+2 {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	for i, want := range map[int]string{
		0:                "topoctl: warning: numa-unknown: gpu:0: numa_node is -1",
		mostWarnings:     "topoctl: warning: numa-unknown: ... and 37 more (see .warnings in the JSON)",
		mostWarnings + 1: `topoctl: warning: unreadable: x\x1b[2J (/sys/y)`,
	} {
		if lines[i] != want {
			t.Errorf("line %d: %q, want %q", i, lines[i], want)
		}
	}
}

func TestClosest(t *testing.T) {
	names := []string{"discover", "topo", "matrix", "version"}
	for name, want := range map[string]string{
		"topos": "topo", "Topo": "topo", "discovr": "discover", "verson": "version", "x": "", "probe": "",
		"mtrx": "matrix", strings.Repeat("topo", 100): "",
	} {
		if got := closest(name, names); got != want {
			t.Errorf("closest(%q) = %q, want %q", name, got, want)
		}
	}
}

// blocked is a standard input on which nothing ever comes. It tells when it is
// read first: then the program listens to signals.
type blocked struct{ reading chan struct{} }

func (b blocked) Read([]byte) (int, error) {
	close(b.reading)
	select {}
}

// Ctrl-C ends a command that waits, with 130.
func TestInterrupt(t *testing.T) {
	f := newFake()
	in := blocked{make(chan struct{})}
	f.In = in
	code := make(chan int)
	go func() { code <- Main(context.Background(), []string{"topo", "--from", "-"}, f.Streams, nil, nil) }()
	<-in.reading
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != 130 || f.err.String() != "topoctl: interrupted\n" {
		t.Errorf("code %d, %q", got, f.err.String())
	}
}

// A reader that stops half-way is an error, whatever was read before.
func TestReadErrors(t *testing.T) {
	f := newFake()
	f.In = io.MultiReader(strings.NewReader(`{"schema":`), errReader{})
	if code := Main(context.Background(), []string{"topo", "--from", "-"}, f.Streams, nil, nil); code != 2 ||
		f.err.String() != "topoctl: topo: standard input: the cable is cut\n" {
		t.Errorf("code %d, %q", code, f.err.String())
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("the cable is cut") }

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "capture")
	for _, text := range []string{"one", "two"} {
		mode := map[string]os.FileMode{"one": everyone, "two": ownerOnly}[text]
		if err := writeFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(name); err != nil || string(data) != text {
			t.Errorf("got %q, %v", data, err)
		}
		if info, err := os.Stat(name); err != nil || info.Mode() != mode {
			t.Errorf("mode %v, want %v (%v)", info.Mode(), mode, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(dir, "taken"), nil, everyone); err == nil {
		t.Error("a directory was replaced")
	}
	if err := writeFile(os.DevNull, []byte("x"), everyone); err != nil {
		t.Errorf("%s: %v", os.DevNull, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("files are left behind: %v, %v", left, err)
	}
}
