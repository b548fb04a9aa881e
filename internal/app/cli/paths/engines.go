package paths

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/rival"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// enginesText says what other engines would choose.
func (d *pathDoc) enginesText(l *command.Look) string {
	if len(d.Engines) == 0 {
		return ""
	}
	rows := []command.Row{{Cells: []string{"engine", "takes", "expected", "believes", "against topoctl's choice"}, Color: command.Faint}}
	for _, c := range d.Engines {
		r := command.Row{Cells: []string{string(c.Engine), takes(c), l.Rate(c.BytesPerSec, c.Basis), "-", c.Cost.Text}}
		if c.BelievedBytesPerSec != nil {
			r.Cells[3] = units.Rate(int64(*c.BelievedBytesPerSec), l.Units)
		}
		if c.Cost.Verdict == rival.Slower {
			r.Color = command.Caution
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
func engineLines(l *command.Look, c *rival.Choice) []string {
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
