package machine

import (
	"fmt"
	"maps"
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

// On gives the variant as a whole machine: base with the variant's changes, and
// with its patches after base's own. Invented identifiers stay those of base.
func (s *Spec) On(base *Spec) (*Spec, error) {
	if base.base != "" {
		return nil, fmt.Errorf("machine: %s: its base %s is itself a variant that is not resolved", s.name, base.name)
	}
	changed := slices.Clone(base.top)
	for _, c := range s.top {
		if c.word == "change" {
			changed = append(changed, c)
		}
	}
	p := newParser()
	p.run(changed)
	if err := p.rep.err(); err != nil {
		return nil, fmt.Errorf("%s on %s: %w", s.name, base.name, err)
	}
	whole := p.spec
	whole.seed, whole.host.name = base.seed, base.host.name
	whole.name, whole.description = s.name, s.description
	whole.sources = slices.Concat(s.sources, base.sources)
	whole.patches = slices.Concat(base.patches, s.patches)
	return whole, nil
}

type parser struct {
	rep     report
	spec    *Spec
	once    map[string]bool
	changes map[topo.BDF][]*stmt // of functions
	byBDF   map[topo.BDF]*function
	wide    int              // patches with "*"
	byName  map[string]int   // netdevs, RDMA devices: the line that has the name
	buses   map[topo.BDF]int // the line of the bridge or root above a bus
}

func newParser() *parser {
	return &parser{
		spec: &Spec{
			host:   host{arch: "x86_64", kernel: "6.8.0-60-generic", virtual: "none", iommu: "off"},
			cpu:    cpu{threads: 1},
			nvidia: nvidia{driver: "570.133.20", cuda: "12.8"},
			parts:  map[string]*part{},
		},
		once: map[string]bool{}, changes: map[topo.BDF][]*stmt{}, byBDF: map[topo.BDF]*function{},
		byName: map[string]int{}, buses: map[topo.BDF]int{},
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
	p.spec.top = top
	variant := slices.ContainsFunc(top, func(s *stmt) bool { return s.word == "base" })
	// What uses a part or is changed may stand above the part or the change.
	for _, s := range top {
		switch {
		case s.word == "part":
			p.part(s)
		case s.word == "change" && !variant:
			p.change(s)
		}
	}
	for _, s := range top {
		if s.word != "part" && s.word != "change" || p.spec.base != "" {
			p.statement(s)
		}
	}
	if len(p.rep.errs) == 0 && !variant {
		p.check()
	}
}

// placed are the names of the statements that may stand in some places.
func placed(places ...place) []string {
	var out []string
	for name, form := range statements {
		if slices.Contains(places, form.place) {
			out = append(out, name)
		}
	}
	return out
}

func (p *parser) statement(s *stmt) {
	form := statements[s.word]
	allowed := []place{anywhere, whole, patching}
	if p.spec.base != "" {
		allowed = []place{anywhere, patching}
	}
	switch {
	case p.spec.base != "" && form.place == whole:
		p.rep.add(s.line, "%s: a variant (base) holds patches only%s", s.word, choices(placed(patching)))
	case !slices.Contains(allowed, form.place):
		p.rep.add(s.line, "unknown statement %q%s", s.word, choices(placed(allowed...)))
	case form.once && p.once[s.word]:
		p.rep.add(s.line, "%s stands twice", s.word)
	default:
		p.once[s.word] = true
		p.add(s)
	}
}

// add puts what a statement says into the spec.
func (p *parser) add(s *stmt) {
	spec := p.spec
	switch s.word {
	case "machine":
		p.read(s, options{"NAME": name(&spec.name), "DESCRIPTION": anything(&spec.description)}, nil)
		spec.seed, spec.host.name = spec.name, spec.name
	case "base":
		if len(spec.roots)+len(spec.numa) > 0 {
			p.rep.add(s.line, "base stands before everything but machine and source")
		}
		p.read(s, options{"NAME": name(&spec.base)}, nil)
	case "source":
		p.read(s, options{"TEXT": repeated(&spec.sources, anything)}, nil)
	case "module":
		p.read(s, options{"NAME": repeated(&spec.modules, name)}, nil)
	case "host":
		p.read(s, nil, spec.host.options())
	case "cpu":
		p.read(s, nil, spec.cpu.options())
	case "nvidia":
		p.read(s, nil, spec.nvidia.options())
	case "numa":
		p.numa(s)
	case "root":
		p.root(s)
	case "nvlink", "xgmi", "p2p":
		p.between(s)
	case "bond", "vlan", "netdev":
		p.virtual(s)
	case "softrdma":
		p.softRDMA(s)
	case "route":
		p.route(s)
	case "change": // of a variant: On reads it
	default:
		p.patch(s)
	}
}

// claim reports a name that two things have.
func (p *parser) claim(w *words, what, name string) {
	key := what + " " + name
	if key == "interface lo" {
		w.fail("%s: every machine has the interface lo already", w.word)
	}
	if line, taken := p.byName[key]; taken {
		w.fail("%s: %s %q stands in line %d already", w.word, what, name, line)
		return
	}
	p.byName[key] = w.line
}

func (p *parser) numa(s *stmt) {
	n := &numaNode{line: s.line}
	w, ok := p.read(s, options{"N": number(&n.index, 0, maxNUMA-1)}, n.options())
	if !ok {
		return
	}
	if other := p.spec.node(n.index); other != nil {
		w.fail("numa %d stands in line %d already", n.index, other.line)
	}
	p.spec.numa = append(p.spec.numa, n)
}

// between reads "GPU GPU X" or "all X".
func (p *parser) between(s *stmt) {
	w, ok := p.read(s, nil, nil)
	if !ok {
		return
	}
	x := between{line: w.line, kind: w.word, a: -1, b: -1, answer: w.args[len(w.args)-1]}
	gpu := func(to *int) option {
		return kind(to, "gpu0, gpu1, ... in PCI order, or all", func(s string) (int, bool) {
			n, err := strconv.ParseUint(strings.TrimPrefix(s, "gpu"), 10, 12)
			return int(n), err == nil && strings.HasPrefix(s, "gpu")
		})
	}
	all := w.args[0] == "all"
	switch {
	case !all && !w.put("gpu", w.args[0], gpu(&x.a)):
	case all != (len(w.args) == 2):
		w.fail("%s wants two GPUs, or all, and then one word more", w.word)
	case !all && w.args[1] != "all" && !w.put("gpu", w.args[1], gpu(&x.b)):
	case !all && (x.b < 0 || x.a == x.b):
		w.fail("%s wants two different GPUs", w.word)
	case w.word != "p2p" && !w.put("count", x.answer, number(&x.count, 1, 64)):
	case !w.full(len(p.spec.between), maxPairs):
		p.spec.between = append(p.spec.between, x)
	}
}

func (p *parser) virtual(s *stmt) {
	d := &netdev{line: s.line, kind: s.word, mtu: 1500, mode: "802.3ad", hash: "layer3+4", vlan: 1}
	if s.word == "netdev" {
		d.kind = "dummy"
	}
	w, ok := p.read(s, options{"NAME": name(&d.name)}, d.options())
	switch {
	case !ok || w.full(len(p.spec.netdevs), maxVirtual):
		return
	case s.word == "bond" && len(d.legs) == 0:
		w.fail("bond %s: wants legs NAME,NAME", d.name)
	case s.word == "vlan" && d.on == "":
		w.fail("vlan %s: wants on NAME", d.name)
	}
	p.claim(w, "interface", d.name)
	p.spec.netdevs = append(p.spec.netdevs, d)
}

func (p *parser) softRDMA(s *stmt) {
	r := softRDMA{line: s.line, driver: "rxe"}
	w, ok := p.read(s, options{"NAME": name(&r.name)}, r.options())
	if !ok {
		return
	}
	p.claim(w, "RDMA device", r.name)
	if (r.on == "") != (r.driver == "scif") {
		w.fail("softrdma %s: rxe and siw want on NAME, scif has none", r.name)
	}
	p.spec.software = append(p.spec.software, r)
}

func (p *parser) route(s *stmt) {
	r := route{line: s.line}
	w, ok := p.read(s, options{"DST": kind(&r.dst, "default, or a prefix such as 10.0.0.0/8", func(s string) (string, bool) {
		_, err := netip.ParsePrefix(s)
		return s, err == nil || s == "default"
	})}, r.options())
	if !ok || w.full(len(p.spec.routes), maxVirtual) {
		return
	}
	if r.dev == "" {
		w.fail("route %s: wants dev NAME", w.args[0])
	}
	p.spec.routes = append(p.spec.routes, r)
}

func (p *parser) patch(s *stmt) {
	c := patch{line: s.line, word: s.word}
	arrow := ""
	w, ok := p.read(s, options{
		"PATH": anything(&c.path), "VALUE": anything(&c.operand), "->": anything(&arrow), "TARGET": anything(&c.operand),
		"ERRNO": oneOf(&c.operand, slices.Sorted(maps.Keys(errnoByName))...),
	}, nil)
	if !ok || w.full(len(p.spec.patches), maxPatches) {
		return
	}
	if (s.word == "link" || s.word == "move") && (arrow != "->" || c.operand == "") {
		w.fail("%s wants PATH -> TARGET", s.word)
	}
	if c.path = strings.TrimPrefix(c.path, "/"); c.path == "" || len(c.path) > 1024 {
		w.fail("%s: an empty path, or one of more than 1024 bytes", s.word)
	}
	if strings.Contains(c.path, "*") {
		if p.wide++; p.wide > maxWide {
			w.fail("%s: more than %d patches with *", s.word, maxWide)
		}
	}
	p.spec.patches = append(p.spec.patches, c)
}

func (p *parser) root(s *stmt) {
	r := &root{line: s.line, numa: -1}
	w, ok := p.read(s, options{"DOMAIN:BUS": rootBus(r)}, r.options())
	if !ok {
		return
	}
	for _, other := range p.spec.roots {
		if other.domain == r.domain && other.bus == r.bus {
			w.fail("root %s stands in line %d already", w.args[0], other.line)
		}
	}
	p.spec.roots = append(p.spec.roots, r)
	for _, kid := range w.kids {
		r.kids = append(r.kids, p.functions(kid, r, nil)...)
	}
}

// functions reads a function and what hangs below it. A device statement may
// list several.
func (p *parser) functions(s *stmt, r *root, parent *function) []*function {
	w := s.words(newFunction(s.word).options(), &p.rep)
	if w == nil {
		return nil
	}
	var out []*function
	for address := range strings.SplitSeq(w.args[0], ",") {
		if len(p.spec.pci) >= maxFunctions {
			w.fail("more than %d PCI functions", maxFunctions)
			return out
		}
		f := p.function(w, address, r, parent)
		if f == nil {
			return out
		}
		out = append(out, f)
	}
	if len(out) > 1 && (s.word != "device" || len(s.kids) > 0) {
		w.fail("%s: one address, not %d", s.word, len(out))
		return nil
	}
	for _, kid := range s.kids {
		out[0].kids = append(out[0].kids, p.functions(kid, r, out[0])...)
	}
	return out
}

func (p *parser) function(w *words, at string, r *root, parent *function) *function {
	f := newFunction(w.word)
	f.line, f.root, f.parent, f.numa = w.line, r, parent, r.numa
	const form = "bus:device.function as 1b:00.0"
	if len(at) < len("1b:00.0") {
		w.fail("%s: address %v", w.word, want(at, form))
		return nil
	}
	if !w.put("address", at, address(&f.bdf, r.domain, form)) {
		return nil
	}
	if other := p.byBDF[f.bdf]; other != nil {
		w.fail("%s stands in line %d already", f.where(), other.line)
		return nil
	}
	if f.part = p.choosePart(w, f); f.part == nil {
		return nil
	}
	f.hardware = f.part.hardware
	if n := f.nic; n != nil {
		n.layer, n.gbps, n.gids, n.fw, n.board = f.part.layer, f.part.gbps, f.part.gids, f.part.fw, f.part.board
	}
	o := f.options()
	for _, c := range p.changes[f.bdf] {
		w = w.changed(c, o)
		f.line = c.line
	}
	w.apply(o)
	switch {
	case f.nic != nil:
		p.completeNIC(w, f)
	case f.nvme != "":
		p.claim(w, "nvme", f.nvme)
	}
	p.byBDF[f.bdf] = f
	p.spec.pci = append(p.spec.pci, f)
	return f
}

// where names a function in an error.
func (f *function) where() string { return fmt.Sprintf("%s %s", f.kind, f.bdf) }

// choosePart finds the part that a statement names, or the one that a port has
// where none is named.
func (p *parser) choosePart(w *words, f *function) *part {
	kind, name := f.kind, ""
	if len(w.args) > 1 {
		name = w.args[1]
	}
	switch {
	case name == "" && kind == "down" && f.parent != nil:
		return f.parent.part
	case name == "":
		name = map[string]string{"AuthenticAMD": "amd-port", "ARM": "grace-port"}[p.spec.cpu.vendor]
		if name == "" {
			name = "intel-port"
		}
	}
	if kind == "down" {
		kind = "switch"
	}
	chosen := p.spec.parts[name]
	if chosen == nil {
		chosen = builtinParts()[name]
	}
	if chosen == nil {
		w.fail("%s: unknown part %q%s", f.where(), name, choices(p.partNames(kind)))
		return nil
	}
	if chosen.kind != kind {
		w.fail("%s: part %s is a %s, not a %s", f.where(), name, chosen.kind, kind)
		return nil
	}
	return chosen
}

// completeNIC looks at what the options of a NIC say together.
func (p *parser) completeNIC(w *words, f *function) {
	n := f.nic
	switch {
	case n.ib && n.eth:
		w.fail("%s: ib and eth at once", f.where())
	case n.ib:
		n.layer = "ib"
	case n.eth:
		n.layer = "eth"
	}
	if network := f.class >> 8; network == 0x0207 || network == 0x0200 {
		f.class = 0x020000
		if n.layer == "ib" {
			f.class = 0x020700
		}
	}
	if n.mtu == 0 {
		n.mtu = map[string]int{"ib": 4092, "eth": 1500, "efa": 1500}[n.layer]
	}
	if f.driver == "" && n.net+n.rdma != "" {
		w.fail("%s: without a driver it has no net and no rdma", f.where())
	}
	if n.rdma != "" {
		p.claim(w, "RDMA device", n.rdma)
	} else if w.has("pkeys") || w.has("tc") {
		w.fail("%s: pkeys and tc are of an RDMA device, and it has none", f.where())
	}
	if n.net != "" {
		p.claim(w, "interface", n.net)
	}
}

// change reads "change BDF KEY VALUE...": options that a function has instead of those of
// its own statement, or beside them.
func (p *parser) change(c *stmt) {
	if len(c.rest) < 2 || len(c.kids) > 0 {
		p.rep.add(c.line, "change wants BDF and options, nothing below it")
		return
	}
	bdf, err := topo.ParseBDF(c.rest[0].text)
	if err != nil {
		p.rep.add(c.line, "change: %q is no address as 0000:1b:00.0", c.rest[0].text)
		return
	}
	p.changes[bdf] = append(p.changes[bdf], c)
}

// changed is a function's words with those of a change, and the change's line.
func (w *words) changed(c *stmt, o options) *words {
	changed := *w
	changed.stmt = &stmt{line: c.line, word: w.word}
	changed.settings = slices.Clone(w.settings)
	more, _ := o.settings(c.rest[1:], func(format string, args ...any) { changed.fail("change: "+w.word+": "+format, args...) })
	for _, x := range more {
		changed.settings = append(slices.DeleteFunc(changed.settings, func(y setting) bool { return y.key == x.key }), x)
	}
	return &changed
}
