package views_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
	"github.com/topoctl/topoctl/tui/internal/views"
)

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }

const second = int64(1e9)

// watched is what is known of a host after some seconds: port i sends at (i+1) tenths of its
// rate and receives half of that; the first one has errors that count up.
func watched(t testing.TB, name string, seconds int) *state.State {
	t.Helper()
	return after(fixturetest.Topology(t, name), seconds)
}

func after(x *topo.Topology, seconds int) *state.State {
	s := state.New(state.Options{})
	s.Apply(&record.Record{Source: record.SourceHost, Topology: x})
	for k := range seconds {
		at := int64(k+1) * second
		s.Apply(&record.Record{AtNS: at, Source: record.SourceCounters, Counters: sample(x, at, k)})
	}
	return s
}

func sample(x *topo.Topology, at int64, k int) *counters.Sample {
	s := &counters.Sample{AtNS: at}
	for i := range x.Ports {
		p := &x.Ports[i]
		c := counters.Port{ID: p.ID, State: p.State, BytesPerSec: p.BytesPerSec}
		if p.BytesPerSec != nil {
			sent := uint64(k) * uint64(*p.BytesPerSec) / 10 * uint64(i%10+1)
			c.SentBytes, c.ReceivedBytes = new(sent), new(sent/2)
		}
		if i == 0 {
			c.Errors = map[string]uint64{"symbol_error": uint64(7 * k), "link_downed": 0}
		}
		s.Ports = append(s.Ports, c)
	}
	for i := range x.Netdevs {
		n := &x.Netdevs[i]
		c := counters.Port{ID: n.ID, State: n.State, BytesPerSec: n.BytesPerSec, Errors: map[string]uint64{"rx_crc_errors": 3}}
		if n.BytesPerSec != nil {
			sent := uint64(k) * uint64(*n.BytesPerSec) / 100
			c.SentBytes, c.ReceivedBytes = new(sent), new(sent*3)
		}
		s.Ports = append(s.Ports, c)
	}
	for i := range x.GPUs {
		g := counters.GPU{ID: x.GPUs[i].ID, UtilizationPercent: new(7 * i % 101)}
		if i > 0 { // of the first one the library says no more
			g.MemoryUsedBytes = new(int64(i) << 30)
			g.PCIeSentBytesPerSec, g.PCIeReceivedBytesPerSec = new(topo.Rate(i*1e9)), new(topo.Rate(i*1e8))
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s
}

var hostViews = []struct {
	name string
	make func() ui.View
}{
	{"tree", func() ui.View { return views.NewTree(&views.Cache{}) }},
	{"matrix", func() ui.View { return views.NewMatrix(&views.Cache{}) }},
	{"path", newPath},
}

func newPath() ui.View { return views.NewPath(&views.Cache{}) }
