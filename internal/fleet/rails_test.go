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
