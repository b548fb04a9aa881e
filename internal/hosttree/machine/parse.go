package machine

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/discover/topo"
)

// Parse reads a description. The error names each place that makes no sense.
func Parse(text []byte) (*Spec, error) {
	p := newParser()
	if doc := p.rep.load(text); doc != nil {
		p.run(doc, nil)
	}
	if err := p.rep.err(); err != nil {
		return nil, err
	}
	return p.spec, nil
}

// On gives the variant as a whole machine: base with the variant's patches after base's own.
// Invented identifiers stay those of base.
func (s *Spec) On(base *Spec) (*Spec, error) {
	if base.Base != "" {
		return nil, fmt.Errorf("machine: %s: its base %s is itself a variant that is not resolved", s.Name, base.Name)
	}
	p := newParser()
	p.run(base.doc, slices.Concat(base.Patches, s.Patches))
	if err := p.rep.err(); err != nil {
		return nil, fmt.Errorf("%s on %s: %w", s.Name, base.Name, err)
	}
	whole := p.spec
	whole.Name, whole.Description, whole.seed, whole.Host.Name = s.Name, s.Description, base.seed, base.Host.Name
	return whole, nil
}

type parser struct {
	rep    report
	spec   *Spec
	parts  map[string]*part // the machine's own
	byBDF  map[topo.BDF]*function
	byName map[string]*yaml.Node // netdevs, RDMA devices: what has the name
	buses  map[bus]*yaml.Node    // the bridge or root above a bus
}

func newParser() *parser {
	return &parser{
		spec: &Spec{
			Host:   host{Arch: "x86_64", Kernel: "6.8.0-60-generic", Virtual: "none", IOMMU: "off"},
			CPU:    cpu{Threads: 1},
			NVIDIA: nvidia{Driver: "570.133.20", CUDA: "12.8"},
		},
		parts: map[string]*part{}, byBDF: map[topo.BDF]*function{}, byName: map[string]*yaml.Node{}, buses: map[bus]*yaml.Node{},
	}
}

// run makes the spec of a document, with other patches than its own where there are some.
func (p *parser) run(doc *yaml.Node, patches []*patch) {
	s := p.spec
	s.doc = doc
	p.rep.read(doc, "", into(s, ""))
	if s.Host.Name == "" {
		s.Host.Name = s.Name
	}
	s.seed = s.Name
	if patches != nil {
		s.Patches = patches
	}
	if len(p.rep.errs) > 0 {
		return
	}
	p.checkPatches()
	if s.Base != "" {
		for _, x := range p.rep.pairs(doc, "") {
			if !slices.Contains(inVariant, x.key.Value) {
				p.rep.add(x.key, "%s: a variant (base) can only have patches", x.key.Value)
			}
		}
		return
	}
	if len(p.rep.errs) > 0 {
		return
	}
	p.addParts(s.Parts)
	for _, r := range s.Roots {
		r.Kids = p.functions(r.Kids, r, nil)
	}
	for _, d := range s.Netdevs {
		p.virtual(d)
	}
	for _, r := range s.SoftRDMA {
		p.claim(r.From, "RDMA device", r.Name)
		if (r.On == "") != (r.Driver == "scif") {
			p.rep.add(r.From, "softrdma %s: rxe and siw need on, scif does not take it", r.Name)
		}
	}
	if len(p.rep.errs) == 0 {
		p.check()
	}
}

// claim reports a name that two things have.
func (p *parser) claim(n *yaml.Node, what, name string) {
	key := what + " " + name
	if key == "interface lo" {
		p.rep.add(n, "every machine already has the interface lo")
	}
	if other, taken := p.byName[key]; taken {
		p.rep.add(n, "%s %q is already defined in line %d", what, name, other.Line)
		return
	}
	p.byName[key] = n
}

func (p *parser) virtual(d *netdev) {
	bond, vlan := d.Kind == "bond", d.Kind == "vlan"
	switch {
	case bond != (len(d.Legs) > 0), !bond && d.Mode+d.Hash != "":
		p.rep.add(d.From, "interface %s: a bond needs legs, and only a bond has legs, mode and hash", d.Name)
	case vlan != (d.On != ""), !vlan && d.ID != 0:
		p.rep.add(d.From, "interface %s: a vlan needs on, and only a vlan has on and id", d.Name)
	}
	if bond {
		d.Mode, d.Hash = cmp.Or(d.Mode, "802.3ad"), cmp.Or(d.Hash, "layer3+4")
	}
	if vlan {
		d.ID = cmp.Or(d.ID, 1)
	}
	p.claim(d.From, "interface", d.Name)
}

// oneOf takes the key that says what an entry is from a mapping.
func (r *report) oneOf(n *yaml.Node, what string, kinds []string) (kind string, value *yaml.Node, rest []pair) {
	all := r.pairs(n, what)
	for i, x := range all {
		if slices.Contains(kinds, x.key.Value) {
			return x.key.Value, x.value, slices.Delete(all, i, i+1)
		}
	}
	if len(all) > 0 {
		r.add(all[0].key, "%s: unknown key %q%s", what, clip(all[0].key.Value), nearest(all[0].key.Value, slices.Clone(kinds)))
	} else if all != nil {
		r.add(n, "%s: want one of %s", what, strings.Join(kinds, ", "))
	}
	return "", nil, nil
}

var verbs = []string{"change", "set", "remove", "link", "move", "unreadable"}

func (c *patch) read(r *report, n *yaml.Node, what string) {
	word, path, rest := r.oneOf(n, what, verbs)
	c.From, c.word = n, word
	if word == "" {
		return
	}
	r.read(path, word, into(&c.path, "any"))
	o := options{}
	switch word {
	case "change":
		c.pairs = rest
		return
	case "set", "link", "move":
		o["to"] = tagged(c)["to"]
	case "unreadable":
		o["error"] = tagged(c)["error"]
	}
	r.readKeys(n, word, rest, o)
}

func (p *parser) checkPatches() {
	wide := 0
	for i, c := range p.spec.Patches {
		if strings.Contains(c.path, "*") {
			wide++
		}
		c.path = strings.TrimPrefix(c.path, "/")
		switch _, err := topo.ParseBDF(c.path); {
		case i == maxPatches || wide > maxWide:
			p.rep.add(c.From, "more than %d patches, or than %d with *", maxPatches, maxWide)
			return
		case c.word == "change" && err != nil:
			p.rep.add(c.From, "change: %v", want(c.path, "an address such as 0000:1b:00.0"))
		case c.path == "" || len(c.path) > 1024:
			p.rep.add(c.From, "%s: an empty path, or one of more than 1024 bytes", c.word)
		case c.To == "" && (c.word == "link" || c.word == "move"):
			p.rep.add(c.From, "%s: to is empty", c.word)
		}
	}
}

// read keeps what a function's part and changes must be known for.
func (f *function) read(r *report, n *yaml.Node, what string) {
	kind, address, rest := r.oneOf(n, what, strings.Fields("port down "+functions))
	if kind == "" {
		return
	}
	f.From = n
	f.become(kind)
	r.read(address, kind, into(&f.addresses, "any"))
	for _, x := range rest {
		switch key := x.key.Value; {
		case key == "part":
			r.read(x.value, kind+": part", into(&f.partName, "any"))
		case key == "below" && below[kind] != "":
			r.read(x.value, "below", into(&f.Kids, ""))
		default:
			f.keys = append(f.keys, x)
		}
	}
}

// functions completes the functions below a root or a bridge. A device with several addresses
// is several functions.
func (p *parser) functions(list []*function, r *root, parent *function) []*function {
	above := "root"
	if parent != nil {
		above = parent.kind
	}
	var out []*function
	for _, f := range list {
		if allowed := strings.Fields(below[above]); !slices.Contains(allowed, f.kind) {
			p.rep.add(f.From, "%s cannot be below %s; allowed: %s", f.kind, above, strings.Join(allowed, ", "))
			continue
		}
		if len(f.addresses) != 1 && f.kind != "device" {
			p.rep.add(f.From, "%s: want one address", f.kind)
			continue
		}
		for _, address := range f.addresses {
			one := *f
			one.become(f.kind)
			one.root, one.parent, one.NUMA = r, parent, r.NUMA
			if p.function(&one, address) {
				one.Kids = p.functions(f.Kids, r, &one)
				out = append(out, &one)
			}
		}
	}
	return out
}

func (p *parser) function(f *function, address string) bool {
	if len(p.spec.pci) >= maxFunctions {
		p.rep.add(f.From, "more than %d PCI functions", maxFunctions)
		return false
	}
	var ok bool
	if f.bdf, ok = parseAddress(address, f.root.Bus.domain); !ok || len(address) < len("1b:00.0") {
		p.rep.add(f.From, "%s: address %v", f.kind, want(address, "bus:device.function such as 1b:00.0"))
		return false
	}
	if other := p.byBDF[f.bdf]; other != nil {
		p.rep.add(f.From, "%s is already defined in line %d", f.where(), other.From.Line)
		return false
	}
	if f.part = p.choosePart(f); f.part == nil {
		return false
	}
	f.hardware = f.part.hardware
	if f.nic != nil {
		f.nic.ports, f.nic.Layer = f.part.ports, f.part.Layer
	}
	keys := slices.Clone(f.keys)
	for _, c := range p.spec.Patches {
		if bdf, _ := topo.ParseBDF(c.path); c.word == "change" && bdf == f.bdf {
			for _, x := range c.pairs {
				keys = append(slices.DeleteFunc(keys, func(y pair) bool { return y.key.Value == x.key.Value }), x)
			}
			f.From = c.From
		}
	}
	p.rep.readKeys(f.From, f.kind, keys, f.options())
	switch {
	case f.nic != nil:
		p.completeNIC(f)
	case f.nvme != nil && f.nvme.Name != "":
		p.claim(f.From, "nvme", f.nvme.Name)
	}
	p.byBDF[f.bdf] = f
	p.spec.pci = append(p.spec.pci, f)
	return true
}

// where names a function in an error.
func (f *function) where() string { return fmt.Sprintf("%s %s", f.kind, f.bdf) }

// completeNIC looks at what the keys of a NIC say together.
func (p *parser) completeNIC(f *function) {
	n := f.nic
	if network := f.Class >> 8; network == 0x0207 || network == 0x0200 {
		f.Class = map[bool]uint32{true: 0x020700, false: 0x020000}[n.Layer == "ib"]
	}
	if n.MTU == 0 {
		n.MTU = map[string]int{"ib": 4092, "eth": 1500, "efa": 1500}[n.Layer]
	}
	if f.Driver == "" && n.Net+n.RDMA != "" {
		p.rep.add(f.From, "%s: without a driver it cannot have net or rdma", f.where())
	}
	if len(n.PKeys) > pkeyTable {
		p.rep.add(f.From, "%s: more than %d pkeys", f.where(), pkeyTable)
	}
	if n.RDMA != "" {
		p.claim(f.From, "RDMA device", n.RDMA)
	} else if n.PKeys != nil || n.TC != "" {
		p.rep.add(f.From, "%s: pkeys and tc need an RDMA device (rdma: NAME)", f.where())
	}
	if n.Net != "" {
		p.claim(f.From, "interface", n.Net)
	}
}

//go:embed parts.yaml
var partsText []byte

// builtinParts are the parts of parts.yaml. A test reads them, so that an error
// in that file cannot reach a user.
var builtinParts = sync.OnceValue(func() map[string]*part {
	p := newParser()
	p.rep.read(p.rep.load(partsText), "parts", into(&p.spec.Parts, ""))
	p.addParts(p.spec.Parts)
	if err := p.rep.err(); err != nil {
		panic("machine: parts.yaml: " + err.Error())
	}
	return p.parts
})

// classOf are the kinds of parts, and the class of one that does not give its own.
var classOf = map[string]uint32{
	"port": 0x060400, "switch": 0x060400, "bridge": 0x060400, "gpu": 0x030200, "nic": 0x020000,
	"nvme": 0x010802, "nvswitch": 0x068000, "device": 0x088000,
}

func (p *parser) addParts(list []*part) {
	for _, x := range list {
		if p.parts[x.Name] != nil {
			p.rep.add(x.From, "part %s is defined twice", x.Name)
		}
		if x.ID == (idPair{}) {
			p.rep.add(x.From, "part %s needs id", x.Name)
		}
		if x.Class == 0 {
			x.Class = classOf[x.Kind]
		}
		x.Model = cmp.Or(x.Model, x.Title)
		p.parts[x.Name] = x
	}
}

// choosePart finds the part that a function names, or for a port that names no part
// the usual one.
func (p *parser) choosePart(f *function) *part {
	kind, name := f.kind, f.partName
	switch {
	case name != "":
	case kind == "down" && f.parent != nil:
		return f.parent.part
	case kind == "port" || kind == "down":
		name = cmp.Or(map[string]string{"AuthenticAMD": "amd-port", "ARM": "grace-port"}[p.spec.CPU.Vendor], "intel-port")
	default:
		p.rep.add(f.From, "%s needs part", f.where())
		return nil
	}
	if kind == "down" {
		kind = "switch"
	}
	chosen := cmp.Or(p.parts[name], builtinParts()[name])
	if chosen == nil {
		var names []string
		for _, table := range []map[string]*part{builtinParts(), p.parts} {
			for name, x := range table {
				if x.Kind == kind {
					names = append(names, name)
				}
			}
		}
		p.rep.add(f.From, "%s: unknown part %q%s", f.where(), clip(name), nearest(name, names))
	} else if chosen.Kind != kind {
		p.rep.add(f.From, "%s: part %s is a %s, not a %s", f.where(), name, chosen.Kind, kind)
		return nil
	}
	return chosen
}
