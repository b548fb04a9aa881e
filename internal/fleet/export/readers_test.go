package export_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/export"
	"github.com/topoctl/topoctl/test/fabriclab"
)

// The readers here are made from what Slurm and topograph document of their files, not from what export writes: the man
// pages topology.conf(5) and topology.yaml(5) of Slurm 25.05, and topograph's docs/modeling.md with pkg/models of 1.0.

// topology is a file as its reader has it: a line for each switch and block, in the order of the file.
type topology struct {
	lines []string
	nodes []string // that the file has, each once
}

// children reads a list of hosts: n[1-3,7],m2.
func children(list string) ([]string, error) {
	var out []string
	word := regexp.MustCompile(`^([A-Za-z0-9_.-]*)(?:\[([0-9,-]+)\])?([A-Za-z0-9_.-]*)(?:,|$)`)
	for list != "" {
		m := word.FindStringSubmatch(list)
		if m == nil || m[0] == "" || m[1]+m[2] == "" {
			return nil, fmt.Errorf("list of hosts at %q", list)
		}
		list = list[len(m[0]):]
		if m[2] == "" {
			out = append(out, m[1]+m[3])
			continue
		}
		for part := range strings.SplitSeq(m[2], ",") {
			low, high, ok := strings.Cut(part, "-")
			if !ok {
				high = low
			}
			from, err := strconv.Atoi(low)
			to, err2 := strconv.Atoi(high)
			if errors.Join(err, err2) != nil || to < from || ok && to == from {
				return nil, fmt.Errorf("range %q", part)
			}
			for i := from; i <= to; i++ {
				out = append(out, fmt.Sprintf("%s%0*d%s", m[1], len(low), i, m[3]))
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("an empty list of hosts")
	}
	return out, nil
}

// branch is a switch with nodes or switches below it.
type branch struct{ name, nodes, switches string }

// trees holds switches to Slurm's rules: names once, nodes or switches below each, each below one switch, no circle.
func trees(list []branch) (t topology, err error) {
	known, above := map[string]bool{}, map[string]string{}
	for _, b := range list {
		if b.name == "" || known[b.name] || (b.nodes == "") == (b.switches == "") {
			return t, fmt.Errorf("switch %q is there twice, or has not just nodes or switches", b.name)
		}
		known[b.name] = true
		below, err := children(b.nodes + b.switches)
		if err != nil {
			return t, err
		}
		for _, c := range below {
			kind := "switch "
			if b.nodes != "" {
				kind, t.nodes = "node ", append(t.nodes, c)
			}
			if above[kind+c] != "" {
				return t, fmt.Errorf("%s%s is below %s and %s", kind, c, above[kind+c], b.name)
			}
			above[kind+c] = b.name
		}
		t.lines = append(t.lines, b.name+" "+strings.Join(below, " "))
	}
	for key, up := range above {
		if name, ok := strings.CutPrefix(key, "switch "); ok && !known[name] {
			return t, fmt.Errorf("%s is below %s, and not there", name, up)
		}
		for i := 0; up != ""; i++ {
			if up = above["switch "+up]; i > len(list) {
				return t, errors.New("a circle")
			}
		}
	}
	return t, nil
}

// blocksOf holds blocks to Slurm's rules: names once, each node in one block, sizes that are the first times rising powers
// of two, and blocks that have as many nodes as the first at least.
func blocksOf(list []branch, sizes []int) (t topology, err error) {
	known, in := map[string]bool{}, map[string]bool{}
	for i, n := range sizes {
		if n < 1 || i > 0 && (n <= sizes[i-1] || n%sizes[0] != 0 || n/sizes[0]&(n/sizes[0]-1) != 0) {
			return t, fmt.Errorf("block sizes %d", sizes)
		}
	}
	for _, b := range list {
		below, err := children(b.nodes)
		if err != nil || b.name == "" || known[b.name] || len(sizes) == 0 || len(below) < sizes[0] {
			return t, fmt.Errorf("block %q with %d nodes, sizes %d: %w", b.name, len(below), sizes, err)
		}
		known[b.name] = true
		for _, c := range below {
			if in[c] {
				return t, fmt.Errorf("node %s is in two blocks", c)
			}
			in[c] = true
		}
		t.nodes = append(t.nodes, below...)
		t.lines = append(t.lines, b.name+" "+strings.Join(below, " "))
	}
	if len(sizes) > 0 {
		t.lines = append(t.lines, fmt.Sprint(sizes))
	}
	return t, nil
}

// readConf reads topology.conf of topology/tree or topology/block.
func readConf(data []byte) (t topology, err error) {
	var switches, blocks []branch
	var sizes []int
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		said := map[string]string{}
		for _, word := range strings.Fields(line) {
			key, value, ok := strings.Cut(word, "=")
			if _, twice := said[key]; !ok || twice || value == "" {
				return t, fmt.Errorf("line %q", line)
			}
			said[key] = value
		}
		take := func(key string) string { defer delete(said, key); return said[key] }
		switch {
		case len(said) == 0:
			continue
		case said["SwitchName"] != "":
			switches = append(switches, branch{take("SwitchName"), take("Nodes"), take("Switches")})
			take("LinkSpeed")
		case said["BlockName"] != "":
			blocks = append(blocks, branch{name: take("BlockName"), nodes: take("Nodes")})
		case said["BlockSizes"] != "" && sizes == nil:
			for s := range strings.SplitSeq(take("BlockSizes"), ",") {
				n, err := strconv.Atoi(s)
				if err != nil {
					return t, err
				}
				sizes = append(sizes, n)
			}
		}
		if len(said) > 0 {
			return t, fmt.Errorf("line %q: %v", line, said)
		}
	}
	if len(switches) > 0 && len(blocks)+len(sizes) > 0 {
		return t, errors.New("a tree and blocks")
	}
	if len(switches) > 0 {
		return trees(switches)
	}
	return blocksOf(blocks, sizes)
}

// strictYAML reads one document that has the keys of a value and no others.
func strictYAML(data []byte, into any) error {
	in := yaml.NewDecoder(bytes.NewReader(data))
	in.KnownFields(true)
	if err := in.Decode(into); err != nil {
		return err
	}
	if err := in.Decode(new(any)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("more than one document: %w", err)
	}
	return nil
}

// readYAML reads topology.yaml: topologies by name. "topology" has to be the first key of each.
func readYAML(data []byte) (map[string]topology, error) {
	var list []struct {
		Topology string `yaml:"topology"`
		Default  *bool  `yaml:"cluster_default"`
		Flat     bool   `yaml:"flat"`
		Tree     *struct {
			Switches []struct {
				Switch   string `yaml:"switch"`
				Children string `yaml:"children"`
				Nodes    string `yaml:"nodes"`
			} `yaml:"switches"`
		} `yaml:"tree"`
		Block *struct {
			Sizes  []int `yaml:"block_sizes"`
			Blocks []struct {
				Block string `yaml:"block"`
				Nodes string `yaml:"nodes"`
			} `yaml:"blocks"`
		} `yaml:"block"`
	}
	if err := strictYAML(data, &list); err != nil {
		return nil, err
	}
	if n := len(regexp.MustCompile(`(?m)^- topology: `).FindAll(data, -1)); n != len(list) {
		return nil, fmt.Errorf("%d of %d topologies begin with their name", n, len(list))
	}
	out, defaults := map[string]topology{}, 0
	for _, x := range list {
		kinds := 0
		for _, is := range []bool{x.Flat, x.Tree != nil, x.Block != nil} {
			if is {
				kinds++
			}
		}
		if _, twice := out[x.Topology]; x.Topology == "" || twice || kinds != 1 {
			return nil, fmt.Errorf("topology %q is of %d kinds, or there twice", x.Topology, kinds)
		}
		if x.Default != nil && *x.Default {
			defaults++
		}
		var branches []branch
		var t topology
		var err error
		switch {
		case x.Tree != nil:
			for _, s := range x.Tree.Switches {
				branches = append(branches, branch{s.Switch, s.Nodes, s.Children})
			}
			t, err = trees(branches)
		case x.Block != nil:
			for _, b := range x.Block.Blocks {
				branches = append(branches, branch{name: b.Block, nodes: b.Nodes})
			}
			t, err = blocksOf(branches, x.Block.Sizes)
		}
		if err != nil {
			return nil, err
		}
		out[x.Topology] = t
	}
	if defaults != 1 {
		return nil, fmt.Errorf("%d topologies are the default", defaults)
	}
	return out, nil
}

// readModel reads a model of topograph: "node: the layers of switches above it, the domain", by name.
func readModel(data []byte) (map[string]string, error) {
	type vertex struct {
		Name        string            `yaml:"name"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
		Switches    []string          `yaml:"switches"`
	}
	var model struct {
		Switches map[string]*vertex `yaml:"switches"`
		Blocks   []struct {
			Switch      string            `yaml:"switch"`
			Nodes       []string          `yaml:"nodes"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"blocks"`
	}
	if err := strictYAML(data, &model); err != nil {
		return nil, err
	}
	above := map[string]string{}
	for name, v := range model.Switches {
		if v == nil || v.Name != "" && v.Name != name {
			return nil, fmt.Errorf("switch %q is empty, or called otherwise", name)
		}
		for _, s := range v.Switches {
			if above[s] != "" {
				return nil, fmt.Errorf("switch %q is below two", s)
			}
			above[s] = name
		}
	}
	out := map[string]string{}
	for i, b := range model.Blocks {
		_, leaf := above[b.Switch]
		if model.Switches[b.Switch] == nil && !leaf || len(b.Nodes) == 0 {
			return nil, fmt.Errorf("block %d: switch %q with %d nodes", i, b.Switch, len(b.Nodes))
		}
		layers, at := "", b.Switch
		for range len(above) + 2 {
			if at == "" {
				break
			}
			layers, at = layers+" "+at, above[at]
		}
		if at != "" {
			return nil, errors.New("a circle")
		}
		for _, list := range b.Nodes {
			names, err := children(list)
			if err != nil {
				return nil, err
			}
			for _, n := range names {
				if out[n] != "" {
					return nil, fmt.Errorf("node %q is in two blocks", n)
				}
				out[n] = strings.TrimSpace(layers + ", " + b.Annotations["accelerator.topology.test/domain"])
			}
		}
	}
	return out, nil
}

// threeTiers is two pods of two groups of two hosts each, on two rails, with cores above; NVLink domains do not end where
// groups do, and n4 is of none.
func threeTiers(t testing.TB, domains bool) *fleet.Fleet {
	lab := fabriclab.New(fabriclab.Shape{Hosts: 8, Rails: 2, HostsPerGroup: 2, HostsPerPod: 4, Spines: 2, Cores: 2})
	f, _ := site(t, lab, func(h *fleet.Host) {
		for domain, hosts := range map[string]string{"a.1": "n1 n2 n3", "b.1": "n5 n6 n7 n8"} {
			if domains && slices.Contains(strings.Fields(hosts), h.Host) {
				h.NVLinkDomain = domain
			}
		}
	})
	return f
}

// What is read of three tiers is what the fabric is, as each format's rules have it.
func TestThreeTiers(t *testing.T) {
	f := threeTiers(t, true)
	same := func(what string, got, want []string, err error) {
		t.Helper()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v\ngot\n%s\nwant\n%s", what, err, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	places := []string{"su-ae3f3952 n1 n2", "su-74f2d290 n3 n4", "su-28347a3d n5 n6", "su-1e37ae73 n7 n8", "tier1-be1f95f3 su-74f2d290 su-ae3f3952", "tier1-76057452 su-1e37ae73 su-28347a3d", "tier2-335cbe19 tier1-76057452 tier1-be1f95f3"}
	inDomains := []string{"a.1 n1 n2 n3", "b.1 n5 n6 n7 n8", "[3 6]"}
	tree, err := readConf(export.SlurmTree(f).Data)
	same("slurm-tree", tree.lines, places, err)
	block := export.SlurmBlock(f)
	blocks, err := readConf(block.Data)
	same("slurm-block", blocks.lines, inDomains, err)
	for _, want := range []string{"1 host is of no NVLink domain and in no block: n4", "block sizes begin with the smallest, 3"} {
		if !strings.Contains(strings.Join(block.Notes, "\n"), want) || !strings.Contains(string(block.Data), want) {
			t.Errorf("slurm-block: not told: %q of %q", want, block.Notes)
		}
	}
	topologies, err := readYAML(export.SlurmYAML(f).Data)
	same("slurm-yaml: tree", topologies["fabric"].lines, places, err)
	same("slurm-yaml: blocks", topologies["blocks"].lines, inDomains, err)
	if _, ok := topologies["flat"]; !ok || len(topologies) != 3 {
		t.Errorf("slurm-yaml: %v", topologies)
	}
	model, err := readModel(export.TopographModel(f).Data)
	var layers []string
	for _, h := range []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"} {
		layers = append(layers, h+": "+model[h])
	}
	same("topograph-model", layers, []string{
		"n1: su-ae3f3952 tier1-be1f95f3 tier2-335cbe19, a.1", "n2: su-ae3f3952 tier1-be1f95f3 tier2-335cbe19, a.1", "n3: su-74f2d290 tier1-be1f95f3 tier2-335cbe19, a.1", "n4: su-74f2d290 tier1-be1f95f3 tier2-335cbe19,",
		"n5: su-28347a3d tier1-76057452 tier2-335cbe19, b.1", "n6: su-28347a3d tier1-76057452 tier2-335cbe19, b.1", "n7: su-1e37ae73 tier1-76057452 tier2-335cbe19, b.1", "n8: su-1e37ae73 tier1-76057452 tier2-335cbe19, b.1",
	}, err)

	var labels []string
	for line := range strings.Lines(string(export.NodeLabels(f).Data)) {
		if words := strings.Fields(line); words[0] == "kubectl" {
			labels = append(labels, strings.Join(slices.DeleteFunc(words[4:], func(w string) bool { return strings.HasPrefix(w, "topoctl.dev/") }), " "))
		}
	}
	const tiers, domain = "fabric.topograph.run/tier-0=%s fabric.topograph.run/tier-1=%s fabric.topograph.run/tier-2=tier2-335cbe19", " accelerator.topograph.run/domain="
	var want []string
	for i, group := range []string{"su-ae3f3952", "su-ae3f3952", "su-74f2d290", "su-74f2d290", "su-28347a3d", "su-28347a3d", "su-1e37ae73", "su-1e37ae73"} {
		line := fmt.Sprintf("n%d "+tiers, i+1, group, []string{"tier1-be1f95f3", "tier1-76057452"}[i/4])
		switch {
		case i < 3:
			line += domain + "a.1"
		case i > 3:
			line += domain + "b.1"
		}
		want = append(want, line)
	}
	same("k8s-labels", labels, want, nil)

	var levels []string
	for _, m := range regexp.MustCompile(`nodeLabel: "(.*)"`).FindAllStringSubmatch(string(export.KueueTopology(f, "fleet").Data), -1) {
		levels = append(levels, m[1])
	}
	same("kueue", levels, []string{"fabric.topograph.run/tier-2", "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0", "kubernetes.io/hostname"}, nil)

	var hypernodes []string
	for part := range strings.SplitSeq(string(export.HyperNodes(f).Data), "\n---\n") {
		var h struct {
			APIVersion string                `yaml:"apiVersion"`
			Kind       string                `yaml:"kind"`
			Metadata   struct{ Name string } `yaml:"metadata"`
			Spec       struct {
				Tier    int
				Members []struct {
					Type     string
					Selector struct {
						ExactMatch struct{ Name string } `yaml:"exactMatch"`
					}
				}
			}
		}
		if err := strictYAML([]byte(part), &h); errors.Is(err, io.EOF) {
			continue // the comment above
		} else if err != nil || h.APIVersion != "topology.volcano.sh/v1alpha1" || h.Kind != "HyperNode" {
			t.Errorf("%v: %s", err, part)
		}
		line := fmt.Sprintf("%d %s", h.Spec.Tier, h.Metadata.Name)
		for _, m := range h.Spec.Members {
			line += " " + m.Type + "/" + m.Selector.ExactMatch.Name
		}
		hypernodes = append(hypernodes, line)
	}
	same("hypernode", hypernodes, []string{
		"1 su-ae3f3952 Node/n1 Node/n2", "1 su-74f2d290 Node/n3 Node/n4", "1 su-28347a3d Node/n5 Node/n6", "1 su-1e37ae73 Node/n7 Node/n8",
		"2 tier1-be1f95f3 HyperNode/su-ae3f3952 HyperNode/su-74f2d290", "2 tier1-76057452 HyperNode/su-28347a3d HyperNode/su-1e37ae73", "3 tier2-335cbe19 HyperNode/tier1-be1f95f3 HyperNode/tier1-76057452",
	}, nil)
}

// Without NVLink domains, blocks are groups of leaves. Their sizes are those that topograph's documents have for as many
// domains of 8 (docs.nvidia.com/topograph, "Automatic block-size inference").
func TestBlockSizes(t *testing.T) {
	blocks, err := readConf(export.SlurmBlock(threeTiers(t, false)).Data)
	if want := []string{"su-ae3f3952 n1 n2", "su-74f2d290 n3 n4", "su-28347a3d n5 n6", "su-1e37ae73 n7 n8", "[2 4 8]"}; err != nil || !slices.Equal(blocks.lines, want) {
		t.Errorf("%v: %q, want %q", err, blocks.lines, want)
	}
	for domains, want := range map[int]string{1: "[8]", 2: "[8 16]", 3: "[8 16]", 4: "[8 16 32]", 8: "[8 16 32 64]"} {
		f := &fleet.Fleet{}
		for d := range domains {
			var hosts []string
			for i := range 8 {
				hosts = append(hosts, fmt.Sprintf("n%d", d*8+i))
				f.Hosts = append(f.Hosts, fleet.Host{Host: hosts[i], Status: fleet.OK})
			}
			f.Domains = append(f.Domains, fleet.Domain{Domain: fmt.Sprint("d", d), Hosts: hosts})
		}
		got, err := readConf(export.SlurmBlock(f).Data)
		if err != nil || len(got.lines) != domains+1 || got.lines[domains] != want || len(got.nodes) != 8*domains {
			t.Errorf("%d domains: %v: %q, want %s", domains, err, got.lines, want)
		}
	}
}

// What was reviewed is what a strict reader reads, and the reader can refuse: a file with one mistake is no topology.
func TestReadersRefuse(t *testing.T) {
	f, _ := rails(t)
	conf := func(b []byte) error { _, err := readConf(b); return err }
	topologies := func(b []byte) error { _, err := readYAML(b); return err }
	model := func(b []byte) error { _, err := readModel(b); return err }
	for _, c := range []struct {
		name     string
		data     []byte
		read     func([]byte) error
		mistakes [][2]string
	}{
		{"slurm-tree", export.SlurmTree(f).Data, conf, [][2]string{{"Nodes=n[4-6]", "Nodes=n[3-6]"}, {"Nodes=n[4-6]", "Nodes=n[6-4]"}, {"Switches=su-ae3f3952,", "Switches=su-[7-9],"},
			{"SwitchName=su-be1f95f3", "SwitchName=su-ae3f3952"}, {"Nodes=n[4-6]", "Hosts=n[4-6]"}, {"Switches=su-ae3f3952,su-be1f95f3", "Switches=tier1-f7e6d1f3"}}},
		{"slurm-block", export.SlurmBlock(f).Data, conf, [][2]string{{"BlockSizes=3,6", "BlockSizes=3,9"}, {"BlockSizes=3,6", "BlockSizes=4,8"}, {"BlockSizes=3,6", ""},
			{"6a.2 Nodes", "6a.1 Nodes"}, {"Nodes=n[4-6]", "Nodes=n[3-5]"}}},
		{"slurm-yaml", export.SlurmYAML(f).Data, topologies, [][2]string{{"cluster_default: true", "cluster_default: false"}, {"block_sizes: [3, 6]", "block_sizes: [3, 7]"},
			{"    switches:\n", "    switch:\n"}, {"children: \"su-ae3f3952,", "children: \"su-[0-3],"}, {"- topology: flat\n  cluster_default: false", "- cluster_default: false\n  topology: flat"}, {"  flat: true\n", ""}}},
		{"topograph-model", export.TopographModel(f).Data, model, [][2]string{{"    - \"su-be1f95f3\"", "    - \"su-ae3f3952\""}, {"\"su-be1f95f3\": {}", "\"su-be1f95f3\":"}, {"- switch: \"su-be1f95f3\"", "- switch: \"su9\""},
			{"\"n4\"", "\"n3\""}, {"blocks:", "capacityBlocks:"}, {"  annotations:", "  annotation:"}}},
	} {
		if err := c.read(c.data); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, m := range c.mistakes {
			wrong := bytes.Replace(c.data, []byte(m[0]), []byte(m[1]), 1)
			if err := c.read(wrong); bytes.Equal(wrong, c.data) || err == nil {
				t.Errorf("%s with %q for %q is accepted", c.name, m[1], m[0])
			}
		}
	}
}
