package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/etcd"
	"github.com/topoctl/topoctl/engine/registry/etcd/internal/etcdtest"
	"github.com/topoctl/topoctl/internal/base/childtest"
	"github.com/topoctl/topoctl/internal/base/engine/registryproc"
	"github.com/topoctl/topoctl/internal/base/engine/registrytest"
	"github.com/topoctl/topoctl/internal/base/longtest"
)

// engineVariable makes this program an engine: NAME URL PROGRAM, or NAME URL - for etcd's client in the engine's
// own process.
const engineVariable = "TOPOCTL_TEST_ENGINE"

func TestMain(m *testing.M) {
	if what := os.Getenv(engineVariable); what != "" {
		if err := serve(strings.Fields(what)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

const regionBytes = 1 << 20

func connect(ctx context.Context, url, program string) (registry.Registry, error) {
	if program != "-" {
		return registryproc.Open(ctx, registryproc.Options{URL: url, Program: program})
	}
	o, err := etcd.ParseURL(url, func(string) string { return "" })
	if err != nil {
		return nil, err
	}
	return etcd.Open(ctx, o)
}

// serve is an engine with a region until its standard input ends.
func serve(what []string) error {
	ctx := context.Background()
	names, err := connect(ctx, what[1], what[2])
	if err != nil {
		return err
	}
	e, err := engine.New(ctx, engine.Options{Name: what[0], Registry: names})
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

// built is the program, built once.
var built struct {
	sync.Once
	dir, path string
	err       error
}

func program(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "registry"); built.err != nil { //nolint:usetesting // it outlives the test that builds it
			return
		}
		built.path = filepath.Join(built.dir, "topoctl-registry-etcd")
		var out []byte
		if out, built.err = exec.Command("go", "build", "-o", built.path, "./cmd/topoctl-registry-etcd").CombinedOutput(); built.err != nil {
			built.err = fmt.Errorf("%w: %s", built.err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func url(c *etcdtest.Cluster) string {
	return "etcd://" + strings.Join(c.Endpoints(), ",") + "/test?ttl=5s"
}

func startEngine(t *testing.T, c *etcdtest.Cluster, name, program string) (p *childtest.Process, epoch string) {
	t.Helper()
	p = childtest.Start(t, engineVariable+"="+name+" "+url(c)+" "+program)
	return p, p.Line(t)
}

func open(t *testing.T, c *etcdtest.Cluster) registry.Registry {
	t.Helper()
	r, err := connect(t.Context(), url(c), "-")
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

// The suite of registries, over the program.
func TestSuiteOverProgram(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	cl := c.Client(t)
	path := program(t)
	prefixes := map[string]string{}
	registrytest.Run(t, registrytest.Suite{
		Open: func(t *testing.T) registry.Registry {
			if prefixes[t.Name()] == "" {
				prefixes[t.Name()] = fmt.Sprintf("/suite/%d", len(prefixes))
			}
			r, err := registryproc.Open(t.Context(), registryproc.Options{URL: "etcd://" + c.Members[0].Address + prefixes[t.Name()] + "?ttl=5s", Program: path})
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		Name: func(i int) string { return fmt.Sprintf("engine %d", i) },
		Lose: func(t *testing.T, _ registry.Registry) { // that of the record number 0
			got, err := cl.Get(t.Context(), prefixes[t.Name()]+"/v1/engines/engine%200")
			if err != nil || len(got.Kvs) != 1 {
				t.Fatalf("%d records, %v", len(got.Kvs), err)
			}
			if _, err := cl.Revoke(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// What becomes of the record of an engine that is killed, stands still, loses its lease, or whose program is killed,
// with etcd's client in its own process and in the program's.
func TestEngineFaults(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	cl, names := c.Client(t), open(t, c)
	ttl := 5 * time.Second
	for how, path := range map[string]string{"program": program(t), "own process": "-"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := "e" + strings.ReplaceAll(how, " ", "")
			p, epoch := startEngine(t, c, name, path)
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

			stands := ttl + 3*time.Second
			if longtest.On() {
				stands = 20 * time.Second
			}
			began := time.Now()
			if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Logf("it stands still: its record is gone after %v, TTL %v", until(t, "gone", gone(t, names, name)), ttl)
			time.Sleep(max(0, stands-time.Since(began)))
			if err := p.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			t.Logf("after %v it runs again: its record is back after %v", time.Since(began), until(t, "published again", there(t, names, name, epoch)))

			p.Kill() // the program sees it at once
			t.Logf("it is killed: its record is gone after %v, TTL %v", until(t, "gone", gone(t, names, name)), ttl)
			_, epoch = startEngine(t, c, name, path)
			until(t, "published", there(t, names, name, epoch))
		})
	}
}

// Two engines move bytes while etcd is away: no batch notices, a peer that is known is opened, and what is
// started meanwhile is found when etcd is back, without a hand.
func TestEtcdIsAway(t *testing.T) {
	t.Parallel()
	away := 8 * time.Second // longer than the TTL
	if longtest.On() {
		away = time.Minute
	}
	c := etcdtest.Start(t, etcdtest.Options{})
	path := program(t)
	_, epoch := startEngine(t, c, "server", path)
	names, err := connect(t.Context(), url(c), path)
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
	_, late := startEngine(t, c, "late", path) // it starts without etcd
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
	path, names := program(t), open(t, c)
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
	for i := range 3 {
		old, _ := startEngine(t, c, "moves", path)
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
		if err := old.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		fresh, epoch := startEngine(t, c, "moves", path)
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

// The program says what it is for, and refuses what it does not know.
func TestProgram(t *testing.T) {
	t.Parallel()
	path := program(t)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{{[]string{"--help"}, 0, "topoctl runs this program by itself"}, {[]string{"--endpoints=x"}, 2, "It has no flags"}, {[]string{"version"}, 0, "topoctl-registry-etcd "}} {
		cmd := exec.Command(path, tt.args...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != tt.code || !bytes.Contains(out, []byte(tt.want)) {
			t.Errorf("%q: code %d: %s", tt.args, cmd.ProcessState.ExitCode(), out)
		}
	}
	for _, u := range []string{"etcd://user:secret@h1", "etcd://h1?password=secret", "etcd://h1:0", "etcd://", "etcd://h1/a b", "etcd://h1?ttl=1s", "etcd://h1?cacert=/nonexistent", "redis://h1"} {
		r, err := registryproc.Open(t.Context(), registryproc.Options{URL: u, Program: path})
		if err == nil {
			t.Errorf("%s: opened", u)
			_ = r.Close()
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: its secret is in the error: %v", u, err)
		}
	}
}
