package tui

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// part is a piece of the header. Where there is no room for all, those of the smallest
// weight go first.
type part struct {
	text   string
	style  ui.Style
	weight int
}

// The weights: what would mislead if it were missing goes last.
const (
	ornament = iota
	about
	counts
	trouble
	running
	needed
)

// header is the first line: which host, what is wrong, and where the data is from.
func (m *model) header(l *ui.Look, w int) string {
	parts := append(m.subject(l), m.troubles(l)...)
	parts = append(parts, m.mode(l)...)
	right := m.feedTime() + " "
	const gap = 2
	used := func() int {
		n := 1 + len(right)
		for _, p := range parts {
			n += ui.Width(p.text) + gap
		}
		return n
	}
	for least := ornament; least < needed && used() > w; least++ {
		for i := len(parts) - 1; i >= 0 && used() > w; i-- {
			if parts[i].weight == least {
				parts = append(parts[:i], parts[i+1:]...)
			}
		}
	}
	var b strings.Builder
	b.WriteByte(' ')
	for _, p := range parts {
		b.WriteString(l.Paint(p.text, p.style) + strings.Repeat(" ", gap))
	}
	left := l.Cut(b.String(), w-len(right))
	return left + strings.Repeat(" ", max(0, w-len(right)-ui.Width(left))) + right
}

// subject says what is looked at.
func (m *model) subject(l *ui.Look) []part {
	s := m.shown
	out := []part{{"topoctl", ui.Strong, ornament}}
	t := s.Topology
	name := ""
	if t != nil {
		name = t.Host.Name
	}
	if from := s.Start.Host; from != "" && from != "live" {
		if strings.HasSuffix(from, ":"+name) {
			name = ""
		}
		name = strings.TrimSpace(name + " " + from)
	}
	if name == "" {
		name = "this host"
	}
	out = append(out, part{l.Cut(l.Safe(name), max(12, m.w/4)), ui.Strong, needed})
	if t == nil {
		return append(out, part{"no topology yet", ui.Middle, counts})
	}
	text := count(len(t.Packages), "socket") + " " + count(len(t.GPUs), "GPU") + " " + count(len(t.MatrixAxis(topo.KindNIC)), "NIC")
	return append(out, part{text, ui.Plain, about})
}

// troubles counts what is wrong.
func (m *model) troubles(l *ui.Look) []part {
	s := m.shown
	var out []part
	add := func(n int, noun string, style ui.Style) {
		if n > 0 {
			out = append(out, part{l.Mark(style) + " " + count(n, noun), style, trouble})
		}
	}
	if s.Doctor != nil {
		add(s.Doctor.Summary.Errors, "error", ui.Bad)
		add(s.Doctor.Summary.Warnings, "warning", ui.Middle)
	}
	if list := m.findings(); len(list) > 0 {
		worst := &list[0]
		out = append(out, part{l.Cut(l.Safe(strings.TrimSpace(string(worst.Code)+" "+subjectOf(worst))), 40), ui.Plain, about})
	}
	if s.Drift != nil {
		add(len(s.Drift.Differences)+len(s.Drift.Policy), "drift", ui.Middle)
	}
	failed, late := 0, 0
	for i := range s.Sources {
		switch x := &s.Sources[i]; {
		case x.Failed:
			failed++
		case x.Status == record.StatusWaiting:
			late++
		}
	}
	add(failed, "failed source", ui.Bad)
	if failed > 0 { // why is among the events
		out = append(out, part{"see " + ui.Get(ui.Events).Short(l.ASCII), ui.Bad, counts})
	}
	add(late, "late source", ui.Middle)
	return out
}

// mode says where the data is from, and what the dashboard does besides drawing.
func (m *model) mode(l *ui.Look) []part {
	var out []part
	if what := m.shown.Start.Synthetic; what != "" {
		out = append(out, part{"SYNTHETIC", ui.Middle, needed}, part{l.Cut(l.Safe(what), 30), ui.Plain, ornament})
	}
	if m.o.Feed.replay != "" {
		text := "REPLAY"
		if m.replayEnded() {
			text = "REPLAY ended"
		}
		out = append(out, part{text, ui.Middle, needed}, part{l.Cut(l.Safe(m.o.Feed.replay), 30), ui.Plain, about})
	}
	if m.frozenNS >= 0 {
		out = append(out, part{"FROZEN " + roughly(max(0, m.now()-m.frozenNS)/second*second), ui.Middle, needed})
	}
	if m.rec != nil {
		out = append(out, part{"REC", ui.Bad, needed}, part{l.Cut(l.Safe(filepath.Base(m.rec.name)), 30), ui.Plain, about})
	}
	if p := m.shown.Probe; p != nil && p.Running {
		out = append(out, part{"PROBING", ui.Middle, running})
	}
	return out
}

// feedTime is the time of the feed: UTC where it is known when that began, else since then.
func (m *model) feedTime() string {
	since := time.Duration(m.shown.Now).Truncate(time.Second)
	if began, err := time.Parse(time.RFC3339, m.shown.Start.At); err == nil {
		return began.Add(since).UTC().Format("15:04:05Z")
	}
	return "+" + since.String()
}

// tab is where the footer has an action that can be clicked.
type tab struct {
	from, to int
	action   ui.Action
}

// footer is the last line: the filter while it is typed, a message, or the keys.
func (m *model) footer(l *ui.Look, w int) string {
	m.tabs = nil
	switch {
	case m.editing:
		return m.filterLine(l, w)
	case m.shared.Message != "":
		return l.Fit(" "+l.Paint(ui.Clean(m.shared.Message), ui.Strong), w)
	}
	var b strings.Builder
	x := 0
	put := func(text string, style ui.Style) {
		b.WriteString(l.Paint(text, style))
		x += ui.Width(text)
	}
	action := func(a ui.Action, text string, style ui.Style) {
		m.tabs = append(m.tabs, tab{x, x + ui.Width(text), a})
		put(text, style)
	}
	// The brackets stand where the blanks are: nothing moves.
	for i, a := range ui.ViewActions() {
		style := ui.Plain
		switch i {
		case m.current:
			put("[", ui.Strong)
			style = ui.Selected
		case m.current + 1:
			put("]", ui.Strong)
		default:
			put(" ", ui.Plain)
		}
		action(a, ui.Get(a).Short(l.ASCII)+" "+ui.Get(a).Hint, style)
	}
	put(map[bool]string{true: "]", false: " "}[m.current == len(m.views)-1], ui.Strong)
	for _, a := range append([]ui.Action{ui.Help}, m.hints()...) {
		text := ui.Get(a).Short(l.ASCII) + " " + ui.Get(a).Hint
		if x+1+ui.Width(text) > w {
			break
		}
		put(" ", ui.Plain)
		action(a, text, ui.Faint)
		if x < w {
			put(" ", ui.Plain)
		}
	}
	return l.Fit(b.String(), w)
}

// filterLine is the filter while it is typed. Where there is no room for all of it, its end
// is shown.
func (m *model) filterLine(l *ui.Look, w int) string {
	text, hint := l.Safe(m.filter), "  enter keeps it, esc does not"
	const around = 3 // a blank, the slash, the cursor
	if ui.Width(text)+len(hint) > w-around {
		hint = ""
	}
	if more := ui.Width(text) - (w - around); more > 0 {
		text = ansi.TruncateLeft(text, more+len([]rune(l.Dots())), l.Dots())
	}
	return l.Fit(" "+l.Paint("/", ui.Accent)+text+l.Paint(" ", ui.Selected)+hint, w)
}

// hints are the actions that the footer names where there is room: the view's, then those
// that help everywhere.
func (m *model) hints() []ui.Action {
	var of []ui.Action
	guarded(func() { of = m.view().Hints() })
	if len(m.findings()) > 0 {
		of = append([]ui.Action{ui.NextFinding}, of...)
	}
	seen := map[ui.Action]bool{ui.Help: true}
	var out []ui.Action
	for _, a := range append(of[:len(of):len(of)], ui.Detail, ui.FilterKey, ui.Freeze, ui.Units, ui.Record, ui.Snapshot, ui.Quit) {
		if seen[a] || a == ui.Measure && m.o.noProber() != "" || a == ui.Detail && !m.detail && m.laid.Detail.Shown() {
			continue
		}
		seen[a] = true
		out = append(out, a)
	}
	return out
}

// unitsName is what a system of units is called.
func unitsName(s units.System) string {
	if s == units.Auto || s == "" {
		return "what is customary: Gb/s of ports, GB/s of the rest"
	}
	return s.Suffix()
}
