package pathsel_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// otherHost makes a fixture another machine of its kind: another name, and
// addresses, GIDs and LIDs of its own in the same networks.
func otherHost(top *topo.Topology) *topo.Topology {
	top.Host.Name += "-b"
	for i := range top.Netdevs {
		for k, a := range top.Netdevs[i].Addresses {
			p := netip.MustParsePrefix(a)
			top.Netdevs[i].Addresses[k] = netip.PrefixFrom(next(p.Addr()), p.Bits()).String()
		}
	}
	for i := range top.Ports {
		p := &top.Ports[i]
		for k := range p.GIDs {
			a := next(netip.MustParseAddr(p.GIDs[k].GID)).As16()
			p.GIDs[k].GID = fmt.Sprintf("%x:%x:%x:%x:%x:%x:%x:%x", a[0:2], a[2:4], a[4:6], a[6:8], a[8:10], a[10:12], a[12:14], a[14:16])
		}
		if p.LID != nil {
			lid := *p.LID + 1000
			p.LID = &lid
		}
	}
	for i := range top.RDMADevices {
		top.RDMADevices[i].NodeGUID = otherDigits.Replace(top.RDMADevices[i].NodeGUID)
	}
	for i := range top.Netdevs {
		top.Netdevs[i].MAC = otherDigits.Replace(top.Netdevs[i].MAC)
	}
	return top
}

var otherDigits = strings.NewReplacer("0", "1", "1", "2", "2", "3", "3", "4", "4", "5", "5", "6", "6", "7", "7", "8",
	"8", "9", "9", "a", "a", "b", "b", "c", "c", "d", "d", "e", "e", "f", "f", "0")

func next(a netip.Addr) netip.Addr {
	if a.IsLoopback() {
		return a
	}
	return a.Next()
}

// netdev and port find a node that a test changes.
func netdev(t testing.TB, top *topo.Topology, name string) *topo.Netdev {
	t.Helper()
	i := slices.IndexFunc(top.Netdevs, func(n topo.Netdev) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("no interface %s", name)
	}
	return &top.Netdevs[i]
}

func rdmaPort(t testing.TB, top *topo.Topology, name string) *topo.Port {
	t.Helper()
	i := slices.IndexFunc(top.Ports, func(p topo.Port) bool { return p.ID == topo.ID("port:"+name+"/1") })
	if i < 0 {
		t.Fatalf("no port of %s", name)
	}
	return &top.Ports[i]
}

// pod is a container's network: a veth, and no hardware that it may use.
const pod = `machine: pod
description: a container with one veth
host: {arch: x86_64, kernel: 6.8.0, vendor: QEMU, product: none, name: pod}
cpu: {vendor: GenuineIntel, family: 6, model: 85, name: Intel Xeon, threads: 1}
numa:
- {node: 0, package: 0, cpus: 0-3, mem: 8GiB}
interfaces:
- {name: eth0, kind: veth, ip: 10.42.1.7/24}
`

// side is one host of a transcript: a fixture or a spec, and what a test changes.
type side struct {
	name   string
	change func(t testing.TB, top *topo.Topology)
	o      pathsel.Options
}

func (s side) host(t testing.TB) *pathsel.Host {
	t.Helper()
	var top *topo.Topology
	if strings.HasPrefix(s.name, "machine: ") {
		top = fixturetest.Spec(t, s.name)
	} else {
		top = fixturetest.Topology(t, s.name)
	}
	if s.change != nil {
		s.change(t, top)
	}
	return prepare(t, top, s.o)
}

func (s side) other() side {
	change := s.change
	s.change = func(t testing.TB, top *topo.Topology) {
		otherHost(top)
		if change != nil {
			change(t, top)
		}
	}
	return s
}

// addressed moves a fixture's RoCE ports and interfaces to other networks.
func addressed(from, to string) func(t testing.TB, top *topo.Topology) {
	swap := func(s string) string { return strings.Replace(s, from, to, 1) }
	return func(_ testing.TB, top *topo.Topology) {
		for i := range top.Netdevs {
			n := &top.Netdevs[i]
			for k := range n.Addresses {
				n.Addresses[k] = swap(n.Addresses[k])
			}
			for k := range n.Routes {
				n.Routes[k].Dst = swap(n.Routes[k].Dst)
			}
			for k := range top.Ports {
				for g := range top.Ports[k].GIDs {
					gid := &top.Ports[k].GIDs[g]
					addr := netip.MustParseAddr(gid.GID).Unmap()
					if moved := swap(addr.String()); moved != addr.String() {
						gid.GID = "::ffff:" + moved
					}
				}
			}
		}
	}
}

func pkeys(keys ...topo.HexID) func(t testing.TB, top *topo.Topology) {
	return func(_ testing.TB, top *topo.Topology) {
		for i := range top.Ports {
			top.Ports[i].PKeys = keys
		}
	}
}

func withRoute(dst string) func(t testing.TB, top *topo.Topology) {
	return func(_ testing.TB, top *topo.Topology) {
		for i := range top.Netdevs {
			if n := &top.Netdevs[i]; strings.HasPrefix(n.Name, "ens") {
				n.Routes = append(n.Routes, topo.Route{Dst: dst, Gateway: "10.2.0.1"})
			}
		}
	}
}

func both(changes ...func(t testing.TB, top *topo.Topology)) func(t testing.TB, top *topo.Topology) {
	return func(t testing.TB, top *topo.Topology) {
		for _, c := range changes {
			c(t, top)
		}
	}
}

// transcripts of decisions on lanes: two hosts, two memory locations, and the
// whole answer, for people to read and to disagree with.
var laneTranscripts = []struct {
	file, why     string
	local, remote side // a remote without a name is the local host itself
	src, dst      pathsel.Location
	fabric        string
}{
	{"dgx-h100-gpus", "One near NIC on each side is enough for GPU memory; ways across a root complex are for failover until somebody measures them.",
		side{name: "dgx-h100"}, side{name: "dgx-h100"}.other(), "gpu:0", "gpu:3", ""},
	{"dgx-h100-memory", "Host memory uses every NIC of its socket, and one across the socket link, which that fills.",
		side{name: "dgx-h100"}, side{name: "dgx-h100"}.other(), "cpu:0", "cpu:1", ""},
	{"link-layers", "InfiniBand does not reach Ethernet: no lane, and why, and what to do.",
		side{name: "dgx-h100"}, side{name: "a10-2nic"}, "gpu:0", "gpu:0", ""},
	{"rail-only", "A rail-only fabric: the nearest NICs of gpu:0 and gpu:3 cannot meet, so the lane is near on one side only.",
		side{name: "hgx-h100-8nic"}, side{name: "hgx-h100-8nic"}.other(), "gpu:0", "gpu:3", railOnly},
	{"twins", "One capture asked about two machines of its kind.",
		side{name: "a10-2nic"}, side{name: "a10-2nic"}, "cpu:0", "cpu:0", ""},
	{"rails-known", "The same with a spine between the rails: nearness comes before the rail.",
		side{name: "hgx-h100-8nic"}, side{name: "hgx-h100-8nic"}.other(), "gpu:0", "gpu:3", strings.Replace(railOnly, `"rail_only": true`, `"rail_only": false`, 1)},
	{"nic-counts", "Eight NICs and four: the four bound what eight could do.",
		side{name: "hgx-h100-8nic"}, side{name: "h20-4ib-1roce"}, "cpu:0", "cpu:0", ""},
	{"roce-two-networks", "Each NIC in a network of its own, as on rails: the pairs within a network are lanes.",
		side{name: "a10-2nic"}, side{name: "a10-2nic"}.other(), "cpu:0", "cpu:0", ""},
	{"roce-other-networks", "RoCE hosts in different networks without a route: no lane.",
		side{name: "a10-2nic"}, side{name: "a10-2nic", change: addressed("10.2.", "10.9.")}.other(), "gpu:0", "gpu:0", ""},
	{"roce-routed", "The same with routes on both sides: every pair is a lane.",
		side{name: "a10-2nic", change: withRoute("10.9.0.0/16")}, side{name: "a10-2nic", change: both(addressed("10.2.", "10.9."), withRoute("10.2.0.0/16"))}.other(), "gpu:0", "gpu:0", ""},
	{"roce-one-way", "A route there and none back is no lane.",
		side{name: "a10-2nic", change: withRoute("10.9.0.0/16")}, side{name: "a10-2nic", change: addressed("10.2.", "10.9.")}.other(), "gpu:0", "gpu:0", ""},
	{"bonds", "Bonds are one port each: the legs are named, and one connection uses one of them.",
		side{name: "bonds"}, side{name: "bonds"}.other(), "gpu:0", "gpu:0", ""},
	{"peer-nic-down", "The peer's nearest NIC is down: its other NICs of that socket serve, by the peer's own names.",
		side{name: "dgx-h100"}, side{name: "dgx-h100-port-down"}.other(), "gpu:4", "gpu:4", ""},
	{"nic-gen1", "The near NIC runs at a tenth: the ways across the root complex promise to double it, so they are tried.",
		side{name: "dgx-h100-nic-gen1"}, side{name: "dgx-h100"}.other(), "gpu:2", "gpu:2", ""},
	{"pkeys-disjoint", "No common partition: no lane.",
		side{name: "hgx-h100-8nic", change: pkeys("0x8001", "0x8002")}, side{name: "hgx-h100-8nic", change: pkeys("0x8003", "0x7fff")}.other(), "gpu:0", "gpu:0", ""},
	{"pkeys-limited", "Both are limited members: they do not hear each other.",
		side{name: "hgx-h100-8nic", change: pkeys("0x7fff")}, side{name: "hgx-h100-8nic", change: pkeys("0x7fff", "0x8002")}.other(), "gpu:0", "gpu:0", ""},
	{"software-rdma", "A laboratory: rxe reaches rxe within a network, siw speaks another protocol.",
		side{name: "lab-softrdma"}, side{name: "lab-softrdma"}.other(), "cpu:0", "cpu:0", ""},
	{"tcp", "Two plain servers over TCP.",
		side{name: "cpu-2eth"}, side{name: "cpu-2eth"}.other(), "cpu:0", "cpu:1", ""},
	{"tcp-lab", "A server and the laboratory over TCP, neither in the other's networks: only the default route may help.",
		side{name: "cpu-2eth", o: pathsel.Options{Roles: map[topo.ID]pathsel.Role{"net:eno1": pathsel.RoleData}}}, side{name: "lab-softrdma", o: pathsel.Options{Transport: pathsel.TCP, Roles: map[topo.ID]pathsel.Role{"net:mgmt": pathsel.RoleData}}}, "cpu:0", "cpu:0", ""},
	{"containers", "Two containers on one bridge: the rate of a veth is not known, and nothing is made up.",
		side{name: pod}, side{name: pod}.other(), "cpu:0", "cpu:0", ""},
	{"containers-same-address", "Containers of two nodes with one address: nobody can tell, so it is said.",
		side{name: pod}, side{name: pod}, "cpu:0", "cpu:0", ""},
	{"one-host", "Within one host the links are shared, and a NIC to itself comes last.",
		side{name: "hgx-h100-8nic"}, side{}, "gpu:0", "gpu:1", ""},
	{"one-host-loopback", "One usable port: loopback is all there is.",
		side{name: "cpu-2eth"}, side{}, "cpu:0", "cpu:1", ""},
	{"transports-differ", "One host prepared for RDMA, the other has none.",
		side{name: "a10-2nic"}, side{name: "cpu-2eth"}, "cpu:0", "cpu:0", ""},
	{"no-port", "The only port is down.",
		side{name: "cpu-2eth"}, side{name: pod, change: func(t testing.TB, top *topo.Topology) {
			n := netdev(t, top, "eth0")
			n.State, n.Carrier = "down", nil
		}}, "cpu:0", "cpu:0", ""},
}

func TestLaneTranscripts(t *testing.T) {
	for _, tt := range laneTranscripts {
		t.Run(tt.file, func(t *testing.T) {
			local := tt.local.host(t)
			remote := local
			if tt.remote.name != "" {
				remote = tt.remote.host(t)
			}
			var o pathsel.PairOptions
			if tt.fabric != "" {
				o.Fabric = parseFabric(t, tt.fabric)
			}
			pair, err := pathsel.Connect(local, remote, o)
			if err != nil {
				t.Fatal(err)
			}
			set, err := pair.Lanes(tt.src, tt.dst)
			text := "# " + tt.why + "\n\n" + set.Text()
			if err != nil {
				if none := (*pathsel.NoLaneError)(nil); !errors.Is(err, pathsel.ErrNoLane) || !errors.As(err, &none) || none.Short == "" || none.Reason.Text == "" {
					t.Fatal(err)
				}
				text += "\n" + strings.ReplaceAll(err.Error(), "; ", ";\n  ") + "\n"
			}
			golden.Check(t, "testdata/lanes/"+tt.file+".txt", text)
		})
	}
}
