package pathsel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

// Text is the plan for people: a line for each consumer, one for each port,
// what bounds the whole, and the ports that take no part.
func (p *Plan) Text() string {
	return p.consumersText() + p.portsText() + p.boundText() + p.rejectedText()
}

func (p *Plan) consumersText() string {
	rows := [][]string{{"consumer", "ports", "class", "share", "expected", "limit", "why"}}
	parts := map[topo.ID]int{}
	for i := range p.Ports {
		parts[p.Ports[i].Port] = len(p.Ports[i].Consumers)
	}
	for i := range p.Assignments {
		a := &p.Assignments[i]
		name := a.Consumer
		if name != string(a.Location) {
			name += fmt.Sprintf(" (%s)", a.Location)
		}
		if len(a.Ports) == 0 {
			rows = append(rows, []string{name, "-", "-", "-", planRate(a.BytesPerSec, a.Basis), "-", "no usable port"})
			continue
		}
		var names, classes, shares []string
		for j := range a.Ports {
			c := &a.Ports[j]
			names = append(names, c.Name)
			classes = planAppend(classes, planClass(c.Class))
			shares = planAppend(shares, planShare(1, parts[c.Port]))
		}
		limit := string(a.Limit)
		if limit == "" {
			limit = "?"
		}
		rows = append(rows, []string{name, strings.Join(names, " "), strings.Join(classes, " "), strings.Join(shares, " "),
			planRate(a.BytesPerSec, a.Basis), limit, a.why()})
	}
	return table(rows)
}

// why gives the reasons for a consumer's ports, those that are alike once.
func (a *Assignment) why() string {
	var texts []string
	ports := map[string][]string{}
	for i := range a.Ports {
		c := &a.Ports[i]
		text := fmt.Sprintf("%s: %s", c.Reason.Code, c.Reason.Text)
		for _, n := range c.Notes {
			text += fmt.Sprintf("; %s: %s", n.Code, n.Text)
		}
		texts = planAppend(texts, text)
		ports[text] = append(ports[text], c.Name)
	}
	for i, text := range texts {
		if len(texts) > 1 {
			texts[i] = strings.Join(ports[text], " ") + " " + text
		}
	}
	return strings.Join(texts, "; ")
}

func (p *Plan) portsText() string {
	if len(p.Ports) == 0 {
		return ""
	}
	rows := [][]string{{"port", "load", "carries", "consumers"}}
	for i := range p.Ports {
		l := &p.Ports[i]
		load := fmt.Sprint(len(l.Consumers))
		if len(l.Consumers) == 1 {
			a, _ := p.Of(l.Consumers[0])
			load = planShare(1, len(a.Ports))
		}
		rows = append(rows, []string{l.Name, load, planRate(l.BytesPerSec, l.Basis), strings.Join(l.Consumers, " ")})
	}
	return "\n" + table(rows)
}

// boundText says what all move together and what keeps them from more.
func (p *Plan) boundText() string {
	switch {
	case len(p.Ports)+len(p.Rejected) == 0:
		return "\n  no port is known\n"
	case len(p.Ports) == 0:
		return "\n  no usable port: no data can leave\n"
	}
	text := fmt.Sprintf("\n  all together %s (%s)\n", planRate(p.BytesPerSec, p.Basis), p.Basis)
	b := p.Bottleneck
	if b == nil {
		return text + "  bottleneck unknown: no link on the way has a known rate\n"
	}
	text += fmt.Sprintf("  bottleneck %s (%s), used by %s: the slowest consumer gets %s", b.Link, planRate(b.BytesPerSec, ""),
		planNames(b.Consumers), planRate(&b.SlowestBytesPerSec, b.Basis))
	if len(b.AsSlow) > 0 {
		text += fmt.Sprintf("; as slow behind other links: %s", planNames(b.AsSlow))
	}
	return text + "\n"
}

func (p *Plan) rejectedText() string {
	if len(p.Rejected) == 0 {
		return ""
	}
	rows := [][]string{{"no part", "why"}}
	for i := range p.Rejected {
		row := p.Rejected[i].row("")
		rows = append(rows, []string{p.Rejected[i].Name, row[len(row)-1]})
	}
	return "\n" + table(rows)
}

// planAppend adds a word that is not there yet.
func planAppend(words []string, word string) []string {
	if slices.Contains(words, word) {
		return words
	}
	return append(words, word)
}

func planClass(c topo.Class) string {
	if !c.Known() {
		return "?"
	}
	return c.String()
}

// planShare is a fraction of a whole: "1", "1/4".
func planShare(part, whole int) string {
	if part == whole {
		return "1"
	}
	return fmt.Sprintf("%d/%d", part, whole)
}

// planRate is a rate as it is known.
func planRate(r *topo.Rate, basis topo.Basis) string {
	switch {
	case r == nil:
		return "?"
	case basis == topo.BasisAssumed:
		return "at most " + units.Rate(int64(*r), units.Gbyte)
	}
	return units.Rate(int64(*r), units.Gbyte)
}
