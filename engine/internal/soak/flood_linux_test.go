package soak

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/testkit/childtest"
)

// The processes of the flood: this program again.
const (
	roleVariable = "TOPOCTL_SOAK_ROLE"
	agentMemory  = 512 << 20
	// busyPart of each dutyTime is what attackers and burners may run.
	dutyTime = 100 * time.Millisecond
	busyTime = dutyTime / 10
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "agent":
		os.Exit(runAgent())
	case "attacker":
		attack(os.Args[1], os.Args[2])
	case "burner":
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
		for n := 0; ; n++ {
			if n < 0 {
				fmt.Println()
			}
		}
	case "host":
		exit(runHost(os.Args[1], os.Args[2], os.Args[3]))
	case "mover":
		exit(runMover(os.Args[1], os.Args[2], os.Args[3], strings.Split(os.Args[4], ",")))
	default:
		os.Exit(m.Run())
	}
}

// runAgent serves until its standard input ends. It joins a control group first if there is one.
func runAgent() int {
	if procs := os.Args[1]; procs != "" {
		if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	err := agent.Run(ctx, agent.Options{
		Engine:  engine.Options{Name: "agent", Security: engine.Security{Credentials: trust.Secret(token)}, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))},
		Regions: []agent.Region{{Bytes: 1 << 20, RegionOptions: engine.RegionOptions{Name: "remote", Grant: memory.PeerRead | memory.PeerWrite}}},
		HTTP:    []string{"127.0.0.1:0"},
		Ready:   func(i agent.Info) { fmt.Println(i.Addresses[0], i.HTTP[0]) },
	})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// memoryGroup makes a control group of that size, and gives the file that processes are
// put in with, "" where groups cannot be made.
func memoryGroup(t *testing.T, bytes int) string {
	own := ""
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && (f[1] == "memory" || f[1] == "" && own == "") {
			own = f[2]
		}
	}
	for _, v := range []struct{ root, limit string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		for _, at := range []string{own, "/"} {
			dir := filepath.Join(v.root, at, fmt.Sprint("topoctl-soak-", os.Getpid()))
			if os.Mkdir(dir, 0o700) != nil {
				continue
			}
			t.Cleanup(func() { _ = os.Remove(dir) })
			if os.WriteFile(filepath.Join(dir, v.limit), []byte(strconv.Itoa(bytes)), 0o600) == nil {
				return filepath.Join(dir, "cgroup.procs")
			}
		}
	}
	return ""
}

// duty lets a process run for a tenth of the time, on one processor, until stop is called.
func duty(p *childtest.Process) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, s := range []struct {
				signal syscall.Signal
				time   time.Duration
			}{{syscall.SIGCONT, busyTime}, {syscall.SIGSTOP, dutyTime - busyTime}} {
				_ = p.Process.Signal(s.signal)
				select {
				case <-over:
					return
				case <-time.After(s.time):
				}
			}
		}
	}()
	return func() { close(over); <-done }
}

// Attackers come from other addresses than the good peer: those that have the token from many.
func attackerAddress(n int, token bool) net.IP {
	if token {
		return net.IPv4(127, 0, 1, byte(1+n%250))
	}
	return net.IPv4(127, 0, 0, byte(2+n%3))
}

// attack makes n hostile sessions and connections at an agent, by turns of each kind, and
// makes those anew that the agent has ended. It says when the sessions have been there once: to
// make them takes more than a tenth of a processor.
func attack(address, count string) {
	runtime.GOMAXPROCS(1)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(err)
	}
	repeat := func(kind func(string, int), i int) {
		for {
			kind(address, i)
			time.Sleep(time.Second + rand.N(time.Second))
		}
	}
	inTurn := make(chan struct{}, 32)
	var tried sync.WaitGroup
	for i := range n / 4 {
		inTurn <- struct{}{}
		tried.Add(1)
		attempted := sync.OnceFunc(func() { <-inTurn; tried.Done() })
		go repeat(func(address string, i int) {
			s, err := open(address, i, []int64{3 << 20, 0}[i%2])
			attempted()
			if err != nil {
				return
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			[]func(context.Context, *session.Session, string){partialCall, greedyPlaces}[i%2](ctx, s, address)
		}, i)
	}
	tried.Wait()
	kinds := []func(string, int){halfOpen, garbage, slowHello}
	for i := range n - n/4 {
		go repeat(kinds[i%len(kinds)], i)
	}
	fmt.Println("ready")
	select {}
}

// knock connects from an attacker's address.
func knock(address string, n int, token bool) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: attackerAddress(n, token)}, Timeout: time.Minute}
	return d.Dial("tcp", address)
}

func halfOpen(address string, n int) {
	c, err := knock(address, n, false)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.Copy(io.Discard, c) // until the agent ends it
}

// garbage is what hellos of this protocol and of TLS begin with, and bytes that are neither.
func garbage(address string, n int) {
	c, err := knock(address, n, false)
	if err != nil {
		return
	}
	defer c.Close()
	b := make([]byte, 600)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	copy(b, []string{"TPCT\x00\x02\x00\x02\x02\x00", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", ""}[n%3])
	_, _ = c.Write(b)
	_, _ = io.Copy(io.Discard, c)
}

func slowHello(address string, n int) {
	c, err := knock(address, n, false)
	if err != nil {
		return
	}
	defer c.Close()
	for _, b := range []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") {
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
	_, _ = io.Copy(io.Discard, c)
}

// open makes a session as a holder of the token. Of what it sends, the network takes only so
// much (0: all), and then nothing.
func open(address string, n int, most int64) (*session.Session, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	go func() {
		near, err := ln.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		far, err := knock(address, n, true)
		if err != nil {
			return
		}
		defer far.Close()
		go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
		if most == 0 {
			_, _ = io.Copy(far, near)
			return
		}
		_, _ = io.CopyN(far, near, most)
		_, _ = io.Copy(io.Discard, far) // until the agent ends it
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	route := session.Route{Remote: ln.Addr().(*net.TCPAddr).AddrPort()}
	return session.Dial(ctx, session.DialOptions{
		Identity: session.Identity{Name: "attacker", Epoch: uint64(n) + 1, Credentials: trust.Secret(token)}, GiveUp: time.Minute, Silence: time.Minute,
		Routes: func() []session.Route { return []session.Route{route} },
	})
}

// partialCall sends most of a long call.
func partialCall(ctx context.Context, s *session.Session, _ string) {
	_, _ = s.Call(ctx, 6, make([]byte, 4<<20))
}

// greedyPlaces asks for places of data connections that never come.
func greedyPlaces(ctx context.Context, s *session.Session, address string) {
	// What tcp sends to ask for a place, by tcp itself.
	var request []byte
	t, err := engine.TCP().(*transport.Factory).Make(transport.Env{Name: "attacker", Credentials: trust.Secret(token), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return
	}
	defer t.Close()
	_, _ = t.Dial(ctx, transport.Dial{Remote: transport.Endpoint{Address: address}, Exchange: func(_ context.Context, r []byte) ([]byte, error) {
		request = slices.Clone(r)
		return nil, io.EOF
	}})
	for conn := range uint64(64) {
		body := binary.BigEndian.AppendUint64([]byte("\x03tcp"), conn)
		_, _ = s.Call(ctx, 3, append(body, request...))
	}
	<-ctx.Done()
}

// monitor asks the agent's pages again and again, and keeps the longest time that one took.
type monitor struct {
	base    string
	stop    chan struct{}
	done    sync.WaitGroup
	mu      sync.Mutex
	longest time.Duration
	failed  error
}

func startMonitor(at string) *monitor {
	m := &monitor{base: "http://" + at, stop: make(chan struct{})}
	for _, page := range []string{"/healthz", "/metrics"} {
		m.done.Go(func() {
			for {
				begin := time.Now()
				_, err := m.get(page)
				took := time.Since(begin)
				m.mu.Lock()
				m.longest = max(m.longest, took)
				if err != nil && m.failed == nil {
					m.failed = err
				}
				m.mu.Unlock()
				select {
				case <-m.stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return m
}

// watchStalls gives a function that ends the watch, and says for how long at most a goroutine that
// wanted to go on did not.
func watchStalls() func() time.Duration {
	longest := make(chan time.Duration)
	go func() {
		const pause = 10 * time.Millisecond
		var most time.Duration
		for {
			begin := time.Now()
			select {
			case <-time.After(pause):
				most = max(most, time.Since(begin)-pause)
			case longest <- most:
				return
			}
		}
	}()
	return sync.OnceValue(func() time.Duration { return <-longest })
}

func (m *monitor) get(page string) (string, error) {
	client := http.Client{Timeout: 20 * time.Second}
	answer, err := client.Get(m.base + page)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// metric is a sample of the agent's, summed over labels.
func (m *monitor) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	text, err := m.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 2 && (f[0] == name || strings.HasPrefix(f[0], name+"{")) {
			v, _ := strconv.ParseFloat(f[1], 64)
			sum += v
		}
	}
	return sum
}

func descriptors(t *testing.T, pid int) int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// resident is a process's memory, and the most that it ever had, in bytes.
func resident(t *testing.T, pid int) (now, most int64) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) == 3 && (w[0] == "VmRSS:" || w[0] == "VmHWM:") {
			kib, _ := strconv.ParseInt(w[1], 10, 64)
			if w[0] == "VmRSS:" {
				now = kib << 10
			} else {
				most = kib << 10
			}
		}
	}
	return now, most
}

// Hostile sessions and connections of all kinds, of those that have the token and those that do
// not, held to a tenth of a processor, against an agent in a control group of 512 MiB: it lives,
// a good peer goes on, monitoring is answered, and what they had comes back.
func TestFlood(t *testing.T) {
	attackers := length(100, 200, 10_000)
	round := time.Duration(length(200, 200, 5000)) * time.Millisecond
	group := memoryGroup(t, agentMemory)
	if group == "" {
		t.Setenv("GOMEMLIMIT", strconv.Itoa(agentMemory*3/4))
		t.Log("control groups cannot be made here: the agent's memory is measured instead")
	}
	a := childtest.Start(t, roleVariable+"=agent", group)
	var address, pages string
	if _, err := fmt.Sscan(a.Line(t), &address, &pages); err != nil {
		t.Fatalf("the agent says no addresses: %v", err)
	}
	t.Cleanup(func() {
		if err := a.End(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	watching, stalls := startMonitor(pages), watchStalls()
	t.Cleanup(func() {
		close(watching.stop)
		watching.done.Wait()
		t.Logf("the longest answer of /healthz or /metrics took %v", watching.longest.Round(time.Millisecond))
		if watching.failed != nil {
			t.Error(watching.failed)
		}
		switch stalled := stalls(); {
		case os.Getenv("TOPOCTL_SOAK") != "long" || watching.longest <= time.Second:
		case stalled > time.Second/4:
			t.Logf("the machine is too noisy to judge that: this process stood still for %v", stalled.Round(time.Millisecond))
		default:
			t.Error("that is more than a second")
		}
	})
	rate := goodPeer(t, address)
	rate(round) // warm
	before, _ := resident(t, a.Process.Pid)
	files, held := descriptors(t, a.Process.Pid), watching.metric(t, "topoctl_engine_peer_memory_bytes")

	burner := childtest.Start(t, roleVariable+"=burner")
	crowd := childtest.Start(t, roleVariable+"=attacker", address, strconv.Itoa(attackers))
	crowd.Line(t)
	t.Logf("%.0f sessions, %.0f MiB for peers before the attackers are held to a tenth of a processor",
		watching.metric(t, "topoctl_engine_served_sessions"), watching.metric(t, "topoctl_engine_peer_memory_bytes")/(1<<20))
	var beside [2][]float64 // the burner, the crowd
	for range length(2, 2, 7) {
		for i, p := range []*childtest.Process{burner, crowd} {
			other := []*childtest.Process{crowd, burner}[i]
			_ = other.Process.Signal(syscall.SIGSTOP)
			stop := duty(p)
			time.Sleep(round / 4)
			beside[i] = append(beside[i], rate(round))
			stop()
		}
	}
	// All at their work together, for a while.
	stop := duty(crowd)
	rate(time.Duration(length(500, 500, 60_000)) * time.Millisecond)
	stop()
	sessions, sockets := watching.metric(t, "topoctl_engine_served_sessions"), descriptors(t, a.Process.Pid)
	refused := watching.metric(t, "topoctl_engine_refused_connections_total") + watching.metric(t, "topoctl_engine_refused_calls_total")
	_, most := resident(t, a.Process.Pid)
	burner.Kill()
	crowd.Kill()
	t.Logf("%d attackers: %.0f sessions, %d descriptors, %.0f refused, %d MiB at most (%d before)", attackers, sessions, sockets, refused, most>>20, before>>20)
	if refused == 0 || sockets <= files {
		t.Error("there was no attack")
	}
	if most > agentMemory {
		t.Errorf("the agent had %d bytes", most)
	}
	judgeRates(t, beside[0], beside[1])
	if os.Getenv("TOPOCTL_SOAK") != "long" {
		return // sessions and places of peers that are gone are kept for 30 s
	}
	until := time.Now().Add(90 * time.Second)
	for {
		n, h := descriptors(t, a.Process.Pid), watching.metric(t, "topoctl_engine_peer_memory_bytes")
		if n <= files+4 && h <= held {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("after the attack: %d descriptors (%d before), %.0f bytes held for peers (%.0f)", n, files, h, held)
		}
		time.Sleep(100 * time.Millisecond)
	}
	rate(round)
}

// goodPeer opens the agent, and gives a function that moves bytes for a time and says how many a
// second. None of its batches may fail.
func goodPeer(t *testing.T, address string) func(time.Duration) float64 {
	t.Helper()
	e, err := engine.New(t.Context(), engine.Options{Name: "good", Security: engine.Security{Credentials: trust.Secret(token)}, Transports: []engine.TransportFactory{engine.TCP()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if _, err := netip.ParseAddrPort(address); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	peer, err := e.Open(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := peer.Region(ctx, "remote")
	if err != nil {
		t.Fatal(err)
	}
	local, err := e.Alloc(1<<20, engine.RegionOptions{Name: "local"})
	if err != nil {
		t.Fatal(err)
	}
	return func(d time.Duration) float64 {
		t.Helper()
		begin, bytes := time.Now(), int64(0)
		for time.Since(begin) < d {
			b, err := peer.Submit(t.Context(), []engine.Op{{Local: engine.Span{Region: local, Length: 1 << 20}, Remote: remote.At(0)}}, engine.SubmitOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Wait(t.Context()); err != nil {
				t.Fatalf("a good peer's batch failed: %v\n%s", err, b.Explain().Text())
			}
			bytes += 1 << 20
		}
		return float64(bytes) / time.Since(begin).Seconds()
	}
}

// judgeRates says whether the good peer kept 0.9 of its rate, where the machine is quiet enough
// to tell.
func judgeRates(t *testing.T, burner, crowd []float64) {
	t.Helper()
	slices.Sort(burner)
	slices.Sort(crowd)
	ratio := crowd[len(crowd)/2] / burner[len(burner)/2]
	spread := burner[len(burner)-1]/burner[0] - 1
	t.Logf("the good peer has %.2f of its rate beside a process that only burns as much; beside that its rates differ by %.0f %%", ratio, 100*spread)
	switch {
	case os.Getenv("TOPOCTL_SOAK") != "long":
	case spread > 0.1:
		t.Log("the machine is too noisy to judge that")
	case ratio < 0.9:
		t.Errorf("less than 0.9")
	}
}
