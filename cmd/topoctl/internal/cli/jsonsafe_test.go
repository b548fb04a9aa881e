package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/etcdtest"
	"github.com/topoctl/topoctl/testkit/longtest"
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
	"doctor":   {{args: "--from host.json", code: exitBad}},
	"diff": {
		{args: "fixture:dgx-h100 host.json", code: exitBad},
		{args: "--probe report.json nasty" + Nasty + ".json"}},
	"fleet collect": {{args: "host.json other=host.json"}},
	"fleet show":    {{args: "host.json other=host.json"}},
	"fleet check":   {{args: "host.json other=host.json", code: exitBad}},
	"fleet fabric":  {{args: "host.json --fabric fabric.json"}},
	"fleet diff":    {{args: "host.json fixture:dgx-h100", code: exitBad}},
	"path": {
		{args: "gpu:0 --from host.json"},
		{args: "--plan --from host.json"},
		{args: "gpu:0 --from host.json --peer fixture:dgx-h100"}},
	"watch": {
		{args: "--from host.json"},
		{args: "--from host.json --baseline fixture:dgx-h100 -o jsonl"}},
	"audit":        {{args: "--from host.json --log nccl.log", code: exitBad}},
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
	"peers":        {}, // wants etcd: TestPeersAreSafe
	"cert show":    {{args: "ca.crt"}},
	"version":      {{own: true}},
}

// A host that is called so that a terminal would obey it is printed by no command that prints
// JSON, and what is printed means the same.
func TestJSONIsSafe(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: all fixtures, in one goroutine")
	}
	f := newStreams()
	nastyFiles(t, f)
	env := &Env{Streams: f.Streams, Now: time.Now}
	for _, name := range append(jsonCommands(commands(env)), "export") {
		if jsonRuns[name] == nil {
			t.Errorf("%s has -o json and no run here", name)
		}
		for _, r := range jsonRuns[name] {
			args := append(strings.Fields(name), strings.Fields(r.args)...)
			if name != "export" && !strings.Contains(r.args, "-o ") {
				args = append(args, "-o", formatJSON)
			}
			if code := runFake(t.Context(), f, args...); code != r.code {
				t.Errorf("%q: code %d, want %d: %s", args, code, r.code, f.Stderr.String())
			}
			checkSafe(t, strings.Join(args, " "), f.Stdout.Bytes(), !r.own)
		}
	}
}

// worse replaces what a host is called, and what its parts say of themselves, by names that a terminal would obey.
var worse = func() *strings.Replacer {
	var pairs []string
	for _, name := range []string{"mlx5", "eno1", "ens6f1np1", "ibp24s0", "NVIDIA H100", "535.129.03", "DGXH100", "5.15.0-1042-nvidia", "28.39.3004", "MT_0000000838",
		"Intel(R)", "Mellanox", "nvme0", "ib_core", "GPU-", "1654329967543", "IB/RoCE v1", "LinkUp", "p1\"", "MT4129"} {
		end := strings.TrimRight(name, "\"")
		pairs = append(pairs, name, end+nastyJSON+name[len(end):])
	}
	return strings.NewReplacer(pairs...)
}()

// Whatever a host says, no output of any command has what a terminal would obey or not show: in none of its formats, nor
// on stderr.
func TestEveryFormatIsSafe(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: all fixtures, in one goroutine")
	}
	f := newStreams()
	nastyFiles(t, f)
	host, err := os.ReadFile("host.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("worse.json", []byte(worse.Replace(strings.ReplaceAll(string(host), nastyJSON, ""))), ownerOnly); err != nil {
		t.Fatal(err)
	}
	nasty := 0
	check := func(args ...string) {
		t.Helper()
		code := runFake(t.Context(), f, args...)
		for _, out := range []string{f.Stdout.String(), f.Stderr.String()} {
			if i := hiddenByte([]byte(out)); i >= 0 {
				t.Errorf("%q, code %d: a terminal would obey or not show %q", args, code, out[max(0, i-60):min(len(out), i+16)])
			}
			if strings.Contains(out, "[2J") {
				nasty++
			}
		}
	}
	for _, c := range runnable(commands(&Env{Streams: f.Streams, Now: time.Now})) {
		name := strings.TrimPrefix(c.CommandPath(), "topoctl ")
		for _, r := range jsonRuns[name] {
			for _, format := range FormatsOf(c) {
				if r.own || strings.Contains(r.args, "-o ") {
					continue
				}
				for _, file := range longtest.Sample([]string{"worse.json", "host.json"}, 1) { // the first is nasty in more places
					check(append(strings.Fields(name), append(strings.Fields(strings.ReplaceAll(r.args, "host.json", file)), "-o", format)...)...)
				}
			}
		}
	}
	for _, args := range []string{"mooncake", "nccl-xml", "nccl-xml --skeleton", "dot", "svg", "prometheus --all-pairs", "env --for nccl", "env --for ucx", "env --for vllm",
		"env --for sglang", "env --for nvshmem"} {
		check(append([]string{"export", "--from", "worse.json"}, strings.Fields(args)...)...)
	}
	for _, args := range []string{"slurm-tree", "slurm-block", "slurm-yaml", "k8s-labels", "nfd --node n1", "nodefeature", "kueue", "hypernode", "dra-claim",
		"dra-attributes --lists", "env --for nccl", "topograph-model", "ibsim", "dot", "svg"} {
		check(append([]string{"fleet", "export", "n1=worse.json", "n2=worse.json", "--fabric", "fabric.json"}, strings.Fields(args)...)...)
	}
	check("discover", "--from", "worse.json", "--verbose")
	for name, data := range map[string]string{"sys_vendor": "x\u202ey\n", "product_name": Nasty + "\n"} {
		dir := filepath.Join("root", "sys", "class", "dmi", "id")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), []byte(data), ownerOnly)); err != nil {
			t.Fatal(err)
		}
	}
	check("discover", "--root", "root", "--capture", "-")
	check("summary", "--root", "root")
	check("tui", "--once", "--from", "worse.json")
	if nasty < 40 {
		t.Errorf("%d outputs tell of a nasty name: the walk is about nothing", nasty)
	}
}

// What is in etcd may be anybody's.
func TestPeersAreSafe(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	client := c.Client(t)
	for name, value := range map[string]string{
		"n1":         `{"name":"n1","epoch":"1882719971789818427","addresses":["10.0.0.1:7411"],"serves":["probe"]}`,
		"n2" + Nasty: `{"name":"n2","epoch":"` + nastyJSON + `","addresses":[]}`,
		"n3":         `{"name":"n3","epoch":"7","addresses":["10.0.0.1:7411"],"serves":["` + nastyJSON + `"]}`,
		"n4":         `{"name":"n4` + nastyJSON + `","epoch":"7","addresses":["10.0.0.1:7411"]}`,
		"n5":         `{"name":"n5","epoch":"7","addresses":["` + nastyJSON + `"]}`,
	} {
		if err := etcdtest.Put(t.Context(), client, "/nasty/v1/engines/"+name, value); err != nil {
			t.Fatal(err)
		}
	}
	f := newStreams()
	for _, format := range []string{formatTable, formatName, formatJSON, "jsonl --watch --duration 300ms"} {
		args := strings.Fields("peers --registry " + c.URL("/nasty") + " -o " + format)
		code := runFake(t.Context(), f, args...)
		out := f.Stdout.String() + f.Stderr.String()
		if !strings.Contains(out, "n1") || code != exitBad && !strings.Contains(format, "watch") {
			t.Errorf("%q: code %d: %s", args, code, out)
		}
		if i := hiddenByte([]byte(out)); i >= 0 {
			t.Errorf("%q: a terminal would obey or not show %q", args, out[max(0, i-60):min(len(out), i+16)])
		}
		if format == formatJSON {
			checkSafe(t, strings.Join(args, " "), f.Stdout.Bytes(), true)
		}
	}
}

// jsonCommands are the commands that take -o json.
func jsonCommands(list []*cobra.Command) []string {
	var out []string
	for _, c := range runnable(list) {
		if slices.Contains(FormatsOf(c), formatJSON) {
			out = append(out, c.CommandPath())
		}
	}
	return out
}

// ncclLog is a log that says by which device a channel goes.
const ncclLog = "dgx-h100:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/X/0\n"

// nastyFiles writes what the runs read into the working directory.
func nastyFiles(t *testing.T, f *fakeStreams) {
	t.Helper()
	golden, err := os.ReadFile("../../../../probe/testdata/local-cpu.probe.json")
	if err != nil {
		t.Fatal(err)
	}
	if code := runFake(t.Context(), f, "discover", "--fixture", "dgx-h100-port-down"); code != 0 {
		t.Fatal(f.Stderr.String())
	}
	host := strings.ReplaceAll(f.Stdout.String(), "mlx5", "mlx5"+nastyJSON)
	report := strings.Replace(string(golden), "more than the caches", "more than the "+nastyJSON+" caches", 1)
	ca, err := trust.NewCA(trust.Subject{CommonName: Nasty, From: time.Now(), Until: time.Now().AddDate(1, 0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"fabric.json": `{"schema":"topoctl.fabric/v1","hosts":[{"host":"host","ports":[{"port":"eno1","leaf":"leaf` + nastyJSON + `"}]}]}`,
		"ca.crt":      string(ca.Certificate), "host.json": host, "nccl.log": ncclLog, "report.json": report, "nasty" + Nasty + ".json": report,
	} {
		if err := os.WriteFile(name, []byte(text), ownerOnly); err != nil {
			t.Fatal(err)
		}
	}
}
