package views

import (
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Styles are the dashboard's for those of text output.
var Styles = map[picture.Style]ui.Style{
	picture.Plain: ui.Plain, picture.Strong: ui.Plain, picture.Faint: ui.Faint, picture.Good: ui.Good,
	picture.Middling: ui.Middle, picture.Bad: ui.Bad,
}

// StyleOf is how bad a finding is.
func StyleOf(s doctor.Severity) ui.Style {
	switch s {
	case doctor.Error:
		return ui.Bad
	case doctor.Warning:
		return ui.Middle
	}
	return ui.Plain
}

// StyleOfState is how good the state of a port is.
func StyleOfState(s string) ui.Style {
	switch s {
	case "ACTIVE", "up":
		return ui.Good
	case "DOWN", "INIT", "ARMED", "down", "lowerlayerdown":
		return ui.Bad
	}
	return ui.Plain
}

// Line is the live side of a port: its state and rate by the last look at its counters, else
// as the topology has them, and its traffic where that is known.
type Line struct {
	ID          topo.ID
	State       string      // "" not known
	BytesPerSec *topo.Rate  // of the line; nil not known
	Traffic     *state.Port // nil where nothing is counted
}

// Line is what is known of a port or an interface; ok is false for other nodes.
func (h *Host) Line(s *state.State, id topo.ID) (l Line, ok bool) {
	switch n := h.Node(id).(type) {
	case *topo.Port:
		l = Line{ID: id, State: n.State, BytesPerSec: n.BytesPerSec}
	case *topo.Netdev:
		l = Line{ID: id, State: n.State, BytesPerSec: n.BytesPerSec}
	default:
		return Line{}, false
	}
	l.Traffic = s.Ports[id]
	if p := l.Traffic; p != nil && p.Seen {
		l.State = p.State
		if p.BytesPerSec != nil {
			l.BytesPerSec = p.BytesPerSec
		}
	}
	return l, true
}

// top is the rate of the line, for graphs; 0 it is not known.
func (l *Line) top() float64 {
	if l.BytesPerSec == nil {
		return 0
	}
	return float64(*l.BytesPerSec)
}

// Busier is the larger of what goes and what comes, nil where neither is known.
func (l *Line) Busier() *topo.Rate {
	if l.Traffic == nil {
		return nil
	}
	return l.Traffic.Busy()
}

// links draws a route link by link, the limiting one marked.
func (d *detail) links(h *Host, r *explain.Route) {
	paths, err := h.Paths()
	if err != nil {
		return
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		mark, style := "  ", ui.Plain
		if s.Link == r.Limit {
			mark, style = d.l.Fit(d.l.Arrow(), 2), ui.Strong
		}
		text := d.l.Expected(s.BytesPerSec, s.Basis)
		if s.Degraded {
			text, style = text+"!", ui.Bad
		}
		rate, basis := d.l.Paint(d.l.Fit(text, 12), style), d.l.Paint(d.l.Fit(string(s.Basis), 9), ui.Faint)
		d.add(mark + rate + " " + basis + d.l.Safe(explain.LinkText(paths, s.Link)))
	}
}

// Netdevs are the interfaces of a port, or of an RDMA device.
func (h *Host) Netdevs(id topo.ID) []topo.ID {
	var names []string
	switch n := h.Node(id).(type) {
	case *topo.Port:
		names = n.Netdevs
		if r := h.index.RDMADevice(n.RDMA); r != nil && len(names) == 0 && len(h.index.Ports(n.RDMA)) == 1 {
			names = r.Netdevs
		}
	case *topo.RDMADevice:
		names = n.Netdevs
	}
	var out []topo.ID
	for _, name := range names {
		if id := topo.NetdevID(name); h.Node(id) != nil {
			out = append(out, id)
		}
	}
	return out
}

// Exact gives exactly h lines of at most w columns: those beyond are left out, those that
// are missing are empty.
func Exact(l *ui.Look, lines []string, w, h int) []string {
	out := make([]string, max(0, h))
	for i := range out {
		if i < len(lines) {
			out[i] = l.Cut(lines[i], w)
		}
	}
	return out
}

// document is a text that a command prints, in lines with the dashboard's glyphs and styles.
func document(l *ui.Look, text string) []string {
	text = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\x1b[0m", "\x1b[m")
	if l.ASCII {
		text = strings.ReplaceAll(text, "─", "-") // of a route
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if l.Color {
			lines[i] = ui.Clean(line)
		} else {
			lines[i] = l.Safe(line)
		}
	}
	return lines
}
