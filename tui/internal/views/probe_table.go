package views

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/measure/show"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// column is one of a table. Widths do not depend on what is in it, so that columns stand
// still while figures come in.
type column struct {
	title string
	width int
	right bool // figures
	text  func(f *show.Figures) string
}

var (
	pairColumn       = column{title: "pair", text: func(f *show.Figures) string { return f.Pair }}
	rateColumn       = column{"rate", 11, true, func(f *show.Figures) string { return f.Rate }}
	intervalColumn   = column{"95 %", 7, true, func(f *show.Figures) string { return f.Interval }}
	expectedColumn   = column{"expected", 12, true, func(f *show.Figures) string { return f.Expected }}
	efficiencyColumn = column{"eff", 6, true, func(f *show.Figures) string { return f.Efficiency }}
	latencyColumn    = column{"p50 / p99", 16, true, func(f *show.Figures) string { return f.Latency }}
	classColumn      = column{"class", 10, false, func(f *show.Figures) string { return f.Class }}
	limitColumn      = column{"by", 13, false, func(f *show.Figures) string { return beforeComma(f.Of) }}
	reasonColumn     = column{"reason", 40, false, func(f *show.Figures) string { return f.Reason }}
)

// beforeComma leaves the variant out, which stands with the name.
func beforeComma(s string) string {
	s, _, _ = strings.Cut(s, ",")
	return s
}

// The columns of results in the order in which they stand, and in that in which they get room.
var (
	columnOrder    = []*column{&rateColumn, &intervalColumn, &expectedColumn, &efficiencyColumn, &latencyColumn, &classColumn, &limitColumn, &reasonColumn}
	columnPriority = []*column{&rateColumn, &efficiencyColumn, &expectedColumn, &intervalColumn, &latencyColumn, &limitColumn, &classColumn, &reasonColumn}
	widePriority   = []*column{&latencyColumn, &classColumn, &reasonColumn, &limitColumn, &rateColumn, &efficiencyColumn, &expectedColumn, &intervalColumn}
)

const (
	verdictWidth = 14 // "x INCONCLUSIVE"
	markWidth    = 3  // "[x]"
	minName      = 16
	maxName      = 48
)

// table draws rows in columns.
type table struct {
	v       *ProbeView
	env     *ui.Env
	width   int
	name    int // columns of the pair's name, and
	names   int // of the longest one
	columns []*column
	local   bool
	ports   bool // there are pairs of ports, and
	others  bool // pairs whose rates one gives in other units
	options show.Options
}

func (v *ProbeView) table(env *ui.Env, width int) *table {
	t := v.fitted(env, width)
	if t.ports && t.others { // one column, one unit
		t.options.Units = t.options.Units.Or(units.Gbyte)
	}
	return t
}

// fitted is a table with what it is to hold, and the columns that there is room for.
func (v *ProbeView) fitted(env *ui.Env, width int) *table {
	t := &table{v: v, env: env, width: width, options: options(env)}
	if v.page == choosingPage {
		t.local = localPairs(v.pairs)
		for i := range v.pairs {
			t.makeRoomFor(&v.pairs[i])
		}
		t.fit([]*column{&expectedColumn, &classColumn}, []*column{&expectedColumn, &classColumn}, markWidth+1)
		return t
	}
	if r := v.report(env); r != nil {
		t.local = show.Local(r)
		for i := range r.Results {
			t.makeRoomFor(&r.Results[i].Pair)
		}
	}
	first := columnPriority
	if v.wide {
		first = widePriority
	}
	t.fit(columnOrder, first, verdictWidth+1)
	return t
}

func (t *table) makeRoomFor(p *probe.Pair) {
	n := len(p.From.Name) + len(" > ") + len(p.To.Name)
	if !t.local {
		n += len(p.From.Host) + len(p.To.Host) + len("//")
	}
	if p.Variant != "" {
		n += len(", ") + len(p.Variant)
	}
	t.names = max(t.names, n+len("* "))
	t.ports, t.others = t.ports || p.Kind == probe.Port, t.others || p.Kind != probe.Port
}

// fit takes the columns that there is room for. What is left is the name's, and the
// reason's where it has a place.
func (t *table) fit(all, first []*column, before int) {
	room, least := t.width-2-before, min(max(t.names, minName), maxName)
	taken := map[*column]bool{}
	for _, c := range first {
		if room-c.width-1 < least {
			break // none after it either: a wider pane never has fewer
		}
		taken[c] = true
		room -= c.width + 1
	}
	for _, c := range all {
		if taken[c] {
			t.columns = append(t.columns, c)
		}
	}
	t.name = max(0, room)
	if spare := room - least; spare > 0 && taken[&reasonColumn] {
		wider := reasonColumn
		wider.width += spare
		t.columns[slices.Index(t.columns, &reasonColumn)], t.name = &wider, least
	}
}

// head names the columns.
func (t *table) head() string {
	cells := []string{" "}
	if t.v.page == choosingPage {
		cells = append(cells, t.env.Look.Fit("", markWidth))
	} else {
		cells = append(cells, t.env.Look.Fit("  verdict", verdictWidth))
	}
	cells = append(cells, t.env.Look.Fit(pairColumn.title, t.name))
	for _, c := range t.columns {
		cells = append(cells, t.cell(c, c.title))
	}
	return strings.Join(cells, " ")
}

func (t *table) cell(c *column, text string) string {
	if c.right {
		return t.env.Look.FitRight(text, c.width)
	}
	return t.env.Look.Fit(text, c.width)
}

// line draws a row; that under the cursor has the list's style alone.
func (t *table) line(r *row, here bool) string {
	text, style := t.text(r)
	if here {
		return text
	}
	return t.env.Look.Paint(text, style)
}

// text is a row without the cursor, and its style.
func (t *table) text(r *row) (string, ui.Style) {
	switch {
	case r.active:
		return t.active(r.result), ui.Accent
	case r.result != nil:
		return t.result(r.result), probeStyleOf(r.result.Verdict)
	case r.pair != nil:
		return t.pair(r.pair)
	case r.group != "":
		return t.group(r), ui.Head
	}
	text := r.text
	if r.blame != nil {
		text = t.env.Look.Mark(blameStyle(r.blame)) + " " + text
	}
	return text, r.style
}

// probeStyleOf is how a verdict looks.
func probeStyleOf(v probe.Verdict) ui.Style {
	switch v {
	case probe.Fail, probe.Error:
		return ui.Bad
	case probe.Warn, probe.Inconclusive:
		return ui.Middle
	case probe.Waived:
		return ui.Faint
	}
	return ui.Plain
}

// result is a pair with its verdict and figures.
func (t *table) result(x *probe.Result) string {
	l := t.env.Look
	verdict := string(x.Verdict)
	if verdict == "" {
		verdict = "not judged"
	}
	f := t.figures(x)
	if t.v.marked[x.ID] {
		f.Pair = "* " + f.Pair
	}
	return t.cells(l.Fit(l.Mark(probeStyleOf(x.Verdict))+" "+l.Safe(verdict), verdictWidth), f)
}

// figures are those of a pair, whose name tells variants of the same ends apart.
func (t *table) figures(x *probe.Result) *show.Figures {
	f := show.FiguresOf(x, t.local, t.options)
	if x.Variant != "" {
		f.Pair += ", " + t.env.Look.Safe(x.Variant)
	}
	return &f
}

func (t *table) cells(first string, f *show.Figures) string {
	cells := []string{first, t.env.Look.Fit(f.Pair, t.name)}
	for _, c := range t.columns {
		cells = append(cells, t.cell(c, c.text(f)))
	}
	return strings.Join(cells, " ")
}

// active is a pair that is being measured, with its latest sample.
func (t *table) active(x *probe.Result) string {
	l, p := t.env.Look, t.env.State.Probe
	pair := x.Pair
	if known := t.v.byID[x.ID]; known != nil {
		pair = *known
	}
	now := &probe.Result{Pair: pair}
	s, sampled := p.Samples[pair.ID]
	if want := pair.Expected.BytesPerSec; sampled && want != nil && *want > 0 {
		part := float64(s.BytesPerSec) / float64(*want)
		now.Efficiency = &part
	}
	f := t.figures(now)
	if pair.From.Name == "" { // the pairs were not asked for here
		f.Pair = l.Safe(pair.ID)
	}
	if sampled {
		f.Rate = show.PairRate(pair.Kind, s.BytesPerSec, t.options.Units)
	}
	return t.cells(l.Fit("  now", verdictWidth), f)
}

// group is the head of a group of pairs.
func (t *table) group(r *row) string {
	l, marked, can := t.env.Look, 0, 0
	for _, p := range r.members {
		if p.Waived == "" {
			can++
		}
		if t.v.marked[p.ID] {
			marked++
		}
	}
	glyph := l.Open()
	if t.v.folded[r.group] {
		glyph = l.Folded()
	}
	text := glyph + " " + r.group + ": " + text.Plural(len(r.members), "pair")
	if n := len(r.members) - can; n > 0 {
		text += ", " + strconv.Itoa(n) + " waived"
	}
	if marked > 0 {
		text += ", " + strconv.Itoa(marked) + " marked"
	}
	return text
}

// pair is a pair that can be measured, or the reason why it cannot.
func (t *table) pair(p *probe.Pair) (string, ui.Style) {
	l := t.env.Look
	f := t.figures(&probe.Result{Pair: *p})
	if p.Waived != "" {
		return "[-] " + l.Fit(f.Pair, min(t.name, max(t.names, minName))) + " waived: " + l.Safe(p.Waived), ui.Faint
	}
	box, style := "[ ]", ui.Plain
	if t.v.marked[p.ID] {
		box, style = "[x]", ui.Strong
	}
	return t.cells(box, f), style
}
