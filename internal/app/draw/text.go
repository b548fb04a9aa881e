// Package draw prints a topology for people: as a tree, and as a matrix in the
// look of nvidia-smi topo -m. What it prints may change; programs read the JSON.
package draw

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is how much of one name from a foreign file is printed, in runes.
const maxText = 120

// Printable makes text from a foreign file safe for a terminal: control
// characters, invisible and broken ones are written as escapes ("\x1b",
// "\u202e"), and very long text is cut. With ascii everything beyond ASCII is
// escaped as well.
func Printable(s string, ascii bool) string {
	clean := len(s) <= maxText
	for i := 0; clean && i < len(s); i++ {
		clean = s[i] >= ' ' && s[i] < 0x7f
	}
	if clean {
		return s
	}
	var b strings.Builder
	n := 0
	for i := 0; i < len(s); {
		if n++; n > maxText {
			b.WriteString("...")
			break
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i]>>4), 16) + strconv.FormatUint(uint64(s[i]&15), 16))
		case !unicode.IsPrint(r), ascii && r >= utf8.RuneSelf:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
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
func paint(text string, s Style, color bool) string {
	if !color || s == Plain || text == "" {
		return text
	}
	return "\x1b[" + codes[s] + "m" + text + "\x1b[0m"
}

// width is how many cells of a terminal a text takes, counted in runes.
func width(s string) int { return utf8.RuneCountInString(s) }

// pad fills a text with blanks up to n cells.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-width(s)))
}

// plural is "1 GPU", "2 GPUs".
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
