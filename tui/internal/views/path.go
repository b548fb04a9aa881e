package views

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/explain/show"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// PathView is the dashboard's third view: the text of "topoctl path" for one pair of devices, or
// for one memory location, as the other views have chosen them. Use NewPath.
type PathView struct {
	rowsView
	hosts  *Cache
	h      *Host
	asked  question
	answer *explain.Answer
	note   string // why it is another question than was asked
	failed string // why there is no answer
	wide   bool   // with all reasons
}

// question is what is to be explained: a pair, or one end alone.
type question struct{ from, to topo.ID }

// NewPath is the view before anything is known.
func NewPath(hosts *Cache) ui.View {
	v := &PathView{hosts: hosts}
	v.rowsView = rowsView{of: v, name: "Path", width: 80, hints: []ui.Action{ui.Wide, ui.Enter, ui.FilterKey}}
	return v
}

// sync answers the question that the other views have put, and reports whether it could.
func (v *PathView) sync(env *ui.Env) bool {
	h := v.hosts.Of(env.State)
	if h == nil {
		v.h, v.answer, v.failed = nil, nil, "no topology yet"
		return false
	}
	q := question{env.Shared.From, env.Shared.To}
	if q.from == "" {
		q = question{from: env.Shared.Node}
	}
	if v.h == h && v.asked == q {
		return v.answer != nil
	}
	if v.asked != q {
		v.lists[0] = ui.List{}
	}
	v.h, v.asked = h, q
	v.answer, v.note, v.failed = nil, "", ""
	if err := v.explain(q); err != nil {
		v.answer, v.failed = nil, err.Error()
		return false
	}
	return true
}

// explain answers a question, or the next best one.
func (v *PathView) explain(q question) error {
	paths, err := v.h.Paths()
	if err != nil {
		return err
	}
	locations := paths.Locations()
	if len(locations) == 0 {
		return errors.New("the host has no GPU and no NUMA node with CPUs: nothing uses its ports")
	}
	asked := q
	if v.h.Node(q.from) == nil {
		q = question{}
	}
	if p, ok := v.h.Node(q.from).(*topo.Package); ok && len(p.NUMA) > 0 {
		q.from = topo.NUMAID(p.NUMA[0])
	}
	switch {
	case q.from == "":
		q.from = locations[0].Node()
		if asked.from != "" {
			v.note = fmt.Sprintf("%s is not on this host: this is the path from %s", explain.ShortName(asked.from), locations[0])
		}
	case q.to != "" && v.h.Node(q.to) != nil:
		v.answer, err = explain.Between(paths, q.from, q.to)
		return err
	}
	if q.to != "" {
		v.note = fmt.Sprintf("%s is not on this host: these are the ports for %s", explain.ShortName(q.to), explain.ShortName(q.from))
	}
	below := ""
	if d := v.h.Device(q.from); d != q.from {
		if len(paths.Index().Children(q.from)) > 0 {
			below = " below " + explain.NodeText(paths, q.from)
		}
		q.from = d
	}
	if l := pathsel.LocationOf(q.from); slices.Contains(locations, l) {
		if below != "" {
			v.note = fmt.Sprintf("these are the ports for %s, the first GPU%s", l, below)
		}
		v.answer, err = explain.Memory(paths, l)
		return err
	}
	// No memory: the way to it from the first that prefers it.
	name := explain.ShortName(q.from)
	if below != "" {
		name += ", the first NIC" + below + ","
	}
	near := v.h.Preferring(append(v.h.Ports(q.from), q.from)...)
	if len(near) > 0 {
		v.note = fmt.Sprintf("%s is not memory: this is the path from %s, which prefers it", name, near[0])
	} else {
		near = locations
		v.note = fmt.Sprintf("%s is not memory, and none prefers it: this is the path from %s", name, near[0])
	}
	v.answer, err = explain.Between(paths, near[0].Node(), q.from)
	return err
}

func (v *PathView) act(a ui.Action, _ *ui.Env, _ *row) (ui.Request, bool) {
	if a == ui.Wide {
		v.wide = !v.wide
	}
	return ui.Request{}, a == ui.Wide
}

func (v *PathView) above(env *ui.Env, w int) []string {
	if !v.sync(env) || v.note == "" {
		return nil
	}
	l := env.Look
	out := ui.Wrap(" "+l.Safe(v.note), w, 1)
	for i := range out {
		out[i] = l.Paint(out[i], ui.Middle)
	}
	return out
}

// rows are the lines of the text, each about the port that it names first.
func (v *PathView) rows(env *ui.Env, w int) []row {
	l := env.Look
	var out []row
	if !v.sync(env) {
		for _, line := range ui.Wrap(l.Safe(v.failed), w, 0) {
			out = append(out, textRow(line))
		}
		return out
	}
	about := v.answer.Chosen
	for i, line := range document(l, show.Text(v.h.paths, v.answer, &report.Look{Width: w, Color: l.Color, Verbose: v.wide, Units: l.Units.Or(units.Gbyte)})) {
		if c := v.named(line); c != nil {
			about = c
		}
		r := row{text: func(int) string { return line }, value: v.answer, device: v.answer.From, detail: v.route}
		if line != "" {
			r.key = fmt.Sprint("line ", i)
		}
		if c := about; c != nil {
			r.device, r.detail = c.Port, func(d *detail) { v.port(d, c) }
		}
		if env.Filter.Match(line) {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		out = append(out, textRow("nothing matches "+l.Safe(string(env.Filter))))
	}
	return out
}

// named is the candidate that a line names first, nil none.
func (v *PathView) named(line string) *pathsel.Candidate {
	words := strings.FieldsFunc(line, func(r rune) bool {
		return r != '_' && r != '/' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	for _, word := range words {
		for _, list := range [][]pathsel.Candidate{v.answer.Ranked, v.answer.Rejected} {
			if i := slices.IndexFunc(list, func(c pathsel.Candidate) bool { return c.Name == word }); i >= 0 {
				return &list[i]
			}
		}
	}
	return nil
}

// route is the way between two devices, link by link.
func (v *PathView) route(d *detail) {
	if r := v.answer.Route; r != nil {
		d.title(explain.ShortName(r.From)+" "+d.l.Arrow()+" "+explain.ShortName(r.To), ui.Plain)
		d.links(v.h, r)
	}
}

// port is what is known of a port, and what it carries now.
func (v *PathView) port(d *detail, c *pathsel.Candidate) {
	style := ui.Plain
	switch c.Verdict {
	case pathsel.Preferred:
		style = ui.Good
	case pathsel.Rejected:
		style = ui.Faint
	}
	d.title(c.Name+"  "+string(c.Verdict), style)
	for _, r := range append([]pathsel.Reason{c.Reason}, c.Notes...) {
		d.say("  ", r.Text, ui.Plain)
		if r.Evidence != "" {
			d.say("  ", r.Evidence, ui.Faint)
		}
	}
	d.field("role", string(c.Role))
	if line, ok := v.h.Line(d.env.State, c.Port); ok && line.Traffic != nil {
		d.traffic(&line)
	}
	if p, r := v.h.Audit(d.env.State, c.Port); p != nil && p.CarriedShare != nil {
		d.section("share in the last " + time.Duration(r.WindowNS).Round(time.Second).String() + ", as topoctl audit")
		d.say("  ", string(p.Verdict)+": "+audit.Percent(*p.CarriedShare)+" of all, planned "+audit.Percent(*p.PlannedShare), ui.Plain)
		for _, why := range p.Reasons {
			d.say("    ", why, ui.Faint)
		}
	}
}
