package diff

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

var hostFields = []field[topo.Host]{
	{attr: "host_name", get: func(_ *side, h *topo.Host) value { return word(h.Name) }},
	{attr: "machine_id_sha256", get: func(_ *side, h *topo.Host) value { return word(h.MachineIDSHA256) }},
	{attr: "vendor", get: func(_ *side, h *topo.Host) value { return word(h.Vendor) }},
	{attr: "product", get: func(_ *side, h *topo.Host) value { return word(h.Product) }},
	{attr: "arch", get: func(_ *side, h *topo.Host) value { return word(h.Arch) }},
	{attr: "virtual", get: func(_ *side, h *topo.Host) value { return word(strings.TrimPrefix(h.Virtual, "unknown")) }},
	{attr: "container", get: func(_ *side, h *topo.Host) value { return maybe(h.Container) }},
	{attr: "cpu_model", get: func(_ *side, h *topo.Host) value { return word(h.CPUModel) }},
	{attr: "cpu_vendor", get: func(_ *side, h *topo.Host) value { return word(h.CPUVendor) }, follows: otherCPU},
	{attr: "cpu_family", get: func(_ *side, h *topo.Host) value { return number(h.CPUFamily) }, follows: otherCPU},
	{attr: "cpu_model_id", get: func(_ *side, h *topo.Host) value { return number(h.CPUModelID) }, follows: otherCPU},
	{attr: "cpus", get: func(_ *side, h *topo.Host) value { return word(h.CPUs) }},
	{attr: "allowed_cpus", get: func(_ *side, h *topo.Host) value {
		if h.AllowedCPUs == "" && h.CPUs != "" {
			return value{known: true, text: "all"}
		}
		return word(h.AllowedCPUs)
	}},
	{attr: "memory_bytes", get: func(_ *side, h *topo.Host) value { return memory(h.MemoryBytes) },
		follows: func(_ *comparer, p *pair[topo.Host]) bool { return sameMemory(p.old.MemoryBytes, p.new.MemoryBytes) }},
	{attr: "kernel", get: func(_ *side, h *topo.Host) value { return word(h.Kernel) }},
	{attr: "gpu_driver_version", get: func(_ *side, h *topo.Host) value { return word(h.GPUDriver) }},
	{attr: "gpu_module", get: func(_ *side, h *topo.Host) value {
		if h.Software == nil {
			return value{}
		}
		return word(h.Software.GPUModule)
	}},
	{attr: "memlock", get: func(_ *side, h *topo.Host) value {
		if h.Software == nil || h.Software.Memlock == nil {
			return value{}
		}
		m := h.Software.Memlock
		return word(limitText(m.SoftBytes) + " (hard " + limitText(m.HardBytes) + ")")
	}},
}

// otherCPU says that the CPU's model tells the rest of it.
func otherCPU(c *comparer, p *pair[topo.Host]) bool { return c.tells(p.n.ID, "cpu_model") }

func limitText(p *int64) string {
	if p == nil {
		return "unlimited"
	}
	return units.Bytes(*p)
}

// host compares what belongs to the machine as a whole.
func (c *comparer) host() {
	o, n := &topo.Node{ID: topo.ID(KindHost), Facts: c.old.t.Host.Facts}, &topo.Node{ID: topo.ID(KindHost), Facts: c.new.t.Host.Facts}
	p := pair[topo.Host]{KindHost, &c.old.t.Host, &c.new.t.Host, o, n, nil, string(KindHost)}
	fields(c, p, hostFields)
	x, y := c.old.t.Host.Software, c.new.t.Host.Software
	if x == nil {
		x = &topo.Software{}
	}
	if y == nil {
		y = &topo.Software{}
	}
	c.wordSet(o, n, "modules", x.Modules, y.Modules, func(w string) (key, val string) { return w, "loaded" })
	named := func(w string) (key, val string) {
		key, _, _ = strings.Cut(w, "=")
		return key, w
	}
	c.wordSet(o, n, "kernel_options", x.KernelOptions, y.KernelOptions, named)
	c.wordSet(o, n, "environment", settingWords(x.Environment), settingWords(y.Environment), named)
}

// settingWords are the settings that hold, NAME=VALUE: of two of one name the last. nil:
// not known.
func settingWords(e *topo.Environment) []string {
	if e == nil {
		return nil
	}
	out := []string{}
	for i, s := range e.Settings {
		if !slices.ContainsFunc(e.Settings[i+1:], func(later topo.Setting) bool { return later.Name == s.Name }) {
			out = append(out, s.Name+"="+s.Value)
		}
	}
	return out
}

// wordSet compares lists of which every word is an attribute of its own: modules
// that are loaded, options that are set. A nil list is unknown.
func (c *comparer) wordSet(o, n *topo.Node, attr string, olds, news []string, split func(string) (key, val string)) {
	node := c.node(KindHost, o, n, nil, string(KindHost), attr)
	if (olds == nil) != (news == nil) {
		c.omit(attr, node, olds != nil, o, n)
		return
	}
	index := func(words []string) map[string][]string {
		out := map[string][]string{}
		for _, w := range words {
			key, val := split(w)
			out[key] = append(out[key], val)
		}
		return out
	}
	x, y := index(olds), index(news)
	seen := map[string]bool{}
	for _, w := range slices.Sorted(slices.Values(slices.Concat(olds, news))) {
		key, _ := split(w)
		if seen[key] {
			continue
		}
		seen[key] = true
		a, b := setting(key, x[key]), setting(key, y[key])
		if a.key != b.key && c.compares(attr) {
			c.add(finding{kind: Changed, attr: attr, node: node, old: a, new: b, note: key})
		}
	}
}

// setting is one word's state: what it is set to, or that it is not there.
func setting(key string, vals []string) value {
	if len(vals) == 0 {
		return value{known: true, text: "not there", data: nil}
	}
	slices.Sort(vals)
	v := list(vals, vals)
	v.data = key
	if v.text != "loaded" {
		v.data = v.text
	}
	return v
}

var numaFields = []field[topo.NUMANode]{
	{attr: "cpus", get: func(s *side, n *topo.NUMANode) value { return wordOrNone(n.CPUs, !s.imported) }},
	{attr: "memory_bytes", get: func(_ *side, n *topo.NUMANode) value { return memory(n.MemoryBytes) },
		follows: func(_ *comparer, p *pair[topo.NUMANode]) bool {
			return sameMemory(p.old.MemoryBytes, p.new.MemoryBytes)
		}},
	{attr: "memory_only", get: func(_ *side, n *topo.NUMANode) value { return yes(n.MemoryOnly) },
		follows: func(c *comparer, p *pair[topo.NUMANode]) bool { return c.tells(p.n.ID, "cpus") }},
	{attr: "package", get: func(_ *side, n *topo.NUMANode) value { return number(n.Package) }},
	{attr: "owner", get: func(s *side, n *topo.NUMANode) value {
		v := wordOrNone(string(n.Owner), !s.imported)
		v.key = string(s.rename(n.Owner))
		return v
	}, follows: func(_ *comparer, p *pair[topo.NUMANode]) bool { return p.old.Owner == p.new.Owner }},
	{attr: "distances", get: func(_ *side, n *topo.NUMANode) value { return word(strings.Join(numbers(n.Distances), " ")) },
		follows: func(c *comparer, _ *pair[topo.NUMANode]) bool {
			return len(c.old.t.NUMANodes) != len(c.new.t.NUMANodes)
		}},
}

var packageFields = []field[topo.Package]{
	{attr: "model", get: func(_ *side, p *topo.Package) value { return word(p.Model) },
		follows: func(c *comparer, _ *pair[topo.Package]) bool { return c.tells(topo.ID(KindHost), "cpu_model") }},
	{attr: "cores", get: func(_ *side, p *topo.Package) value { return number(p.Cores) }},
	{attr: "numa_nodes", get: func(_ *side, p *topo.Package) value { return word(strings.Join(numbers(p.NUMA), ", ")) }},
	{attr: "cpus", get: func(_ *side, p *topo.Package) value { return word(p.CPUs) },
		follows: func(c *comparer, _ *pair[topo.Package]) bool {
			return c.tells(topo.ID(KindHost), "cpus") || c.numaCPUs()
		}},
}

// numaCPUs says whether the CPUs of a NUMA node are told to differ: then those
// of packages and devices follow.
func (c *comparer) numaCPUs() bool {
	return slices.ContainsFunc(c.new.t.NUMANodes, func(n topo.NUMANode) bool { return c.tells(n.ID, "cpus") })
}

// numaNodes compares NUMA nodes and packages.
func (c *comparer) numaNodes() {
	each(c, topo.KindNUMA, c.old.t.NUMANodes, c.new.t.NUMANodes, func(n *topo.NUMANode) (*topo.Node, string) { return &n.Node, string(n.ID) }, numaFields)
	each(c, topo.KindPackage, c.old.t.Packages, c.new.t.Packages, func(p *topo.Package) (*topo.Node, string) { return &p.Node, string(p.ID) }, packageFields)
}

// each compares the attributes of all matched nodes of a kind; about gives a
// node's common part and its name.
func each[T any](c *comparer, kind topo.Kind, olds, news []T, about func(*T) (*topo.Node, string), list []field[T]) {
	index := make(map[topo.ID]*T, len(news))
	for i := range news {
		n, _ := about(&news[i])
		index[n.ID] = &news[i]
	}
	for i := range olds {
		o, _ := about(&olds[i])
		m := c.m.to[o.ID]
		if m == nil || index[m.New] == nil {
			continue
		}
		n, name := about(index[m.New])
		fields(c, pair[T]{kind, &olds[i], index[m.New], o, n, m, name}, list)
	}
}
