package views

import (
	"math"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Main draws the answer: what it is about, the route, the candidates.
func (v *PathView) Main(env *ui.Env, size ui.Size) []string {
	l := env.Look
	v.first = size.H
	if !v.sync(env) {
		text := "no topology yet"
		if v.h != nil {
			text = v.failed
		}
		return Exact(l, ui.Wrap(" "+l.Safe(text), size.W, 1), size.W, size.H)
	}
	p := &pathDrawing{v: v, l: l, env: env, width: size.W}
	out := p.headline()
	if size.H < fewLines {
		out = out[:1]
	}
	list := v.candidates(env)
	least := min(len(list), max(3, size.H/3)) // lines that the candidates need
	if least > 0 {
		least++
	}
	out = append(out, p.route(max(0, size.H-len(out)-least))...)
	all := len(v.answer.Ranked) + len(v.answer.Rejected)
	switch {
	case len(list) > 0:
		out = append(out, p.table(list, len(out), size.H)...)
	case all > 0:
		out = append(out, " nothing matches "+l.Safe(string(env.Filter)))
	}
	return Exact(l, append(out, p.hints()...), size.W, size.H)
}

// Needs is the whole answer: the candidates with their reasons, and the route above them.
func (v *PathView) Needs(env *ui.Env, width int) ui.Size {
	if !v.sync(env) {
		return ui.Size{H: 1}
	}
	p := &pathDrawing{v: v, l: env.Look, env: env, width: width}
	list := v.candidates(env)
	size := ui.Size{W: cursor}
	for _, c := range p.tableColumns(list) {
		if w := max(c.Width, c.Most); w > 0 {
			size.W += w + 1
		}
	}
	p.width = min(width, size.W)
	above := append(p.headline(), p.route(math.MaxInt)...)
	for _, line := range above {
		size.W = max(size.W, ui.Width(line))
	}
	size.H = len(above) + len(p.hints())
	if len(list) > 0 {
		size.H += 1 + len(list)
	}
	return size
}

// Position says which candidates are shown.
func (v *PathView) Position() string { return v.list.Position() }

// hints are what else there is to say, below the candidates.
func (p *pathDrawing) hints() []string {
	var out []string
	for _, r := range p.v.answer.Hints {
		for _, line := range ui.Wrap(p.l.Mark(ui.Middle)+" "+p.l.Safe(r.Text), p.width-1, 2) {
			out = append(out, " "+p.l.Paint(line, ui.Middle))
		}
	}
	return out
}

// fewLines is how many a pane has that needs them for the candidates.
const fewLines = 8

// pathDrawing is one drawing of an answer.
type pathDrawing struct {
	v       *PathView
	l       *ui.Look
	env     *ui.Env
	width   int
	columns []ui.Column
}

// headline says from where to where, and what the way carries.
func (p *pathDrawing) headline() []string {
	a, l := p.v.answer, p.l
	var out []string
	if p.v.note != "" {
		out = append(out, " "+l.Paint(l.Safe(p.v.note), ui.Middle))
	}
	to := explain.ShortName(a.To)
	if a.To == "" && a.Chosen != nil {
		to = a.Chosen.Name
	}
	switch {
	case a.To == "" && a.Chosen == nil:
		to = ui.Unknown
	case a.Nearness != nil:
		to = "any of " + text.Plural(len(a.Ranked), "port")
	}
	line := " " + l.Paint(l.Safe(explain.ShortName(a.From)+" ")+l.Arrow()+" "+l.Safe(to), ui.Strong)
	if a.Why != "" {
		out = append(out, line)
		return append(out, ui.Wrap(" "+l.Mark(ui.Bad)+" "+l.Safe(a.Why), p.width, 3)...)
	}
	r := a.Route
	paths, err := p.v.h.Paths()
	if err != nil {
		return append(out, line)
	}
	facts := append(r.Facts("how near "+paths.Unseen(), true), l.Expected(r.BytesPerSec, r.Basis))
	out = append(out, line+"  "+strings.Join(facts, ", "))
	if r.Limit != "" {
		out = append(out, " limit: "+l.Safe(explain.LinkText(paths, r.Limit)))
	}
	return out
}

// route lists the links of the way in at most h lines.
func (p *pathDrawing) route(h int) []string {
	r := p.v.answer.Route
	if r == nil || h <= 0 {
		return nil
	}
	lines := p.v.h.Links(p.l, r)
	for i := range lines {
		lines[i] = " " + lines[i]
	}
	if len(lines) > h {
		more := text.Plural(len(lines)-h+1, "more link")
		lines = append(lines[:h-1], p.l.Paint("   "+p.l.Dots()+" "+more+" in the detail", ui.Faint))
	}
	return lines
}

// The columns of candidates.
const (
	colRank = iota
	colName
	colClass
	colHops
	colExpected
	colSent
	colReceived
	colVerdict
	colAudit
	colWhy
	columnCount
)

// cursor are the columns before a candidate, leastReason the least for its reason.
const cursor, leastReason = 2, 20

// tableColumns are the columns of the candidates. Names and reasons grow to what the longest takes.
func (p *pathDrawing) tableColumns(list []*pathsel.Candidate) []ui.Column {
	name, why := len("port"), leastReason
	for _, c := range list {
		name = max(name, ui.Width(p.l.Safe(c.Name)))
		why = max(why, ui.Width(p.l.Safe(reason(c))))
	}
	columns := make([]ui.Column, columnCount)
	columns[colRank] = ui.Column{Title: "#", Width: 3, Right: true, Rank: 0}
	columns[colName] = ui.Column{Title: "port", Width: min(name, leastName), Most: name, Rank: 0}
	columns[colWhy] = ui.Column{Title: "why", Width: leastReason, Most: why, Rank: 1}
	columns[colClass] = ui.Column{Title: "class", Width: 5, Rank: 2}
	columns[colExpected] = ui.Column{Title: "expected", Width: 11, Right: true, Rank: 3}
	columns[colVerdict] = ui.Column{Title: "verdict", Width: 9, Rank: 5}
	if len(p.env.State.Ports) > 0 {
		columns[colSent] = ui.Column{Title: "sent", Width: 10, Right: true, Rank: 4}
		columns[colReceived] = ui.Column{Title: "received", Width: 10, Right: true, Rank: 6}
	}
	if p.env.State.Topology != nil && len(p.env.State.Recent) > 1 {
		columns[colAudit] = ui.Column{Title: "share", Width: 14, Rank: 8}
	}
	columns[colHops] = ui.Column{Title: "links", Width: 5, Right: true, Rank: 7}
	return columns
}

// leastName is what a port's name has at least.
const leastName = 10

// table lists the candidates in what is left of h lines.
func (p *pathDrawing) table(list []*pathsel.Candidate, used, h int) []string {
	v, l := p.v, p.l
	p.columns = ui.Fit(p.tableColumns(list), p.width-cursor)
	var out []string
	if h-used > 1 {
		out = append(out, "  "+l.Paint(ui.Heads(l, p.columns), ui.Head))
	}
	v.first = used + len(out)
	room := min(len(list), max(0, h-v.first))
	return append(out, v.list.Draw(l, lines(list, p.line), ui.Size{W: p.width, H: room})...)
}

// line is a candidate in its columns.
func (p *pathDrawing) line(c *pathsel.Candidate, _ int) string {
	return ui.Cells(p.l, p.columns, func(i, w int) string {
		text, style := p.cell(c, i)
		return p.l.Paint(p.l.Cut(p.l.Safe(text), w), style)
	})
}

// rank is a candidate's place among the usable ports, "x" for a rejected one.
func (p *pathDrawing) rank(c *pathsel.Candidate) string {
	for i := range p.v.answer.Ranked {
		if &p.v.answer.Ranked[i] == c {
			return strconv.Itoa(i + 1)
		}
	}
	return p.l.Mark(ui.Bad)
}

// reason is why a candidate stands where it does.
func reason(c *pathsel.Candidate) string {
	if c.Verdict == pathsel.Rejected {
		return c.Reason.Text
	}
	return c.ShortReason()
}

// cell is a candidate's text in a column.
func (p *pathDrawing) cell(c *pathsel.Candidate, column int) (string, ui.Style) {
	switch column {
	case colRank:
		return p.rank(c), ui.Plain
	case colName:
		return c.Name, ui.Plain
	case colWhy:
		return reason(c), ui.Plain
	case colClass:
		return ui.Class(c.Class), ui.Plain
	case colHops:
		if c.Hops == nil {
			return ui.Unknown, ui.Plain
		}
		return strconv.Itoa(*c.Hops), ui.Plain
	case colExpected:
		return p.l.Expected(c.BytesPerSec, c.Basis), ui.Plain
	case colVerdict:
		return string(c.Verdict), styleOf(c.Verdict)
	}
	if column == colAudit {
		return p.audit(c)
	}
	line, _ := p.v.h.Line(p.env.State, c.Port)
	switch {
	case line.Traffic == nil:
		return "-", ui.Faint
	case column == colSent:
		return p.l.PortRate(line.Sent()), ui.Plain
	}
	return p.l.PortRate(line.Received()), ui.Plain
}

// audit is a port's share of all traffic in the last looks, and what that is beside the plan.
func (p *pathDrawing) audit(c *pathsel.Candidate) (string, ui.Style) {
	port, _ := p.v.h.Audit(p.env.State, c.Port)
	switch {
	case port == nil || port.Verdict == audit.NotPlanned:
		return "-", ui.Faint
	case port.Verdict == audit.CouldNotCheck || port.CarriedShare == nil:
		return ui.Unknown, ui.Plain
	case port.Verdict == audit.OK:
		return audit.Percent(*port.CarriedShare), ui.Plain
	}
	return audit.Percent(*port.CarriedShare) + " " + string(port.Verdict), ui.Middle
}

func styleOf(v pathsel.Verdict) ui.Style {
	switch v {
	case pathsel.Preferred:
		return ui.Good
	case pathsel.Rejected:
		return ui.Faint
	}
	return ui.Plain
}
