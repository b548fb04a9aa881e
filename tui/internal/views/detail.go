package views

import (
	"strings"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// detail is the detail pane while it is written. Its texts may be foreign.
type detail struct {
	env   *ui.Env
	l     *ui.Look
	w     int
	lines []string
}

func newDetail(env *ui.Env, w int) *detail { return &detail{env: env, l: env.Look, w: w} }

// title names what the pane is about, with the mark of a style.
func (d *detail) title(text string, style ui.Style) {
	text = d.l.Marked(text, style)
	if style == ui.Plain {
		style = ui.Strong
	}
	d.say("", text, style)
}

// section begins a part of the pane.
func (d *detail) section(title string) {
	if len(d.lines) > 0 {
		d.lines = append(d.lines, "")
	}
	d.say("", title, ui.Head)
}

// say writes a text behind lead, in as many lines as it takes; those after the first are set in two columns further.
func (d *detail) say(lead, text string, style ui.Style) {
	for i, line := range ui.Wrap(d.l.Safe(text), d.w-len(lead), 2) {
		if i > 0 {
			lead = strings.Repeat(" ", len(lead))
		}
		d.add(lead + d.l.Paint(line, style))
	}
}

func (d *detail) add(lines ...string) {
	for _, line := range lines {
		d.lines = append(d.lines, d.l.Cut(line, d.w))
	}
}

// field is a name with what there is to say, "" nothing: then there is no line.
func (d *detail) field(name, value string) { d.styled(name, value, ui.Plain) }

func (d *detail) styled(name, value string, style ui.Style) {
	d.add(ui.Field(d.l, name, d.l.Safe(value), d.w, style)...)
}

// list is a field with several values, each on its line.
func (d *detail) list(name string, values []string) {
	for _, v := range values {
		d.field(name, v)
		name = " "
	}
}

// graph is a rate with its history.
func (d *detail) graph(name, value string, values []float64, top float64) {
	d.add(ui.Field(d.l, name, d.l.Fit(value, rateWidth+6)+" "+d.l.Spark(values, top, min(40, max(0, d.w-40))), d.w, ui.Plain)...)
}

// rateWidth is what a rate takes: "399.8 Gb/s".
const rateWidth = 10
