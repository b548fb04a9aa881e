package texts

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// function is what a text says of one PCI function.
type function struct {
	line int // of its first line, from 1
	bdf  topo.BDF

	class, name string // as the first line has them, without revision and programming interface
	revision    string
	progIF      string
	subsystem   string

	secondary, subordinate int // buses of a bridge, -1 where the text does not say
	numa, group            *int
	driver, serial         string
	port                   string // the kind of PCI Express device, "Root Port"
	link                   *topo.PCILink
	acs                    *topo.ACS
	acsListed              bool // it has the capability
	ats                    string
	capabilities           bool // at least one is printed
	extended               bool // at least one beyond byte 256 is printed
	denied                 bool // capabilities could not be read
	detailed               bool // more than the first line is there
	vfs                    virtual
}

// virtual is the SR-IOV capability.
type virtual struct{ total, active, offset, stride int }

const maxFunctions = 1 << 16

var (
	headLine = regexp.MustCompile(`^[ \t]*((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:]{1,80}): (.{1,400})$`)
	tail     = regexp.MustCompile(` \((rev|prog-if) ([0-9a-f]{2})(?: \[.*\])?\)$`)
	busLine  = regexp.MustCompile(`^Bus: primary=[0-9a-f]{2}, secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})`)
	express  = regexp.MustCompile(`^\[[0-9a-f]+\] Express (?:\(v[0-9]+\) )?([A-Z][A-Za-z/ -]*)`)
	linkText = regexp.MustCompile(`Speed ([0-9.]{1,6})GT/s[^,]*, Width x([0-9]{1,2})`)
	flagNUMA = regexp.MustCompile(`, NUMA node ([0-9]{1,5})`)
	flagIOMU = regexp.MustCompile(`, IOMMU group ([0-9]{1,9})`)
	vfCount  = regexp.MustCompile(`Total VFs: ([0-9]{1,5}), Number of VFs: ([0-9]{1,5})`)
	vfPlace  = regexp.MustCompile(`^VF offset: ([0-9]{1,5}), stride: ([0-9]{1,5})`)
)

// parseLspci reads all functions of a text. Lines before the first one are passed over, as are those
// that are about nothing that a topology holds.
func parseLspci(data []byte) ([]function, error) {
	var out []function
	for i, line := range lines(data) {
		number := i + 1
		if m := headLine.FindStringSubmatch(line); m != nil {
			bdf, err := topo.ParseBDF(m[1])
			if err != nil {
				return nil, pkgerr.Errorf("texts", "line %d: %q is no PCI address", number, m[1])
			}
			if len(out) == maxFunctions {
				return nil, pkgerr.Errorf("texts", "line %d: more than %d functions, which are not read", number, maxFunctions)
			}
			f := function{line: number, bdf: bdf, class: m[2], name: m[3], progIF: "00", secondary: -1, subordinate: -1}
			f.cutTail()
			out = append(out, f)
		} else if len(out) > 0 {
			out[len(out)-1].detail(strings.Trim(line, " \t"))
		}
	}
	if len(out) == 0 {
		return nil, pkgerr.New("texts", "no line with a PCI address and a class: not the text of lspci")
	}
	if slices.ContainsFunc(out, func(f function) bool { return f.detailed }) {
		return once(out)
	}
	return nil, pkgerr.Errorf("texts", "line %d: a list of functions without details, which does not tell how they hang together: want the text of lspci -vv", out[0].line)
}

// once gives each function once, with details where the text has them: lspci without -v is often beside
// lspci -vv. A list with functions that another list has says the same of them, and one of both has no
// others: else they are not of one host.
func once(list []function) ([]function, error) {
	best := map[topo.BDF]*function{}
	var runs [][]*function // lists with details, which are in the order of addresses
	for i := range list {
		f := &list[i]
		if first := best[f.bdf]; first == nil || !first.detailed && f.detailed {
			best[f.bdf] = f
		}
		if !f.detailed {
			continue
		}
		if n := len(runs) - 1; n >= 0 && runs[n][len(runs[n])-1].bdf.Compare(f.bdf) < 0 {
			runs[n] = append(runs[n], f)
		} else {
			runs = append(runs, []*function{f})
		}
	}
	for i := range list {
		f := &list[i]
		if first := best[f.bdf]; classOf(first) != classOf(f) || f.detailed && !first.equal(f) {
			return nil, pkgerr.Errorf("texts", "lines %d and %d differ in what they say of %s, in texts "+twoHosts, min(first.line, f.line), max(first.line, f.line), f.bdf)
		}
	}
	longest := map[topo.BDF]int{} // of the runs that have it
	for i, run := range runs {
		shared := map[int]int{}
		for _, f := range run {
			if k, ok := longest[f.bdf]; ok {
				shared[k]++
			}
		}
		part := false // of an earlier one
		for k, n := range shared {
			if n != len(run) && n != len(runs[k]) {
				return nil, pkgerr.Errorf("texts", "lines %d and %d begin two lists that share some functions only, "+twoHosts, runs[k][0].line, run[0].line)
			}
			part = part || n == len(run)
		}
		for _, f := range run {
			if !part {
				longest[f.bdf] = i
			}
		}
	}
	var out []function
	for i := range list {
		if best[list[i].bdf] == &list[i] {
			out = append(out, list[i])
		}
	}
	return out, nil
}

// classOf is the class without the programming interface, which lspci without -v leaves out.
func classOf(f *function) topo.HexID {
	class := f.hexClass()
	return class[:min(len(class), 6)]
}

// brackets are the numbers that lspci -nn adds to names.
var brackets = regexp.MustCompile(` \[[0-9a-f]{4}(:[0-9a-f]{4})?\]`)

// equal says whether two entries say the same, but for numbers in their names.
func (f *function) equal(o *function) bool {
	plain := func(f function) function {
		f.line, f.class = 0, ""
		f.name, f.subsystem = brackets.ReplaceAllString(f.name, ""), brackets.ReplaceAllString(f.subsystem, "")
		return f
	}
	return reflect.DeepEqual(plain(*f), plain(*o))
}

// cutTail takes revision and programming interface off the name.
func (f *function) cutTail() {
	for range 2 {
		m := tail.FindStringSubmatch(f.name)
		if m == nil {
			return
		}
		f.name = strings.TrimSuffix(f.name, m[0])
		if m[1] == "rev" {
			f.revision = m[2]
		} else {
			f.progIF = m[2]
		}
	}
}

// detail reads a line below a function's first one. Of what is there twice the first counts.
func (f *function) detail(line string) {
	key, rest, ok := strings.Cut(line, ":")
	if !ok {
		return
	}
	rest = strings.TrimLeft(rest, " \t")
	switch key {
	case "Control", "Status", "Latency", "Interrupt":
		f.detailed = true
	case "Flags":
		f.detailed = true
		setNumber(&f.numa, group1(flagNUMA, rest))
		setNumber(&f.group, group1(flagIOMU, rest))
	case "Subsystem":
		setText(&f.subsystem, rest)
	case "Bus":
		if m := busLine.FindStringSubmatch(line); m != nil && f.secondary < 0 {
			f.detailed = true
			f.secondary, f.subordinate = hexByte(m[1]), hexByte(m[2])
		}
	case "NUMA node":
		setNumber(&f.numa, rest)
	case "IOMMU group":
		setNumber(&f.group, rest)
	case "Kernel driver in use", "Driver in use":
		setText(&f.driver, rest)
	case "Capabilities":
		f.detailed = true
		f.capability(rest)
	case "LnkCap":
		f.setLink(rest, func(l *topo.PCILink) (**int, **int) { return &l.MaxSpeedMTs, &l.MaxWidth })
	case "LnkSta":
		f.setLink(rest, func(l *topo.PCILink) (**int, **int) { return &l.SpeedMTs, &l.Width })
	case "ACSCtl":
		if f.acs == nil {
			f.acs = parseACS(rest)
		}
	case "ATSCtl":
		if f.ats == "unknown" {
			f.ats = map[bool]string{true: "on", false: "off"}[strings.HasPrefix(rest, "Enable+")]
		}
	case "Initial VFs":
		if m := vfCount.FindStringSubmatch(rest); m != nil {
			f.vfs.total, f.vfs.active = decimal(m[1]), decimal(m[2])
		}
	case "VF offset":
		if m := vfPlace.FindStringSubmatch(line); m != nil {
			f.vfs.offset, f.vfs.stride = decimal(m[1]), decimal(m[2])
		}
	case "[SN] Serial number":
		setText(&f.serial, rest)
	}
}

func (f *function) capability(text string) {
	if text == "<access denied>" {
		f.denied = true
		return
	}
	f.capabilities = true
	if offset, _, ok := strings.Cut(strings.TrimPrefix(text, "["), " v"); ok && len(offset) == 3 {
		f.extended = true
	}
	if m := express.FindStringSubmatch(text); m != nil && f.port == "" {
		f.port = strings.TrimSpace(m[1])
	}
	if strings.HasSuffix(text, "Access Control Services") {
		f.acsListed = true
	}
	if strings.HasSuffix(text, "Address Translation Service (ATS)") && f.ats == "" {
		f.ats = "unknown"
	}
}

// setLink reads "Port #0, Speed 32GT/s, Width x16, ..." once. A width of 0 is a link that is down.
func (f *function) setLink(text string, fields func(*topo.PCILink) (speed, width **int)) {
	if f.link == nil {
		f.link = &topo.PCILink{}
	}
	speed, width := fields(f.link)
	m := linkText.FindStringSubmatch(text)
	if m == nil || *speed != nil || *width != nil {
		return
	}
	if gts, err := strconv.ParseFloat(m[1], 64); err == nil && gts > 0 && gts <= 128 {
		*speed = new(int(gts * 1000))
	}
	if lanes := decimal(m[2]); lanes > 0 && lanes <= 32 {
		*width = &lanes
	}
}

// acsBits are the bits of the ACS control register, in the order of the register.
// Source: PCI Express Base Specification, ACS Extended Capability; cap_acs in ls-ecaps.c.
var acsBits = []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"}

// parseACS reads "SrcValid+ TransBlk- ..."; nil where one of the bits is not there.
func parseACS(text string) *topo.ACS {
	var control uint16
	words := strings.Fields(text)
	for bit, name := range acsBits {
		if bit >= len(words) || words[bit] != name+"+" && words[bit] != name+"-" {
			return nil
		}
		if words[bit] == name+"+" {
			control |= 1 << bit
		}
	}
	return &topo.ACS{
		Control:         topo.HexID(fmt.Sprintf("0x%04x", control)),
		RequestRedirect: control&(1<<2) != 0, CompletionRedir: control&(1<<3) != 0, UpstreamForward: control&(1<<4) != 0,
	}
}

func group1(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// setText keeps the first text of a kind, within the length of a name.
func setText(dst *string, s string) {
	if *dst == "" && len(s) <= 200 {
		*dst = s
	}
}

// setNumber keeps the first number of a kind.
func setNumber(dst **int, s string) {
	if *dst == nil {
		*dst = number(s)
	}
}

// hexByte and decimal read what a pattern has found to be a number.
func hexByte(s string) int { return *number("0x" + s) }
func decimal(s string) int { return *number(s) }
