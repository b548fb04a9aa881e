package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

// changed is a fixture after a change of its nodes.
func changed(tb testing.TB, name string, change func(*topo.Topology)) *topo.Topology {
	tb.Helper()
	data, err := fixturetest.Topology(tb, name).Encode()
	if err != nil {
		tb.Fatal(err)
	}
	t, err := topo.Decode(data)
	if err != nil {
		tb.Fatal(err)
	}
	change(t)
	t.Links = slices.DeleteFunc(t.Links, func(l topo.Link) bool { // those that follow from the nodes
		return l.Kind != topo.LinkNVLink && l.Kind != topo.LinkXGMI && l.Kind != topo.LinkC2C
	})
	t.Derive()
	return t
}

// script writes down what a watch tells.
type script struct {
	w   *Watch
	out strings.Builder
}

func (s *script) did(what string, list []Event) {
	fmt.Fprintf(&s.out, "# %s\n", what)
	for i := range list {
		e := &list[i]
		at := fmt.Sprintf("%6.1fs", float64(e.AtNS)/float64(second))
		fmt.Fprintf(&s.out, "%s %-7s %-16s %s\n", at, e.Severity, e.Kind, strings.TrimPrefix(e.Who()+": ", ": ")+e.Text)
		if e.Code != "" {
			fmt.Fprintf(&s.out, "          code %s\n", e.Code)
		}
		for _, d := range e.Detail {
			fmt.Fprintf(&s.out, "          %s\n", d)
		}
	}
}

func (s *script) topology(at int64, what string, t *topo.Topology) {
	s.did(what, s.w.Topology(at*second, t))
}

func (s *script) golden(t *testing.T) {
	t.Helper()
	golden.Check(t, "testdata/"+strings.TrimPrefix(t.Name(), "TestTranscript/")+".txt", s.out.String())
}

// sample is what counters would say of a topology.
func sample(t *topo.Topology) *counters.Sample {
	s := &counters.Sample{}
	for i := range t.Ports {
		p := &t.Ports[i]
		s.Ports = append(s.Ports, counters.Port{ID: p.ID, State: p.State, BytesPerSec: p.BytesPerSec, Errors: map[string]uint64{}})
	}
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		s.Ports = append(s.Ports, counters.Port{ID: n.ID, State: n.State, BytesPerSec: n.BytesPerSec, Errors: map[string]uint64{}})
	}
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; d.Link != nil {
			s.Links = append(s.Links, counters.Link{ID: d.ID, SpeedMTs: d.Link.SpeedMTs, Width: d.Link.Width})
		}
	}
	return s
}

// of is a port of a sample.
func of(s *counters.Sample, id topo.ID) *counters.Port {
	for i := range s.Ports {
		if s.Ports[i].ID == id {
			return &s.Ports[i]
		}
	}
	return nil
}

// What a watch tells of hosts to which something happens.
func TestTranscript(t *testing.T) {
	t.Run("topologies", func(t *testing.T) {
		s := script{w: New(Options{})}
		s.topology(0, "dgx-h100", fixturetest.Topology(t, "dgx-h100"))
		s.topology(30, "the same again", fixturetest.Topology(t, "dgx-h100"))
		s.topology(60, "the cable of mlx5_6 is out", fixturetest.Topology(t, "dgx-h100-port-down"))
		s.topology(90, "it still is", fixturetest.Topology(t, "dgx-h100-port-down"))
		s.topology(120, "it is in again", fixturetest.Topology(t, "dgx-h100"))
		s.topology(150, "GPU2 trained at half its width", fixturetest.Topology(t, "dgx-h100-gpu2-x8"))
		s.topology(165, "and now at a quarter: the same finding", changed(t, "dgx-h100-gpu2-x8", func(t *topo.Topology) { narrow(t, t.GPUs[2].PCI, 4) }))
		s.topology(180, "mlx5_4 at gen1", fixturetest.Topology(t, "dgx-h100-nic-gen1"))
		s.topology(210, "as it was", fixturetest.Topology(t, "dgx-h100"))
		s.golden(t)
	})
	t.Run("baseline", func(t *testing.T) {
		s := script{w: New(Options{Baseline: fixturetest.Topology(t, "dgx-h100"), BaselineName: "dgx-h100"})}
		s.topology(0, "the cable is out from the start", fixturetest.Topology(t, "dgx-h100-port-down"))
		s.topology(30, "it is in", fixturetest.Topology(t, "dgx-h100"))
		s.topology(60, "out once more", fixturetest.Topology(t, "dgx-h100-port-down"))
		s.golden(t)
	})
	t.Run("counters", func(t *testing.T) {
		up, down := fixturetest.Topology(t, "dgx-h100"), fixturetest.Topology(t, "dgx-h100-port-down")
		s := script{w: New(Options{})}
		s.did("counters before there is a topology", s.w.Counters(0, sample(up)))
		s.topology(1, "dgx-h100", up)
		s.did("counters", s.w.Counters(1*second, sample(up)))
		s.did("the cable is out", s.w.Counters(2*second, sample(down)))
		s.topology(3, "a look at the host that began before that", up)
		s.topology(4, "and one that began after it", down)
		s.did("counters", s.w.Counters(4*second, sample(down)))
		s.did("in again", s.w.Counters(5*second, sample(up)))
		s.topology(6, "a look", up)
		slow := sample(up)
		half := *of(slow, "port:mlx5_6/1").BytesPerSec / 2
		of(slow, "port:mlx5_6/1").BytesPerSec = &half
		s.did("at half its rate", s.w.Counters(7*second, slow))
		idle := sample(up)
		for i := range idle.Links {
			if id := idle.Links[i].ID; id == up.GPUs[0].PCI || id == parent(up, up.GPUs[0].PCI) {
				speed := 2500
				idle.Links[i].SpeedMTs = &speed
			}
		}
		s.did("the rate is back; gpu:0 idles", s.w.Counters(8*second, idle))
		s.did("an hour later", append(s.w.Tick(3600*second), s.w.Counters(3600*second, sample(up))...))
		s.golden(t)
	})
	t.Run("interfaces", func(t *testing.T) {
		s := script{w: New(Options{})}
		s.topology(0, "cpu-2eth", fixturetest.Topology(t, "cpu-2eth"))
		s.topology(10, "eno1 is switched off, its addresses and routes are gone, and the kernel is another", changed(t, "cpu-2eth", func(t *topo.Topology) {
			n := &t.Netdevs[netdev(t, "eno1")]
			n.State, n.AdminUp, n.Addresses, n.Routes = "down", new(bool), nil, nil
			t.Host.Kernel = "6.99"
		}))
		s.topology(20, "as it was", fixturetest.Topology(t, "cpu-2eth"))
		s.topology(30, "eno1 is gone", changed(t, "cpu-2eth", func(t *topo.Topology) { t.Netdevs = slices.Delete(t.Netdevs, netdev(t, "eno1"), 1+netdev(t, "eno1")) }))
		s.topology(40, "as it was", fixturetest.Topology(t, "cpu-2eth"))
		s.golden(t)
	})
	t.Run("worse", func(t *testing.T) {
		port := func(t *topo.Topology, name string) *topo.Port {
			return &t.Ports[slices.IndexFunc(t.Ports, func(p topo.Port) bool { return p.RDMA == topo.RDMAID(name) })]
		}
		s := script{w: New(Options{})}
		s.topology(0, "dgx-h100", fixturetest.Topology(t, "dgx-h100"))
		for i, name := range []string{"mlx5_9", "mlx5_10", "mlx5_11"} {
			now := sample(fixturetest.Topology(t, "dgx-h100"))
			for _, down := range []string{"mlx5_9", "mlx5_10", "mlx5_11"}[:i+1] {
				of(now, topo.PortID(down, 1)).State = "DOWN"
			}
			s.did(name+" is down too", s.w.Counters(int64(i+1)*second, now))
		}
		s.topology(100, "a look: they are up, and mlx5_6 is down", fixturetest.Topology(t, "dgx-h100-port-down"))
		s.topology(130, "its state can no longer be read", changed(t, "dgx-h100-port-down", func(t *topo.Topology) { port(t, "mlx5_6").State, port(t, "mlx5_6").PhysState = "", "" }))
		s.topology(160, "it can, and is down", fixturetest.Topology(t, "dgx-h100-port-down"))
		s.golden(t)
	})
	t.Run("errors", func(t *testing.T) {
		up := fixturetest.Topology(t, "dgx-h100")
		s := script{w: New(Options{})}
		s.topology(0, "dgx-h100", up)
		errors := map[string]uint64{"symbol_error": 7, "out_of_buffer": 1, "link_downed": 3}
		for at := int64(1); at < 100; at++ {
			now := sample(up)
			switch {
			case at == 3:
				errors["out_of_buffer"] += 2
			case at > 3 && at < 30 && at%2 == 0:
				errors["symbol_error"]++
			case at == 98:
				errors["symbol_error"] = 2 // the driver was loaded anew
				errors["link_downed"]++
			}
			if at == 50 { // as it went down, and was counted
				errors["link_downed"]++
			}
			if at >= 50 && at < 52 {
				of(now, "port:mlx5_3/1").State = "DOWN"
			}
			if at == 53 { // counted late
				errors["link_downed"]++
			}
			for name, n := range errors {
				of(now, "port:mlx5_3/1").Errors[name] = n
			}
			if list := append(s.w.Tick(at*second), s.w.Counters(at*second, now)...); len(list) > 0 {
				s.did("", list)
			}
		}
		s.golden(t)
	})
	t.Run("renamed", func(t *testing.T) {
		// The name of an interface goes to another one, which has counted for long.
		machines := []*topo.Topology{fixturetest.Topology(t, "cpu-2eth"), changed(t, "cpu-2eth", func(t *topo.Topology) { t.Netdevs[netdev(t, "ens5f0")].Index = new(99) })}
		s := script{w: New(Options{})}
		s.topology(0, "cpu-2eth", machines[0])
		look := func(at int64, what string, n uint64) {
			now := sample(machines[0])
			of(now, "net:ens5f0").Errors["rx_crc_errors"] = n
			of(now, "net:eno1").Errors["rx_crc_errors"] = n
			s.did(what, s.w.Counters(at*second, now))
		}
		look(1, "", 0)
		look(2, "errors of both", 3)
		look(3, "more, held back", 5)
		s.topology(4, "another interface is ens5f0 now", machines[1])
		look(5, "its own errors are no news of the old one", 1000)
		look(15, "then they move", 1002)
		look(80, "and stand still", 1002)
		s.golden(t)
	})
	t.Run("sources", func(t *testing.T) {
		s := script{w: New(Options{})}
		s.did("agent fails", s.w.Source(1*second, "agent http://n1:9411", "failed", "connection refused"))
		s.did("and again", s.w.Source(2*second, "agent http://n1:9411", "failed", "connection refused"))
		s.did("it answers", s.w.Source(3*second, "agent http://n1:9411", "ok", ""))
		s.did("counters are late", s.w.Source(4*second, "counters", "waiting", "no answer for 2 s"))
		s.did("a moment later", s.w.Tick(5*second))
		s.did("still late", s.w.Source(9*second, "counters", "waiting", "no answer for 7 s"))
		s.did("for long", s.w.Tick(14*second))
		s.did("longer", s.w.Tick(20*second))
		s.did("they come", s.w.Source(21*second, "counters", "ok", ""))
		s.did("late, and in time", append(s.w.Source(22*second, "counters", "waiting", ""), s.w.Source(25*second, "counters", "ok", "")...))
		s.did("nothing", s.w.Tick(60*second))
		s.did("the end", s.w.Source(61*second, "counters", "ended", ""))
		s.did("a topology that is not derived", s.w.Topology(62*second, &topo.Topology{}))
		s.topology(63, "cpu-2eth", fixturetest.Topology(t, "cpu-2eth"))
		s.golden(t)
	})
}

// narrow gives a function's link fewer lanes, at both ends.
func narrow(t *topo.Topology, function topo.ID, width int) {
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; d.ID == function || d.ID == parent(t, function) {
			d.Link.Width = &width
		}
	}
}

func netdev(t *topo.Topology, name string) int {
	return slices.IndexFunc(t.Netdevs, func(n topo.Netdev) bool { return n.Name == name })
}

func parent(t *topo.Topology, function topo.ID) topo.ID {
	for i := range t.PCIDevices {
		if t.PCIDevices[i].ID == function {
			return t.PCIDevices[i].Parent
		}
	}
	return ""
}

// What is too much is told as a number, and not told later either.
func TestBounds(t *testing.T) {
	w := New(Options{Baseline: fixturetest.Topology(t, "dgx-h100"), BaselineName: "b"})
	crowded := changed(t, "cpu-2eth", func(t *topo.Topology) {
		for i := range 3 * mostNews {
			name := fmt.Sprintf("eth%d", 100+i)
			t.Netdevs = append(t.Netdevs, topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name), Kind: topo.KindNetdev}, Name: name, Type: "ether", LinkKind: fmt.Sprintf("k%d", i)})
		}
	})
	drifts, last := 0, Event{}
	for _, e := range w.Topology(0, crowded) {
		if e.Kind == Drift {
			drifts, last = drifts+1, e
		}
	}
	if drifts != mostNews+1 || !strings.HasPrefix(last.Text, "and ") || !strings.HasSuffix(last.Text, " more, which are not listed") {
		t.Errorf("%d drifts, the last %q", drifts, last.Text)
	}
	for at := int64(1); at < 4; at++ {
		if more := append(w.Tick(at*calm), w.Topology(at*calm, crowded)...); len(more) > 0 {
			t.Errorf("later: %+v", more)
		}
	}
	lost := 0
	for i := range 2 * mostSources {
		lost += len(w.Source(0, fmt.Sprint(i), "failed", ""))
	}
	if known := len(w.sources); known > mostSources || lost < mostSources-2 {
		t.Errorf("%d sources are remembered, %d were told", known, lost)
	}
}

// BenchmarkTopology is what a look at the largest host costs.
func BenchmarkTopology(b *testing.B) {
	host := fixturetest.Topology(b, "nvl72-synthetic")
	w := New(Options{})
	w.Topology(0, host)
	at := int64(0)
	for b.Loop() {
		at += second
		w.Topology(at, host)
	}
}

// BenchmarkCounters is what a look at its counters costs.
func BenchmarkCounters(b *testing.B) {
	host := fixturetest.Topology(b, "nvl72-synthetic")
	w := New(Options{})
	w.Topology(0, host)
	s := sample(host)
	at := int64(0)
	for b.Loop() {
		at += second
		w.Counters(at, s)
	}
}
