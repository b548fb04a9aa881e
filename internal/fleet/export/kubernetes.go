package export

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/text"
)

// FeatureFile writes the labels of one host as a feature file of Node Feature Discovery, to be put on that host as
// /etc/kubernetes/node-feature-discovery/features.d/topoctl.
func FeatureFile(f *fleet.Fleet, host string) (Output, error) {
	i := slices.IndexFunc(f.Hosts, func(h fleet.Host) bool { return h.Host == host })
	if i < 0 {
		return Output{}, fmt.Errorf("the fleet has no host %q: it has %s", host, text.List(hostNames(f), 8))
	}
	l := newLabeler(f)
	h := &f.Hosts[i]
	out := begin("# ", fmt.Sprintf("# Features of %s, written by topoctl fleet export. Move it into features.d in one step (mv).\n", comment(h.Host)), l.notes)
	for _, x := range l.own(h) {
		fmt.Fprintf(out, "%s=%s\n", x.key, x.value)
	}
	for p := l.of[h.Host]; p != nil; p = p.above {
		fmt.Fprintf(out, "topoctl.dev/fabric-tier-%d=%s\n", p.tier, l.names[p])
	}
	if h.NVLinkDomain != "" {
		fmt.Fprintf(out, "topoctl.dev/nvlink-domain=%s\n", l.value.name(h.NVLinkDomain))
	}
	const most = 64 << 10
	if out.Len() > most {
		return Output{}, fmt.Errorf("%d bytes: Node Feature Discovery reads at most %d", out.Len(), most)
	}
	return Output{out.Bytes(), l.notes}, nil
}

// NodeFeatures writes a NodeFeature of Node Feature Discovery for each host: labels, the host's place, and its ports.
func NodeFeatures(f *fleet.Fleet, namespace string) Output {
	l := newLabeler(f)
	known, notes := nodes(hostNames(f))
	notes = append(notes, l.notes...)
	names := objects()
	out := head("NodeFeatures", notes)
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if !slices.Contains(known, h.Host) || !h.Known() {
			continue
		}
		fmt.Fprintf(out, "---\napiVersion: nfd.k8s-sigs.io/v1alpha1\nkind: NodeFeature\nmetadata:\n  name: %s\n  namespace: %s\n  labels:\n    nfd.node.kubernetes.io/node-name: %s\nspec:\n",
			yaml(names.name("topoctl-"+h.Host)), yaml(namespace), yaml(h.Host))
		if own := l.own(h); len(own) > 0 {
			out.WriteString("  labels:\n")
			for _, x := range own {
				fmt.Fprintf(out, "    %s: %s\n", x.key, yaml(x.value))
			}
		}
		out.WriteString("  features:\n    flags: {}\n    attributes:\n      topoctl.fabric:\n        elements:\n")
		elements := []label{{"class", h.Class}, {"rails", number(rails(h))}, {"nic-gpu-worst-class", worstClass(h)}, {"nvlink-domain", h.NVLinkDomain}}
		for p := l.of[h.Host]; p != nil; p = p.above {
			elements = append(elements, label{fmt.Sprintf("fabric-tier-%d", p.tier), l.names[p]})
		}
		elements = slices.DeleteFunc(elements, func(x label) bool { return x.value == "" })
		if len(elements) == 0 {
			trim(out, "\n")
			out.WriteString(" {}\n")
		}
		for _, x := range elements {
			fmt.Fprintf(out, "          %s: %s\n", x.key, yaml(x.value))
		}
		out.WriteString("    instances:\n      topoctl.port:\n        elements:\n")
		if len(h.Ports) == 0 {
			trim(out, "\n")
			out.WriteString(" []\n")
		}
		for k := range h.Ports {
			out.WriteString("        - attributes:\n")
			for _, x := range portAttributes(f, &h.Ports[k]) {
				fmt.Fprintf(out, "            %s: %s\n", x.key, yaml(x.value))
			}
		}
	}
	return Output{out.Bytes(), notes}
}

// portAttributes are what a NodeFeature says of a port; what is not known is left out.
func portAttributes(f *fleet.Fleet, p *fleet.Port) []label {
	list := []label{{"port", p.Port}, {"role", string(p.Role)}, {"link_layer", p.LinkLayer}, {"state", p.State}, {"leaf_port", p.LeafPort}, {"known_by", p.Known}, {"gpu_class", p.Class}}
	if p.Leaf != "" {
		list = append(list, label{"leaf", f.SwitchName(p.Leaf)})
	}
	if p.Rail != nil {
		list = append(list, label{"rail", strconv.Itoa(*p.Rail)})
	}
	if p.Plane != nil {
		list = append(list, label{"plane", strconv.Itoa(*p.Plane)})
	}
	if p.BytesPerSec != nil {
		list = append(list, label{"rate_gbps", strconv.FormatFloat(float64(*p.BytesPerSec)*8/1e9, 'f', -1, 64)})
	}
	if len(p.Nearest) > 0 {
		list = append(list, label{"nearest_gpus", strings.Join(p.Nearest, ",")})
	}
	return slices.DeleteFunc(list, func(x label) bool { return x.value == "" })
}

// number is a count, "" for 0, which is not known.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// trim takes text off the end of a buffer.
func trim(b *bytes.Buffer, tail string) {
	if bytes.HasSuffix(b.Bytes(), []byte(tail)) {
		b.Truncate(b.Len() - len(tail))
	}
}

// KueueTopology writes a Topology for Kueue's topology-aware scheduling: its levels are the labels of NodeLabels.
func KueueTopology(f *fleet.Fleet, name string) Output {
	t := treeOf(f)
	notes := append([]string{"Kueue reads the nodes' labels: topoctl fleet export k8s-labels writes them"}, t.notes...)
	tiers, all := map[int]int{}, 0
	for _, p := range t.of {
		all++
		for ; p != nil; p = p.above {
			tiers[p.tier]++
		}
	}
	var levels []string
	const mostLevels = 16
	for tier := t.tiers; tier >= 0; tier-- {
		switch n := tiers[tier]; {
		case n == all && n > 0 && len(levels) < mostLevels-1:
			levels = append(levels, fmt.Sprint(tierKey, tier))
		case n > 0:
			notes = append(notes, fmt.Sprintf("tier %d is no level: %d of %d nodes have it, and Kueue takes nodes only that have all levels", tier, n, all))
		}
	}
	levels = append(levels, "kubernetes.io/hostname")
	out := head("A Topology", notes)
	fmt.Fprintf(out, "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata:\n  name: %s\nspec:\n  levels:\n", yaml(objects().name(name)))
	for _, l := range levels {
		fmt.Fprintf(out, "  - nodeLabel: %s\n", yaml(l))
	}
	return Output{out.Bytes(), notes}
}

// HyperNodes writes the places as HyperNodes of Volcano: tier 1 has nodes.
func HyperNodes(f *fleet.Fleet) Output {
	t := treeOf(f)
	known, notes := nodes(hostNames(f))
	notes = append(notes, t.notes...)
	names := t.names(objects())
	out := head("HyperNodes", notes)
	for _, p := range t.all() {
		members, kind := p.hosts, "Node"
		if p.tier > 0 {
			kind, members = "HyperNode", nil
			for _, b := range p.below {
				members = append(members, names[b])
			}
		}
		fmt.Fprintf(out, "---\n# %s\napiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata:\n  name: %s\nspec:\n  tier: %d\n  members:\n", comment(p.about()), yaml(names[p]), p.tier+1)
		some := false
		for _, m := range members {
			if kind == "Node" && !slices.Contains(known, m) {
				continue
			}
			some = true
			fmt.Fprintf(out, "  - type: %s\n    selector:\n      exactMatch:\n        name: %s\n", kind, yaml(m))
		}
		if !some {
			trim(out, "\n")
			out.WriteString(" []\n")
		}
	}
	return Output{out.Bytes(), notes}
}
