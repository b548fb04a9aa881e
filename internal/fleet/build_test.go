package fleet_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// verdict is all that is said of a fleet: the answer, the findings, what could not be checked and why hosts were not
// reached, facts that are not known of all hosts, the groups of leaves, and the rails of the hosts' ports.
func verdict(f *fleet.Fleet) string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, "  "+format+"\n", args...) }
	for _, x := range f.Findings {
		if x.Source == fleet.SourceDoctor && x.Severity == doctor.Info && len(f.Classes) == 1 {
			continue // the same of every machine of a model
		}
		about := strings.Join(x.Hosts, ",")
		if len(x.Subjects) > 0 && x.Source == fleet.SourceFleet {
			about += " (" + strings.Join(x.Subjects, ",") + ")"
		}
		line("%s %s %s %s: %s", x.Severity, x.Source, x.Code, about, x.Text)
	}
	for _, u := range f.Unknown {
		if u.Text != "which switches the ports are cabled to is not known" && u.Code != fleet.CodeNotReached {
			line("? %s %s: %s", u.Code, strings.Join(u.Hosts, ","), u.Text)
		}
	}
	for _, x := range f.Unreached() {
		line("not reached: %s: %s", strings.Join(x.Hosts, " "), x.Reason)
	}
	for _, x := range f.Facts {
		if len(x.Unknown) > 0 && len(x.Subjects) == 0 && len(f.Missing()) == 0 {
			line("%s: %s on %d of %d, %d others, not known of %s", x.Key, *cmp.Or(x.Majority, new("nothing")), x.Hosts, x.Of, len(x.Others), strings.Join(x.Unknown, " "))
		}
	}
	for _, g := range f.Groups {
		line("%d leaves of %s", len(g.Leaves), strings.Join(g.Hosts, " "))
	}
	rails := map[string][]string{}
	for i := range f.Hosts {
		said := ""
		for _, p := range f.Hosts[i].Ports {
			if p.Rail != nil {
				said += fmt.Sprintf(" %s %d", p.Role, *p.Rail)
			} else if p.Leaf != "" {
				said += fmt.Sprintf(" %s -", p.Role)
			}
		}
		rails[said] = append(rails[said], f.Hosts[i].Host)
	}
	for i := range f.Hosts {
		for said, names := range rails {
			if said != "" && names[0] == f.Hosts[i].Host {
				line("rails of %s:%s", strings.Join(names, " "), said)
			}
		}
	}
	return f.Headline() + "\n" + out.String()
}

// What is said of fleets made of fixtures, of which some hosts, cables or links are not as they should be.
func TestVerdicts(t *testing.T) {
	var out strings.Builder
	judge := func(about string, list []fleet.Host, n *fleet.Network, then ...func(*fleet.Fleet)) {
		t.Helper()
		f := build(t, list, n)
		for _, do := range then {
			do(f)
		}
		out.WriteString(about + ": " + verdict(f))
	}
	dgx := func(n int) []fleet.Host { return hosts(t, many(n, "dgx-h100")...) }

	judge("16 equal hosts", dgx(16), nil)
	list := dgx(16)
	port(t, &list[6], "mlx5_3").Firmware = "28.36.1010"
	judge("an old firmware", list, nil)
	for i := range list[6].Ports {
		if list[6].Ports[i].Firmware != "" {
			list[6].Ports[i].Firmware = "28.36.1010"
		}
	}
	judge("an old firmware of all NICs", list, nil)
	list = dgx(2)
	list[1].Kernel = "6.8.0-1"
	judge("two hosts disagree", list, nil)
	list = dgx(4)
	list[1].Kernel, list[3].Kernel = "6.8.0-1", "6.8.0-1"
	judge("half of four", list, nil)
	judge("a port that is down", hosts(t, "dgx-h100", "dgx-h100", "dgx-h100", "dgx-h100-port-down"), nil)
	judge("a GPU at x8", hosts(t, "dgx-h100", "dgx-h100", "dgx-h100-gpu2-x8", "dgx-h100"), nil)
	judge("a NIC at Gen1", hosts(t, "dgx-h100", "dgx-h100-nic-gen1", "dgx-h100", "dgx-h100"), nil)
	judge("NUMA nodes unknown", hosts(t, "dgx-h100", "dgx-h100-numa-unknown", "dgx-h100", "dgx-h100"), nil)
	judge("hosts of many kinds", hosts(t, "dgx-h100", "gb200-tray", "cpu-2eth", "mi300x-8nic"), nil)
	judge("one host", hosts(t, "dgx-h100"), nil)
	judge("one not reached", append(dgx(4), missing("n9", "agent n9", "connection refused")), nil)
	judge("none reached", []fleet.Host{missing("n1", "", ""), missing("n2", "", "")}, nil)
	list = dgx(4)
	list[3] = list[0]
	list[3].Host = "n1-again"
	judge("one host twice", list, nil)
	for _, name := range []string{"eno1", "mlx5_0"} {
		list = dgx(4)
		for i := range list[1].Ports {
			if p := &list[1].Ports[i]; p.ShortName() == name {
				p.State = "DOWN"
			}
		}
		judge(name+" is down", list, nil)
	}
	list = dgx(5)
	for i := range list[2].Ports {
		list[2].Ports[i].Firmware = ""
	}
	list[2].Kernel, list[2].Modules = "", nil
	judge("what a document does not tell", list, nil)
	list = dgx(2)
	list[1].Kernel = "6.8"
	nearly := *list[1].MemoryBytes - 5<<30
	list[1].MemoryBytes = &nearly
	port(t, &list[1], "mlx5_4").Firmware = "1.0"
	judge("against a golden host", append(list, host(t, "cpu-2eth", "c1", 7)), nil, func(f *fleet.Fleet) { f.Against(build(t, hosts(t, "dgx-h100"), nil), "golden.json") })

	top := fixturetest.Topology(t, "dgx-h100")
	other := *summary(t, lacking(top, top.NVMes[0].PCI))
	list = append(dgx(3), other)
	list[3].Host = "n4"
	judge("without a drive", list, nil)
	judge("two that are built differently", list[2:], nil)
	list = append(dgx(3), other, other, other, *summary(t, lacking(fixturetest.Topology(t, "dgx-h100"), top.GPUs[0].PCI, top.GPUs[0].ID)))
	for i := range list {
		list[i].Host = fmt.Sprintf("n%d", i+1)
	}
	judge("two configurations, and one host of neither", list, nil)
	list = dgx(4)
	list[3].Parts = nil
	judge("a document of an earlier version, which has no parts", list, nil)

	judge("reasons that differ in the names and addresses of hosts", []fleet.Host{
		missing("n1", "ssh n1.cluster", "ssh: exit status 255: ssh: connect to host n1.cluster port 22: Connection refused"),
		missing("n2", "ssh 10.0.0.2", "ssh: exit status 255: ssh: connect to host 10.0.0.2 port 22: Connection refused"),
		missing("n3", "ssh alias", "ssh: exit status 255: ssh: connect to host 10.0.0.3 port 22: Connection refused"),
		missing("n4", "ssh n4", "ssh: exit status 255: ssh: connect to host n1 port 22: Connection refused"), // not its own name
		missing("n5", "agent http://n5:9411", "no answer within 30s"),
		missing("n6", "agent http://n6:9411", ""),
		missing("n7", "agent http://[fd00::7]:9411", "proxy at [fd00::7]:9411 refuses"),
		missing("n8", "agent http://n8:9411", "proxy at n8:9411 refuses"),
	}, nil)

	// Domains of hosts, a letter each: - has none, ! was not reached.
	for _, domains := range []string{"AAABBBCC", "AAABBBCCC", "AAABB", "AAA", "----", "AABB-", "AAABBBCC-", "AAABBBCC!", "AAABBBC!"} {
		list := hosts(t, many(len(domains), "gb200-tray")...)
		for i, d := range domains {
			switch d {
			case '-':
			case '!':
				list[i] = missing(list[i].Host, "", "")
			default:
				list[i].NVLinkDomain = string(d) + ".1"
			}
		}
		judge("NVLink domains "+domains, list, nil)
	}
	golden.Check(t, "testdata/headlines.golden", out.String())
}

// What is said of cables and links.
func TestFabricVerdicts(t *testing.T) {
	var out strings.Builder
	list := hosts(t, many(8, "dgx-h100")...)
	// judge judges a fabric of two groups after a change; cables are found by host and device.
	judge := func(about string, list []fleet.Host, perUnit int, change func(n *fleet.Network, at func(host int, device string) *fleet.Cable)) {
		t.Helper()
		n := railFabric(list, perUnit)
		change(n, func(host int, device string) *fleet.Cable { return cable(t, n, port(t, &list[host-1], device)) })
		out.WriteString(about + ": " + verdict(build(t, list, n)))
	}
	type find = func(int, string) *fleet.Cable
	swap := func(h1 int, d1 string, h2 int, d2 string) func(*fleet.Network, find) {
		return func(_ *fleet.Network, at find) {
			a, b := at(h1, d1), at(h2, d2)
			a.Leaf, a.LeafPort, b.Leaf, b.LeafPort = b.Leaf, b.LeafPort, a.Leaf, a.LeafPort
		}
	}
	judge("as it should be", list, 4, func(*fleet.Network, find) {})
	judge("swapped on a host", list, 4, swap(3, "mlx5_3", 3, "mlx5_4"))
	judge("swapped between groups", list, 4, swap(2, "mlx5_0", 7, "mlx5_0"))
	judge("swapped between hosts of a group", list, 4, swap(2, "mlx5_0", 4, "mlx5_11"))
	judge("swapped between hosts, of ports of other places", list, 4, swap(5, "mlx5_9", 8, "mlx5_10"))
	judge("moved to another leaf", list, 4, func(_ *fleet.Network, at find) { at(2, "mlx5_5").Leaf = "su0-leaf0" })
	judge("moved to a switch that nothing else is on", list, 4, func(n *fleet.Network, at find) {
		at(3, "mlx5_9").Leaf = "elsewhere"
		n.Switches = append(n.Switches, fleet.Switch{ID: "elsewhere"})
	})
	judge("cables that are not known", list, 4, func(n *fleet.Network, at find) {
		*at(3, "mlx5_9") = n.Cables[len(n.Cables)-1]
		n.Cables = n.Cables[:len(n.Cables)-1]
	})
	judge("all ports of a host on one leaf", list, 4, func(n *fleet.Network, _ find) {
		for i := range n.Cables {
			n.Cables[i].Leaf = strings.SplitN(n.Cables[i].Leaf, "-", 2)[0] + "-storage"
		}
	})
	judge("too few hosts to tell whose cables are swapped", list[:2], 2, swap(1, "mlx5_3", 1, "mlx5_4"))
	judge("uplinks of a leaf are gone", list, 4, func(n *fleet.Network, _ find) {
		n.Links[slices.IndexFunc(n.Links, func(l fleet.Link) bool { return l.A == "su1-leaf2" })].Count = 1
	})
	judge("all uplinks of a leaf are gone", list, 4, func(n *fleet.Network, _ find) {
		n.Links = slices.DeleteFunc(n.Links, func(l fleet.Link) bool { return l.A == "su1-leaf2" })
	})
	judge("oversubscribed everywhere", list, 4, func(n *fleet.Network, _ find) {
		for i := range n.Links {
			n.Links[i].Count = 2
		}
	})
	judge("no links", list, 4, func(n *fleet.Network, _ find) { n.Links = nil })
	judge("not in the fabric, and a name that says nothing", list[:5], 5, func(n *fleet.Network, at find) {
		gone := at(2, "mlx5_6").GUID
		at(3, "mlx5_0").Description = "MT4129 ConnectX7 Mellanox Technologies"
		n.Cables = slices.DeleteFunc(n.Cables, func(c fleet.Cable) bool { return c.GUID == gone || strings.HasPrefix(c.Description, "n4 ") })
	})
	// A leaf is not found wide enough for hosts that nothing is known of, also when the document is read again.
	f := build(t, list[1:], railFabric(list, 4))
	out.WriteString("a host that is not in the fleet: " + verdict(f))
	if again, err := f.Rebuild(nil); err != nil || verdict(again) != verdict(f) {
		t.Errorf("rebuilt: %v\n%s", err, verdict(again))
	}
	golden.Check(t, "testdata/fabric.golden", out.String())
}

// A fabric file joins by the hosts' names, and "*" is every other host.
func TestFabricFile(t *testing.T) {
	list := hosts(t, many(3, "dgx-h100")...)
	zero, one := 0, 1
	n := fleet.FromFabric(&pathsel.Fabric{Hosts: []pathsel.FabricHost{
		{Host: "n2", Ports: []pathsel.FabricPort{{Port: "mlx5_0", Rail: &one, Leaf: "leaf1"}}},
		{Host: "*", Ports: []pathsel.FabricPort{{Port: "mlx5_0", Rail: &zero, Leaf: "leaf0"}}},
	}, Uplinks: []pathsel.FabricUplink{{Leaf: "leaf0", Spine: "spine0", Count: 2}}}, "fabric.json")
	f := build(t, list, n)
	for i, want := range []string{"leaf0", "leaf1", "leaf0"} {
		if p := port(t, &f.Hosts[i], "mlx5_0"); p.Leaf != want || p.Known != fleet.KnownByFile {
			t.Errorf("%s: %+v", f.Hosts[i].Host, p)
		}
	}
	list[1].Name, list[1].Host = "n2", "rack1-n2" // a file may have what the host calls itself
	if p := port(t, &build(t, list, n).Hosts[2], "mlx5_0"); p.Leaf != "leaf1" {
		t.Errorf("%+v", p)
	}
	list[0].Name = "n2" // which means nothing where two do
	if p := port(t, &build(t, list, n).Hosts[2], "mlx5_0"); p.Leaf != "leaf0" && p.Leaf != "" {
		t.Errorf("%+v", p)
	}
	if len(f.Switches) != 3 || *f.Switches[2].Tier != 1 {
		t.Errorf("%+v", f.Switches)
	}
}
