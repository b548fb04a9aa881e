package show

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// The cells of the map. Each has a sign, for colour is not all that tells them apart.
var (
	fine    = report.Cell{Step: 1}
	note    = report.Cell{Step: report.Another, Text: "·"}
	warn    = report.Cell{Step: 3, Text: "~"}
	bad     = report.Cell{Step: 6, Text: "!"}
	unknown = report.Cell{Step: report.NotKnown, Text: "?"}
)

// plan is the map of a class: hosts are rows, places are columns.
type plan struct {
	report.Grid
	places []string
	cells  [][]*report.Cell
}

func newPlan(title string, places, names []string) *plan {
	p := &plan{Grid: report.Grid{Title: title, OneText: true}, places: places}
	for _, n := range names {
		p.Cols = append(p.Cols, report.Place{Name: text.Cut(n, 10, text.Ellipsis)})
	}
	p.Cell = func(row, col int) *report.Cell { return p.cells[row][col] }
	return p
}

func (p *plan) add(host string, cells []*report.Cell) {
	p.Rows, p.cells = append(p.Rows, report.Place{Name: host}), append(p.cells, cells)
}

// withTip is a look with what a pointer brings up.
func withTip(look report.Cell, tip string) *report.Cell {
	look.Tip = func() []string { return []string{tip} }
	return &look
}

// SVG is the map of a fleet: a row for each host, a column for each GPU and port, coloured by the
// worst that is found there.
func SVG(f *fleet.Fleet) []byte { return heatMap(f, false) }

func heatMap(f *fleet.Fleet, bare bool) []byte {
	plans, left := plansOf(f)
	m := &report.HeatMap{Title: "Fleet", About: "A row for each host, a column for each GPU and port.", Bare: bare,
		Legend: []report.Swatch{{Cell: fine, About: "like the others"}, {Cell: note, About: "another role: storage, management"},
			{Cell: warn, About: "a warning"}, {Cell: bad, About: "an error"}, {Cell: unknown, About: "not known"}}}
	for _, line := range text.Wrap(f.Headline(), 130) {
		m.Lines = append(m.Lines, report.HeadLine{Text: line})
	}
	for _, p := range plans {
		m.Grids = append(m.Grids, &p.Grid)
	}
	if left > 0 {
		m.Notes = []string{text.Plural(left, "host") + " " + text.Noun(left, "is", "are") + " not drawn."}
	}
	return m.SVG()
}

// hit is the worst finding at a place of a host, and all that is said of it.
type hit struct {
	severity doctor.Severity
	texts    []string
}

// hits are the findings by "host/device", those of a host as a whole by its name alone.
func hits(f *fleet.Fleet) map[string]*hit {
	out := map[string]*hit{}
	for i := range f.Findings { // the worst first
		x := &f.Findings[i]
		if x.Severity == doctor.Info {
			continue
		}
		keys := x.Subjects
		if len(keys) == 0 {
			keys = x.Hosts
		}
		for _, key := range keys {
			if out[key] == nil {
				out[key] = &hit{severity: x.Severity}
			}
			if h := out[key]; !slices.Contains(h.texts, x.Text) {
				h.texts = append(h.texts, x.Text)
			}
		}
	}
	return out
}

// hostPlace is the column of the host as a whole.
const hostPlace = "host"

// plansOf makes a map of each class, and one of the hosts without. left is how many hosts have no room.
func plansOf(f *fleet.Fleet) (plans []*plan, left int) {
	at := hits(f)
	by := map[string]*plan{}
	for i := range f.Classes {
		c := &f.Classes[i]
		places, names := columns(f, c.Class)
		by[c.Class] = newPlan(fmt.Sprintf("%s  %s", c.Class, strings.TrimSpace(c.Model)), places, names)
		plans = append(plans, by[c.Class])
	}
	rest := newPlan("not known", []string{hostPlace}, []string{hostPlace})
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if i >= report.MostRows {
			left++
		} else if p := by[h.Class]; p != nil {
			p.add(h.Host, p.row(h, at))
		} else {
			rest.add(h.Host, []*report.Cell{withTip(unknown, fmt.Sprintf("%s: %s %s", h.Host, h.Status, h.Reason))})
		}
	}
	return slices.DeleteFunc(append(plans, rest), func(p *plan) bool { return len(p.cells) == 0 }), left
}

// columns are the places that hosts of a class have, and what most hosts call them.
func columns(f *fleet.Fleet, class string) (places, names []string) {
	name := map[string]string{}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if h.Class != class {
			continue
		}
		for j := range h.GPUs {
			name[h.GPUs[j].GPU] = h.GPUs[j].GPU
		}
		for j := range h.Ports {
			if q := &h.Ports[j]; q.Place != "" && name[q.Place] == "" {
				name[q.Place] = q.ShortName()
			}
		}
	}
	places, names = []string{hostPlace}, []string{hostPlace}
	for _, place := range slices.SortedFunc(maps.Keys(name), topo.NaturalCompare) {
		places, names = append(places, place), append(names, name[place])
	}
	return places, names
}

// row is one host.
func (p *plan) row(h *fleet.Host, at map[string]*hit) []*report.Cell {
	out := make([]*report.Cell, len(p.places))
	ports := map[string]*fleet.Port{}
	for i := range h.Ports {
		ports[h.Ports[i].Place] = &h.Ports[i]
	}
	for i, place := range p.places {
		key, look, tip := h.Host+"/"+place, fine, h.Host+" "+place
		switch q := ports[place]; {
		case place == hostPlace:
			key, tip = h.Host, h.Host
			if h.Status == fleet.Partial {
				look, tip = unknown, h.Host+": "+h.Reason
			}
		case q != nil:
			key, tip = h.Host+"/"+q.ShortName(), fmt.Sprintf("%s %s: %s %s", h.Host, q.Port, q.Role, q.State)
			if q.Leaf != "" {
				tip += ", leaf " + q.Leaf
			}
			if q.Role != pathsel.RoleData {
				look = note
			}
		case strings.HasPrefix(place, "nic:"): // this host has none
			continue
		}
		if x := at[key]; x != nil {
			look = warn
			if x.severity == doctor.Error {
				look = bad
			}
			tip += ": " + strings.Join(x.texts, "; ")
		}
		out[i] = withTip(look, tip)
	}
	return out
}
