package state_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/tui/internal/state"
)

func TestPortRates(t *testing.T) {
	s := state.New(state.Options{})
	steps := []struct {
		at             int64
		ports          []counters.Port
		sent, received string
		share          string
		history        string
	}{
		{0, []counters.Port{port("net:eth0", 1000, 50)}, "?", "?", "?", "[?]"},
		{second, []counters.Port{port("net:eth0", 1000+5e8, 50)}, "500000000", "0", "0.5", "[? 5e+08]"},
		{3 * second, []counters.Port{port("net:eth0", 1000+5e8, 50+2e8)}, "0", "100000000", "0.1", "[? 5e+08 0]"},
		{4 * second, []counters.Port{port("net:eth0", 7, 9)}, "?", "?", "?", "[? 5e+08 0 ?]"}, // they began anew
		{5 * second, []counters.Port{port("net:eth0", 17, 9)}, "10", "0", "1e-08", "[? 5e+08 0 ? 10]"},
		{5 * second, []counters.Port{port("net:eth0", 18, 9)}, "?", "?", "?", "[? 5e+08 0 ? 10 ?]"}, // no time between them
		{6 * second, nil, "?", "?", "?", "[? 5e+08 0 ? 10 ? ?]"},
		{7 * second, []counters.Port{port("net:eth0", 1e9, 9)}, "?", "?", "?", "[? 5e+08 0 ? 10 ? ? ?]"}, // it was not seen meanwhile
		{8 * second, []counters.Port{{ID: "net:eth0", SentBytes: ptr(uint64(2e9))}}, "1000000000", "?", "?", "[? 5e+08 0 ? 10 ? ? ? 1e+09]"},
	}
	for i, x := range steps {
		s.Apply(sample(x.at, x.ports...))
		p := s.Ports["net:eth0"]
		sent, received := p.SentBytesPerSec, p.ReceivedBytesPerSec
		share := "?"
		if v, known := counters.Share(p.Busy(), p.BytesPerSec); known {
			share = fmt.Sprint(v)
		}
		if rate(sent) != x.sent || rate(received) != x.received || share != x.share || values(&p.Sent) != x.history {
			t.Errorf("step %d: sent %s, received %s, share %s, history %s; want %+v", i, rate(sent), rate(received), share, values(&p.Sent), x)
		}
	}
}

// A port that is gone is forgotten after a minute, and one that has come is known at once.
func TestPortsComeAndGo(t *testing.T) {
	s := state.New(state.Options{})
	for at := range int64(100) {
		ports := []counters.Port{port("net:eth1", uint64(at), 0)}
		if at < 10 {
			ports = append(ports, port("net:eth0", uint64(at), 0))
		}
		s.Apply(sample(at*second, ports...))
		if there := s.Ports["net:eth0"] != nil; there != (at < 9+60) {
			t.Fatalf("after %d s: eth0 is there: %v", at, there)
		}
		if p := s.Ports["net:eth0"]; p != nil && at >= 10 && p.SentBytesPerSec != nil {
			t.Fatalf("after %d s: a port that is not there sends %d", at, *p.SentBytesPerSec)
		}
	}
	if p := s.Ports["net:eth1"]; p == nil || rate(p.SentBytesPerSec) != "1" {
		t.Errorf("eth1: %+v", p)
	}
}

func TestErrorsMove(t *testing.T) {
	s := state.New(state.Options{})
	at := func(sec int64, crc, drops uint64) *state.Port {
		p := port("net:eth0", 0, 0)
		p.Errors = map[string]uint64{"rx_crc_errors": crc, "tx_dropped": drops}
		s.Apply(sample(sec*second, p))
		return s.Ports["net:eth0"]
	}
	if p := at(0, 1000, 5); len(p.RecentErrors) > 0 {
		t.Errorf("what was counted before counts: %v", p.RecentErrors)
	}
	for sec := int64(1); sec <= 10; sec++ {
		at(sec, 1000+uint64(sec), 5)
	}
	if p := at(11, 1010, 7); p.RecentErrors["rx_crc_errors"] != 10 || p.RecentErrors["tx_dropped"] != 2 || len(p.RecentErrors) != 2 {
		t.Errorf("moving: %v", p.RecentErrors)
	}
	frozen := s.Clone()
	s.Tick(11*second + second/2)
	s.Apply(sample(11*second+second/2, func() counters.Port { // a move that joins the last one
		p := port("net:eth0", 0, 0)
		p.Errors = map[string]uint64{"rx_crc_errors": 1010, "tx_dropped": 8}
		return p
	}()))
	if p := at(65, 1010, 8); p.RecentErrors["rx_crc_errors"] != 5 || p.RecentErrors["tx_dropped"] != 3 {
		t.Errorf("after 65 s: %v, want what moved in the last minute", p.RecentErrors)
	}
	s.Tick(71 * second)
	if p := s.Ports["net:eth0"]; len(p.RecentErrors) > 0 {
		t.Errorf("a minute later: %v", p.RecentErrors)
	}
	if m := frozen.Ports["net:eth0"].RecentErrors; m["rx_crc_errors"] != 10 || m["tx_dropped"] != 2 {
		t.Errorf("the frozen one has changed: %v", m)
	}
	if p := at(72, 3, 8); len(p.RecentErrors) > 0 {
		t.Errorf("a counter that went back has moved: %v", p.RecentErrors)
	}
}

// Counters that do not come leave gaps, and nothing that is shown as of now.
func TestLateCounters(t *testing.T) {
	s := state.New(state.Options{})
	gpu := func(at int64) *record.Record {
		r := sample(at, port("net:eth0", uint64(at), 0))
		r.Counters.GPUs = []counters.GPU{{ID: "gpu:0", UtilizationPercent: ptr(40)}}
		return r
	}
	for at := range int64(5) {
		s.Apply(gpu(at * second))
		s.Tick(at*second + second/2)
	}
	for at := int64(4) * second; at <= 20*second; at += second / 4 {
		s.Tick(at)
	}
	x, _ := s.SourceOf(record.SourceCounters)
	if x.Status != record.StatusWaiting || x.LastNS != 4*second {
		t.Errorf("source %+v", x)
	}
	p, g := s.Ports["net:eth0"], s.GPUs["gpu:0"]
	if p.SentBytesPerSec != nil || g.UtilizationPercent != nil {
		t.Errorf("old figures are shown as of now: %v, %v", p.SentBytesPerSec, g.UtilizationPercent)
	}
	if got, want := values(&p.Sent), "[? 1e+09 1e+09 1e+09 1e+09"; len(got) < len(want) || got[:len(want)] != want || p.Sent.Len() != 5+16 {
		t.Errorf("history %s", got)
	}
	if n := kinds(s)[watch.SourceLost]; n != 1 {
		t.Errorf("%d times lost: %+v", n, s.Events)
	}
	s.Apply(gpu(21 * second))
	x, _ = s.SourceOf(record.SourceCounters)
	if x.Status != record.StatusOK || rate(p.SentBytesPerSec) != "1000000000" || kinds(s)[watch.SourceBack] != 1 {
		t.Errorf("back: %+v, %s, %v", x, rate(p.SentBytesPerSec), kinds(s))
	}
}

// A host that has not changed brings nothing: that is not late.
func TestQuietHostIsNotLate(t *testing.T) {
	s := state.New(state.Options{})
	host := &record.Record{Source: record.SourceHost, Topology: fixturetest.Topology(t, "cpu-2eth")}
	for _, at := range []int64{0, 1, 2} {
		host.AtNS = at * second
		s.Apply(host)
	}
	s.Tick(3600 * second)
	if x, _ := s.SourceOf(record.SourceHost); x.Status != record.StatusOK {
		t.Errorf("%+v", x)
	}
}

func kinds(s *state.State) map[watch.Kind]int {
	out := map[watch.Kind]int{}
	for i := range s.Events {
		out[s.Events[i].Kind]++
	}
	return out
}

// Counters of a device that another one's name goes to are not compared with those of the
// other: an interface was renamed, a GPU fell off the bus and the next one took its number.
func TestDevicesReplaced(t *testing.T) {
	x, y := *fixturetest.Topology(t, "dgx-h100"), *fixturetest.Topology(t, "dgx-h100")
	for _, t := range []*topo.Topology{&x, &y} {
		t.Netdevs, t.RDMADevices, t.GPUs = slices.Clone(t.Netdevs), slices.Clone(t.RDMADevices), slices.Clone(t.GPUs)
	}
	x.Netdevs[0].Index, y.Netdevs[0].Index = ptr(2), ptr(99)
	y.RDMADevices[0].PCI, y.RDMADevices[0].NodeGUID = y.RDMADevices[1].PCI, y.RDMADevices[1].NodeGUID
	y.GPUs[0].BDF = y.GPUs[1].BDF
	moved := []topo.ID{x.Netdevs[0].ID, x.Ports[0].ID}
	stays := []topo.ID{x.Netdevs[1].ID, x.Ports[1].ID}
	s := state.New(state.Options{})
	look := func(at int64, sent uint64) {
		r := sample(at * second)
		for _, id := range append(slices.Clone(moved), stays...) {
			p := port(id, sent, 0)
			p.Errors = map[string]uint64{"rx_crc_errors": sent}
			r.Counters.Ports = append(r.Counters.Ports, p)
		}
		for _, g := range x.GPUs[:2] {
			r.Counters.GPUs = append(r.Counters.GPUs, counters.GPU{ID: g.ID, NVLinkSentBytes: &sent})
		}
		s.Apply(r)
	}
	host := func(at int64, x *topo.Topology) {
		s.Apply(&record.Record{AtNS: at * second, Source: record.SourceHost, Topology: x})
	}
	host(0, &x)
	look(1, 100)
	look(2, 200)
	host(2, &y)
	look(3, 1e12)
	for _, id := range moved {
		if p := s.Ports[id]; p.SentBytesPerSec != nil || len(p.RecentErrors) > 0 || values(&p.Sent) != "[?]" {
			t.Errorf("%s: sends %s, %v move, %s", id, rate(p.SentBytesPerSec), p.RecentErrors, values(&p.Sent))
		}
	}
	for _, id := range stays {
		if p := s.Ports[id]; rate(p.SentBytesPerSec) != "999999999800" || len(p.RecentErrors) != 1 {
			t.Errorf("%s: sends %s, %v move", id, rate(p.SentBytesPerSec), p.RecentErrors)
		}
	}
	if a, b := values(&s.GPUs[x.GPUs[0].ID].NVLinkSent), values(&s.GPUs[x.GPUs[1].ID].NVLinkSent); a != "[?]" || b != "[? 100 9.999999998e+11]" {
		t.Errorf("the GPUs send %s and %s", a, b)
	}
	look(4, 1e12+500)
	if got := rate(s.Ports[moved[0]].SentBytesPerSec); got != "500" {
		t.Errorf("then %s sends %s", moved[0], got)
	}
}
