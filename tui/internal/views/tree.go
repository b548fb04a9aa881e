package views

import (
	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// TreeView is the dashboard's first view: the host as a tree, with what its links and ports do
// right now. It also stands beside other views, in a narrow pane. Use NewTree.
//
// Each column has one meaning and one kind of unit: link, "could be" and rate are those of the
// PCIe link; state, line, load, sent and received those of the network port; busy and the last
// two rates those of the GPU. Where there is no room columns go, in this order: details, what
// GPUs receive and send over PCIe, address, what the link could be, sparkline, rate, received,
// sent, line, busy, link, state, load. What is wrong stands before the name and never goes.
type TreeView struct {
	cache  Cache
	tree   *tree
	folded map[string]bool // by key of a node
	list   ui.List
	shared topo.ID // Shared.Node as it was seen last
	first  int     // the line of Main on which the list began

	decoded    any // the node that the detail was of last,
	attributes []attribute
}

// NewTree is the view before anything is known.
func NewTree() ui.View { return &TreeView{folded: map[string]bool{}} }

// Name is the view's.
func (*TreeView) Name() string { return "Tree" }

// Hints are what the footer shows.
func (*TreeView) Hints() []ui.Action {
	return []ui.Action{ui.Enter, ui.Explain, ui.FilterKey}
}

// sync brings the view up to the state: the tree of the topology, and the cursor to where
// another view has put it. It gives the nodes that are shown and the place of the cursor
// among them, -1 where there are none.
func (v *TreeView) sync(env *ui.Env) (rows []int, at int) {
	h := v.cache.Of(env.State)
	if h == nil {
		v.tree = nil
		return nil, -1
	}
	if v.tree == nil || !v.tree.suits(h, env.Look) {
		v.tree = newTree(h, env.Look)
	}
	v.tree.h = h
	if id := env.Shared.Node; id != v.shared {
		v.shared = id
		if i, ok := v.tree.place[id]; ok && id != "" {
			v.reveal(i)
		}
	}
	rows = v.visible(env)
	return rows, v.list.Cursor(v.lines(rows, nil))
}

// lines are the rows as a list has them.
func (v *TreeView) lines(rows []int, text func(row, w int) string) []ui.Line {
	out := make([]ui.Line, len(rows))
	for i, r := range rows {
		out[i].Key = v.tree.nodes[r].key
		if text != nil {
			out[i].Text = func(w int) string { return text(i, w) }
		}
	}
	return out
}

// reveal puts the cursor on a node and unfolds what hides it.
func (v *TreeView) reveal(i int) {
	v.list.Go(v.tree.nodes[i].key)
	for p := v.tree.nodes[i].parent; p >= 0; p = v.tree.nodes[p].parent {
		delete(v.folded, v.tree.nodes[p].key)
	}
}

// tell says to the other views where the cursor is.
func (v *TreeView) tell(env *ui.Env) {
	if rows, at := v.sync(env); at >= 0 {
		v.shared = v.tree.nodes[rows[at]].id()
		env.Shared.Node = v.shared
	}
}

// Key carries out an action.
func (v *TreeView) Key(a ui.Action, env *ui.Env) ui.Request {
	rows, at := v.sync(env)
	if at < 0 {
		return ui.Request{}
	}
	if !v.list.Move(a, v.lines(rows, nil)) {
		switch a {
		case ui.Left, ui.Right, ui.Enter:
			v.turn(a, rows, at)
		case ui.Explain:
		default:
			return ui.Request{}
		}
	}
	v.tell(env)
	if a == ui.Explain {
		env.Shared.From, env.Shared.To = env.Shared.Node, ""
	}
	return ui.Request{}
}

// turn folds and unfolds, and steps to the parent or the first child where there is nothing
// to fold.
func (v *TreeView) turn(a ui.Action, rows []int, at int) {
	n := &v.tree.nodes[rows[at]]
	folded := v.folded[n.key]
	switch {
	case a == ui.Enter && n.children && folded, a == ui.Right && folded:
		delete(v.folded, n.key)
	case a == ui.Enter && n.children, a == ui.Left && n.children && !folded:
		v.folded[n.key] = true
	case a == ui.Left && n.parent >= 0:
		v.list.Go(v.tree.nodes[n.parent].key)
	case a == ui.Right && n.children && at+1 < len(rows):
		v.list.Go(v.tree.nodes[rows[at+1]].key)
	}
}

// Click selects a line; the line under the cursor folds.
func (v *TreeView) Click(_, y int, env *ui.Env) ui.Request {
	switch again, ok := v.list.Click(y - v.first); {
	case !ok:
	case again:
		return v.Key(ui.Enter, env)
	default:
		v.tell(env)
	}
	return ui.Request{}
}

// visible are the nodes that are shown: those that no folded one hides, or with a filter
// those that match, with their ancestors.
func (v *TreeView) visible(env *ui.Env) []int {
	t := v.tree
	if env.Filter != "" {
		return t.matching(env.Filter)
	}
	var out []int
	for i := 0; i < len(t.nodes); {
		out = append(out, i)
		if v.folded[t.nodes[i].key] {
			i = t.nodes[i].end
		} else {
			i++
		}
	}
	return out
}
