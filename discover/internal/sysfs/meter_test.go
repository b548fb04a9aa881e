package sysfs

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/hosttree"
)

// meterTree has a port, an interface and a PCIe function with the given files.
func meterTree(t testing.TB, files map[string]string) *hosttree.Mem {
	t.Helper()
	tree := hosttree.NewMem()
	all := map[string]string{
		"sys/devices/pci0/0000:01:00.0/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
		"sys/devices/pci0/0000:01:00.0/net/eth0/operstate":              "up\n",
		"sys/devices/pci0/0000:01:00.0/current_link_speed":              "32.0 GT/s PCIe\n",
		"sys/devices/pci0/0000:01:00.0/current_link_width":              "16\n",
	}
	maps.Copy(all, files)
	for name, text := range all {
		if err := tree.AddFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"sys/class/infiniband/mlx5_0":       "../../devices/pci0/0000:01:00.0/infiniband/mlx5_0",
		"sys/class/net/eth0":                "../../devices/pci0/0000:01:00.0/net/eth0",
		"sys/bus/pci/devices/0000:01:00.0/": "../../../devices/pci0/0000:01:00.0",
	} {
		if err := tree.AddSymlink(strings.TrimSuffix(name, "/"), target); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

const (
	portAt = "sys/devices/pci0/0000:01:00.0/infiniband/mlx5_0/ports/1/"
	netAt  = "sys/devices/pci0/0000:01:00.0/net/eth0/"
	pciAt  = "sys/devices/pci0/0000:01:00.0/"
)

// meterTopology names what meterTree has.
func meterTopology() *topo.Topology {
	bdf := topo.BDF{Bus: 1}
	return &topo.Topology{
		PCIDevices: []topo.PCIDevice{{Node: topo.Node{ID: topo.PCIID(bdf)}, BDF: bdf, Link: &topo.PCILink{}}},
		NICs:       []topo.NIC{{Functions: []topo.ID{topo.PCIID(bdf)}}},
		Ports:      []topo.Port{{Node: topo.Node{ID: "port:mlx5_0/1"}, RDMA: "rdma:mlx5_0", Number: 1}},
		Netdevs:    []topo.Netdev{{Node: topo.Node{ID: "net:eth0"}, Name: "eth0"}},
	}
}

// readAll reads each meter of a tree once.
func readAll(tree hosttree.Tree) (port, netdev *counters.Port, link *counters.Link, notes []string) {
	for _, m := range Meters(tree, meterTopology()) {
		out := m.Read()
		if out.Note != "" {
			notes = append(notes, out.Note)
		}
		switch {
		case out.Link != nil:
			link = out.Link
		case m.ID == "net:eth0":
			netdev = out.Port
		default:
			port = out.Port
		}
	}
	return port, netdev, link, notes
}

func TestMeterPort(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  counters.Port
	}{
		{"nothing but a state", nil, counters.Port{}},
		{"words of four octets", map[string]string{
			"rate": "400 Gb/sec (4X NDR)\n", "counters/port_xmit_data": "250\n", "counters/port_rcv_data": "1\n",
			"counters/port_xmit_packets": "7\n", "counters/port_rcv_packets": "8\n", "counters/symbol_error": "3\n",
			"counters/port_xmit_wait": "99\n", "hw_counters/out_of_sequence": "99\n", "hw_counters/packet_seq_err": "0\n",
			"hw_counters/lifespan": "10\n", "hw_counters/tx_bytes": "5\n",
		}, counters.Port{
			BytesPerSec: new(topo.Rate(50e9)), SentBytes: n(1000), ReceivedBytes: n(4), SentPackets: n(7), ReceivedPackets: n(8),
			Errors: map[string]uint64{"symbol_error": 3, "packet_seq_err": 0},
		}},
		{"efa: octets", map[string]string{
			"hw_counters/tx_bytes": "1000\n", "hw_counters/rx_bytes": "2000\n", "hw_counters/tx_pkts": "1\n",
			"hw_counters/rx_pkts": "2\n", "hw_counters/rx_drops": "4\n",
		}, counters.Port{SentBytes: n(1000), ReceivedBytes: n(2000), SentPackets: n(1), ReceivedPackets: n(2), Errors: map[string]uint64{"rx_drops": 4}}},
		{"irdma: IPv4 and IPv6", map[string]string{
			"hw_counters/ip4OutOctets": "1000\n", "hw_counters/ip6OutOctets": "24\n", "hw_counters/ip4InOctets": "5\n", "hw_counters/ip6InOctets": "x\n",
		}, counters.Port{SentBytes: n(1024)}},
		{"rxe: packets", map[string]string{"hw_counters/sent_pkts": "5\n", "hw_counters/rcvd_pkts": "6\n"},
			counters.Port{SentPackets: n(5), ReceivedPackets: n(6)}},
		{"an old counter that is full", map[string]string{"counters/port_xmit_data": "4294967295\n", "counters/port_rcv_data": "4294967294\n"},
			counters.Port{ReceivedBytes: n(4 * 4294967294)}},
		{"no performance agent", map[string]string{"counters/port_xmit_data": "N/A (no PMA)\n"}, counters.Port{}},
		{"more than a counter holds", map[string]string{"counters/port_xmit_data": "18446744073709551615\n"}, counters.Port{}},
		{"an error counter in both places", map[string]string{"counters/link_downed": "1\n", "hw_counters/link_downed": "2\n"},
			counters.Port{Errors: map[string]uint64{"link_downed": 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			for name, text := range tt.files {
				files[portAt+name] = text
			}
			got, _, _, _ := readAll(meterTree(t, files))
			tt.want.ID, tt.want.State = "port:mlx5_0/1", "ACTIVE"
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestMeterNetdevAndLink(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	_, netdev, link, notes := readAll(meterTree(t, map[string]string{
		netAt + "speed": "100000\n", netAt + "carrier_down_count": "2\n", netAt + "mtu": "9000\n",
		netAt + "statistics/tx_bytes": "1\n", netAt + "statistics/rx_bytes": "2\n", netAt + "statistics/rx_dropped": "77\n",
		netAt + "statistics/rx_crc_errors": "5\n",
	}))
	want := &counters.Port{ID: "net:eth0", State: "up", BytesPerSec: new(topo.Rate(12.5e9)), SentBytes: n(1), ReceivedBytes: n(2),
		Errors: map[string]uint64{"carrier_down_count": 2, "rx_crc_errors": 5}}
	if diff := cmp.Diff(want, netdev); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(&counters.Link{ID: "pci:0000:01:00.0", SpeedMTs: new(32000), Width: new(16)}, link); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(notes) > 0 {
		t.Errorf("notes %q", notes)
	}
}

// What makes no sense costs the value and one line for each device, which quotes it.
func TestMeterBrokenFiles(t *testing.T) {
	huge := strings.Repeat("1", maxAttr+1)
	port, netdev, link, notes := readAll(meterTree(t, map[string]string{
		portAt + "counters/port_xmit_data": "12 apples\n", portAt + "counters/port_rcv_data": "-1\n", portAt + "counters/symbol_error": "\x1b[31m7\n",
		portAt + "counters/port_rcv_packets": "1_000\n", portAt + "rate": "fast\n", portAt + "counters/link_downed": "2\n",
		netAt + "statistics/tx_bytes": huge, netAt + "statistics/rx_bytes": "", netAt + "operstate": "sideways\n", netAt + "speed": "-1\n",
		pciAt + "current_link_speed": "Unknown\n", pciAt + "current_link_width": "255\n",
	}))
	if diff := cmp.Diff(&counters.Port{ID: "port:mlx5_0/1", State: "ACTIVE", Errors: map[string]uint64{"link_downed": 2}}, port); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(&counters.Port{ID: "net:eth0"}, netdev); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(&counters.Link{ID: "pci:0000:01:00.0"}, link); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(notes) != 2 || !strings.HasPrefix(notes[0], "port:mlx5_0/1: rate: ") || !strings.HasSuffix(notes[0], "(and 4 more)") ||
		!strings.HasPrefix(notes[1], `net:eth0: operstate: "sideways"`) {
		t.Errorf("notes %q", notes)
	}
	for _, note := range notes {
		if strings.ContainsRune(note, 0x1b) || len(note) > 200 {
			t.Errorf("note %q", note)
		}
	}
}

// A device that goes away says so, and is back when it is.
func TestMeterVanishes(t *testing.T) {
	top := meterTopology()
	top.PCIDevices = nil
	full, empty := meterTree(t, map[string]string{netAt + "statistics/tx_bytes": "9\n"}), hosttree.NewMem()
	tree := &switchTree{Tree: full}
	meters := Meters(tree, top)
	for i, m := range meters {
		if out := m.Read(); out.Note != "" || out.Port == nil {
			t.Errorf("%s: %+v", m.ID, out)
		}
		meters[i] = m
	}
	tree.Tree = empty
	for _, m := range meters {
		out := m.Read()
		if !strings.Contains(out.Note, "state: no such file") || out.Port.State != "" || out.Port.SentBytes != nil {
			t.Errorf("%s gone: note %q, %+v", m.ID, out.Note, out.Port)
		}
	}
	for _, m := range Meters(tree, top) {
		if out := m.Read(); out.Port != nil || !strings.Contains(out.Note, string(m.ID)) {
			t.Errorf("%s never there: %+v", m.ID, out)
		}
	}
	tree.Tree = full
	if out := meters[1].Read(); out.Note != "" || out.Port.SentBytes == nil || *out.Port.SentBytes != 9 {
		t.Errorf("back: %+v", out)
	}
}

type switchTree struct{ hosttree.Tree }

// Which PCIe links are read: of GPUs and NICs, and of the bridges above them.
func TestLinksToWatch(t *testing.T) {
	top := &topo.Topology{
		PCIDevices: []topo.PCIDevice{
			{Node: topo.Node{ID: "pci:root"}, Parent: "hb:0"}, {Node: topo.Node{ID: "pci:up"}, Parent: "pci:root"},
			{Node: topo.Node{ID: "pci:down"}, Parent: "pci:up"}, {Node: topo.Node{ID: "pci:gpu"}, Parent: "pci:down"},
			{Node: topo.Node{ID: "pci:nic"}, Parent: "pci:up"}, {Node: topo.Node{ID: "pci:disk"}, Parent: "pci:other"},
			{Node: topo.Node{ID: "pci:loop"}, Parent: "pci:loop"},
		},
		GPUs: []topo.GPU{{PCI: "pci:gpu"}, {}},
		NICs: []topo.NIC{{Functions: []topo.ID{"pci:nic", "pci:loop"}}},
	}
	got := linksToWatch(top, topo.NewIndex(top))
	for id, want := range map[topo.ID]bool{"pci:root": true, "pci:up": true, "pci:down": true, "pci:gpu": true, "pci:nic": true, "pci:disk": false, "pci:other": false} {
		if got[id] != want {
			t.Errorf("%s: %v", id, got[id])
		}
	}
}

func FuzzCounter(f *testing.F) {
	for _, s := range []string{"0", "18446744073709551615", "18446744073709551616", "-1", "+1", "1_0", "0x10", " 1", "N/A (no PMA)", "1e3", "٣"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseCounter(s)
		if err != nil || n == nil {
			return
		}
		if strings.TrimLeft(s, "0") != strings.TrimLeft(strconv.FormatUint(*n, 10), "0") {
			t.Errorf("%q is %d", s, *n)
		}
	})
}
