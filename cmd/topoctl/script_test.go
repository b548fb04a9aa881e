package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/topoctl/topoctl/testkit/etcdtest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

func TestMain(m *testing.M) {
	longtest.Overlap()
	os.Exit(withProgram(m))
}

// withProgram runs the tests with topoctl first in PATH: the program itself, built as the tests
// are. The test binary could stand for it, but has what tests import to initialise, which takes
// longer than most commands do.
func withProgram(m *testing.M) int {
	dir, err := os.MkdirTemp("", "topoctl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	args := []string{"build", "-ldflags", "-s -w", "-o", filepath.Join(dir, "topoctl")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" || s.Key == "-tags" || s.Key == "-trimpath" {
				args = append(args, s.Key+"="+s.Value)
			}
		}
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go %s: %v\n%s", strings.Join(args, " "), err, out)
		return 1
	}
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return m.Run()
}

// TestScripts runs the command as users do. Beside testscript's own, scripts
// have these commands:
//
//	exits CODE PROGRAM ARG...   run a program that must end with CODE
//	json FILE [SCHEMA]          FILE (or stdout) must be JSON, of that schema
//	jsonl FILE SCHEMA           each line of FILE (or stdout) must be valid by a published
//	                            schema, a path from the module's root
//	lines N FILE                FILE (or stderr) must have N lines
//	sparse FILE SIZE            make a file of SIZE bytes that takes no space
//	gz FILE TARGET [SIZE]       compress FILE, and keep SIZE bytes only
//
// and the condition [netns]: there can be a network namespace with veths and a /sys of its
// own.
func TestScripts(t *testing.T) {
	p := scripts()
	p.Dir = "testdata/script"
	testscript.Run(t, p)
}

// TestRegistryScript is a script with a registry, $REGISTRY, and one command more:
//
//	record NAME FILE            put FILE there as the record of NAME
func TestRegistryScript(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	client := c.Client(t)
	p := scripts()
	p.Files = []string{"testdata/registry.txtar"}
	p.Cmds["record"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 {
			ts.Fatalf("usage: record NAME FILE")
		}
		ts.Check(etcdtest.Put(t.Context(), client, "/script/v1/engines/"+args[0], ts.ReadFile(args[1])))
	}
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("REGISTRY", c.URL("/script"))
		return setup(e)
	}
	testscript.Run(t, p)
}

// scripts is what all scripts have.
func scripts() testscript.Params {
	return testscript.Params{
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "json": validJSON, "jsonl": validLines, "lines": lines, "sparse": sparse, "gz": gz,
		},
		Condition: func(name string) (bool, error) {
			if name != "netns" {
				return false, fmt.Errorf("no condition is called %q", name)
			}
			return exec.Command("unshare", "-rnm", "sh", "-ec", "mount -t sysfs none /sys; ip link add name va type veth peer name vb").Run() == nil, nil
		},
		RequireExplicitExec: true,
		// $REPORTS has reports of measurements, $EXAMPLES what people take and adapt.
		Setup: func(e *testscript.Env) error {
			dir, err := filepath.Abs("../..")
			e.Setenv("REPORTS", filepath.Join(dir, "probe/testdata"))
			e.Setenv("EXAMPLES", filepath.Join(dir, "examples"))
			e.Setenv("GOGC", "400") // a command is over before its garbage matters
			return err
		},
	}
}

// exits also requires that every failure says why.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if got == 2 && ts.ReadFile("stderr") == "" {
		ts.Fatalf("it failed and said nothing")
	}
}

func validJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: json FILE [SCHEMA]")
	}
	var doc struct {
		Schema string `json:"schema"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &doc))
	if len(args) == 2 && doc.Schema != args[1] {
		ts.Fatalf("schema %q, want %q", doc.Schema, args[1])
	}
}

func validLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: jsonl FILE SCHEMA")
	}
	doc, err := os.Open(filepath.Join("../..", args[1]))
	ts.Check(err)
	defer doc.Close()
	parsed, err := jsonschema.UnmarshalJSON(doc)
	ts.Check(err)
	c := jsonschema.NewCompiler()
	ts.Check(c.AddResource(args[1], parsed))
	schema, err := c.Compile(args[1])
	ts.Check(err)
	text := ts.ReadFile(args[0])
	if text == "" {
		ts.Fatalf("%s has no line", args[0])
	}
	for line := range strings.Lines(text) {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		ts.Check(err)
		if err := schema.Validate(value); err != nil {
			ts.Fatalf("%v\n%s", err, line)
		}
	}
}

func lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines N FILE")
	}
	text := ts.ReadFile(args[1])
	if got := strconv.Itoa(bytes.Count([]byte(text), []byte("\n"))); got != args[0] {
		ts.Fatalf("%s lines, want %s:\n%s", got, args[0], text)
	}
}

func sparse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sparse FILE SIZE")
	}
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), nil, 0o644))
	ts.Check(os.Truncate(ts.MkAbs(args[0]), size))
}

func gz(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: gz FILE TARGET [SIZE]")
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(ts.ReadFile(args[0])))
	ts.Check(errors.Join(err, z.Close()))
	data := b.Bytes()
	if len(args) == 3 {
		size, err := strconv.Atoi(args[2])
		ts.Check(err)
		data = data[:size]
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), data, 0o644))
}
