package machine

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

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
	x := &part{layer: "eth", gbps: 10, gids: 256, oui: "02:00:00"}
	w := s.words(x.options(), &p.rep)
	if w == nil {
		return
	}
	w.put("part", w.args[0], name(&x.name))
	class, known := classOf[w.args[1]]
	if !known {
		w.fail("part %s: unknown kind %q%s", x.name, w.args[1], choices(strings.Fields("port "+functions)))
		return
	}
	if p.spec.parts[x.name] != nil {
		w.fail("part %s stands twice", x.name)
		return
	}
	x.kind, x.class = w.args[1], class
	w.apply(x.options())
	if !w.has("id") {
		w.fail("part %s: wants id VENDOR:DEVICE", x.name)
	}
	if x.model == "" {
		x.model = x.title
	}
	p.spec.parts[x.name] = x
}

func (p *parser) partNames(kind string) []string {
	var names []string
	for _, table := range []map[string]*part{builtinParts(), p.spec.parts} {
		for name, x := range table {
			if x.kind == kind {
				names = append(names, name)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
