package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// SchemaChanges is the name and major version of a comparison of two fleets as a document.
const SchemaChanges = "topoctl.fleet-diff/v1"

// Changes is how a fleet differs from an earlier collection of it. Hosts are matched by name.
type Changes struct {
	Schema   string `json:"schema"`
	Old      string `json:"old"` // labels
	New      string `json:"new"`
	Equal    bool   `json:"equal"`
	Compared int    `json:"hosts_compared"`
	// Hosts that came, went, are no longer reached, or are reached again.
	Hosts []HostChange `json:"hosts"`
	Facts []FactChange `json:"facts"`
	// Appeared are findings that the new fleet has and the old one has not, Gone the others.
	Appeared []Finding `json:"findings_appeared"`
	Gone     []Finding `json:"findings_gone"`
}

// HostChange is a host that only one fleet knows: "added", "removed", "lost" (not reached any more)
// or "back".
type HostChange struct {
	Host   string `json:"host"`
	Change string `json:"change"`
	Reason string `json:"reason,omitempty"`
}

// FactChange is a fact that changed in the same way on some hosts.
type FactChange struct {
	Key      string   `json:"key"`
	Subjects []string `json:"subjects,omitempty"` // devices; none: the host
	Old      string   `json:"old"`
	New      string   `json:"new"`
	Hosts    []string `json:"hosts"`
}

// Compare says how the newer fleet differs. A fact about a host that only one of the two fleets has is not a
// difference.
func Compare(older, newer *Fleet, oldLabel, newLabel string) *Changes {
	c := &Changes{Schema: SchemaChanges, Old: oldLabel, New: newLabel, Hosts: []HostChange{}, Facts: []FactChange{}, Appeared: []Finding{}, Gone: []Finding{}}
	before := map[string]*Host{}
	for i := range older.Hosts {
		before[older.Hosts[i].Host] = &older.Hosts[i]
	}
	var all []changed
	for i := range newer.Hosts {
		h := &newer.Hosts[i]
		old := before[h.Host]
		delete(before, h.Host)
		switch {
		case old == nil:
			c.Hosts = append(c.Hosts, HostChange{Host: h.Host, Change: "added", Reason: h.Reason})
		case old.Known() && !h.Known():
			c.Hosts = append(c.Hosts, HostChange{Host: h.Host, Change: "lost", Reason: h.Reason})
		case !old.Known() && h.Known():
			c.Hosts = append(c.Hosts, HostChange{Host: h.Host, Change: "back"})
		case h.Known():
			c.Compared++
			all = append(all, changesOf(old, h)...)
		}
	}
	for name := range before {
		c.Hosts = append(c.Hosts, HostChange{Host: name, Change: "removed"})
	}
	slices.SortFunc(c.Hosts, func(a, b HostChange) int {
		return cmp.Or(strings.Compare(a.Change, b.Change), topo.NaturalCompare(a.Host, b.Host))
	})
	c.Facts = append(c.Facts, likeChanges(all)...)
	c.Appeared, c.Gone = append(c.Appeared, missingIn(newer.Findings, older.Findings)...), append(c.Gone, missingIn(older.Findings, newer.Findings)...)
	c.Equal = len(c.Hosts)+len(c.Facts)+len(c.Appeared)+len(c.Gone) == 0
	return c
}

// changed is a value of one host that changed.
type changed struct {
	value
	before, after string
}

// changesOf compares a host with itself.
func changesOf(old, now *Host) []changed {
	was := map[cell]value{}
	for _, v := range old.valuesAgainst(now) {
		was[v.cell] = v
	}
	var out []changed
	for _, v := range now.valuesAgainst(old) {
		if w, ok := was[v.cell]; ok && !w.same(&v) {
			out = append(out, changed{v, w.said(), v.said()})
		}
	}
	return out
}

// likeChanges puts changes together that are the same on several devices of a host, then on several hosts.
func likeChanges(all []changed) []FactChange {
	type said struct {
		host          *Host
		attr          *compare.Attribute
		before, after string
	}
	var each, out []FactChange
	for _, same := range group.By(all, func(c changed) said { return said{c.host, c.attr, c.before, c.after} }) {
		first := &same[0]
		f := FactChange{Key: first.attr.Key, Old: first.before, New: first.after, Hosts: []string{first.host.Host}}
		for _, c := range same {
			if c.name != "" {
				f.Subjects = append(f.Subjects, c.name)
			}
		}
		each = append(each, f)
	}
	for _, same := range group.By(each, func(f FactChange) [4]string {
		return [4]string{f.Key, strings.Join(f.Subjects, "\x00"), f.Old, f.New}
	}) {
		f := same[0]
		for _, more := range same[1:] {
			f.Hosts = append(f.Hosts, more.Hosts...)
		}
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b FactChange) int {
		return cmp.Or(compare.Position(a.Key)-compare.Position(b.Key), compareLists(a.Hosts, b.Hosts), compareLists(a.Subjects, b.Subjects))
	})
	return out
}

// missingIn returns the findings of a list that the other list lacks.
func missingIn(list, other []Finding) []Finding {
	key := func(x *Finding) string {
		return x.Source + "\x00" + string(x.Code) + "\x00" + strings.Join(x.Hosts, ",") + "\x00" + strings.Join(x.Subjects, ",") + "\x00" + x.Text
	}
	has := map[string]bool{}
	for i := range other {
		has[key(&other[i])] = true
	}
	var out []Finding
	for i := range list {
		if !has[key(&list[i])] {
			out = append(out, list[i])
		}
	}
	return out
}

// Headline is the answer in a sentence.
func (c *Changes) Headline() string {
	if c.Equal {
		return fmt.Sprintf("Nothing changed: %s compared.", text.Plural(c.Compared, "host"))
	}
	var parts []string
	for _, same := range group.By(c.Hosts, func(h HostChange) string { return h.Change }) {
		var names []string
		for _, h := range same {
			names = append(names, h.Host)
		}
		said := map[string]string{"added": "added", "removed": "removed", "lost": "not reached any more", "back": "reached again"}[same[0].Change]
		parts = append(parts, fmt.Sprintf("%s %s: %s", text.Plural(len(same), "host"), said, text.List(names, mostNames)))
	}
	if len(c.Facts) > 0 {
		var hosts []string
		for _, f := range c.Facts {
			hosts = append(hosts, f.Hosts...)
		}
		slices.SortFunc(hosts, topo.NaturalCompare)
		hosts = slices.Compact(hosts)
		s := fmt.Sprintf("%s changed: %s: %s", text.Plural(len(hosts), "host"), text.List(hosts, mostNames), c.Facts[0].Sentence())
		parts = append(parts, andMore(s, len(c.Facts)-1, "change"))
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("%s appeared, %d are gone", text.Plural(len(c.Appeared), "finding"), len(c.Gone)))
	}
	return strings.Join(parts, ". ") + "."
}

// Sentence says what was and what is, without the hosts.
func (f *FactChange) Sentence() string {
	a := compare.Of(f.Key)
	switch {
	case a.Key == structure:
		return "it is built differently"
	case a.Form == compare.Set:
		var parts []string
		if more := setDifference(f.New, f.Old); len(more) > 0 {
			parts = append(parts, "has "+text.Join(more, mostNames))
		}
		if less := setDifference(f.Old, f.New); len(less) > 0 {
			parts = append(parts, "has no longer "+text.Join(less, mostNames))
		}
		return wordsOf(a) + ": " + strings.Join(parts, ", ")
	}
	return fmt.Sprintf("%s%s %s %s, %s %s", wordsOf(a), ofWhat(text.Join(f.Subjects, mostNames)), verb(a, "was", "were"), f.Old, verb(a, "is", "are"), f.New)
}
