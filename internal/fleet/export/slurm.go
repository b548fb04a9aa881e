package export

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/text"
)

// slurm is what Slurm's three forms are made of.
type slurm struct {
	*tree
	names  map[*place]string
	blocks []block
	sizes  []int
	odd    []string
}

// block is a set of nodes that Slurm fills first.
type block struct {
	name, about string
	hosts       []string
}

func newSlurm(f *fleet.Fleet) *slurm {
	s := &slurm{tree: treeOf(f)}
	s.names = s.tree.names(words())
	for _, p := range s.all() {
		p.hosts = s.listable(p.hosts)
	}
	s.outside = s.listable(s.outside)
	b := words()
	seen := map[string]bool{}
	for _, d := range f.Domains {
		hosts := s.listable(d.Hosts)
		for _, h := range hosts {
			seen[h] = true
		}
		s.blocks = append(s.blocks, block{b.name(d.Domain), "NVLink domain " + d.Domain, hosts})
	}
	if len(s.blocks) == 0 {
		for _, p := range s.all() {
			if p.tier == 0 && len(p.hosts) > 0 {
				s.blocks = append(s.blocks, block{b.name(p.name), p.about(), p.hosts})
			}
		}
	} else if without := notIn(f, seen); len(without) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s of no NVLink domain and in no block: %s", text.Plural(len(without), "host is", "hosts are"), text.List(without, 8)))
	}
	s.blockSizes()
	if len(s.odd) > 0 {
		s.notes = append(s.notes, "left out, because Slurm cannot list such a name: "+strings.Join(s.odd, ", "))
	}
	return s
}

// notIn are the hosts that are in no domain.
func notIn(f *fleet.Fleet, seen map[string]bool) []string {
	var out []string
	for i := range f.Hosts {
		if !seen[f.Hosts[i].Host] {
			out = append(out, f.Hosts[i].Host)
		}
	}
	return out
}

// listable are the hosts that stand in a list; the others are told once.
func (s *slurm) listable(hosts []string) []string {
	var out []string
	for _, h := range hosts {
		if slurmName.MatchString(h) {
			out = append(out, h)
		} else if q := strconv.Quote(h); !slices.Contains(s.odd, q) {
			s.odd = append(s.odd, q)
		}
	}
	return out
}

// blockSizes are the size of the smallest block, and that times powers of two while there are blocks to make them of.
func (s *slurm) blockSizes() {
	if len(s.blocks) == 0 {
		return
	}
	least := len(s.blocks[0].hosts)
	for _, b := range s.blocks {
		least = min(least, len(b.hosts))
	}
	for n := 1; n <= len(s.blocks) && least > 0; n *= 2 {
		s.sizes = append(s.sizes, least*n)
	}
	for _, b := range s.blocks {
		if len(b.hosts) != least {
			s.notes = append(s.notes, fmt.Sprintf("blocks have different numbers of nodes: block sizes begin with the smallest, %d", least))
			break
		}
	}
}

// SlurmTree writes topology.conf for Slurm's plugin topology/tree.
func SlurmTree(f *fleet.Fleet) Output {
	s := newSlurm(f)
	s.oneSwitch()
	out := head("topology.conf for TopologyPlugin=topology/tree", s.notes)
	for _, p := range s.all() {
		switch {
		case p.tier == 0 && len(p.hosts) > 0:
			fmt.Fprintf(out, "# %s\nSwitchName=%s Nodes=%s\n", comment(p.about()), s.names[p], hostlist(p.hosts))
		case p.tier > 0:
			fmt.Fprintf(out, "# %s\nSwitchName=%s Switches=%s\n", comment(p.about()), s.names[p], hostlist(s.children(p)))
		}
	}
	return Output{out.Bytes(), s.notes}
}

// oneSwitch says what becomes of rails and of separate networks.
func (s *slurm) oneSwitch() {
	for _, p := range s.all() {
		if p.tier == 0 && len(p.switches) > 1 {
			s.notes = append(s.notes, "a node can be below one switch only: leaves that the same hosts share are written as one switch, their names are in comments")
			break
		}
	}
	if len(s.roots) > 1 {
		s.notes = append(s.notes, "nothing is known to join the topmost switches: Slurm does not place a job over several of them unless it has to")
	}
}

// children are the names of the places below one.
func (s *slurm) children(p *place) []string {
	var out []string
	for _, b := range p.below {
		if b.tier > 0 || len(b.hosts) > 0 {
			out = append(out, s.names[b])
		}
	}
	return out
}

// SlurmBlock writes topology.conf for topology/block (Slurm 23.11 and later). Blocks are NVLink domains, where there
// are any, else hosts that share leaves.
func SlurmBlock(f *fleet.Fleet) Output {
	s := newSlurm(f)
	out := head("topology.conf for TopologyPlugin=topology/block", s.notes)
	for _, b := range s.blocks {
		if len(b.hosts) > 0 {
			fmt.Fprintf(out, "# %s\nBlockName=%s Nodes=%s\n", comment(b.about), b.name, hostlist(b.hosts))
		}
	}
	if len(s.sizes) > 0 {
		fmt.Fprintf(out, "BlockSizes=%s\n", numbers(s.sizes, ","))
	}
	return Output{out.Bytes(), s.notes}
}

func numbers(list []int, between string) string {
	var out []string
	for _, n := range list {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, between)
}

// SlurmYAML writes topology.yaml (Slurm 25.05 and later), which takes the place of topology.conf: the tree, the
// blocks, and a topology that says nothing.
func SlurmYAML(f *fleet.Fleet) Output {
	s := newSlurm(f)
	s.oneSwitch()
	out := head("topology.yaml; where it is, Slurm ignores topology.conf", s.notes)
	first := true
	entry := func(name string) {
		fmt.Fprintf(out, "- topology: %s\n  cluster_default: %v\n", name, first)
		first = false
	}
	if len(s.roots) > 0 {
		entry("fabric")
		out.WriteString("  tree:\n    switches:\n")
		for _, p := range s.all() {
			switch {
			case p.tier == 0 && len(p.hosts) > 0:
				fmt.Fprintf(out, "      - switch: %s # %s\n        nodes: %s\n", yaml(s.names[p]), comment(p.about()), yaml(hostlist(p.hosts)))
			case p.tier > 0:
				fmt.Fprintf(out, "      - switch: %s # %s\n        children: %s\n", yaml(s.names[p]), comment(p.about()), yaml(hostlist(s.children(p))))
			}
		}
	}
	if len(s.sizes) > 0 {
		entry("blocks")
		fmt.Fprintf(out, "  block:\n    block_sizes: [%s]\n    blocks:\n", numbers(s.sizes, ", "))
		for _, b := range s.blocks {
			if len(b.hosts) > 0 {
				fmt.Fprintf(out, "      - block: %s # %s\n        nodes: %s\n", yaml(b.name), comment(b.about), yaml(hostlist(b.hosts)))
			}
		}
	}
	entry("flat")
	out.WriteString("  flat: true\n")
	return Output{out.Bytes(), s.notes}
}

// yaml is a text as a YAML scalar: in quotes, which YAML reads as JSON does.
func yaml(s string) string { return strconv.QuoteToASCII(strings.ToValidUTF8(s, "_")) }
