package show

import (
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
)

// Changes are what is different between two fleets: the answer, then a row for each difference.
func Changes(c *fleet.Changes, o Options) string {
	t := o.text()
	t.Answer(c.Headline(), "")
	most := mostHosts
	if o.All {
		most = 1 << 20
	}
	rows := changeTable()
	for _, same := range group.By(changes(c), func(r change) [2]string { return [2]string{r.kind, r.what} }) {
		var hosts []string
		for _, r := range same {
			hosts = append(hosts, r.hosts...)
		}
		rows.Add(same[0].kind, text.List(hosts, most), same[0].what)
	}
	if len(rows.Rows) > 0 {
		t.Gap()
		t.Table(rows)
	}
	return t.String()
}

func changeTable() *report.Table { return report.TableOf([]string{"CHANGE", "HOSTS", "WHAT"}) }

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

// ChangeRows are the differences, a row for each.
func ChangeRows(c *fleet.Changes) *report.Table {
	rows := changeTable()
	for _, r := range changes(c) {
		rows.Add(r.kind, text.List(r.hosts, len(r.hosts)+1), r.what)
	}
	return rows
}
