package machine

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
)

// check looks at a whole machine: what refers to what, and the bus numbers. It
// also plans what expansion needs.
func (p *parser) check() {
	s := p.spec
	slices.SortFunc(s.NUMA, func(a, b *numaNode) int { return a.Index - b.Index })
	slices.SortFunc(s.Roots, func(a, b *root) int { return a.Bus.first().Compare(b.Bus.first()) })
	slices.SortFunc(s.pci, func(a, b *function) int { return a.bdf.Compare(b.bdf) })
	p.checkNUMA()
	for _, r := range s.Roots {
		p.claimBus(r.From, r.Bus)
	}
	for _, r := range s.Roots {
		p.needNUMA(r.From, r.NUMA)
		for _, f := range r.Kids {
			p.checkTree(f, r.Bus.number)
		}
	}
	for _, f := range s.pci {
		p.needNUMA(f.From, f.NUMA)
		if f.isVF() {
			p.checkVF(f)
		}
	}
	p.checkGPUs()
	p.checkInterfaces()
	for _, c := range s.Patches {
		if bdf, _ := topo.ParseBDF(c.path); c.word == "change" && p.byBDF[bdf] == nil {
			p.rep.add(c.From, "change: there is no function %s", bdf)
		}
	}
	if len(p.rep.errs) == 0 {
		s.plan()
	}
}

func (p *parser) checkNUMA() {
	s := p.spec
	if len(s.NUMA) == 0 {
		p.rep.add(s.doc, "a machine needs numa, with at least one node")
	}
	for i, n := range s.NUMA {
		for _, other := range s.NUMA[:i] {
			if other.Index == n.Index {
				p.rep.add(n.From, "numa %d is already defined in line %d", n.Index, other.From.Line)
				break
			}
			if twice := n.CPUs.Intersect(other.CPUs); !twice.IsEmpty() {
				p.rep.add(n.From, "numa %d: CPU %d already belongs to numa %d", n.Index, twice.First(), other.Index)
				break
			}
		}
		if count := len(n.Distance); count > 0 && count != len(s.NUMA) {
			p.rep.add(n.From, "numa %d: %d distances, but %d nodes", n.Index, count, len(s.NUMA))
		}
		if n.CPUs.Len()%s.CPU.Threads != 0 {
			p.rep.add(n.From, "numa %d: %d CPUs cannot be divided into cores of %d threads", n.Index, n.CPUs.Len(), s.CPU.Threads)
		}
	}
	if len(s.NUMA) > 0 && s.cpus().IsEmpty() {
		p.rep.add(s.NUMA[0].From, "no numa node has CPUs")
	}
}

// cpus are all of the machine's CPUs.
func (s *Spec) cpus() cpuset.Set {
	var all cpuset.Set
	for _, n := range s.NUMA {
		all = all.Union(n.CPUs)
	}
	return all
}

func (p *parser) needNUMA(at *yaml.Node, index int) {
	if index >= 0 && p.spec.node(index) == nil {
		p.rep.add(at, "there is no numa %d", index)
	}
}

// node is the NUMA node of a number, nil if there is no such node.
func (s *Spec) node(index int) *numaNode {
	return first(s.NUMA, func(n *numaNode) bool { return n.Index == index })
}

// first is the first element of a list that fits, nil if no element does.
func first[T any](list []*T, fits func(*T) bool) *T {
	if i := slices.IndexFunc(list, fits); i >= 0 {
		return list[i]
	}
	return nil
}

// checkTree looks at the bus numbers below and at f, which stands on a bus.
func (p *parser) checkTree(f *function, on uint8) {
	domain := f.root.Bus.domain
	if f.bdf.Domain != domain {
		p.rep.add(f.From, "%s: its root has domain %04x", f.where(), domain)
	}
	if f.bdf.Bus != on && !f.isVF() {
		p.rep.add(f.From, "%s: the bus here is %02x", f.where(), on)
	}
	f.last = f.bdf.Bus
	if len(f.Kids) == 0 {
		return
	}
	f.secondary = f.Kids[0].bdf.Bus
	if f.secondary <= f.bdf.Bus {
		p.rep.add(f.Kids[0].From, "%s: bus %02x below a bridge on bus %02x: it must be higher", f.Kids[0].where(), f.secondary, f.bdf.Bus)
	}
	p.claimBus(f.From, bus{f.bdf.Domain, f.secondary})
	for _, kid := range f.Kids {
		p.checkTree(kid, f.secondary)
		f.last = max(f.last, kid.last)
	}
}

// claimBus reports a bus that two bridges lead to.
func (p *parser) claimBus(at *yaml.Node, b bus) {
	if other, taken := p.buses[b]; taken {
		p.rep.add(at, "bus %02x is already below line %d", b.number, other.Line)
		return
	}
	p.buses[b] = at
}

func (p *parser) checkVF(f *function) {
	address, _ := parseAddress(f.nic.VFOf, f.bdf.Domain)
	pf := p.byBDF[address]
	if pf == nil || pf.nic == nil || pf.isVF() {
		p.rep.add(f.From, "%s: vf-of %s, which is not a physical function of a nic", f.where(), address)
		return
	}
	if pf.parent != f.parent || pf.root != f.root {
		p.rep.add(f.From, "%s: is on another bridge than its physical function %s", f.where(), pf.bdf)
	}
	f.pf, pf.vfs = pf, append(pf.vfs, f)
}

func (s *Spec) gpus() []*function {
	return slices.DeleteFunc(slices.Clone(s.pci), func(f *function) bool { return f.gpu == nil })
}

// checkGPUs gives every GPU its NVML index and minor, and looks at pairs.
func (p *parser) checkGPUs() {
	s := p.spec
	gpus := s.gpus()
	if len(gpus) > maxGPUs {
		p.rep.add(gpus[maxGPUs].From, "more than %d GPUs", maxGPUs)
		return
	}
	p.number(gpus, "nvml-index", func(f *function) *int { return &f.gpu.Index })
	p.number(gpus, "minor", func(f *function) *int { return &f.gpu.Minor })
	for _, f := range gpus {
		if f.gpu.MemoryNUMA != nil {
			p.needNUMA(f.From, *f.gpu.MemoryNUMA)
		}
	}
	for _, x := range s.P2P {
		p.checkEnds(x.ends, len(gpus))
	}
	for _, kind := range [][]*links{s.NVLink, s.XGMI} {
		count := make([]int, len(gpus))
		for _, x := range kind {
			p.checkEnds(x.ends, len(gpus))
			for i := range count {
				switch {
				case len(x.GPUs) == 1:
					count[i] += x.Links * (len(gpus) - 1)
				case slices.Contains(x.GPUs, gpuIndex(i)):
					count[i] += x.Links
				}
				if count[i] > maxLinks {
					p.rep.add(x.From, "GPU %d has more than %d links", i, maxLinks)
					return
				}
			}
		}
	}
}

// checkEnds looks at which GPUs something is between.
func (p *parser) checkEnds(x ends, gpus int) {
	g := x.GPUs
	if all := len(g) == 1 && g[0] < 0; !all && (len(g) != 2 || g[0] == g[1] || min(g[0], g[1]) < 0) {
		p.rep.add(x.From, "gpus: want all, or two different GPUs such as [0, 1], in PCI order")
	} else if index := int(slices.Max(g)); index >= gpus {
		p.rep.add(x.From, "there is no GPU %d, the machine has %d", index, gpus)
	}
}

// number fills in indices that the text leaves out and reports doubles.
func (p *parser) number(gpus []*function, what string, field func(*function) *int) {
	taken := map[int]bool{}
	for _, f := range gpus {
		v := *field(f)
		if v >= 0 && taken[v] {
			p.rep.add(f.From, "%s: another GPU already has %s %d", f.where(), what, v)
		}
		taken[v] = true
	}
	next := 0
	for _, f := range gpus {
		for ; *field(f) < 0; next++ {
			if !taken[next] {
				*field(f) = next
			}
		}
	}
}

// checkInterfaces looks at what names an interface.
func (p *parser) checkInterfaces() {
	s := p.spec
	need := func(at *yaml.Node, what, name string) {
		if _, ok := p.byName["interface "+name]; !ok && name != "" {
			p.rep.add(at, "%s: there is no interface %q", what, name)
		}
	}
	for _, f := range s.pci {
		if f.nic != nil {
			need(f.From, f.where(), f.nic.Ndev)
		}
	}
	legs := map[string]bool{}
	for _, d := range s.Netdevs {
		need(d.From, d.Kind+" "+d.Name, d.On)
		for _, leg := range d.Legs {
			need(d.From, "bond "+d.Name, leg)
			if legs[leg] || leg == d.Name {
				p.rep.add(d.From, "bond %s: %s is already a leg", d.Name, leg)
			}
			legs[leg] = true
		}
	}
	for _, r := range s.SoftRDMA {
		need(r.From, "softrdma "+r.Name, r.On)
	}
	for _, r := range s.Routes {
		need(r.From, "route "+r.Dst, r.Dev)
	}
}
