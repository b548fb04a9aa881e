package ui

// Action is what a key stands for.
type Action string

// The actions. Those from Up to Wide are for views, and so are Measure and Explain; the
// rest the program carries out itself. See ForView.
const (
	Tree    Action = "tree"
	Matrix  Action = "matrix"
	Path    Action = "path"
	Probe   Action = "probe"
	Engine  Action = "engine"
	Events  Action = "events"
	NextKey Action = "next view"
	Prev    Action = "previous view"

	Help      Action = "help"
	Quit      Action = "quit"
	Suspend   Action = "suspend"
	Back      Action = "back" // esc: closes what is open, clears the filter
	FilterKey Action = "filter"
	Freeze    Action = "freeze"
	Units     Action = "units"
	Record    Action = "record"
	Rescan    Action = "rescan"
	Copy      Action = "copy"     // the selection as JSON
	Snapshot  Action = "snapshot" // the frame as a text file
	Explain   Action = "explain"  // the selection in the path view
	Measure   Action = "measure"  // probe the selection; asks first

	Up       Action = "up"
	Down     Action = "down"
	Left     Action = "left"
	Right    Action = "right"
	PageUp   Action = "page up"
	PageDown Action = "page down"
	Home     Action = "home"
	End      Action = "end"
	Enter    Action = "enter" // fold, open, choose
	Mark     Action = "mark"  // x: choose for a probe
	MarkAll  Action = "mark all"
	Sort     Action = "sort"
	Wide     Action = "wide"   // more columns, or the next kind of figure
	Detail   Action = "detail" // the detail pane in place of the view, or the view again

	NextFinding Action = "next finding"
	PrevFinding Action = "previous finding"

	// DetailUp and DetailDown scroll the detail pane.
	DetailUp   Action = "detail up"
	DetailDown Action = "detail down"
)

// Group is a part of the help.
type Group string

// The groups, in the order of the help.
const (
	Views Group = "Views"
	Move  Group = "Move"
	See   Group = "See"
	Do    Group = "Do"
)

// Groups are the groups in the order of the help.
func Groups() []Group { return []Group{Views, Move, See, Do} }

// Binding says which keys stand for an action, as bubbletea names them.
type Binding struct {
	Action Action
	Keys   []string
	Hint   string // a word for the footer
	Help   string // a phrase for the help
	Group  Group
}

// Map is all bindings, in the order of the help.
func Map() []Binding { return bindings }

var bindings = []Binding{
	{Tree, []string{"1"}, "tree", "the host: sockets, switches, GPUs, NICs, and what their links do", Views},
	{Matrix, []string{"2"}, "matrix", "GPUs by NICs: class, expected rate, measured rate, what is missing", Views},
	{Path, []string{"3"}, "path", "one pair explained: its route, the candidates, why others were not taken", Views},
	{Probe, []string{"4"}, "probe", "measure pairs, and see what was measured", Views},
	{Engine, []string{"5"}, "engine", "the lanes of running agents", Views},
	{Events, []string{"6"}, "events", "findings, drift, links that flap, sources that fail", Views},
	{NextKey, []string{"tab"}, "next", "the next view", Views},
	{Prev, []string{"shift+tab"}, "previous", "the view before", Views},

	{Up, []string{"up", "k"}, "up", "up", Move},
	{Down, []string{"down", "j"}, "down", "down", Move},
	{Left, []string{"left", "h"}, "left", "left; in the tree fold, or to the parent", Move},
	{Right, []string{"right", "l"}, "right", "right; in the tree unfold", Move},
	{PageUp, []string{"pgup", "ctrl+b"}, "page up", "a page up", Move},
	{PageDown, []string{"pgdown", "ctrl+f"}, "page down", "a page down", Move},
	{Home, []string{"home", "g"}, "top", "to the beginning", Move},
	{End, []string{"end", "G"}, "end", "to the end", Move},
	{Enter, []string{"enter"}, "open", "fold, open or choose what is under the cursor", Move},
	{NextFinding, []string{"n"}, "next finding", "to the device of the next error or warning of the doctor", Move},
	{PrevFinding, []string{"N"}, "previous finding", "to the device of the one before", Move},
	{DetailUp, []string{"["}, "detail up", "the detail pane up", Move},
	{DetailDown, []string{"]"}, "detail down", "the detail pane down", Move},

	{FilterKey, []string{"/"}, "filter", "show only lines that contain a text, with ! before it only others", See},
	{Freeze, []string{"space"}, "freeze", "freeze the display while data goes on coming in; again to resume", See},
	{Units, []string{"u"}, "units", "units of rates: Gb/s, GB/s, GiB/s, or what is customary", See},
	{Sort, []string{"o"}, "sort", "sort by the next column", See},
	{Wide, []string{"w"}, "wide", "more columns, or the next kind of figure", See},
	{Detail, []string{"v"}, "detail", "the detail alone; again for the view", See},
	{Help, []string{"?"}, "help", "this help", See},

	{Explain, []string{"e"}, "explain", "explain the selection in the path view", Do},
	{Mark, []string{"x"}, "mark", "choose a pair for a probe, or leave it out", Do},
	{MarkAll, []string{"a"}, "all", "choose all pairs that are shown, or none", Do},
	{Measure, []string{"p"}, "measure", "measure the selection; asks first, because that makes traffic", Do},
	{Record, []string{"r"}, "record", "record all that comes in, for --replay; again to stop", Do},
	{Rescan, []string{"R"}, "rescan", "look at the host again, now", Do},
	{Copy, []string{"y"}, "copy", "copy the selection as JSON to the clipboard, and to a file", Do},
	{Snapshot, []string{"s"}, "snapshot", "save this picture as a text file", Do},
	{Back, []string{"esc"}, "back", "close what is open, clear the filter, stop a probe after asking", Do},
	{Suspend, []string{"ctrl+z"}, "suspend", "back to the shell; fg comes back here", Do},
	{Quit, []string{"q", "ctrl+c"}, "quit", "quit", Do},
}

var byKey = func() map[string]Action {
	m := map[string]Action{}
	for _, b := range bindings {
		for _, k := range b.Keys {
			m[k] = b.Action
		}
	}
	return m
}()

// KeyOf is the action of a key, "" none.
func KeyOf(key string) Action { return byKey[key] }

// Get is the binding of an action.
func Get(a Action) Binding {
	for _, b := range bindings {
		if b.Action == a {
			return b
		}
	}
	return Binding{}
}

// ViewActions are the actions that show a view, in the order of their keys.
func ViewActions() []Action { return []Action{Tree, Matrix, Path, Probe, Engine, Events} }

// ForView says whether views carry an action out.
func ForView(a Action) bool {
	b := Get(a)
	switch a {
	case DetailUp, DetailDown, NextFinding, PrevFinding:
		return false // the program's: it owns the detail pane, and a finding concerns several views
	case Mark, MarkAll, Sort, Wide, Measure, Explain:
		return true
	}
	return b.Group == Move
}
