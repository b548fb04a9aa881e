package export

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/pathsel"
)

// Keys of node labels. The first are topograph's since its version 1.0, which schedulers read; tier 0 is nearest
// to the node.
const (
	tierKey   = "fabric.topograph.run/tier-"
	domainKey = "accelerator.topograph.run/domain"
	classKey  = "topoctl.dev/class"
	railsKey  = "topoctl.dev/rails"
	worstKey  = "topoctl.dev/gpu-nic-class"
	healthKey = "topoctl.dev/worst-finding"
)

// label is one label of a node.
type label struct{ key, value string }

// labeler gives nodes their labels, with values that are the same wherever the fleet is exported.
type labeler struct {
	*tree
	f     *fleet.Fleet
	names map[*place]string
	value *namer
}

func newLabeler(f *fleet.Fleet) *labeler {
	l := &labeler{tree: treeOf(f), f: f, value: labels()}
	l.names = l.tree.names(l.value)
	return l
}

// labels are the labels of a host.
func (l *labeler) labels(h *fleet.Host) []label {
	var out []label
	for p := l.of[h.Host]; p != nil; p = p.above {
		out = append(out, label{fmt.Sprint(tierKey, p.tier), l.names[p]})
	}
	if h.NVLinkDomain != "" {
		out = append(out, label{domainKey, l.value.name(h.NVLinkDomain)})
	}
	return append(out, l.own(h)...)
}

// own are the labels that are topoctl's.
func (l *labeler) own(h *fleet.Host) []label {
	var out []label
	if h.Class != "" {
		out = append(out, label{classKey, l.value.name(h.Class)})
	}
	if n := rails(h); n > 0 {
		out = append(out, label{railsKey, fmt.Sprint(n)})
	}
	if c := worstClass(h); c != "" {
		out = append(out, label{worstKey, l.value.name(c)})
	}
	if h.Known() {
		out = append(out, label{healthKey, cmp.Or(string(l.f.WorstAbout(h.Host)), "none")})
	}
	return out
}

// rails is how many rails a host has ports on, 0 for not known.
func rails(h *fleet.Host) int {
	seen := map[int]bool{}
	for i := range h.Ports {
		if p := &h.Ports[i]; p.Rail != nil && p.Role == pathsel.RoleData {
			seen[*p.Rail] = true
		}
	}
	return len(seen)
}

// worstClass is the class between that GPU and its planned ports that are farthest from each other, "" where it is not
// known of a GPU.
func worstClass(h *fleet.Host) string {
	var worst topo.Class
	for i := range h.GPUs {
		class, err := topo.ParseClass(h.GPUs[i].PlanClass)
		if err != nil {
			return ""
		}
		if i == 0 || class.Compare(worst) > 0 {
			worst = class
		}
	}
	return worst.String()
}

// NodeLabels writes a script of kubectl commands that labels the nodes with topograph's keys and ours.
func NodeLabels(f *fleet.Fleet) Output {
	l := newLabeler(f)
	known, notes := nodes(hostNames(f))
	notes = append(notes, l.notes...)
	out := begin("# ", "#!/bin/sh\n# Node labels, written by topoctl fleet export. A label of another place is overwritten.\n", notes)
	out.WriteString("set -eu\n")
	for i := range f.Hosts {
		h := &f.Hosts[i]
		list := l.labels(h)
		if len(list) == 0 || !slices.Contains(known, h.Host) {
			continue
		}
		fmt.Fprintf(out, "kubectl label --overwrite node %s", h.Host)
		for _, x := range list {
			fmt.Fprintf(out, " %s=%s", x.key, x.value)
		}
		out.WriteString("\n")
	}
	return Output{out.Bytes(), notes}
}

func hostNames(f *fleet.Fleet) []string {
	out := make([]string, len(f.Hosts))
	for i := range f.Hosts {
		out[i] = f.Hosts[i].Host
	}
	return out
}

// TopographModel writes the model that topograph's tests and simulator read.
func TopographModel(f *fleet.Fleet) Output {
	t := treeOf(f)
	names := t.names(labels())
	out := head("A model for topograph", t.notes)
	domain := map[string]string{}
	for i := range f.Hosts {
		domain[f.Hosts[i].Host] = f.Hosts[i].NVLinkDomain
	}
	out.WriteString("switches:\n")
	all := t.all()
	for i := len(all) - 1; i >= 0; i-- {
		p := all[i]
		if p.tier == 0 {
			fmt.Fprintf(out, "  %s: {} # %s\n", yaml(names[p]), comment(p.about()))
			continue
		}
		fmt.Fprintf(out, "  %s: # %s\n    switches:\n", yaml(names[p]), comment(p.about()))
		for _, b := range p.below {
			fmt.Fprintf(out, "    - %s\n", yaml(names[b]))
		}
	}
	out.WriteString("blocks:\n")
	for _, p := range all {
		if p.tier > 0 {
			continue
		}
		for _, of := range group.By(p.hosts, func(h string) string { return domain[h] }) {
			fmt.Fprintf(out, "- switch: %s\n  nodes:\n", yaml(names[p]))
			for _, h := range of {
				fmt.Fprintf(out, "  - %s\n", yaml(h))
			}
			if d := domain[of[0]]; d != "" {
				fmt.Fprintf(out, "  annotations:\n    accelerator.topology.test/domain: %s\n", yaml(d))
			}
		}
	}
	return Output{out.Bytes(), t.notes}
}
