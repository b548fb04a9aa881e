package machine

import (
	"maps"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/cpuset"
)

// check looks at a whole machine: what refers to what, and the bus numbers. It
// also plans what expansion needs.
func (p *parser) check() {
	s := p.spec
	slices.SortFunc(s.numa, func(a, b *numaNode) int { return a.Index - b.Index })
	slices.SortFunc(s.roots, func(a, b *root) int { return a.Bus.first().Compare(b.Bus.first()) })
	slices.SortFunc(s.pci, func(a, b *function) int { return a.bdf.Compare(b.bdf) })
	p.checkNUMA()
	for _, r := range s.roots {
		p.claimBus(r.line, r.Bus)
	}
	for _, r := range s.roots {
		p.needNUMA(r.line, r.NUMA)
		for _, f := range r.kids {
			p.checkTree(f, r.Bus.number)
		}
	}
	for _, f := range s.pci {
		p.needNUMA(f.line, f.NUMA)
		if f.isVF() {
			p.checkVF(f)
		}
	}
	p.checkGPUs()
	p.checkInterfaces()
	for _, bdf := range slices.SortedFunc(maps.Keys(p.changes), topo.BDF.Compare) {
		if p.byBDF[bdf] == nil {
			p.rep.add(p.changes[bdf][0].line, "change: there is no function %s", bdf)
		}
	}
	if len(p.rep.errs) == 0 {
		s.plan()
	}
}

func (p *parser) checkNUMA() {
	s := p.spec
	if len(s.numa) == 0 {
		p.rep.add(1, "a machine needs at least one numa statement")
	}
	for i, n := range s.numa {
		for _, other := range s.numa[:i] {
			if twice := n.CPUs.Intersect(other.CPUs); !twice.IsEmpty() {
				p.rep.add(n.line, "numa %d: CPU %d already belongs to numa %d", n.Index, twice.First(), other.Index)
				break
			}
		}
		if count := len(n.Distance); count > 0 && count != len(s.numa) {
			p.rep.add(n.line, "numa %d: %d distances, but %d nodes", n.Index, count, len(s.numa))
		}
		if n.CPUs.Len()%s.cpu.Threads != 0 {
			p.rep.add(n.line, "numa %d: %d CPUs cannot be divided into cores of %d threads", n.Index, n.CPUs.Len(), s.cpu.Threads)
		}
	}
	if len(s.numa) > 0 && s.cpus().IsEmpty() {
		p.rep.add(s.numa[0].line, "no numa node has CPUs")
	}
}

// cpus are all of the machine's CPUs.
func (s *Spec) cpus() cpuset.Set {
	var all cpuset.Set
	for _, n := range s.numa {
		all = all.Union(n.CPUs)
	}
	return all
}

func (p *parser) needNUMA(line, index int) {
	if index >= 0 && p.spec.node(index) == nil {
		p.rep.add(line, "there is no numa %d", index)
	}
}

// node is the NUMA node of a number, nil where there is none.
func (s *Spec) node(index int) *numaNode {
	return first(s.numa, func(n *numaNode) bool { return n.Index == index })
}

// first is the first of a list that fits, nil where none does.
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
		p.rep.add(f.line, "%s: its root has domain %04x", f.where(), domain)
	}
	if f.bdf.Bus != on && !f.isVF() {
		p.rep.add(f.line, "%s: the bus here is %02x", f.where(), on)
	}
	f.last = f.bdf.Bus
	if len(f.kids) == 0 {
		return
	}
	f.secondary = f.kids[0].bdf.Bus
	if f.secondary <= f.bdf.Bus {
		p.rep.add(f.kids[0].line, "%s: bus %02x below a bridge on bus %02x: it must be higher", f.kids[0].where(), f.secondary, f.bdf.Bus)
	}
	p.claimBus(f.line, bus{f.bdf.Domain, f.secondary})
	for _, kid := range f.kids {
		p.checkTree(kid, f.secondary)
		f.last = max(f.last, kid.last)
	}
}

// claimBus reports a bus that two bridges lead to.
func (p *parser) claimBus(line int, b bus) {
	if other, taken := p.buses[b]; taken {
		p.rep.add(line, "bus %02x is already below line %d", b.number, other)
		return
	}
	p.buses[b] = line
}

func (p *parser) checkVF(f *function) {
	address, _ := parseAddress(f.nic.VFOf, f.bdf.Domain)
	pf := p.byBDF[address]
	if pf == nil || pf.nic == nil || pf.isVF() {
		p.rep.add(f.line, "%s: vf-of %s, which is not a physical function of a nic", f.where(), address)
		return
	}
	if pf.parent != f.parent || pf.root != f.root {
		p.rep.add(f.line, "%s: is on another bridge than its physical function %s", f.where(), pf.bdf)
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
		p.rep.add(gpus[maxGPUs].line, "more than %d GPUs", maxGPUs)
		return
	}
	p.number(gpus, "nvml-index", func(f *function) *int { return &f.gpu.Index })
	p.number(gpus, "minor", func(f *function) *int { return &f.gpu.Minor })
	for _, f := range gpus {
		if f.gpu.MemoryNUMA != nil {
			p.needNUMA(f.line, *f.gpu.MemoryNUMA)
		}
	}
	links := make([]int, len(gpus))
	for _, x := range s.between {
		if index := int(max(x.a, x.b)); index >= len(gpus) {
			p.rep.add(x.line, "there is no gpu%d, the machine has %d", index, len(gpus))
		}
		for i := range links {
			switch {
			case x.a < 0:
				links[i] += x.count * (len(gpus) - 1)
			case int(x.a) == i || int(x.b) == i:
				links[i] += x.count
			}
			if links[i] > maxLinks {
				p.rep.add(x.line, "gpu%d has more than %d links", i, maxLinks)
				return
			}
		}
	}
}

// number fills in indices that the text leaves out and reports doubles.
func (p *parser) number(gpus []*function, what string, field func(*function) *int) {
	taken := map[int]bool{}
	for _, f := range gpus {
		v := *field(f)
		if v >= 0 && taken[v] {
			p.rep.add(f.line, "%s: another GPU already has %s %d", f.where(), what, v)
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
	need := func(line int, what, name string) {
		if _, ok := p.byName["interface "+name]; !ok && name != "" {
			p.rep.add(line, "%s: there is no interface %q", what, name)
		}
	}
	for _, f := range s.pci {
		if f.nic != nil {
			need(f.line, f.where(), f.nic.Ndev)
		}
	}
	legs := map[string]bool{}
	for _, d := range s.netdevs {
		need(d.line, d.Kind+" "+d.Name, d.On)
		for _, leg := range d.Legs {
			need(d.line, "bond "+d.Name, leg)
			if legs[leg] || leg == d.Name {
				p.rep.add(d.line, "bond %s: %s is already a leg", d.Name, leg)
			}
			legs[leg] = true
		}
	}
	for _, r := range s.software {
		need(r.line, "softrdma "+r.Name, r.On)
	}
	for _, r := range s.routes {
		need(r.line, "route "+r.Dst, r.Dev)
	}
}
