package cli

import (
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/units"
)

// look is how an answer is printed for people.
type look struct {
	color, ascii, verbose bool
	width                 int // columns of the terminal, 0: no limit
	units                 units.System
}

// The terminal's own colours, so that they suit its background. Colour never
// carries a meaning that the text lacks.
const (
	inPlain  = "0"
	inStrong = "1"
	inFaint  = "2"
	inGood   = "32"
	inMiddle = "33"
	inBad    = "31"

	allCodes = "|" + inPlain + "|" + inStrong + "|" + inFaint + "|" + inGood + "|" + inMiddle + "|" + inBad + "|"
)

// mark begins and markEnd ends a colour in text that is not printed yet. Both are
// bytes that no UTF-8 text has.
const mark, markEnd = "\xff", "\xfe"

// paint colours a piece of text; finish puts in the terminal's codes.
func (l *look) paint(text, code string) string {
	if !l.color || code == "" || text == "" {
		return text
	}
	return mark + code + markEnd + text + mark + inPlain + markEnd
}

// finish makes a whole answer safe for a terminal: names from foreign files are
// escaped, and nothing but the colours of this file is let through.
func finish(text string) string {
	var b strings.Builder
	for i, piece := range strings.Split(text, mark) {
		if code, rest, ok := strings.Cut(piece, markEnd); ok && i > 0 && strings.Contains(allCodes, "|"+code+"|") {
			b.WriteString("\x1b[" + code + "m")
			piece = rest
		}
		for line := range strings.Lines(piece) {
			body, end := strings.CutSuffix(line, "\n")
			parts := strings.Split(body, "/") // long paths stay whole
			for k := range parts {
				parts[k] = printable(parts[k])
			}
			b.WriteString(strings.Join(parts, "/"))
			if end {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// rate prints a rate, "at most" where it is an upper bound.
func (l *look) rate(r *topo.Rate, basis topo.Basis) string {
	switch {
	case r == nil:
		return "?"
	case basis == topo.BasisAssumed && *r > 0:
		return "at most " + units.Rate(int64(*r), l.units)
	}
	return units.Rate(int64(*r), l.units)
}

// cut shortens a line to the terminal. Verbose output is never cut.
func (l *look) cut(line string) string {
	if l.width <= 0 || l.verbose || utf8.RuneCountInString(line) <= l.width {
		return line
	}
	dots := "…"
	if l.ascii {
		dots = "..."
	}
	return string([]rune(line)[:max(0, l.width-utf8.RuneCountInString(dots))]) + dots
}

// row is a line of a listing, and lines below it that belong to it.
type row struct {
	cells []string
	code  string // the colour of the line
	below []string
}

// listing sets rows in columns, the last one as long as it is.
func (l *look) listing(rows []row) string {
	var widths []int
	for _, r := range rows {
		for i, c := range r.cells[:max(0, len(r.cells)-1)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		line := " "
		for i, c := range r.cells {
			line += " " + c
			if i < len(r.cells)-1 {
				line += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+1)
			}
		}
		b.WriteString(l.paint(l.cut(strings.TrimRight(line, " ")), r.code) + "\n")
		for _, text := range r.below {
			b.WriteString(l.paint("        "+text, inFaint) + "\n")
		}
	}
	return b.String()
}

// several names the first of many, and how many more there are.
func several(names []string, most int) string {
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + plural(len(names)-most, "more")
}

// plural is "1 lane", "2 lanes"; "more" stays as it is.
func plural(n int, noun string) string {
	text := itoa(n) + " " + noun
	if n != 1 && noun != "more" {
		text += "s"
	}
	return text
}
