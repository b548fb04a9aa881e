package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/probe/measure"
)

// A host that is taken to TCP is told of, unless a transport was asked for.
func TestProbeWithoutRDMA(t *testing.T) {
	for transport, want := range map[string]bool{"auto": true, "rdma": false} {
		f := newStreams()
		o := &probeFabricOptions{measuring: measuring{Host: &Host{Streams: f.Streams}}, ports: portFlags{transport: transport}}
		o.tellTCP([]measure.Agent{{}, {NoRDMA: "n2 has RDMA devices that cannot be used"}})
		if text := f.Stderr.String(); strings.Contains(text, "warning: n2 has RDMA devices") != want || strings.Count(text, "\n") > 1 {
			t.Errorf("%s: %q", transport, text)
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
		if err := openHint(fmt.Errorf("n1: %w", cause), false); !strings.Contains(Hint(err), want) {
			t.Errorf("%v: %q", cause, Hint(err))
		}
	}
}
