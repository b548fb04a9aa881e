package show

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Changes is what differs between two reports: how much in the first line, then a line for each change.
// Pairs that were not compared for one reason are one line.
func Changes(changes []Change, o Options) string {
	t := &report.Text{Look: o.Look}
	t.Answer(changesText(changes), report.Strong)
	rows := &report.Table{}
	alike := map[string]int{}
	for i := range changes {
		if c := &changes[i]; c.Kind == NotCompared {
			alike[c.Reason]++
		}
	}
	for i := range changes {
		c := &changes[i]
		name := c.Pair
		switch n := alike[c.Reason]; {
		case c.Kind == NotCompared && n == 0:
			continue
		case c.Kind == NotCompared && n > 1 && !o.everything():
			name = text.Plural(n, "pair")
			alike[c.Reason] = 0
		case c.Kind == Settings:
			name = c.Setting
		case c.Host != "":
			name = "host " + c.Host
		}
		rows.Add(string(c.Kind), clean(name), changeText(c, o.Units))
	}
	t.Table(rows)
	return t.String()
}

// changesText counts changes by kind.
func changesText(changes []Change) string {
	n, order := map[Kind]int{}, []Kind{}
	total := 0
	var differ []string
	for i := range changes {
		c := &changes[i]
		if c.Kind == Settings {
			differ = append(differ, c.Setting)
		}
		if n[c.Kind]++; n[c.Kind] == 1 {
			order = append(order, c.Kind)
		}
		if IsDifference(*c) {
			total++
		}
	}
	line := "No differences"
	if total > 0 {
		line = text.Plural(total, "difference")
		var list []string
		for _, k := range order {
			if what := changeWords[k]; what[0] != "" {
				list = append(list, text.Plural(n[k], what[0], what[1]))
			}
		}
		line += ": " + strings.Join(list, ", ")
	}
	if k := n[NotCompared]; k > 0 {
		line += fmt.Sprintf("; %s not compared", text.Plural(k, "pair was", "pairs were"))
	}
	if len(differ) > 0 {
		line += "; the runs had different settings (" + strings.Join(differ, ", ") + ")"
	}
	return line
}

// changeWords are what the differences of a kind are called, one and many.
var changeWords = map[Kind][2]string{
	Topology: {"host changed", "hosts changed"}, Gone: {"gone", "gone"}, New: {"new", "new"},
	Verdict: {"other verdict", "other verdicts"}, Slower: {"slower", "slower"}, Faster: {"faster", "faster"},
}

func changeText(c *Change, u units.System) string {
	text := ""
	switch c.Kind {
	case Settings:
		text = clean(c.ASetting) + " -> " + clean(c.BSetting)
	case Topology:
		text = "its topology has changed"
	case Gone:
		text = "not in the second report"
		if c.AVerdict != "" {
			text += ", was " + string(c.AVerdict)
		}
	case New:
		text = "not in the first report"
		if c.BVerdict != "" {
			text += ", is " + string(c.BVerdict)
		}
	case Verdict:
		text = string(c.AVerdict) + " -> " + string(c.BVerdict)
	case Slower, Faster:
		u = unitOf(c.Of, u)
		text = fmt.Sprintf("%s %s -> %s %s (%+.1f %%)", interval(*c.A, c.ACI95, u), u.Suffix(), interval(*c.B, c.BCI95, u), u.Suffix(),
			100*(float64(*c.B)/float64(max(1, *c.A))-1))
	}
	if c.Reason != "" {
		if text != "" {
			text += ": "
		}
		text += clean(c.Reason)
	}
	return text
}
