package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// byFunction says that the device's function tells this difference, or that it
// could not be compared.
func byFunction[T any](attr string, fn func(*T) topo.ID) func(*comparer, *pair[T]) bool {
	return func(c *comparer, p *pair[T]) bool {
		id := fn(p.new)
		return id != "" && (c.tells(id, attr) || c.unsaid[[2]string{string(id), attr}] || c.unsaid[[2]string{string(p.n.ID), "presence"}])
	}
}

func gpuFunction(g *topo.GPU) topo.ID { return g.PCI }

var gpuFields = []field[topo.GPU]{
	{attr: "model", get: func(_ *side, g *topo.GPU) value { return word(g.Model) }},
	{attr: "vendor", get: func(_ *side, g *topo.GPU) value { return word(g.Vendor) }, follows: byFunction("vendor", gpuFunction)},
	{attr: "numa_node", get: func(s *side, g *topo.GPU) value { return s.numa(g.NUMA) }, follows: byFunction("numa_node", gpuFunction)},
	{attr: "memory_numa_node", get: func(s *side, g *topo.GPU) value {
		if g.MemoryNUMA == nil {
			return wordOrNone("", !s.imported)
		}
		return number(g.MemoryNUMA)
	}},
	{attr: "memory_bytes", get: func(_ *side, g *topo.GPU) value { return memory(g.MemoryBytes) }},
	{attr: "uuid", get: func(_ *side, g *topo.GPU) value { return word(g.UUID) }},
	{attr: "serial", get: func(_ *side, g *topo.GPU) value { return word(g.Serial) }},
	{attr: "compute_capability", get: func(_ *side, g *topo.GPU) value { return word(g.ComputeCap) }},
	{attr: "cpu_affinity", get: func(_ *side, g *topo.GPU) value { return word(g.CPUAffinity) },
		follows: func(c *comparer, p *pair[topo.GPU]) bool { return c.numaCPUs() || c.tells(p.n.ID, "numa_node") }},
	{attr: "driver", get: func(s *side, g *topo.GPU) value { return wordOrNone(g.Driver, s.readsFunction(g.PCI)) }, follows: byFunction("driver", gpuFunction)},
	{attr: "mig", get: migOf},
	{attr: "visible", get: func(_ *side, g *topo.GPU) value { return maybe(g.Visible) }},
}

// gpuPlaceFields are those attributes of a GPU that the next one in its slot
// should share.
var gpuPlaceFields = []field[topo.GPU]{fieldOf(gpuFields, "driver"), fieldOf(gpuFields, "mig"), fieldOf(gpuFields, "visible")}

// fieldOf gives the field of an attribute, which the list must hold.
func fieldOf[T any](list []field[T], attr string) field[T] {
	return list[slices.IndexFunc(list, func(f field[T]) bool { return f.attr == attr })]
}

// migOf is a GPU's partitioning: the profiles of its instances. Their UUIDs are
// made up when they are set up.
func migOf(_ *side, g *topo.GPU) value {
	if g.MIG == nil {
		return value{}
	}
	if !g.MIG.Enabled {
		return word("off")
	}
	var profiles, keys []string
	for _, m := range g.MIG.Instances {
		size := memory(m.MemoryBytes).text
		profiles = append(profiles, m.Profile)
		keys = append(keys, m.Profile+" "+size)
	}
	slices.Sort(profiles)
	v := list(profiles, keys)
	v.key, v.text = "on "+v.key, "on: "+v.text
	return v
}

// gpus compares GPUs, their numbers, and what the driver says of peer access.
func (c *comparer) gpus() {
	lost := c.lostGPU()
	news := map[topo.ID]*topo.GPU{}
	for i := range c.new.t.GPUs {
		news[c.new.t.GPUs[i].ID] = &c.new.t.GPUs[i]
	}
	for i := range c.old.t.GPUs {
		o := &c.old.t.GPUs[i]
		m := c.m.to[o.ID]
		if m == nil {
			continue
		}
		n := news[m.New]
		p := pair[topo.GPU]{topo.KindGPU, o, n, &o.Node, &n.Node, m, string(n.ID)}
		if m.Replaced {
			fields(c, p, gpuPlaceFields)
		} else {
			fields(c, p, gpuFields)
		}
		c.gpuNumbers(p, lost)
		c.peers(p)
	}
}

// gpuNumbers compares the numbers that a GPU is called by. NVML's number and the
// device file's usually move with the place in PCI order: then that tells all.
func (c *comparer) gpuNumbers(p pair[topo.GPU], lost bool) {
	x, y := number(&p.old.Index), number(&p.new.Index)
	x.text, y.text = string(p.o.ID), string(p.n.ID)
	if x.key != y.key && lost {
		if c.compares("index") {
			silent := c.new
			if len(c.old.lost()) > 0 {
				silent = c.old
			}
			c.omitFor("index", c.node(topo.KindGPU, p.o, p.n, p.match, p.name, "index"), silent, "counts GPUs in PCI order, and one could not be read")
		}
	} else if x.key != y.key && c.compares("index") {
		c.add(finding{kind: Renumbered, attr: "index", node: c.node(topo.KindGPU, p.o, p.n, p.match, p.name, "index"), old: x, new: y, note: p.match.Why})
	}
	for _, f := range []struct {
		attr     string
		old, new *int
	}{{"nvml_index", p.old.NVMLIndex, p.new.NVMLIndex}, {"minor", p.old.Minor, p.new.Minor}} {
		a, b := number(f.old), number(f.new)
		node := c.node(topo.KindGPU, p.o, p.n, p.match, p.name, f.attr)
		switch {
		case !c.compares(f.attr):
		case a.known != b.known:
			c.omit(f.attr, node, a.known, p.o, p.n)
		case a.key != b.key && !(a.key == x.key && b.key == y.key && c.tells(p.n.ID, "index")):
			c.add(finding{kind: Renumbered, attr: f.attr, node: node, old: a, new: b, note: p.match.Why})
		}
	}
}

// lost lists the functions that could not be told to be GPUs or not.
func (s *side) lost() []topo.ID {
	var out []topo.ID
	for i := range s.t.Warnings {
		w := &s.t.Warnings[i]
		file := w.Evidence[strings.LastIndexByte(w.Evidence, '/')+1:]
		if w.Partial() && strings.HasPrefix(string(w.Subject), "pci:") && (file == "class" || file == "vendor" || w.Code == topo.CodeVanished) {
			out = append(out, w.Subject)
		}
	}
	return out
}

// lostGPU says whether a GPU of one side may be there on the other, unread.
func (c *comparer) lostGPU() bool {
	missed := func(s *side, matched map[topo.ID]*Match, other *side) bool {
		lost := other.lost()
		return slices.ContainsFunc(s.t.GPUs, func(g topo.GPU) bool { return matched[g.ID] == nil && slices.Contains(lost, g.PCI) })
	}
	return missed(c.old, c.m.to, c.new) || missed(c.new, c.m.from, c.old)
}

// peers compares what the driver says of a GPU's access to the others, each
// pair once.
func (c *comparer) peers(p pair[topo.GPU]) {
	if len(p.old.P2P) == 0 || len(p.new.P2P) == 0 {
		return // the driver was not asked; its other answers tell so
	}
	others := make([]topo.ID, 0, len(p.old.P2P))
	for id := range p.old.P2P {
		others = append(others, id)
	}
	slices.SortFunc(others, func(a, b topo.ID) int { return topo.NaturalCompare(string(a), string(b)) })
	for _, other := range others {
		m := c.m.to[other]
		if m == nil {
			continue
		}
		x, y := word(p.old.P2P[other]), word(p.new.P2P[m.New])
		if x.known && y.known && x.key != y.key && c.compares("p2p") {
			node := c.node(topo.KindGPU, p.o, p.n, p.match, fmt.Sprintf("%s to %s", p.n.ID, m.New), "p2p")
			c.add(finding{kind: Changed, attr: "p2p", node: node, old: x, new: y})
		}
	}
}
