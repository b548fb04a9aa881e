package show

import (
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// Changes are what is different between two fleets: the answer, then a row for each difference.
func Changes(c *fleet.Changes, o Options) string {
	w := newWriter(o)
	w.headline(c.Headline(), o)
	if rows := ChangeRows(c); len(rows) > 1 {
		w.b.WriteString("\n")
		most := mostHosts
		if o.All {
			most = len(rows) + 1<<20
		}
		shown := [][]string{rows[0]}
		for _, same := range group.By(changes(c), func(r change) [2]string { return [2]string{r.kind, r.what} }) {
			var hosts []string
			for _, r := range same {
				hosts = append(hosts, r.hosts...)
			}
			shown = append(shown, []string{same[0].kind, text.List(hosts, most), same[0].what})
		}
		w.table(shown)
	}
	return w.b.String()
}

type change struct {
	kind, what string
	hosts      []string
}

func changes(c *fleet.Changes) []change {
	var out []change
	for _, h := range c.Hosts {
		what := ""
		if h.Reason != "" {
			what = "not reached: " + h.Reason
		}
		out = append(out, change{h.Change, what, []string{h.Host}})
	}
	for i := range c.Facts {
		out = append(out, change{"changed", c.Facts[i].Sentence(), c.Facts[i].Hosts})
	}
	for _, x := range c.Appeared {
		out = append(out, change{"appeared", string(x.Code) + ": " + x.Text, x.Hosts})
	}
	for _, x := range c.Gone {
		out = append(out, change{"gone", string(x.Code) + ": " + x.Text, x.Hosts})
	}
	return out
}

// ChangeRows are the differences as rows below a head.
func ChangeRows(c *fleet.Changes) [][]string {
	rows := [][]string{{"CHANGE", "HOSTS", "WHAT"}}
	for _, r := range changes(c) {
		rows = append(rows, []string{r.kind, text.List(r.hosts, len(r.hosts)+1), r.what})
	}
	return rows
}
