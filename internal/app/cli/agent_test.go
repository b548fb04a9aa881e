package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
	"github.com/topoctl/topoctl/internal/app/agent"
	"github.com/topoctl/topoctl/internal/app/probe/fabric"
)

func TestParseAgent(t *testing.T) {
	got, err := parse(t, newFake().Streams, newAgentCmd, "--listen", ":7411,127.0.0.1:0", "--listen", "::1", "--token-file", "token", "--http", ":9411",
		"--size", "1GiB", "--region", "kv=2MiB", "--rank", "1", "--ranks", "8", "--name", "n1", "--advertise", "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{":7411", "127.0.0.1:0", "[::1]:7411"}, got.listen); diff != "" {
		t.Errorf("listen (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"127.0.0.1:9411"}, got.http); diff != "" {
		t.Errorf("http (-want +got):\n%s", diff)
	}
	if len(got.regions) != 2 || got.regions[0].Name != "bench" || got.regions[0].Bytes != 1<<30 || got.regions[1].Name != "kv" || got.regions[1].Bytes != 2<<20 ||
		got.rank != 1 || got.ranks != 8 {
		t.Errorf("got %+v", got)
	}
	got, err = parse(t, newFake().Streams, newAgentCmd, "--size", "0")
	if err != nil || len(got.regions) != 0 || got.listen[0] != agentListen || got.format != formatText {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseAgentRefuses(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--listen 0.0.0.0:7411", "--listen 0.0.0.0:7411: other hosts reach it, and without a token"},
		{"--listen :7411", "without a token"},
		{"--listen [fe80::1]:7411", "without a token"},
		{"--listen 127.0.0.1:0,node1:0", "--listen node1:0: other hosts"},
		{"--listen=", "--listen"},
		{"--listen http://x/", "want host:port"},
		{"--listen 127.0.0.1:99999", `--listen "127.0.0.1:99999": port "99999": want 0 to 65535`},
		{"--http 9411", `--http "9411": want host:port`},
		{"--size 0B", "--size"},
		{"--region kv", `--region "kv": want NAME=SIZE`},
		{"--region bench=1MiB", "there is a region bench already"},
		{"--rank 1", "--rank has no effect without --ranks"},
		{"--rank 2 --ranks 2", "--rank 2: want 0 to 1"},
		{"--ranks 0", "--ranks 0: want 1 or more"},
		{"--token-file=", "--token-file is empty"},
		{"--fixture dgx-h100", "--fixture has no effect on this command"},
		{"--transport verbs", `--transport "verbs": want auto, rdma, tcp or shm`},
		{"--transport tcp,tcp", "--transport tcp is given twice"},
		{"--transport tcp --rdma-timeout 14", "--rdma-timeout has no effect without RDMA"},
		{"--rdma-gid-index 65536", "--rdma-gid-index 65536: want 0 to 65535"},
		{"--rdma-gid-index=-1", "--rdma-gid-index -1: want 0 to 65535"},
		{"--rdma-retries 7", "--rdma-retries 7: want 1 to 6"},
		{"--rdma-traffic-class 256", "--rdma-traffic-class 256: want 0 to 255"},
		{"--rdma-service-level 16", "--rdma-service-level 16: want 0 to 15"},
		{"--refresh=-1s", "--refresh -1s: want 0 or more"},
	} {
		if _, err := parse(t, newFake().Streams, newAgentCmd, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:7411": true, "127.9.9.9:1": true, "[::1]:7411": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		":7411": false, "0.0.0.0:7411": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example.com:1": false, "": false, "[fe80::1%lo]:1": false,
	} {
		if got := loopbackOnly(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

func TestReadToken(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "0123456789abcdef"
	var warned bytes.Buffer
	if got, err := readToken(file("good", "  "+secret+"\r\nmore\n", 0o600), nil, &warned); string(got) != secret || err != nil || warned.Len() > 0 {
		t.Errorf("%q, %v, %q", got, err, warned.String())
	}
	if got, err := readToken(file("open", secret, 0o644), nil, &warned); string(got) != secret || err != nil ||
		!strings.HasSuffix(warned.String(), "can be read or changed by others (mode 0644): chmod 600 "+filepath.Join(dir, "open")+"\n") {
		t.Errorf("%q, %v, %q", got, err, warned.String())
	}
	for name, path := range map[string]string{
		"a token of 15 bytes, want 16 or more": file("short", secret[1:]+"\n", 0o600),
		"a token of 0 bytes":                   file("empty", "", 0o600),
		"longer than 4096 bytes":               file("long", strings.Repeat("x", 5000), 0o600),
		"no such file":                         filepath.Join(dir, "none"),
		"is a directory":                       dir,
	} {
		if _, err := readToken(path, nil, io.Discard); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), secret[1:]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := strings.NewReader(secret + "\nthe rest")
	if got, err := readToken("-", struct{ io.Reader }{in}, nil); string(got) != secret || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if rest, err := io.ReadAll(in); string(rest) != "the rest" || err != nil {
		t.Errorf("left of standard input: %q, %v", rest, err)
	}
	if _, err := readToken("-", errReader{}, nil); err == nil {
		t.Error("an input that fails is a token")
	}
	if got, err := readToken("", nil, nil); got != nil || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// The start tells how the agent is reached and what to run.
func TestAgentText(t *testing.T) {
	f := newFake()
	o := &agentOptions{input: &input{streams: f.Streams}, tokenFile: "secret/token", format: formatText, probes: true,
		limits: fabric.Limits{MemoryBytes: 1 << 30, Duration: 10 * time.Minute, BytesPerSec: 1.25e9}}
	i := agent.Info{Name: "n1", Addresses: []string{"0.0.0.0:7411"}, HTTP: []string{"127.0.0.1:9411"},
		Advertised: []engine.Advertised{
			{Transport: "shm", Address: "@x"},
			{Transport: "tcp", Address: "10.0.0.1:7411", Port: "net:eth0", Reason: "the default route leaves here"},
		},
		Regions: []engine.RegionStats{{Name: "bench", Bytes: 256 << 20, Read: true, Write: true, Notes: []string{"no huge pages"}}}}
	if err := o.print(i); err != nil {
		t.Fatal(err)
	}
	want := `agent n1 serves at 0.0.0.0:7411
  region bench      256 MiB, peers read and write
    no huge pages
  shm at @x
  tcp at 10.0.0.1:7411 (eth0): the default route leaves here
  http://127.0.0.1:9411/metrics, /v1/topology, /v1/engine, /healthz
  probes with 1 GiB of memory, 10m0s for a pair at most, 1.2 GB/s
Run at the other end:
  topoctl bench --peer 10.0.0.1:7411 --token-file secret/token
`
	if diff := cmp.Diff(want, f.out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	i.Regions = nil
	if o.client(i) != nil {
		t.Error("there is nothing for bench, and a line to run it")
	}
	if err := o.listenHint(errors.New("listen: address already in use")); exitCode(err) != 2 {
		t.Error(err)
	}
}

// What the flags say reaches RDMA, and a child of bench.
func TestRDMAFlags(t *testing.T) {
	got, err := parse(t, newFake().Streams, newAgentCmd)
	if err != nil {
		t.Fatal(err)
	}
	if o := got.rdma.options(); len(o.Devices) > 0 || o.GIDIndex != rdma.Auto || o.Timeout != 0 || o.RetryCount != 0 || len(got.rdma.args()) > 0 {
		t.Errorf("defaults: %+v", o)
	}
	args := []string{"--rdma-device", "mlx5_0", "--rdma-device", "mlx5_2", "--rdma-gid-index=0", "--rdma-traffic-class=106",
		"--rdma-service-level=3", "--rdma-timeout=14", "--rdma-retries=5"}
	if got, err = parse(t, newFake().Streams, newAgentCmd, args...); err != nil {
		t.Fatal(err)
	}
	o := got.rdma.options()
	if o.GIDIndex != rdma.At(0) || o.TrafficClass != 106 || o.ServiceLevel != 3 || o.Timeout != 14 || o.RetryCount != 5 || len(o.Devices) != 2 {
		t.Errorf("%+v", o)
	}
	if diff := cmp.Diff(args, got.rdma.args()); diff != "" {
		t.Errorf("for a child (-want +got):\n%s", diff)
	}
	for names, want := range map[string]int{"auto": 3, "tcp": 1, "rdma,tcp": 2, "auto,rdma": 3} {
		if n := len(got.rdma.transports(strings.Split(names, ","))); n != want {
			t.Errorf("%s: %d transports, want %d", names, n, want)
		}
	}
}

// Addresses that stand for all of the host are none to ask at.
func TestUsable(t *testing.T) {
	i := agent.Info{HTTP: []string{"[::]:9411", "127.0.0.1:9412", "0.0.0.0:9413"}}
	if diff := cmp.Diff([]string{"localhost:9411", "127.0.0.1:9412", "localhost:9413"}, usable(i)); diff != "" {
		t.Error(diff)
	}
	i.Advertised = []engine.Advertised{{Transport: "rdma", Address: "rdma1 x"}, {Transport: "tcp", Address: "[2001:db8::1]:7411"}}
	if diff := cmp.Diff([]string{"[2001:db8::1]:9411", "127.0.0.1:9412", "[2001:db8::1]:9413"}, usable(i)); diff != "" {
		t.Error(diff)
	}
}

// Values that are no files are not completed as files.
func TestNoFilesAsValues(t *testing.T) {
	f := newFake()
	for _, newCmd := range []func(*factory) *cobra.Command{
		func(f *factory) *cobra.Command { return newAgentCmd(f, nil) }, func(f *factory) *cobra.Command { return newBenchCmd(f, nil) },
		func(f *factory) *cobra.Command { return newProbeLocalCmd(f, nil) }, func(f *factory) *cobra.Command { return newProbeFabricCmd(f, nil) },
	} {
		cmd := newCmd(&factory{streams: f.Streams})
		cmd.LocalFlags().VisitAll(func(fl *pflag.Flag) {
			if fl.Value.Type() == "bool" || slices.Contains([]string{"token-file", "probe", "hosts", "fabric", "resume", "out-file", "report", "events", "help"}, fl.Name) {
				return
			}
			complete, ok := cmd.GetFlagCompletionFunc(fl.Name)
			if !ok {
				t.Errorf("%s --%s completes file names", cmd.Name(), fl.Name)
				return
			}
			if _, directive := complete(cmd, nil, ""); directive&cobra.ShellCompDirectiveNoFileComp == 0 {
				t.Errorf("%s --%s completes file names", cmd.Name(), fl.Name)
			}
		})
	}
}
