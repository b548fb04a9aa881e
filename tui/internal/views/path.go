package views

import (
	"errors"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/pathsel"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// PathView is the dashboard's third view: one pair of devices, or the ports for one memory
// location, explained: the route link by link, the candidates in their order, and why the others
// are not taken. Use NewPath.
//
// Columns of candidates go when there is no room, the less wanted first: links, received,
// verdict, sent, expected, class, the reason. The reason takes what is left.
type PathView struct {
	cache  Cache
	h      *Host
	asked  question
	answer *explain.Answer
	note   string // why it is another question than was asked
	failed string // why there is no answer

	list  ui.List
	first int // the line of Main on which the list began
}

// question is what is to be explained: a pair, or one end alone.
type question struct{ from, to topo.ID }

// NewPath is the view before anything is known.
func NewPath() ui.View { return &PathView{} }

// Name is the view's.
func (*PathView) Name() string { return "Path" }

// Hints are what the footer shows.
func (*PathView) Hints() []ui.Action { return []ui.Action{ui.Enter, ui.FilterKey} }

// sync answers the question that the other views have put; false where there is none that
// can be answered.
func (v *PathView) sync(env *ui.Env) bool {
	h := v.cache.Of(env.State)
	if h == nil {
		v.h, v.answer = nil, nil
		return false
	}
	q := question{env.Shared.From, env.Shared.To}
	if q.from == "" {
		q = question{from: env.Shared.Node}
	}
	if v.h == h && v.asked == q {
		return v.answer != nil
	}
	other := v.asked != q || v.h == nil
	v.h, v.asked = h, q
	v.answer, v.note, v.failed = nil, "", ""
	if err := v.explain(q); err != nil {
		v.answer, v.failed = nil, err.Error()
		return false
	}
	if other {
		v.start()
	}
	return true
}

// start puts the cursor on the port of the pair, or on the best.
func (v *PathView) start() {
	v.list = ui.List{}
	a := v.answer
	for _, list := range [][]pathsel.Candidate{a.Ranked, a.Rejected} {
		for i := range list {
			if c := &list[i]; c.NIC == a.To || c.Port == a.To || c.NIC == a.From || c.Port == a.From {
				v.list.Go(string(c.Port))
				return
			}
		}
	}
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

// candidates are the ports that the filter keeps: the ranked ones, then the rejected.
func (v *PathView) candidates(env *ui.Env) []*pathsel.Candidate {
	var out []*pathsel.Candidate
	for _, list := range [][]pathsel.Candidate{v.answer.Ranked, v.answer.Rejected} {
		for i := range list {
			c := &list[i]
			if env.Filter.Match(c.Name + " " + string(c.Verdict) + " " + c.Class.String() + " " + c.Reason.Text) {
				out = append(out, c)
			}
		}
	}
	return out
}

// lines are candidates as a list has them.
func lines(candidates []*pathsel.Candidate, text func(c *pathsel.Candidate, w int) string) []ui.Line {
	out := make([]ui.Line, len(candidates))
	for i, c := range candidates {
		out[i].Key = string(c.Port)
		if text != nil {
			out[i].Text = func(w int) string { return text(c, w) }
		}
	}
	return out
}

// under is the candidate under the cursor, nil where there is none.
func (v *PathView) under(env *ui.Env) *pathsel.Candidate {
	list := v.candidates(env)
	if at := v.list.Cursor(lines(list, nil)); at >= 0 {
		return list[at]
	}
	return nil
}

// Key carries out an action.
func (v *PathView) Key(a ui.Action, env *ui.Env) ui.Request {
	if !v.sync(env) || v.list.Move(a, lines(v.candidates(env), nil)) || a != ui.Enter {
		return ui.Request{}
	}
	env.Shared.Node = v.answer.From
	if c := v.under(env); c != nil {
		env.Shared.Node = c.Port
	}
	return ui.Request{Show: ui.Tree}
}

// Click selects a candidate; the one under the cursor is shown in the tree.
func (v *PathView) Click(_, y int, env *ui.Env) ui.Request {
	if again, ok := v.list.Click(y - v.first); ok && again {
		return v.Key(ui.Enter, env)
	}
	return ui.Request{}
}

// Selection is the whole answer.
func (v *PathView) Selection(env *ui.Env) any {
	if !v.sync(env) {
		return nil
	}
	return v.answer
}
