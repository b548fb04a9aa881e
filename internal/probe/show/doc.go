// Package show turns a probe's report into what people look at: a table for the
// terminal, a heat map (SVG), and a page that needs no network (HTML). The formats may
// change; programs read the report itself.
package show

import (
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Options say how a report is shown.
type Options struct {
	report.Look
	// Units are those of rates; Auto is gigabits for ports, gigabytes for the rest.
	Units units.System
	// All lists every pair with its first reason, all evidence and all notes. Without it there is what needs
	// attention, and one line if nothing does.
	All bool
	// Wide does the same with everything else that is known of a pair.
	Wide bool
}

// everything says whether nothing is folded.
func (o Options) everything() bool { return o.All || o.Wide }

// text is a text as these options have it.
func (o Options) text(s string) string {
	if o.ASCII {
		return text.InASCII(s)
	}
	return s
}
