package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// mostNamed is how many ports or lanes a sentence names.
const mostNamed = 2

// headline is the answer in a sentence.
func (d *Document) headline(l *report.Look) (sentence, color string) {
	sentence, color = d.verdict(l)
	return whatIf(d.Request.Down, sentence), color
}

// whatIf is a sentence that holds with some NICs down.
func whatIf(down []topo.ID, sentence string) string {
	if len(down) == 0 {
		return sentence
	}
	names := make([]string, len(down))
	for i, id := range down {
		names[i] = id.Name()
	}
	return "With " + text.Join(names, len(names)) + " down: " + sentence
}

func (d *Document) verdict(l *report.Look) (sentence, color string) {
	from := explain.ShortName(d.Request.Source)
	switch {
	case d.Why != "":
		return d.Why + ".", report.Bad
	case d.Lanes != nil:
		return lanesHeadline(d.Lanes, l), report.Strong
	case d.Request.Destination != "":
		return fmt.Sprintf("%s reaches %s (%s).", from, explain.ShortName(d.Request.Destination), d.how(l)), report.Strong
	}
	verb := "should"
	if !d.Chosen.Class.Known() {
		verb = "can"
	}
	sentence = fmt.Sprintf("%s %s use %s (%s)", from, verb, d.Chosen.Name, d.how(l))
	if d.Request.Transport == pathsel.TCP {
		sentence += " over TCP"
	}
	for _, n := range d.Chosen.Notes {
		if n.Code == pathsel.CodeFallback {
			return sentence + ": " + n.Text + ".", report.Strong
		}
	}
	if d.Nearness != nil {
		return d.blind(l), report.Strong
	}
	var equal []string
	for i := range d.Ranked {
		if c := &d.Ranked[i]; c.Verdict == pathsel.Preferred && c.Port != d.Chosen.Port {
			equal = append(equal, c.Name)
		}
	}
	if len(equal) > 0 {
		sentence += "; " + text.Join(equal, mostNamed) + " " + text.Noun(len(equal), "is", "are") + " as good"
	}
	return sentence + ".", report.Strong
}

// blind is the answer where nothing tells which of several ports is near.
func (d *Document) blind(l *report.Look) string {
	all, equal := len(d.Ranked)+d.More, len(d.Capacity[0].Shares)
	what, each := fmt.Sprintf("all %d usable ports are candidates", all), " each"
	switch {
	case equal < all:
		what, each = fmt.Sprintf("%s is first of %d usable ports", d.Chosen.Name, all), ""
	case all == 2:
		what = "both usable ports are candidates"
	}
	if d.Request.Transport == pathsel.TCP {
		what += " over TCP"
	}
	if r := d.Route.BytesPerSec; r != nil {
		what += " (" + rateText(l, r, d.Route.Basis) + each + ")"
	}
	return capital(d.Nearness.Text) + "; " + what + "."
}

// capital makes a sentence of a remark.
func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// how says how fast a way is and how near its ends are: "50.0 GB/s, same PCIe switch".
func (d *Document) how(l *report.Look) string {
	r := d.Route
	near := nearness[r.Class.Kind]
	switch r.Class.Kind {
	case topo.ClassUnknown:
		near = "how near " + d.h.Unseen()
	case topo.ClassNV:
		near = text.Plural(r.Class.Links, "NVLink")
	}
	facts := rateText(l, r.BytesPerSec, r.Basis) + ", " + near
	if slices.ContainsFunc(r.Steps, func(s explain.Step) bool { return s.Degraded }) {
		facts += ", over a link below its speed"
	}
	return facts
}

// nearness says in words what a known class means; of NVLinks the number does.
var nearness = map[topo.ClassKind]string{
	topo.ClassSelf: "the device itself", topo.ClassXGMI: "xGMI link", topo.ClassC2C: "C2C link",
	topo.ClassPIX: "same PCIe switch", topo.ClassPXB: "same tree of PCIe switches", topo.ClassPHB: "same PCIe host bridge",
	topo.ClassNODE: "same NUMA node", topo.ClassSYS: "another NUMA node",
}

func rateText(l *report.Look, r *topo.Rate, basis topo.Basis) string {
	if r == nil {
		return "rate unknown"
	}
	return l.Rate(r, basis)
}

// lanesTogether is the rate of several.
func lanesTogether(l *report.Look, r *topo.Rate, basis topo.Basis) string {
	s := rateText(l, r, basis)
	if r != nil {
		s += " together"
	}
	return s
}

func lanesHeadline(s *pathsel.LaneSet, l *report.Look) string {
	var names []string
	for i := range s.Lanes[:s.Chosen] {
		names = append(names, s.Lanes[i].LocalName+" -> "+s.Lanes[i].RemoteName)
	}
	out := fmt.Sprintf("%s of %s reaches %s of %s over %s by %s (%s): %s", s.Source, s.LocalHost, s.Destination, s.RemoteHost, strings.ToUpper(string(s.Transport)),
		text.Plural(s.Chosen, "lane"), lanesTogether(l, s.BytesPerSec, s.Basis), text.List(names, mostNamed))
	for _, n := range s.Notes {
		if isBlind(n) {
			out += "; " + n.Text
		}
	}
	return out + "."
}

// isBlind says whether a remark is that nothing tells which ports of a host are near.
func isBlind(r pathsel.Reason) bool {
	return r.Code == pathsel.CodeNearHidden || r.Code == pathsel.CodeNearUnknown
}

// PlanHeadline is what a plan comes to in a sentence, and its colour.
func PlanHeadline(h *pathsel.Host, p *pathsel.Plan, l *report.Look) (sentence, color string) {
	if len(p.Ports) == 0 {
		return cmp.Or(explain.PortsUnknown(h), "No usable port: no data can leave") + ".", report.Bad
	}
	verb := text.Noun(len(p.Assignments), "uses", "use")
	sentence = fmt.Sprintf("%s %s %s: %s", consumers(p), verb, text.Plural(len(p.Ports), "port"), lanesTogether(l, p.BytesPerSec, p.Basis))
	if n := p.Bottleneck; n != nil && len(p.Assignments) > 1 {
		slowest := l.Rate(&n.SlowestBytesPerSec, n.Basis)
		if consumersAlike(p) {
			sentence += ", " + slowest + " each"
		} else {
			sentence += fmt.Sprintf(", the slowest %s with %s", text.Join(slices.Concat(n.Consumers, n.AsSlow), mostNamed), slowest)
		}
	}
	if p.Nearness != nil {
		sentence = capital(p.Nearness.Text) + "; " + sentence
	}
	return sentence + ".", report.Strong
}

// consumersAlike says whether all consumers of a plan get the same.
func consumersAlike(p *pathsel.Plan) bool {
	return len(p.Bottleneck.Consumers)+len(p.Bottleneck.AsSlow) == len(p.Assignments)
}

// consumers counts what a plan gives ports to.
func consumers(p *pathsel.Plan) string {
	what := "GPU"
	switch a := &p.Assignments[0]; {
	case a.Consumer != string(a.Location):
		what = "rank"
	case strings.HasPrefix(a.Consumer, "cpu:"):
		what = "NUMA node"
	}
	return text.Plural(len(p.Assignments), what)
}
