package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/app/cli/clitest"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/base/engine/trust"
)

// jsonRun is a command that prints JSON about host.json, report.json or ca.crt, which are nasty.
type jsonRun struct {
	args string
	code int
	own  bool // the command names nothing that another host has a say in
}

var jsonRuns = map[string][]jsonRun{
	"summary":  {{args: "--from host.json"}},
	"topo":     {{args: "--from host.json"}},
	"fixtures": {{own: true}},
	"discover": {{args: "--from host.json"}},
	"matrix":   {{args: "--from host.json"}},
	"doctor":   {{args: "--from host.json", code: command.ExitBad}},
	"diff": {
		{args: "fixture:dgx-h100 host.json", code: command.ExitBad},
		{args: "--probe report.json nasty\u009b2J\x7f.json"}},
	"fleet collect": {{args: "host.json other=host.json"}},
	"fleet show":    {{args: "host.json other=host.json"}},
	"fleet check":   {{args: "host.json other=host.json", code: command.ExitBad}},
	"fleet fabric":  {{args: "host.json --fabric fabric.json"}},
	"fleet diff":    {{args: "host.json fixture:dgx-h100", code: command.ExitBad}},
	"path": {
		{args: "gpu:0 --from host.json"},
		{args: "--plan --from host.json"},
		{args: "gpu:0 --from host.json --peer fixture:dgx-h100"}},
	"watch": {
		{args: "--from host.json"},
		{args: "--from host.json --baseline fixture:dgx-h100 -o jsonl"}},
	"audit":        {{args: "--from host.json --log nccl.log", code: command.ExitBad}},
	"remap":        {{args: "--host host.json --guest host.json"}},
	"export":       {{args: "mooncake --from host.json"}}, // is JSON by itself
	"probe show":   {{args: "report.json"}},
	"probe local":  {{args: "--dry-run --fixture dgx-h100", own: true}}, // probes refuse nasty names
	"probe fabric": {{args: "--dry-run --host n1=fixture:dgx-h100 --host n2=fixture:dgx-h100", own: true}},
	"agent":        {}, // it runs until it is stopped: TestOtherJSONIsSafe
	"bench":        {{args: "--duration 10ms --warmup 1ms --op write --size 4KiB --transport shm --memory 1MiB", own: true}},
	"kv predict":   {{args: "--model llama-3.1-8b --host p=host.json --host d=fixture:dgx-h100 --output-len 6 --requests 4"}},
	"kv replay":    {{args: "--model llama-3.1-8b --gpu a10 --requests 1 --input-len 16 --output-len 2 --transport shm --memory 16MiB", own: true}},
	"kv preset":    {{args: "a10-qwen2.5-7b-1nic", own: true}},
	"peers":        {{args: "--registry static://records", code: command.ExitBad}},
	"cert show":    {{args: "ca.crt"}},
	"version":      {{own: true}},
}

// A host that is called so that a terminal would obey it is printed by no command that prints
// JSON, and what is printed means the same.
func TestJSONIsSafe(t *testing.T) {
	f := clitest.New()
	nastyFiles(t, f)
	env := &command.Env{Streams: f.Streams, Now: time.Now}
	for _, name := range append(jsonCommands(commands(env)), "export") {
		if jsonRuns[name] == nil {
			t.Errorf("%s has -o json and no run here", name)
		}
		for _, r := range jsonRuns[name] {
			args := append(strings.Fields(name), strings.Fields(r.args)...)
			if name != "export" && !strings.Contains(r.args, "-o ") {
				args = append(args, "-o", command.FormatJSON)
			}
			if code := clitest.Run(t.Context(), f, commands, args...); code != r.code {
				t.Errorf("%q: code %d, want %d: %s", args, code, r.code, f.Stderr.String())
			}
			clitest.CheckSafe(t, strings.Join(args, " "), f.Stdout.Bytes(), !r.own)
		}
	}
}

// jsonCommands are the commands that take -o json.
func jsonCommands(list []*cobra.Command) []string {
	var out []string
	for _, c := range runnable(list) {
		if slices.Contains(command.FormatsOf(c), command.FormatJSON) {
			out = append(out, c.CommandPath())
		}
	}
	return out
}

// ncclLog is a log that says by which device a channel goes.
const ncclLog = "dgx-h100:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/X/0\n"

// nastyFiles writes what the runs read into the working directory.
func nastyFiles(t *testing.T, f *clitest.Fake) {
	t.Helper()
	golden, err := os.ReadFile("../../../probe/testdata/local-cpu.probe.json")
	if err != nil {
		t.Fatal(err)
	}
	if code := clitest.Run(t.Context(), f, commands, "discover", "--fixture", "dgx-h100-port-down"); code != 0 {
		t.Fatal(f.Stderr.String())
	}
	host := strings.ReplaceAll(f.Stdout.String(), "mlx5", "mlx5"+clitest.Nasty)
	report := strings.Replace(string(golden), "more than the caches", "more than the "+clitest.Nasty+" caches", 1)
	ca, err := trust.NewCA(trust.Subject{CommonName: clitest.Nasty, From: time.Now(), Until: time.Now().AddDate(1, 0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f.Environ["TOPOCTL_PLUGINS"] = filepath.Join(wd, "testdata")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"records": `{"record":{"name":"n1","epoch":"1882719971789818427","addresses":["10.0.0.1:7411"],"serves":["probe"]}}
{"bad":{"key":"/a` + clitest.Nasty + `","error":"no ` + clitest.Nasty + `"}}
`,
		"fabric.json": `{"schema":"topoctl.fabric/v1","hosts":[{"host":"host","ports":[{"port":"eno1","leaf":"leaf` + clitest.Nasty + `"}]}]}`,
		"ca.crt":      string(ca.Certificate), "host.json": host, "nccl.log": ncclLog, "report.json": report, "nasty" + clitest.Nasty + ".json": report,
	} {
		if err := os.WriteFile(name, []byte(text), command.OwnerOnly); err != nil {
			t.Fatal(err)
		}
	}
}
