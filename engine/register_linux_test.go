package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/testkit/childtest"
)

// register puts a process's engine into a registry as it would itself, and gives its epoch.
func register(t *testing.T, r registry.Registry, address string) uint64 {
	t.Helper()
	p, err := newEngine(t, Options{Name: "asks"}).Open(testContext(t), address)
	must(t, err)
	defer p.Close()
	must(t, errOf(r.Publish(t.Context(), registry.Record{Name: "peer", Epoch: p.Epoch(), Addresses: []netip.AddrPort{netip.MustParseAddrPort(address)}})))
	return p.Epoch()
}

// An engine is started again elsewhere, and the host of the former one is silent: the peer is over as soon as
// the registry has the new one, long before GiveUp. While the former one answers it is not over,
// whatever the registry says.
func TestFollowsRegistry(t *testing.T) {
	checkLeaks(t)
	names, log := registrytest.NewMemory(0, nil), &logged{}
	first, second := childtest.Address(t), childtest.Address(t)
	old := startPeer(t, first)
	was := register(t, names.Client(), first)
	client := newEngine(t, Options{Name: "client", Registry: names.Client(), GiveUp: time.Hour, Logger: textLogger(log)})
	mine, err := client.Alloc(1<<20, RegionOptions{})
	must(t, err)
	p, kv, err := openKV(testContext(t), client, "peer")
	if err != nil || p.Epoch() != was {
		t.Fatalf("epoch %d, want %d: %v", p.Epoch(), was, err)
	}
	startPeer(t, second)
	now := register(t, names.Client(), second)
	eventually(t, "the registry's word comes", func() bool { return strings.Contains(log.String(), "was started again") })
	if err := p.Write(testContext(t), mine.All(), kv.At(0)); err != nil || p.Err() != nil {
		t.Errorf("the former one still answers: %v, %v", err, p.Err())
	}
	childtest.Stop(t, old.Process)
	began := time.Now()
	// The registry says it again, as it does for a record that changes.
	must(t, errOf(names.Client().Publish(t.Context(), registry.Record{Name: "peer", Epoch: now, Fingerprint: "again", Addresses: []netip.AddrPort{netip.MustParseAddrPort(second)}})))
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
		t.Fatal("the peer stays")
	}
	if err := p.Err(); !errors.Is(err, ErrPeerRestarted) {
		t.Errorf("%v", err)
	}
	p, kv, err = openKV(testContext(t), client, "peer")
	if err != nil || p.Epoch() != now {
		t.Fatalf("%v: want epoch %d", err, now)
	}
	t.Logf("followed in %v", time.Since(began))
	ok(t, p.Write(testContext(t), mine.All(), kv.At(0)))
}

// The host of an engine is silent while somebody opens it by name: he does not wait for it once the
// registry has it elsewhere.
func TestMovesWhileOpened(t *testing.T) {
	checkLeaks(t)
	names := registrytest.NewMemory(0, nil)
	first, second := childtest.Address(t), childtest.Address(t)
	old := startPeer(t, first)
	register(t, names.Client(), first)
	childtest.Stop(t, old.Process)
	client := newEngine(t, Options{Name: "client", Registry: names.Client(), DefaultTimeout: time.Hour, GiveUp: time.Hour})
	type opened struct {
		p   *Peer
		err error
	}
	done := make(chan opened, 1)
	go func() {
		p, err := client.Open(context.Background(), "peer")
		done <- opened{p, err}
	}()
	startPeer(t, second)
	now := register(t, names.Client(), second)
	began := time.Now()
	select {
	case o := <-done:
		if o.err != nil || o.p.Epoch() != now {
			t.Fatalf("%v", o.err)
		}
		t.Logf("opened %v after it was registered elsewhere", time.Since(began))
	case <-time.After(time.Minute):
		t.Fatal("it waits for the silent host")
	}
}

// At an address of a record there is another engine, because a port was used again or somebody
// registered what is not his: it is not opened.
func TestOtherEngine(t *testing.T) {
	names := registrytest.NewMemory(0, nil).Client()
	server := newEngine(t, Options{Name: "node3", Registry: names})
	must(t, errOf(names.Publish(t.Context(), registry.Record{Name: "node2", Epoch: 7, Addresses: server.Addrs()})))
	client := newEngine(t, Options{Name: "node1", Registry: names})
	if p, err := client.Open(testContext(t), "node2"); !errors.Is(err, ErrOtherEngine) || !strings.Contains(err.Error(), `calls itself "node3"`) {
		t.Errorf("%v, %v", p, err)
	}
	ok(t, errOf(client.Open(testContext(t), "node3")))
}

// absent is a registry whose server is away until it is back.
type absent struct {
	registry.Registry
	back  atomic.Bool
	tries atomic.Int64
}

func (a *absent) Publish(ctx context.Context, r registry.Record) (registry.Lease, error) {
	a.tries.Add(1)
	if !a.back.Load() {
		return nil, fmt.Errorf("etcd: %w", registry.ErrUnavailable)
	}
	return a.Registry.Publish(ctx, r)
}

// An engine starts without its registry, and is published when that is there. What it serves, and a change of
// its addresses, are in the record.
func TestStartsWithoutRegistry(t *testing.T) {
	checkLeaks(t)
	names := registrytest.NewMemory(0, nil).Client()
	a := &absent{Registry: names}
	e := newEngine(t, Options{Name: "node1", Registry: a, Serves: []string{"region:kv"}})
	eventually(t, "it tries again", func() bool { return a.tries.Load() > 1 })
	a.back.Store(true)
	var r registry.Record
	eventually(t, "it is published", func() bool { r, _ = names.Lookup(t.Context(), "node1"); return r.Epoch == e.Epoch() })
	if len(r.Serves) != 1 || r.Serves[0] != "region:kv" || len(r.Addresses) == 0 {
		t.Errorf("%+v", r)
	}
	ok(t, e.Close())
	if r, err := names.Lookup(t.Context(), "node1"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("closed, and still there: %+v, %v", r, err)
	}
}

// An engine whose name another one has that was started later serves without it, says so, and has it when that
// one is gone. A record of a time that has not come keeps nobody from his name.
func TestNameIsTaken(t *testing.T) {
	checkLeaks(t)
	memory, log := registrytest.NewMemory(0, nil), &logged{}
	names := memory.Client()
	at := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7411")}
	later := registry.Record{Name: "node1", Epoch: registry.NewEpoch(time.Now().Add(time.Minute)), Addresses: at}
	taken, err := names.Publish(t.Context(), later)
	must(t, err)
	e := newEngine(t, Options{Name: "node1", Registry: memory.Client(), Logger: textLogger(log)})
	if s := e.Stats().Registry; s == nil || s.Published || !strings.Contains(s.Error, "a later epoch is published") {
		t.Errorf("%+v", s)
	}
	if !strings.Contains(log.String(), "has this engine's name in the registry") {
		t.Errorf("the log does not say so: %s", log)
	}
	if p, err := newEngine(t, Options{Name: "client"}).Open(testContext(t), e.Addrs()[0].String()); err != nil || p.EngineName() != "node1" {
		t.Errorf("it does not serve: %v", err)
	}
	must(t, taken.Close())
	has := func() bool {
		r, err := names.Lookup(t.Context(), "node1")
		s := e.Stats().Registry
		return err == nil && r.Epoch == e.Epoch() && s != nil && s.Published && s.Error == ""
	}
	eventually(t, "it has its name", has)

	later.Epoch = math.MaxUint64
	if _, err := names.Publish(t.Context(), later); !errors.Is(err, registry.ErrOldEpoch) {
		t.Errorf("an epoch of a time that has not come: %v", err)
	}
	ok(t, e.Close())
	ok(t, errOf(names.Publish(t.Context(), later)))
	e = newEngine(t, Options{Name: "node1", Registry: memory.Client()})
	if !has() {
		t.Errorf("%+v", e.Stats().Registry)
	}
	if s := newEngine(t, Options{}).Stats().Registry; s != nil {
		t.Errorf("without a registry: %+v", s)
	}
}

// Where peers have certificates, the one that a name of the registry leads to must be for that name: who
// registers under somebody else's name, and calls himself so, is not opened.
func TestRegisteredNameIsInCertificate(t *testing.T) {
	i := issuer{t, t.TempDir()}
	ca := i.ca("CA")
	c := i.credentials("a-token-of-16-bytes", ca, ca.Certificate) // for node1
	c.Tokens = nil
	with := func() *trust.Credentials { return c }
	names := registrytest.NewMemory(0, nil).Client()
	newEngine(t, Options{Name: "node1", Registry: names, Security: Security{Credentials: with}})
	newEngine(t, Options{Name: "node2", Registry: names, Security: Security{Credentials: with}}) // it has node1's certificate
	client := newEngine(t, Options{Name: "client", Registry: names, Security: Security{Credentials: with}})
	if _, err := client.Open(testContext(t), "node1"); err != nil {
		t.Errorf("its own name: %v", err)
	}
	if p, err := client.Open(testContext(t), "node2"); !errors.Is(err, ErrCertificate) {
		t.Errorf("somebody else's: %v, %v", p, err)
	}
}
