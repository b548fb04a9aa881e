package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
)

// An engine goes on without RDMA that the host has not got, unless it was asked for by
// name.
func TestRDMAByName(t *testing.T) {
	r := rdmaFlags{devices: []string{"no_such_device"}, gid: unset, class: unset, level: unset, timeout: unset, attempts: unset}
	_, err := r.transport(false)(transport.Env{})
	if !errors.Is(err, engine.ErrUnavailable) || strings.Count(err.Error(), "not available") != 1 {
		t.Errorf("not asked for by name: %v", err)
	}
	_, err = r.transport(true)(transport.Env{})
	if err == nil || errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "--transport rdma on this host: RDMA verbs are not available") {
		t.Errorf("asked for by name: %v", err)
	}
	const doctor, none = `"topoctl doctor" says what is missing`, "it has no RDMA device"
	for x, want := range map[*topo.Topology]string{nil: doctor, {RDMADevices: make([]topo.RDMADevice, 1)}: doctor, {}: none} {
		_, err := r.transport(true)(transport.Env{Topology: x})
		var b bytes.Buffer
		if report(&b, "bench", err); !strings.Contains(b.String(), want) {
			t.Errorf("want %q in:\n%s", want, b.String())
		}
	}
}
