package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/internal/base/engine/registrytest"
)

func TestP2P(t *testing.T) {
	registrytest.Run(t, registrytest.Suite{
		Open:     func(*testing.T) registry.Registry { return registry.P2P() },
		Name:     func(i int) string { return fmt.Sprintf("127.0.0.1:%d", 7000+i) },
		BadNames: []string{"n2", "n2:", ":7411", "n2:port", "n2:0", "n2:65536", "::1:7411", "0.0.0.0:7411", "[::]:7411", "224.0.0.1:7411", "n\x002:7411"},
		Keyless:  true,
		NoWatch:  true,
	})
}

// Epochs go up with time, and two that are drawn at once differ.
func TestNewEpoch(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seen := map[uint64]bool{}
	for range 100 {
		seen[registry.NewEpoch(at)] = true
		if later := registry.NewEpoch(at.Add(time.Millisecond)); later <= registry.NewEpoch(at) {
			t.Fatal("a later epoch is not higher")
		}
	}
	if len(seen) < 95 {
		t.Errorf("%d of 100 are different", len(seen))
	}
	if registry.NewEpoch(at.AddDate(400, 0, 0)) <= registry.NewEpoch(at) {
		t.Error("no room for 400 years")
	}
}
