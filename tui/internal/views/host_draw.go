package views

import (
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

// Sent and Received are what goes by the line now, nil where it is not known.
func (l *Line) Sent() *topo.Rate {
	if l.Traffic == nil {
		return nil
	}
	return l.Traffic.SentBytesPerSec
}

// Received is what comes in by the line now.
func (l *Line) Received() *topo.Rate {
	if l.Traffic == nil {
		return nil
	}
	return l.Traffic.ReceivedBytesPerSec
}

// Busier is the larger of what goes and what comes, nil where neither is known.
func (l *Line) Busier() *topo.Rate {
	if l.Traffic == nil {
		return nil
	}
	return l.Traffic.Busy()
}

// Links draws a route link by link, the limiting one marked.
func (h *Host) Links(l *ui.Look, r *explain.Route) []string {
	paths, err := h.Paths()
	if err != nil {
		return nil
	}
	var out []string
	for i := range r.Steps {
		s := &r.Steps[i]
		mark, style := "  ", ui.Plain
		if s.Link == r.Limit {
			mark, style = l.Fit(l.Arrow(), 2), ui.Strong
		}
		text := l.Expected(s.BytesPerSec, s.Basis)
		if s.Degraded {
			text, style = text+"!", ui.Bad
		}
		out = append(out, mark+l.Paint(l.Fit(text, 12), style)+" "+l.Paint(l.Fit(string(s.Basis), 9), ui.Faint)+l.Safe(explain.LinkText(paths, s.Link)))
	}
	return out
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

// Scroll is the first of n lines to show, so that the cursor is among the h that fit and
// no line is left empty without need.
func Scroll(top, cursor, n, h int) int {
	if h <= 0 {
		return 0
	}
	top = min(top, cursor)
	top = max(top, cursor-h+1)
	return max(0, min(top, n-h))
}
