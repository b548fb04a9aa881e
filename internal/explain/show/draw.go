package show

import (
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/units"
)

// drawing is a route on one line, or on several where it is too long: nodes with
// the rate of the link between them.
type drawing struct {
	d      *Document
	l      *report.Look
	most   int // columns
	out    string
	line   string
	column int
	broken bool // a link runs below what it could
}

// widestRoute is how long a line is where there is no terminal.
const widestRoute = 120

// routeText draws the route, node by node with the rate of each link between.
func (d *Document) routeText(l *report.Look) string {
	steps := d.Route.Steps
	if len(steps) == 0 {
		return ""
	}
	suffix := "   " + l.Units.Suffix()
	w := drawing{d: d, l: l, most: l.Width - len(suffix)}
	if l.Width <= 0 {
		w.most = widestRoute - len(suffix)
	}
	first, last := 0, len(steps)-1 // of the links within the host
	at := d.endText(d.Route.From)
	if steps[0].Kind == topo.LinkPort && len(steps) > 1 { // traffic comes in by the wire
		at, first = "wire", 1
	} else if steps[last].Kind == topo.LinkPort {
		last--
	}
	w.line, w.column = "  "+at, 2+utf8.RuneCountInString(at)
	for i := range steps {
		switch {
		case i < first:
			at = d.endText(d.Route.From)
		case i > last:
			at = "wire"
		case i == last && d.Route.Known:
			at = d.endText(d.Route.To)
		default:
			at = explain.NodeText(d.h, steps[i].To)
		}
		w.link(&steps[i], at)
		if i == last && !d.Route.Known {
			to := d.endText(d.Route.To)
			w.put(" ... "+to, len(" ... ")+utf8.RuneCountInString(to))
		}
	}
	out := w.out + w.line + suffix
	if w.broken {
		out += "   ! below what the link can do"
	}
	return out + "\n"
}

// link draws one link and the node that it leads to.
func (w *drawing) link(s *explain.Step, to string) {
	rate, code := "?", ""
	if s.BytesPerSec != nil {
		rate = s.Basis.Mark(units.RateNumber(int64(*s.BytesPerSec), w.l.Units))
	}
	if s.Link == w.d.Route.Limit {
		code = report.Strong
	}
	if s.Degraded {
		rate, code, w.broken = rate+"!", report.Bad, true
	}
	if s.Kind == topo.LinkRootComplex && s.From == s.To { // peers below one
		w.put(" ("+w.l.Paint(rate, code)+")", 3+len(rate))
		return
	}
	w.put(" ─ "+w.l.Paint(rate, code)+" ─ "+to, utf8.RuneCountInString(" - "+rate+" - "+to))
}

// put appends a piece that takes some cells, on a new line where the present one
// is full.
func (w *drawing) put(text string, cells int) {
	if w.column+cells > w.most && w.column > 4 {
		w.out += w.line + "\n"
		w.line, w.column = "   ", 3
	}
	w.line, w.column = w.line+text, w.column+cells
}
