package fabric

import (
	"strings"
	"unicode"
)

// printable makes a text of another host one line that a terminal shows as it is.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return '?'
		}
		return r
	}, s)
}

// clip is a printable text of at most so many bytes.
func clip(s string, most int) string {
	if s = printable(s); len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// printableWord is what somebody else calls something, for an error.
func printableWord(s string) string { return clip(s, 40) }
