package mooncake

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/internal/bind/mooncake/mooncaketest"
)

const stockBytes = 256 << 10

// TestStock moves batches between this code and Mooncake's own, in each direction and to each side,
// and compares every byte on both.
func TestStock(t *testing.T) {
	for _, tt := range []struct {
		name string
		http bool
		env  []string
	}{{"P2P", false, nil}, {"HTTP", true, nil}, {"connection pool", false, []string{"MC_TCP_ENABLE_CONNECTION_POOL=1"}}, {"version 1", false, []string{"MC_TCP_PROTO=1"}}} {
		t.Run(tt.name, func(t *testing.T) {
			metadata := P2P
			if tt.http {
				metadata = mooncaketest.MetadataServer(t)
			}
			s := mooncaketest.StartStock(t, metadata, stockBytes, tt.env...)
			ours := newArena(1<<41, stockBytes)
			n := start(t, "", Options{Metadata: metadata, Name: "ours", Engine: "ours", Offered: ours, Own: ours})
			p, err := n.Open(within(t), s.Name)
			if err != nil {
				t.Fatal(err)
			}
			if ranges, err := p.Ranges(within(t)); err != nil || !slices.Contains(ranges, Range{s.Address, stockBytes}) {
				t.Fatal(ranges, err)
			}
			if _, _, ok, err := p.Engine(within(t)); ok || err != nil {
				t.Error("a stock peer is taken for an engine:", err)
			}
			const batches = 100 // of each initiator; internal/bind moves more
			r := rand.New(rand.NewPCG(7, 8))
			theirs := &arena{base: s.Address, bytes: make([]byte, stockBytes)} // as theirs must be
			theirs.fill(r)
			s.Set(theirs.bytes)
			began := time.Now()
			for i := range 2 * batches {
				write, stockDoes := i&2 == 0, i&1 == 0
				ours.fill(r)
				want := ours.copy()
				var sum string
				if stockDoes {
					ops := randomOps(r, theirs, ours)
					apply(write, ops, theirs.bytes, want, theirs.base, ours.base)
					var local, remote, length []uint64
					for _, op := range ops {
						local, remote, length = append(local, op.Local), append(remote, op.Remote), append(length, op.Length)
					}
					var result int
					result, sum = s.Batch(n.Name(), write, local, remote, length)
					if result != 0 {
						t.Fatalf("batch %d (write: %v): the stock process gives %d", i, write, result)
					}
				} else {
					ops := randomOps(r, ours, theirs)
					apply(write, ops, want, theirs.bytes, ours.base, theirs.base)
					if err := p.Transfer(within(t), write, ops); err != nil {
						t.Fatalf("batch %d (write: %v): %v", i, write, err)
					}
					sum = s.Sum()
				}
				if tt.name == "version 1" && stockDoes && write {
					// Nothing tells it when its bytes are here.
					for end := time.Now().Add(time.Minute); !bytes.Equal(ours.copy(), want) && time.Now().Before(end); time.Sleep(time.Millisecond) {
					}
				}
				if !bytes.Equal(ours.copy(), want) {
					t.Fatalf("batch %d (write: %v, by the stock process: %v): other bytes here than expected", i, write, stockDoes)
				}
				if sum != mooncaketest.Sum(theirs.bytes) {
					t.Fatalf("batch %d (write: %v, by the stock process: %v): other bytes there than expected", i, write, stockDoes)
				}
			}
			t.Logf("%d batches of each in %v", batches, time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestStockCalls: probes, notifications and refusals, both ways.
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
	result, _ := s.Batch(n.Name(), true, []uint64{s.Address}, []uint64{ours.base + stockBytes - 1}, []uint64{2})
	if result == 0 || !bytes.Equal(before, ours.copy()) {
		t.Error("it wrote beyond the end of ours:", result)
	}
}
