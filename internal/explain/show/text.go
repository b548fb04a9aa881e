package show

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// Text is the answer for people, to be finished by [report.Finish].
func (d *Document) Text(l *report.Look) string {
	var b strings.Builder
	sentence, color := d.headline(l)
	b.WriteString(l.Wrap("", sentence, color))
	if d.Route != nil && d.Lanes == nil {
		b.WriteString(d.routeText(l))
		b.WriteString(d.factsText(l))
		if l.Verbose {
			b.WriteString(d.stepsText(l))
		}
	}
	switch {
	case d.Lanes != nil:
		b.WriteString(d.lanesText(l))
	case d.Request.Destination != "":
		b.WriteString(d.betweenText(l))
	default:
		b.WriteString(d.portsText(l))
		b.WriteString(d.capacityText(l))
		b.WriteString(d.enginesText(l))
	}
	b.WriteString(l.Legend(b.String()))
	if len(d.Hints) > 0 {
		b.WriteString("\n")
	}
	for _, h := range d.Hints {
		text := "hint: " + h.Text
		if l.Verbose && h.Evidence != "" {
			text += " (" + h.Evidence + ")"
		}
		b.WriteString(l.Wrap("", text, report.Caution))
	}
	return b.String()
}

// factsText says what the route is in the terms of nvidia-smi and NCCL, and what limits it.
func (d *Document) factsText(l *report.Look) string {
	r := d.Route
	line := strings.Join(r.Facts("class unknown", d.Request.Destination != ""), ", ")
	if r.Limit != "" {
		line += "; limit: " + explain.LinkText(d.h, r.Limit)
	}
	return l.Wrap("  ", line, "")
}

// endText names an end of the route: of a port the device that it is on.
func (d *Document) endText(id topo.ID) string {
	node, _ := explain.Anchor(d.h, id)
	return explain.NodeText(d.h, node)
}

// stepsText lists the links of the route.
func (d *Document) stepsText(l *report.Look) string {
	if len(d.Route.Steps) == 0 {
		return ""
	}
	rows := []report.Row{{Cells: []string{"link", "rate", "basis", "what"}}}
	for i := range d.Route.Steps {
		s := &d.Route.Steps[i]
		r := report.Row{Cells: []string{string(s.Link), l.Rate(s.BytesPerSec, s.Basis), string(s.Basis), explain.LinkText(d.h, s.Link)}}
		if s.Note != "" {
			r.Below = append(r.Below, s.Note)
		}
		if s.Evidence != "" {
			r.Below = append(r.Below, s.Evidence)
		}
		rows = append(rows, r)
	}
	return "\n" + l.Listing(rows)
}

// portsText lists the ports, the usable ones by rank.
func (d *Document) portsText(l *report.Look) string {
	rows := []report.Row{{Cells: []string{"rank", "port", "class", "links", "expected", "verdict", "why"}, Color: report.Faint}}
	for i := range d.Ranked {
		c := &d.Ranked[i]
		r := report.Row{Cells: []string{strconv.Itoa(i + 1), c.Name, classOr(c.Class), hopsOr(c.Hops), l.Rate(c.BytesPerSec, c.Basis), string(c.Verdict), c.ShortReason()}}
		if c.Verdict == pathsel.Preferred {
			r.Color = report.Good
		}
		r.Below = d.details(l, c)
		rows = append(rows, r)
	}
	if d.More > 0 {
		rows = append(rows, report.Row{Cells: []string{"", strconv.Itoa(d.More) + " more" + " (--k 0 lists all)"}})
	}
	if len(rows) == 1 {
		rows = nil
	}
	out := l.Listing(rows)
	if rejected := d.rejectedText(l, d.Rejected, string(pathsel.Rejected)); rejected != "" && out != "" {
		out += "\n" + rejected
	} else {
		out += rejected
	}
	if out == "" {
		return "" // no port is known, as the headline says
	}
	return "\n" + out
}

// rejectedText lists ports that take no part, those with one reason together.
func (d *Document) rejectedText(l *report.Look, list []pathsel.Candidate, word string) string {
	var rows []report.Row
	for _, group := range explain.Groups(list) {
		names := make([]string, len(group))
		r := report.Row{}
		for i, c := range group {
			names[i] = c.Name
			for _, text := range d.details(l, &c) {
				r.Below = append(r.Below, c.Name+": "+text)
			}
		}
		r.Cells = []string{word, text.List(names, 4), explain.GroupReason(group)}
		rows = append(rows, r)
	}
	return l.Listing(rows)
}

// details are the codes, notes and evidence of a port, with --verbose.
func (d *Document) details(l *report.Look, c *pathsel.Candidate) []string {
	if !l.Verbose {
		return nil
	}
	out := []string{fmt.Sprintf("%s, role %s, NCCL %s, basis %s", c.Reason.Code, c.Role, cmp.Or(string(c.NCCL), "?"), c.Basis)}
	if c.Limit != "" {
		out[0] += ", limit " + explain.LinkText(d.h, c.Limit)
	}
	if c.Reason.Evidence != "" {
		out = append(out, c.Reason.Evidence)
	}
	for _, n := range c.Notes {
		text := fmt.Sprintf("%s: %s", n.Code, n.Text)
		if n.Evidence != "" {
			text += " (" + n.Evidence + ")"
		}
		out = append(out, text)
	}
	return out
}

func classOr(c topo.Class) string { return cmp.Or(c.String(), "?") }

func hopsOr(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}

// capacityText says what the ports carry together.
func (d *Document) capacityText(l *report.Look) string {
	var parts []string
	for _, c := range d.Capacity {
		n := len(c.Shares)
		if n == 0 || c.Of == "usable" && len(d.Capacity[0].Shares) == n {
			continue
		}
		line := l.Rate(c.BytesPerSec, c.Basis)
		if c.BytesPerSec == nil {
			line = "unknown"
		}
		parts = append(parts, fmt.Sprintf("%s on %s", line, text.Plural(n, c.Of+" port")))
	}
	if len(parts) == 0 {
		return ""
	}
	return "\n" + l.Wrap("  ", "together: "+strings.Join(parts, "; "), "")
}

// betweenText says what else there is to know of a pair of devices.
func (d *Document) betweenText(l *report.Look) string {
	r := d.Route
	if !r.Known {
		return ""
	}
	out := ""
	switch {
	case r.PeerAccess == "ok":
		out += "  peer access: ok, says the driver\n"
	case r.PeerAccess != "":
		out += "  " + l.Paint("peer access: "+r.PeerAccess, report.Bad) + "\n"
	case strings.HasPrefix(string(r.From), "gpu:") && strings.HasPrefix(string(r.To), "gpu:") && r.From != r.To:
		out += "  peer access: not known, the driver was not asked\n"
	}
	ends := []topo.ID{d.Request.Source, d.Request.Destination}
	asked := func(c *pathsel.Candidate) bool { return slices.Contains(ends, c.NIC) || slices.Contains(ends, c.Port) }
	for i := range d.Ranked {
		if c := &d.Ranked[i]; asked(c) {
			out += l.Wrap("  ", fmt.Sprintf("%s ranks %d of %d for this memory (%s): %s", c.Name, i+1, len(d.Ranked), c.Verdict, c.Reason.Text), "")
		}
	}
	for i := range d.Rejected {
		if c := &d.Rejected[i]; asked(c) {
			out += l.Wrap("  ", fmt.Sprintf("%s is rejected for this memory: %s", c.Name, c.Reason.Text), report.Caution)
		}
	}
	return out
}

// enginesText says what other engines would choose.
func (d *Document) enginesText(l *report.Look) string {
	if len(d.Engines) == 0 {
		return ""
	}
	rows := []report.Row{{Cells: []string{"engine", "takes", "expected", "believes", "against topoctl's choice"}, Color: report.Faint}}
	for _, c := range d.Engines {
		r := report.Row{Cells: []string{string(c.Engine), takes(c), l.Rate(c.BytesPerSec, c.Basis), "-", c.Cost.Text}}
		if c.BelievedBytesPerSec != nil {
			r.Cells[3] = units.Rate(int64(*c.BelievedBytesPerSec), l.Units)
		}
		if c.Cost.Verdict == rival.Slower {
			r.Color = report.Caution
		}
		r.Below = engineLines(l, c)
		rows = append(rows, r)
	}
	return "\n" + l.Listing(rows)
}

// takes names the ports of a choice with their parts.
func takes(c *rival.Choice) string {
	names := make([]string, len(c.Chosen))
	for i := range c.Chosen {
		names[i] = c.Chosen[i].Name
		if c.Use == rival.Together && len(c.Chosen) > 1 {
			names[i] += fmt.Sprintf(" %.0f %%", 100*c.Chosen[i].Share)
		}
	}
	switch {
	case len(names) == 0:
		return "nothing"
	case c.Use == rival.OneOf && len(names) > 1:
		return "one of " + text.List(names, 4)
	}
	return text.List(names, 4)
}

// engineLines are the reasons of a choice.
func engineLines(l *report.Look, c *rival.Choice) []string {
	var out []string
	if l.Verbose {
		out = append(out, c.Rule)
	}
	const most = 4
	for i := range c.Chosen {
		p := &c.Chosen[i]
		if i == most && len(c.Chosen) > most+1 && !l.Verbose {
			out = append(out, fmt.Sprintf("and %d more", len(c.Chosen)-most))
			break
		}
		text := p.Name + ": " + p.Reason.Text
		if p.Rejects != nil {
			text += "; topoctl rejects it: " + p.Rejects.Text
		}
		out = append(out, text)
	}
	if l.Verbose {
		for i := range c.Rejected {
			out = append(out, "not "+c.Rejected[i].Name+": "+c.Rejected[i].Reason.Text)
		}
	}
	for _, n := range c.Notes {
		if n.Code != rival.CodeTakenAsYes && n.Code != rival.CodeGPUDirect && n.Text != c.Cost.Text || l.Verbose {
			out = append(out, n.Text)
		}
	}
	return out
}
