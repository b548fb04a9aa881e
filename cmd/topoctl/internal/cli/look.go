package cli

import (
	"cmp"
	"fmt"

	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Look is how an answer is printed for people.
type Look = report.Look

// Look is how the flags have answers printed.
func (in *Host) Look() Look {
	g := &in.Globals
	return Look{Color: in.Color(), Width: in.Streams.Width, ASCII: g.ASCII, Verbose: g.Verbose, Units: units.System(g.Units).Or(units.Gbyte)}
}

// The colours of answers.
const (
	Strong  = report.Strong
	Faint   = report.Faint
	Good    = report.Good
	Caution = report.Caution
	Bad     = report.Bad
)

// Row is a line of a listing.
type Row = report.Row

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
