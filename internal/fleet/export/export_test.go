package export_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/export"
	engines "github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/test/fabriclab"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
)

// site is a fleet of a fabric, as fleet check sees it, with the topologies of its hosts.
func site(t testing.TB, f *fabriclab.Fabric, change ...func(*fleet.Host)) (*fleet.Fleet, export.Documents) {
	t.Helper()
	fixture, err := fixturetest.Topology(t, "dgx-h100").Encode()
	if err != nil {
		t.Fatal(err)
	}
	known := f.Fleet()
	n := &fleet.Network{Source: "fabriclab", Switches: known.Switches, Links: known.Links}
	tops := map[string]*topo.Topology{}
	var hosts []fleet.Host
	for i := range known.Hosts {
		h := &known.Hosts[i]
		data, err := f.Document(fixture, i)
		if err != nil {
			t.Fatal(err)
		}
		top, err := topo.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		tops[h.Host] = top
		host, err := fleet.Summarize(h.Host, top)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range change {
			c(host)
		}
		hosts = append(hosts, *host)
		for _, p := range h.Ports {
			n.Cables = append(n.Cables, fleet.Cable{GUID: p.GUID, NodeGUID: p.NodeGUID, Leaf: p.Leaf, LeafPort: p.LeafPort, Known: p.Known})
		}
	}
	out, err := fleet.Build(hosts, n)
	if err != nil {
		t.Fatal(err)
	}
	return out, func(h *fleet.Host) (*topo.Topology, error) {
		if top := tops[h.Host]; top != nil {
			return top, nil
		}
		return nil, fmt.Errorf("%s: its topology is not there", h.Host)
	}
}

// rails is a fabric of two groups with rails and a network for storage, with one swapped cable between groups.
func rails(t testing.TB) (*fleet.Fleet, export.Documents) {
	f := fabriclab.New(fabriclab.Shape{Hosts: 6, Rails: 8, Storage: 2, HostsPerGroup: 3, Spines: 2, Uplinks: 2})
	f.Swap("n2/mlx5_3", "n5/mlx5_3")
	return site(t, f, func(h *fleet.Host) {
		h.NVLinkDomain = "0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.1"
		if slices.Contains([]string{"n4", "n5", "n6"}, h.Host) {
			h.NVLinkDomain = "0b0d27a8-3a0f-4a5d-9c5e-1f2e3d4c5b6a.2"
		}
	})
}

// all writes each format.
func all(t testing.TB, f *fleet.Fleet, documents export.Documents) map[string]export.Output {
	t.Helper()
	must := func(o export.Output, err error) export.Output {
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	return map[string]export.Output{
		"slurm-tree.conf": export.SlurmTree(f), "slurm-block.conf": export.SlurmBlock(f), "topology.yaml": export.SlurmYAML(f),
		"k8s-labels.sh": export.NodeLabels(f), "nfd-n2": must(export.FeatureFile(f, f.Hosts[1].Host)), "nodefeature.yaml": export.NodeFeatures(f, "node-feature-discovery"),
		"kueue.yaml": export.KueueTopology(f, "fleet"), "hypernode.yaml": export.HyperNodes(f),
		"dra-claim.yaml": export.Claims(f, 4), "dra-attributes.json": must(export.DeviceAttributes(f, true)),
		"env-nccl.sh": must(export.Env(f, documents, "", engines.NCCL)), "topograph-model.yaml": export.TopographModel(f),
		"ibsim.net": export.Ibsim(f), "fleet.dot": export.DOT(f), "fleet.svg": export.SVG(f),
	}
}

// The files are as they were reviewed; test/kubernetes and test/fabriclab give them to their readers.
func TestGolden(t *testing.T) {
	f, documents := rails(t)
	for name, o := range all(t, f, documents) {
		golden.Check(t, filepath.Join("testdata", name), o.Data)
		for _, n := range o.Notes {
			if bytes.Contains(o.Data, []byte("# ")) && !strings.HasSuffix(name, ".sh") && !strings.HasSuffix(name, ".net") && !bytes.Contains(o.Data, []byte(n)) {
				t.Errorf("%s does not say %q", name, n)
			}
		}
	}
}

// The order of the hosts changes nothing.
func TestOrder(t *testing.T) {
	f, documents := rails(t)
	want := all(t, f, documents)
	n := len(f.Hosts)
	rapid.Check(t, func(rt *rapid.T) {
		hosts := rapid.Permutation(slices.Clone(f.Hosts)).Draw(rt, "hosts")
		again, err := (&fleet.Fleet{Hosts: hosts, Switches: f.Switches, Links: f.Links}).Rebuild(nil)
		if err != nil || len(again.Hosts) != n {
			rt.Fatal(err)
		}
		for name, got := range map[string]export.Output{"slurm-tree.conf": export.SlurmTree(again), "topology.yaml": export.SlurmYAML(again),
			"k8s-labels.sh": export.NodeLabels(again), "hypernode.yaml": export.HyperNodes(again), "ibsim.net": export.Ibsim(again)} {
			if !bytes.Equal(got.Data, want[name].Data) {
				rt.Fatalf("%s:\n%s\nwant\n%s", name, got.Data, want[name].Data)
			}
		}
	})
}

// Names that a form forbids are replaced, never so that two become one, and hosts that cannot stand in it are told.
func TestNames(t *testing.T) {
	label := regexp.MustCompile(`=(\S*)`)
	value := regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringOfN(rapid.RuneFrom([]rune("aA0-_./ é;\n$#:")), 1, 90, -1), 2, 5, rapid.ID[string]).Draw(rt, "switches")
		f := &fleet.Fleet{}
		zero := 0
		for i, name := range names {
			id := fmt.Sprintf("sw:%d", i)
			f.Switches = append(f.Switches, fleet.Switch{ID: id, Name: name, Tier: &zero})
			f.Hosts = append(f.Hosts, fleet.Host{Host: fmt.Sprintf("n%d", i), Status: fleet.OK, Ports: []fleet.Port{{Port: "p", Role: "data", Leaf: id, Known: "x"}}})
			f.Groups = append(f.Groups, fleet.Group{Group: fmt.Sprint(i), Leaves: []string{id}, Hosts: []string{fmt.Sprintf("n%d", i)}})
		}
		f.Hosts = append(f.Hosts, fleet.Host{Host: "odd name", Status: fleet.OK})
		seen := map[string]bool{}
		labels := export.NodeLabels(f)
		for line := range strings.Lines(string(labels.Data)) {
			if !strings.HasPrefix(line, "kubectl") {
				continue
			}
			m := label.FindStringSubmatch(line)
			if m == nil || !value.MatchString(m[1]) || seen[m[1]] {
				rt.Fatalf("%q of %q", line, names)
			}
			seen[m[1]] = true
		}
		if len(seen) != len(names) {
			rt.Fatalf("%d labels for %q:\n%s", len(seen), names, labels.Data)
		}
		if !strings.Contains(strings.Join(labels.Notes, "\n"), `"odd name"`) {
			rt.Fatalf("notes %q", labels.Notes)
		}
		tree := export.SlurmTree(f)
		if n := strings.Count("\n"+string(tree.Data), "\nSwitchName="); n != len(names) {
			rt.Fatalf("%d switches of %q:\n%s", n, names, tree.Data)
		}
	})
}

// Without a network nothing is made up.
func TestNoNetwork(t *testing.T) {
	f, _ := rails(t)
	bare, err := fleet.Build(f.Hosts, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range bare.Hosts {
		for k := range bare.Hosts[i].Ports {
			p := &bare.Hosts[i].Ports[k]
			p.Leaf, p.Known, p.Rail = "", "", nil
		}
	}
	o := export.SlurmTree(bare)
	if strings.Contains(string(o.Data), "\nSwitchName") || !strings.Contains(strings.Join(o.Notes, "\n"), "6 hosts have no place in the fabric") {
		t.Errorf("%q\n%s", o.Notes, o.Data)
	}
}

// Graphviz reads the graph, the shell reads the scripts.
func TestReaders(t *testing.T) {
	f, documents := rails(t)
	out := all(t, f, documents)
	for _, c := range []struct {
		name string
		args []string
	}{{"fleet.dot", []string{"dot", "-Tsvg", "-o", os.DevNull}}, {"k8s-labels.sh", []string{"sh", "-n"}}, {"env-nccl.sh", []string{"sh", "-eu"}}} {
		if _, err := exec.LookPath(c.args[0]); err != nil {
			t.Logf("COULD NOT CHECK %s: %v", c.name, err)
			continue
		}
		cmd := exec.Command(c.args[0], c.args[1:]...)
		cmd.Stdin = bytes.NewReader(out[c.name].Data)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, text)
		}
	}
}

// A host's labels, its switch and its block say what they say whatever other hosts are in the fleet.
func TestNamesDoNotDependOnOtherHosts(t *testing.T) {
	whole := threeTiers(t, true)
	said := func(f *fleet.Fleet) map[string]string {
		out := map[string]string{}
		group := map[string]string{}
		for _, g := range f.Groups {
			for _, h := range g.Hosts {
				group[h] = g.Group
			}
		}
		labels := regexp.MustCompile(`(?m)^kubectl label --overwrite node (\S+) (.*) topoctl.dev/worst-finding=\S+$`)
		for _, m := range labels.FindAllStringSubmatch(string(export.NodeLabels(f).Data), -1) {
			out[m[1]] = m[2]
			if tier, ok := strings.CutPrefix(m[2], "fabric.topograph.run/tier-0="); !ok || !strings.HasPrefix(tier, group[m[1]]+" ") {
				t.Errorf("%s: group %s, labels %s", m[1], group[m[1]], m[2])
			}
			for _, x := range strings.Fields(m[2]) {
				if _, value, _ := strings.Cut(x, "="); !regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`).MatchString(value) {
					t.Errorf("%q is no value of a label", value)
				}
			}
		}
		for i, data := range [][]byte{export.SlurmTree(f).Data, export.SlurmBlock(f).Data} {
			c, err := readConf(data)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range c.lines {
				words := strings.Fields(line)
				for _, h := range words[1:] {
					if out[h] != "" && (i == 0 || strings.Contains(out[h], "domain=")) { // without domains blocks are places
						out[h] += " " + words[0]
					}
				}
			}
		}
		return out
	}
	want := said(whole)
	if len(want) != len(whole.Hosts) {
		t.Fatalf("%q", want)
	}
	rapid.Check(t, func(rt *rapid.T) {
		part := *whole
		part.Hosts = nil
		for i := range whole.Hosts {
			if rapid.Bool().Draw(rt, whole.Hosts[i].Host) {
				part.Hosts = append(part.Hosts, whole.Hosts[i])
			}
		}
		if len(part.Hosts) == 0 {
			return
		}
		some, err := part.Rebuild(nil)
		if err != nil {
			rt.Fatal(err)
		}
		for host, names := range said(some) {
			if names != want[host] {
				rt.Fatalf("%s of %d hosts: %s, of all: %s", host, len(part.Hosts), names, want[host])
			}
		}
	})
}
