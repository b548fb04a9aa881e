package sources_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"

	"github.com/topoctl/topoctl/internal/fleet/sources"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
)

// links is the text of ibnetdiscover -p for cables such as "S1[1] H7[1]".
func links(t *testing.T, cables ...string) *sources.Subnet {
	t.Helper()
	var b strings.Builder
	for _, c := range cables {
		var a, z string
		var ap, zp, ag, zg int
		if _, err := fmt.Sscanf(c, "%1s%d[%d] %1s%d[%d]", &a, &ag, &ap, &z, &zg, &zp); err != nil {
			t.Fatal(c, err)
		}
		kind := map[string]string{"S": "SW", "H": "CA"}
		fmt.Fprintf(&b, "%s 1 %d 0x%016x 4x NDR - %s 1 %d 0x%016x ( '%s%d' - '%s%d' )\n", kind[a], ap, ag, kind[z], zp, zg, a, ag, z, zg)
	}
	s, err := sources.Parse([]byte(b.String()))
	if err != nil || len(s.Problems) > 0 {
		t.Fatal(err, s.Problems)
	}
	return s
}

func rate(r topo.Rate) *topo.Rate { return &r }

// tiers are those of the switches, by name.
func tiers(n *fleet.Network) string {
	var out []string
	for _, s := range n.Switches {
		tier := "?"
		if s.Tier != nil {
			tier = fmt.Sprint(*s.Tier)
		}
		out = append(out, s.Name+"="+tier)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// A manager's adapter on a spine makes no leaf of it; switches joined back to back are leaves both.
func TestTiers(t *testing.T) {
	clos := []string{"S1[1] H101[1]", "S1[2] H102[1]", "S2[1] H103[1]", "S2[2] H104[1]", "S1[11] S3[1]", "S1[12] S3[2]", "S2[11] S3[3]", "S2[12] S3[4]", "S3[9] S4[1]"}
	for _, c := range []struct {
		name   string
		cables []string
		want   string
	}{
		{"three tiers", clos, "S1=0 S2=0 S3=1 S4=2"},
		{"a manager on the spine", append(slices.Clone(clos), "S3[40] H900[1]"), "S1=0 S2=0 S3=1 S4=2"},
		{"two leaves", []string{"S1[1] H101[1]", "S2[1] H102[1]", "S1[11] S2[11]", "S1[12] S2[12]", "S1[13] S2[13]", "S1[14] S2[14]"}, "S1=0 S2=0"},
		{"no host", []string{"S1[1] S2[1]"}, "S1=? S2=?"},
	} {
		n := sources.FromSubnet(links(t, c.cables...), "x")
		if got := tiers(n); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		tier := map[string]*int{}
		for _, s := range n.Switches {
			tier[s.ID] = s.Tier
		}
		for _, l := range n.Links {
			if a, b := tier[l.A], tier[l.B]; a != nil && b != nil && *a > *b {
				t.Errorf("%s: link %+v leads down", c.name, l)
			}
		}
	}
}

// The first source counts; what it does not tell comes from the others, and disagreement is told.
func TestMerge(t *testing.T) {
	rail := 3
	user := &fleet.Network{Source: "user", Cables: []fleet.Cable{{Host: "n1", Port: "a", Rail: &rail, Known: "fabric file"}, {Host: "n1", Port: "b", Leaf: "l1", Known: "fabric file"}}}
	heard := &fleet.Network{Source: "lldp", Switches: []fleet.Switch{{ID: "l2", Name: "two"}},
		Cables: []fleet.Cable{{Host: "n1", Port: "a", Leaf: "l2", LeafPort: "7", Known: "lldp"}, {Host: "n1", Port: "b", Leaf: "l2", Known: "lldp"}}}
	n, conflicts := sources.Merge(user, heard)
	if len(n.Cables) != 2 || len(conflicts) != 1 || !strings.Contains(conflicts[0], "n1/b is on l1 by fabric file, on l2 by lldp: the first counts") {
		t.Errorf("%+v %q", n.Cables, conflicts)
	}
	if c := n.Cables[0]; c.Leaf != "l2" || c.LeafPort != "7" || *c.Rail != 3 || c.Known != "lldp" {
		t.Errorf("%+v", c)
	}
	if c := n.Cables[1]; c.Leaf != "l1" || c.Known != "fabric file" {
		t.Errorf("%+v", c)
	}
}

// Two hosts back to back, a hub that passes LLDP on, and a switch that does not say which it is are no cables.
func TestLLDPLeft(t *testing.T) {
	leaf := func(id string) sources.Chassis {
		return sources.Chassis{ID: id, Name: id, Enabled: []string{"Bridge"}}
	}
	f := &fleet.Fleet{Hosts: []fleet.Host{
		{Host: "n1", Ports: []fleet.Port{{Port: "eth0", MAC: "02:00:00:00:00:01"}}},
		{Host: "n2", Ports: []fleet.Port{{Port: "eth0", MAC: "02:00:00:00:00:02"}}},
	}}
	n, left := sources.FromLLDP([]sources.Heard{
		{Host: "n1", Report: &sources.LLDPReport{Neighbors: []sources.Neighbor{{Interface: "eth0", Chassis: sources.Chassis{ID: "02:00:00:00:00:02", Name: "leaf-of-name"}}}}},
		{Host: "n2", Report: &sources.LLDPReport{Neighbors: []sources.Neighbor{{Interface: "eth0", Chassis: leaf("aa")}, {Interface: "eth0", Chassis: leaf("bb")}}}},
		{Host: "sw", Report: &sources.LLDPReport{Neighbors: []sources.Neighbor{{Interface: "1", Chassis: leaf("aa")}}}},
	}, f, "lldp")
	if len(n.Cables)+len(n.Links) != 0 {
		t.Errorf("%+v %+v", n.Cables, n.Links)
	}
	for i, want := range []string{"n1/eth0 hears n2/eth0: a host, no switch", "n2/eth0 hears several neighbours", "sw: the fleet has no such host"} {
		if i >= len(left) || !strings.HasPrefix(left[i], want) {
			t.Errorf("%q, want %q", left, want)
		}
	}
}

// A switch's tier is how far it is from hosts, whoever is heard first: the core's file comes before the leaves'.
func TestLLDPTiers(t *testing.T) {
	sw := func(id string) sources.Chassis {
		return sources.Chassis{ID: id, Name: id, Enabled: []string{"Bridge"}}
	}
	says := func(name string, hears ...string) sources.Heard {
		own := sw(name)
		r := &sources.LLDPReport{Local: &own}
		for i, h := range hears {
			r.Neighbors = append(r.Neighbors, sources.Neighbor{Interface: fmt.Sprint("swp", i+1), Chassis: sw(h), PortID: "to-" + name})
		}
		return sources.Heard{Host: name, Report: r}
	}
	f := &fleet.Fleet{Hosts: []fleet.Host{{Host: "n1", Ports: []fleet.Port{{Port: "eth0"}}}, {Host: "n2", Ports: []fleet.Port{{Port: "eth0"}}}}}
	host := func(name, leaf string) sources.Heard {
		return sources.Heard{Host: name, Report: &sources.LLDPReport{Neighbors: []sources.Neighbor{{Interface: "eth0", Chassis: sw(leaf)}}}}
	}
	list := []sources.Heard{says("core", "spine1", "spine2"), says("alone", "other"), host("n1", "leaf1"), host("n2", "leaf2"), says("spine1", "leaf1"), says("spine2", "leaf2")}
	want := "alone=? core=2 leaf1=0 leaf2=0 other=? spine1=1 spine2=1"
	for range list {
		list = append(list[1:], list[0])
		n, left := sources.FromLLDP(list, f, "lldp")
		if got := tiers(n); got != want || len(left) > 0 || len(n.Links) != 5 {
			t.Errorf("%s, want %s; %q; %d links", got, want, left, len(n.Links))
		}
		for _, l := range n.Links {
			if l.A == "sw:core" || l.B == "sw:leaf1" || l.B == "sw:leaf2" {
				t.Errorf("link %+v leads down", l)
			}
		}
	}
}

// Names that two switches have, and those that reports cannot show, are replaced by IDs; links of different rates
// have none.
func TestFile(t *testing.T) {
	zero, one := 0, 1
	fast, slow := rate(50e9), rate(25e9)
	f := &fleet.Fleet{
		Switches: []fleet.Switch{{ID: "sw:1", Name: "leaf", Tier: &zero}, {ID: "sw:2", Name: "leaf", Tier: &zero}, {ID: "sw:3", Name: "a > b", Tier: &one}, {ID: "sw:4", Name: "spine", Tier: &one}},
		Links: []fleet.Link{{A: "sw:1", APort: "1", B: "sw:4", BPort: "1", Count: 1, BytesPerSec: fast}, {A: "sw:1", APort: "2", B: "sw:4", BPort: "2", Count: 1, BytesPerSec: slow},
			{A: "sw:2", B: "sw:3", Count: 2, BytesPerSec: fast}, {A: "sw:2", B: "sw:4", Count: 1, Down: true}},
		Hosts: []fleet.Host{{Host: "n1", Ports: []fleet.Port{{Port: "p", Leaf: "sw:1", Known: "ibnetdiscover"}, {Port: "q"}}}, {Host: "n2"}},
	}
	file, notes := sources.File(f, []fleet.Cable{{GUID: "0x0000000000000001", Leaf: "sw:2", Description: "n9"}})
	data, err := file.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pathsel.ParseFabric(data); err != nil {
		t.Errorf("%v\n%s", err, data)
	}
	want := `{"schema":"topoctl.fabric/v1",
"hosts":[
{"host":"n1","ports":[{"port":"p","leaf":"sw:1","known":"ibnetdiscover"}]}
],
"uplinks":[
{"leaf":"sw:1","spine":"spine","count":2,"ports":[["1","1"],["2","2"]]},
{"leaf":"sw:2","spine":"sw:3","count":2,"bytes_per_sec":50000000000}
],
"switches":[
{"switch":"sw:1","tier":0},
{"switch":"sw:2","tier":0},
{"switch":"spine","id":"sw:4","tier":1},
{"switch":"sw:3","tier":1}
],
"unjoined":[
{"what":"adapter 0x0000000000000001","leaf":"sw:2","reason":"no host of the fleet has this GUID or MAC; it describes itself as \"n9\""}
]
}
`
	if string(data) != want || len(notes) != 1 {
		t.Errorf("%s\nwant\n%s\n%q", data, want, notes)
	}
}

// A probe's report tells of the leaves and uplinks that it was run with.
func TestFromProbe(t *testing.T) {
	r := &probe.Report{Links: []probe.Link{
		{Host: "n1", Link: "port:mlx5_0/1", Direction: "up", On: []string{"n1 rdma:mlx5_0", "n1", "leaf:l0"}},
		{Host: "n1", Link: "port:mlx5_0/1", Direction: "down", On: []string{"n1 rdma:mlx5_0", "n1", "leaf:l0"}},
		{Link: "leaf:l0/spine:s0", Kind: probe.LinkUplink, Direction: "up", On: []string{"leaf:l0", "spine:s0"}, BytesPerSec: rate(50e9)},
		{Link: "leaf:l0/spines", Kind: probe.LinkUplink, Direction: "up", On: []string{"leaf:l0"}},
	}}
	n := sources.FromProbe(r, "report.json")
	if len(n.Cables) != 1 || n.Cables[0].Host != "n1" || n.Cables[0].Port != "mlx5_0/1" || n.Cables[0].Leaf != "l0" || len(n.Links) != 1 || n.Links[0].B != "s0" || *n.Links[0].BytesPerSec != 50e9 || len(n.Switches) != 2 {
		t.Errorf("%+v", n)
	}
}
