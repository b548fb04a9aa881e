package machine

import (
	_ "embed"
	"slices"
	"sync"
)

//go:embed parts.txt
var partsText []byte

var partKinds = []string{"port", "switch", "bridge", "gpu", "nic", "nvme", "nvswitch", "device"}

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

func (p *parser) part(s *stmt) {
	a := s.read(&p.rep)
	if a == nil {
		return
	}
	x := &part{name: a.checkName("part", a.pos[0]), kind: a.pos[1]}
	if !slices.Contains(partKinds, x.kind) {
		p.rep.add(a.line, "part %s: unknown kind %q%s", x.name, x.kind, choices(partKinds))
		return
	}
	if p.spec.parts[x.name] != nil {
		p.rep.add(a.line, "part %s stands twice", x.name)
		return
	}
	x.class = classOf[x.kind]
	readHW(a, &x.hw)
	if !a.has("id") {
		p.rep.add(a.line, "part %s: wants id VENDOR:DEVICE", x.name)
	}
	if mem := a.bytes("memory"); mem != nil {
		x.memory = *mem
	}
	x.cc = a.text("cc", "")
	x.layer = a.oneOf("layer", "eth", "ib", "eth", "efa")
	x.gbps = a.intOr("gbps", 1, 10_000, 10)
	x.hca, x.board, x.fw = a.text("hca", ""), a.text("board", ""), a.text("fw", "")
	x.gids = a.intOr("gids", 0, maxGIDs, 256)
	x.sriov = a.intOr("sriov", 0, 255, 0)
	x.oui = "02:00:00"
	if a.has("oui") {
		if x.oui = a.text("oui", x.oui); !macForm.MatchString(x.oui + ":00:00:00") {
			a.bad("oui", x.oui, "three bytes as a0:88:c2")
		}
	}
	x.model = a.text("model", x.title)
	if size := a.bytes("bytes"); size != nil {
		x.bytes = *size
	}
	p.spec.parts[x.name] = x
}

// classOf is the class of a part that does not give its own.
var classOf = map[string]uint32{
	"port": 0x060400, "switch": 0x060400, "bridge": 0x060400, "gpu": 0x030200, "nic": 0x020000,
	"nvme": 0x010802, "nvswitch": 0x068000, "device": 0x088000,
}

// readHW takes the options that parts and functions share.
func readHW(a *args, h *hw) {
	if v, d, ok := a.idPair("id"); ok {
		h.vendor, h.device = v, d
	}
	if v, d, ok := a.idPair("sub"); ok {
		h.subVendor, h.subDevice = v, d
	}
	if v, ok := a.hex("rev", 8); ok {
		h.rev = uint8(v)
	}
	if v, ok := a.hex("class", 24); ok {
		h.class = v
	}
	if a.has("driver") {
		if h.driver = a.name("driver"); h.driver == "none" {
			h.driver = ""
		}
	}
	h.title = a.text("title", h.title)
	if l := a.lane("link"); l != (lane{}) {
		h.link = fill(l, h.link)
	}
}

// fill takes what a does not say from b.
func fill(a, b lane) lane {
	if a.gen == 0 {
		a.gen = b.gen
	}
	if a.width == 0 {
		a.width = b.width
	}
	return a
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
	return names
}
