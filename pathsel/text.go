package pathsel

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// table aligns rows in columns below a heading.
func table(rows [][]string) string {
	return "  " + strings.Join(text.Columns(rows), "\n  ") + "\n"
}

// line is a reason with its code.
func (r *Reason) line() string { return fmt.Sprintf("%s: %s", r.Code, r.Text) }

// withEvidence is a reason with its code and, if known, where it was read.
func (r *Reason) withEvidence() string {
	if r.Evidence == "" {
		return r.line()
	}
	return r.line() + " (" + r.Evidence + ")"
}

// withNotes appends notes to a line.
func withNotes(line string, notes []Reason) string {
	for i := range notes {
		line += "; " + notes[i].line()
	}
	return line
}

// rateOr is a rate, "at most" where it is an upper bound.
func rateOr(r *topo.Rate, basis topo.Basis, unknown string) string {
	switch {
	case r == nil:
		return unknown
	case basis == topo.BasisAssumed:
		return "at most " + units.Rate(int64(*r), units.Gbyte)
	}
	return units.Rate(int64(*r), units.Gbyte)
}

func classOr(c topo.Class, unknown string) string {
	if !c.Known() {
		return unknown
	}
	return c.String()
}
