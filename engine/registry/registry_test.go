package registry_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
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

// A later start goes before an earlier one, unless its time has not come.
func TestPrecedes(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) uint64 { return registry.NewEpoch(now.Add(d)) }
	for _, tt := range []struct {
		epoch, other uint64
		want         bool
	}{
		{at(0), at(-time.Hour), true}, {at(-time.Hour), at(0), false}, {7, 7, false}, {8, 7, true},
		{at(4 * time.Minute), at(0), true}, {at(6 * time.Minute), at(0), false}, {at(0), at(6 * time.Minute), true},
		{math.MaxUint64, 1, false}, {1, math.MaxUint64, true}, {math.MaxUint64, at(time.Hour), true},
	} {
		if got := registry.Precedes(tt.epoch, tt.other, now); got != tt.want {
			t.Errorf("%d before %d: %v", tt.epoch, tt.other, got)
		}
	}
}
