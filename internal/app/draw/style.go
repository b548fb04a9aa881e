// Package draw prints a topology for people: as a tree, and as a matrix in the
// look of nvidia-smi topo -m. What it prints may change; programs read the JSON.
package draw

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/base/text"
)

// maxText is how many cells of a terminal one name from a foreign file takes at most.
const maxText = 120

// Printable is a name from a foreign file, safe for a terminal and cut where it is long.
func Printable(s string, ascii bool) string {
	if ascii {
		s = text.ASCII(s)
	} else {
		s = text.Printable(s)
	}
	return text.Cut(s, maxText, text.Dots)
}

// JSON is a document without bytes that a terminal would obey: a JSON encoder escapes only
// the controls below the blank.
func JSON(data []byte) []byte {
	var out []byte
	done := 0
	for i := range data {
		c, size := data[i], 1
		if c == 0xc2 && i+1 < len(data) && data[i+1] >= 0x80 && data[i+1] < 0xa0 { // U+0080 to U+009F
			c, size = data[i+1], 2
		} else if c != 0x7f {
			continue
		}
		out = fmt.Appendf(append(out, data[done:i]...), `\u%04x`, c)
		done = i + size
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
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
