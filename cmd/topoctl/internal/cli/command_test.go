package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

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
		{pkgerr.New("discover", "/x: no sys"), 2, "topoctl: topo: /x: no sys\n"},
		{withHint(errors.New("bad"), "do %s", "this"), 2, "topoctl: topo: bad\nhint: do this\n"},
		{errors.Join(errors.New("one"), errors.New("two")), 2, "topoctl: topo: one; two\n"},
		{errors.New("a name \x1b[2J\u202e"), 2, "topoctl: topo: a name \\x1b[2J\\u202e\n"},
	}
	for _, tt := range tests {
		var b bytes.Buffer
		if code := tellError(&b, "topo", tt.err); code != tt.code || b.String() != tt.text {
			t.Errorf("tellError(%v) = %d, %q; want %d, %q", tt.err, code, b.String(), tt.code, tt.text)
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
	printWarnings(&b, "", list)
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

// A file that is no fixture is not printed, and one that cannot be read does not hold a command for ever.
func TestFixtureFiles(t *testing.T) {
	dir := t.TempDir()
	private, pipe := filepath.Join(dir, "private"), filepath.Join(dir, "pipe")
	for text, where := range map[string]string{"root:$6$salt$hash:1::": "the first line", hosttree.ArchiveFormat + "\nroot:$6$salt$hash:1::\n": "line 2"} {
		if err := os.WriteFile(private, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Host{Globals: Globals{Fixture: private}, Now: time.Now}).Locate(t.Context())
		if err == nil || !strings.Contains(err.Error(), where) || strings.Contains(err.Error(), "hash") {
			t.Errorf("%v", err)
		}
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := (&Host{Globals: Globals{Fixture: pipe, Timeout: time.Millisecond}, Now: time.Now}).Locate(t.Context())
	if err == nil || !strings.Contains(err.Error(), pipe+": could not be read within 1ms") {
		t.Errorf("%v", err)
	}
}
