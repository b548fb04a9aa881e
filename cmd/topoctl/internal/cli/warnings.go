package cli

import (
	"fmt"
	"io"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// mostWarnings is how many warnings of one code are printed: a host with one
// fault in 200 devices would flood the terminal.
const mostWarnings = 10

// tell writes lines to stderr unless --quiet is given: what they are, such as "note", and their text.
func (in *Host) tell(what string, lines ...string) {
	for _, line := range lines {
		if !in.Globals.Quiet {
			fmt.Fprintln(in.Streams.Err, "topoctl: "+what+": "+text.Printable(line))
		}
	}
}

// printWarnings writes a topology's warnings, one a line, many of a kind cut
// short. Warnings are sorted by code. of is "peer: " for those of another host.
func printWarnings(w io.Writer, of string, warnings []topo.Warning) {
	for i := 0; i < len(warnings); {
		end := i
		for end < len(warnings) && warnings[end].Code == warnings[i].Code {
			end++
		}
		shown := min(end, i+mostWarnings)
		for _, x := range warnings[i:shown] {
			fmt.Fprintln(w, "topoctl: warning: "+of+text.Printable(x.String()))
		}
		if rest := end - shown; rest > 0 {
			fmt.Fprintf(w, "topoctl: warning: %s%s: ... and %d more (see .warnings in the JSON)\n", of, warnings[i].Code, rest)
		}
		i = end
	}
}

// printSources writes how each source did, for --verbose.
func printSources(w io.Writer, sources []topo.SourceReport) {
	for _, s := range sources {
		line := "topoctl: source " + string(s.Source) + ": " + string(s.Status)
		if s.Recorded {
			line += " (recorded)"
		}
		if s.Detail != "" {
			line += ": " + s.Detail
		}
		fmt.Fprintln(w, text.Printable(line))
	}
}
