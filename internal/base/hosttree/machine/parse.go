package machine

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Parse reads a spec. The error names each line that makes no sense.
func Parse(text []byte) (*Spec, error) {
	p := newParser()
	top := scan(text, &p.rep)
	if len(p.rep.errs) == 0 {
		p.run(top)
	}
	if err := p.rep.err(); err != nil {
		return nil, err
	}
	return p.spec, nil
}

type parser struct {
	rep    report
	spec   *Spec
	once   map[string]bool
	byBDF  map[topo.BDF]*function
	wide   int              // patches with "*"
	byName map[string]int   // netdevs, RDMA devices: the line that has the name
	buses  map[topo.BDF]int // the line of the bridge or root above a bus
}

func newParser() *parser {
	return &parser{
		spec: &Spec{
			host:   host{arch: "x86_64", kernel: "6.8.0-60-generic", virtual: "none", iommu: "off"},
			cpu:    cpu{threads: 1},
			nvidia: nvidia{driver: "570.133.20", cuda: "12.8"},
			parts:  map[string]*part{},
		},
		once: map[string]bool{}, byBDF: map[topo.BDF]*function{}, byName: map[string]int{}, buses: map[topo.BDF]int{},
	}
}

// run makes the spec of the statements.
func (p *parser) run(top []*stmt) {
	if len(top) == 0 || top[0].word != "machine" {
		line := 1
		if len(top) > 0 {
			line = top[0].line
		}
		p.rep.add(line, "a spec begins with: machine NAME \"DESCRIPTION\"")
		return
	}
	variant := slices.ContainsFunc(top, func(s *stmt) bool { return s.word == "base" })
	var changes []*stmt
	top = slices.DeleteFunc(slices.Clone(top), func(s *stmt) bool {
		if s.word == "change" {
			changes = append(changes, s)
		}
		return s.word == "change"
	})
	if variant {
		p.spec.changes = changes
	} else {
		top = change(top, changes, &p.rep)
	}
	p.spec.top = top
	// A spec's own parts may stand below what uses them.
	for _, s := range top {
		if s.word == "part" {
			p.part(s)
		}
	}
	for _, s := range top {
		p.statement(s)
	}
	if len(p.rep.errs) == 0 && p.spec.base == "" {
		p.check()
	}
}

func (p *parser) statement(s *stmt) {
	words := topLevel
	if p.spec.base != "" {
		words = variantOnly
	}
	if !slices.Contains(words, s.word) {
		if p.spec.base != "" && slices.Contains(topLevel, s.word) {
			p.rep.add(s.line, "%s: a variant (base) holds patches only%s", s.word, choices(patchWords))
			return
		}
		p.rep.add(s.line, "unknown statement %q%s", s.word, choices(words))
		return
	}
	if single := []string{"machine", "base", "host", "cpu", "nvidia"}; slices.Contains(single, s.word) {
		if p.once[s.word] {
			p.rep.add(s.line, "%s stands twice", s.word)
			return
		}
		p.once[s.word] = true
	}
	if a := s.read(&p.rep); a != nil {
		p.apply(a)
	}
}

func (p *parser) apply(a *args) {
	s := p.spec
	switch a.word {
	case "machine":
		s.name, s.description = a.checkName("name", a.pos[0]), a.pos[1]
		s.seed, s.host.name = s.name, s.name
	case "base":
		if len(s.roots)+len(s.numa) > 0 {
			a.rep.add(a.line, "base stands before everything but machine and source")
		}
		s.base = a.checkName("base", a.pos[0])
	case "source":
		s.sources = append(s.sources, a.pos[0])
	case "host":
		p.host(a)
	case "cpu":
		s.cpu = cpu{vendor: a.text("vendor", ""), family: a.integer("family", 0, 1<<16), model: a.integer("model", 0, 1<<16),
			name: a.text("name", ""), threads: a.intOr("threads", 1, 8, 1),
			adjacent: a.oneOf("siblings", "split", "split", "adjacent") == "adjacent"}
	case "numa":
		p.numa(a)
	case "root":
		p.root(a)
	case "nvidia":
		s.nvidia = nvidia{a.text("driver", s.nvidia.driver), a.text("cuda", s.nvidia.cuda), a.oneOf("module", "", "open", "proprietary")}
	case "nvlink", "xgmi":
		p.pair(a)
	case "p2p":
		p.peer(a)
	case "bond", "vlan", "netdev":
		p.virtual(a)
	case "softrdma":
		r := softRDMA{a.line, a.checkName("name", a.pos[0]), a.oneOf("driver", "rxe", "rxe", "siw", "scif"), a.name("on")}
		p.claim(a, "RDMA device", r.name)
		if (r.on == "") != (r.driver == "scif") {
			a.rep.add(a.line, "softrdma %s: rxe and siw want on NAME, scif has none", r.name)
		}
		s.software = append(s.software, r)
	case "route":
		p.route(a)
	case "module":
		s.modules = append(s.modules, a.checkName("module", a.pos[0]))
	case "set", "remove", "link", "move", "unreadable":
		p.patch(a)
	}
}

// claim reports a name that two things have.
func (p *parser) claim(a *args, what, name string) {
	key := what + " " + name
	if what == "interface" && name == "lo" {
		p.rep.add(a.line, "%s: every machine has the interface lo already", a.word)
	}
	if line, taken := p.byName[key]; taken {
		p.rep.add(a.line, "%s: %s %q stands in line %d already", a.word, what, name, line)
		return
	}
	p.byName[key] = a.line
}

func (a *args) tooMany(have, most int) bool {
	if have >= most {
		a.rep.add(a.line, "%s: more than %d such statements", a.word, most)
	}
	return have >= most
}

func (p *parser) host(a *args) {
	h := &p.spec.host
	h.arch = a.oneOf("arch", h.arch, "x86_64", "aarch64", "ppc64le")
	h.kernel = a.text("kernel", h.kernel)
	h.vendor = a.text("vendor", "")
	h.product = a.text("product", "")
	h.virtual = a.oneOf("virtual", h.virtual, "none", "kvm", "qemu", "hyperv", "nitro", "vmware", "xen")
	if a.has("name") {
		h.name = a.name("name")
	}
	h.iommu = a.oneOf("iommu", h.iommu, "off", "identity", "DMA", "DMA-FQ")
	h.cmdline = a.text("cmdline", "")
	h.memlock = a.countOr("memlock", "unlimited", math.MaxInt64)
	h.fullConfig = a.oneOf("config", "header", "header", "full") == "full"
}

func (p *parser) numa(a *args) {
	index, ok := a.number("node", a.pos[0], 0, maxNUMA-1)
	if !ok {
		return
	}
	n := &numaNode{line: a.line, index: int(index), pkg: a.intOr("package", 0, maxNUMA, 0), cpus: a.cpus("cpus")}
	if mem := a.bytes("mem"); mem != nil {
		n.mem = *mem
	}
	if a.has("distance") {
		for _, f := range strings.Fields(a.opt["distance"][0]) {
			d, ok := a.number("distance", f, 1, 255)
			if !ok {
				return
			}
			n.distance = append(n.distance, int(d))
		}
	}
	for _, other := range p.spec.numa {
		if other.index == n.index {
			p.rep.add(a.line, "numa %d stands in line %d already", n.index, other.line)
		}
	}
	p.spec.numa = append(p.spec.numa, n)
}

// gpuIndex is "gpu3", or -1 for "all".
func gpuIndex(a *args, v string) (int, bool) {
	if v == "all" {
		return -1, true
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(v, "gpu"), 10, 12)
	if !strings.HasPrefix(v, "gpu") || err != nil {
		a.bad("gpu", v, "gpu0, gpu1, ... in PCI order, or all")
		return 0, false
	}
	return int(n), true
}

// two reads "GPU GPU X" or "all X".
func two(a *args) (x, y int, rest string, ok bool) {
	x, ok = gpuIndex(a, a.pos[0])
	if !ok {
		return 0, 0, "", false
	}
	if (x < 0) != (len(a.pos) == 2) {
		a.rep.add(a.line, "%s wants two GPUs, or all, and then one word more", a.word)
		return 0, 0, "", false
	}
	if x < 0 {
		return x, x, a.pos[1], true
	}
	y, ok = gpuIndex(a, a.pos[1])
	if ok && (y < 0 || x == y) {
		a.rep.add(a.line, "%s wants two different GPUs", a.word)
		ok = false
	}
	return x, y, a.pos[2], ok
}

func (p *parser) pair(a *args) {
	x, y, rest, ok := two(a)
	if !ok {
		return
	}
	if n, ok := a.number("count", rest, 1, 64); ok && !a.tooMany(len(p.spec.pairs), maxPairs) {
		p.spec.pairs = append(p.spec.pairs, pair{a.line, a.word, x, y, int(n)})
	}
}

func (p *parser) peer(a *args) {
	if x, y, answer, ok := two(a); ok && !a.tooMany(len(p.spec.p2p), maxPairs) {
		p.spec.p2p = append(p.spec.p2p, p2p{a.line, x, y, answer})
	}
}

func (p *parser) virtual(a *args) {
	d := &netdev{line: a.line, name: a.checkName("name", a.pos[0]), kind: a.word, ips: a.prefixes("ip"), mtu: a.intOr("mtu", 68, 65535, 1500), up: true}
	p.claim(a, "interface", d.name)
	if a.tooMany(len(p.spec.bonds)+len(p.spec.netdevs), maxVirtual) {
		return
	}
	switch a.word {
	case "bond":
		d.mode = a.oneOf("mode", "802.3ad", "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb")
		d.hash = a.oneOf("hash", "layer3+4", "layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4")
		if !a.has("legs") {
			p.rep.add(a.line, "bond %s: wants legs NAME,NAME", d.name)
			return
		}
		for leg := range strings.SplitSeq(a.opt["legs"][0], ",") {
			d.legs = append(d.legs, a.checkName("legs", leg))
		}
		p.spec.bonds = append(p.spec.bonds, d)
		return
	case "vlan":
		d.on, d.vlan = a.name("on"), a.intOr("id", 1, 4094, 1)
		if d.on == "" {
			p.rep.add(a.line, "vlan %s: wants on NAME", d.name)
		}
	case "netdev":
		d.kind = a.oneOf("kind", "dummy", "dummy", "bridge", "veth", "tun", "vxlan", "wireguard")
	}
	p.spec.netdevs = append(p.spec.netdevs, d)
}

func (p *parser) route(a *args) {
	r := route{line: a.line, dst: a.pos[0], dev: a.name("dev"), via: a.text("via", ""), metric: a.intOr("metric", 0, 1<<30, 0)}
	if _, err := netip.ParsePrefix(r.dst); err != nil && r.dst != "default" {
		a.bad("destination", r.dst, "default, or a prefix such as 10.0.0.0/8")
	}
	if _, err := netip.ParseAddr(r.via); err != nil && r.via != "" {
		a.bad("via", r.via, "an address")
	}
	if r.dev == "" {
		p.rep.add(a.line, "route %s: wants dev NAME", r.dst)
	}
	if a.tooMany(len(p.spec.routes), maxVirtual) {
		return
	}
	p.spec.routes = append(p.spec.routes, r)
}

var errnos = []string{"EACCES", "EINVAL", "EIO", "ENODEV"}

func (p *parser) patch(a *args) {
	c := patch{line: a.line, word: a.word, path: strings.TrimPrefix(a.pos[0], "/")}
	switch a.word {
	case "set":
		c.operand = a.pos[1]
	case "link", "move":
		if c.operand = a.pos[2]; a.pos[1] != "->" || c.operand == "" {
			p.rep.add(a.line, "%s wants PATH -> TARGET", a.word)
		}
	case "unreadable":
		if c.operand = a.pos[1]; !slices.Contains(errnos, c.operand) {
			a.bad("error", c.operand, strings.Join(errnos, ", "))
		}
	}
	if c.path == "" || len(c.path) > 1024 {
		p.rep.add(a.line, "%s: an empty path, or one of more than 1024 bytes", a.word)
	}
	if strings.Contains(c.path, "*") {
		if p.wide++; p.wide > maxWide {
			p.rep.add(a.line, "%s: more than %d patches with *", a.word, maxWide)
		}
	}
	if a.tooMany(len(p.spec.patches), maxPatches) {
		return
	}
	p.spec.patches = append(p.spec.patches, c)
}

// where names a function in an error.
func (f *function) where() string { return fmt.Sprintf("%s %s", f.kind, f.bdf) }
