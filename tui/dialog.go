package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// dialog asks whether to do something.
type dialog struct {
	title string
	lines []string
	yes   string // what the yes does, in a word or two
	act   func(m *model)
}

// answer takes a key while a dialog is open; others than yes and no do nothing. A question
// comes when its answer is ready, so that enter may have been meant for what was there
// before: it is a no.
func (m *model) answer(key string) tea.Cmd {
	d := m.dialog
	switch key {
	case "y":
		m.dialog = nil
		d.act(m)
	case "n", "esc", "q", "enter":
		m.dialog = nil
	}
	return nil
}

// draw gives the dialog's lines, each w columns wide and with a frame around them.
func (d *dialog) draw(l *ui.Look, w int) []string {
	inner := min(w-4, 76)
	lines := append([]string{l.Paint(d.title, ui.Strong), ""}, d.lines...)
	lines = append(lines, "", l.Paint("y", ui.Accent)+" "+d.yes+"   "+l.Paint("n, enter", ui.Accent)+" leave it")
	bar := strings.Repeat(l.HLine(), inner+2)
	corner := func(box string) string {
		if l.ASCII {
			return "+"
		}
		return box
	}
	out := []string{corner("┌") + bar + corner("┐")}
	for _, line := range lines {
		out = append(out, l.VLine()+" "+l.Fit(ui.Clean(line), inner)+" "+l.VLine())
	}
	return append(out, corner("└")+bar+corner("┘"))
}

// helpKey takes an action while the help is open.
func (m *model) helpKey(a ui.Action) tea.Cmd {
	page := max(1, m.h-4)
	switch a {
	case ui.Help, ui.Back, ui.Enter:
		m.help = false
	case ui.Up:
		m.helpTop--
	case ui.Down:
		m.helpTop++
	case ui.PageUp:
		m.helpTop -= page
	case ui.PageDown:
		m.helpTop += page
	case ui.Home:
		m.helpTop = 0
	case ui.End:
		m.helpTop = 1 << 16 // drawing stops at the end
	default:
		if ui.Get(a).Group == ui.Views {
			m.help = false
			return m.act(a)
		}
	}
	return nil
}

// helpNote says how the help is closed, and how much of it there is.
func (m *model) helpNote(l *ui.Look, lines, room int) string {
	note := ui.Get(ui.Help).Short(l.ASCII) + " closes it"
	if lines > room {
		note += fmt.Sprintf(", %d-%d of %d, %s %s", m.helpTop+1, m.helpTop+room, lines, ui.Get(ui.Up).Short(l.ASCII), ui.Get(ui.Down).Short(l.ASCII))
	}
	return note
}

// helpLines is what the help says in w columns: the bindings, and what the marks mean.
func helpLines(l *ui.Look, w int) []string {
	label := 0
	for _, b := range ui.Map() {
		label = max(label, ui.Width(b.Label(l.ASCII)))
	}
	var out []string
	for _, g := range ui.Groups() {
		if out != nil {
			out = append(out, "")
		}
		out = append(out, l.Paint(string(g), ui.Head))
		for _, b := range ui.Map() {
			if b.Group == g {
				first, rest := "  "+l.Paint(l.Fit(b.Label(l.ASCII), label), ui.Accent)+"  ", strings.Repeat(" ", label+4)
				for _, line := range ui.Wrap(b.Help, w-len(rest), 0) {
					out = append(out, first+line)
					first = rest
				}
			}
		}
	}
	out = append(out, "", l.Paint("Signs", ui.Head))
	spark := l.Spark([]float64{0, 1, 2, 3, 4, 5, 6, 7}, 7, 8)
	for _, text := range []string{
		fmt.Sprintf("  %s  wrong   %s  worth a look   ?  not known   -  does not apply", l.Paint("x", ui.Bad), l.Paint("!", ui.Middle)),
		"  " + spark + "  history, the newest at the right; a gap: not known",
		"  The mouse selects, opens and scrolls; shift with it selects text in most terminals.",
	} {
		out = append(out, ui.Wrap(text, w, 2)...)
	}
	return out
}
