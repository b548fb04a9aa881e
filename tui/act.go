package tui

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// key takes a key, by the name that bubbletea gives it, and the text that it types.
func (m *model) key(name, text string) tea.Cmd {
	m.shared.Message = ""
	a := ui.KeyOf(name)
	switch {
	case name == "ctrl+c", a == ui.Quit && (m.laid.TooSmall || !m.editing && m.dialog == nil):
		return tea.Quit
	case a == ui.Suspend && m.o.Suspend:
		return tea.Suspend
	case a == ui.Suspend: // bubbletea would stop and nothing would continue it
		m.say("no shell to go back to")
		return nil
	case m.laid.TooSmall:
		return nil
	case m.editing:
		m.edit(name, text)
		return nil
	case m.dialog != nil:
		return m.answer(name)
	case m.help:
		return m.helpKey(a)
	}
	return m.act(a)
}

// act carries an action out.
func (m *model) act(a ui.Action) tea.Cmd {
	if i := slices.Index(ui.ViewActions(), a); i >= 0 {
		m.show(i)
		return nil
	}
	if ui.ForView(a) {
		return m.toView(m.current, a)
	}
	n := len(m.views)
	switch a {
	case ui.NextKey:
		m.show((m.current + 1) % n)
	case ui.Prev:
		m.show((m.current + n - 1) % n)
	case ui.Help:
		m.help, m.helpTop = true, 0
	case ui.Back:
		m.back()
	case ui.FilterKey:
		m.editing, m.before = true, m.filter
	case ui.Freeze:
		m.freeze()
	case ui.Units:
		m.look.Units = ui.Next(m.look.Units)
		m.say("rates in " + unitsName(m.look.Units))
	case ui.Detail:
		m.detail = !m.detail
	case ui.NextFinding:
		m.nextFinding(1)
	case ui.PrevFinding:
		m.nextFinding(-1)
	case ui.DetailUp:
		m.detailTop--
	case ui.DetailDown:
		m.detailTop++
	case ui.Record:
		m.toggleRecord()
	case ui.Rescan:
		m.o.Feed.source.Rescan()
		m.say("looking at the host again")
	case ui.Copy:
		return m.copySelection()
	case ui.Snapshot:
		m.snapshot()
	}
	return nil
}

func (m *model) show(view int) { m.current, m.detailTop = view, 0 }

// toView hands an action to a view, and carries out the view's request.
func (m *model) toView(view int, a ui.Action) tea.Cmd {
	m.detailTop = 0
	var r ui.Request
	failed := guarded(func() { r = m.views[view].Key(a, m.env(&m.look)) })
	if failed != "" {
		m.say("this view failed: " + failed)
		return nil
	}
	switch said := m.shared.Message; {
	case r == (ui.Request{}) && a == ui.Explain:
		r.Show = ui.Path
	case a != ui.Measure || r.Measure != nil || r.Stop || r.List:
	case m.o.noProber() != "":
		r = ui.Request{}
		m.say("nothing can be measured: " + m.look.Safe(m.o.noProber()))
	case said == "" || r.Show == ui.Probe:
		r.Show = ui.Probe
		m.say(strings.TrimPrefix(said+": ", ": ") + "choose pairs with " + ui.Get(ui.Mark).Short(true) + ", then " + ui.Get(ui.Measure).Short(true) + " measures them")
	}
	return m.request(r)
}

// request carries out a view's request.
func (m *model) request(r ui.Request) tea.Cmd {
	if i := slices.Index(ui.ViewActions(), r.Show); i >= 0 && i != m.current {
		m.show(i)
	}
	switch {
	case r.List:
		m.list()
	case r.Measure != nil:
		m.measure(r.Measure.Pairs)
	case r.Stop:
		m.askToStop()
	}
	return nil
}

// back closes one thing: what was opened last.
func (m *model) back() {
	switch {
	case m.detail:
		m.detail = false
	case m.filter != "":
		m.filter = ""
	case m.probe != nil:
		m.askToStop()
	}
}

func (m *model) freeze() {
	if m.frozenNS >= 0 {
		m.shown, m.frozenNS = m.live, -1
		return
	}
	m.shown, m.frozenNS = m.live.Clone(), m.now()
}

// maxFilter is how long a filter can be, in characters.
const maxFilter = 80

// edit changes the filter's line.
func (m *model) edit(name, text string) {
	switch name {
	case "enter":
		m.editing = false
	case "esc":
		m.editing, m.filter = false, m.before
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-n]
	case "ctrl+u":
		m.filter = ""
	default:
		for _, c := range text {
			if unicode.IsPrint(c) && utf8.RuneCountInString(m.filter) < maxFilter {
				m.filter += string(c)
			}
		}
	}
	m.filter = strings.TrimLeft(m.filter, " ")
}

// click takes a click on a place of the screen.
func (m *model) click(x, y int) tea.Cmd {
	s := m.laid
	m.shared.Message = ""
	switch {
	case s.TooSmall, m.editing, m.dialog != nil:
		return nil
	case s.Footer.Holds(x, y):
		for _, t := range m.tabs {
			if x >= t.from && x < t.to {
				m.help = false
				return m.act(t.action)
			}
		}
		return nil
	case m.help:
		return nil
	case s.Main.Holds(x, y) && y > s.Main.Y:
		return m.clickView(m.current, x-s.Main.X, y-s.Main.Y-1)
	case s.Side.Holds(x, y) && y > s.Side.Y:
		return m.clickView(0, x-s.Side.X, y-s.Side.Y-1)
	}
	return nil
}

func (m *model) clickView(view, x, y int) tea.Cmd {
	m.detailTop = 0
	var r ui.Request
	if failed := guarded(func() { r = m.views[view].Click(x, y, m.env(&m.look)) }); failed != "" {
		m.say("this view failed: " + failed)
		return nil
	}
	return m.request(r)
}

// wheelLines is how far a notch of the wheel goes.
const wheelLines = 3

// wheel scrolls the pane under the pointer.
func (m *model) wheel(msg tea.MouseWheelMsg) tea.Cmd {
	s := m.laid
	step, a := 1, ui.Down
	switch msg.Button {
	case tea.MouseWheelUp:
		step, a = -1, ui.Up
	case tea.MouseWheelDown:
	default:
		return nil
	}
	view := m.current
	switch {
	case s.TooSmall, m.editing, m.dialog != nil:
		return nil
	case m.help:
		m.helpTop += step * wheelLines
		return nil
	case s.Detail.Holds(msg.X, msg.Y):
		m.detailTop += step * wheelLines
		return nil
	case s.Side.Holds(msg.X, msg.Y):
		view = 0
	case !s.Main.Holds(msg.X, msg.Y):
		return nil
	}
	var cmd tea.Cmd
	for range wheelLines {
		cmd = m.toView(view, a)
	}
	return cmd
}
