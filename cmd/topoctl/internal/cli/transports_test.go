package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine"
)

// An engine goes on without RDMA that the host has not got, unless it was asked for by
// name.
func TestRDMAByName(t *testing.T) {
	r := rdmaFlags{devices: []string{"no_such_device"}, gid: unset, class: unset, level: unset, timeout: unset, attempts: unset}
	_, err := r.transport(false)(engine.TransportEnv{})
	if !errors.Is(err, engine.ErrUnavailable) || strings.Count(err.Error(), "not available") != 1 {
		t.Errorf("not asked for by name: %v", err)
	}
	_, err = r.transport(true)(engine.TransportEnv{})
	if err == nil || errors.Is(err, engine.ErrUnavailable) || !strings.Contains(err.Error(), "--transport rdma: rdma: RDMA verbs are not available") {
		t.Errorf("asked for by name: %v", err)
	}
}
