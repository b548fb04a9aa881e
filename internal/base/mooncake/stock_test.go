package mooncake

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// stock is a Mooncake process of the published wheel.
type stock struct {
	t       *testing.T
	in      io.Writer
	out     *bufio.Reader
	name    string
	address uint64
}

const stockBytes = 256 << 10

// startStock runs one, whose Python TOPOCTL_MOONCAKE_PYTHON names (.ci/peers makes it).
func startStock(t *testing.T, metadata string, env ...string) *stock {
	t.Helper()
	python := os.Getenv("TOPOCTL_MOONCAKE_PYTHON")
	if python == "" {
		t.Skip("TOPOCTL_MOONCAKE_PYTHON is not set: want a python that imports mooncake.engine (.ci/peers)")
	}
	name := "127.0.0.1"
	if metadata != P2P {
		name = "stock"
	}
	// The test's own context ends before its clean-up, in which the process ends by itself.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	c := exec.CommandContext(ctx, python, filepath.Join("testdata", "stock.py"), name, metadata, strconv.Itoa(stockBytes))
	c.Env = append(os.Environ(), append(env, "MC_TCP_BIND_ADDRESS=127.0.0.1")...)
	var log bytes.Buffer
	c.Stderr = &log
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &stock{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		defer cancel()
		_ = in.Close()
		if err := c.Wait(); err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, log.Bytes())
		}
	})
	var first struct {
		Name    string
		Address uint64
	}
	s.read(&first)
	s.name, s.address = first.Name, first.Address
	return s
}

func (s *stock) read(into any) {
	s.t.Helper()
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, into)
	}
	if err != nil {
		s.t.Fatalf("the stock process: %v", err)
	}
}

// do has it do something, and gives the result and the checksum of its buffer.
func (s *stock) do(what map[string]any) (result int, sum string) {
	s.t.Helper()
	line, err := json.Marshal(what)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.in.Write(append(line, '\n')); err != nil {
		s.t.Fatal(err)
	}
	var answer struct {
		Result int
		Sum    string
	}
	s.read(&answer)
	return answer.Result, answer.Sum
}

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

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
				metadata = metadataServer(t)
			}
			s := startStock(t, metadata, tt.env...)
			ours := newArena(1<<41, stockBytes)
			n := start(t, "", Options{Metadata: metadata, Name: "ours", Engine: "ours", Offered: ours, Own: ours})
			p, err := n.Open(within(t), s.name)
			if err != nil {
				t.Fatal(err)
			}
			if ranges, err := p.Ranges(within(t)); err != nil || len(ranges) != 1 || ranges[0] != (Range{s.address, stockBytes}) {
				t.Fatal(ranges, err)
			}
			if _, _, ok, err := p.Engine(within(t)); ok || err != nil {
				t.Error("a stock peer is taken for an engine:", err)
			}
			batches := 1000 // of each initiator
			if tt.env != nil {
				batches = 100
			}
			r := rand.New(rand.NewPCG(7, 8))
			theirs := &arena{base: s.address, bytes: make([]byte, stockBytes)} // as theirs must be
			theirs.fill(r)
			if _, sum := s.do(map[string]any{"do": "set", "bytes": hex.EncodeToString(theirs.bytes)}); sum != sumOf(theirs.bytes) {
				t.Fatal("set")
			}
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
					result, sum = s.do(map[string]any{"do": "batch", "peer": n.Name(), "write": write, "local": local, "remote": remote, "length": length})
					if result != 0 {
						t.Fatalf("batch %d (write: %v): the stock process gives %d", i, write, result)
					}
				} else {
					ops := randomOps(r, ours, theirs)
					apply(write, ops, want, theirs.bytes, ours.base, theirs.base)
					if err := p.Transfer(within(t), write, ops); err != nil {
						t.Fatalf("batch %d (write: %v): %v", i, write, err)
					}
					_, sum = s.do(map[string]any{"do": "probe", "peer": n.Name()})
				}
				if tt.name == "version 1" && stockDoes && write {
					// Nothing tells it when its bytes are here.
					for end := time.Now().Add(10 * time.Second); !bytes.Equal(ours.copy(), want) && time.Now().Before(end); time.Sleep(time.Millisecond) {
					}
				}
				if !bytes.Equal(ours.copy(), want) {
					t.Fatalf("batch %d (write: %v, by the stock process: %v): other bytes here than expected", i, write, stockDoes)
				}
				if sum != sumOf(theirs.bytes) {
					t.Fatalf("batch %d (write: %v, by the stock process: %v): other bytes there than expected", i, write, stockDoes)
				}
			}
			t.Logf("%d batches of each in %v", batches, time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestStockCalls: probes, notifications and refusals, both ways.
func TestStockCalls(t *testing.T) {
	s := startStock(t, P2P)
	ours := newArena(1<<41, stockBytes)
	var notified atomic.Int32
	n := start(t, "", Options{Offered: ours, Own: ours, Notified: func(string, string) bool { notified.Add(1); return true }})
	p, err := n.Open(within(t), s.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Probe(within(t)); err != nil {
		t.Error(err)
	}
	if err := p.Notify(within(t), "the data is there"); err != nil {
		t.Error(err)
	}
	if result, _ := s.do(map[string]any{"do": "probe", "peer": n.Name()}); result != 0 {
		t.Error("its probe of us gives", result)
	}
	for what, op := range map[string]Op{"before": {ours.base, s.address - 1, 2}, "after": {ours.base, s.address + stockBytes - 1, 2}} {
		for _, write := range []bool{false, true} {
			if err := p.Transfer(within(t), write, []Op{op}); !errors.Is(err, ErrNoRange) || errors.Is(err, ErrUnconfirmed) {
				t.Errorf("%s its memory (write: %v): %v", what, write, err)
			}
		}
	}
	before := ours.copy()
	result, _ := s.do(map[string]any{
		"do": "batch", "peer": n.Name(), "write": true,
		"local": []uint64{s.address}, "remote": []uint64{ours.base + stockBytes - 1}, "length": []uint64{2},
	})
	if result == 0 || !bytes.Equal(before, ours.copy()) {
		t.Error("it wrote beyond the end of ours:", result)
	}
}
