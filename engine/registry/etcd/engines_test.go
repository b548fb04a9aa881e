package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/etcd"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/childtest"
	"github.com/topoctl/topoctl/testkit/etcdtest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// engineVariable makes this program an engine: NAME URL, or NAME URL LISTEN TOKEN-FILE NAMESPACE.
const engineVariable = "TOPOCTL_TEST_ENGINE"

func TestMain(m *testing.M) {
	if what := os.Getenv(engineVariable); what != "" {
		if err := serve(strings.Fields(what)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	longtest.Overlap()
	os.Exit(m.Run())
}

const regionBytes = 1 << 20

func connect(ctx context.Context, url string) (registry.Registry, error) {
	o, err := etcd.ParseURL(url, func(string) string { return "" })
	if err != nil {
		return nil, err
	}
	return etcd.Open(ctx, o)
}

// serve is an engine with a region until its standard input ends.
func serve(what []string) error {
	ctx, o := context.Background(), engine.Options{Name: what[0]}
	if len(what) > 4 { // there it goes on without
		self, err := os.Executable()
		if err != nil {
			return err
		}
		ip, err := exec.LookPath("ip")
		if err != nil {
			return err
		}
		if err := os.Setenv(engineVariable, strings.Join(what[:4], " ")); err != nil {
			return err
		}
		return syscall.Exec(ip, []string{"ip", "netns", "exec", what[4], self}, os.Environ())
	}
	if len(what) > 2 {
		credentials, err := trust.Files{Token: what[3]}.Read()
		if err != nil {
			return err
		}
		o.Listen, o.Security.Credentials, o.Transports = what[2:3], func() *trust.Credentials { return credentials }, []engine.TransportFactory{engine.TCP()}
	}
	names, err := connect(ctx, what[1])
	if err != nil {
		return err
	}
	o.Registry = names
	e, err := engine.New(ctx, o)
	if err != nil {
		return err
	}
	if _, err := e.Alloc(regionBytes, engine.RegionOptions{Name: "kv", Grant: memory.PeerRead | memory.PeerWrite}); err != nil {
		return err
	}
	fmt.Println(e.Epoch())
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
	return errors.Join(e.Close(), names.Close())
}

func url(c *etcdtest.Cluster) string { return c.URL("/test?ttl=3s") }

func startEngine(t *testing.T, c *etcdtest.Cluster, name string, where ...string) (p *childtest.Process, epoch string) {
	t.Helper()
	p = childtest.Start(t, engineVariable+"="+strings.Join(append([]string{name, url(c)}, where...), " "))
	return p, p.Line(t)
}

func open(t *testing.T, c *etcdtest.Cluster) registry.Registry {
	t.Helper()
	r, err := connect(t.Context(), url(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func until(t *testing.T, what string, is func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > etcdtest.Patience {
			t.Fatalf("not in %v: %s", etcdtest.Patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

func there(t *testing.T, r registry.Registry, name, epoch string) func() bool {
	return func() bool {
		rec, err := r.Lookup(t.Context(), name)
		return err == nil && fmt.Sprint(rec.Epoch) == epoch && rec.Stale == 0
	}
}

func gone(t *testing.T, r registry.Registry, name string) func() bool {
	return func() bool { _, err := r.Lookup(t.Context(), name); return errors.Is(err, registry.ErrNotFound) }
}

// What becomes of the record of an engine that loses its lease, stands still, or is killed.
func TestEngineFaults(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	cl, names := c.Client(t), open(t, c)
	ttl := 3 * time.Second // as in url
	const name = "e"
	p, epoch := startEngine(t, c, name)
	until(t, "published", there(t, names, name, epoch))

	got, err := cl.Get(t.Context(), "/test/v1/engines/"+name)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%v", err)
	}
	if _, err := cl.Revoke(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	t.Logf("its lease is revoked: the record is back after %v", until(t, "published again", there(t, names, name, epoch)))
	if _, err := cl.Delete(t.Context(), "/test/v1/engines/"+name); err != nil {
		t.Fatal(err)
	}
	t.Logf("its record is deleted: it is back after %v", until(t, "published again", there(t, names, name, epoch)))

	stands := ttl + time.Second
	if longtest.On() {
		stands = 20 * time.Second
	}
	began := time.Now()
	childtest.Stop(t, p.Process)
	t.Logf("it stands still: its record is gone after %v, TTL %v", until(t, "gone", gone(t, names, name)), ttl)
	time.Sleep(max(0, stands-time.Since(began)))
	if err := p.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	t.Logf("after %v it runs again: its record is back after %v", time.Since(began), until(t, "published again", there(t, names, name, epoch)))

	p.Kill()
	t.Logf("it is killed: its record is gone after %v, TTL %v", until(t, "gone", gone(t, names, name)), ttl)
	_, epoch = startEngine(t, c, name)
	until(t, "published", there(t, names, name, epoch))
}

// Two engines move bytes while etcd is away: no batch notices, a peer that is known is opened, and what is
// started meanwhile is found when etcd is back, without a hand.
func TestEtcdIsAway(t *testing.T) {
	t.Parallel()
	away := 4 * time.Second // longer than the TTL
	if longtest.On() {
		away = time.Minute
	}
	c := etcdtest.Start(t, etcdtest.Options{})
	_, epoch := startEngine(t, c, "server")
	names, err := connect(t.Context(), url(c))
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	client, err := engine.New(t.Context(), engine.Options{Name: "client", Registry: names})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	mine, err := client.Alloc(regionBytes, engine.RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "published", there(t, open(t, c), "server", epoch))
	peer, err := client.Open(t.Context(), "server")
	if err != nil {
		t.Fatal(err)
	}
	kv, err := peer.Region(t.Context(), "kv")
	if err != nil {
		t.Fatal(err)
	}
	var moved atomic.Int64
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := peer.Write(context.Background(), mine.All(), kv.At(0)); err != nil {
				stopped <- err
				return
			}
			moved.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	until(t, "moving", func() bool { return moved.Load() > 10 })
	c.Members[0].Kill()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), etcdtest.Patience)
	again, err := client.Open(ctx, "server")
	cancel()
	if err != nil {
		t.Errorf("a peer that is known: %v", err)
	} else {
		t.Logf("a known peer is opened without etcd in %v", time.Since(began))
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
	_, late := startEngine(t, c, "late") // it starts without etcd
	for time.Since(began) < away {
		before := moved.Load()
		time.Sleep(time.Second)
		if moved.Load() == before {
			until(t, "it moves on", func() bool { return moved.Load() > before })
		}
	}
	c.Members[0].Run(t)
	c.Ready(t)
	back := time.Now()
	observer := open(t, c)
	until(t, "all are there", func() bool {
		return there(t, observer, "server", epoch)() && there(t, observer, "client", fmt.Sprint(client.Epoch()))() && there(t, observer, "late", late)()
	})
	close(stop)
	if err := <-stopped; err != nil {
		t.Errorf("a transfer noticed: %v", err)
	}
	if err := peer.Err(); err != nil {
		t.Errorf("the peer is gone: %v", err)
	}
	t.Logf("etcd was away for %v; %d writes of 1 MiB, none failed; all three records are there %v after it is back", away, moved.Load(), time.Since(back))
}

// An engine whose host falls silent is started again at another port, several times: who opened it by name follows.
func TestFollow(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	names := open(t, c)
	client, err := engine.New(t.Context(), engine.Options{Name: "client", Registry: registry.ReadOnly(names)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	mine, err := client.Alloc(regionBytes, engine.RegionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var slowest time.Duration
	times := 2
	if longtest.On() {
		times = 3
	}
	for i := range times {
		old, _ := startEngine(t, c, "moves")
		var peer *engine.Peer
		until(t, "opened", func() bool { peer, err = client.Open(t.Context(), "moves"); return err == nil })
		kv, err := peer.Region(t.Context(), "kv")
		if err != nil {
			t.Fatal(err)
		}
		if err := peer.Write(t.Context(), mine.All(), kv.At(0)); err != nil {
			t.Fatal(err)
		}
		// Its host is silent, and another one starts it again.
		childtest.Stop(t, old.Process)
		began := time.Now()
		fresh, epoch := startEngine(t, c, "moves")
		started := time.Since(began)
		<-peer.Done()
		if !errors.Is(peer.Err(), engine.ErrPeerRestarted) && !errors.Is(peer.Err(), engine.ErrPeerLost) {
			t.Errorf("%v", peer.Err())
		}
		until(t, "followed", func() bool {
			p, err := client.Open(t.Context(), "moves")
			if err != nil || fmt.Sprint(p.Epoch()) != epoch {
				return false
			}
			kv, err := p.Region(t.Context(), "kv")
			return err == nil && p.Write(t.Context(), mine.All(), kv.At(0)) == nil
		})
		took := time.Since(began) - started
		slowest = max(slowest, took)
		t.Logf("%d: started again in %v, followed %v later (%v)", i, started, took, peer.Err())
		old.Kill()
		fresh.Kill()
		until(t, "gone", gone(t, names, "moves"))
	}
	t.Logf("slowest: %v", slowest)
}
