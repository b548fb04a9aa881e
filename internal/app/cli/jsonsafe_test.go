package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/agent"
	"github.com/topoctl/topoctl/probe"
)

// nasty asks a terminal to clear its screen, in the words of U+009B, and has a DEL.
const nasty = "\u009b2J\x7f"

// jsonRun is a command that prints JSON about host.json or report.json, which are nasty.
type jsonRun struct {
	args string
	code int
	own  bool // the command names nothing that another host has a say in
}

var jsonRuns = map[string][]jsonRun{
	"discover": {{args: "--from host.json"}},
	"matrix":   {{args: "--from host.json"}},
	"doctor":   {{args: "--from host.json", code: exitBad}},
	"diff": {
		{args: "fixture:dgx-h100 host.json", code: exitBad},
		{args: "--probe report.json nasty\u009b2J\x7f.json"}},
	"path": {
		{args: "gpu:0 --from host.json"},
		{args: "--plan --from host.json"},
		{args: "gpu:0 --from host.json --peer fixture:dgx-h100"}},
	"watch": {
		{args: "--from host.json"},
		{args: "--from host.json --baseline fixture:dgx-h100 -o jsonl"}},
	"export":       {{args: "mooncake --from host.json"}}, // is JSON by itself
	"probe show":   {{args: "report.json"}},
	"probe local":  {{args: "--dry-run --fixture dgx-h100", own: true}}, // probes refuse nasty names
	"probe fabric": {{args: "--dry-run --host n1=fixture:dgx-h100 --host n2=fixture:dgx-h100", own: true}},
	"agent":        {}, // it runs until it is stopped: TestOtherJSONIsSafe
	"bench":        {{args: "--duration 10ms --warmup 1ms --op write --size 4KiB --transport shm --memory 1MiB", own: true}},
	"kv predict":   {{args: "--model llama-3.1-8b --host p=host.json --host d=fixture:dgx-h100 --output-len 6 --requests 4"}},
	"kv replay":    {{args: "--model llama-3.1-8b --gpu a10 --requests 1 --input-len 16 --output-len 2 --transport shm --memory 16MiB", own: true}},
	"kv preset":    {{args: "a10-qwen2.5-7b-1nic", own: true}},
	"version":      {{own: true}},
}

// A host that is called so that a terminal would obey it is printed by no command that prints
// JSON, and what is printed means the same.
func TestJSONIsSafe(t *testing.T) {
	f := newFake()
	nastyFiles(t, f)
	commands := jsonCommands(newRootCmd(&factory{streams: f.Streams, now: time.Now}))
	for _, name := range append(commands, "export") {
		if jsonRuns[name] == nil {
			t.Errorf("%s has -o json and no run here", name)
		}
		for _, r := range jsonRuns[name] {
			args := append(strings.Fields(name), strings.Fields(r.args)...)
			if name != "export" && !strings.Contains(r.args, "-o ") {
				args = append(args, "-o", formatJSON)
			}
			if code := run(t, f, args...); code != r.code {
				t.Errorf("%q: code %d, want %d: %s", args, code, r.code, f.err.String())
			}
			checkSafe(t, strings.Join(args, " "), f.out.Bytes(), !r.own)
		}
	}
}

// jsonCommands are the paths of the commands that take -o json.
func jsonCommands(root *cobra.Command) []string {
	var out []string
	for _, c := range root.Commands() {
		out = append(out, jsonCommands(c)...)
		if slices.Contains(strings.Fields(c.Annotations[formatsKey]), formatJSON) {
			_, path, _ := strings.Cut(c.CommandPath(), " ")
			out = append(out, path)
		}
	}
	return out
}

// nastyFiles writes what the runs read into the working directory.
func nastyFiles(t *testing.T, f *fake) {
	t.Helper()
	golden, err := os.ReadFile("../../../probe/testdata/local-cpu.probe.json")
	if err != nil {
		t.Fatal(err)
	}
	if code := run(t, f, "discover", "--fixture", "dgx-h100-port-down"); code != 0 {
		t.Fatal(f.err.String())
	}
	host := strings.ReplaceAll(f.out.String(), "mlx5", "mlx5"+nasty)
	report := strings.Replace(string(golden), "more than the caches", "more than the "+nasty+" caches", 1)
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"host.json": host, "report.json": report, "nasty" + nasty + ".json": report,
	} {
		if err := os.WriteFile(name, []byte(text), ownerOnly); err != nil {
			t.Fatal(err)
		}
	}
}

// checkSafe wants JSON, a document or lines, that a terminal obeys nowhere.
func checkSafe(t *testing.T, what string, data []byte, named bool) {
	t.Helper()
	if i := bytes.IndexFunc(data, func(r rune) bool { return r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0) }); i >= 0 {
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
		return strings.Contains(v, nasty)
	case []any:
		return slices.ContainsFunc(v, mentions)
	case map[string]any:
		for key, x := range v {
			if strings.Contains(key, nasty) || mentions(x) {
				return true
			}
		}
	}
	return false
}

// So are the first line of an agent, and the files that a probe writes beside its output.
func TestOtherJSONIsSafe(t *testing.T) {
	f := newFake()
	a := agentOptions{input: &input{streams: f.Streams}, format: formatJSON}
	if err := a.print(agent.Info{Name: "n" + nasty}); err != nil {
		t.Fatal(err)
	}
	checkSafe(t, "agent", f.out.Bytes(), true)
	name := filepath.Join(t.TempDir(), "report.json")
	o := measuring{input: &input{streams: newFake().Streams}, format: formatJSONL}
	o.flags.report = name
	r := &probe.Report{Mode: "local", Complete: true, Notes: []string{"a note of " + nasty}}
	if err := o.answer(t.Context(), r, nil); !errors.Is(err, errPartial) {
		t.Errorf("no pair was measured: %v", err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	checkSafe(t, "--report", data, true)
	var lines bytes.Buffer
	out := outputs{sinks: []*sink{{name: "--events", w: &lines}}}
	out.event(&probe.Event{Schema: probe.EventSchema, Type: probe.EventError, Error: "gone: " + nasty})
	if err := out.close(); err != nil {
		t.Fatal(err)
	}
	checkSafe(t, "--events", lines.Bytes(), true)
}
