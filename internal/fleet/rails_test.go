package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/pathsel"
)

// railFabric is a rail-optimised fabric: the ports of one place of each scalable unit are on one leaf,
// storage ports on another one, and each leaf has uplinks enough for its hosts.
func railFabric(list []fleet.Host, perUnit int) *fleet.Network {
	n := &fleet.Network{Source: "ibnetdiscover"}
	tier0, tier1 := 0, 1
	seen := map[string]int{}
	for i := range list {
		rail := 0
		for j := range list[i].Ports {
			p := &list[i].Ports[j]
			if p.Role == pathsel.RoleManagement {
				continue
			}
			leaf := fmt.Sprintf("su%d-storage", i/perUnit)
			if p.Role == pathsel.RoleData {
				leaf = fmt.Sprintf("su%d-leaf%d", i/perUnit, rail)
				rail++
			}
			seen[leaf]++
			n.Cables = append(n.Cables, fleet.Cable{GUID: p.GUID, MAC: p.MAC, Leaf: leaf, LeafPort: fmt.Sprint(seen[leaf]), Known: "ibnetdiscover", Description: list[i].Host + " " + p.Device})
		}
	}
	rate := topo.Rate(50e9)
	for leaf, ports := range seen {
		n.Switches = append(n.Switches, fleet.Switch{ID: leaf, Kind: "ib", Tier: &tier0})
		n.Links = append(n.Links, fleet.Link{A: leaf, B: "spine", Count: ports, BytesPerSec: &rate, Known: "ibnetdiscover"})
	}
	n.Switches = append(n.Switches, fleet.Switch{ID: "spine", Kind: "ib", Tier: &tier1})
	return n
}

// cable is that of a port.
func cable(tb testing.TB, n *fleet.Network, p *fleet.Port) *fleet.Cable {
	tb.Helper()
	i := slices.IndexFunc(n.Cables, func(c fleet.Cable) bool { return c.GUID == p.GUID && c.MAC == p.MAC })
	if i < 0 {
		tb.Fatalf("no cable of %s", p.Port)
	}
	return &n.Cables[i]
}

// found are the findings of a code.
func found(f *fleet.Fleet, code fleet.Code) []fleet.Finding {
	return slices.DeleteFunc(slices.Clone(f.Findings), func(x fleet.Finding) bool { return x.Code != code })
}

// A fabric as it should be has no finding, each port has its rail, and leaves of one unit are a group.
func TestRails(t *testing.T) {
	list := hosts(t, many(8, "dgx-h100")...)
	f := build(t, list, railFabric(list, 4))
	if f.Headline() != "No problem found: 8 hosts of one class, 290 facts compared." {
		t.Error(f.Headline())
	}
	for i := range f.Hosts {
		rail := 0
		for _, p := range f.Hosts[i].Ports {
			switch {
			case p.Role != pathsel.RoleData:
				if p.Rail != nil {
					t.Errorf("%s of role %s has rail %d", p.Port, p.Role, *p.Rail)
				}
			case p.Rail == nil || *p.Rail != rail:
				t.Errorf("%s %s: rail %v, want %d", f.Hosts[i].Host, p.Port, p.Rail, rail)
			default:
				rail++
			}
		}
	}
	if len(f.Groups) != 2 || len(f.Groups[0].Leaves) != 9 || !slices.Equal(f.Groups[0].Hosts, []string{"n1", "n2", "n3", "n4"}) {
		t.Errorf("%+v", f.Groups)
	}
	for _, u := range f.Unknown {
		if u.Code != fleet.CodeDomainIncomplete {
			t.Errorf("%+v", u)
		}
	}
}

// Groups are as cables are meant: one stays whole where a cable is swapped with another group's, is not known, or leads to
// a switch that nothing else is on.
func TestGroups(t *testing.T) {
	list := hosts(t, many(8, "dgx-h100")...)
	group := func(n *fleet.Network) string {
		var out []string
		for _, g := range build(t, list, n).Groups {
			out = append(out, fmt.Sprintf("%d leaves of %s", len(g.Leaves), strings.Join(g.Hosts, " ")))
		}
		return strings.Join(out, ", ")
	}
	const whole = "9 leaves of n1 n2 n3 n4, 9 leaves of n5 n6 n7 n8"
	if got := group(railFabric(list, 4)); got != whole {
		t.Error(got)
	}
	n := railFabric(list, 4)
	a, b := cable(t, n, port(t, &list[1], "mlx5_3")), cable(t, n, port(t, &list[6], "mlx5_3"))
	a.Leaf, b.Leaf = b.Leaf, a.Leaf
	if got := group(n); got != whole {
		t.Errorf("swapped between groups: %s", got)
	}
	n = railFabric(list, 4)
	gone := cable(t, n, port(t, &list[2], "mlx5_9"))
	*gone = n.Cables[len(n.Cables)-1]
	n.Cables = n.Cables[:len(n.Cables)-1]
	if got := group(n); got != whole {
		t.Errorf("cables that are not known: %s", got)
	}
	n = railFabric(list, 4)
	cable(t, n, port(t, &list[2], "mlx5_9")).Leaf = "elsewhere"
	n.Switches = append(n.Switches, fleet.Switch{ID: "elsewhere"})
	if got := group(n); got != "1 leaves of n3, "+whole {
		t.Errorf("on a switch of its own: %s", got)
	}
}

// Two swapped cables are named, and nothing else: within a host and between two.
func TestSwappedCables(t *testing.T) {
	for _, c := range []struct{ a, b [2]string }{
		{[2]string{"n3", "mlx5_3"}, [2]string{"n3", "mlx5_4"}},
		{[2]string{"n2", "mlx5_0"}, [2]string{"n7", "mlx5_0"}},
		{[2]string{"n2", "mlx5_0"}, [2]string{"n4", "mlx5_11"}},
		{[2]string{"n5", "mlx5_9"}, [2]string{"n8", "mlx5_10"}},
	} {
		list := hosts(t, many(8, "dgx-h100")...)
		n := railFabric(list, 4)
		get := func(at [2]string) *fleet.Cable {
			i := slices.IndexFunc(list, func(h fleet.Host) bool { return h.Host == at[0] })
			return cable(t, n, port(t, &list[i], at[1]))
		}
		a, b := get(c.a), get(c.b)
		a.Leaf, a.LeafPort, b.Leaf, b.LeafPort = b.Leaf, b.LeafPort, a.Leaf, a.LeafPort
		f := build(t, list, n)
		got := found(f, fleet.CodeRailMiswired)
		want := []string{strings.Join(c.a[:], "/"), strings.Join(c.b[:], "/")}
		if len(got) != 1 || !slices.Equal(got[0].Subjects, want) || f.Worst() != "error" {
			t.Errorf("%v: %+v", want, got)
			continue
		}
		if h := f.Headline(); h != fmt.Sprintf("The cables of %s and %s are swapped.", want[0], want[1]) {
			t.Error(h)
		}
		for _, x := range f.Findings {
			if x.Source == fleet.SourceFleet && x.Code != fleet.CodeRailMiswired {
				t.Errorf("%v: %+v", want, x)
			}
		}
	}
}

// A port on a wrong leaf without a counterpart is named alone.
func TestMovedCable(t *testing.T) {
	list := hosts(t, many(4, "dgx-h100")...)
	n := railFabric(list, 4)
	cable(t, n, port(t, &list[1], "mlx5_5")).Leaf = "su0-leaf0"
	f := build(t, list, n)
	if got := found(f, fleet.CodeRailMiswired); len(got) != 1 || !slices.Equal(got[0].Subjects, []string{"n2/mlx5_5"}) || got[0].Text != "n2/mlx5_5 is cabled to su0-leaf0, the others' to su0-leaf3" {
		t.Errorf("%+v", got)
	}
}

// On a fabric where all ports of a host are on one leaf there are no rails, and nothing is miswired.
func TestFatTree(t *testing.T) {
	list := hosts(t, many(8, "dgx-h100")...)
	n := railFabric(list, 4)
	for i := range n.Cables {
		n.Cables[i].Leaf = strings.SplitN(n.Cables[i].Leaf, "-", 2)[0] + "-storage"
	}
	f := build(t, list, n)
	if got := found(f, fleet.CodeRailMiswired); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	for i := range f.Hosts {
		for _, p := range f.Hosts[i].Ports {
			if p.Rail != nil {
				t.Fatalf("%s has rail %d", p.Port, *p.Rail)
			}
		}
	}
}

// Two hosts cannot tell whose cables are swapped: it could not be checked.
func TestTooFewForRails(t *testing.T) {
	list := hosts(t, many(2, "dgx-h100")...)
	n := railFabric(list, 2)
	a, b := cable(t, n, port(t, &list[0], "mlx5_3")), cable(t, n, port(t, &list[0], "mlx5_4"))
	a.Leaf, b.Leaf = b.Leaf, a.Leaf
	f := build(t, list, n)
	if len(found(f, fleet.CodeRailMiswired)) > 0 || !slices.ContainsFunc(f.Unknown, func(u fleet.Unknown) bool { return u.Code == fleet.CodeRailMiswired }) {
		t.Errorf("%+v\n%+v", f.Findings, f.Unknown)
	}
}

// A leaf whose uplinks are gone is thin, and has fewer than its sisters. Where all are, it is how the
// fabric is built.
func TestThinLeaves(t *testing.T) {
	list := hosts(t, many(8, "dgx-h100")...)
	n := railFabric(list, 4)
	i := slices.IndexFunc(n.Links, func(l fleet.Link) bool { return l.A == "su1-leaf2" })
	n.Links[i].Count = 1
	f := build(t, list, n)
	for _, code := range []fleet.Code{fleet.CodeLeafThin, fleet.CodeLeafUplinkDown} {
		if got := found(f, code); len(got) != 1 || !slices.Equal(got[0].Subjects, []string{"su1-leaf2"}) {
			t.Errorf("%s: %+v", code, got)
		}
	}
	n.Links = slices.Delete(n.Links, i, i+1)
	f = build(t, list, n)
	if got := found(f, fleet.CodeLeafThin); len(got) != 1 || !strings.Contains(got[0].Text, "su1-leaf2 has no uplink") {
		t.Errorf("%+v", got)
	}
	// A leaf is not found wide enough for hosts that nothing is known of.
	n = railFabric(list, 4)
	f = build(t, list[1:], n)
	if i := slices.IndexFunc(f.Unknown, func(u fleet.Unknown) bool { return u.Code == fleet.CodeLeafThin }); i < 0 || len(found(f, fleet.CodeLeafThin)) > 0 ||
		!strings.HasPrefix(f.Unknown[i].Text, "8 leaves have ports of hosts that are not known: su0-leaf0 (1)") {
		t.Errorf("%+v, unknown %+v", found(f, fleet.CodeLeafThin), f.Unknown)
	}
	if again, err := f.Rebuild(nil); err != nil || !slices.EqualFunc(again.Unknown, f.Unknown, func(a, b fleet.Unknown) bool { return a.Text == b.Text }) {
		t.Errorf("rebuilt: %v %+v", err, again)
	}
	n = railFabric(list, 4)
	for i := range n.Links {
		n.Links[i].Count = 2
	}
	f = build(t, list, n)
	if got := found(f, fleet.CodeLeafThin); len(got) != 1 || got[0].Severity != "info" || got[0].Text != "each of 16 leaves is oversubscribed 2 : 1" {
		t.Errorf("%+v", got)
	}
	n.Links = nil
	f = build(t, list, n)
	if len(found(f, fleet.CodeLeafThin)) > 0 || !slices.ContainsFunc(f.Unknown, func(u fleet.Unknown) bool { return u.Code == fleet.CodeLeafThin }) {
		t.Errorf("%+v", f.Unknown)
	}
}

// Ports and hosts that the fabric does not have are findings, and so are names that say nothing.
func TestNotInFabric(t *testing.T) {
	list := hosts(t, many(5, "dgx-h100")...)
	n := railFabric(list, 5)
	gone := port(t, &list[1], "mlx5_6")
	n.Cables = slices.DeleteFunc(n.Cables, func(c fleet.Cable) bool {
		return c.GUID == gone.GUID || strings.HasPrefix(c.Description, "n4 ")
	})
	cable(t, n, port(t, &list[2], "mlx5_0")).Description = "MT4129 ConnectX7 Mellanox Technologies"
	f := build(t, list, n)
	if got := found(f, fleet.CodePortNotInFabric); len(got) != 1 || !slices.Equal(got[0].Subjects, []string{"n2/mlx5_6"}) {
		t.Errorf("%+v", got)
	}
	if got := found(f, fleet.CodeHostNotInFabric); len(got) != 1 || !slices.Equal(got[0].Hosts, []string{"n4"}) {
		t.Errorf("%+v", got)
	}
	if got := found(f, fleet.CodeNameDefault); len(got) != 1 || !slices.Equal(got[0].Hosts, []string{"n3"}) {
		t.Errorf("%+v", got)
	}
}

// The fabric stays in the document: a fleet that is read again is judged alike.
func TestRebuild(t *testing.T) {
	list := hosts(t, many(4, "dgx-h100")...)
	n := railFabric(list, 4)
	a, b := cable(t, n, port(t, &list[2], "mlx5_3")), cable(t, n, port(t, &list[2], "mlx5_4"))
	a.Leaf, b.Leaf = b.Leaf, a.Leaf
	f := build(t, list, n)
	data, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := fleet.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.Rebuild(nil)
	if err != nil {
		t.Fatal(err)
	}
	if data2, err := again.Encode(); err != nil || string(data2) != string(data) {
		t.Errorf("%v\n%s\n%s", err, f.Headline(), again.Headline())
	}
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

// fault is something that makes one host odd.
var faults = []func(tb testing.TB, h *fleet.Host){
	func(tb testing.TB, h *fleet.Host) { port(tb, h, "mlx5_3").Firmware = "1.2.3" },
	func(_ testing.TB, h *fleet.Host) { h.Kernel = "3.10" },
	func(tb testing.TB, h *fleet.Host) { port(tb, h, "mlx5_9").State = "DOWN" },
	func(_ testing.TB, h *fleet.Host) { four := 4; h.GPUs[5].Width = &four },
	func(_ testing.TB, h *fleet.Host) { less := *h.MemoryBytes / 2; h.MemoryBytes = &less },
	func(_ testing.TB, h *fleet.Host) { h.GPUs, h.Fingerprint = h.GPUs[:7], "sha256:other" },
	func(_ testing.TB, h *fleet.Host) { h.Modules = append(slices.Clone(h.Modules), "evil") },
}

// blame is whom a fleet blames for what, without their names: identities are as in the machine id.
func blame(f *fleet.Fleet) []string {
	id := map[string]string{}
	for i := range f.Hosts {
		id[f.Hosts[i].Host] = f.Hosts[i].MachineID
	}
	var out []string
	for _, x := range f.Findings {
		if x.Code != fleet.CodeHostOdd && x.Code != fleet.CodeRailMiswired {
			continue
		}
		var who []string
		for _, s := range slices.Concat(x.Hosts, x.Subjects) {
			host, device, _ := strings.Cut(s, "/")
			who = append(who, id[host]+"/"+device)
		}
		slices.Sort(who)
		out = append(out, string(x.Code)+" "+strings.Join(who, " "))
	}
	slices.Sort(out)
	return out
}

// Neither the order of hosts nor their names, nor hosts that were not reached, nor facts that a host does
// not tell, change who is blamed. At most a third of the hosts being odd, those and no others are.
func TestBlameProperties(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(3, 9).Draw(r, "hosts")
		list := hosts(t, many(n, "dgx-h100")...)
		odd := map[string]bool{}
		for range rapid.IntRange(0, n/3).Draw(r, "faults") {
			i := rapid.IntRange(0, n-1).Draw(r, "host")
			rapid.SampledFrom(faults).Draw(r, "fault")(t, &list[i])
			odd[list[i].MachineID] = true
		}
		network := railFabric(list, n)
		f := build(t, list, network)
		want := blame(f)
		for i := range f.Hosts {
			h := &f.Hosts[i]
			named := slices.ContainsFunc(want, func(s string) bool { return strings.Contains(s, " "+h.MachineID+"/") })
			if named != odd[h.MachineID] {
				r.Fatalf("%s is odd: %v, blamed: %v: %q", h.Host, odd[h.MachineID], named, want)
			}
		}

		other := slices.Clone(list)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		random.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		for i := range other {
			other[i].Host = fmt.Sprintf("%c%d", 'a'+random.IntN(26), random.IntN(1000)*100+i)
		}
		if got := blame(build(t, other, network)); !slices.Equal(got, want) {
			r.Fatalf("other names and order: %q, want %q", got, want)
		}
		for range rapid.IntRange(1, 5).Draw(r, "not reached") {
			other = append(other, fleet.Host{Host: fmt.Sprint("z", len(other)), Status: fleet.NotReached})
		}
		if got := blame(build(t, other, network)); !slices.Equal(got, want) {
			r.Fatalf("hosts that were not reached: %q, want %q", got, want)
		}
	})
}

// A fact that a host lacks blames nobody: hiding facts of hosts never adds a host to the blamed.
func TestHidingBlamesNobody(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(3, 9).Draw(r, "hosts")
		list := hosts(t, many(n, "dgx-h100")...)
		for range rapid.IntRange(1, 4).Draw(r, "hidden") {
			h := &list[rapid.IntRange(0, n-1).Draw(r, "host")]
			switch rapid.IntRange(0, 5).Draw(r, "what") {
			case 0:
				h.Kernel, h.GPUDriver = "", ""
			case 1:
				h.MemoryBytes, h.Modules, h.KernelOptions = nil, nil, nil
			case 2:
				for i := range h.Ports {
					h.Ports[i].Firmware, h.Ports[i].NetdevMTU, h.Ports[i].State, h.Ports[i].PKeys = "", nil, "", nil
				}
			case 3:
				for i := range h.GPUs {
					h.GPUs[i].Width, h.GPUs[i].Plan, h.GPUs[i].MIG = nil, nil, nil
				}
			case 4: // another tool's file knows no RDMA devices and no GPUs' driver
				h.Origin, h.Ports, h.GPUs, h.NICs = "import:lspci", nil, nil, 0
			case 5:
				*h = fleet.Host{Host: h.Host, Status: fleet.NotReached}
			}
		}
		if f := build(t, list, nil); len(blame(f)) > 0 || len(found(f, fleet.CodeHostsDisagree)) > 0 {
			r.Fatalf("%+v", f.Findings)
		}
	})
}
