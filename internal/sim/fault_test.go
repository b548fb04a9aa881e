package sim

import (
	"math"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// steady is what an endless flow from GPU 0 of host 0 to that of host 1 gets, by
// the ports of their rail.
func steady(t testing.TB, c *Cluster) *Flow {
	t.Helper()
	p := c.Kind(0).DataPorts()[0]
	f, err := c.Move(Transfer{From: End{0, "gpu:0", p}, To: End{1, "gpu:0", p}, Bytes: Endless})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func inject(t testing.TB, c *Cluster, f Fault) {
	t.Helper()
	if err := c.Inject(f); err != nil {
		t.Fatal(err)
	}
}

// links is a selection that must succeed.
func links(t testing.TB) func(l []Link, err error) []Link {
	return func(l []Link, err error) []Link {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

// Each fault has its effect for as long as it lasts, several add up, and the link is
// as it was afterwards.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		where  func(c *Cluster) []Link
		effect Effect
		want   float64 // GB/s meanwhile, of 50
	}{
		{"a cable at a quarter", nil, Effect{Factor: 0.25}, 12.5},
		{"a cable that carries 7 GB/s at most", nil, Effect{MostBytesPerSec: 7 * gb}, 7},
		{"load by others that does not give way", nil, Effect{TakenBytesPerSec: 20 * gb}, 30},
		{"loss with selective repeat", nil, Effect{Loss: 0.01}, 49.5},
		{"loss with go-back-N", nil, Effect{Loss: 0.01, ResentPackets: 100}, 24.75},
		{"down", nil, Effect{Down: true}, 0},
		{"one direction, the one that is used", func(c *Cluster) []Link { return links(t)(c.Cable(0, c.Kind(0).DataPorts()[0]))[:1] }, Effect{Factor: 0.5}, 25},
		{"one direction, the other", func(c *Cluster) []Link { return links(t)(c.Cable(0, c.Kind(0).DataPorts()[0]))[1:] }, Effect{Factor: 0.5}, 50},
		{"the NIC", func(c *Cluster) []Link { return links(t)(c.NIC(1, c.Kind(1).DataPorts()[0])) }, Effect{Factor: 0.1}, 5},
		{"a PCIe link", func(c *Cluster) []Link { return links(t)(c.HostLink(0, "pcie:0000:1b:00.0")) }, Effect{Factor: 0.25}, 15.754},
		{"another host", func(c *Cluster) []Link { return links(t)(c.HostLinks(2)) }, Effect{Down: true}, 50},
	} {
		c := dgx(t, 3, false, nil, Options{})
		f := steady(t, c)
		where := links(t)(c.Cable(0, c.Kind(0).DataPorts()[0]))
		if tt.where != nil {
			where = tt.where(c)
		}
		inject(t, c, Fault{Name: tt.name, Links: where, Effect: tt.effect, FromNS: second, UntilNS: 2 * second})
		for i, want := range []float64{50, tt.want, 50} {
			c.Run(int64(2*i+1) * second / 2)
			if got := float64(f.BytesPerSec()) / 1e9; math.Abs(got-want) > 0.01 {
				t.Errorf("%s: %.2f GB/s in second %d, want %.2f", tt.name, got, i, want)
			}
		}
		c.Run(3 * second)
		if want := 1e9 * (50 + tt.want + 50); math.Abs(float64(f.Moved())-want) > 1e-3*want {
			t.Errorf("%s: moved %d bytes, want %.0f", tt.name, f.Moved(), want)
		}
	}
	c := dgx(t, 2, false, nil, Options{})
	f := steady(t, c)
	wire := links(t)(c.Cable(0, c.Kind(0).DataPorts()[0]))
	inject(t, c, Fault{Name: "a", Links: wire, Effect: Effect{Factor: 0.5}})
	inject(t, c, Fault{Name: "b", Links: wire, Effect: Effect{Factor: 0.5, TakenBytesPerSec: 2 * gb}, UntilNS: second})
	if got := f.BytesPerSec(); got != 10500*topo.MBPerSec {
		t.Errorf("two faults leave %d bytes/s", got)
	}
	c.Run(second)
	if got := f.BytesPerSec(); got != 25*gb {
		t.Errorf("the first fault alone leaves %d bytes/s", got)
	}
}

// A slow host is slow in all that it does, and nobody else is.
func TestSlowHost(t *testing.T) {
	c := dgx(t, 3, false, nil, Options{})
	f, err := c.SlowHost(1, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	inject(t, c, f)
	for i, p := range c.Kind(0).DataPorts() {
		for _, x := range []struct {
			from, to int
			want     topo.Rate
		}{{0, 1, 25 * gb}, {1, 2, 25 * gb}, {0, 2, 50 * gb}} {
			f, err := c.Move(Transfer{From: End{x.from, "", p}, To: End{x.to, "", p}, Bytes: Endless})
			if err != nil {
				t.Fatal(err)
			}
			if got := f.BytesPerSec(); got != x.want {
				t.Errorf("rail %d from %d to %d: %d bytes/s, want %d", i, x.from, x.to, got, x.want)
			}
			f.Stop()
		}
	}
}

// A congested uplink slows those that cross it, as others' flows there do, and
// leaves those of other spines alone.
func TestCongestedUplink(t *testing.T) {
	c := dgx(t, 8, true, nil, Options{Seed: 1})
	port := c.Kind(0).DataPorts()[0]
	where := links(t)(c.Uplinks(0, 2))
	up := where[:len(where)/2]
	inject(t, c, Fault{Name: "others", Links: up, Effect: Effect{TakenBytesPerSec: 45 * gb}})
	slow, fast := 0, 0
	for e := range uint64(64) {
		f, err := c.Move(Transfer{From: End{0, "", port}, To: End{5, "", port}, Bytes: Endless, Entropy: e})
		if err != nil {
			t.Fatal(err)
		}
		crosses := false
		for _, l := range f.Path() {
			if w := c.Where(l); w.Host < 0 && w.Up && w.Spine == 2 {
				crosses = true
			}
		}
		switch got := f.BytesPerSec(); {
		case crosses && got == 5*gb:
			slow++
		case !crosses && got == 50*gb:
			fast++
		default:
			t.Errorf("entropy %d: %d bytes/s, crosses %v", e, got, crosses)
		}
		f.Stop()
	}
	if slow < 8 || slow > 24 {
		t.Errorf("%d slow and %d fast flows over four spines", slow, fast)
	}
}

// A connection that begins while a link of a spine is down takes another one.
func TestSpineDown(t *testing.T) {
	c := dgx(t, 8, true, nil, Options{Seed: 1})
	port := c.Kind(0).DataPorts()[0]
	for s := range 3 {
		inject(t, c, Fault{Name: "spine", Links: links(t)(c.Uplinks(1, s)), Effect: Effect{Down: true}})
	}
	for e := range uint64(32) {
		path, err := c.Path(End{0, "", port}, End{5, "", port}, e)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range path {
			if w := c.Where(l); w.Host < 0 && w.Spine != 3 {
				t.Fatalf("entropy %d crosses %s", e, c.Name(l))
			}
		}
	}
}

// A bad cable counts symbol errors where it is received, lost packets and bytes, only
// while it is bad.
func TestCounters(t *testing.T) {
	c := dgx(t, 2, false, nil, Options{})
	steady(t, c)
	port := c.Kind(0).DataPorts()[0]
	wire := links(t)(c.Cable(1, port))
	inject(t, c, Fault{Name: "cable", Links: wire, Effect: Effect{SymbolErrorsPerGB: 10, Loss: 4096e-9}, FromNS: second, UntilNS: 2 * second})
	for _, tt := range []struct {
		host int
		at   int64
		want PortCounters
	}{
		{1, second, PortCounters{RxBytes: 50e9}},
		{1, 2 * second, PortCounters{RxBytes: 100e9, SymbolErrors: 500, LostPackets: 50}},
		{1, 3 * second, PortCounters{RxBytes: 150e9, SymbolErrors: 500, LostPackets: 50}},
		{0, 3 * second, PortCounters{TxBytes: 150e9}},
	} {
		c.Run(tt.at)
		got, err := c.PortCounters(tt.host, port)
		if err != nil {
			t.Fatal(err)
		}
		near := func(a, b int64) bool { return math.Abs(float64(a-b)) <= 1+1e-5*float64(b) }
		if !near(got.TxBytes, tt.want.TxBytes) || !near(got.RxBytes, tt.want.RxBytes) || !near(got.SymbolErrors, tt.want.SymbolErrors) || !near(got.LostPackets, tt.want.LostPackets) {
			t.Errorf("host %d at %d s: %+v, want %+v", tt.host, tt.at/second, got, tt.want)
		}
	}
}

// Round trips are sums of latencies; load and faults make them longer, and a way
// that carries nothing has none.
func TestRoundTrips(t *testing.T) {
	c := dgx(t, 8, true, nil, Options{})
	port := c.Kind(0).DataPorts()[0]
	trip := func(to int) int64 {
		t.Helper()
		ns, err := c.RoundTrip(End{0, "gpu:0", port}, End{to, "gpu:0", port}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return ns
	}
	near, far := trip(1), trip(7)
	if want := int64(2 * (400 + 250 + 400)); near != want {
		t.Errorf("over one leaf %d ns, want %d", near, want)
	}
	if want := int64(2 * (400 + 2*(100+250) + 250 + 400)); far != want {
		t.Errorf("over a spine %d ns, want %d", far, want)
	}
	f, err := c.Move(Transfer{From: End{0, "gpu:0", port}, To: End{1, "gpu:0", port}, Bytes: Endless, LimitBytesPerSec: 25 * gb})
	if err != nil {
		t.Fatal(err)
	}
	half := trip(1)
	f.SetLimit(0)
	busy := trip(1)
	if half <= near || half > near+200 || busy < near+20_000 {
		t.Errorf("idle %d ns, half busy %d, busy %d", near, half, busy)
	}
	f.Stop()
	wire := links(t)(c.Cable(0, port))
	inject(t, c, Fault{Name: "slow", Links: wire, Effect: Effect{AddedNS: 5000}, UntilNS: second})
	if got := trip(1); got != near+10_000 {
		t.Errorf("with 5 us more each way %d ns, without %d", got, near)
	}
	c.Run(second)
	if got := trip(1); got != near {
		t.Errorf("afterwards %d ns, before %d", got, near)
	}
	inject(t, c, Fault{Name: "cut", Links: wire[:1], Effect: Effect{Down: true}})
	if _, err := c.RoundTrip(End{1, "gpu:0", port}, End{0, "gpu:0", port}, 0); err == nil || !strings.Contains(err.Error(), "n0 port:mlx5_0/1 out carries nothing") {
		t.Errorf("the way back is cut: %v", err)
	}
}

func TestFaultsRefused(t *testing.T) {
	c := dgx(t, 2, false, nil, Options{})
	wire := links(t)(c.Cable(0, c.Kind(0).DataPorts()[0]))
	root := links(t)(c.HostLink(0, "rc:0000:15"))
	for _, tt := range []struct {
		f    Fault
		want string
	}{
		{Fault{}, "no links"},
		{Fault{Links: []Link{9999999}}, "no link 9999999"},
		{Fault{Links: wire, Effect: Effect{Factor: -1}}, "below 0"},
		{Fault{Links: wire, Effect: Effect{Factor: math.NaN()}}, "below 0"},
		{Fault{Links: wire, Effect: Effect{Loss: 1}}, "loss of 1"},
		{Fault{Links: wire, FromNS: 2, UntilNS: 1}, "ends before"},
		{Fault{Links: root, Effect: Effect{Factor: 0.5}}, "the rate of n0 rc:0000:15 down is unknown"},
	} {
		if err := c.Inject(tt.f); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// A round of a probe: each transfer's time, and those that do not end are given up.
func TestTogether(t *testing.T) {
	c := dgx(t, 3, false, nil, Options{})
	ports := c.Kind(0).DataPorts()
	inject(t, c, Fault{Name: "cut", Links: links(t)(c.Cable(2, ports[1])), Effect: Effect{Down: true}})
	took, err := c.Together([]Transfer{
		{From: End{0, "gpu:0", ports[0]}, To: End{1, "gpu:0", ports[0]}, Bytes: 5e9},
		{From: End{0, "gpu:1", ports[1]}, To: End{2, "gpu:1", ports[1]}, Bytes: 5e9},
	}, second)
	if err != nil || took[0] != 100*millisecond+1050 || took[1] != 0 || c.Active() != 0 || c.Now() != second {
		t.Errorf("took %d, %d flows at %d: %v", took, c.Active(), c.Now(), err)
	}
}
