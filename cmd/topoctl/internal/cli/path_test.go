package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/explain/show"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/schematest"
)

// An address is no file: bench takes one for --peer, path does not.
func TestPathPeerIsAFile(t *testing.T) {
	o := &pathOptions{Host: &Host{Streams: newStreams().Streams, Now: time.Now}, peer: "10.0.0.2:7411"}
	if _, err := o.loadPeer(t.Context()); !strings.Contains(Hint(err), "topoctl discover -o json") {
		t.Errorf("%v: want a hint", err)
	}
}

// The fabric file that the help shows is one.
func TestPathHelpShowsAFabricFile(t *testing.T) {
	long, _ := readHelp("path")
	_, text, _ := strings.Cut(long, "not listed:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	f, err := pathsel.ParseFabric([]byte(text))
	if err != nil || len(f.Hosts) != 1 || len(f.Hosts[0].Ports) != 2 || *f.Hosts[0].Ports[1].Rail != 1 {
		t.Errorf("%s: %+v, %v", text, f, err)
	}
}

// On a terminal lines are wrapped to its width; colour marks the chosen port and
// what is wrong, and every coloured line ends its colour.
func TestPathOnATerminal(t *testing.T) {
	f := newStreams()
	f.OutTTY, f.Width = true, 80
	if code := runFake(t.Context(), f, "path", "gpu:2", "--fixture", "dgx-h100-nic-gen1"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, f.Stderr.String())
	}
	text := f.Stdout.String()
	if !strings.Contains(text, "\x1b[31m4.0!\x1b[0m") || !strings.Contains(text, "  \x1b[32m1     mlx5_4") || !strings.Contains(text, "could be gen5 x16") || strings.Contains(text, "…") {
		t.Errorf("%s", text)
	}
	plain := text
	for _, code := range []string{"0", Strong, Faint, Good, Caution, Bad} {
		plain = strings.ReplaceAll(plain, "\x1b["+code+"m", "")
	}
	if !strings.HasPrefix(plain, "gpu:2 should use mlx5_4 (4.0 GB/s, ") {
		t.Errorf("%s", plain)
	}
	f.Width = 0
	if runFake(t.Context(), f, "path", "gpu:2", "--fixture", "dgx-h100-nic-gen1", "--ascii", "--no-color"); strings.ContainsFunc(f.Stdout.String(), func(r rune) bool { return r > 0x7e || r == 0x1b }) {
		t.Errorf("not ASCII: %s", f.Stdout.String())
	}
}

// No line is wider than the terminal, whatever is asked.
func TestPathWraps(t *testing.T) {
	for _, tt := range []struct {
		width int
		args  string
	}{
		{60, "gpu:2 --fixture dgx-h100-nic-gen1"}, {80, "gpu:2 --fixture dgx-h100-nic-gen1"}, {80, "gpu:2 --fixture dgx-h100-nic-gen1 --engine nccl,mooncake"},
		{80, "gpu:2 mlx5_4 --fixture dgx-h100-nic-gen1"}, {80, "--plan --fixture dgx-h100-port-down"}, {80, "--plan --fixture gb200-tray --ranks 8"},
		{100, "gpu:0 --fixture a10-2nic --peer fixture:bonds -q"}, {100, "gpu:2 --fixture dgx-h100-port-down --peer fixture:hgx-h20-8nic"},
		{80, "gpu:0 --fixture dgx-h100 --peer fixture:hgx-h20-8nic"}, {60, "gpu:0 --fixture dgx-h100 --peer fixture:dgx-h100 --k 0"},
	} {
		f := newStreams()
		f.OutTTY, f.Width = true, tt.width
		runFake(t.Context(), f, append([]string{"path", "--no-color"}, strings.Fields(tt.args)...)...)
		if f.Stdout.Len() == 0 {
			t.Errorf("%s: nothing: %s", tt.args, f.Stderr.String())
		}
		for line := range strings.Lines(f.Stdout.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > tt.width {
				t.Errorf("%s: %d columns of %d: %s", tt.args, n, tt.width, line)
			}
		}
	}
}

// What if a NIC were down: the first line says so, whatever is asked, and gives one answer.
func TestPathDown(t *testing.T) {
	for args, want := range map[string]string{
		"gpu:3":                             "With mlx5_3 down: gpu:3 should use mlx5_2 (at most 50.0 GB/s, same NUMA node): gpu:3's nearest NIC mlx5_3 is down; it shares mlx5_2 with gpu:2 (at most 25.0 GB/s while all are busy).",
		"gpu:3 --transport rdma":            "With mlx5_3 down: gpu:3 should use mlx5_2 ",
		"gpu:3 mlx5_3":                      "With mlx5_3 down: gpu:3 reaches mlx5_3 (0 GB/s, same PCIe switch).",
		"--plan":                            "With mlx5_3 down: 8 GPUs use 7 ports: at most 350.0 GB/s together, the slowest gpu:2 and gpu:3 with 25.0 GB/s.",
		"gpu:3 --peer fixture:hgx-h20-8nic": "With mlx5_3 down: gpu:3 of ",
	} {
		f := newStreams()
		runFake(t.Context(), f, append([]string{"path", "--fixture", "hgx-h100-8nic", "--down", "mlx5_3"}, strings.Fields(args)...)...)
		if first, _, _ := strings.Cut(f.Stdout.String(), "\n"); !strings.HasPrefix(first, want) {
			t.Errorf("%s: %s\nwant %s", args, first, want)
		}
	}
	f := newStreams()
	if code := runFake(t.Context(), f, "path", "gpu:3", "--fixture", "hgx-h100-8nic", "--down", "mlx5_33"); code != exitFailed || !strings.Contains(f.Stderr.String(), `did you mean "mlx5_3"?`) {
		t.Errorf("exit code %d: %s", code, f.Stderr.String())
	}
}

// Nothing from a foreign file reaches a terminal as it is.
func TestPathIsPrintable(t *testing.T) {
	top := fixturetest.Topology(t, "a10-2nic")
	const evil = "\x1b[2J\x1b[31m\u202e\x07"
	top.Host.Name, top.GPUs[0].P2P = "host"+evil, map[topo.ID]string{"gpu:1": "no" + evil}
	for i := range top.Ports {
		top.Ports[i].State, top.Ports[i].PhysState = "DOWN"+evil, evil
	}
	for i := range top.Links {
		top.Links[i].Note = evil
	}
	data, err := top.Encode()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "evil.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"gpu:0", "-v"}, {"gpu:0", "gpu:1"}, {"cpu:0", "cpu:1"}, {"--plan", "-v"}, {"gpu:0", "--transport", "tcp", "--peer", file}} {
		f := newStreams()
		runFake(t.Context(), f, append([]string{"path", "--from", file, "--color", "always"}, args...)...)
		text := f.Stdout.String()
		if text == "" {
			t.Errorf("%v: nothing: %s", args, f.Stderr.String())
		}
		for _, code := range []string{report.Plain, Strong, Faint, Good, Caution, Bad} {
			text = strings.ReplaceAll(text, "\x1b["+code+"m", "")
		}
		if strings.ContainsAny(text, "\x1b\u202e\x07") || strings.Contains(text, "\xff") || strings.Contains(text, "\xfe") || strings.Count(f.Stdout.String(), "\x1b[31m") > strings.Count(f.Stdout.String(), "\x1b[0m") {
			t.Errorf("%v: %q", args, f.Stdout.String())
		}
	}
}

const pathSchemaFile = "../../../../pathsel/schema/path.v1.schema.json"

// The published schema says what the types say.
func TestPathSchema(t *testing.T) {
	var g schematest.Generator
	schematest.Compare(t, pathSchemaFile, g.Document(show.Schema, reflect.TypeFor[show.Document]()))
}

// Every kind of answer is a document of the schema.
func TestPathDocumentsAreValid(t *testing.T) {
	schema := schematest.Open(t, pathSchemaFile)
	check := func(want int, args ...string) {
		t.Helper()
		f := newStreams()
		args = append(append([]string{"path"}, args...), "-o", "json", "-q")
		if code := runFake(t.Context(), f, args...); code != want {
			t.Fatalf("%v: exit code %d: %s", args, code, f.Stderr.String())
		}
		if err := schema.Validate(f.Stdout.Bytes()); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	for _, name := range fixtures.Names() {
		code := exitOK
		if name == "dgx-h100-missing-files" || name == "dgx-h100-odd-speed" {
			code = exitPartial
		}
		check(code, "cpu:0", "--fixture", name, "--engine", "mooncake,nccl,ucx")
	}
	check(exitOK, "gpu:0", "mlx5_3", "--fixture", "dgx-h100")
	check(exitOK, "gpu:0", "gpu:3", "--fixture", "dgx-h100")
	check(exitOK, "gpu:0", "--down", "mlx5_0", "--fixture", "dgx-h100")
	check(exitOK, "nvme2", "gpu:3", "--fixture", "dgx-h100")
	check(exitBad, "gpu:5", "mlx5_9", "--fixture", "dgx-h100-rdma-no-pci")
	check(exitBad, "gpu:0", "--fixture", "dgx-h100", "--peer", "fixture:l40-4gpu-2nic")
	for _, policy := range pick.Policies() {
		check(exitOK, "gpu:0", "--fixture", "dgx-h100", "--peer", "fixture:hgx-h20-8nic", "--policy", policy)
	}
	down := filepath.Join(t.TempDir(), "down.yaml")
	if err := os.WriteFile(down, []byte("machine: down\ndescription: no port is up\nbase: a10-2nic\npatches:\n- {change: 0000:1a:00.0, state: down}\n- {change: 0000:9b:00.0, state: down}\n- {change: 0000:01:00.0, state: down}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(exitBad, "gpu:0", "--fixture", down)
}
