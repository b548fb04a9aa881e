package fabric

import (
	"strings"
	"unicode"

	"github.com/topoctl/topoctl/internal/base/text"
)

// clip makes a text of another host one printable line of at most most bytes.
func clip(s string, most int) string {
	if s = text.Printable(strings.Join(strings.Fields(s), " ")); len(s) > most {
		s = strings.ToValidUTF8(s[:most-len(text.Dots)], "") + text.Dots
	}
	return s
}

// isPrintable says whether a name may be taken over as it is. What was no UTF-8 is a
// replacement character once it is read.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}
