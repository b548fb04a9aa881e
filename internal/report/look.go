package report

import (
	"regexp"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Look is how text for people is printed.
type Look struct {
	Width int  // columns that lines keep to, 0: no limit
	Color bool // in the terminal's own colours, which never carry a meaning that the text lacks
	ASCII bool // spell our own signs in ASCII before columns are aligned
	// Verbose adds what most readers do without: codes, evidence, every reason.
	Verbose bool
	Units   units.System // of rates
}

// The terminal's own colours, so that they suit its background.
const (
	Plain   = "0"
	Strong  = "1"
	Faint   = "2"
	Bad     = "31"
	Good    = "32"
	Caution = "33"
	Traffic = "35"
	Note    = "36"
)

const allCodes = "|" + Plain + "|" + Strong + "|" + Faint + "|" + Bad + "|" + Good + "|" + Caution + "|" + Traffic + "|" + Note + "|"

// A mark begins a colour in text that is not finished yet, and markEnd ends the number of the colour. Both are bytes that
// no UTF-8 text has, so no foreign text can bring a colour of its own.
const (
	mark    = "\xff"
	markEnd = "\xfe"
)

// Paint colours a piece of text; [Finish] puts in the terminal's codes.
func (l *Look) Paint(s, code string) string {
	if !l.Color || code == "" || s == "" {
		return s
	}
	return mark + code + markEnd + s + mark + Plain + markEnd
}

// Finish makes a whole text safe for a terminal: foreign names are escaped, and nothing but the colours of [Look.Paint]
// is let through.
func Finish(s string) string {
	var b strings.Builder
	for i, piece := range strings.Split(s, mark) {
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

// unitGap is the blank between a number and its unit, which no line ends at.
var unitGap = regexp.MustCompile(`(\d) ([GKMT]i?B(?:/s)?|[GM]b/s|GT/s|%)`)

const noBreak = "\u00a0"

// ready is a sentence or cell as it is laid out: what Finish would lengthen is long already.
func (l *Look) ready(s string) string {
	if !strings.Contains(s, mark) {
		s = text.Printable(strings.ReplaceAll(s, "\n", " "))
	}
	if l.ASCII {
		s = text.InASCII(s)
	}
	if l.Width > 0 {
		s = unitGap.ReplaceAllString(s, "$1"+noBreak+"$2")
	}
	return s
}

// room is how wide lines are after lead, 0 without limit.
func (l *Look) room(lead string) int {
	if l.Width <= 0 {
		return 0
	}
	return max(1, l.Width-text.Width(lead))
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

// Listing sets rows in columns, the last of which is wrapped to the terminal.
func (l *Look) Listing(rows []Row) string { return l.Table(&Table{Rows: rows, Indent: "  "}) }

// Wrap is a sentence in lines that there is room for, in one colour: the first after lead, the others set in as far.
// Where lead has the trunk of a tree, so have they.
func (l *Look) Wrap(lead, sentence, code string) string {
	return l.lines(text.WrapColumns([][]string{{l.ready(sentence)}}, l.room(lead))[0], lead, code)
}

func (l *Look) lines(list []string, lead, code string) string {
	var b strings.Builder
	for i, line := range list {
		if i == 1 {
			lead = strings.Map(func(r rune) rune {
				if r == '│' {
					return r
				}
				return ' '
			}, lead)
		}
		line = strings.ReplaceAll(line, noBreak, " ")
		b.WriteString(strings.TrimRight(lead+l.Paint(line, code), " ") + "\n")
	}
	return b.String()
}

// WrapLines wraps each line of a text that is too long; what follows is set in further.
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
