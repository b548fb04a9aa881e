// Package text prepares text that people read on a terminal, in a report or in an image:
// it makes foreign text harmless, counts things in words, and cuts, wraps and aligns by the
// cells that text takes on a screen.
//
// Text from a device, a file or a peer passes through [Printable] first. The other functions
// expect text without escape codes: colour is added afterwards.
package text

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

// Printable makes foreign text harmless on one line of a terminal: control characters (line
// ends and tabs too), marks that turn the writing direction, other invisible characters, blanks
// beyond U+0020 and broken UTF-8 are written as Go escapes ("\x1b", "\u202e"). It does not
// shorten: see [Clip] and [Cut].
func Printable(s string) string {
	return escape(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// ASCII is [Printable] for output that has to be ASCII: all else is written as escapes as well.
func ASCII(s string) string {
	return escape(s, func(r rune) bool { return r >= utf8.RuneSelf || !unicode.IsPrint(r) })
}

// signs are how the characters that our own text has beside ASCII are spelled in it.
var signs = strings.NewReplacer("±", "+-", "µ", "u", "·", "-", "…", "...", "≥", ">=", "×", "x", "–", "-", "─", "-", "→", "->",
	"▁", "_", "▂", ".", "▃", "-", "▄", "=", "▅", "+", "▆", "*", "▇", "#", "█", "@")

// InASCII is text of our own for output that has to be ASCII: its signs are spelled ("±" is "+-"),
// other characters are written as escapes. Line ends, tabs and colours stay.
func InASCII(s string) string {
	var b strings.Builder
	for _, r := range signs.Replace(s) {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			b.WriteString(ASCII(string(r)))
		}
	}
	return b.String()
}

func escape(s string, unfit func(rune) bool) string {
	if !strings.ContainsFunc(s, unfit) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x`)
			b.WriteByte("0123456789abcdef"[s[0]>>4])
			b.WriteByte("0123456789abcdef"[s[0]&15])
		case unfit(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

// Plural is a number with what is counted: "1 port", "2 ports", "0 switches". A noun whose plural
// does not end in "s" or "es" has it given: Plural(2, "retry", "retries").
func Plural[N ~int | ~int64](n N, one string, many ...string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Noun(n, one, many...)
}

// Noun is [Plural] without the number: "port", "ports".
func Noun[N ~int | ~int64](n N, one string, many ...string) string {
	switch {
	case n == 1:
		return one
	case len(many) > 0:
		return many[0]
	}
	for _, suffix := range []string{"ch", "sh", "s", "x"} {
		if strings.HasSuffix(one, suffix) {
			return one + "es"
		}
	}
	return one + "s"
}

// Join names things in a sentence: "a, b and c". It shortens like [List]: "a, b and 3 more".
func Join(names []string, most int) string {
	if n := len(names); n > 1 && n <= max(most, 0)+1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return List(names, most)
}

// List names things with commas only: "a, b, c". Of a longer list it names the first most and
// counts the rest: "a, b and 3 more". It never leaves out just one, because that name takes no
// more room than "1 more".
func List(names []string, most int) string {
	if most = max(most, 0); len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	rest := strconv.Itoa(len(names)-most) + " more"
	if most == 0 {
		return rest
	}
	return strings.Join(names[:most], ", ") + " and " + rest
}

// Range is "97 to 98", or one of them where they are alike.
func Range(lo, hi string) string {
	if lo == hi {
		return lo
	}
	return lo + " to " + hi
}

// Width is how many cells text takes on a terminal: a combining mark takes none, a character of
// Chinese takes two.
func Width(s string) int { return displaywidth.String(s) }

// Pad fills text with blanks at its end up to a width in cells.
func Pad(s string, width int) string { return s + blanks(width-Width(s)) }

// PadLeft fills text with blanks before it up to a width in cells, as figures in columns have them.
func PadLeft(s string, width int) string { return blanks(width-Width(s)) + s }

func blanks(n int) string { return strings.Repeat(" ", max(0, n)) }

// The ends of text that was cut: [Ellipsis], or [Dots] where output has to be ASCII.
const (
	Ellipsis = "…"
	Dots     = "..."
)

// Cut shortens text to a width in cells. Text that was cut ends in end, which counts; where end
// itself has no room, text is cut without it.
func Cut(s string, width int, end string) string {
	if Width(s) <= width {
		return s
	}
	if Width(end) > width {
		end = ""
	}
	return displaywidth.TruncateString(s, width, end)
}

// Clip bounds foreign text to a number of bytes, for names and messages: a longer one ends in [Dots].
// No character is cut in two.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := max(0, most-len(Dots))
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + Dots
}

// Wrap breaks text at blanks into lines of at most width cells, at least one line. A longer word
// stands on a line of its own, whole. Blanks and line ends in a row count as one blank; a no-break
// space (U+00A0) holds words together.
func Wrap(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' }) {
		switch {
		case line == "":
			line = word
		case Width(line+" "+word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// Column says how [Columns] sets a column.
type Column struct {
	Right bool // its cells are aligned at the right
	Most  int  // a cell that is wider does not widen the column; 0: every cell may
}

// Columns aligns rows of cells in columns, two blanks apart, and returns a line for each row, without
// blanks at its end. Columns are aligned at the left unless specs say otherwise: the first spec is
// for the first column, and the last one for all columns that are left. The last cell of a row is
// not padded and widens no column, except where it is aligned at the right.
func Columns(rows [][]string, specs ...Column) []string {
	spec := func(i int) Column {
		if len(specs) == 0 {
			return Column{}
		}
		return specs[min(i, len(specs)-1)]
	}
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			c, w := spec(i), Width(cell)
			if (i < len(row)-1 || c.Right) && (c.Most == 0 || w <= c.Most) {
				widths[i] = max(widths[i], w)
			}
		}
	}
	lines := make([]string, len(rows))
	for k, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if spec(i).Right {
				cells[i] = PadLeft(cell, widths[i])
			} else {
				cells[i] = Pad(cell, widths[i])
			}
		}
		lines[k] = strings.TrimRight(strings.Join(cells, "  "), " ")
	}
	return lines
}

// The least room in which [WrapColumns] wraps a cell where it stands, and how far it is set in where
// there is less.
const (
	leastRoom = 24
	setIn     = 6
)

// WrapColumns is [Columns] in lines of at most width cells: the last text of a row is wrapped in its
// column, or below the row where its column is too narrow. Where even the cells before it are too wide
// together, the last ones of them move below with it, the same of all rows that are too wide. It returns
// the lines of each row. Cells but the last stay whole, and 0 is no limit.
func WrapColumns(rows [][]string, width int, specs ...Column) [][]string {
	lines := Columns(rows, specs...)
	moved := 0 // cells that stand below beside the last
	for k, line := range lines {
		before, _, _ := cutCells(line, rows[k], 0)
		for n := 0; width > 0 && Width(line) > width && width-Width(before) < leastRoom; n++ {
			fits, _, more := cutCells(line, rows[k], n)
			if !more {
				break // the first cell stays
			}
			if moved = max(moved, n); Width(strings.TrimRight(fits, " ")) <= width {
				break
			}
		}
	}
	out := make([][]string, len(rows))
	for k, line := range lines {
		out[k] = []string{line}
		if width <= 0 || Width(line) <= width {
			continue
		}
		before, below, _ := cutCells(line, rows[k], 0)
		at, rest := Width(before), out[k][:0]
		if width-at < leastRoom {
			before, below, _ = cutCells(line, rows[k], moved)
			if before = strings.TrimRight(before, " "); before != "" {
				rest = append(rest, before)
			}
			at = setIn
			before = blanks(at)
			if first := strings.Join(below[:len(below)-1], "  "); first != "" && width-at-Width(first) >= leastRoom {
				before, below = before+first+"  ", below[len(below)-1:]
			}
		}
		for _, part := range Wrap(strings.Join(below, " "), width-Width(before)) {
			rest = append(rest, before+part)
			before = blanks(at)
		}
		out[k] = rest
	}
	return out
}

// cutCells cuts the last text off a row's line, and n cells before it, empty ones not counted; more says that
// there are others before them.
func cutCells(line string, row []string, n int) (before string, cells []string, more bool) {
	before = line
	for i := len(row) - 1; i >= 0; i-- {
		cell := strings.TrimRight(row[i], " ")
		switch {
		case cell == "":
		case len(cells) > n:
			return before, cells, true
		default:
			before = strings.TrimSuffix(strings.TrimRight(before, " "), cell)
			cells = append([]string{cell}, cells...)
		}
	}
	if cells == nil {
		cells = []string{""}
	}
	return before, cells, false
}

// TSV sets rows for programs, a line for each: its cells made [Printable] and separated by tabs,
// which no cell has then.
func TSV(rows [][]string) []string {
	lines := make([]string, len(rows))
	for k, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Printable(cell)
		}
		lines[k] = strings.Join(cells, "\t")
	}
	return lines
}

// ShellQuote makes a word that a POSIX shell takes as it is. A NUL cannot be in one.
func ShellQuote(s string) string {
	s = strings.ReplaceAll(s, "\x00", "")
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
