package cli

import (
	"cmp"
	"fmt"
	"regexp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Look is how an answer is printed for people.
type Look struct {
	report.Look
	Verbose bool
	Units   units.System
}

// Look is how the flags have answers printed.
func (in *Host) Look() Look {
	g := &in.Globals
	return Look{report.Look{Color: in.Color(), Width: in.Streams.Width, ASCII: g.ASCII}, g.Verbose, units.System(g.Units).Or(units.Gbyte)}
}

// The colours of answers.
const (
	Strong  = report.Strong
	Faint   = report.Faint
	Good    = report.Good
	Caution = report.Caution
	Bad     = report.Bad
)

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

// Row is a line of a listing.
type Row = report.Row

// Listing sets rows in columns, the last of which is wrapped to the terminal.
func (l *Look) Listing(rows []Row) string { return l.Table(&report.Table{Rows: rows, Indent: "  "}) }

// answerTable is a table of an answer, with a head.
func answerTable(head ...string) *report.Table { return &report.Table{Head: head, Indent: "  "} }

// status is a line on a terminal at stderr that is drawn over and over while a command runs.
type status struct {
	in    *Host
	drawn bool
}

// show draws the line, where somebody sees it.
func (s *status) show(line string) {
	to := &s.in.Streams
	if !to.ErrTTY || s.in.Globals.Quiet {
		return
	}
	s.drawn = true
	fmt.Fprint(to.Err, clearLine+text.Cut(text.Printable(line), max(20, cmp.Or(to.Width, 80)-1), text.Dots))
}

// end takes the line away.
func (s *status) end() {
	if s.drawn {
		fmt.Fprint(s.in.Streams.Err, clearLine)
	}
}

// clearLine begins a terminal's line anew.
const clearLine = "\r\x1b[K"
