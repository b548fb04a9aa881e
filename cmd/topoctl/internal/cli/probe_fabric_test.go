package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/measure/fabric"
	"github.com/topoctl/topoctl/internal/measure/plan"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// An agent without RDMA takes its own host to TCP, and the report says so.
func TestProbeWithoutRDMA(t *testing.T) {
	top := fixturetest.Topology(t, "a10-2nic")
	both := []string{probe.RDMA, probe.TCP}
	agents := []fabric.Host{ // the second takes no part
		{Host: probe.Host{Name: "n1"}, Topology: top, Transports: both},
		{Host: probe.Host{Name: "gone", Error: "no answer"}},
		{Host: probe.Host{Name: "n2"}, Topology: top, Transports: []string{probe.TCP}, Unavailable: []string{"rdma: no device file"}},
	}
	for transport, want := range map[string]pathsel.Transport{"auto": pathsel.TCP, "rdma": pathsel.Auto} {
		f := newStreams()
		o := &probeFabricOptions{measuring: measuring{Host: &Host{Streams: f.Streams}}, ports: portFlags{transport: transport}}
		hosts := []plan.Host{{Name: "n1", Topology: top}, {Name: "n2", Topology: top}}
		notes := o.withoutRDMA(hosts, agents)
		if hosts[0].Transport != pathsel.Auto || hosts[1].Transport != want {
			t.Errorf("%s: transports %q and %q", transport, hosts[0].Transport, hosts[1].Transport)
		}
		text := "n2 has RDMA devices that cannot be used (rdma: no device file); its pairs are measured over TCP"
		told := len(notes) == 1 && notes[0] == plan.PartialNote+text && strings.Contains(f.Stderr.String(), text)
		if told != (want == pathsel.TCP) || !told && len(notes) > 0 {
			t.Errorf("%s: notes %q, stderr %q", transport, notes, f.Stderr.String())
		}
	}
}

func TestProbeOpenHint(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.EADDRNOTAVAIL: "ip link set lo up",
		syscall.ECONNREFUSED:  "topoctl agent --listen",
		syscall.ENETUNREACH:   "ip route get",
		engine.ErrToken:       "--token-file",
	} {
		if err := new(probeFabricOptions).openHint(fmt.Errorf("n1: %w", cause)); !strings.Contains(Hint(err), want) {
			t.Errorf("%v: %q", cause, Hint(err))
		}
	}
}
