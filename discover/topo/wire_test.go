package topo_test

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// The wire of a port whose rate is another device's says whose.
func TestWireNote(t *testing.T) {
	top := &topo.Topology{}
	for name, source := range map[string]topo.Source{"rxe0": topo.SourceDerived, "mlx5_0": topo.SourceSysfs} {
		p := topo.Port{RDMA: topo.RDMAID(name), Number: 1, State: "ACTIVE", BytesPerSec: new(topo.Rate(125_000_000)), RateRaw: "2.5 Gb/sec (1X SDR)"}
		p.ID = topo.PortID(name, 1)
		p.Facts.Set("bytes_per_sec", source, "/sys/class/net/eth0/speed")
		top.RDMADevices = append(top.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: p.RDMA}, Name: name, Software: source == topo.SourceDerived})
		top.Ports = append(top.Ports, p)
	}
	top.Derive()
	want := map[topo.LinkID]string{"port:rxe0/1": "no more than /sys/class/net/eth0/speed; the port says 2.5 Gb/sec (1X SDR)", "port:mlx5_0/1": ""}
	for id, note := range want {
		found := false
		for _, l := range top.Links {
			if l.ID != id {
				continue
			}
			if found = true; l.Note != note || l.Basis != topo.BasisRead || *l.BytesPerSec != 125_000_000 {
				t.Errorf("%s: %q %s %d, want %q", id, l.Note, l.Basis, *l.BytesPerSec, note)
			}
		}
		if !found {
			t.Errorf("no link %s", id)
		}
	}
}
