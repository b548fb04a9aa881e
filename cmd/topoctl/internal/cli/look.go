package cli

import (
	"regexp"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Look is how an answer is printed for people.
type Look struct {
	Color, Verbose bool
	Width          int // columns of the terminal, 0: no limit
	Units          units.System
}

// Look is how the flags have answers printed.
func (in *Host) Look() Look {
	g := &in.Globals
	return Look{Color: in.Color(), Verbose: g.Verbose, Width: in.Streams.Width, Units: units.System(g.Units).Or(units.Gbyte)}
}

// The terminal's own colours, so that they suit its background. Colour never
// carries a meaning that the text lacks.
const (
	Plain   = "0"
	Strong  = "1"
	Faint   = "2"
	Good    = "32"
	Caution = "33"
	Bad     = "31"

	allCodes = "|" + Plain + "|" + Strong + "|" + Faint + "|" + Good + "|" + Caution + "|" + Bad + "|"
)

// Mark begins and MarkEnd ends a colour in text that is not printed yet. Both are
// bytes that no UTF-8 text has.
const (
	Mark    = "\xff"
	MarkEnd = "\xfe"
)

// Paint colours a piece of text; finish puts in the terminal's codes.
func (l *Look) Paint(text, code string) string {
	if !l.Color || code == "" || text == "" {
		return text
	}
	return Mark + code + MarkEnd + text + Mark + Plain + MarkEnd
}

// finish makes a whole answer safe for a terminal: names from foreign files are
// escaped, and nothing but the colours of this file is let through.
func finish(answer string) string {
	var b strings.Builder
	for i, piece := range strings.Split(answer, Mark) {
		if code, rest, ok := strings.Cut(piece, MarkEnd); ok && i > 0 && strings.Contains(allCodes, "|"+code+"|") {
			b.WriteString("\x1b[" + code + "m")
			piece = rest
		}
		for line := range strings.Lines(piece) {
			body, end := strings.CutSuffix(line, "\n")
			b.WriteString(text.Printable(body))
			if end {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// Rate prints a rate with how it is known.
func (l *Look) Rate(r *topo.Rate, basis topo.Basis) string {
	if r == nil {
		return "?"
	}
	return basis.Text(units.Rate(int64(*r), l.Units))
}

var typicalRate = regexp.MustCompile(`~[0-9]`)

// Legend explains the "~" before rates, "" where an answer has none.
func (l *Look) Legend(answer string) string {
	if !typicalRate.MatchString(answer) {
		return ""
	}
	return "\n" + l.Wrap("  ", "~ is typical of such hardware, not measured: there may be less, and more", Faint)
}

// Wrap is a sentence in lines that the terminal has room for, in one colour: the first after lead,
// the others set in as far.
func (l *Look) Wrap(lead, sentence, code string) string {
	return l.wrapped(text.WrapColumns([][]string{{sentence}}, l.room(lead))[0], lead, code)
}

// WrapLines wraps each line of a text that is too long for the terminal; what follows is set in further.
func (l *Look) WrapLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		if l.Width > 0 && text.Width(line) > l.Width {
			words := strings.TrimLeft(line, " ")
			lead := line[:len(line)-len(words)]
			line = lead + strings.Join(text.Wrap(words, l.room(lead+"  ")), "\n"+lead+"  ") + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// room is how wide lines are after lead, 0 without limit.
func (l *Look) room(lead string) int {
	if l.Width <= 0 {
		return 0
	}
	return max(1, l.Width-text.Width(lead))
}

func (l *Look) wrapped(lines []string, lead, code string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(lead + l.Paint(line, code) + "\n")
		lead = text.Pad("", text.Width(lead))
	}
	return b.String()
}

// Row is a line of a listing, and lines below it that belong to it.
type Row struct {
	Cells []string
	Color string // the colour of the line
	Below []string
}

// Listing sets rows in columns, the last of which is wrapped to the terminal.
func (l *Look) Listing(rows []Row) string {
	cells := make([][]string, len(rows))
	for i := range rows {
		cells[i] = rows[i].Cells
	}
	const lead, below = "  ", "        "
	lines := text.WrapColumns(cells, l.room(lead))
	var b strings.Builder
	for i, r := range rows {
		b.WriteString(l.wrapped(lines[i], lead, r.Color))
		for _, sentence := range r.Below {
			b.WriteString(l.Wrap(below, sentence, Faint))
		}
	}
	return b.String()
}

// clearLine begins a terminal's line anew.
const clearLine = "\r\x1b[K"
