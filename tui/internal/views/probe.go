package views

import (
	"slices"
	"time"

	"github.com/topoctl/topoctl/internal/measure/show"
	"github.com/topoctl/topoctl/probe"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// ProbeView is the dashboard's fourth view: which pairs can be measured, a probe while it runs,
// and what came of it. It sends nothing: it asks the program to (ui.Request). Use NewProbe.
//
// The program answers Request.List with SetPairs, and says by SetUnable why nothing can be
// measured. A report from a file (SetReport) is shown until a probe is there. ui.Measure gives a
// Request.Measure of the marked pairs, or of all if none is marked, and a Request.Stop while a
// probe runs.
type ProbeView struct {
	page       page
	order      order
	wide       bool
	marked     map[string]bool // by pair ID
	folded     map[string]bool // groups of pairs, by title
	list       [pages]ui.List
	shownProbe shownProbe // the probe that was shown last
	top        int        // lines before the rows in what Main drew last
	tabs       [2]int     // where the words of its first line end
	unable     string     // why nothing can be measured
	asking     bool
	measures   bool  // all pairs, when they are known
	askedNS    int64 // State.Now

	pairs  []probe.Pair
	byID   map[string]*probe.Pair // of pairs
	listed bool
	failed error
	loaded *probe.Report
	source string // of loaded
}

// page is one of the two lists.
type page int

const (
	choosingPage page = iota
	resultsPage
	pages
)

// shownProbe tells one probe from another.
type shownProbe struct {
	at     time.Time
	began  int64
	loaded bool
}

// order is that of results.
type order int

const (
	byVerdict order = iota // the worst first
	byName
	byEfficiency // the smallest first
	orders
)

func (o order) String() string {
	return [...]string{byVerdict: "verdict", byName: "name", byEfficiency: "efficiency"}[o]
}

// NewProbe is the view before anything is known.
func NewProbe() *ProbeView {
	return &ProbeView{marked: map[string]bool{}, folded: map[string]bool{}}
}

// SetPairs takes the answer to Request.List: what can be measured, and what went wrong.
// Both may be there: an agent that does not answer costs its own pairs only. If the user asked
// to measure before the pairs were known, that is the request.
func (v *ProbeView) SetPairs(pairs []probe.Pair, err error) ui.Request {
	measures := v.measures
	v.asking, v.measures, v.failed = false, false, err
	if err != nil && len(pairs) == 0 {
		return ui.Request{} // what was known before still is
	}
	v.pairs, v.byID, v.listed = pairs, make(map[string]*probe.Pair, len(pairs)), true
	for i := range pairs {
		v.byID[pairs[i].ID] = &pairs[i]
	}
	for id := range v.marked {
		if p := v.byID[id]; p == nil || p.Waived != "" {
			delete(v.marked, id)
		}
	}
	var all []string
	for i := range pairs {
		if pairs[i].Waived == "" {
			all = append(all, pairs[i].ID)
		}
	}
	if !measures || len(all) == 0 {
		return ui.Request{}
	}
	return ui.Request{Measure: &ui.MeasureRequest{Pairs: all}}
}

// SetUnable says why nothing can be measured here; "" it can.
func (v *ProbeView) SetUnable(why string) { v.unable = why }

// SetReport gives the report to show where no probe was seen, nil none, and the file that
// it is from.
func (v *ProbeView) SetReport(r *probe.Report, source string) { v.loaded, v.source = r, source }

// Marked are the pairs that are marked, by ID, in the order of SetPairs.
func (v *ProbeView) Marked() []string {
	var out []string
	for i := range v.pairs {
		if v.marked[v.pairs[i].ID] {
			out = append(out, v.pairs[i].ID)
		}
	}
	return out
}

// Name is the view's.
func (*ProbeView) Name() string { return "Probe" }

// Hints are the actions for the footer.
func (*ProbeView) Hints() []ui.Action {
	return []ui.Action{ui.Enter, ui.Mark, ui.MarkAll, ui.Measure, ui.Left, ui.Right, ui.Sort, ui.Wide}
}

// Key carries out an action.
func (v *ProbeView) Key(a ui.Action, env *ui.Env) ui.Request {
	v.follow(env)
	rows := v.rows(env)
	switch a {
	case ui.Left:
		v.page = choosingPage
	case ui.Right:
		v.page = resultsPage
	case ui.Enter:
		return v.enter(v.current(rows), env)
	case ui.Mark:
		v.mark(v.current(rows), rows)
	case ui.MarkAll:
		v.markAll(rows)
	case ui.Sort:
		v.order = (v.order + 1) % orders
	case ui.Wide:
		v.wide = !v.wide
	case ui.Measure:
		return v.measure(env)
	default:
		v.list[v.page].Move(a, probeLines(rows))
	}
	return ui.Request{}
}

// enter asks which pairs there are where that is not known, else folds or marks.
func (v *ProbeView) enter(r *row, env *ui.Env) ui.Request {
	switch {
	case v.page != choosingPage:
		return ui.Request{}
	case v.unable != "" || v.asking:
		return ui.Request{}
	case !v.listed || v.failed != nil:
		return v.ask(env)
	case r == nil:
	case r.pair == nil:
		v.folded[r.group] = !v.folded[r.group]
	default:
		v.toggle(r.pair)
	}
	return ui.Request{}
}

// ask requests the list of what can be measured.
func (v *ProbeView) ask(env *ui.Env) ui.Request {
	v.asking, v.askedNS = true, env.State.Now
	return ui.Request{List: true}
}

func (v *ProbeView) toggle(p *probe.Pair) {
	if p.Waived != "" {
		return
	}
	if v.marked[p.ID] = !v.marked[p.ID]; !v.marked[p.ID] {
		delete(v.marked, p.ID)
	}
}

// mark marks the pair under the cursor, or all of the group whose head is there.
func (v *ProbeView) mark(r *row, rows []row) {
	switch {
	case r == nil:
	case r.pair != nil:
		v.toggle(r.pair)
		v.list[v.page].Move(ui.Down, probeLines(rows))
	case r.group != "" && v.page == choosingPage:
		v.markAllOf(r.members)
	case r.result != nil:
		if p := v.byID[r.result.ID]; p != nil {
			v.toggle(p)
			v.list[v.page].Move(ui.Down, probeLines(rows))
		}
	}
}

// markAll marks what the filter leaves, or takes all those marks away where none is missing.
func (v *ProbeView) markAll(rows []row) {
	var all []*probe.Pair
	for i := range rows {
		if rows[i].group != "" && rows[i].pair == nil {
			all = append(all, rows[i].members...)
		}
		if x := rows[i].result; x != nil {
			if p := v.byID[x.ID]; p != nil {
				all = append(all, p)
			}
		}
	}
	v.markAllOf(all)
}

func (v *ProbeView) markAllOf(list []*probe.Pair) {
	missing := slices.ContainsFunc(list, func(p *probe.Pair) bool { return p.Waived == "" && !v.marked[p.ID] })
	for _, p := range list {
		switch {
		case p.Waived != "":
		case missing:
			v.marked[p.ID] = true
		default:
			delete(v.marked, p.ID)
		}
	}
}

// measure requests a probe of the marked pairs, of all that the filter keeps if none is marked, or
// that the running one stops.
func (v *ProbeView) measure(env *ui.Env) ui.Request {
	switch pairs := v.chosen(env); {
	case running(env):
		return ui.Request{Stop: true}
	case v.asking:
		env.Shared.Message = "the list of pairs is still being fetched"
	case v.unable != "":
		env.Shared.Message = "nothing can be measured here: " + env.Look.Safe(v.unable)
	case !v.listed:
		v.measures = true
		return v.ask(env)
	case len(pairs) == 0:
		env.Shared.Message = "there is no pair to measure"
	default:
		return ui.Request{Measure: &ui.MeasureRequest{Pairs: pairs}}
	}
	return ui.Request{}
}

// chosen are the pairs to measure: the marked ones, or all that the filter keeps.
func (v *ProbeView) chosen(env *ui.Env) []string {
	if marked := v.Marked(); len(marked) > 0 {
		return marked
	}
	var out []string
	for i := range v.pairs {
		if p := &v.pairs[i]; p.Waived == "" && v.keeps(env, p) {
			out = append(out, p.ID)
		}
	}
	return out
}

// Click moves the cursor to a line; where it is already it is Enter. The words of the
// first line are the pages.
func (v *ProbeView) Click(x, y int, env *ui.Env) ui.Request {
	if y == 0 {
		switch {
		case x < v.tabs[0]:
			v.page = choosingPage
		case x < v.tabs[1]:
			v.page = resultsPage
		}
		return ui.Request{}
	}
	again, ok := v.list[v.page].Click(y - v.top)
	if !ok || !again {
		return ui.Request{}
	}
	return v.enter(v.current(v.rows(env)), env)
}

// Selection is the result, the pair or the fault under the cursor.
func (v *ProbeView) Selection(env *ui.Env) any {
	switch r := v.current(v.rows(env)); {
	case r == nil:
		return nil
	case r.blame != nil:
		return r.blame
	case r.result != nil:
		return r.result
	case r.pair != nil:
		return r.pair
	}
	return nil
}

// follow goes to the results when another report than the last one is there.
func (v *ProbeView) follow(env *ui.Env) {
	r, p := v.report(env), env.State.Probe
	if r == nil {
		return
	}
	now := shownProbe{at: r.StartedAt, loaded: p == nil}
	if p != nil {
		now.began = p.BeganNS
	}
	if v.shownProbe != now {
		v.shownProbe, v.page, v.list[resultsPage] = now, resultsPage, ui.List{}
	}
}

// report is what is shown: of the probe that runs or ran, else the one that was loaded.
func (v *ProbeView) report(env *ui.Env) *probe.Report {
	if p := env.State.Probe; p != nil && p.Report != nil {
		return p.Report
	}
	return v.loaded
}

func running(env *ui.Env) bool { return env.State.Probe != nil && env.State.Probe.Running }

func options(env *ui.Env) show.Options {
	return show.Options{Units: env.Look.Units, ASCII: env.Look.ASCII}
}
