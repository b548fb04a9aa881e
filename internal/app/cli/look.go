package cli

import (
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
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
func finish(answer string) string {
	var b strings.Builder
	for i, piece := range strings.Split(answer, mark) {
		if code, rest, ok := strings.Cut(piece, markEnd); ok && i > 0 && strings.Contains(allCodes, "|"+code+"|") {
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
	if l.width <= 0 || l.verbose {
		return line
	}
	end := text.Ellipsis
	if l.ascii {
		end = text.Dots
	}
	return text.Cut(line, l.width, end)
}

// row is a line of a listing, and lines below it that belong to it.
type row struct {
	cells []string
	code  string // the colour of the line
	below []string
}

// listing sets rows in columns, the last one as long as it is.
func (l *look) listing(rows []row) string {
	cells := make([][]string, len(rows))
	for i := range rows {
		cells[i] = rows[i].cells
	}
	lines := text.Columns(cells)
	var b strings.Builder
	for i, r := range rows {
		b.WriteString(l.paint(l.cut("  "+lines[i]), r.code) + "\n")
		for _, below := range r.below {
			b.WriteString(l.paint("        "+below, inFaint) + "\n")
		}
	}
	return b.String()
}
