package fleet_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

var summaries sync.Map // of fixtures

// host is a host like a fixture, with a name and GUIDs of its own.
func host(tb testing.TB, fixture, name string, number int) fleet.Host {
	tb.Helper()
	got, ok := summaries.Load(fixture)
	if !ok {
		h, err := fleet.Summarize(fixture, fixturetest.Topology(tb, fixture))
		if err != nil {
			tb.Fatal(err)
		}
		got, _ = summaries.LoadOrStore(fixture, h)
	}
	h := *got.(*fleet.Host)
	h.Host, h.Name, h.Source, h.MachineID, h.Anonymous = name, name, "file "+name+".json", fmt.Sprint("id", number), false
	h.Ports = append([]fleet.Port{}, h.Ports...)
	for i := range h.Ports {
		p := &h.Ports[i]
		if p.GUID != "" {
			p.GUID = fmt.Sprintf("0x%06x%010x", number+1, i+1)
		}
		if p.NodeGUID != "" {
			p.NodeGUID = fmt.Sprintf("0x%06x%010x", number+1, i+1)
		}
		if p.MAC != "" {
			p.MAC = fmt.Sprintf("02:00:%02x:%02x:00:%02x", number/256, number%256, i)
		}
	}
	h.GPUs = append([]fleet.GPU{}, h.GPUs...)
	return h
}

// hosts are like fixtures, named n1 and so on.
func hosts(tb testing.TB, fixtures ...string) []fleet.Host {
	tb.Helper()
	var out []fleet.Host
	for i, name := range fixtures {
		out = append(out, host(tb, name, fmt.Sprintf("n%d", i+1), i))
	}
	return out
}

// many is one fixture several times.
func many(n int, fixture string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fixture
	}
	return out
}

func build(tb testing.TB, list []fleet.Host, network *fleet.Network) *fleet.Fleet {
	tb.Helper()
	f, err := fleet.Build(list, network)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// port is a port of a host by its device.
func port(tb testing.TB, h *fleet.Host, device string) *fleet.Port {
	tb.Helper()
	for i := range h.Ports {
		if h.Ports[i].Device == device {
			return &h.Ports[i]
		}
	}
	tb.Fatalf("%s has no %s", h.Host, device)
	return nil
}
