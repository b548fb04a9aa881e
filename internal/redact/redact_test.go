package redact_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/redact"
)

// identified is a host with a value in every place that can identify it.
func identified() *topo.Topology {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := topo.BDF{Bus: 0x18}
	return &topo.Topology{
		Tool:       topo.Tool{Name: "topoctl", Version: "1.2.3"},
		CapturedAt: &now,
		Host: topo.Host{
			Name: "gpu12.dc1.example.com", MachineIDSHA256: strings.Repeat("ab", 32), Kernel: "6.8.0-49-generic",
			Product: "DGX H100", Lacks: []string{"nothing of gpu12 is hidden"},
		},
		GPUs: []topo.GPU{{
			Node: topo.Node{ID: "gpu:0", Kind: topo.KindGPU, Evidence: "sys/bus/pci/devices/0000:18:00.0", Facts: topo.Facts{{Name: "uuid", Source: "nvml", Where: "nvmlDeviceGetUUID"}}},
			BDF:  &b, Vendor: "nvidia", Model: "NVIDIA H100 80GB HBM3", UUID: "GPU-3c2b1a09-1111-2222-3333-444455556666", Serial: "1320922012345",
			NVLinkFabric: &topo.NVLinkFabric{ClusterUUID: "0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a", Clique: 7},
			MIG:          &topo.MIG{Enabled: true, Instances: []topo.MIGInstance{{UUID: "MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", Profile: "1g.10gb"}}},
			P2P:          map[topo.ID]string{"gpu:1": "ok"},
		}},
		RDMADevices: []topo.RDMADevice{{
			Node: topo.Node{ID: "rdma:mlx5_0", Kind: topo.KindRDMA}, Name: "mlx5_0", Firmware: "28.39.1002", Board: "MT_0000000838",
			NodeGUID: "b859:9f03:0029:1a2a", SysImageGUID: "b859:9f03:0029:1a2a",
		}},
		Ports: []topo.Port{{
			Node: topo.Node{ID: "port:mlx5_0/1", Kind: topo.KindPort}, RDMA: "rdma:mlx5_0", Number: 1,
			GIDs: []topo.GID{
				{Index: 0, GID: "fe80:0000:0000:0000:ba59:9fff:fe29:1a2a", Type: "RoCE v2", Netdev: "eth0"},
				{Index: 1, GID: "0000:0000:0000:0000:0000:ffff:0a01:0203", Type: "RoCE v2", Netdev: "eth0"},
				{Index: 2, GID: "fe80:0000:0000:0000:b859:9f03:0029:1a2a", Type: "IB/RoCE v1"},
			},
		}},
		Netdevs: []topo.Netdev{
			{
				Node: topo.Node{ID: "net:eth0", Kind: topo.KindNetdev}, Name: "eth0", Driver: "mlx5_core", MAC: "b8:59:9f:29:1a:2a", PhysSwitch: "2a1a290003 9fb8",
				Addresses: []string{"10.1.2.3/24", "fe80::ba59:9fff:fe29:1a2a/64", "2a00:1450:4001:81b::5/64"},
				Routes:    []topo.Route{{Dst: "default", Gateway: "10.1.2.1", Metric: 100}, {Dst: "10.1.2.0/24"}, {Dst: "10.0.0.0/8", Gateway: "10.1.2.254"}},
			},
			{Node: topo.Node{ID: "net:enxb8599f291a2b"}, Name: "enxb8599f291a2b", MAC: "b8:59:9f:29:1a:2b", PhysSwitch: "2a1a2900039fb8", Addresses: []string{"10.4.0.9/16", "10.4.77.9/16"}},
			{Node: topo.Node{ID: "net:lo"}, Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []string{"127.0.0.1/8", "::1/128"}},
		},
		NVMes:    []topo.NVMe{{Node: topo.Node{ID: "nvme:nvme0"}, Name: "nvme0", Model: "SAMSUNG MZQL", Serial: "S64HNE0R512345"}},
		Warnings: []topo.Warning{{Code: topo.CodeConflict, Subject: "net:eth0", Detail: "sysfs says b8:59:9f:29:1a:2a, netlink B8:59:9F:29:1A:2B on GPU12", Evidence: "sys/class/net/enxb8599f291a2b/address"}},
		Sources:  []topo.SourceReport{{Source: "netlink", Status: "ok", Detail: "10.1.2.3 answered"}},
	}
}

func TestRedactTopology(t *testing.T) {
	in := identified()
	r := redact.New(in)
	got := r.Topology(in)
	want := identified()
	want.Host.Name, want.Host.MachineIDSHA256 = "host-1", strings.Repeat("0", 63)+"1"
	want.Host.Lacks[0] = "nothing of host-1 is hidden"
	g := &want.GPUs[0]
	g.UUID, g.Serial = "GPU-00000000-0000-0000-0000-000000000001", "SN00000001"
	g.NVLinkFabric = &topo.NVLinkFabric{ClusterUUID: "00000000-0000-0000-0000-000000000003", Clique: 7}
	g.MIG.Instances[0].UUID = "MIG-00000000-0000-0000-0000-000000000002"
	want.RDMADevices[0].NodeGUID, want.RDMADevices[0].SysImageGUID = "0200:0000:0000:0001", "0200:0000:0000:0001"
	gids := want.Ports[0].GIDs
	gids[0].GID = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
	gids[1].GID = "0000:0000:0000:0000:0000:ffff:c000:0203"
	gids[2].GID = "fe80:0000:0000:0000:0200:0000:0000:0001"
	eth, enx := &want.Netdevs[0], &want.Netdevs[1]
	eth.MAC, eth.PhysSwitch = "02:00:00:00:00:01", "2a1a290003 9fb8"
	eth.Addresses = []string{"192.0.2.3/24", "fe80::ff:fe00:1/64", "2001:db8:0:1::5/64"}
	eth.Routes = []topo.Route{{Dst: "default", Gateway: "192.0.2.1", Metric: 100}, {Dst: "192.0.2.0/24"}, {Dst: "198.51.100.0/24", Gateway: "192.0.2.254"}}
	enx.ID, enx.Name, enx.MAC, enx.PhysSwitch = "net:enx020000000002", "enx020000000002", "02:00:00:00:00:02", "00000000000001"
	enx.Addresses = []string{"203.0.113.9/24", "203.0.113.10/24"}
	want.NVMes[0].Serial = "SN00000002"
	want.Warnings[0].Detail = "sysfs says 02:00:00:00:00:01, netlink 02:00:00:00:00:02 on host-1"
	want.Warnings[0].Evidence = "sys/class/net/enx020000000002/address"
	want.Sources[0].Detail = "192.0.2.3 answered"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(identified(), in); diff != "" {
		t.Errorf("the original is changed:\n%s", diff)
	}
	again := redact.New(got).Topology(got)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("redacted twice:\n%s", diff)
	}
}

// TestRedactNames: names that hold the host's name lose it wherever they stand, as do zones of
// addresses; the drive that udev calls by its LVM identifier loses that.
func TestRedactNames(t *testing.T) {
	in := &topo.Topology{
		Host: topo.Host{Name: "gpu12"},
		Netdevs: []topo.Netdev{
			{Node: topo.Node{ID: "net:br-gpu12"}, Name: "br-gpu12", MAC: "02:00:00:00:5f:aa"},
			{Node: topo.Node{ID: "net:enxb8599f291a2b"}, Name: "enxb8599f291a2b", Master: "br-gpu12", Routes: []topo.Route{{Dst: "default", Gateway: "fe80::1%enxb8599f291a2b"}}},
			{Node: topo.Node{ID: "net:gpu123"}, Name: "gpu123"},
		},
		NVMes: []topo.NVMe{{Node: topo.Node{ID: "nvme:nvme0"}, Name: "nvme0", Model: "LVM PV hYx0aB-1234-abcd-EFGH-ijkl-MNOP-qrstUV on /dev/nvme0n1"}},
	}
	want := &topo.Topology{
		Host: topo.Host{Name: "host-1"},
		Netdevs: []topo.Netdev{
			{Node: topo.Node{ID: "net:br-host-1"}, Name: "br-host-1", MAC: "02:00:00:00:00:01"},
			{Node: topo.Node{ID: "net:enx020000000002"}, Name: "enx020000000002", Master: "br-host-1", Routes: []topo.Route{{Dst: "default", Gateway: "fe80::1%enx020000000002"}}},
			{Node: topo.Node{ID: "net:gpu123"}, Name: "gpu123"},
		},
		NVMes: []topo.NVMe{{Node: topo.Node{ID: "nvme:nvme0"}, Name: "nvme0", Model: "LVM PV 000000-0000-0000-0000-0000-0000-000001 on /dev/nvme0n1"}},
	}
	if diff := cmp.Diff(want, redact.New(in).Topology(in)); diff != "" {
		t.Error(diff)
	}
}

func TestRedactText(t *testing.T) {
	r := redact.New(identified())
	for in, want := range map[string]string{
		// What is known, in every spelling.
		"b8:59:9f:29:1a:2a\n":                                         "02:00:00:00:00:01\n",
		"B8:59:9F:29:1A:2A\n":                                         "02:00:00:00:00:01\n",
		"addr:b8:59:9f:29:1a:2a:":                                     "addr:02:00:00:00:00:01:",
		"node:b8:59:9f:29:1a:2a, x":                                   "node:02:00:00:00:00:01, x",
		"b8599f291a2a":                                                "020000000001",
		"b859:9f03:0029:1a2a\n":                                       "0200:0000:0000:0001\n",
		"0xB8599F0300291A2A":                                          "0x0200000000000001",
		"fe80:0000:0000:0000:ba59:9fff:fe29:1a2a":                     "fe80:0000:0000:0000:0000:00ff:fe00:0001",
		"fe80::ba59:9fff:fe29:1a2a%eth0":                              "fe80::ff:fe00:1%eth0",
		"[2a00:1450:4001:81b::5]:443":                                 "[2001:db8:0:1::5]:443",
		"10.1.2.3/24, 10.1.2.254.":                                    "192.0.2.3/24, 192.0.2.254.",
		"00:00:10:29:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:29:1a:2a": "00:00:10:29:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:00:01",
		"GPU UUID: \tGPU-3C2B1A09-1111-2222-3333-444455556666\n":      "GPU UUID: \tGPU-00000000-0000-0000-0000-000000000001\n",
		"switch 2a1a2900039fb8":                                       "switch 00000000000001",
		"Serial: 1320922012345, s64hne0r512345":                       "Serial: SN00000001, SN00000002",
		"root@gpu12.dc1.example.com gpu12-bmc":                        "root@host-1 host-1-bmc",
		"search dc1.example.com":                                      "search example.invalid",
		`{"dst":"10.0.0.0/8"}`:                                        `{"dst":"198.51.100.0/8"}`,
		"sys/class/infiniband/rocexb8599f0300291a2a":                  "sys/class/infiniband/rocex0200000000000001",
		// What is not known, but can be nothing else.
		"52:54:00:12:34:56":                     "02:00:00:00:00:03",
		"UUID=deadbeef-0000-0000-0000-00000001": "UUID=deadbeef-0000-0000-0000-00000001",
		"deadbeef-1234-5678-9abc-def012345678":  "00000000-0000-0000-0000-000000000004",
		// What stays.
		"0000:18:00.0 10000:e1:00.0 pcie:0000:18:00.0 hb:0000:17":      "0000:18:00.0 10000:e1:00.0 pcie:0000:18:00.0 hb:0000:17",
		"sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/vendor":      "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/vendor",
		"00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 01:00:5e:00:00:01":        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 01:00:5e:00:00:01",
		"0000:0000:0000:0000 ::1 :: 127.0.0.1 ff02::1 169.254.169.254": "0000:0000:0000:0000 ::1 :: 127.0.0.1 ff02::1 169.254.169.254",
		"nvidia 570.124.06 28.39.1002 96.00.74.00.01 1.2.3.4":          "nvidia 570.124.06 28.39.1002 96.00.74.00.01 1.2.3.4",
		"ffffffff,ffffffff 0x00000000fe000000 12:30:45 std::vector<a>": "ffffffff,ffffffff 0x00000000fe000000 12:30:45 std::vector<a>",
		"pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00":        "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00",
		"gpu123 mygpu12": "gpu123 mygpu12",
		"":               "",
		":: ::: : a:":    ":: ::: : a:",
	} {
		if got := string(r.Text([]byte(in))); got != want {
			t.Errorf("%q:\n got %q\nwant %q", in, got, want)
		}
	}
}

// TestRedactHostWords: a host that is called as its devices are must not make
// them unreadable.
func TestRedactHostWords(t *testing.T) {
	for name, text := range map[string]string{
		"nvidia": "DRIVER=nvidia", "mlx5_0": "mlx5_0", "1234": "1234", "h1": "h1", "localhost": "localhost",
	} {
		in := identified()
		in.Host.Name = name
		r := redact.New(in)
		if got := string(r.Text([]byte(text))); got != text {
			t.Errorf("host %s: %q became %q", name, text, got)
		}
		if got := r.Topology(in).Host.Name; got == name && name != "localhost" {
			t.Errorf("host name %s stays", name)
		}
	}
}

func TestRedactReports(t *testing.T) {
	r := redact.New(identified())
	rep := &replies.NetlinkReport{
		Links:     []replies.Link{{Name: "eth0", MAC: "b8:59:9f:29:1a:2a", PermMAC: "b8:59:9f:29:1a:2a", ParentDev: "0000:18:00.0", VFs: []replies.VF{{MAC: "b8:59:9f:29:1a:77"}}}},
		Addresses: []replies.Address{{CIDR: "10.1.2.3/24"}, {CIDR: "172.16.5.6/12"}, {CIDR: "172.17.5.6/12"}},
		Routes:    []replies.Route{{Dst: "172.16.0.0/12"}, {Dst: "default", Gateway: "172.31.0.1"}},
		RDMA:      []replies.RDMA{{Name: "mlx5_0", NodeGUID: "b859:9f03:0029:1a2a"}},
	}
	want := &replies.NetlinkReport{
		Links:     []replies.Link{{Name: "eth0", MAC: "02:00:00:00:00:01", PermMAC: "02:00:00:00:00:01", ParentDev: "0000:18:00.0", VFs: []replies.VF{{MAC: "02:00:00:00:00:03"}}}},
		Addresses: []replies.Address{{CIDR: "192.0.2.3/24"}, {CIDR: "198.18.0.6/24"}, {CIDR: "198.18.0.7/24"}},
		Routes:    []replies.Route{{Dst: "198.18.0.0/24"}, {Dst: "default", Gateway: "198.18.0.1"}},
		RDMA:      []replies.RDMA{{Name: "mlx5_0", NodeGUID: "0200:0000:0000:0001"}},
	}
	if diff := cmp.Diff(want, r.NetlinkReport(rep)); diff != "" {
		t.Error(diff)
	}
	gpus := r.GPUReport(&replies.GPUReport{DriverVersion: "570.124.06", GPUs: []replies.GPU{{UUID: "GPU-3c2b1a09-1111-2222-3333-444455556666", Serial: "1320922012345", P2P: map[int]string{1: "ok"}}}})
	if g := gpus.GPUs[0]; g.UUID != "GPU-00000000-0000-0000-0000-000000000001" || g.Serial != "SN00000001" || g.P2P[1] != "ok" || gpus.DriverVersion != "570.124.06" {
		t.Errorf("%+v", gpus)
	}
	if r.GPUReport(nil) != nil {
		t.Error("no report became one")
	}
}

// TestRedactManyAddresses: more subnets and addresses than the documentation
// ranges hold stay distinct, and subnets stay subnets.
func TestRedactManyAddresses(t *testing.T) {
	in := &topo.Topology{Netdevs: []topo.Netdev{{Name: "eth0"}}}
	n := &in.Netdevs[0]
	for i := range 700 {
		n.Addresses = append(n.Addresses, fmt.Sprintf("10.%d.%d.7/31", i/256, i%256))
	}
	for i := range 600 {
		n.Addresses = append(n.Addresses, fmt.Sprintf("172.20.%d.%d/16", i/256, i%256))
	}
	got := redact.New(in).Topology(in).Netdevs[0].Addresses
	for i, cidr := range got {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			t.Fatal(err)
		}
		if was := netip.MustParsePrefix(n.Addresses[i]); was.Bits() == 31 && p.Addr().As4()[3] != 7 {
			t.Errorf("%v became %v", was, p)
		}
	}
	all := slices.Clone(got)
	slices.Sort(all)
	if distinct := len(slices.Compact(all)); distinct != len(n.Addresses) {
		t.Errorf("%d addresses became %d", len(n.Addresses), distinct)
	}
}

// FuzzRedactText: any text of a host can be redacted, and with the redacted host once more changes
// nothing.
func FuzzRedactText(f *testing.F) {
	for _, s := range []string{
		"b8:59:9f:29:1a:2a", "gpu12.dc1.example.com", "10.1.2.3/24", "fe80::1%eth0", "::ffff:10.1.2.3", "enxb8599f291a2b",
		"a::::b:", "02:00:00:00:00:01 b8:59:9f:29:1a:2a", "LVM PV hYx0aB-1234-abcd-EFGH-ijkl-MNOP-qrstUV on /dev/nvme0n1", "gpu12 SN00000001 02:00:00:00:00:01", "GPU-3c2b1a09-1111-2222-3333-444455556666", "0xb8599f0300291a2a", "\xff:\x00::",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := redact.New(identified())
		once := r.Text([]byte(s))
		if twice := redact.New(r.Topology(identified())).Text(once); string(twice) != string(once) {
			t.Errorf("%q\nonce  %q\ntwice %q", s, once, twice)
		}
	})
}

// TestRedactUniqueID: an AMD GPU's UUID and the number that its driver's files
// hold get the same placeholder, in hexadecimal and decimal.
func TestRedactUniqueID(t *testing.T) {
	host := &topo.Topology{GPUs: []topo.GPU{{UUID: "GPU-5b1b2c3d4e5f60c2"}, {UUID: "GPU-48aa000000000001"}, {UUID: "GPU-0000000000000007"}}}
	r := redact.New(host)
	if c := r.Topology(host); c.GPUs[0].UUID != "GPU-0000000000000001" || c.GPUs[1].UUID != "GPU-0000000000000002" || c.GPUs[2].UUID != "GPU-0000000000000003" {
		t.Errorf("UUIDs %s, %s, %s", c.GPUs[0].UUID, c.GPUs[1].UUID, c.GPUs[2].UUID)
	}
	text := "vendor_id 4098\nunique_id 6564889523642130626\nhive_id 11400714819323198485\nlocation_id 3072\n"
	want := "vendor_id 4098\nunique_id 1\nhive_id 4\nlocation_id 3072\n"
	if got := string(r.Text([]byte(text))); got != want {
		t.Errorf("properties:\n%swant\n%s", got, want)
	}
	if got := string(r.Text([]byte("5b1b2c3d4e5f60c2\n"))); got != "0000000000000001\n" {
		t.Errorf("the PCI function's unique_id: %s", got)
	}
	if again := string(redact.New(r.Topology(host)).Text([]byte(want))); again != want {
		t.Errorf("redacted again: %s", again)
	}
}
