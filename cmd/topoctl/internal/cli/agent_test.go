package cli

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/probe/measure"
)

// The start tells how the agent is reached and what to run.
func TestAgentText(t *testing.T) {
	f := newStreams()
	o := &agentOptions{Host: &Host{Streams: f.Streams, Format: formatTable}, credentials: Credentials{Files: trust.Files{Token: "secret/token"}}, probes: true,
		limits: measure.Limits{MemoryBytes: 1 << 30, Duration: 10 * time.Minute, BytesPerSec: 1.25e9}}
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
	if err := listenHint(errors.New("listen: address already in use")); exitCode(err) != 2 {
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
