package ui

// The look is how the dashboard draws: colours, glyphs, bars, sparklines, figures.
// Colour never carries a meaning that the text lacks, and there are only the terminal's
// own sixteen, which suit its background.

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Look is the user's choice of how to draw.
type Look struct {
	ASCII bool // no characters beyond ASCII
	Color bool
	Bare  bool // no escape codes at all: a frame for a file
	Units units.System
}

// Style is what a text is, not how it looks.
type Style int

// The styles.
const (
	Plain Style = iota
	Strong
	Faint
	Good     // as it should be
	Middle   // worth a look
	Bad      // wrong
	Head     // of columns and panes
	Selected // under the cursor
	Accent   // keys, names of views
)

// The codes of the styles, with colour and without it.
var (
	inColor = [...]string{Plain: "", Strong: "1", Faint: "2", Good: "32", Middle: "33", Bad: "1;31", Head: "1", Selected: "7", Accent: "36"}
	inMono  = [...]string{Plain: "", Strong: "1", Faint: "2", Good: "", Middle: "1", Bad: "1", Head: "1", Selected: "7", Accent: "1"}
)

const reset = "\x1b[m"

// Paint gives a text its style. Styles inside the text end before it does, and this one
// goes on after them.
func (l *Look) Paint(text string, s Style) string {
	codes := &inMono
	if l.Color {
		codes = &inColor
	}
	if l.Bare || text == "" || s < 0 || int(s) >= len(codes) || codes[s] == "" {
		return text
	}
	code := "\x1b[" + codes[s] + "m"
	if strings.Contains(text, reset) {
		text = strings.ReplaceAll(text, reset, reset+code)
	}
	return code + text + reset
}

// Mark is what a style says in one character, for terminals without colour: "!" worth a look,
// "x" wrong, a blank else.
func (l *Look) Mark(s Style) string {
	switch s {
	case Middle:
		return "!"
	case Bad:
		return "x"
	}
	return " "
}

// Marked is a text behind the mark of a style, where it has one.
func (l *Look) Marked(text string, s Style) string {
	if mark := l.Mark(s); mark != " " {
		return mark + " " + text
	}
	return text
}

// maxWord is how many columns one word from a file or a peer takes at most.
const maxWord = 120

// Safe makes text from a file or a peer fit for a terminal: what cannot be printed is
// written as an escape, and words without end are cut.
func (l *Look) Safe(s string) string {
	printable := text.Printable
	if l.ASCII {
		printable = text.ASCII
	}
	words := strings.Split(s, " ")
	for i, w := range words {
		words[i] = text.Cut(printable(w), maxWord, text.Dots)
	}
	return strings.Join(words, " ")
}

// Width is how many columns a text takes; its styles take none.
func Width(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return ansi.StringWidth(s)
		}
	}
	return len(s)
}

// Cut shortens a text to at most w columns; one that was cut ends in dots where there is
// room for them.
func (l *Look) Cut(s string, w int) string {
	if w <= 0 {
		return ""
	}
	if Width(s) <= w {
		return s
	}
	dots := l.Dots()
	if w <= len(dots) && l.ASCII {
		dots = ""
	}
	return ansi.Truncate(s, w, dots)
}

// Fit cuts a text to w columns or fills it with blanks up to them.
func (l *Look) Fit(s string, w int) string {
	s = l.Cut(s, w)
	return s + strings.Repeat(" ", max(0, w-Width(s)))
}

// FitRight is Fit with the blanks before the text, as figures in columns have them.
func (l *Look) FitRight(s string, w int) string {
	s = l.Cut(s, w)
	return strings.Repeat(" ", max(0, w-Width(s))) + s
}

// Clean is a line that came from anywhere: no character of it but the styles of Paint
// can move the cursor or change the terminal.
func Clean(line string) string {
	var b strings.Builder
	for len(line) > 0 {
		if n := styled(line); n > 0 {
			b.WriteString(line[:n])
			line = line[n:]
			continue
		}
		n := strings.IndexByte(line[1:], '\x1b') + 1
		if n == 0 {
			n = len(line)
		}
		for i, part := range strings.Split(line[:n], " ") {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(text.Cut(text.Printable(part), maxWord+len(text.Dots), text.Dots)) // a word of Safe with the dots of Cut
		}
		line = line[n:]
	}
	return b.String()
}

// styled is the length of the style that a text begins with, 0 none.
func styled(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < len(s) && i < 16; i++ {
		switch c := s[i]; {
		case c == 'm':
			return i + 1
		case c != ';' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}
