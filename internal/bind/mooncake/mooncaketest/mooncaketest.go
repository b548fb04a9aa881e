// Package mooncaketest has the other side for tests of Mooncake's protocol: processes of the
// published wheel, and a metadata server.
package mooncaketest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

//go:embed stock.py
var program string

// Stock is a Mooncake process that offers a buffer.
type Stock struct {
	Name    string // by which peers open it
	Address uint64 // of the buffer

	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// StartStock runs one until the test ends. TOPOCTL_MOONCAKE_PYTHON names a python that has the
// published wheel; without it the test is skipped.
func StartStock(t testing.TB, metadata string, size int, env ...string) *Stock {
	t.Helper()
	python := os.Getenv("TOPOCTL_MOONCAKE_PYTHON")
	if python == "" {
		t.Skip("TOPOCTL_MOONCAKE_PYTHON is not set: want a python that imports mooncake.engine (.ci/peers)")
	}
	name := "127.0.0.1"
	if strings.Contains(metadata, "://") {
		name = "stock"
	}
	// The test's own context ends before its clean-up, in which the process ends by itself.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	c := exec.CommandContext(ctx, python, "-c", program, name, metadata, strconv.Itoa(size))
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
	s := &Stock{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		defer cancel()
		_ = in.Close()
		if err := c.Wait(); err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, log.Bytes())
		}
	})
	s.read(s)
	return s
}

func (s *Stock) read(into any) {
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
func (s *Stock) do(what map[string]any) (result int, sum string) {
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

// Batch has it write to a peer, or read from it. The result is 0 where that went well.
func (s *Stock) Batch(peer string, write bool, local, remote, length []uint64) (result int, sum string) {
	s.t.Helper()
	return s.do(map[string]any{"do": "batch", "peer": peer, "write": write, "local": local, "remote": remote, "length": length})
}

// Set fills its buffer.
func (s *Stock) Set(b []byte) {
	s.t.Helper()
	if _, sum := s.do(map[string]any{"do": "set", "bytes": hex.EncodeToString(b)}); sum != Sum(b) {
		s.t.Fatal("the stock process has other bytes than it was given")
	}
}

// Sum is the checksum of its buffer.
func (s *Stock) Sum() string {
	s.t.Helper()
	_, sum := s.do(map[string]any{"do": "sum"})
	return sum
}

// Probe has it ask whether a peer is alive: 0 where it is.
func (s *Stock) Probe(peer string) (result int) {
	s.t.Helper()
	result, _ = s.do(map[string]any{"do": "probe", "peer": peer})
	return result
}

// Sum is the checksum that a stock process gives.
func Sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// MetadataServer is what Mooncake's Python server of keys and values does; it gives its address.
func MetadataServer(t testing.TB) string {
	var mu sync.Mutex
	values := map[string][]byte{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.URL.Query().Get("key")
		value, ok := values[key]
		switch {
		case r.Method == http.MethodPut && ok && strings.HasPrefix(key, "mooncake/rpc_meta/"):
			http.Error(w, "Duplicate rpc_meta key not allowed", http.StatusBadRequest)
		case r.Method == http.MethodPut:
			values[key], _ = io.ReadAll(r.Body)
			_, _ = io.WriteString(w, "metadata updated")
		case !ok:
			http.Error(w, "metadata not found", http.StatusNotFound)
		case r.Method == http.MethodDelete:
			delete(values, key)
			_, _ = io.WriteString(w, "metadata deleted")
		default:
			_, _ = w.Write(value)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/metadata"
}
