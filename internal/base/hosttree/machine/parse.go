package machine

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

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
	whole.seed, whole.host.Name = base.seed, base.host.Name
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
	wide    int            // patches with "*"
	byName  map[string]int // netdevs, RDMA devices: the line that has the name
	buses   map[bus]int    // the line of the bridge or root above a bus
}

func newParser() *parser {
	return &parser{
		spec: &Spec{
			host:   host{Arch: "x86_64", Kernel: "6.8.0-60-generic", Virtual: "none", IOMMU: "off"},
			cpu:    cpu{Threads: 1},
			nvidia: nvidia{Driver: "570.133.20", CUDA: "12.8"},
			parts:  map[string]*part{},
		},
		once: map[string]bool{}, changes: map[topo.BDF][]*stmt{}, byBDF: map[topo.BDF]*function{},
		byName: map[string]int{}, buses: map[bus]int{},
	}
}

// run makes the spec of the statements.
func (p *parser) run(top []*stmt) {
	if len(top) == 0 || top[0].word != "machine" {
		line := 1
		if len(top) > 0 {
			line = top[0].line
		}
		p.rep.add(line, "a spec must begin with: machine NAME \"DESCRIPTION\"")
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
		p.rep.add(s.line, "%s: a variant (base) can only have patches%s", s.word, choices(placed(patching)))
	case !slices.Contains(allowed, form.place):
		p.rep.add(s.line, "unknown statement %q%s", s.word, choices(placed(allowed...)))
	case form.once && p.once[s.word]:
		p.rep.add(s.line, "%s is given twice", s.word)
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
		p.read(s, options{"NAME": into(&spec.name, "name"), "DESCRIPTION": into(&spec.description, "any")}, nil)
		spec.seed, spec.host.Name = spec.name, spec.name
	case "base":
		if len(spec.roots)+len(spec.numa) > 0 {
			p.rep.add(s.line, "base must come before everything but machine and source")
		}
		p.read(s, options{"NAME": into(&spec.base, "name")}, nil)
	case "source":
		p.read(s, options{"TEXT": into(&spec.sources, "any")}, nil)
	case "module":
		p.read(s, options{"NAME": into(&spec.modules, "name")}, nil)
	case "host":
		p.readInto(s, &spec.host)
	case "cpu":
		p.readInto(s, &spec.cpu)
	case "nvidia":
		p.readInto(s, &spec.nvidia)
	case "numa":
		n := &numaNode{line: s.line}
		if w, ok := p.readInto(s, n); ok {
			if other := spec.node(n.Index); other != nil {
				w.fail("numa %d is already defined in line %d", n.Index, other.line)
			}
			spec.numa = append(spec.numa, n)
		}
	case "root":
		p.root(s)
	case "nvlink", "xgmi", "p2p":
		p.between(s)
	case "bond", "vlan", "netdev":
		p.virtual(s)
	case "softrdma":
		p.softRDMA(s)
	case "route":
		r := route{line: s.line}
		if w, ok := p.readInto(s, &r); ok && !w.full(len(spec.routes), maxVirtual) {
			if r.Dev == "" {
				w.fail("route %s: needs dev NAME", r.Dst)
			}
			spec.routes = append(spec.routes, r)
		}
	case "change": // of a variant: On reads it
	default:
		p.patch(s)
	}
}

// claim reports a name that two things have.
func (p *parser) claim(w *words, what, name string) {
	key := what + " " + name
	if key == "interface lo" {
		w.fail("%s: every machine already has the interface lo", w.word)
	}
	if line, taken := p.byName[key]; taken {
		w.fail("%s: %s %q is already defined in line %d", w.word, what, name, line)
		return
	}
	p.byName[key] = w.line
}

// between reads "GPU GPU X" or "all X".
func (p *parser) between(s *stmt) {
	w, ok := p.read(s, nil, nil)
	if !ok {
		return
	}
	x := between{line: w.line, kind: w.word, a: -1, b: -1, answer: w.args[len(w.args)-1]}
	all := w.args[0] == "all"
	switch {
	case !all && !w.put("gpu", w.args[0], into(&x.a, "")):
	case all != (len(w.args) == 2):
		w.fail("%s needs two GPUs, or all, and then one more word", w.word)
	case !all && w.args[1] != "all" && !w.put("gpu", w.args[1], into(&x.b, "")):
	case !all && (x.b < 0 || x.a == x.b):
		w.fail("%s needs two different GPUs", w.word)
	case w.word != "p2p" && !w.put("count", x.answer, into(&x.count, "1..64")):
	case !w.full(len(p.spec.between), maxPairs):
		p.spec.between = append(p.spec.between, x)
	}
}

func (p *parser) virtual(s *stmt) {
	d := &netdev{line: s.line, bond: bond{Mode: "802.3ad", Hash: "layer3+4", MTU: 1500}, vlan: vlan{ID: 1}}
	d.Kind = s.word
	var o options
	switch s.word {
	case "bond":
		o = tagged("key", &d.bond)
	case "vlan":
		o = tagged("key", &d.vlan)
	default:
		d.Kind, o = "dummy", tagged("key", &d.plain)
	}
	o["ip"] = into(&d.IPs, "")
	w, ok := p.read(s, options{"NAME": into(&d.Name, "name")}, o)
	switch {
	case !ok || w.full(len(p.spec.netdevs), maxVirtual):
		return
	case s.word == "bond" && len(d.Legs) == 0:
		w.fail("bond %s: needs legs NAME,NAME", d.Name)
	case s.word == "vlan" && d.On == "":
		w.fail("vlan %s: needs on NAME", d.Name)
	}
	p.claim(w, "interface", d.Name)
	p.spec.netdevs = append(p.spec.netdevs, d)
}

func (p *parser) softRDMA(s *stmt) {
	r := softRDMA{line: s.line, Driver: "rxe"}
	w, ok := p.readInto(s, &r)
	if !ok {
		return
	}
	p.claim(w, "RDMA device", r.Name)
	if (r.On == "") != (r.Driver == "scif") {
		w.fail("softrdma %s: rxe and siw need on NAME, scif does not take it", r.Name)
	}
	p.spec.software = append(p.spec.software, r)
}

func (p *parser) patch(s *stmt) {
	c := patch{line: s.line, word: s.word}
	arrow, operand := "", into(&c.operand, "any")
	w, ok := p.read(s, options{
		"PATH": into(&c.path, "any"), "VALUE": operand, "->": into(&arrow, "any"), "TARGET": operand, "ERRNO": into(&c.operand, "errno"),
	}, nil)
	if !ok || w.full(len(p.spec.patches), maxPatches) {
		return
	}
	if (s.word == "link" || s.word == "move") && (arrow != "->" || c.operand == "") {
		w.fail("%s needs PATH -> TARGET", s.word)
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
	r := &root{line: s.line, NUMA: -1}
	w, ok := p.readInto(s, r)
	if !ok {
		return
	}
	for _, other := range p.spec.roots {
		if other.Bus == r.Bus {
			w.fail("root %s is already defined in line %d", w.args[0], other.line)
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
	f.line, f.root, f.parent, f.NUMA = w.line, r, parent, r.NUMA
	var ok bool
	if f.bdf, ok = parseAddress(at, r.Bus.domain); !ok || len(at) < len("1b:00.0") {
		w.fail("%s: address %v", w.word, want(at, "bus:device.function such as 1b:00.0"))
		return nil
	}
	if other := p.byBDF[f.bdf]; other != nil {
		w.fail("%s is already defined in line %d", f.where(), other.line)
		return nil
	}
	if f.part = p.choosePart(w, f); f.part == nil {
		return nil
	}
	f.hardware = f.part.hardware
	if f.nic != nil {
		f.nic.ports, f.nic.layer = f.part.ports, f.part.Layer
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
	case f.nvme != nil && f.nvme.Name != "":
		p.claim(w, "nvme", f.nvme.Name)
	}
	p.byBDF[f.bdf] = f
	p.spec.pci = append(p.spec.pci, f)
	return f
}

// where names a function in an error.
func (f *function) where() string { return fmt.Sprintf("%s %s", f.kind, f.bdf) }

// completeNIC looks at what the options of a NIC say together.
func (p *parser) completeNIC(w *words, f *function) {
	n := f.nic
	switch {
	case n.IB && n.Eth:
		w.fail("%s: cannot be both ib and eth", f.where())
	case n.IB:
		n.layer = "ib"
	case n.Eth:
		n.layer = "eth"
	}
	if network := f.Class >> 8; network == 0x0207 || network == 0x0200 {
		f.Class = map[bool]uint32{true: 0x020700, false: 0x020000}[n.layer == "ib"]
	}
	if n.MTU == 0 {
		n.MTU = map[string]int{"ib": 4092, "eth": 1500, "efa": 1500}[n.layer]
	}
	if f.Driver == "" && n.Net+n.RDMA != "" {
		w.fail("%s: without a driver it cannot have net or rdma", f.where())
	}
	if n.RDMA != "" {
		p.claim(w, "RDMA device", n.RDMA)
	} else if w.has("pkeys") || w.has("tc") {
		w.fail("%s: pkeys and tc need an RDMA device (rdma NAME)", f.where())
	}
	if n.Net != "" {
		p.claim(w, "interface", n.Net)
	}
}

// change reads "change BDF KEY VALUE...": options that a function has instead of those of
// its own statement, or beside them.
func (p *parser) change(c *stmt) {
	if len(c.rest) < 2 || len(c.kids) > 0 {
		p.rep.add(c.line, "change needs BDF and options, and nothing below it")
		return
	}
	bdf, err := topo.ParseBDF(c.rest[0].text)
	if err != nil {
		p.rep.add(c.line, "change: %q is not an address such as 0000:1b:00.0", c.rest[0].text)
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

//go:embed parts.txt
var partsText []byte

// builtinParts are the parts of parts.txt. A test reads them, so that an error
// in that file cannot reach a user.
var builtinParts = sync.OnceValue(func() map[string]*part {
	p := newParser()
	for _, s := range scan(partsText, &p.rep) {
		p.part(s)
	}
	if err := p.rep.err(); err != nil {
		panic("machine: parts.txt: " + err.Error())
	}
	return p.spec.parts
})

// classOf are the kinds of parts, and the class of one that does not give its own.
var classOf = map[string]uint32{
	"port": 0x060400, "switch": 0x060400, "bridge": 0x060400, "gpu": 0x030200, "nic": 0x020000,
	"nvme": 0x010802, "nvswitch": 0x068000, "device": 0x088000,
}

func (p *parser) part(s *stmt) {
	x := &part{Layer: "eth", OUI: "02:00:00", ports: ports{Gbps: 10, GIDs: 256}}
	o := tagged("key", x)
	w := s.words(o, &p.rep)
	if w == nil {
		return
	}
	w.put("part", w.args[0], into(&x.name, "name"))
	class, known := classOf[w.args[1]]
	if !known {
		w.fail("part %s: unknown kind %q%s", x.name, w.args[1], choices(strings.Fields("port "+functions)))
		return
	}
	if p.spec.parts[x.name] != nil {
		w.fail("part %s is defined twice", x.name)
		return
	}
	x.kind, x.Class = w.args[1], class
	w.apply(o)
	if !w.has("id") {
		w.fail("part %s: needs id VENDOR:DEVICE", x.name)
	}
	if x.Model == "" {
		x.Model = x.Title
	}
	p.spec.parts[x.name] = x
}

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
		name = map[string]string{"AuthenticAMD": "amd-port", "ARM": "grace-port"}[p.spec.cpu.Vendor]
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
	switch {
	case chosen == nil:
		var names []string
		for _, table := range []map[string]*part{builtinParts(), p.spec.parts} {
			for name, x := range table {
				if x.kind == kind {
					names = append(names, name)
				}
			}
		}
		slices.Sort(names)
		w.fail("%s: unknown part %q%s", f.where(), name, choices(slices.Compact(names)))
	case chosen.kind != kind:
		w.fail("%s: part %s is a %s, not a %s", f.where(), name, chosen.kind, kind)
		return nil
	}
	return chosen
}
