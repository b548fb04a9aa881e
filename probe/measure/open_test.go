package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// An agent that cannot be used costs only its own pairs.
func TestOpenSome(t *testing.T) {
	checkLeaks(t)
	good, other := agentOf(t, "good", ServerOptions{}, nil, nil), agentOf(t, "other", ServerOptions{}, nil, nil)
	plain, err := engine.New(t.Context(), engine.Options{Security: engine.Security{Credentials: trust.Secret(token)}})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	foreign, err := engine.New(t.Context(), engine.Options{Security: engine.Security{Credentials: trust.Secret([]byte("another token than ours"))}})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	liar := agentOf(t, "liar", ServerOptions{}, nil, func(a answer) answer {
		if a.Agent != nil {
			a.Agent.Limits.Duration = -1
		}
		return a
	})
	garbage := agentOf(t, "garbage", ServerOptions{}, nil, func(a answer) answer {
		if a.Agent != nil {
			a.Agent.Topology = []byte(`{"schema":"topoctl.topology/v9"}`)
		}
		return a
	})
	o := HostsOptions{Credentials: trust.Secret(token), DialTime: time.Second / 2, Hosts: []probe.Host{{Name: "good", Address: good.address()}, {Name: "none", Address: "127.0.0.1:1"}, {Name: "plain", Address: plain.Addrs()[0].String()},
		{Name: "foreign", Address: foreign.Addrs()[0].String()}, {Name: "mute", Address: mute.Addr().String()}, {Name: "liar", Address: liar.address()}, {Name: "garbage", Address: garbage.address()}, {Name: "other", Address: other.address()}}}
	late := func(h probe.Host) bool { return h.Name != "mute" && strings.Contains(h.Error, "no answer within") }
	var f *Fleet
	for again := true; again; again = o.DialTime < within && slices.ContainsFunc(f.Hosts(), late) { // the machine stood still for that long
		if f != nil {
			f.Close()
		}
		o.DialTime *= 2
		if f, err = Hosts(limited(t), o); err != nil {
			t.Fatal(err)
		}
	}
	defer f.Close()
	for i, want := range []string{"", "unreachable", "answers no calls", "tokens differ", fmt.Sprint("no answer within ", o.DialTime), "its description: limits", "its description:", ""} {
		h := f.Agents()[i]
		if (want == "") != (h.Error == "") || !strings.Contains(h.Error, want) || (h.Topology == nil) != (h.Error != "") || h.Name != o.Hosts[i].Name {
			t.Errorf("%s: %q, want %q", h.Name, h.Error, want)
		}
	}
	out := f.Round(limited(t), []probe.Pair{pair("good", "mute"), pair("good", "other"), pair("none", "good")}, quick(), nil)
	if out[0].Err == nil || !strings.Contains(out[0].Err.Error(), "mute: ") || out[1].Err != nil || out[2].Err == nil {
		t.Errorf("%v; %v; %v", out[0].Err, out[1].Err, out[2].Err)
	}
	// Another controller is told who has it, and costs nothing.
	if _, err := Hosts(limited(t), HostsOptions{Credentials: trust.Secret(token), Hosts: []probe.Host{{Name: "x", Address: good.address()}}}); err == nil || !strings.Contains(err.Error(), "is measuring") {
		t.Errorf("a second controller: %v", err)
	}
	// An agent that ends between rounds is noticed.
	other.stop()
	eventually(t, "the end is noticed", func() bool { return f.Hosts()[7].Error != "" })
}

func TestOpenRefuses(t *testing.T) {
	checkLeaks(t)
	a := agentOf(t, "a", ServerOptions{}, nil, nil)
	here := a.address()
	_, port, err := net.SplitHostPort(here)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for want, hosts := range map[string][]probe.Host{
		"0 hosts":                         {},
		"257 hosts":                       make([]probe.Host, 257),
		"a name of 0 bytes":               {{Name: "", Address: here}},
		`two hosts are called "x"`:        {{Name: "x", Address: here}, {Name: "x", Address: "127.0.0.1:1"}},
		`hosts "x" and "y" are both at`:   {{Name: "x", Address: here}, {Name: "y", Address: here}},
		"are the same agent":              {{Name: "x", Address: here}, {Name: "y", Address: "localhost:" + port}},
		"no agent can be used: x: engine": {{Name: "x", Address: "127.0.0.1:1"}},
	} {
		f, err := Hosts(limited(t), HostsOptions{Credentials: trust.Secret(token), Hosts: hosts, DialTime: within})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if f != nil {
			t.Errorf("%s: there is a fleet all the same", want)
		}
	}
	if _, err := Hosts(over, HostsOptions{Credentials: trust.Secret(token), Hosts: []probe.Host{{Name: "x", Address: here}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	// All that were refused have given their leases back.
	f, err := Hosts(limited(t), HostsOptions{Credentials: trust.Secret(token), Hosts: []probe.Host{{Name: "x", Address: here}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
}

// Two hosts have an address in common, and agents listen at one port: by name each is found where it is.
func TestOpenByNameWithOneAddress(t *testing.T) {
	checkLeaks(t)
	a, b := agentOf(t, "a", ServerOptions{}, nil, nil), agentOf(t, "b", ServerOptions{}, nil, nil)
	names := registrytest.NewMemory(0, nil).Client()
	var hosts []probe.Host
	for _, h := range []*host{a, b} {
		r := h.e.Record()
		r.Addresses = append([]netip.AddrPort{a.e.Addrs()[0]}, r.Addresses...)
		if _, err := names.Publish(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, probe.Host{Name: r.Name, Address: r.Addresses[0].String()})
	}
	f, err := Hosts(limited(t), HostsOptions{Credentials: trust.Secret(token), Hosts: hosts, Registry: registry.ReadOnly(names)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, want := range []*host{a, b} {
		if h := f.Hosts()[i]; h.Error != "" || h.Address != want.address() {
			t.Errorf("%s: at %s, %q; want %s", h.Name, h.Address, h.Error, want.address())
		}
	}
	if out := f.Round(limited(t), []probe.Pair{pair("a", "b"), pair("b", "a")}, quick(), nil); out[0].Err != nil || out[1].Err != nil {
		t.Errorf("%v; %v", out[0].Err, out[1].Err)
	}
}

// Both ends tell of the links on the way: states, and what was counted during the measurement.
func TestLinkStates(t *testing.T) {
	checkLeaks(t)
	host := fixturetest.Topology(t, "cpu-2eth")
	var port *topo.Link
	for i := range host.Links {
		if l := &host.Links[i]; l.Kind == topo.LinkPort {
			port = l
		}
	}
	if port == nil {
		t.Fatal("the fixture has no port")
	}
	sys := [2]string{t.TempDir(), t.TempDir()}
	write := func(end int, name, text string) {
		t.Helper()
		path := filepath.Join(sys[end], "class/net", port.B.Name(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for end := range sys {
		write(end, "operstate", "up\n")
		write(end, "statistics/rx_crc_errors", "10\n")
		write(end, "statistics/tx_errors", "3\n")
	}
	a := agentOf(t, "a", ServerOptions{Sysfs: sys[0]}, host, nil)
	b := agentOf(t, "b", ServerOptions{Sysfs: sys[1]}, host, func(a answer) answer {
		for i := range a.Links { // and a link of another pair
			a.Links[i].Links = append(a.Links[i].Links, probe.LinkState{Link: "n7 port:x up"})
		}
		return a
	})
	f := fleetOf(t, a, b)
	p := pair("n0", "n1")
	p.Path = []probe.LinkKey{probe.Key("n0", port.ID, "down"), probe.Key("n1", port.ID, "up")}
	p.From.Node, p.To.Node = "", "" // over loopback there are no ports
	told := false
	out := f.Round(limited(t), []probe.Pair{p}, quick(), func(int, probe.Sample) {
		if !told {
			told = true
			write(1, "statistics/rx_crc_errors", "17\n")
		}
	})
	if out[0].Err != nil || len(out[0].Links) != 2 {
		t.Fatalf("%v, %+v", out[0].Err, out[0].Links)
	}
	if l := out[0].Links[0]; l.Link != p.Path[0] || l.State != "up" || len(l.Counters) != 0 {
		t.Errorf("%+v", l)
	}
	if l := out[0].Links[1]; l.Link != p.Path[1] || l.State != "up" || fmt.Sprint(l.Counters) != "map[rx_crc_errors:7]" {
		t.Errorf("%+v", l)
	}
}
