package pathsel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// The records of decisions for people, as golden files have them: the command and the
// dashboard lay out their own.

// Text is the decision for people, a line for each port.
func (a *Affinity) Text() string {
	rows := [][]string{{"rank", "port", "class", "hops", "expected", "verdict", "why"}}
	for i := range a.Ranked {
		c := &a.Ranked[i]
		rows = append(rows, c.row(fmt.Sprint(i+1)))
	}
	for i := range a.Rejected {
		rows = append(rows, a.Rejected[i].row("-"))
	}
	return string(a.Location) + "\n" + table(rows)
}

func (c *Candidate) row(rank string) []string {
	hops := "?"
	if c.Hops != nil {
		hops = fmt.Sprint(*c.Hops)
	}
	return []string{rank, c.Name, classOr(c.Class, "?"), hops, rateOr(c.BytesPerSec, c.Basis, "?"), string(c.Verdict),
		withNotes(c.Reason.withEvidence(), c.Notes)}
}

// shownFailover is how many lanes for failover the text lists: the record has
// all of them.
const shownFailover = 8

// Text is the decision for people: a line for each lane that is chosen, for the
// next ones that would step in, and for what is rejected.
func (s *LaneSet) Text() string {
	together := "no lane"
	if s.Chosen > 0 {
		together = fmt.Sprintf("%s together on %s", rateOr(s.BytesPerSec, s.Basis, "rate unknown"), text.Plural(s.Chosen, "lane"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s -> %s over %s: %s\n", place(s.LocalHost, s.Source), place(s.RemoteHost, s.Destination), s.Transport, together)
	rows := [][]string{{"rank", "local", "remote", "tier", "class", "reach", "alone", "share", "verdict", "why"}}
	shown := min(len(s.Lanes), s.Chosen+shownFailover)
	for i := range s.Lanes[:shown] {
		rows = append(rows, s.Lanes[i].row(i+1))
	}
	if shown < len(s.Lanes) {
		rows = append(rows, []string{"...", fmt.Sprintf("%d more for failover", len(s.Lanes)-shown), ""})
	}
	for i := range s.Rejected {
		rows = append(rows, s.Rejected[i].row(s.pair))
	}
	b.WriteString(table(rows))
	for i := range s.Notes {
		b.WriteString("  note: " + s.Notes[i].line() + "\n")
	}
	return b.String()
}

func (l *Lane) row(rank int) []string {
	share := ""
	if l.Verdict == Chosen {
		share = "?"
	}
	if l.Share != nil {
		share = l.Share.String()
	}
	why := l.Reason.line() + "; " + string(l.ReachReason.Code)
	if l.Verdict == Chosen {
		why = withNotes(l.Reason.line()+"; "+l.ReachReason.line(), l.Notes)
	}
	return []string{fmt.Sprint(rank), l.LocalName, l.RemoteName, fmt.Sprint(l.Tier), classOr(l.LocalClass, "?") + "/" + classOr(l.RemoteClass, "?"),
		string(l.Reach), rateOr(l.BytesPerSec, l.Basis, "?"), share, string(l.Verdict), why}
}

// row is a rejection, its ports by name.
func (r *Rejection) row(p *Pair) []string {
	why := r.Reason.withEvidence()
	if r.Pairs > 1 {
		why = text.Plural(r.Pairs, "pair") + ", " + why
	}
	return []string{"-", several(names(p.local, r.Local)), several(names(p.remote, r.Remote)), "", "", "", "", "", string(Rejected), why}
}

// place is a location with its host.
func place(host string, l Location) string {
	return strings.TrimSpace(host + " " + string(l))
}

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
			rows = append(rows, []string{name, "-", "-", "-", rateOr(a.BytesPerSec, a.Basis, "?"), "-", "no usable port"})
			continue
		}
		var names, classes, shares []string
		for j := range a.Ports {
			c := &a.Ports[j]
			names = append(names, c.Name)
			classes = planAppend(classes, classOr(c.Class, "?"))
			shares = planAppend(shares, planShare(1, parts[c.Port]))
		}
		limit := string(a.Limit)
		if limit == "" {
			limit = "?"
		}
		rows = append(rows, []string{name, strings.Join(names, " "), strings.Join(classes, " "), strings.Join(shares, " "),
			rateOr(a.BytesPerSec, a.Basis, "?"), limit, a.why()})
	}
	return table(rows)
}

// why gives the reasons for a consumer's ports, those that are alike once.
func (a *Assignment) why() string {
	var texts []string
	ports := map[string][]string{}
	for i := range a.Ports {
		c := &a.Ports[i]
		text := withNotes(c.Reason.line(), c.Notes)
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
		rows = append(rows, []string{l.Name, load, rateOr(l.BytesPerSec, l.Basis, "?"), strings.Join(l.Consumers, " ")})
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
	text := fmt.Sprintf("\n  all together %s (%s)\n", rateOr(p.BytesPerSec, p.Basis, "?"), p.Basis)
	b := p.Bottleneck
	if b == nil {
		return text + "  no bottleneck is known\n"
	}
	text += fmt.Sprintf("  bottleneck %s (%s), used by %s: the slowest consumer gets %s", b.Link, rateOr(b.BytesPerSec, "", "?"),
		planNames(b.Consumers), rateOr(&b.SlowestBytesPerSec, b.Basis, "?"))
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

// planShare is a fraction of a whole: "1", "1/4".
func planShare(part, whole int) string {
	if part == whole {
		return "1"
	}
	return fmt.Sprintf("%d/%d", part, whole)
}

// table aligns rows in columns below a heading.
func table(rows [][]string) string {
	return "  " + strings.Join(text.Columns(rows), "\n  ") + "\n"
}

// line is a reason with its code.
func (r *Reason) line() string { return fmt.Sprintf("%s: %s", r.Code, r.Text) }

// withEvidence is a reason with its code and, if known, where it was read.
func (r *Reason) withEvidence() string {
	if r.Evidence == "" {
		return r.line()
	}
	return r.line() + " (" + r.Evidence + ")"
}

// withNotes appends notes to a line.
func withNotes(line string, notes []Reason) string {
	for i := range notes {
		line += "; " + notes[i].line()
	}
	return line
}

func names(h *Host, ports []topo.ID) []string {
	var out []string
	for _, id := range ports {
		p, _ := h.Port(id)
		out = append(out, p.Name)
	}
	return out
}

// rateOr is a rate with how it is known.
func rateOr(r *topo.Rate, basis topo.Basis, unknown string) string {
	if r == nil {
		return unknown
	}
	return basis.Text(r.String())
}

func classOr(c topo.Class, unknown string) string {
	if !c.Known() {
		return unknown
	}
	return c.String()
}
