package paths

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/explain"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/pathsel"
)

// mostNamed is how many ports or lanes a sentence names.
const mostNamed = 2

// headline is the answer in a sentence.
func (d *pathDoc) headline(l *command.Look) (sentence, color string) {
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

func (d *pathDoc) verdict(l *command.Look) (sentence, color string) {
	from := explain.ShortName(d.Request.Source)
	switch {
	case d.why != "":
		return d.why + ".", command.Bad
	case d.Lanes != nil:
		return lanesHeadline(d.Lanes, l), command.Strong
	case d.Request.Destination != "":
		return fmt.Sprintf("%s reaches %s (%s).", from, explain.ShortName(d.Request.Destination), how(l, d.Route)), command.Strong
	}
	sentence = fmt.Sprintf("%s should use %s (%s)", from, d.Chosen.Name, how(l, d.Route))
	if d.Request.Transport == pathsel.TCP {
		sentence += " over TCP"
	}
	for _, n := range d.Chosen.Notes {
		if n.Code == pathsel.CodeFallback {
			return sentence + ": " + n.Text + ".", command.Strong
		}
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
	return sentence + ".", command.Strong
}

// how says how fast a way is and how near its ends are: "50.0 GB/s, same PCIe switch".
func how(l *command.Look, r *explain.Route) string {
	near := nearness[r.Class.Kind]
	if r.Class.Kind == topo.ClassNV {
		near = text.Plural(r.Class.Links, "NVLink")
	}
	facts := rateText(l, r.BytesPerSec, r.Basis) + ", " + near
	if slices.ContainsFunc(r.Steps, func(s explain.Step) bool { return s.Degraded }) {
		facts += ", over a link below its speed"
	}
	return facts
}

// nearness says in words what a class means; of NVLinks the number does.
var nearness = map[topo.ClassKind]string{
	topo.ClassUnknown: "how near is not known", topo.ClassSelf: "the device itself", topo.ClassXGMI: "xGMI link", topo.ClassC2C: "C2C link",
	topo.ClassPIX: "same PCIe switch", topo.ClassPXB: "same tree of PCIe switches", topo.ClassPHB: "same PCIe host bridge",
	topo.ClassNODE: "same NUMA node", topo.ClassSYS: "another NUMA node",
}

func rateText(l *command.Look, r *topo.Rate, basis topo.Basis) string {
	if r == nil {
		return "rate unknown"
	}
	return l.Rate(r, basis)
}

// together is the rate of several.
func together(l *command.Look, r *topo.Rate, basis topo.Basis) string {
	if r == nil {
		return rateText(l, r, basis)
	}
	return l.Rate(r, basis) + " together"
}

func lanesHeadline(s *pathsel.LaneSet, l *command.Look) string {
	var names []string
	for i := range s.Lanes[:s.Chosen] {
		names = append(names, s.Lanes[i].LocalName+" -> "+s.Lanes[i].RemoteName)
	}
	return fmt.Sprintf("%s of %s reaches %s of %s over %s by %s (%s): %s.", s.Source, s.LocalHost, s.Destination, s.RemoteHost, strings.ToUpper(string(s.Transport)),
		text.Plural(s.Chosen, "lane"), together(l, s.BytesPerSec, s.Basis), text.List(names, mostNamed))
}

// PlanHeadline is what a plan comes to in a sentence, and its colour.
func PlanHeadline(h *pathsel.Host, p *pathsel.Plan, l *command.Look) (sentence, color string) {
	if len(p.Ports) == 0 {
		return cmp.Or(explain.PortsUnknown(h), "No usable port: no data can leave") + ".", command.Bad
	}
	verb := text.Noun(len(p.Assignments), "uses", "use")
	sentence = fmt.Sprintf("%s %s %s: %s", consumers(p), verb, text.Plural(len(p.Ports), "port"), together(l, p.BytesPerSec, p.Basis))
	if n := p.Bottleneck; n != nil && len(p.Assignments) > 1 {
		slowest := l.Rate(&n.SlowestBytesPerSec, n.Basis)
		if alike(p) {
			sentence += ", " + slowest + " each"
		} else {
			sentence += fmt.Sprintf(", the slowest %s with %s", text.Join(slices.Concat(n.Consumers, n.AsSlow), mostNamed), slowest)
		}
	}
	return sentence + ".", command.Strong
}

// alike says whether all consumers of a plan get the same.
func alike(p *pathsel.Plan) bool {
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
