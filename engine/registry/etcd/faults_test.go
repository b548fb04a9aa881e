package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/testkit/etcdtest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

func record(name string, epoch uint64) registry.Record {
	return registry.Record{Name: name, Epoch: epoch, Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7411")}}
}

func publish(t *testing.T, r registry.Registry, rec registry.Record) registry.Lease {
	t.Helper()
	l, err := r.Publish(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return l
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

func closeAt(t *testing.T, r registry.Registry) {
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// A registry that is closed leaves no goroutine, whether etcd answers or not. No test beside it, because they are counted.
func TestNothingIsLeft(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.Options{})
	before := runtime.NumGoroutine()
	for _, there := range []bool{true, false} {
		limit := 20 * time.Second
		if !there {
			limit = 300 * time.Millisecond
			c.Members[0].Kill()
		}
		r := open(t, c, func(o *Options) { o.RequestTimeout = limit })
		var asking sync.WaitGroup
		ended := make(chan error, 2)
		asking.Go(func() { ended <- r.WatchAll(t.Context(), func(registry.Listing) {}) })
		_, err := r.Publish(t.Context(), record("a", 1))
		if (err == nil) != there {
			t.Errorf("etcd is there: %v: %v", there, err)
		}
		asking.Go(func() { ended <- r.Watch(t.Context(), "a", func(registry.Record, bool) {}) })
		time.Sleep(50 * time.Millisecond)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		asking.Wait()
		for range 2 {
			if err := <-ended; !errors.Is(err, registry.ErrClosed) && there {
				t.Error(err)
			}
		}
		until(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// etcd is killed with SIGKILL and started again: what is known is found meanwhile, and said to be old;
// what was published stays, watches go on, and nothing is lost.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	r := open(t, c, func(o *Options) { o.TTL = time.Minute; o.RequestTimeout = time.Second })
	other := open(t, c, func(o *Options) { o.TTL = time.Minute })
	closeAt(t, r)
	closeAt(t, other)
	lease := publish(t, r, record("a", 1))
	publish(t, other, record("b", 1))
	if rec, err := r.Lookup(t.Context(), "b"); err != nil || rec.Stale != 0 {
		t.Fatalf("%+v, %v", rec, err)
	}
	var seen atomic.Uint64
	watching := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		watching <- r.Watch(ctx, "b", func(rec registry.Record, _ bool) { seen.Store(rec.Epoch) })
	}()
	until(t, "watched", func() bool { return seen.Load() == 1 })
	c.Members[0].Kill()
	for i := range 3 {
		began := time.Now()
		rec, err := r.Lookup(t.Context(), "b")
		if err != nil || rec.Epoch != 1 || rec.Stale <= 0 {
			t.Fatalf("while etcd is away: %+v, %v", rec, err)
		}
		t.Logf("look-up %d without etcd: %v, %v old", i, time.Since(began), rec.Stale)
	}
	// Our own limit is not the caller's deadline: it has none here.
	if _, err := r.Lookup(t.Context(), "never seen"); !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.Members[0].Address) {
		t.Errorf("of one that is not known: %v", err)
	}
	if _, err := r.Publish(t.Context(), record("c", 1)); !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("publish: %v", err)
	}
	c.Members[0].Run(t)
	c.Ready(t)
	publish(t, other, record("b", 2))
	t.Logf("the watch goes on after %v", until(t, "the watch goes on", func() bool { return seen.Load() == 2 }))
	if rec, err := r.Lookup(t.Context(), "b"); err != nil || rec.Epoch != 2 || rec.Stale != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
	if rec, err := other.Lookup(t.Context(), "a"); err != nil || rec.Epoch != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
	select {
	case <-lease.Lost():
		t.Error("lost")
	default:
	}
	cancel()
	if err := <-watching; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// etcd stands still for longer than the TTL: the lease is lost when it runs again, or kept where it was
// renewed first; published again, the record is there.
func TestServerStands(t *testing.T) {
	t.Parallel()
	stands := shortTTL + time.Second
	if longtest.On() {
		stands = 20 * time.Second
	}
	c := etcdtest.Start(t, etcdtest.Options{})
	r := open(t, c, func(o *Options) { o.TTL = shortTTL })
	closeAt(t, r)
	lease := publish(t, r, record("a", 1))
	if _, err := r.Lookup(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	c.Members[0].Signal(t, syscall.SIGSTOP)
	began := time.Now()
	for time.Since(began) < stands {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		rec, err := r.Lookup(ctx, "a")
		cancel()
		if err != nil || rec.Stale == 0 {
			t.Fatalf("after %v: %+v, %v", time.Since(began), rec, err)
		}
		select {
		case <-lease.Lost():
			t.Fatal("no one has said that it is lost")
		default:
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.Members[0].Signal(t, syscall.SIGCONT)
	began = time.Now()
	lost := false
	until(t, "it is known what became of it", func() bool {
		select {
		case <-lease.Lost():
			lost = true
			return true
		default:
		}
		rec, err := r.Lookup(t.Context(), "a")
		return err == nil && rec.Stale == 0 && time.Since(began) > time.Second
	})
	t.Logf("stood for %v, TTL %v; lost: %v, known after %v", stands, shortTTL, lost, time.Since(began))
	publish(t, r, record("a", 1))
	if rec, err := r.Lookup(t.Context(), "a"); err != nil || rec.Stale != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// Of three members one stands still, whichever it is: nothing is lost, and every call is answered. Registries close
// while one that does not lead stands: to choose a leader may take longer than Close tries.
func TestMemberStands(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	r := open(t, c, func(o *Options) { o.RequestTimeout = time.Second })
	closeAt(t, r)
	lease := publish(t, r, record("a", 1))
	var others []*etcd // that are closed while the first member stands
	for i := range 8 {
		other := open(t, c)
		publish(t, other, record(fmt.Sprintf("o%d", i), 1))
		others = append(others, other)
	}
	for i, m := range leaderLast(t, c) {
		m.Signal(t, syscall.SIGSTOP)
		var closing sync.WaitGroup
		for _, other := range others {
			closing.Go(func() {
				if err := other.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		closing.Wait()
		others = nil
		began, slowest, failed := time.Now(), time.Duration(0), 0
		for time.Since(began) < 6*time.Second { // longer than the TTL
			at := time.Now()
			if rec, err := r.Lookup(t.Context(), "a"); err != nil || rec.Stale != 0 {
				failed++ // a leader may have to be found first
			}
			slowest = max(slowest, time.Since(at))
			time.Sleep(50 * time.Millisecond)
		}
		until(t, "answered", func() bool { rec, err := r.Lookup(t.Context(), "a"); return err == nil && rec.Stale == 0 })
		t.Logf("member %d stands: slowest look-up %v, %d not current", i, slowest, failed)
		m.Signal(t, syscall.SIGCONT)
		c.Ready(t)
		select {
		case <-lease.Lost():
			t.Fatalf("lost while member %d stood", i)
		default:
		}
		if !longtest.On() {
			break
		}
	}
}

// leaderLast has the members of a cluster, the one that leads behind the others.
func leaderLast(t *testing.T, c *etcdtest.Cluster) []*etcdtest.Member {
	t.Helper()
	cl := c.Client(t)
	var followers, leader []*etcdtest.Member
	for _, m := range c.Members {
		s, err := cl.Status(t.Context(), m.Address)
		switch {
		case err != nil:
			t.Fatal(err)
		case s.Leader == s.Header.MemberId:
			leader = append(leader, m)
		default:
			followers = append(followers, m)
		}
	}
	if len(leader) != 1 {
		t.Fatalf("%d members lead", len(leader))
	}
	return append(followers, leader...)
}

// What a watch has missed is compacted: it looks at what is there, and goes on.
func TestCompaction(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	r := open(t, c)
	closeAt(t, r)
	for e := range uint64(50) {
		publish(t, r, record("a", e+1))
	}
	cl := c.Client(t)
	got, err := cl.Get(t.Context(), r.keys.of("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Compact(t.Context(), got.Header.Revision); err != nil {
		t.Fatal(err)
	}
	var resets, seen atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- r.follow(ctx, r.keys.of("a"), 1, func(ctx context.Context) (int64, error) {
			resets.Add(1)
			now, err := r.getOne(ctx, r.keys.of("a"))
			if err != nil {
				return 0, err
			}
			return now.Header.Revision + 1, nil
		}, func(events []*clientv3.Event) error { seen.Add(int64(len(events))); return nil })
	}()
	until(t, "it looks again", func() bool { return resets.Load() > 0 })
	until(t, "it goes on", func() bool { publish(t, r, record("a", uint64(100+seen.Load()))); return seen.Load() > 0 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// 2,000 records of 40 registries: found, listed, watched and gone again.
func TestManyRecords(t *testing.T) {
	t.Parallel()
	const registries, each = 40, 50
	c := etcdtest.Start(t, etcdtest.Options{})
	watcher := open(t, c)
	closeAt(t, watcher)
	var there atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- watcher.WatchAll(ctx, func(l registry.Listing) { there.Store(int64(len(l.Records))) })
	}()
	began := time.Now()
	var all []*etcd
	var running sync.WaitGroup
	for i := range registries {
		r := open(t, c)
		all = append(all, r)
		running.Go(func() {
			for j := range each {
				if _, err := r.Publish(t.Context(), record(fmt.Sprintf("n%d/%d", i, j), 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	published := time.Since(began)
	seen := until(t, "all are seen", func() bool { return there.Load() == registries*each })
	began = time.Now()
	l, err := watcher.List(t.Context())
	listed := time.Since(began)
	if err != nil || len(l.Records) != registries*each || len(l.Bad) > 0 {
		t.Fatalf("%d records, %d bad, %v", len(l.Records), len(l.Bad), err)
	}
	began = time.Now()
	for _, r := range all {
		running.Go(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	until(t, "all are gone", func() bool { return there.Load() == 0 })
	t.Logf("2,000 records: published in %v, seen %v later, listed in %v, gone in %v", published, seen, listed, time.Since(began))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What is in etcd may be anybody's: a bad record costs itself only, is listed as bad, is not found, and an
// engine of that name takes its place.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	r, cl := open(t, c), c.Client(t)
	closeAt(t, r)
	good := publish(t, r, record("good", 1))
	value, err := encode(record("good", 99))
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"not-json": "{", "no-record": "{}", "list": "[]", "another-name": value, "%zz": "{}", "": "{}", "a/b": value,
		"deep": strings.Repeat("[", 100), "long": strings.Repeat("x", maxValue+1), "no-address": `{"name":"no-address","epoch":"3","addresses":[]}`,
		"wildcard": `{"name":"wildcard","epoch":"3","addresses":["0.0.0.0:1"]}`, "terminal": `{"name":"terminal","epoch":"3","addresses":["10.0.0.1:1"],"serves":["\u001b[2J"]}`,
		"many": `{"name":"many","epoch":"3","addresses":[` + strings.Repeat(`"10.0.0.1:1",`, 9000) + `"10.0.0.1:1"]}`,
	}
	if bad["no-lease"], err = encode(record("no-lease", math.MaxUint64)); err != nil {
		t.Fatal(err)
	}
	for name, value := range bad {
		if _, err := cl.Put(t.Context(), r.keys.prefix+name, value); err != nil {
			t.Fatal(err)
		}
	}
	l, err := r.List(t.Context())
	if err != nil || len(l.Records) != 1 || l.Records[0].Name != "good" || len(l.Bad) != len(bad) {
		t.Errorf("%d records, %d bad of %d, %v", len(l.Records), len(l.Bad), len(bad), err)
	}
	for _, b := range l.Bad {
		if b.Error == "" || len(b.Error) > 4096 {
			t.Errorf("%s: %d bytes of an error", b.Key, len(b.Error))
		}
	}
	for _, name := range []string{"not-json", "no-record", "another-name", "wildcard", "terminal", "many", "long", "no-lease"} {
		if rec, err := r.Lookup(t.Context(), name); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s: %+v, %v", name, rec, err)
		}
	}
	publish(t, r, record("not-json", 1))
	if _, err := r.Lookup(t.Context(), "not-json"); err != nil {
		t.Error(err)
	}
	// Our own record is overwritten, and taken away: that is a loss, and no more.
	ahead, err := encode(record("good", math.MaxUint64))
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"{", ahead} {
		if _, err := cl.Put(t.Context(), r.keys.of("good"), value); err != nil {
			t.Fatal(err)
		}
		until(t, "lost", func() bool {
			select {
			case <-good.Lost():
				return true
			default:
				return false
			}
		})
		good = publish(t, r, record("good", 1))
	}
	if _, err := cl.Delete(t.Context(), r.keys.of("good")); err != nil {
		t.Fatal(err)
	}
	until(t, "lost again", func() bool {
		select {
		case <-good.Lost():
			return true
		default:
			return false
		}
	})
	publish(t, r, record("good", 1))
}

// Users of etcd: a role has the key of a name, so nobody registers under another's; a wrong password and a
// member in the clear are refused.
func TestUsersAndRoles(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	cl := c.Client(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	k := newKeys(defaultPrefix)
	must(cl.RoleAdd(ctx, "reader"))
	must(cl.RoleGrantPermission(ctx, "reader", k.prefix, clientv3.GetPrefixRangeEnd(k.prefix), clientv3.PermissionType(clientv3.PermRead)))
	must(cl.UserAdd(ctx, "root", "root-password"))
	must(cl.UserGrantRole(ctx, "root", "root"))
	for _, name := range []string{"alice", "bob"} {
		must(cl.RoleAdd(ctx, name))
		must(cl.RoleGrantPermission(ctx, name, k.of(name), "", clientv3.PermissionType(clientv3.PermReadWrite)))
		must(cl.UserAdd(ctx, name, name+"-password"))
		must(cl.UserGrantRole(ctx, name, name))
		must(cl.UserGrantRole(ctx, name, "reader"))
	}
	must(cl.AuthEnable(ctx))
	as := func(user, password string) *etcd {
		r := open(t, c, func(o *Options) { o.Username, o.Password = user, password })
		closeAt(t, r)
		return r
	}
	alice, bob := as("alice", "alice-password"), as("bob", "bob-password")
	lease := publish(t, alice, record("alice", 1))
	if _, err := bob.Publish(ctx, record("alice", 2)); !errors.Is(err, registry.ErrDenied) {
		t.Errorf("bob registers as alice: %v", err)
	}
	if rec, err := bob.Lookup(ctx, "alice"); err != nil || rec.Epoch != 1 {
		t.Errorf("bob looks alice up: %+v, %v", rec, err)
	}
	if l, err := bob.List(ctx); err != nil || len(l.Records) != 1 {
		t.Errorf("bob lists: %+v, %v", l, err)
	}
	publish(t, bob, record("bob", 1))
	for _, r := range []*etcd{as("alice", "wrong"), as("", ""), as("nobody", "x")} {
		if _, err := r.Publish(ctx, record("alice", 3)); !errors.Is(err, registry.ErrDenied) {
			t.Errorf("%q with a wrong password: %v", r.o.Username, err)
		}
		if _, err := r.Lookup(ctx, "alice"); !errors.Is(err, registry.ErrDenied) {
			t.Errorf("%q looks up: %v", r.o.Username, err)
		}
	}
	// A role that is taken away while a record is published: it is said, and the engine goes on.
	select {
	case <-lease.Lost():
		t.Error("lost")
	default:
	}
}

// A member that no CA of ours signed, and a client without a certificate, are refused.
func TestTLS(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{TLS: true})
	for name, change := range map[string]func(*Options){
		"another CA":   func(o *Options) { o.TLS = etcdtest.NewAuthority(t).Client(t, "x") },
		"in the clear": func(o *Options) { o.TLS = nil },
	} {
		r := open(t, c, change, func(o *Options) { o.RequestTimeout = 500 * time.Millisecond })
		if _, err := r.Publish(t.Context(), record("a", 1)); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	cert, key := c.TLS.Issue(t, "root")
	o, err := ParseURL("etcd://"+c.Members[0].Address+"/secure?cacert="+c.TLS.File+"&cert="+cert+"&key="+key+"&ttl=5s", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	closeAt(t, r)
	publish(t, r, record("a", 1))
	if rec, err := r.Lookup(t.Context(), "a"); err != nil || rec.Epoch != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
}
