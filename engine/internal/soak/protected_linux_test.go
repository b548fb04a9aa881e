package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/faulty"
	"github.com/topoctl/topoctl/engine/internal/transport/tcp"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/childtest"
)

// The tests of this file have two engines in processes of their own: the host offers memory, the
// mover writes and reads it. That memory is a file, which the mover can see as well, and which is
// there whichever of them is killed.

const (
	movers     = 4
	sliceBytes = 4 << 10
	edgeBytes  = 64 << 10 // before and after what is registered, which stays as it is
)

// exit ends a child; an error is its last line.
func exit(err error) {
	if err != nil {
		fmt.Println("error", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
	os.Exit(0)
}

// mapped is the memory that is in a file.
func mapped(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const size = movers*stripeBytes + 2*edgeBytes
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// inner is what is registered of it.
func inner(b []byte) []byte { return b[edgeBytes : len(b)-edgeBytes] }

func register(e *engine.Engine, b []byte, o engine.RegionOptions) (*engine.Region, error) {
	block, err := memory.Foreign(uintptr(unsafe.Pointer(&b[0])), int64(len(b)))
	if err != nil {
		return nil, err
	}
	return e.Register(block, o)
}

// runHost offers a file's memory. At each line of its input it ends what its peers do, and offers
// the memory as another region.
func runHost(address, protection, file string) error {
	b, err := mapped(file)
	if err != nil {
		return err
	}
	e, err := engine.New(context.Background(), engine.Options{
		Name: "host", Security: engine.Security{Credentials: trust.Secret(token), Protection: engine.Protection(protection)}, Listen: []string{address}, Transports: []engine.TransportFactory{engine.TCP()},
	})
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); ; {
		r, err := register(e, inner(b), engine.RegionOptions{Name: "remote", Grant: memory.PeerRead | memory.PeerWrite})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		if !in.Scan() {
			return e.Close()
		}
		if err := r.Close(context.Background()); err != nil {
			return err
		}
	}
}

// tally is what a mover has done.
type tally struct {
	Slices, Retries, Batches int64
	Rounds, Failed           int64 // of all movers; failed rounds were begun again
}

// mover is the engine that moves.
type mover struct {
	engine  *engine.Engine
	address string // of the host
	local   *engine.Region
	there   []byte

	mu   sync.Mutex
	peer *engine.Peer

	rounds, failed atomic.Int64
	stop           atomic.Bool
}

// open gives the peer, opened again where it is lost, and its region.
func (m *mover) open(ctx context.Context) (*engine.Peer, *engine.RemoteRegion, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peer != nil && m.peer.Err() != nil {
		_ = m.peer.Close()
		m.peer = nil
	}
	if m.peer == nil {
		p, err := m.engine.Open(ctx, m.address)
		if err != nil {
			return nil, nil, err
		}
		m.peer = p
	}
	r, err := m.peer.Region(ctx, "remote")
	return m.peer, r, err
}

// begin gives a stripe of which both sides are known: what failed before has ended, or is refused
// by the engine until it has.
func (m *mover) begin(n int) (*stripe, error) {
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, err := m.tryBegin(n)
		if err == nil || m.stop.Load() || time.Now().After(until) || errors.As(err, new(wrongByte)) {
			return s, err
		}
	}
}

func (m *mover) tryBegin(n int) (*stripe, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	peer, remote, err := m.open(ctx)
	if err != nil {
		return nil, err
	}
	s := newStripe(peer, n, m.local, m.there, remote)
	s.noise(s.here, s.wantH)
	copy(s.wantF, s.wantH)
	if err := peer.Write(ctx, m.local.Span(s.base, stripeBytes), remote.At(s.base)); err != nil {
		return nil, err
	}
	if at := differ(s.far, s.wantF); at >= 0 {
		return nil, wrongByte(fmt.Sprintf("mover %d: wrong byte at %d of the peer when it began", n, at))
	}
	s.noise(s.far, s.wantF)
	return s, nil
}

// work does rounds until it is told to stop. What a round does not survive, it begins again.
func (m *mover) work(n int) error {
	s, err := m.begin(n)
	for ; err == nil && !m.stop.Load(); m.rounds.Add(1) {
		if err = s.round(); err == nil {
			continue
		}
		if errors.As(err, new(wrongByte)) {
			return err
		}
		fmt.Println("failed", n, strings.ReplaceAll(err.Error(), "\n", "; "))
		m.failed.Add(1)
		s, err = m.begin(n)
	}
	if m.stop.Load() && !errors.As(err, new(wrongByte)) {
		return nil
	}
	return err
}

func (m *mover) tally() tally {
	s := m.engine.Stats()
	return tally{Slices: s.Slices, Retries: s.Retries, Batches: s.Batches, Rounds: m.rounds.Load(), Failed: m.failed.Load()}
}

// runMover moves until its input ends, and says how far it is every now and then.
func runMover(address, protection, files string, ways []string) error {
	local, err := mapped(files + ".mover")
	if err != nil {
		return err
	}
	there, err := mapped(files + ".host")
	if err != nil {
		return err
	}
	o := engine.Options{Name: "mover", Security: engine.Security{Credentials: trust.Secret(token), Protection: engine.Protection(protection)}, ConnsPerLane: 8, GiveUp: 20 * time.Second, Check: engine.CheckNever}
	o.Transports = []engine.TransportFactory{&transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		t, err := tcp.New(tcp.Options{
			Regions: env.Regions, Memory: env.Memory, Protection: env.Protection, MaxBytes: sliceBytes,
			Identity: session.Identity{Name: env.Name, Epoch: env.Epoch, Credentials: env.Credentials, TLS: env.TLS},
		})
		return &detour{Transport: t, addresses: ways}, err
	}}}
	m := &mover{address: address, there: inner(there)}
	if m.engine, err = engine.New(context.Background(), o); err != nil {
		return err
	}
	if m.local, err = register(m.engine, inner(local), engine.RegionOptions{Name: "local"}); err != nil {
		return err
	}
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		m.stop.Store(true)
	}()
	done := make(chan error, movers)
	for n := range movers {
		go func() { done <- m.work(n) }()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for working := movers; working > 0; {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			working--
		case <-tick.C:
			line, _ := json.Marshal(m.tally())
			fmt.Printf("tally %s\n", line)
		}
	}
	line, _ := json.Marshal(m.tally())
	fmt.Printf("tally %s\n", line)
	return m.engine.Close()
}

// scene is the two processes and what is between them.
type scene struct {
	t          *testing.T
	protection string
	files      string
	address    string // of the host
	data, way  *detour
	host       *childtest.Process
	mover      *childtest.Process
	memory     [2][]byte // all of the files

	mu     sync.Mutex
	now    tally // of the mover that runs
	before tally // of those that were killed
	failed []string
	err    string        // the mover's last line, if it was one
	over   chan struct{} // the mover says no more
}

func newScene(t *testing.T, protection string) *scene {
	c := &scene{t: t, protection: protection, address: childtest.Address(t), files: filepath.Join(t.TempDir(), "memory"), data: &detour{}, way: &detour{}}
	for i, name := range []string{".host", ".mover"} {
		b, err := mapped(c.files + name)
		if err != nil {
			t.Fatal(err)
		}
		for k := range b {
			b[k] = byte(k % 251)
		}
		c.memory[i] = b
		t.Cleanup(func() {
			if err := syscall.Munmap(b); err != nil {
				t.Error(err)
			}
		})
	}
	c.data.start(t, c.address, 4)
	c.way.start(t, c.address, 1)
	c.startHost()
	return c
}

func (c *scene) startHost() {
	c.host = childtest.Start(c.t, roleVariable+"=host", c.address, c.protection, c.files+".host")
	c.ready()
}

func (c *scene) ready() {
	c.t.Helper()
	if line := c.host.Line(c.t); line != "ready" {
		c.t.Fatalf("the host says %q", line)
	}
}

func (c *scene) startMover() {
	p := childtest.Start(c.t, roleVariable+"=mover", c.way.addresses[0], c.protection, c.files, strings.Join(c.data.addresses, ","))
	over := make(chan struct{})
	c.mover, c.over = p, over
	go func() {
		defer close(over)
		for {
			line, err := p.Out.ReadString('\n')
			if err != nil {
				return
			}
			c.mu.Lock()
			switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "tally":
				_ = json.Unmarshal([]byte(rest), &c.now)
			case "failed":
				c.failed = append(c.failed, rest)
			default:
				c.err = strings.TrimSpace(line)
			}
			c.mu.Unlock()
		}
	}()
}

// sum is what all movers have done, and whether the one that runs has come to an error.
func (c *scene) sum() (t tally, err string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, b := c.before, c.now
	return tally{a.Slices + b.Slices, a.Retries + b.Retries, a.Batches + b.Batches, a.Rounds + b.Rounds, a.Failed + b.Failed}, c.err
}

// advance waits until more rounds are done.
func (c *scene) advance(rounds int64) {
	c.t.Helper()
	begin, _ := c.sum()
	for until := time.Now().Add(3 * time.Minute); ; time.Sleep(2 * time.Millisecond) {
		now, err := c.sum()
		switch {
		case err != "":
			c.t.Fatalf("after %+v: %s", now, err)
		case now.Rounds >= begin.Rounds+rounds:
			return
		case time.Now().After(until):
			c.t.Fatalf("it stands still: %+v, failed: %q", now, c.failed)
		}
	}
}

// halt stops a process for a while.
func (c *scene) halt(p *childtest.Process, d time.Duration) {
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := p.Process.Signal(signal); err != nil {
			c.t.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			time.Sleep(d)
		}
	}
}

func (c *scene) killHost() {
	c.host.Kill()
	c.startHost()
}

// killMover has the host end what the mover has begun before there is another one.
func (c *scene) killMover() {
	c.mover.Kill()
	<-c.over
	for _, p := range append(c.data.proxies, c.way.proxies...) {
		p.Cut()
	}
	fmt.Fprintln(c.host.In)
	c.ready()
	c.mu.Lock()
	a, b := &c.before, &c.now
	*a = tally{a.Slices + b.Slices, a.Retries + b.Retries, a.Batches + b.Batches, a.Rounds + b.Rounds, a.Failed + b.Failed}
	*b = tally{}
	c.mu.Unlock()
	c.startMover()
}

// corrupt flips bits from now on, about one in that many bytes of each direction.
func (c *scene) corrupt(every int64) {
	for _, p := range append(c.data.proxies, c.way.proxies...) {
		p.Update(func(up, down *faulty.Line) { up.CorruptEvery, down.CorruptEvery = every, every })
	}
}

func (c *scene) flipped() (n int64) {
	for _, p := range append(c.data.proxies, c.way.proxies...) {
		n += p.Flipped()
	}
	return n
}

// untouched looks at what is not registered.
func (c *scene) untouched() {
	c.t.Helper()
	for i, b := range c.memory {
		for k := range b {
			registered := k >= edgeBytes && k < len(b)-edgeBytes
			if !registered && b[k] != byte(k%251) {
				c.t.Fatalf("byte %d of file %d is %#x, and was not registered", k, i, b[k])
			}
		}
	}
}

// TestProtected: small slices over connections that flip bits, stand still and break, between
// processes that stop, pause and are killed. No batch that is done has a wrong byte, on either side;
// none fails but for a host that was killed; and what is not registered stays as it is.
func TestProtected(t *testing.T) {
	slices := int64(length(10_000, 12_000, 10_000_000))
	for _, protection := range []string{"payload", "sealed"} {
		t.Run(protection, func(t *testing.T) {
			watch(t)
			start := time.Now()
			c := newScene(t, protection)
			c.startMover()
			c.advance(movers) // connected
			c.corrupt(4 << 20)
			stop := make(chan struct{})
			var trouble sync.WaitGroup
			trouble.Go(func() { disturb(c.data.proxies, c.way.proxies[0], stop) })
			t.Cleanup(func() { close(stop); trouble.Wait() })
			rng := rand.New(rand.NewPCG(4, 4))
			pause := func(most time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(most))) }
			long := 300 * time.Millisecond
			if slices >= 1_000_000 {
				long = 4 * time.Second
			}
			events := []struct {
				what string
				do   func()
			}{
				{"pause of the host", func() { c.halt(c.host, pause(50*time.Millisecond)) }},
				{"pause of the mover", func() { c.halt(c.mover, pause(50*time.Millisecond)) }},
				{"host killed", c.killHost},
				{"stop of the host", func() { c.halt(c.host, pause(long)) }},
				{"mover killed", c.killMover},
				{"stop of the mover", func() { c.halt(c.mover, pause(long)) }},
			}
			killed := int64(0)
			for i := 0; ; i++ {
				if now, _ := c.sum(); i >= len(events) && now.Slices >= slices {
					break
				}
				e := events[i%len(events)]
				if i >= len(events) { // each once in turn, then mostly pauses
					if e = events[rng.IntN(2)]; i%40 == 0 {
						e = events[2+rng.IntN(4)]
					}
				}
				e.do()
				if e.what == "host killed" {
					killed++
				}
				c.advance(1 + rng.Int64N(3*movers))
			}
			c.mover.In.Close()
			<-c.over
			now, last := c.sum()
			if err := c.mover.Wait(); err != nil || last != "" {
				t.Errorf("the mover ends with %q, %v", last, err)
			}
			c.host.In.Close()
			if err := c.host.Wait(); err != nil {
				t.Errorf("the host ends with %v", err)
			}
			t.Logf("%+v, %d bits flipped, host killed %d times, %.1f s", now, c.flipped(), killed, time.Since(start).Seconds())
			if c.flipped() == 0 || now.Retries == 0 {
				t.Error("nothing was changed on the way")
			}
			if now.Failed > killed*movers {
				t.Errorf("rounds failed that no killed host explains: %q", c.failed)
			}
			c.untouched()
		})
	}
}

// TestUnprotected: without protection and checksums the same finds wrong bytes.
func TestUnprotected(t *testing.T) {
	c := newScene(t, "open")
	c.startMover()
	c.advance(movers)
	c.corrupt(64 << 10)
	select {
	case <-c.over:
	case <-time.After(2 * time.Minute):
	}
	if now, err := c.sum(); !strings.Contains(err, "wrong byte") {
		t.Errorf("%d bits flipped, %+v: %q", c.flipped(), now, err)
	}
}
