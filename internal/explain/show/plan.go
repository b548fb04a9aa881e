package show

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// PlanText is a plan for people, with the NICs and ports that are taken to be down; [report.Finish] finishes it.
func PlanText(h *pathsel.Host, p *pathsel.Plan, down []topo.ID, l *report.Look) string {
	var b strings.Builder
	sentence, color := PlanHeadline(h, p, l)
	b.WriteString(l.Wrap("", whatIf(down, sentence), color))
	if len(p.Ports) > 0 {
		if p.Bottleneck != nil {
			of := "limit of the slowest: "
			if consumersAlike(p) {
				of = "limit: such as "
			}
			b.WriteString(l.Wrap("  ", of+explain.LinkText(h, p.Bottleneck.Link), ""))
		}
		b.WriteString("\n" + l.Listing(assignmentRows(h, p, l)))
		if shared := sharedText(p); shared != "" {
			b.WriteString("\n" + shared)
		}
	}
	b.WriteString("\n")
	d := &Document{h: h}
	if rejected := d.rejectedText(l, p.Rejected, "no part"); rejected != "" {
		b.WriteString(rejected + "\n")
	}
	if legend := strings.TrimPrefix(l.Legend(b.String()), "\n"); legend != "" {
		b.WriteString(legend + "\n")
	}
	if p.Nearness != nil {
		b.WriteString(l.Wrap("", "hint: "+h.HowToSee(), report.Caution))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func assignmentRows(h *pathsel.Host, p *pathsel.Plan, l *report.Look) []report.Row {
	rows := []report.Row{{Cells: []string{"consumer", "ports", "class", "expected", "why"}, Color: report.Faint}}
	for i := range p.Assignments {
		a := &p.Assignments[i]
		name := a.Consumer
		if name != string(a.Location) {
			name += " (" + string(a.Location) + ")"
		}
		if len(a.Ports) == 0 {
			rows = append(rows, report.Row{Cells: []string{name, "-", "-", "0", "no usable port"}, Color: report.Bad})
			continue
		}
		var names, classes, reasons []string
		for j := range a.Ports {
			c := &a.Ports[j]
			names = append(names, c.Name)
			if s := classOr(c.Class); !slices.Contains(classes, s) {
				classes = append(classes, s)
			}
			if s := c.ShortReason(); !slices.Contains(reasons, s) {
				reasons = append(reasons, s)
			}
		}
		r := report.Row{Cells: []string{name, text.List(names, 4), strings.Join(classes, " "), l.Rate(a.BytesPerSec, a.Basis), strings.Join(reasons, "; ")}}
		if l.Verbose && a.Limit != "" {
			r.Below = []string{"limit: " + explain.LinkText(h, a.Limit)}
		}
		rows = append(rows, r)
	}
	return rows
}

// sharedText lists the ports that several consumers share.
func sharedText(p *pathsel.Plan) string {
	var b strings.Builder
	for i := range p.Ports {
		l := &p.Ports[i]
		if len(l.Consumers) > 1 {
			fmt.Fprintf(&b, "  %s is shared by %s\n", l.Name, text.List(l.Consumers, 8))
		}
	}
	return b.String()
}
