package pathsel_test

import (
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// oneNIC is a host with one GPU and one NIC, for tests that change it.
func oneNIC(nic string) string {
	return `machine: one
description: one GPU and one NIC
host: {arch: x86_64, kernel: 6.8.0, vendor: Test, product: Box, iommu: identity}
cpu: {vendor: GenuineIntel, family: 6, model: 143, name: Intel Xeon, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-31, mem: 512GiB}
pci:
- root: 0000:10
  numa: 0
  below:
  - port: 10:01.0
    below:
    - switch: 11:00.0
      part: broadcom-c030
      below:
      - down: 12:00.0
        below:
        - {gpu: 13:00.0, part: h100-sxm}
      - down: 12:01.0
        below:
        - {nic: 14:00.0, ` + nic + "}\n"
}

const (
	ibNIC   = "part: connectx7, layer: ib, rdma: mlx5_0, net: ib0, lid: 7"
	roceNIC = "part: connectx7, layer: eth, rdma: mlx5_0, net: eth0, ip: 10.1.0.1/24"
)

type change = func(t testing.TB, top *topo.Topology)

func onPort0(f func(p *topo.Port)) change {
	return func(t testing.TB, top *topo.Topology) { f(rdmaPort(t, top, "mlx5_0")) }
}

func gids(list ...topo.GID) change {
	return onPort0(func(p *topo.Port) { p.GIDs = list })
}

func onNetdev(f func(n *topo.Netdev)) change {
	return func(t testing.TB, top *topo.Topology) { f(netdev(t, top, "eth0")) }
}

func prefix(p string) change {
	return onPort0(func(port *topo.Port) {
		port.GIDs[0].GID = p + strings.TrimPrefix(port.GIDs[0].GID, "fe80:0000:0000:0000")
	})
}

// Each rule of reachability, from both sides.
func TestReach(t *testing.T) {
	unknownTransport := func(_ testing.TB, top *topo.Topology) {
		top.RDMADevices[0].Transport = ""
		top.Ports[0].LinkLayer = ""
		for i := range top.PCIDevices {
			if d := &top.PCIDevices[i]; d.ID == top.RDMADevices[0].PCI {
				d.Class = "" // an InfiniBand controller's
			}
		}
	}
	planes := func(here, there string) string {
		return `{"schema":"topoctl.fabric/v1","hosts":[{"host":"one","ports":[{"port":"mlx5_0",` + here + `}]},{"host":"one-b","ports":[{"port":"mlx5_0",` + there + `}]}]}`
	}
	railOnly := func(s string) string { return strings.Replace(s, `"hosts"`, `"rail_only":true,"hosts"`, 1) }
	v2 := func(i int, gid string) topo.GID { return topo.GID{Index: i, GID: gid, Type: "RoCE v2", Netdev: "eth0"} }
	v1 := func(i int, gid string) topo.GID {
		return topo.GID{Index: i, GID: gid, Type: "IB/RoCE v1", Netdev: "eth0"}
	}
	for _, tt := range []struct {
		name        string
		nic         string
		here, there change
		fabric      string
		reach       pathsel.Reach
		code        pathsel.Code
	}{
		{"IB, default prefix", ibNIC, nil, nil, "", pathsel.ReachAssumed, "default-subnet-prefix"},
		{"IB, default prefix, one leaf", ibNIC, nil, nil, planes(`"leaf":"l1"`, `"leaf":"l1"`), pathsel.ReachYes, "same-leaf"},
		{"IB, default prefix, two leaves", ibNIC, nil, nil, planes(`"leaf":"l1"`, `"leaf":"l2"`), pathsel.ReachAssumed, "default-subnet-prefix"},
		{"IB, one prefix", ibNIC, prefix("fec0:0:0:1"), prefix("fec0:0:0:1"), "", pathsel.ReachYes, "same-subnet"},
		{"IB, two prefixes", ibNIC, prefix("fec0:0:0:1"), prefix("fec0:0:0:2"), "", "no", "other-subnet"},
		{"IB, one prefix is the default", ibNIC, nil, prefix("fec0:0:0:2"), "", "no", "other-subnet"},
		{"IB, no GID known", ibNIC, nil, onPort0(func(p *topo.Port) { p.GIDs, p.GIDTable = nil, nil }), "", pathsel.ReachAssumed, "reach-unknown"},
		{"IB, no LID known", ibNIC, onPort0(func(p *topo.Port) { p.LID = nil }), nil, "", pathsel.ReachAssumed, "reach-unknown"},
		{"IB, no partition keys known", ibNIC, onPort0(func(p *topo.Port) { p.PKeys = nil }), nil, "", pathsel.ReachAssumed, "pkey-unknown"},
		{"IB, full and limited", ibNIC, pkeys("0x8001", "0x0002"), pkeys("0x0001"), "", pathsel.ReachAssumed, "default-subnet-prefix"},
		{"IB, limited and full", ibNIC, pkeys("0x0001"), pkeys("0xffff", "0x8001"), "", pathsel.ReachAssumed, "default-subnet-prefix"},
		{"IB, limited on both sides", ibNIC, pkeys("0x0001"), pkeys("0x0001"), "", "no", "pkey-limited"},
		{"IB, another key", ibNIC, pkeys("0x8001"), pkeys("0x8002"), "", "no", "pkey"},
		{"IB, a key that is not valid", ibNIC, pkeys("0x8000"), pkeys("0x8000"), "", "no", "pkey"},
		{"IB, one GID on two machines", ibNIC, gids(v1(0, "fe80::1")), gids(v1(0, "fe80::1")), "", pathsel.ReachAssumed, "same-address"},
		{"planes differ", ibNIC, nil, nil, planes(`"plane":0`, `"plane":1`), "no", "other-plane"},
		{"one plane", ibNIC, nil, nil, planes(`"plane":1`, `"plane":1`), pathsel.ReachAssumed, "default-subnet-prefix"},
		{"one plane unknown", ibNIC, nil, nil, planes(`"plane":1`, `"rail":1`), pathsel.ReachAssumed, "default-subnet-prefix"},
		{"rails differ", ibNIC, nil, nil, planes(`"rail":0`, `"rail":1`), pathsel.ReachAssumed, "default-subnet-prefix"},
		{"rails differ, rail-only", ibNIC, nil, nil, railOnly(planes(`"rail":0`, `"rail":1`)), "no", "other-rail"},
		{"a rail unknown, rail-only", ibNIC, prefix("fec0:0:0:1"), prefix("fec0:0:0:1"), railOnly(planes(`"rail":0`, `"rail":null`)), pathsel.ReachAssumed, "rail-unknown"},

		{"RoCE, one network", roceNIC, nil, nil, "", pathsel.ReachYes, "same-subnet"},
		{"RoCE, masks differ and both hold", roceNIC, nil, onNetdev(func(n *topo.Netdev) { n.Addresses = []string{"10.1.0.2/16"} }), "", pathsel.ReachYes, "same-subnet"},
		{"RoCE, masks differ and one holds", roceNIC, nil, onNetdev(func(n *topo.Netdev) { n.Addresses, n.Routes = []string{"10.1.0.2/32"}, nil }), "", "no", "no-route"},
		{"RoCE, a host route instead", roceNIC, nil, onNetdev(func(n *topo.Netdev) {
			n.Addresses, n.Routes = []string{"10.1.0.2/32"}, []topo.Route{{Dst: "10.1.0.1/32"}}
		}), "", pathsel.ReachYes, "routed"},
		{"RoCE, default routes", roceNIC, onNetdev(func(n *topo.Netdev) { n.Routes = []topo.Route{{Dst: "default"}} }), addressed("10.1.", "10.2."), "", "no", "no-route"},
		{"RoCE, default routes on both", roceNIC, onNetdev(func(n *topo.Netdev) { n.Routes = []topo.Route{{Dst: "default"}} }),
			both(addressed("10.1.", "10.2."), onNetdev(func(n *topo.Netdev) { n.Routes = []topo.Route{{Dst: "0.0.0.0/0"}} })), "", pathsel.ReachAssumed, "default-route"},
		{"RoCE, the network of the GID is not known", roceNIC, onNetdev(func(n *topo.Netdev) { n.Addresses, n.Routes = nil, nil }), nil, "", pathsel.ReachAssumed, "reach-unknown"},
		{"RoCE, no GID known", roceNIC, onPort0(func(p *topo.Port) { p.GIDs, p.GIDTable = nil, nil }), nil, "", pathsel.ReachAssumed, "reach-unknown"},
		{"RoCE, link-local only", roceNIC, gids(v2(1, "fe80::1")), gids(v2(1, "fe80::2")), "", pathsel.ReachAssumed, pathsel.CodeLinkLocal},
		{"RoCE, link-local only, one leaf", roceNIC, gids(v2(1, "fe80::1")), gids(v2(1, "fe80::2")), planes(`"leaf":"l1"`, `"leaf":"l1"`), pathsel.ReachYes, "same-leaf"},
		{"RoCE, link-local on one side", roceNIC, gids(v2(1, "fe80::1")), nil, "", pathsel.ReachAssumed, pathsel.CodeLinkLocal},
		{"RoCE, v1 against v2", roceNIC, gids(v1(0, "fe80::1")), gids(v2(0, "fe80::2")), "", "no", "gid-type"},
		{"RoCE, v1 on both", roceNIC, gids(v1(0, "fe80::1")), gids(v1(0, "fe80::2")), "", pathsel.ReachAssumed, pathsel.CodeLinkLocal},
		{"RoCE, IPv4 against IPv6", roceNIC, nil, gids(v2(1, "2001:db8::2")), "", "no", "no-route"},
		{"RoCE, one address on two machines", roceNIC, nil, both(addressed("10.1.0.2", "10.1.0.1"), gids(v2(3, "::ffff:10.1.0.1"))), "", pathsel.ReachAssumed, "same-address"},

		{"no protocol known", ibNIC, nil, unknownTransport, "", pathsel.ReachAssumed, "reach-unknown"},
		{"InfiniBand and RoCE", ibNIC, nil, func(t testing.TB, top *topo.Topology) {
			top.RDMADevices[0].Transport = "roce"
		}, "", "no", "protocol"},
		{"EFA", "part: efa, rdma: mlx5_0", nil, nil, "", pathsel.ReachAssumed, "provider-network"},
		{"EFA and InfiniBand", ibNIC, nil, func(t testing.TB, top *topo.Topology) { top.RDMADevices[0].Transport = "efa" }, "", "no", "protocol"},
		{"iWARP", roceNIC, iwarp, iwarp, "", pathsel.ReachYes, "same-subnet"},
		{"iWARP and RoCE", roceNIC, iwarp, nil, "", "no", "protocol"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			there := side{name: oneNIC(tt.nic), change: tt.there}.other()
			for _, way := range []struct {
				name        string
				here, there side
			}{{"there", side{name: oneNIC(tt.nic), change: tt.here}, there}, {"back", there, side{name: oneNIC(tt.nic), change: tt.here}}} {
				var o pathsel.PairOptions
				if tt.fabric != "" {
					o.Fabric = parseFabric(t, tt.fabric)
				}
				pair, err := pathsel.Connect(way.here.host(t), way.there.host(t), o)
				if err != nil {
					t.Fatal(err)
				}
				set, err := pair.Lanes("gpu:0", "gpu:0")
				reach, reason := pathsel.Reach("no"), pathsel.Reason{}
				if len(set.Lanes) > 0 {
					reach, reason = set.Lanes[0].Reach, set.Lanes[0].ReachReason
				} else if err == nil {
					t.Fatal("no lane and no error")
				}
				for _, r := range set.Rejected {
					if r.Pairs > 0 {
						reason = r.Reason
					}
				}
				if reach != tt.reach || reason.Code != tt.code || reason.Text == "" {
					t.Errorf("%s: %s, %s: %s; want %s, %s", way.name, reach, reason.Code, reason.Text, tt.reach, tt.code)
				}
			}
		})
	}
}

func iwarp(_ testing.TB, top *topo.Topology) { top.RDMADevices[0].Transport = "iwarp" }

// What a transport needs to connect: GID index and GID, LID, addresses, partition.
func TestContact(t *testing.T) {
	contact := func(here, there side) pathsel.Contact {
		set := laneSet(t, here.host(t), there.host(t), "gpu:0", "gpu:0", pathsel.PairOptions{})
		if set == nil {
			t.Fatal("no lane")
		}
		return set.Lanes[0].Contact
	}
	ib := contact(side{name: oneNIC(ibNIC), change: pkeys("0x0001", "0x8002")}, side{name: oneNIC(ibNIC), change: pkeys("0x0002", "0x7fff")}.other())
	if *ib.LocalLID != 7 || *ib.RemoteLID != 1007 || *ib.LocalGIDIndex != 0 || *ib.RemoteGIDIndex != 0 || ib.LocalGID == ib.RemoteGID || ib.PKey != "0x8002" || ib.LocalAddress.IsValid() {
		t.Errorf("InfiniBand: %+v", ib)
	}
	roce := contact(side{name: oneNIC(roceNIC)}, side{name: oneNIC(roceNIC)}.other())
	if *roce.LocalGIDIndex != 3 || *roce.RemoteGIDIndex != 3 || roce.LocalAddress.String() != "10.1.0.1" || roce.RemoteAddress.String() != "10.1.0.2" || roce.LocalLID != nil {
		t.Errorf("RoCE: %+v", roce)
	}
	o := pathsel.Options{Transport: pathsel.TCP}
	tcp := contact(side{name: oneNIC(roceNIC), o: o}, side{name: oneNIC(roceNIC), o: o}.other())
	if tcp.LocalGIDIndex != nil || tcp.LocalGID != "" || tcp.LocalAddress.String() != "10.1.0.1" || tcp.RemoteAddress.String() != "10.1.0.2" {
		t.Errorf("TCP: %+v", tcp)
	}
}

// A second network is used where the first does not lead there: the pair of
// addresses that is surest wins, whatever its place in the tables.
func TestBestAddressesWin(t *testing.T) {
	two := func(last string) change {
		return func(t testing.TB, top *topo.Topology) {
			n, p := netdev(t, top, "eth0"), rdmaPort(t, top, "mlx5_0")
			n.Addresses = append(n.Addresses, "10.77.0."+last+"/24")
			p.GIDs = append(p.GIDs, topo.GID{Index: 9, GID: "::ffff:10.77.0." + last, Type: "RoCE v2", Netdev: "eth0"})
		}
	}
	set := laneSet(t, side{name: oneNIC(roceNIC), change: two("1")}.host(t),
		side{name: oneNIC(roceNIC), change: both(addressed("10.1.", "10.2."), two("2"))}.other().host(t), "gpu:0", "gpu:0", pathsel.PairOptions{})
	if set == nil {
		t.Fatal("no lane")
	}
	if c := set.Lanes[0].Contact; c.LocalAddress.String() != "10.77.0.1" || c.RemoteAddress.String() != "10.77.0.2" || *c.RemoteGIDIndex != 9 {
		t.Errorf("%+v", c)
	}
}

func TestLanesRefuse(t *testing.T) {
	h := fixture(t, "a10-2nic")
	if _, err := pathsel.Connect(h, nil, pathsel.PairOptions{}); err == nil {
		t.Error("one host was taken as two")
	}
	pair, err := pathsel.Connect(h, h, pathsel.PairOptions{RemoteName: "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range [][2]pathsel.Location{{"gpu:2", "gpu:0"}, {"gpu:0", "nic:mlx5_0"}} {
		if set, err := pair.Lanes(l[0], l[1]); err == nil || set != nil || !strings.Contains(err.Error(), "want gpu:N or cpu:N") || !strings.Contains(err.Error(), "host") {
			t.Errorf("%v: %v", l, err)
		}
	}
}
