package picture

import "github.com/topoctl/topoctl/internal/text"

// maxText is how many cells of a terminal one name from a foreign file takes at most.
const maxText = 120

// printable is a name from a foreign file, safe for a terminal and cut where it is long.
func printable(s string, ascii bool) string {
	if ascii {
		s = text.ASCII(s)
	} else {
		s = text.Printable(s)
	}
	return text.Cut(s, maxText, text.Dots)
}

// Style is how a piece of text stands out. Colour never carries a meaning that
// the text itself lacks.
type Style uint8

// The styles.
const (
	Plain Style = iota
	Strong
	Faint
	Good
	Middling
	Bad
)

// codes are the terminal's own 16 colours, so that they suit its background.
var codes = [...]string{Plain: "", Strong: "1", Faint: "2", Good: "32", Middling: "33", Bad: "31"}

// paint wraps text in the escape codes of a style.
func paint(words string, s Style, color bool) string {
	if !color || s == Plain || words == "" {
		return words
	}
	return "\x1b[" + codes[s] + "m" + words + "\x1b[0m"
}
