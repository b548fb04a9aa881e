package texts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

const ibstat = `CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
	Hardware version: 0
	Node GUID: 0x0a0b0c0300000010
	System image GUID: 0x0a0b0c0300000010
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
		Base lid: 12
		LMC: 0
		SM lid: 1
		Capability mask: 0xa751e848
		Port GUID: 0x0a0b0c0300000010
		Link layer: InfiniBand
`

const mapping = "0000:1a:00.0 mlx5_0 (MT4129 - MCX75-X    ) Adapter card, 400Gb/s fw 28.39.1002 port 1 (ACTIVE) ==> ib0 (Up)\n" +
	"0000:99:00.0 mlx5_1 (MT4129 - NA)  fw 28.39.1002 port 1 (DOWN  ) ==> ens9np0 (Down)\n"

const rdmaText = "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 12 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP netdev ib0 netdev_index 4 \n    caps: <AUTO_MIG> \n" +
	"1/1: mlx5_1/1: state DOWN physical_state DISABLED netdev ens9np0 \n"

const rdmaJSON = `[{"ifindex":0,"ifname":"mlx5_0","port":1,"subnet_prefix":"fe80:0000:0000:0000","lid":12,"sm_lid":1,"lmc":0,"state":"ACTIVE","physical_state":"LINK_UP","netdev":"ib0","netdev_index":4},` +
	`{"ifindex":1,"ifname":"mlx5_1","port":1,"state":"DOWN","physical_state":"DISABLED","netdev":"ens9np0"}]`

const ipText = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
4: ib0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 2044 qdisc mq state UP group default qlen 256
    link/infiniband 00:00:10:49:fe:80:00:00:00:00:00:00:0a:0b:0c:03:00:00:00:10 brd 00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff promiscuity 0 numtxqueues 4 parentbus pci parentdev 0000:1a:00.0
    inet 10.1.0.4/24 brd 10.1.0.255 scope global ib0
       valid_lft forever preferred_lft forever
    inet6 fe80::a0b:c03:0:10/64 scope link
5: ens9np0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq master bond0 state DOWN group default qlen 1000
    link/ether 0a:00:00:00:00:99 brd ff:ff:ff:ff:ff:ff
6: bond0: <BROADCAST,MULTICAST,MASTER> mtu 1500 qdisc noqueue state DOWN group default qlen 1000
    link/ether 0a:00:00:00:00:99 brd ff:ff:ff:ff:ff:ff
    bond mode 802.3ad miimon 100
`

const ipJSON = `[{},{"ifindex":4,"ifname":"ib0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":2044,"operstate":"UP","link_type":"infiniband",` +
	`"address":"00:00:10:49:fe:80:00:00:00:00:00:00:0a:0b:0c:03:00:00:00:10","parentbus":"pci","parentdev":"0000:1a:00.0",` +
	`"addr_info":[{"family":"inet","local":"10.1.0.4","prefixlen":24,"scope":"global"},{"family":"inet6","local":"fe80::a0b:c03:0:10","prefixlen":64,"scope":"link"}]}]`

func parseNetwork(t *testing.T, text string) *Network {
	t.Helper()
	r, err := ParseNetwork("text", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// networkSummary is what a report says, a line for each port and interface.
func networkSummary(r *Network) string {
	var b strings.Builder
	show := func(words ...any) {
		for _, w := range words {
			switch v := w.(type) {
			case *int:
				if v != nil {
					w = *v
				}
			case *bool:
				if v != nil {
					w = *v
				}
			case *topo.Rate:
				if v != nil {
					w = int64(*v)
				}
			case *topo.BDF:
				if v != nil {
					w = *v
				}
			}
			fmt.Fprintf(&b, "%v ", w)
		}
		b.WriteByte('\n')
	}
	for _, d := range r.devices {
		show(d.source, d.Name, d.BDF, d.NodeGUID, d.Firmware, d.HCAType)
		for _, p := range d.ports {
			show(" port", p.Number, p.State, p.PhysState, p.LinkLayer, p.BytesPerSec, p.LID, p.SMLID, p.guid, p.netdev)
		}
	}
	for _, n := range r.interfaces {
		show(n.source, n.Name, n.Index, n.MTU, n.State, n.Carrier, n.AdminUp, n.Type, n.MAC, n.Master, n.LinkKind, n.BDF, n.Addresses)
	}
	return b.String()
}

func TestParseNetwork(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"ibstat": {ibstat, "ibstat mlx5_0 <nil> 0a0b:0c03:0000:0010 28.39.1002 MT4129 \n port 1 ACTIVE LinkUp InfiniBand 50000000000 12 1 0a0b:0c03:0000:0010  \n"},
		"ibdev2netdev -v": {mapping, "ibdev2netdev mlx5_0 0000:1a:00.0  28.39.1002 MT4129 \n port 1 ACTIVE   <nil> <nil> <nil>  ib0 \n" +
			"ibdev2netdev mlx5_1 0000:99:00.0  28.39.1002 MT4129 \n port 1 DOWN   <nil> <nil> <nil>  ens9np0 \n" +
			"ibdev2netdev ib0 <nil> <nil>  true <nil>     <nil> [] \nibdev2netdev ens9np0 <nil> <nil> down <nil> <nil>     <nil> [] \n"},
		"ibdev2netdev": {"mlx5_ib0 port 1 ==> ib0 (NA)\n", "ibdev2netdev mlx5_ib0 <nil>    \n port 1    <nil> <nil> <nil>  ib0 \nibdev2netdev ib0 <nil> <nil>  <nil> <nil>     <nil> [] \n"},
		"rdma link": {rdmaText, "rdma mlx5_0 <nil>    \n port 1 ACTIVE LinkUp InfiniBand <nil> 12 1  ib0 \n" +
			"rdma mlx5_1 <nil>    \n port 1 DOWN Disabled  <nil> <nil> <nil>  ens9np0 \n"},
		"rdma -j link": {rdmaJSON, "rdma mlx5_0 <nil>    \n port 1 ACTIVE LinkUp InfiniBand <nil> 12 1  ib0 \n" +
			"rdma mlx5_1 <nil>    \n port 1 DOWN Disabled  <nil> <nil> <nil>  ens9np0 \n"},
		"ip addr": {ipText, "ip lo 1 65536 unknown true true loopback 00:00:00:00:00:00   <nil> [127.0.0.1/8] \n" +
			"ip ib0 4 2044 up true true infiniband 00:00:10:49:fe:80:00:00:00:00:00:00:0a:0b:0c:03:00:00:00:10   0000:1a:00.0 [10.1.0.4/24 fe80::a0b:c03:0:10/64] \n" +
			"ip ens9np0 5 1500 down false true ether 0a:00:00:00:00:99 bond0  <nil> [] \n" +
			"ip bond0 6 1500 down <nil> false ether 0a:00:00:00:00:99  bond <nil> [] \n"},
		"ip -j addr":                           {ipJSON, "ip ib0 4 2044 up true true infiniband 00:00:10:49:fe:80:00:00:00:00:00:00:0a:0b:0c:03:00:00:00:10   0000:1a:00.0 [10.1.0.4/24 fe80::a0b:c03:0:10/64] \n"},
		"with a prompt, and Windows line ends": {"$ ibstat\r\n" + strings.ReplaceAll(ibstat, "\n", "\r\n"), "ibstat mlx5_0 <nil> 0a0b:0c03:0000:0010 28.39.1002 MT4129 \n port 1 ACTIVE LinkUp InfiniBand 50000000000 12 1 0a0b:0c03:0000:0010  \n"},
	} {
		if diff := cmp.Diff(c.want, networkSummary(parseNetwork(t, c.text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseNetworkRefuses(t *testing.T) {
	many := strings.Builder{}
	for i := range maxRDMA {
		fmt.Fprintf(&many, "mlx5_%d port 1 ==> ib%d (Up)\n", i, i)
	}
	for text, want := range map[string]string{
		"hello\n":        "texts: none of the texts that are known: ibstat, ibdev2netdev, rdma link, ip addr",
		many.String():    "texts: line 513: more than 1024 RDMA devices and ports, which are not read",
		`[{"ifname":1}]`: `texts: line 1: `,
		`[`:              "texts: the document ends in the middle",
	} {
		if _, err := ParseNetwork("text", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// networkHost is a host of which an importer knows two functions, one by its name.
func networkHost() *topo.Topology {
	bdf := func(s string) topo.BDF {
		b, err := topo.ParseBDF(s)
		if err != nil {
			panic(err)
		}
		return b
	}
	t := &topo.Topology{Origin: "import:x", Complete: true}
	t.Host.Lacks = []string{"the network"}
	t.HostBridges = []topo.HostBridge{{Node: topo.Node{ID: "hb:0000:00"}}}
	for _, s := range []string{"0000:1a:00.0", "0000:99:00.0"} {
		t.PCIDevices = append(t.PCIDevices, topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(bdf(s))}, BDF: bdf(s), Parent: "hb:0000:00", Class: "0x020700"})
	}
	known := topo.RDMADevice{Node: topo.Node{ID: "rdma:mlx5_0"}, Name: "mlx5_0", PCI: "pci:0000:1a:00.0", BDF: new(bdf("0000:1a:00.0"))}
	known.Facts.Set("name", "import:x", "")
	unnamed := topo.RDMADevice{Node: topo.Node{ID: "rdma:0000:99:00.0"}, Name: "0000:99:00.0", PCI: "pci:0000:99:00.0", BDF: new(bdf("0000:99:00.0"))}
	unnamed.Facts.Set("name", topo.SourceDerived, "PCI address")
	t.RDMADevices = []topo.RDMADevice{known, unnamed}
	t.Derive()
	return t
}

func lays(t *testing.T, top *topo.Topology, texts ...string) {
	t.Helper()
	var reports []*Network
	for _, text := range texts {
		reports = append(reports, parseNetwork(t, text))
	}
	if err := Lay(top, reports); err != nil {
		t.Fatal(err)
	}
	fixturetest.ReadBack(t, top)
}

func warnings(top *topo.Topology) string {
	var out []string
	for _, w := range top.Warnings {
		out = append(out, w.String())
	}
	return strings.Join(out, "\n")
}

func TestLay(t *testing.T) {
	top := networkHost()
	lays(t, top, ibstat, mapping, rdmaText, ipText)
	x := topo.NewIndex(top)
	p := x.Port("port:mlx5_0/1")
	if p == nil || p.State != "ACTIVE" || p.LinkLayer != "InfiniBand" || *p.LID != 12 || *p.BytesPerSec != 50_000_000_000 || !cmp.Equal(p.Netdevs, []string{"ib0"}) {
		t.Errorf("port %+v", p)
	}
	if from, _ := p.Facts.Get("lid"); from.Source != sourceIBStat {
		t.Errorf("the LID is from %q", from.Source)
	}
	named := x.RDMADevice("rdma:mlx5_1")
	if named == nil || named.PCI != "pci:0000:99:00.0" || x.Port("port:mlx5_1/1").State != "DOWN" {
		t.Errorf("the device without a name: %+v", named)
	}
	ib, leg, bond := x.NetdevNamed("ib0"), x.NetdevNamed("ens9np0"), x.NetdevNamed("bond0")
	if ib == nil || ib.PCI != "pci:0000:1a:00.0" || len(ib.Addresses) != 2 || *ib.MTU != 2044 {
		t.Errorf("ib0 %+v", ib)
	}
	if leg == nil || leg.PCI != "pci:0000:99:00.0" || leg.Master != "bond0" || bond == nil || bond.LinkKind != "bond" || !cmp.Equal(bond.Lower, []string{"ens9np0"}) {
		t.Errorf("leg %+v, bond %+v", leg, bond)
	}
	for _, n := range top.Netdevs {
		for _, fact := range n.Facts {
			if strings.Contains(string(fact.Source), " ") {
				t.Errorf("a document cannot hold the source %q", fact.Source)
			}
		}
	}
	if x.NetdevNamed("lo") != nil || warnings(top) != "" || !top.Complete || len(top.Sources) != 4 {
		t.Errorf("warnings %s, sources %v", warnings(top), top.Sources)
	}
	if link := x.Link("port:mlx5_0/1"); link == nil || link.BytesPerSec == nil {
		t.Errorf("the wire %+v", link)
	}
}

// The interface of a port is found by its GUID where no text pairs them.
func TestLayPairsByGUID(t *testing.T) {
	top := networkHost()
	lays(t, top, ibstat, strings.ReplaceAll(ipText, " parentbus pci parentdev 0000:1a:00.0", ""))
	x := topo.NewIndex(top)
	if p, n := x.Port("port:mlx5_0/1"), x.NetdevNamed("ib0"); p == nil || !cmp.Equal(p.Netdevs, []string{"ib0"}) || n == nil || n.PCI != "pci:0000:1a:00.0" {
		t.Errorf("port %+v, interface %+v", p, n)
	}
	if got := warnings(top); !strings.Contains(got, "2 interfaces of no device of the input: ens9np0 and bond0") {
		t.Error(got)
	}
}

// An RDMA device over an interface whose driver has none is of software.
func TestLaySoftware(t *testing.T) {
	for driver, software := range map[string]bool{"virtio-pci": true, "bnxt_en": false, "": false} {
		top := networkHost()
		top.RDMADevices = nil
		top.PCIDevices[0].Driver = driver
		lays(t, top, strings.ReplaceAll(rdmaText, "mlx5_0", "dev0"), ipText)
		r := topo.NewIndex(top).RDMADevice("rdma:dev0")
		if r == nil || r.Software != software || (r.PCI == "") != software || !cmp.Equal(r.Netdevs, []string{"ib0"}) {
			t.Errorf("driver %q: %+v", driver, r)
		}
	}
}

// What differs is reported, and the topology's fact stands.
func TestLayConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*topo.Topology)
		text   string
		want   string
	}{
		"a fact": {func(t *topo.Topology) {
			t.Ports = []topo.Port{{Node: topo.Node{ID: "port:mlx5_0/1"}, RDMA: "rdma:mlx5_0", Number: 1, State: "DOWN", LID: new(7)}}
		}, ibstat, "conflict: port:mlx5_0/1: lid: ibstat says 12, the input says 7, which is kept (text line 8)\nconflict: port:mlx5_0/1: state: ibstat says ACTIVE, the input says DOWN, which is kept (text line 8)"},
		"two texts": {func(*topo.Topology) {}, "link mlx5_0/1 state DOWN physical_state LINK_UP\n" + mapping[:strings.Index(mapping, "\n")],
			"conflict: port:mlx5_0/1: state: rdma says DOWN (text line 1), ibdev2netdev says ACTIVE: not known (text line 2)"},
		"another place": {func(*topo.Topology) {}, strings.Replace(mapping[:strings.Index(mapping, "\n")], "1a", "1b", 1),
			"conflict: rdma:mlx5_0: ibdev2netdev has mlx5_0 at 0000:1b:00.0, the input at 0000:1a:00.0: not laid over (text line 1)\nlossy-import: 1 interface of no device of the input: ib0 (text)"},
		"another device": {func(t *topo.Topology) { t.RDMADevices[1].NodeGUID = "0000:0000:0000:0001" }, ibstat,
			"conflict: rdma:mlx5_0: node GUID of mlx5_0 differs from the input's, so it is another device: not laid over (text line 1)"},
		"another name": {func(*topo.Topology) {}, strings.Replace(mapping[:strings.Index(mapping, "\n")], "mlx5_0", "mlx5_7", 1),
			"conflict: rdma:mlx5_0: ibdev2netdev calls this device mlx5_7 (text line 1)"},
		"no such device": {func(t *topo.Topology) { t.RDMADevices = t.RDMADevices[1:2] }, strings.Replace(ibstat, "mlx5_0", "mlx5_9", 1),
			"skipped: ibstat tells of mlx5_9, which is no device of the input (text line 1)"},
		"no name to go by": {func(*topo.Topology) {}, strings.Replace(ibstat, "mlx5_0", "mlx5_9", 1),
			"skipped: ibstat tells of mlx5_9, which is no device of the input by name: ibdev2netdev -v, or rdma link with ip -d addr, tells the PCI addresses (text line 1)"},
	} {
		top := networkHost()
		c.change(top)
		lays(t, top, c.text)
		if diff := cmp.Diff(c.want, warnings(top)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A tool's word on a host is one word: two that differ are of two hosts, and none of them is taken.
func TestLayRefusesTwoHosts(t *testing.T) {
	changed := func(text, old, with string) string { return text + strings.Replace(text, old, with, 1) }
	for name, c := range map[string]struct{ text, want string }{
		"the same again": {ibstat + "\n" + ibstat + mapping + mapping + rdmaText + rdmaText + ipText + ipText, ""},
		"IPv4 and IPv6": {strings.Replace(ipText, "    inet6 fe80::a0b:c03:0:10/64 scope link\n", "", 1) +
			strings.Replace(ipText, "    inet 10.1.0.4/24 brd 10.1.0.255 scope global ib0\n", "", 1), ""},
		"state":   {changed(ibstat, "Active", "Down"), "port:mlx5_0/1: ibstat says state ACTIVE (text line 8) and DOWN (text line 25): texts of two hosts, or of one host at two times; give those of one"},
		"GUID":    {changed(ibstat, "Node GUID: 0x0a", "Node GUID: 0x0b"), "rdma:mlx5_0: ibstat says node_guid 0a0b:0c03:0000:0010 (text line 1) and 0b0b:0c03:0000:0010 (text line 18)"},
		"place":   {changed(mapping, "1a:00.0", "1b:00.0"), "rdma:mlx5_0: ibdev2netdev says bdf 0000:1a:00.0 (text line 1) and 0000:1b:00.0 (text line 3)"},
		"LID":     {changed(rdmaText, "lid 12", "lid 13"), "port:mlx5_0/1: rdma says lid 12 (text line 1) and 13 (text line 4)"},
		"address": {changed(ipText, "10.1.0.4", "10.1.0.5"), "net:ib0: ip says addresses 10.1.0.4/24 fe80::a0b:c03:0:10/64 (text line 4) and 10.1.0.5/24 fe80::a0b:c03:0:10/64 (text line 17)"},
	} {
		for _, texts := range [][]string{{c.text}, {c.text[:len(c.text)/2], c.text[len(c.text)/2:]}} {
			var reports []*Network
			for i, text := range texts {
				if len(texts) > 1 && c.want == "" {
					break
				}
				r, err := ParseNetwork(map[int]string{0: "text", 1: "other"}[i], []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				reports = append(reports, r)
			}
			top := networkHost()
			for i := range top.RDMADevices { // of a matrix, say
				top.RDMADevices[i].BDF, top.RDMADevices[i].PCI = nil, ""
			}
			got := ""
			if err := Lay(top, reports); err != nil {
				got = err.Error()
			}
			want := c.want
			if len(texts) > 1 { // a file each
				want, _, _ = strings.Cut(want, " (text line")
			}
			if !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("%s: %q %s, want %q", name, got, warnings(top), want)
			}
		}
	}
}

// Whatever two hosts say of the same devices: it is refused, or both say the same.
func TestFactsAreOfOneHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func() string {
			var b strings.Builder
			for i := range 2 {
				state := rapid.SampledFrom([]string{"ACTIVE", "DOWN"}).Draw(t, "state")
				switch rapid.IntRange(0, 2).Draw(t, "tool") {
				case 0:
					fmt.Fprintf(&b, "CA 'mlx5_%d'\n\tPort 1:\n\t\tState: %s\n", i, state[:1]+strings.ToLower(state[1:]))
				case 1:
					fmt.Fprintf(&b, "link mlx5_%d/1 state %s\n", i, state)
				default:
					fmt.Fprintf(&b, "mlx5_%d port 1 (%s) ==> ib%d (Up)\n", i, state, i)
				}
			}
			return b.String()
		}
		states := func(text string) map[topo.ID]string {
			r, err := ParseNetwork("text", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			top := networkHost()
			top.RDMADevices[0].Name, top.RDMADevices[0].ID = "mlx5_1", "rdma:mlx5_1"
			if top.RDMADevices[1].Name != "mlx5_0" {
				t.Fatal("another host")
			}
			out := map[topo.ID]string{}
			if Lay(top, []*Network{r}) != nil {
				return nil
			}
			for _, p := range top.Ports {
				out[p.ID] = p.State
			}
			return out
		}
		a, b := text(), text()
		one, other := states(a), states(b)
		for id, state := range states(a + b) {
			if same := one[id] == other[id]; same && state != one[id] || !same && state != "" {
				t.Fatalf("%s%s%s is %q", a, b, id, state)
			}
		}
	})
}

func FuzzNetwork(f *testing.F) {
	for _, text := range []string{ibstat, mapping, rdmaText, rdmaJSON, ipText, ipJSON} {
		f.Add([]byte(text), []byte(mapping))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var reports []*Network
		for _, data := range [][]byte{a, b} {
			if r, err := ParseNetwork("text", data); err == nil {
				reports = append(reports, r)
			}
		}
		top := networkHost()
		if Lay(top, reports) != nil {
			return
		}
		fixturetest.ReadBack(t, top)
	})
}
