package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

const gbps = topo.GBPerSec / 8

// hcas are ports of RDMA devices, all of one rate.
func hcas(names ...string) []transport.LocalPort {
	var out []transport.LocalPort
	for _, name := range names {
		out = append(out, transport.LocalPort{ID: topo.PortID(name, 1), Name: name, BytesPerSec: 100 * gbps})
	}
	return out
}

// rdmaHost is a host with RDMA devices in different networks, and one NUMA node for
// each.
func rdmaHost(t testing.TB, name string, number int, devices ...string) *topo.Topology {
	t.Helper()
	text := fmt.Sprintf("machine: %s\ndescription: RDMA\nhost: {arch: x86_64, kernel: 6.8.0, vendor: QEMU, product: none}\n"+
		"cpu: {vendor: GenuineIntel, family: 6, model: 85, name: Intel Xeon, threads: 1}\nnuma:\n", name)
	for i := range devices {
		text += fmt.Sprintf("- {node: %d, package: %d, cpus: %d-%d, mem: 8GiB}\n", i, i, 4*i, 4*i+3)
	}
	text += "pci:\n"
	for i, device := range devices {
		text += fmt.Sprintf("- root: 0000:%02x\n  numa: %d\n  below:\n  - port: %02x:02.0\n    part: intel-port-gen4\n"+
			"    below: [{nic: %02x:00.0, part: connectx6-dx, layer: eth, rdma: %s, net: eth%d, ip: 10.2.%d.%d/24}]\n",
			0x10*(i+1), i, 0x10*(i+1), 0x10*(i+1)+1, device, i, i, number)
	}
	return fixturetest.Spec(t, text)
}

// portedPair is a client with a server, over a fake transport with ports and,
// where asked for, TCP.
func portedPair(t *testing.T, client, server Options, here, there fake.Options, more ...TransportFactory) (*pair, *network) {
	t.Helper()
	n := newNetwork()
	here.Name, there.Name = "rdma", "rdma"
	client.Transports = append([]TransportFactory{n.transport(here)}, more...)
	server.Transports = append([]TransportFactory{n.transport(there)}, more...)
	return newPair(t, 4<<20, client, server), n
}

func (n *network) ports(engine string) fake.Ported {
	return fake.Ported{Transport: n.of(engine, "rdma").Transport}
}

// groupText is what one transport offers, for comparisons.
func groupText(t *testing.T, p *pair, local, remote string) string {
	t.Helper()
	x, err := p.peer.Explain(pathsel.Location(local), pathsel.Location(remote))
	must(t, err)
	keepsSchema(t, x)
	g := &x.Routes[0].Groups[0]
	out := ""
	for _, l := range g.Lanes {
		rate := "?"
		if l.ExpectedBytesPerSec != nil {
			rate = fmt.Sprint(int64(*l.ExpectedBytesPerSec / gbps))
		}
		out += fmt.Sprintf("%s %s %s %s\n", l.Lane, l.Verdict, rate, l.Health)
	}
	if g.Reason != "" {
		out += "because " + g.Reason + "\n"
	}
	for _, r := range g.Rejected {
		out += "not " + r + "\n"
	}
	return out
}

// Where both hosts are described pathsel chooses, by where the memory is.
func TestPortedLanesOfPathsel(t *testing.T) {
	a, b := rdmaHost(t, "a", 1, "mlx5_0", "mlx5_1"), rdmaHost(t, "b", 2, "roce0", "roce1")
	rails := func(a, b topo.ID) error {
		if strings.TrimPrefix(a.Name(), "mlx5_") != strings.TrimPrefix(b.Name(), "roce") {
			return errors.New("another rail")
		}
		return nil
	}
	p, n := portedPair(t, Options{Ports: Ports{Topology: a}}, Options{Ports: Ports{Topology: b}},
		fake.Options{Ports: hcas("mlx5_0", "mlx5_1"), Reach: rails}, fake.Options{Ports: hcas("roce0", "roce1")})
	const rejected = "not [port:mlx5_0/1] to the peer's [port:roce1/1]: the local 10.2.0.1/24 has no route to 10.2.1.2/24 over mlx5_0\n" +
		"not [port:mlx5_1/1] to the peer's [port:roce0/1]: the local 10.2.1.1/24 has no route to 10.2.0.2/24 over mlx5_1\n"
	const both = "rdma mlx5_0 > b:roce0 chosen 100 idle\nrdma mlx5_1 > b:roce1 chosen 80 idle\n" + rejected
	if got := groupText(t, p, "cpu:0", "cpu:0"); got != both {
		t.Errorf("from node 0:\n%swant\n%s", got, both)
	}
	if got := groupText(t, p, "cpu:1", "cpu:1"); !strings.HasPrefix(got, "rdma mlx5_1 > b:roce1 chosen 100") {
		t.Errorf("from node 1:\n%s", got)
	}
	// A port that the peer does not have now, and one that we do not.
	n.ports("server").SetPorts(hcas("roce1"))
	const one = "rdma mlx5_1 > b:roce1 chosen 80 idle\nrdma mlx5_0 > b:roce0 failover 100 gone\n" +
		"not lane rdma mlx5_0 > b:roce0: the peer does not offer roce0 now\n" + rejected
	same := func(want string) func() bool {
		got := ""
		t.Cleanup(func() {
			if got != want {
				t.Logf("got\n%swant\n%s", got, want)
			}
		})
		return func() bool { got = groupText(t, p, "cpu:0", "cpu:0"); return got == want }
	}
	eventually(t, "the client knows that a port of the peer is gone", same(one))
	n.ports("client").SetPorts(hcas("mlx5_0"))
	eventually(t, "nothing is left", func() bool {
		text := groupText(t, p, "cpu:0", "cpu:0")
		return strings.Count(text, " gone\n") == 2 && strings.Contains(text, "because ") && strings.Contains(text, "no port reaches")
	})
	n.ports("client").SetPorts(hcas("mlx5_0", "mlx5_1"))
	n.ports("server").SetPorts(hcas("roce0", "roce1"))
	eventually(t, "the ports are back", same(both))
}

// Without topologies every port gets a partner, and the other pairs wait for when
// one fails.
func TestPortedLanesWithoutTopologies(t *testing.T) {
	fast := hcas("fast", "slow")
	fast[0].BytesPerSec *= 2
	no := func(pair string) func(topo.ID, topo.ID) error {
		return func(a, b topo.ID) error {
			if pair == fmt.Sprintf("%s>%s", strings.TrimSuffix(a.Name(), "/1"), strings.TrimSuffix(b.Name(), "/1")) {
				return errors.New("no common partition")
			}
			return nil
		}
	}
	const because = "because this host's topology is not known: its lanes are pairs of ports that reach each other\n"
	for _, test := range []struct {
		name   string
		client Options
		here   fake.Options
		there  fake.Options
		want   string
	}{
		{"two and two", Options{}, fake.Options{Ports: hcas("a0", "a1")}, fake.Options{Ports: hcas("b0", "b1")},
			"rdma a0 > HOST:b0 chosen 100 idle\nrdma a1 > HOST:b1 chosen 100 idle\n" +
				"rdma a0 > HOST:b1 failover 100 idle\nrdma a1 > HOST:b0 failover 100 idle\n" + because},
		{"two and three: the faster one gets two", Options{}, fake.Options{Ports: fast}, fake.Options{Ports: hcas("b0", "b1", "b2")},
			"rdma fast > HOST:b0 chosen 100 idle\nrdma slow > HOST:b1 chosen 100 idle\nrdma fast > HOST:b2 chosen 100 idle\n" +
				"rdma slow > HOST:b0 failover 100 idle\nrdma fast > HOST:b1 failover 100 idle\nrdma slow > HOST:b2 failover 100 idle\n" + because},
		{"the first choice would leave one out", Options{}, fake.Options{Ports: hcas("a0", "a1"), Reach: no("a1>b1")}, fake.Options{Ports: hcas("b0", "b1")},
			"rdma a0 > HOST:b1 chosen 100 idle\nrdma a1 > HOST:b0 chosen 100 idle\nrdma a0 > HOST:b0 failover 100 idle\n" + because +
				"not a1 to the peer's b1: no common partition\n"},
		{"the second of two ranks", Options{Ports: Ports{LocalRank: 1, LocalSize: 2}}, fake.Options{Ports: hcas("a0", "a1")}, fake.Options{Ports: hcas("b0")},
			"rdma a1 > HOST:b0 chosen 100 idle\nrdma a0 > HOST:b0 failover 100 idle\n" + because},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, _ := portedPair(t, test.client, Options{}, test.here, test.there)
			want := strings.ReplaceAll(test.want, "HOST", p.peer.Name())
			if got := groupText(t, p, "", ""); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
	p, _ := portedPair(t, Options{}, Options{}, fake.Options{Ports: hcas("a0"), Reach: no("a0>b0")}, fake.Options{Ports: hcas("b0")}, TCP())
	if got := groupText(t, p, "", ""); !strings.Contains(got, "no port reaches one of the peer's: a0 to the peer's b0: no common partition") {
		t.Errorf("nothing reaches:\n%s", got)
	}
}

// The RDMA ports are shared out among the engines of a host, the others are for
// failover.
func TestPortedRanks(t *testing.T) {
	a, b := rdmaHost(t, "a", 1, "mlx5_0", "mlx5_1"), rdmaHost(t, "b", 2, "roce0", "roce1")
	for rank := range 2 {
		p, _ := portedPair(t, Options{Ports: Ports{Topology: a, LocalRank: rank, LocalSize: 2}}, Options{Ports: Ports{Topology: b}},
			fake.Options{Ports: hcas("mlx5_0", "mlx5_1")}, fake.Options{Ports: hcas("roce0", "roce1")})
		got := groupText(t, p, "cpu:0", "cpu:0")
		want := fmt.Sprintf("rdma mlx5_%d > b:roce%d chosen", rank, rank)
		if !strings.HasPrefix(got, want) || strings.Count(got, "chosen") != 1 || strings.Count(got, "failover") != 1 {
			t.Errorf("rank %d:\n%swant %s alone", rank, got, want)
		}
	}
}

// Bytes go over the ports; when all of them die TCP takes over, which is counted,
// logged and explained once; when they are back they are used again.
func TestPortedFailover(t *testing.T) {
	checkLeaks(t)
	var log logged
	a, b := rdmaHost(t, "a", 1, "mlx5_0", "mlx5_1"), rdmaHost(t, "b", 2, "roce0", "roce1")
	p, n := portedPair(t, Options{Ports: Ports{Topology: a}, Logger: textLogger(&log)}, Options{Ports: Ports{Topology: b}},
		fake.Options{Ports: hcas("mlx5_0", "mlx5_1"), BytesPerSec: 64 << 20}, fake.Options{Ports: hcas("roce0", "roce1")}, TCP())
	ctx := testContext(t)
	move := func(seed uint64) *Explanation {
		t.Helper()
		p.randomize(seed)
		b := p.run(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		equal(t, "remote", p.theirs.Bytes(), p.mine.Bytes())
		return b.Explain()
	}
	used := func(x *Explanation) map[string]int64 {
		by := map[string]int64{}
		for _, u := range x.Routes[0].Used {
			by[string(u.Transport)] += u.Bytes
		}
		return by
	}
	if by := used(move(1)); by["rdma"] != 4<<20 {
		t.Errorf("bytes by transport: %v", by)
	}
	for _, l := range p.peer.Lanes() {
		if l.Transport == "rdma" && (l.LocalPort == "" || l.RemotePort == "" || l.Bytes > 0 && !strings.Contains(l.Connection, string(l.LocalPort))) {
			t.Errorf("lane %+v does not tell its ports", l)
		}
	}
	// All ports of the peer are lost in mid-transfer.
	p.randomize(2)
	running := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	n.ports("server").SetPorts(nil)
	if err := running.Wait(ctx); err != nil {
		t.Fatalf("the batch failed with its ports: %v\n%s", err, running.Explain().Text())
	}
	equal(t, "remote after the loss", p.theirs.Bytes(), p.mine.Bytes())
	eventually(t, "TCP is used", func() bool { return used(move(3))["rdma"] == 0 })
	x, err := p.peer.Explain("", "")
	must(t, err)
	if g := &x.Routes[0].Groups[0]; g.Transport != "rdma" || g.Reason != "the peer does not offer it" || g.Lanes[0].Health != "gone" {
		t.Errorf("explanation without ports:\n%s", x.Text())
	}
	if s := p.client.Stats(); s.Fallback != 1 {
		t.Errorf("%d fallbacks, want 1", s.Fallback)
	}
	if notes := strings.Join(running.Explain().Notes, "\n"); !strings.Contains(notes, "tcp is used in place of rdma") {
		t.Errorf("notes of the batch: %s", notes)
	}
	n.ports("server").SetPorts(hcas("roce0", "roce1"))
	eventually(t, "RDMA is used again", func() bool { return used(move(4))["tcp"] == 0 })
	// Once more, one port after the other.
	n.ports("client").SetPorts(hcas("mlx5_1"))
	n.ports("client").SetPorts(nil)
	eventually(t, "TCP is used again", func() bool { return used(move(5))["rdma"] == 0 })
	if got := strings.Count(log.String(), "is used in place of rdma"); got != 2 || p.client.Stats().Fallback != 2 {
		t.Errorf("%d fallbacks were logged and %d counted, want 2", got, p.client.Stats().Fallback)
	}
	if got := strings.Count(log.String(), "rdma is in use again"); got != 1 {
		t.Errorf("%d returns were logged, want 1:\n%s", got, log.String())
	}
}

// rekeyed is a transport whose registrations may fail, and get new keys.
type rekeyed struct {
	fake.Ported
	mu      sync.Mutex
	key     string
	refuses string // the region that it does not take
	changed func()
}

func (r *rekeyed) Register(m *memory.Region) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses == m.Name() {
		return "", errors.New("locked memory: 64 KiB is the limit")
	}
	_, err := r.Ported.Register(m)
	return r.key, err
}

func (r *rekeyed) Key(*memory.Region) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.key
}

// Reaches wants the key that is right now, as a NIC does.
func (r *rekeyed) Reaches(m *transport.RemoteRegion) bool { return m.Key["rdma"] != "" }

func (r *rekeyed) setKey(key string) {
	r.mu.Lock()
	r.key = key
	r.mu.Unlock()
	r.changed()
}

// A device that came back has new keys: peers get them, and those who hold the region
// use them from then on.
func TestRekeyed(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	made := map[string]*rekeyed{}
	build := func(refuses string) TransportFactory {
		return &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
			f, err := n.transport(fake.Options{Name: "rdma", Ports: hcas("p0")}).(*transport.Factory).Make(env)
			if err != nil {
				return nil, err
			}
			made[env.Name] = &rekeyed{Ported: f.(fake.Ported), key: "one", refuses: refuses, changed: env.Changed}
			return made[env.Name], nil
		}}
	}
	p := newPair(t, 4096, Options{Transports: []TransportFactory{build("small"), TCP()}}, Options{Transports: []TransportFactory{build("kv2"), TCP()}})
	ctx := testContext(t)
	held := p.to
	key := func() string { return held.keyed.Load().Key["rdma"] }
	if key() != "one" {
		t.Fatalf("key %q", key())
	}
	made["server"].setKey("two")
	eventually(t, "the new key is there", func() bool { return key() == "two" })
	// Without a key RDMA does not reach the region, and with one it does again.
	via := func() string {
		t.Helper()
		b := p.run(t, ctx, []Op{WriteOp(p.mine.All(), held.At(0))}, SubmitOptions{})
		return string(b.Explain().Routes[0].Used[0].Transport)
	}
	if got := via(); got != "rdma" {
		t.Errorf("over %s", got)
	}
	made["server"].setKey("")
	eventually(t, "no key", func() bool { return key() == "" })
	if got := via(); got != "tcp" {
		t.Errorf("without a key over %s", got)
	}
	made["server"].setKey("three")
	eventually(t, "a third key", func() bool { return key() == "three" })
	if got := via(); got != "rdma" {
		t.Errorf("with a key again over %s", got)
	}
	if again, err := p.peer.Region(ctx, "kv"); err != nil || again != held {
		t.Errorf("the region is another: %v", err)
	}
}

// A transport that cannot register a region is not used for it; that is said.
func TestRegisterRefused(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	build := func(refuses string) TransportFactory {
		return &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
			f, err := n.transport(fake.Options{Name: "rdma", Ports: hcas("p0")}).(*transport.Factory).Make(env)
			return &rekeyed{Ported: f.(fake.Ported), key: "one", refuses: refuses, changed: env.Changed}, err
		}}
	}
	var log logged
	p := newPair(t, 4096, Options{Transports: []TransportFactory{build("mine"), TCP()}, Logger: textLogger(&log)}, Options{Transports: []TransportFactory{build(""), TCP()}})
	ctx := testContext(t)
	b := p.run(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
	x := b.Explain()
	if x.Routes[0].Used[0].Transport != "tcp" || !strings.Contains(x.Text(), "or does not have ours") {
		t.Errorf("explanation:\n%s", x.Text())
	}
	notes := strings.Join(p.client.Stats().Regions[0].Notes, "\n")
	if !strings.Contains(notes, "not over rdma: locked memory") || strings.Count(log.String(), "a transport is not used for a region") != 1 {
		t.Errorf("notes %q, log:\n%s", notes, log.String())
	}
	if err := p.mine.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	alone := newEngine(t, Options{Transports: []TransportFactory{build("mine")}})
	if _, err := alone.Alloc(4096, RegionOptions{Name: "mine"}); err == nil || !strings.Contains(err.Error(), `region "mine": rdma: locked memory`) {
		t.Errorf("no transport takes it: %v", err)
	}
}

// The ports are there and no connection can be made over them: TCP takes over, until
// one can be made again.
func TestPortedLanesFail(t *testing.T) {
	checkLeaks(t)
	var log logged
	p, n := portedPair(t, Options{Logger: textLogger(&log)}, Options{}, fake.Options{Ports: hcas("a0", "a1")}, fake.Options{Ports: hcas("b0", "b1")}, TCP())
	ctx := testContext(t)
	over := func() string {
		t.Helper()
		b := p.submit(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{})
		if err := b.Wait(ctx); err != nil {
			t.Fatalf("%v\n%s", err, b.Explain().Text())
		}
		used := b.Explain().Routes[0].Used
		most := used[0]
		for _, u := range used {
			if u.Bytes > most.Bytes {
				most = u
			}
		}
		return string(most.Transport)
	}
	defer func() {
		if t.Failed() {
			t.Logf("lanes %+v\n%s", p.client.Stats().Lanes, log.String())
		}
	}()
	if got := over(); got != "rdma" {
		t.Fatalf("at first over %s", got)
	}
	n.Refuse(errors.New("the subnet manager is gone"))
	eventually(t, "TCP is used", func() bool {
		for _, c := range n.ports("client").Conns() {
			c.Kill(errors.New("retries exceeded"))
		}
		return over() == "tcp"
	})
	if s := p.client.Stats(); s.Fallback != 1 {
		t.Errorf("%d fallbacks", s.Fallback)
	}
	n.Refuse(nil)
	eventually(t, "RDMA is used again", func() bool { return over() == "rdma" && strings.Contains(log.String(), "rdma is in use again") })
	for text, want := range map[string]int{"tcp is used in place of rdma": 1, "rdma is in use again": 1} {
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("%q was logged %d times, want %d", text, got, want)
		}
	}
}
