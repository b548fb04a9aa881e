// Package show turns a probe's report into what people look at: a table for the
// terminal, a heat map (SVG), and a page that needs no network (HTML). All that comes
// from hosts and files is made printable and escaped here. The formats may change;
// programs read the report itself.
package show

import "github.com/topoctl/topoctl/internal/base/units"

// Options say how a report is shown.
type Options struct {
	// Units are those of rates; Auto is gigabits for ports, gigabytes for the rest.
	Units units.System
	// Columns is for people: a header, columns, and only what needs attention of long results. Without it
	// there is one line of tab-separated fields for each pair.
	Columns bool
	// Wide lists every pair, with everything else that is known of it.
	Wide bool
	// Color uses the terminal's own colours; they never carry a meaning alone.
	Color bool
	// ASCII leaves out all other characters.
	ASCII bool
}

// text is a text as these options have it.
func (o Options) text(s string) string {
	if o.ASCII {
		return ascii(s)
	}
	return s
}
