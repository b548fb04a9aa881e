//go:build linux

package shm

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/transporttest"
	"github.com/topoctl/topoctl/testkit/childtest"
)

// The tests run this program again as another process, which talks over its
// standard input and output.
const roleVariable = "SHM_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "writer":
		writer()
	case "server":
		serverProcess()
	default:
		os.Exit(m.Run())
	}
}

// invitation is what another process needs to connect.
type invitation struct {
	Endpoint transport.Endpoint
	Answer   string
	Region   transport.RemoteRegion
}

// writer fills a peer's region with one byte after the other until it is lost.
func writer() {
	var in invitation
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		panic(err)
	}
	regions := memory.NewTable(1)
	s, err := New(Options{Dir: os.Args[1], Regions: regions, Workers: 2})
	if err != nil {
		panic(err)
	}
	b, err := memory.Alloc(in.Region.Bytes, memory.Options{})
	if err != nil {
		panic(err)
	}
	local, err := regions.Add(b, "", "", memory.None)
	if err != nil {
		panic(err)
	}
	var stop atomic.Bool
	lost, idle := make(chan error, 1), make(chan struct{}, 1)
	c, err := s.Dial(context.Background(), transport.Dial{
		Session: session, Conn: 1, Remote: in.Endpoint,
		Exchange: func(context.Context, []byte) ([]byte, error) { return hex.DecodeString(in.Answer) },
		Events: transport.Events{
			Done: func(transport.Conn, []transport.Completion) { idle <- struct{}{} },
			Lost: func(_ transport.Conn, err error) { stop.Store(true); lost <- err; close(idle) },
		},
	})
	if err != nil {
		panic(err)
	}
	for i := 1; !stop.Load(); i++ {
		for j := range b.Bytes() {
			b.Bytes()[j] = byte(i)
		}
		n, done := c.Post([]*transport.Request{one(transport.Write, local, 0, &in.Region, 0, in.Region.Bytes)}, nil)
		if n == 1 && len(done) == 0 {
			<-idle
		}
		if i == 3 {
			fmt.Println("moving")
		}
	}
	fmt.Println("lost:", <-lost)
	_ = s.Close()
}

// serverProcess offers a region and waits for the end of its input.
func serverProcess() {
	regions := memory.NewTable(1)
	s, err := New(Options{Dir: os.Args[1], Regions: regions, Workers: 1})
	if err != nil {
		panic(err)
	}
	b, err := memory.Alloc(4<<20, memory.Options{})
	if err != nil {
		panic(err)
	}
	r, err := regions.Add(b, "", "", memory.PeerRead|memory.PeerWrite)
	if err != nil {
		panic(err)
	}
	if _, err := s.Register(r); err != nil {
		panic(err)
	}
	answer, err := s.Accept(context.Background(), transport.Origin{Session: session, Conn: 1}, []byte{version})
	if err != nil {
		panic(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(invitation{s.Endpoint(), hex.EncodeToString(answer), *remote(r)})
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func start(t *testing.T, role string) *childtest.Process {
	t.Helper()
	return childtest.Start(t, roleVariable+"="+role, shortDir(t))
}

// startWriter starts a process that writes to a region of ours all the time.
func startWriter(t *testing.T, h *host, r *memory.Region) *childtest.Process {
	t.Helper()
	p := start(t, "writer")
	hello := accept(t, h, 1)
	answer := append([]byte{version}, hello.ticket[:]...)
	if err := json.NewEncoder(p.In).Encode(invitation{h.Endpoint(), hex.EncodeToString(answer), *remote(r)}); err != nil {
		t.Fatal(err)
	}
	if line, err := p.Out.ReadString('\n'); line != "moving\n" {
		t.Fatalf("the writer says %q, %v", line, err)
	}
	return p
}

// still checks that nobody changes the bytes any more.
func still(t *testing.T, r *memory.Region) {
	t.Helper()
	b := r.Block().Bytes()
	for i := range 5 {
		fill(b, uint64(i))
		want := bytes.Clone(b)
		time.Sleep(2 * time.Millisecond)
		if !bytes.Equal(b, want) {
			t.Fatal("bytes land after the connection was left")
		}
	}
}

func TestLeaveStopsAnotherProcess(t *testing.T) {
	h := newHost(t, 1)
	r := h.region(8<<20, memory.PeerWrite|memory.PeerRead, memory.Options{})
	p := startWriter(t, h, r)
	// Stopped in the middle of a copy, it does not answer.
	childtest.Stop(t, p.Process)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Leave(ctx, origin, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("left a process that stands still: %v", err)
	}
	if n := h.Served().Conns; n != 1 {
		t.Errorf("%d connections", n)
	}
	// When it goes on, it stops copying and says so.
	if err := p.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := h.Leave(within(t), origin, 1); err != nil {
		t.Fatal(err)
	}
	still(t, r)
	if line, _ := p.Out.ReadString('\n'); !strings.Contains(line, "left the connection") {
		t.Errorf("the writer says %q", line)
	}
	if n := h.Served().Conns; n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestLeaveOfADeadProcess(t *testing.T) {
	h := newHost(t, 1)
	r := h.region(8<<20, memory.PeerWrite|memory.PeerRead, memory.Options{})
	p := startWriter(t, h, r)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := h.LeaveAll(within(t), session); err != nil {
		t.Fatal(err)
	}
	still(t, r)
}

// TestCloseWithAHungPeer does not wait for it for ever, and says so.
func TestCloseWithAHungPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: waits as long as Close gives peers")
	}
	h := newHost(t, 1)
	r := h.region(1<<20, memory.PeerWrite|memory.PeerRead, memory.Options{})
	p := startWriter(t, h, r)
	childtest.Stop(t, p.Process)
	if err := h.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closed with %v", err)
	}
}

func TestServerDies(t *testing.T) {
	p := start(t, "server")
	var in invitation
	if err := json.NewDecoder(p.Out).Decode(&in); err != nil {
		t.Fatal(err)
	}
	a := newHost(t, 2)
	local := a.region(in.Region.Bytes, memory.None, memory.Options{})
	e := transporttest.NewClient(t)
	c, err := a.Dial(within(t), transport.Dial{
		Session: session, Conn: 1, Remote: in.Endpoint, Events: e.Events(),
		Exchange: func(context.Context, []byte) ([]byte, error) { return hex.DecodeString(in.Answer) },
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Conn = c
	if err := e.Do(one(transport.Write, local, 0, &in.Region, 0, in.Region.Bytes)); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(local.Block().Bytes())
	clear(local.Block().Bytes())
	if err := e.Do(one(transport.Read, local, 0, &in.Region, 0, in.Region.Bytes)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(local.Block().Bytes(), want) {
		t.Error("not the bytes that were written")
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := e.WaitLost(); err == nil {
		t.Error("lost without an error")
	}
	if n, _ := c.Post([]*transport.Request{one(transport.Read, local, 0, &in.Region, 0, 10)}, nil); n != 0 {
		t.Error("a lost connection takes requests")
	}
	if mapped := mappings(t); mapped["memfd:topoctl"] > 2 { // our region and board
		t.Errorf("still mapped: %v", mapped)
	}
}

// mappings counts the mappings of this process by the file's name.
func mappings(t *testing.T) map[string]int {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if _, file, ok := strings.Cut(line, "/memfd:"); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(file), " ")
			n["memfd:"+name]++
		}
	}
	return n
}
