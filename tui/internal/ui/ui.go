// Package ui is what the dashboard's views have in common: how the program calls them, which key
// does what (the footer, the help and the documentation read it), and lists: a cursor that stays
// on its line while lines come and go, scrolling, columns, and text in a pane of any width.
package ui

import (
	"strings"

	"github.com/topoctl/topoctl/discover/topo"

	"github.com/topoctl/topoctl/tui/internal/state"
)

// Size is that of a pane, in columns and lines.
type Size struct{ W, H int }

// Env is what views draw from and act on.
type Env struct {
	State  *state.State
	Look   *Look
	Shared *Shared
	Filter Filter
}

// Shared is what one view says to the others.
type Shared struct {
	Node     topo.ID // under the cursor in the tree, and where the path view starts
	From, To topo.ID // the pair under the cursor in the matrix, and what the path view explains; To may be ""
	// Message is a line that the footer shows until the next key.
	Message string
}

// Request is what a view asks the program to do; the zero value is nothing.
type Request struct {
	Show    Action          // switch to this view
	Measure *MeasureRequest // ask the user, then probe
	Stop    bool            // stop the probe that runs
	List    bool            // ask the prober which pairs there are
}

// MeasureRequest names pairs to measure, by ID.
type MeasureRequest struct{ Pairs []string }

// View is one of the dashboard's six screens. It keeps where the user is in it; what is
// known is in the state. Main and Detail do not change what other views show.
type View interface {
	Name() string // "Tree"
	// Key carries out an action for which ForView says yes. Explain and Measure come
	// too: Explain sets Shared.From and To to what is under the cursor, and the program
	// shows the path view; Measure says what to measure (Request.Measure), and where it
	// says nothing, or the probe view and in Shared.Message why, the program tells the user
	// how to choose.
	Key(a Action, env *Env) Request
	// Needs is the size from which on Main hides nothing, on a screen with width columns. W is 0
	// where more width is always of use: then the detail never stands beside it.
	Needs(env *Env, width int) Size
	// Main gives exactly size.H lines of at most size.W columns. It keeps the cursor
	// visible: where it scrolls to is the view's own.
	Main(env *Env, size Size) []string
	// Position says which lines Main drew last, "12-38 of 77"; "" where it drew all, or says so
	// itself.
	Position() string
	// Detail describes what is under the cursor, in as many lines as that takes; the program
	// shows a part of them and scrolls.
	Detail(env *Env, width int) []string
	// Click selects what Main drew last at column x and line y; again on the same place
	// is Enter.
	Click(x, y int, env *Env) Request
	// Selection is what is under the cursor, for JSON; nil nothing.
	Selection(env *Env) any
	// Hints are the actions that are worth a place in the footer.
	Hints() []Action
}

// Filter is what the user typed after /: lines that contain it stay, with a leading ! the
// others. Upper and lower case are the same.
type Filter string

// Match says whether a text stays.
func (f Filter) Match(text string) bool {
	want, inverse := strings.CutPrefix(string(f), "!")
	if want == "" {
		return true
	}
	return strings.Contains(strings.ToLower(text), strings.ToLower(want)) != inverse
}
