package etcd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/etcdtest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// insideVariable says that this process has a network of its own.
const insideVariable = "TOPOCTL_TEST_INSIDE"

// Eight engines in network namespaces, found by name under load. One
// host vanishes and its engine is started elsewhere: the writers follow it. Then etcd is away.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	etcdtest.Program(t)
	if os.Getenv(insideVariable) != "" {
		t.Skip(insideVariable + " is set: TestInsideNamespaces runs in this process")
	}
	if err := exec.Command("unshare", "-nm", "ip", "link").Run(); err != nil {
		t.Skipf("no network namespaces here (they want root, util-linux and iproute2): %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-nm", "--propagation", "private", self, "-test.run=^TestInsideNamespaces$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestInsideNamespaces") {
		t.Errorf("%v:\n%s", err, out)
	}
}

func sh(t *testing.T, script string, args ...any) {
	t.Helper()
	script = fmt.Sprintf(script, args...)
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// startAt is startEngine on a host of the lab.
func startAt(t *testing.T, c *etcdtest.Cluster, host int, name, token string) (epoch string) {
	t.Helper()
	_, epoch = startEngine(t, c, name, fmt.Sprintf("10.77.0.%d:7411", host), token, fmt.Sprintf("n%d", host))
	return epoch
}

// writer writes to a peer by name for as long as it is there, and opens it again when it is not.
type writer struct {
	name   string
	moved  atomic.Int64
	failed atomic.Int64
	epoch  atomic.Uint64

	mu    sync.Mutex
	opens []time.Duration
}

// opened gives how long opening took so far, and forgets it.
func (w *writer) opened() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.opens
	w.opens = nil
	return out
}

func (w *writer) run(ctx context.Context, e *engine.Engine, mine *engine.Region) {
	for ctx.Err() == nil {
		began := time.Now()
		p, err := e.Open(ctx, w.name)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		to, err := p.Region(ctx, "kv")
		if err == nil {
			w.mu.Lock()
			w.opens = append(w.opens, time.Since(began))
			w.mu.Unlock()
			w.epoch.Store(p.Epoch())
		}
		for n := 0; err == nil && n < 100; n++ { // then it is looked up again
			if err = p.Write(ctx, mine.All(), to.At(0)); err == nil {
				w.moved.Add(1)
			}
		}
		if err != nil && ctx.Err() == nil {
			w.failed.Add(1)
		}
		_ = p.Close()
	}
}

func TestInsideNamespaces(t *testing.T) {
	if os.Getenv(insideVariable) == "" {
		t.Skip("TestNamespaces runs it in a network of its own")
	}
	const engines = 8
	sh(t, "mount -t tmpfs tmpfs /run; ip link set lo up; ip link add br0 type bridge; ip addr add 10.77.0.254/24 dev br0; ip link set br0 up")
	for i := 1; i <= engines+1; i++ {
		sh(t, "ip netns add n%[1]d; ip link add v%[1]d type veth peer name eth0 netns n%[1]d; ip link set v%[1]d master br0 up; ip -n n%[1]d link set lo up; ip -n n%[1]d addr add 10.77.0.%[1]d/24 dev eth0; ip -n n%[1]d link set eth0 up", i)
	}
	c := etcdtest.Start(t, etcdtest.Options{Listen: "10.77.0.254"})
	token := filepath.Join(t.TempDir(), "token")
	const secret = "a secret of the lab"
	if err := os.WriteFile(token, []byte("lab "+strings.ReplaceAll(secret, " ", "-")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	epochs := map[string]string{}
	for i := 1; i <= engines; i++ {
		name := fmt.Sprintf("e%d", i)
		epochs[name] = startAt(t, c, i, name, token)
	}
	observer := open(t, c)
	for name, epoch := range epochs {
		until(t, name+" is registered", there(t, observer, name, epoch))
	}
	credentials, err := trust.Files{Token: token}.Read()
	if err != nil {
		t.Fatal(err)
	}
	client, err := engine.New(t.Context(), engine.Options{Name: "client", Listen: []string{"10.77.0.254:0"}, Security: engine.Security{Credentials: func() *trust.Credentials { return credentials }}, Registry: observer, Transports: []engine.TransportFactory{engine.TCP()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	mine, err := client.Alloc(64<<10, engine.RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	writers := map[string]*writer{}
	for name := range epochs {
		w := &writer{name: name}
		writers[name] = w
		running.Go(func() { w.run(ctx, client, mine) })
	}
	moving := func() bool {
		for _, w := range writers {
			if w.moved.Load() < 300 {
				return false
			}
		}
		return true
	}
	until(t, "all eight are written to by name", moving)

	// Host 3 vanishes, and host 9 starts its engine.
	sh(t, "ip link set v3 down")
	started := time.Now()
	epochs["e3"] = startAt(t, c, engines+1, "e3", token)
	ready := time.Now()
	took := until(t, "followed", func() bool { return fmt.Sprint(writers["e3"].epoch.Load()) == epochs["e3"] })
	t.Logf("e3 is started on another host in %v; the writer has it %v later", ready.Sub(started), took)
	before := writers["e3"].moved.Load()
	until(t, "written to there", func() bool { return writers["e3"].moved.Load() > before })

	// etcd is away.
	away := 4 * time.Second // longer than the TTL
	if longtest.On() {
		away = time.Minute
	}
	var opens, without []time.Duration // with etcd, and while it is away
	failed := map[string]int64{}
	for name, w := range writers {
		opens = append(opens, w.opened()...)
		failed[name] = w.failed.Load()
	}
	c.Members[0].Kill()
	began := time.Now()
	var sum int64
	for name, w := range writers {
		before := w.moved.Load()
		until(t, name+" moves on without etcd", func() bool { return w.moved.Load() > before })
	}
	time.Sleep(max(0, away-time.Since(began)))
	for _, w := range writers {
		without = append(without, w.opened()...)
	}
	c.Members[0].Run(t)
	c.Ready(t)
	back := time.Now()
	for name, epoch := range epochs {
		until(t, name+" is registered again", there(t, observer, name, epoch))
	}
	t.Logf("etcd was away for %v; all records are there %v after it answers", away, time.Since(back))
	cancel()
	running.Wait()
	for name, w := range writers {
		sum += w.moved.Load()
		if n := w.failed.Load() - failed[name]; n != 0 {
			t.Errorf("%s: %d writes noticed that etcd was away", name, n)
		}
		if name != "e3" && w.failed.Load() != 0 {
			t.Errorf("%s: %d failures", name, w.failed.Load())
		}
	}
	t.Logf("%d writes of 64 KiB; opens by name under load: %s; while etcd is away: %s", sum, spread(opens), spread(without))
}

func spread(list []time.Duration) string {
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	return fmt.Sprintf("%d, p50 %v, p99 %v, max %v", len(list), list[len(list)/2], list[len(list)*99/100], list[len(list)-1])
}
