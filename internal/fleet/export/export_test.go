package export_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/export"
	engines "github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/test/fabriclab"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/golden"
	"github.com/topoctl/topoctl/testkit/longtest"
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

// The files are as they were reviewed, of a fabric with rails and of one with three tiers; test/kubernetes and test/fabriclab
// give them to their readers.
func TestGolden(t *testing.T) {
	f, documents := rails(t)
	check := func(dir string, files map[string]export.Output) {
		for name, o := range files {
			golden.Check(t, filepath.Join("testdata", dir, name), o.Data)
			for _, n := range o.Notes {
				if bytes.Contains(o.Data, []byte("# ")) && !strings.HasSuffix(name, ".sh") && !strings.HasSuffix(name, ".net") && !bytes.Contains(o.Data, []byte(n)) {
					t.Errorf("%s does not say %q", name, n)
				}
			}
			if in := yaml.NewDecoder(bytes.NewReader(o.Data)); strings.HasSuffix(name, ".yaml") {
				var err error
				for err == nil {
					err = in.Decode(new(any))
				}
				if !errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	check("", all(t, f, documents))
	tiers := threeTiers(t)
	check("three-tiers", map[string]export.Output{"slurm-tree.conf": export.SlurmTree(tiers), "slurm-block.conf": export.SlurmBlock(tiers), "topology.yaml": export.SlurmYAML(tiers),
		"k8s-labels.sh": export.NodeLabels(tiers), "kueue.yaml": export.KueueTopology(tiers, "fleet"), "hypernode.yaml": export.HyperNodes(tiers), "topograph-model.yaml": export.TopographModel(tiers)})
	tiers.Domains = nil // blocks are groups of leaves then
	check("three-tiers", map[string]export.Output{"slurm-block-groups.conf": export.SlurmBlock(tiers)})
}

// threeTiers is two pods of two groups of two hosts each, on two rails, with cores above; NVLink domains do not end where
// groups do, and n4 is in none.
func threeTiers(t testing.TB) *fleet.Fleet {
	lab := fabriclab.New(fabriclab.Shape{Hosts: 8, Rails: 2, HostsPerGroup: 2, HostsPerPod: 4, Spines: 2, Cores: 2})
	f, _ := site(t, lab, func(h *fleet.Host) {
		h.NVLinkDomain = map[string]string{"n1": "a.1", "n2": "a.1", "n3": "a.1", "n5": "b.1", "n6": "b.1", "n7": "b.1", "n8": "b.1"}[h.Host]
	})
	return f
}

// Block sizes are those that topograph's documents have for as many domains of 8 hosts (docs.nvidia.com/topograph,
// "Automatic block-size inference").
func TestBlockSizes(t *testing.T) {
	for domains, want := range map[int]string{1: "8", 2: "8,16", 3: "8,16", 4: "8,16,32", 8: "8,16,32,64"} {
		f := &fleet.Fleet{}
		for d := range domains {
			var hosts []string
			for i := range 8 {
				hosts = append(hosts, fmt.Sprintf("n%d", d*8+i))
				f.Hosts = append(f.Hosts, fleet.Host{Host: hosts[i], Status: fleet.OK})
			}
			f.Domains = append(f.Domains, fleet.Domain{Domain: fmt.Sprint("d", d), Hosts: hosts})
		}
		got := string(export.SlurmBlock(f).Data)
		if !strings.HasSuffix(got, "\nBlockSizes="+want+"\n") || strings.Count(got, "\nBlockName=") != domains {
			t.Errorf("%d domains: want %s:\n%s", domains, want, got)
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

// A host's labels, and the switches and blocks of Slurm, are called what they are called whatever other hosts are in the
// fleet.
func TestNamesDoNotDependOnOtherHosts(t *testing.T) {
	whole := threeTiers(t)
	labels := regexp.MustCompile(`(?m)^kubectl label --overwrite node (\S+) (.*) topoctl.dev/worst-finding=\S+$`)
	inSlurm := regexp.MustCompile(`(?m)^(?:SwitchName|BlockName)=\S+`)
	said := func(f *fleet.Fleet) map[string]string {
		out := map[string]string{}
		for _, m := range labels.FindAllStringSubmatch(string(export.NodeLabels(f).Data), -1) {
			out[m[1]] = m[2]
		}
		for _, data := range [][]byte{export.SlurmTree(f).Data, export.SlurmBlock(f).Data} {
			for _, name := range inSlurm.FindAllString(string(data), -1) {
				if len(f.Domains) > 0 || strings.HasPrefix(name, "Switch") { // without domains blocks are places
					out[name] = name
				}
			}
		}
		return out
	}
	want := said(whole)
	if len(want) != len(whole.Hosts)+7+2 {
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
		for of, name := range said(some) {
			if name != want[of] {
				rt.Fatalf("%s with %d hosts: %s, with all: %s", of, len(part.Hosts), name, want[of])
			}
		}
	})
}

// An ordinary run tries the properties on fewer cases.
func TestMain(m *testing.M) { longtest.Main(m) }
