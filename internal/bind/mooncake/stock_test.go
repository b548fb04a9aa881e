package mooncake

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/topoctl/topoctl/internal/bind/mooncake/mooncaketest"
)

const stockBytes = 256 << 10

// TestStockCalls: probes, notifications and refusals, both ways, with Mooncake's own process.
// Bytes are moved with it by the test of package bind.
func TestStockCalls(t *testing.T) {
	s := mooncaketest.StartStock(t, P2P, stockBytes)
	ours := newArena(1<<41, stockBytes)
	var notified atomic.Int32
	n := start(t, "", Options{Offered: ours, Own: ours, Notified: func(string, string) bool { notified.Add(1); return true }})
	p, err := n.Open(within(t), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Probe(within(t)); err != nil {
		t.Error(err)
	}
	if err := p.Notify(within(t), "the data is there"); err != nil {
		t.Error(err)
	}
	if result := s.Probe(n.Name()); result != 0 {
		t.Error("its probe of us gives", result)
	}
	for what, op := range map[string]Op{"before": {ours.base, s.Address - 1, 2}, "after": {ours.base, s.Address + stockBytes - 1, 2}} {
		for _, write := range []bool{false, true} {
			if err := p.Transfer(within(t), write, []Op{op}); !errors.Is(err, ErrNoRange) || errors.Is(err, ErrUnconfirmed) {
				t.Errorf("%s its memory (write: %v): %v", what, write, err)
			}
		}
	}
	before := ours.copy()
	if ranges, err := p.Ranges(within(t)); err != nil || !slices.Contains(ranges, Range{s.Address, stockBytes}) {
		t.Error(ranges, err)
	}
	if _, _, ok, err := p.Engine(within(t)); ok || err != nil {
		t.Error("a stock peer is taken for an engine:", err)
	}
	result, _ := s.Batch(n.Name(), true, []uint64{s.Address}, []uint64{ours.base + stockBytes - 1}, []uint64{2})
	if result == 0 || !bytes.Equal(before, ours.copy()) {
		t.Error("it wrote beyond the end of ours:", result)
	}
}
