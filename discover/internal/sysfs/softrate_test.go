package sysfs

import (
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

// A device without hardware carries no more than the interface that it runs on,
// whatever rate of InfiniBand's the kernel rounds that up to.
func TestSoftwareRate(t *testing.T) {
	for _, tt := range []struct {
		what, rate, speed string
		want              topo.Rate
		where             string
		source            topo.Source
	}{
		{"rounded up by the kernel", "2.5 Gb/sec (1X SDR)", "1000", 125_000_000, "/sys/class/net/eth0/speed", topo.SourceDerived},
		{"what the interface does", "25 Gb/sec (1X EDR)", "25000", 3_125_000_000, "rate", topo.SourceSysfs},
		{"a faster interface", "25 Gb/sec (1X EDR)", "100000", 3_125_000_000, "rate", topo.SourceSysfs},
		{"an interface without a speed", "2.5 Gb/sec (1X SDR)", "-1", 312_500_000, "rate", topo.SourceSysfs},
	} {
		m := newMachine()
		rxe := m.attach("sys/devices/virtual", "infiniband", "rxe0", "node_type", "1: CA", "fw_ver", "", "parent", "eth0")
		m.dir(rxe+"/ports/1", "state", "4: ACTIVE", "phys_state", "5: LinkUp", "link_layer", "Ethernet", "rate", tt.rate)
		virtio := m.pcie("0000:97", "0000:97:03.0", "0x020000", "0x1af4", "0x1041", "1", "4-7") + "/virtio2"
		m.netdev(virtio, "eth0", "speed", tt.speed)
		p := portOf(t, m.read(t), "rxe0", 1)
		from, _ := p.Facts.Get("bytes_per_sec")
		if p.BytesPerSec == nil || *p.BytesPerSec != tt.want || from.Where != tt.where || from.Source != tt.source || p.RateRaw != tt.rate {
			t.Errorf("%s: %+v from %v, want %d from %s", tt.what, p, from, tt.want, tt.where)
		}
	}
	// siw names its interface by its GID alone.
	m := newMachine()
	siw := m.attach("sys/devices/virtual", "infiniband", "siw0", "node_type", "4: RNIC")
	m.dir(siw+"/ports/1", "state", "4: ACTIVE", "link_layer", "Ethernet", "rate", "2.5 Gb/sec (1X SDR)")
	m.dir(siw+"/ports/1/gids", "0", "b8ce:f600:0001:0000:0000:0000:0000:0000")
	m.dir(siw+"/ports/1/gid_attrs/ndevs", "0", "eth0")
	m.netdev(m.pcie("0000:97", "0000:97:03.0", "0x020000", "0x1af4", "0x1041", "1", "4-7"), "eth0", "speed", "100")
	if p := portOf(t, m.read(t), "siw0", 1); *p.BytesPerSec != 12_500_000 {
		t.Errorf("siw on 100 Mb/s: %d", *p.BytesPerSec)
	}
	// A card's port is its own, and what it says is believed.
	m = newMachine()
	nic := m.pcie("0000:97", "0000:97:05.0", "0x020000", "0x15b3", "0x1021", "1", "4-7")
	m.rdma(nic, "mlx5_5", "Ethernet", 1)
	m.netdev(nic, "eth5", "speed", "1000")
	if p := portOf(t, m.read(t), "mlx5_5", 1); *p.BytesPerSec != 50_000_000_000 {
		t.Errorf("a card's port: %d", *p.BytesPerSec)
	}
}
