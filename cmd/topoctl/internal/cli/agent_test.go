package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/internal/measure/fabric"
)

func TestParseAgent(t *testing.T) {
	got, err := parseOnly(t, newStreams().Streams, newAgentCmd, "--listen", ":7411,127.0.0.1:0", "--listen", "::1", "--token-file", "token", "--http", ":9411",
		"--size", "1GiB", "--region", "kv=2MiB", "--region", "model=1MiB@gpu:0:read", "--rank", "1", "--ranks", "8", "--name", "n1", "--advertise", "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{":7411", "127.0.0.1:0", "[::1]:7411"}, got.listen); diff != "" {
		t.Errorf("listen (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"127.0.0.1:9411"}, got.http); diff != "" {
		t.Errorf("http (-want +got):\n%s", diff)
	}
	if len(got.regions) != 3 || got.regions[1].Grant != memory.PeerRead|memory.PeerWrite || got.regions[2].Grant != memory.PeerRead || got.regions[2].Location != "gpu:0" || got.regions[0].Name != "bench" || got.regions[0].Bytes != 1<<30 || got.regions[1].Name != "kv" || got.regions[1].Bytes != 2<<20 ||
		got.rank != 1 || got.ranks != 8 {
		t.Errorf("got %+v", got)
	}
	got, err = parseOnly(t, newStreams().Streams, newAgentCmd, "--size", "0")
	if err != nil || len(got.regions) != 0 || got.listen[0] != agentListen || got.Format != formatTable {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseAgentRefuses(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--listen 0.0.0.0:7411", "--listen 0.0.0.0:7411: a token or certificate is required"},
		{"--listen :7411", "a token or certificate is required"},
		{"--listen [fe80::1]:7411", "a token or certificate is required"},
		{"--listen 127.0.0.1:0,node1:0", "--listen node1:0: a token"},
		{"--listen=", "--listen"},
		{"--listen http://x/", "want host:port"},
		{"--listen 127.0.0.1:99999", `--listen "127.0.0.1:99999": port "99999": want 0 to 65535`},
		{"--http 0.0.0.0:9411", "--http 0.0.0.0:9411: without a token, only this host is served"},
		{"--http [::]:9411", "--http [::]:9411: without a token"},
		{"--http 9411", `--http "9411": want host:port`},
		{"--size 0B", "--size"},
		{"--region kv", `--region "kv": want NAME=SIZE`},
		{"--region kv=1MiB@:read", `--region "kv=1MiB@:read": want NAME=SIZE`},
		{"--region kv=1MiB:write", `--region "kv=1MiB:write"`},
		{"--grants=", "--grants is empty"},
		{"--probe-targets 10.0.0.0/8", "--probe-targets needs --serve-probes"},
		{"--serve-probes --probe-targets 10.0.0.0/33", `--probe-targets "10.0.0.0/33": want a network`},
		{"--region bench=1MiB", "region bench is given twice"},
		{"--rank 1", "--rank needs --ranks"},
		{"--rank 2 --ranks 2", "--rank 2: want 0 to 1"},
		{"--ranks 0", "--ranks 0: want 1 or more"},
		{"--token-file=", "--token-file is empty"},
		{"--fixture dgx-h100", "--fixture has no effect on this command"},
		{"--transport verbs", `--transport "verbs": want auto, rdma, tcp or shm`},
		{"--transport tcp,tcp", "--transport tcp is given twice"},
		{"--transport tcp --rdma-timeout 14", "--rdma-timeout needs --transport rdma"},
		{"--rdma-gid-index 65536", "--rdma-gid-index 65536: want 0 to 65535"},
		{"--rdma-gid-index=-1", "--rdma-gid-index -1: want 0 to 65535"},
		{"--rdma-retries 7", "--rdma-retries 7: want 1 to 6"},
		{"--rdma-traffic-class 256", "--rdma-traffic-class 256: want 0 to 255"},
		{"--rdma-service-level 16", "--rdma-service-level 16: want 0 to 15"},
		{"--refresh=-1s", "--refresh -1s: want 0 or more"},
	} {
		if _, err := parseOnly(t, newStreams().Streams, newAgentCmd, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// The start tells how the agent is reached and what to run.
func TestAgentText(t *testing.T) {
	f := newStreams()
	o := &agentOptions{Host: &Host{Streams: f.Streams, Format: formatTable}, credentials: Credentials{Files: engine.CredentialFiles{Token: "secret/token"}}, probes: true,
		limits: fabric.Limits{MemoryBytes: 1 << 30, Duration: 10 * time.Minute, BytesPerSec: 1.25e9}}
	i := agent.Info{Name: "n1", Addresses: []string{"0.0.0.0:7411"}, HTTP: []string{"127.0.0.1:9411", "[::]:9412"}, Unavailable: []string{"rdma: no devices"},
		Advertised: []engine.Advertised{
			{Transport: "shm", Address: "@x"},
			{Transport: "tcp", Address: "10.0.0.1:7411", Port: "net:eth0", Reason: "the default route leaves here"},
		},
		Regions: []engine.RegionStats{{Name: "bench", Bytes: 256 << 20, Read: true, Write: true, Notes: []string{"no huge pages"}}}}
	if err := o.print(i); err != nil {
		t.Fatal(err)
	}
	want := `agent n1 listens on 0.0.0.0:7411
  region bench      256 MiB, peers read and write
    no huge pages
  shm at @x
  tcp at 10.0.0.1:7411 (eth0): the default route leaves here
  without rdma: no devices
  http://127.0.0.1:9411/metrics, /metrics/host, /v1/topology, /v1/engine, /healthz
  http://10.0.0.1:9412/metrics, /metrics/host, /v1/topology, /v1/engine, /healthz
    HTTP at [::]:9412 answers every host that reaches it, without a token
  probes with 1 GiB of memory, 10m0s for a pair at most, 1.2 GB/s
Run on the other host:
  topoctl bench --peer 10.0.0.1:7411 --token-file secret/token
`
	if diff := cmp.Diff(want, f.Stdout.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.Environ["CREDENTIALS_DIRECTORY"], o.credentials.Files.Token = "/run/credentials/x", "/run/credentials/x/token"
	if got, want := *o.client(i), "topoctl bench --peer 10.0.0.1:7411 --token-file FILE"; got != want {
		t.Errorf("a file that the service alone can see: %s", got)
	}
	i.Regions = nil
	if o.client(i) != nil {
		t.Error("there is nothing for bench, and a line to run it")
	}
	if err := o.listenHint(errors.New("listen: address already in use")); exitCode(err) != 2 {
		t.Error(err)
	}
}

// Addresses that stand for all of the host are none to ask at.
func TestUsable(t *testing.T) {
	i := agent.Info{HTTP: []string{"[::]:9411", "127.0.0.1:9412", "0.0.0.0:9413"}}
	if diff := cmp.Diff([]string{"localhost:9411", "127.0.0.1:9412", "localhost:9413"}, usableAddress(i)); diff != "" {
		t.Error(diff)
	}
	i.Advertised = []engine.Advertised{{Transport: "rdma", Address: "rdma1 x"}, {Transport: "tcp", Address: "[2001:db8::1]:7411"}}
	if diff := cmp.Diff([]string{"[2001:db8::1]:9411", "127.0.0.1:9412", "[2001:db8::1]:9413"}, usableAddress(i)); diff != "" {
		t.Error(diff)
	}
}

// The first line of an agent is obeyed by no terminal.
func TestAgentLineIsSafe(t *testing.T) {
	f := newStreams()
	o := agentOptions{Host: &Host{Streams: f.Streams, Format: formatJSON}}
	if err := o.print(agent.Info{Name: "n" + Nasty}); err != nil {
		t.Fatal(err)
	}
	checkSafe(t, "agent", f.Stdout.Bytes(), true)
}
