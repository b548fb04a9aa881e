package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/engine/internal/transport/fake"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// twoPorts is a host with two ports, in two networks.
func twoPorts(t testing.TB, name string, number int, ports ...string) *topo.Topology {
	t.Helper()
	text := fmt.Sprintf(`machine: %s
description: two ports
host: {arch: x86_64, kernel: 6.8.0, vendor: QEMU, product: none}
cpu: {vendor: GenuineIntel, family: 6, model: 85, name: Intel Xeon, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-3, mem: 8GiB}
interfaces:
`, name)
	for i, port := range ports {
		text += fmt.Sprintf("- {name: %s, kind: veth, ip: 10.0.%d.%d/24}\n", port, i, number)
	}
	return fixturetest.Spec(t, text)
}

// plannedLanes asks for the TCP lanes between two hosts, over a session that is on one.
func planned(t *testing.T, client, server Options, offers ...string) (*pair, *group, error) {
	t.Helper()
	client.Transports, server.Transports = []TransportFactory{TCP()}, []TransportFactory{TCP()}
	p := newPair(t, 4096, client, server)
	var list []transport.Endpoint
	for _, address := range offers {
		list = append(list, transport.Endpoint{Transport: "tcp", Address: address})
	}
	g := &group{carrier: p.client.carriers[0]}
	p.peer.mu.RLock()
	remote := p.peer.host
	p.peer.mu.RUnlock()
	err := p.peer.plannedNetworkLanes(g, routeKey{}, list, p.client.currentHost(), remote)
	return p, g, err
}

func laneNames(g *group) string {
	var out []string
	for i, l := range g.lanes {
		name := fmt.Sprintf("%s at %s from %s", l.name, l.remote.Address, l.local)
		if l.gone {
			name += " gone"
		}
		if i >= g.set.Chosen {
			name += " failover"
		}
		out = append(out, name)
	}
	return strings.Join(out, "\n")
}

func TestPlannedLanes(t *testing.T) {
	a, b := twoPorts(t, "a", 1, "eth0", "eth1"), twoPorts(t, "b", 2, "left", "right")
	tests := []struct {
		name   string
		client Options
		offers []string
		want   string
	}{
		{"both", Options{Ports: Ports{Topology: a}}, []string{"10.0.0.2:7411", "10.0.1.2:7412"},
			"eth0 > b:left at 10.0.0.2:7411 from 10.0.0.1\neth1 > b:right at 10.0.1.2:7412 from 10.0.1.1"},
		{"one that the peer does not listen at", Options{Ports: Ports{Topology: a}}, []string{"10.0.1.2:7412"},
			"eth1 > b:right at 10.0.1.2:7412 from 10.0.1.1\neth0 > b:left at  from 10.0.0.1 gone failover"},
		{"the second of two ranks", Options{Ports: Ports{Topology: a, LocalRank: 1, LocalSize: 2}}, []string{"10.0.0.2:7411", "10.0.1.2:7412"},
			"eth1 > b:right at 10.0.1.2:7412 from 10.0.1.1\neth0 > b:left at 10.0.0.2:7411 from 10.0.0.1 failover"},
		{"two connections each", Options{Ports: Ports{Topology: a}, ConnsPerLane: 2}, []string{"10.0.0.2:7411", "10.0.1.2:7412"},
			"eth0 > b:left at 10.0.0.2:7411 from 10.0.0.1\neth0 > b:left #2 at 10.0.0.2:7411 from 10.0.0.1\n" +
				"eth1 > b:right at 10.0.1.2:7412 from 10.0.1.1\neth1 > b:right #2 at 10.0.1.2:7412 from 10.0.1.1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, g, err := planned(t, test.client, Options{Ports: Ports{Topology: b}}, test.offers...)
			must(t, err)
			if got := laneNames(g); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			for _, l := range g.lanes {
				if l.iface == "" {
					t.Errorf("lane %s is bound to no interface", l.name)
				}
			}
		})
	}
	_, _, err := planned(t, Options{Ports: Ports{Topology: a}}, Options{Ports: Ports{Topology: b}}, "10.9.9.9:1")
	if err == nil || !strings.Contains(err.Error(), "no lane of both topologies can be used: lane eth0 > b:left: the peer does not listen at 10.0.0.2") {
		t.Errorf("a peer that listens elsewhere: %v", err)
	}
}

// The session's address is the lane where it is on this host, and both listeners
// of a peer there are lanes.
func TestLoopbackLanes(t *testing.T) {
	checkLeaks(t)
	tcp := []TransportFactory{TCP()}
	p := newPair(t, 16<<20, Options{Transports: tcp, ConnsPerLane: 2, Ports: Ports{Topology: twoPorts(t, "a", 1, "eth0")}},
		Options{Transports: tcp, Listen: []string{"127.0.0.1:0", "127.0.0.2:0"}})
	ctx := testContext(t)
	p.randomize(1)
	b := p.run(t, ctx, []Op{WriteOp(p.mine.All(), p.to.At(0))}, SubmitOptions{Label: "four connections"})
	equal(t, "remote", p.theirs.Bytes(), p.mine.Bytes())
	x := b.Explain()
	if len(x.Routes) != 1 || len(x.Routes[0].Groups) != 1 || len(x.Routes[0].Groups[0].Lanes) != 4 {
		t.Fatalf("explanation:\n%s", x.Text())
	}
	sum := int64(0)
	for _, u := range x.Routes[0].Used {
		sum += u.Bytes
		if !strings.HasPrefix(u.Connection, "tcp ") {
			t.Errorf("connection %q", u.Connection)
		}
	}
	if sum != 16<<20 || x.Bytes != sum || x.State != "done" {
		t.Errorf("%d bytes over lanes, %d of the batch, state %s", sum, x.Bytes, x.State)
	}
	for _, want := range []string{"four connections with peer", "done, 16 MiB of 16 MiB", "no checksums: bytes stay on this host", "#2: chosen"} {
		if !strings.Contains(x.Text(), want) {
			t.Errorf("text has no %q:\n%s", want, x.Text())
		}
	}
	document, err := json.Marshal(x)
	if err != nil || !bytes.HasPrefix(document, []byte(`{"schema":"topoctl.explain/v1"`)) {
		t.Errorf("document %.60s: %v", document, err)
	}
	if got := len(p.peer.Lanes()); got != 4 {
		t.Errorf("%d lanes in the peer's list", got)
	}
}

// Peers are told of new ports and regions, and take the lanes that follow from it.
func TestDeltas(t *testing.T) {
	checkLeaks(t)
	p := newPair(t, 4096, Options{}, Options{Ports: Ports{Topology: twoPorts(t, "b", 2, "left")}})
	ctx := testContext(t)
	if got := p.peer.Topology(); got == nil || got.Host.Name != "b" {
		t.Fatalf("topology of the peer: %v", got)
	}
	must(t, p.server.SetTopology(ctx, twoPorts(t, "b", 2, "left", "right")))
	eventually(t, "the client knows the new port", func() bool { return len(p.peer.Topology().Netdevs) == 3 }) // with the loopback interface
	for i := range 300 {
		must(t, errOf(p.server.Alloc(4096, RegionOptions{Name: fmt.Sprint("r", i), Grant: memory.PeerRead})))
	}
	list, err := p.peer.Regions(ctx)
	if err != nil || len(list) != 301 {
		t.Fatalf("%d regions, %v", len(list), err)
	}
	eventually(t, "the deltas are through", func() bool { return p.client.Stats().Peers[0].Regions == 301 })
	r, err := p.peer.Region(ctx, "r299")
	must(t, err)
	must(t, p.server.SetTopology(ctx, nil))
	eventually(t, "the client knows no ports", func() bool { return p.peer.Topology() == nil })
	if again, err := p.peer.Region(ctx, "r299"); err != nil || again != r {
		t.Errorf("the region is another after a change: %v", err)
	}
}

// Ports that go down are told to the scheduler at once, by the number they had.
func TestSetTopologyPorts(t *testing.T) {
	checkLeaks(t)
	p, g, err := planned(t, Options{Ports: Ports{Topology: twoPorts(t, "a", 1, "eth0", "eth1")}}, Options{Ports: Ports{Topology: twoPorts(t, "b", 2, "left", "right")}},
		"10.0.0.2:7411", "10.0.1.2:7412")
	must(t, err)
	ctx := testContext(t)
	side := g.lanes[0].side
	one := twoPorts(t, "a", 1, "eth0", "eth1")
	for i := range one.Netdevs {
		if one.Netdevs[i].Name == "eth0" {
			one.Netdevs[i].State = "down"
			no := false
			one.Netdevs[i].Carrier = &no
		}
	}
	one.Derive()
	must(t, p.client.SetTopology(ctx, one))
	p.client.mu.Lock()
	kept, ok := p.client.sides[p.client.currentHost()]
	p.client.mu.Unlock()
	if !ok || kept != side {
		t.Error("ports that stayed are strangers to the scheduler")
	}
	// A lane of the port that is down fails; SetTopology has told so.
	g2 := &group{carrier: g.carrier}
	must(t, p.peer.plannedNetworkLanes(g2, routeKey{}, []transport.Endpoint{{Transport: "tcp", Address: "10.0.0.2:7411"}, {Transport: "tcp", Address: "10.0.1.2:7412"}}, p.client.currentHost(), p.peer.host))
	if got := laneNames(g2); strings.Contains(got, "eth0") || !strings.Contains(got, "eth1") {
		t.Errorf("lanes with eth0 down:\n%s", got)
	}
}

func TestListenRule(t *testing.T) {
	token := []byte("0123456789abcdef")
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{Listen: []string{"0.0.0.0:0"}}, "could read and write without a token"},
		{Options{Listen: []string{":0"}}, "could read and write without a token"},
		{Options{Listen: []string{"127.0.0.1:0", "[::]:0"}}, "could read and write without a token"},
		{Options{Listen: []string{"node1.example:0"}}, "could read and write without a token"},
		{Options{Listen: []string{"127.0.0.1"}}, "want host:port"},
		{Options{Security: Security{Credentials: trust.Secret(token[:15])}}, "the token has 15 bytes, want 16 or more"},
		{Options{Ports: Ports{LocalRank: 2, LocalSize: 2}}, "local rank 2 of 2"},
		{Options{ConnsPerLane: 17}, "17 connections per lane"},
		{Options{Transports: []TransportFactory{TCP(), TCP()}}, `two transports are called "tcp"`},
		{Options{Transports: []TransportFactory{}}, "no transport"},
		{Options{Advertise: "nowhere:port"}, "advertise"},
		{Options{Check: 9}, "check 9"},
	} {
		e, err := New(t.Context(), test.o)
		if err == nil {
			e.Close()
			t.Errorf("%+v is accepted", test.o)
			continue
		}
		if !strings.HasPrefix(err.Error(), "engine: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %q, want %q in it", err, test.want)
		}
	}
	e := newEngine(t, Options{Listen: []string{"0.0.0.0:0"}, Security: Security{Credentials: trust.Secret(token)}, Advertise: "192.0.2.7"})
	if got := e.Advertised(); len(got) == 0 || !strings.HasPrefix(got[0].Address, "192.0.2.7:") || got[0].Reason == "" {
		t.Errorf("advertised %+v", got)
	}
	stranger := newEngine(t, Options{Security: Security{Credentials: trust.Secret([]byte("another token, as long"))}})
	if _, err := stranger.Open(testContext(t), fmt.Sprintf("127.0.0.1:%d", e.Addrs()[0].Port())); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("a peer with another token: %v", err)
	}
}

func TestCheckRule(t *testing.T) {
	for _, test := range []struct {
		check  Check
		want   Check
		leaves bool
		is     bool
		text   string
	}{
		{CheckAuto, CheckAuto, true, true, "bytes leave this host"},
		{CheckAuto, CheckAuto, false, false, "bytes stay on this host"},
		{CheckAlways, CheckAuto, false, true, "the engine always wants it"},
		{CheckNever, CheckAuto, true, false, "the engine wants none"},
		{CheckNever, CheckAlways, false, true, "the batch wants it"},
		{CheckAlways, CheckNever, true, false, "the batch wants none"},
		{CheckAuto, CheckDigest, false, true, "or a digest of the batch: the batch wants it"},
		{CheckDigest, CheckAuto, false, true, "or a digest of the batch: the engine always wants it"},
		{CheckDigest, CheckNever, true, false, "the batch wants none"},
	} {
		e := &Engine{o: Options{Check: test.check}}
		r := &route{}
		r.leaves.Store(test.leaves)
		if got := e.checks(test.want, r); got != test.is {
			t.Errorf("%+v: %v", test, got)
		}
		if got := e.checkReason(test.want, test.leaves); !strings.Contains(got, test.text) {
			t.Errorf("%+v: %q", test, got)
		}
	}
	p := newPair(t, 1<<16, Options{Transports: []TransportFactory{TCP()}}, Options{})
	if !p.client.carriers[0].caps.Checks {
		t.Error("TCP's checksums are denied")
	}
	if got := notOver("a checksum for each slice", []string{"rdma", "rdma"}, false); got != "a checksum for each slice; over rdma there is none but what the network itself checks" {
		t.Errorf("%q", got)
	}
	if got := notOver("a checksum", []string{"rdma"}, true); got != "a checksum; over rdma it is the digest" {
		t.Errorf("%q", got)
	}
	if got := notOver("no checksums: the batch wants none", []string{"rdma"}, false); got != "no checksums: the batch wants none" {
		t.Errorf("%q", got)
	}
}

// loopbackOnly is TCP that connects to this host alone.
type loopbackOnly struct{ transport.Transport }

func (l loopbackOnly) Unwrap() transport.Transport { return l.Transport }

func (loopbackOnly) Connects(_ context.Context, to netip.AddrPort) error {
	if !to.Addr().IsLoopback() {
		return errors.New("not on this host")
	}
	return nil
}

// TestSessionsFollowTransports: a session that is to be resumed looks for its peer at no address that
// the peer tells and that transports do not connect to.
func TestSessionsFollowTransports(t *testing.T) {
	checkLeaks(t)
	only := &transport.Factory{Make: func(env transport.Env) (transport.Transport, error) {
		inner, err := TCP().(*transport.Factory).Make(env)
		return loopbackOnly{inner}, err
	}}
	for _, tt := range []struct {
		factory TransportFactory
		follows bool
	}{{TCP(), true}, {only, false}} {
		p := newPair(t, 4096, Options{Transports: []TransportFactory{tt.factory}}, Options{})
		p.warm(t)
		p.peer.mu.Lock()
		elsewhere := netip.MustParseAddrPort("192.0.2.1:7411")
		p.peer.desc.Endpoints = append(slices.Clone(p.peer.desc.Endpoints), transport.Endpoint{Transport: "tcp", Address: elsewhere.String()})
		p.peer.mu.Unlock()
		got := p.peer.sessionRoutes()
		follows := slices.ContainsFunc(got, func(r session.Route) bool { return r.Remote == elsewhere })
		if follows != tt.follows || got[0].Remote != p.server.Addrs()[0] {
			t.Errorf("%+v, want it elsewhere: %t", got, tt.follows)
		}
	}
}

// Many peers that come and go leave nothing behind.
func TestManyPeers(t *testing.T) {
	checkLeaks(t)
	n := newNetwork()
	list := []TransportFactory{n.transport(fake.Options{Name: "fake"})}
	p := newPair(t, 4096, Options{Transports: list}, Options{Transports: list})
	ctx := testContext(t)
	count := 300
	if testing.Short() {
		count = 30
	}
	for range count {
		must(t, p.peer.Close())
		p.open(t, ctx)
		p.warm(t)
	}
	eventually(t, "one lane and one connection are left", func() bool {
		p.client.mu.Lock()
		defer p.client.mu.Unlock()
		return len(p.client.conns) == 1 && len(p.client.core.Lanes(nil)) == 1
	})
	eventually(t, "the server has forgotten them", func() bool {
		conns := p.server.Stats().ServedConns
		p.server.offering.mu.Lock()
		defer p.server.offering.mu.Unlock()
		return len(p.server.offering.subscribers) == 1 && conns == 1
	})
}

func TestExplainPeer(t *testing.T) {
	p, _ := fakePair(t, 4096, fake.Options{})
	x, err := p.peer.Explain("cpu:0", pathsel.Location("gpu:1"))
	must(t, err)
	if x.State != "planned" || !strings.Contains(x.Text(), "cpu:0 to the peer's gpu:1") || !strings.Contains(x.Text(), "fake: chosen") {
		t.Errorf("explanation:\n%s", x.Text())
	}
	start := time.Now()
	if _, err := p.peer.Explain("", ""); err != nil || time.Since(start) > within {
		t.Error(err)
	}
}

// A peer may offer anything, and is dialled only as far as it can be of use.
func TestOffersAreBounded(t *testing.T) {
	checkLeaks(t)
	tcp := []TransportFactory{TCP()}
	p := newPair(t, 4096, Options{Transports: tcp}, Options{Transports: tcp})
	many := []transport.Endpoint{{Transport: "tcp", Address: p.server.Addrs()[0].String()}}
	for i := range peerdoc.MaxEndpoints - 1 {
		many = append(many, transport.Endpoint{Transport: "tcp", Address: fmt.Sprintf("127.1.%d.%d:7411", i>>8, i&255)})
	}
	p.server.reoffer(nil, many, "")
	ctx := testContext(t)
	must(t, errOf(p.peer.Regions(ctx)))
	must(t, p.peer.Write(ctx, p.mine.All(), p.to.At(0)))
	g := p.peer.group(p.client.carriers[0], routeKey{})
	if len(g.lanes) != maxEndpoints || len(g.notes) != 1 || !strings.Contains(g.notes[0], "4096 endpoints") {
		t.Errorf("%d lanes to addresses of this host, want %d; %q", len(g.lanes), maxEndpoints, g.notes)
	}

	text := "machine: b\ndescription: many ports\nhost: {arch: x86_64, kernel: 6.8.0, vendor: QEMU, product: none}\n" +
		"cpu: {vendor: GenuineIntel, family: 6, model: 85, name: Intel Xeon, threads: 1}\nnuma:\n- {node: 0, package: 0, cpus: 0-3, mem: 8GiB}\ninterfaces:\n"
	var offers []string
	for i := range 100 {
		text += fmt.Sprintf("- {name: eth%d, kind: veth, ip: 10.0.%d.%d/24}\n", i, i%2, 2+i)
		offers = append(offers, fmt.Sprintf("10.0.%d.%d:7411", i%2, 2+i))
	}
	_, planned, err := planned(t, Options{Ports: Ports{Topology: twoPorts(t, "a", 1, "eth0", "eth1")}}, Options{Ports: Ports{Topology: fixturetest.Spec(t, text)}}, offers...)
	must(t, err)
	from := map[string]int{}
	for _, l := range planned.lanes {
		if l.remote.Address != "" {
			from[l.local.String()]++
		}
	}
	if len(from) != 2 || from["10.0.0.1"] != maxPerPort || from["10.0.1.1"] != maxPerPort {
		t.Errorf("lanes from each of our addresses: %v, want %d", from, maxPerPort)
	}
}
