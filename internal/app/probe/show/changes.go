package show

import (
	"fmt"
	"io"

	"github.com/topoctl/topoctl/internal/app/probe/compare"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// Changes writes what differs between two reports, a line each, and their number. For
// programs (no Options.Columns) the fields are separated by tabs, and the number is left
// out.
func Changes(w io.Writer, changes []compare.Change, o Options) error {
	p := &printer{o: o}
	for i := range changes {
		c := &changes[i]
		name := c.Pair
		if c.Host != "" {
			name = "host " + c.Host
		}
		if o.Columns {
			p.linef("%-12s  %s  %s", c.Kind, clean(name), changeText(c, o.Units))
		} else {
			p.linef("%s\t%s\t%s", c.Kind, clean(name), changeText(c, o.Units))
		}
	}
	if o.Columns {
		p.linef("%s", changesText(changes))
	}
	return p.flush(w)
}

func changesText(changes []compare.Change) string {
	n := 0
	for i := range changes {
		if changes[i].Kind != compare.NotCompared {
			n++
		}
	}
	if n == 0 {
		return "no differences"
	}
	return text.Plural(n, "difference")
}

func changeText(c *compare.Change, u units.System) string {
	text := ""
	switch c.Kind {
	case compare.Topology:
		text = "its topology has changed"
	case compare.Gone:
		text = "not in the second report"
		if c.AVerdict != "" {
			text += ", was " + string(c.AVerdict)
		}
	case compare.New:
		text = "not in the first report"
		if c.BVerdict != "" {
			text += ", is " + string(c.BVerdict)
		}
	case compare.Verdict:
		text = string(c.AVerdict) + " -> " + string(c.BVerdict)
	case compare.Slower, compare.Faster:
		u = unitOf(c.Of, u)
		text = interval(c.A, c.ACI95, u) + " -> " + interval(c.B, c.BCI95, u) + fmt.Sprintf(" (%+.1f %%)", 100*(float64(*c.B)/float64(max(1, *c.A))-1))
	}
	if c.Reason != "" {
		if text != "" {
			text += ": "
		}
		text += clean(c.Reason)
	}
	return text
}

// interval is a mean with its interval and unit.
func interval(mean, ci *int64, u units.System) string {
	text := rate(mean, u)
	if ci != nil {
		text += " ±" + rate(ci, u)
	}
	return text + " " + u.Suffix()
}
