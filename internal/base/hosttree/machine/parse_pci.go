package machine

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

var (
	rootForm   = regexp.MustCompile(`^([0-9a-f]{4,8}):([0-9a-f]{2})$`)
	acpiForm   = regexp.MustCompile(`^[A-Za-z0-9_.:-]+(/[A-Za-z0-9_.:-]+){0,7}$`)
	serialForm = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

func (p *parser) root(a *args) {
	m := rootForm.FindStringSubmatch(a.pos[0])
	if m == nil {
		a.bad("address", a.pos[0], "DOMAIN:BUS as 0000:15")
		return
	}
	domain, _ := strconv.ParseUint(m[1], 16, 32)
	bus, _ := strconv.ParseUint(m[2], 16, 8)
	r := &root{line: a.line, domain: uint32(domain), bus: uint8(bus), numa: a.intOr("numa", -1, maxNUMA-1, -1)}
	r.under = a.form("under", acpiForm, "a path below /sys/devices")
	if slices.Contains(strings.Split(r.under, "/"), "..") {
		a.bad("under", r.under, "a path below /sys/devices")
	}
	for _, other := range p.spec.roots {
		if other.domain == r.domain && other.bus == r.bus {
			p.rep.add(a.line, "root %s stands in line %d already", a.pos[0], other.line)
		}
	}
	p.spec.roots = append(p.spec.roots, r)
	for _, kid := range a.kids {
		r.kids = append(r.kids, p.function(kid, r, nil)...)
	}
}

// function reads a function and what hangs below it. A device statement may
// list several.
func (p *parser) function(s *stmt, r *root, parent *function) []*function {
	a := s.read(&p.rep)
	if a == nil {
		return nil
	}
	var out []*function
	for address := range strings.SplitSeq(a.pos[0], ",") {
		if len(p.spec.pci) >= maxFunctions {
			p.rep.add(a.line, "more than %d PCI functions", maxFunctions)
			return out
		}
		f := p.oneFunction(a, address, r, parent)
		if f == nil {
			return out
		}
		out = append(out, f)
	}
	if len(out) > 1 && (s.word != "device" || len(s.kids) > 0) {
		p.rep.add(a.line, "%s: one address, not %d", a.word, len(out))
		return nil
	}
	for _, kid := range s.kids {
		out[0].kids = append(out[0].kids, p.function(kid, r, out[0])...)
	}
	return out
}

func (p *parser) oneFunction(a *args, address string, r *root, parent *function) *function {
	if len(address) < 7 {
		a.bad("address", address, "bus:device.function as 1b:00.0")
		return nil
	}
	bdf, err := topo.ParseBDF(address)
	if err != nil {
		a.bad("address", address, "bus:device.function as 1b:00.0")
		return nil
	}
	if strings.Count(address, ":") == 1 {
		bdf.Domain = r.domain
	}
	f := &function{line: a.line, kind: a.word, bdf: bdf, root: r, parent: parent, numa: r.numa}
	if other := p.byBDF[bdf]; other != nil {
		p.rep.add(a.line, "%s stands in line %d already", f.where(), other.line)
		return nil
	}
	if f.part = p.choosePart(a, f); f.part == nil {
		return nil
	}
	f.hw = f.part.hw
	readHW(a, &f.hw)
	f.at = a.lane("at")
	f.numa = a.intOr("numa", -1, maxNUMA-1, f.numa)
	if v, ok := a.hex("acs", 16); ok {
		f.acs = &v
	}
	switch a.word {
	case "gpu":
		p.gpu(a, f)
	case "nic":
		p.nic(a, f)
	case "nvme":
		if f.nvme = a.name("name"); f.nvme != "" {
			p.claim(a, "nvme", f.nvme)
		}
	}
	p.byBDF[bdf] = f
	p.spec.pci = append(p.spec.pci, f)
	return f
}

// choosePart finds the part that a statement names, or the one that a port has
// where none is named.
func (p *parser) choosePart(a *args, f *function) *part {
	name := ""
	if len(a.pos) > 1 {
		name = a.pos[1]
	}
	switch {
	case name == "" && f.kind == "down" && f.parent != nil:
		return f.parent.part
	case name == "":
		name = map[string]string{"AuthenticAMD": "amd-port", "ARM": "grace-port"}[p.spec.cpu.vendor]
		if name == "" {
			name = "intel-port"
		}
	}
	kind := f.kind
	if kind == "down" {
		kind = "switch"
	}
	chosen := p.spec.parts[name]
	if chosen == nil {
		chosen = builtinParts()[name]
	}
	if chosen == nil {
		p.rep.add(a.line, "%s: unknown part %q%s", f.where(), name, choices(p.partNames(kind)))
		return nil
	}
	if chosen.kind != kind {
		p.rep.add(a.line, "%s: part %s is a %s, not a %s", f.where(), name, chosen.kind, kind)
		return nil
	}
	return chosen
}

func (p *parser) gpu(a *args, f *function) {
	mig := a.opt["mig"]
	for _, profile := range mig {
		if !serialForm.MatchString(strings.ReplaceAll(profile, ".", "")) {
			a.bad("mig", profile, "a profile such as 1g.10gb")
		}
	}
	f.gpu = &gpu{
		uuid: a.form("uuid", serialForm, "letters, digits and -"), serial: a.form("serial", serialForm, "letters, digits and -"),
		index: a.intOr("nvml-index", 0, maxFunctions, -1), minor: a.intOr("minor", 0, maxFunctions, -1),
		nvlink: a.intOr("nvlink", 0, 64, 0), c2c: a.intOr("c2c", 0, 64, 0), c2cRate: a.rate("c2c-rate"),
		memoryNUMA: a.integer("memory-numa", 0, maxNUMA-1), mig: mig,
	}
}

func (p *parser) nic(a *args, f *function) {
	n := &nic{
		layer: f.part.layer, rdma: a.name("rdma"), net: a.name("net"),
		gbps: a.intOr("gbps", 1, 10_000, f.part.gbps), rate: a.text("rate", ""),
		state: a.oneOf("state", "active", "active", "down", "init", "armed"),
		lid:   a.intOr("lid", 0, 65535, 0), smLID: a.intOr("sm-lid", 0, 65535, 1), ips: a.prefixes("ip"),
		mac: a.form("mac", macForm, "six bytes as a0:88:c2:00:00:01"), guid: a.form("guid", guidForm, "four groups as a088:c203:0000:0001"),
		mtu: a.intOr("mtu", 68, 65535, 0), ndev: a.name("ndev"), gids: a.intOr("gids", 0, maxGIDs, f.part.gids),
		pkeys: a.pkeys("pkeys"), tc: a.countOr("tc", "unset", 255),
		sriov: a.integer("sriov", 0, 255), physPort: a.text("phys-port", ""), physSwitch: a.text("phys-switch", ""),
		fw: a.text("fw", f.part.fw), board: a.text("board", f.part.board),
	}
	switch {
	case a.has("ib") && a.has("eth"):
		p.rep.add(a.line, "%s: ib and eth at once", f.where())
	case a.has("ib"):
		n.layer = "ib"
	case a.has("eth"):
		n.layer = "eth"
	}
	if f.class>>8 == 0x0207 || f.class>>8 == 0x0200 {
		f.class = map[string]uint32{"ib": 0x020700}[n.layer]
		if n.layer != "ib" {
			f.class = 0x020000
		}
	}
	if n.mtu == 0 {
		n.mtu = map[string]int{"ib": 4092, "eth": 1500, "efa": 1500}[n.layer]
	}
	if f.driver == "" && n.net+n.rdma != "" {
		p.rep.add(a.line, "%s: without a driver it has no net and no rdma", f.where())
	}
	if n.rdma != "" {
		p.claim(a, "RDMA device", n.rdma)
	} else if a.has("pkeys") || a.has("tc") {
		p.rep.add(a.line, "%s: pkeys and tc are of an RDMA device, and it has none", f.where())
	}
	if n.net != "" {
		p.claim(a, "interface", n.net)
	}
	if a.has("vf-of") {
		pf, err := topo.ParseBDF(a.opt["vf-of"][0])
		if err != nil {
			a.bad("vf-of", a.opt["vf-of"][0], "an address as 18:00.0")
			return
		}
		if strings.Count(a.opt["vf-of"][0], ":") == 1 {
			pf.Domain = f.bdf.Domain
		}
		n.vfOf = &pf
	}
	f.nic = n
}
