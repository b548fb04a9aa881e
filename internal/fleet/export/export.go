// Package export writes a fleet in the formats that schedulers, clusters and other tools read.
//
// Facts that a format cannot hold, and facts that the fleet lacks, are in the notes of an Output and in comments of the
// file. Names that a format forbids are replaced, and different names stay different.
package export

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// Output is a file for another program.
type Output struct {
	Data []byte
	// Notes say what the form cannot hold, or what was left out because it is not known.
	Notes []string
}

// head begins a file with what it is and what it lacks.
func head(what string, notes []string) *bytes.Buffer {
	return begin("# ", "# "+what+", written by topoctl fleet export.\n", notes)
}

// begin is head with a first line of its own; sign begins a comment.
func begin(sign, first string, notes []string) *bytes.Buffer {
	out := bytes.NewBufferString(first)
	for _, n := range notes {
		fmt.Fprintf(out, "%s%s\n", sign, comment(n))
	}
	return out
}

// comment keeps a text on its line.
func comment(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text.Printable(s))
}
