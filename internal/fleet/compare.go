package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// How many hosts, and which part of them, must agree before the others are blamed. Otherwise the hosts disagree,
// and none is blamed.
const (
	leastHosts   = 3
	majorityPart = 0.6 // more than this
)

// Codes of findings.
const (
	CodeHostOdd       Code = "host-odd"       // a host differs from the others of its kind
	CodeHostsDisagree Code = "hosts-disagree" // hosts differ, and nothing says which are right
	CodeNotCompared   Code = "not-compared"
)

// majorityOf returns the value that most hosts have, given the number of hosts with each value. ok says whether there are
// at least three hosts and more than 60 % of them have it.
func majorityOf[V cmp.Ordered](counts map[V]int) (value V, ok bool) {
	of := 0
	for _, n := range counts {
		of += n
	}
	value = mostFrequent(counts, cmp.Compare[V])
	return value, of >= leastHosts && float64(counts[value]) > majorityPart*float64(of)
}

// mostFrequent returns the value with the highest count; among several, the first in order.
func mostFrequent[V comparable](counts map[V]int, order func(a, b V) int) V {
	var best V
	for v, n := range counts {
		if n > counts[best] || n == counts[best] && order(v, best) < 0 {
			best = v
		}
	}
	return best
}

// difference is a value of a host that differs from that of most hosts.
type difference struct {
	value
	majority string
	of       *Host // one of those that have it
	count    int   // how many have it
}

// comparison compares hosts that should be alike.
type comparison struct {
	among  string
	hosts  []*Host
	values func(*Host) []value
	golden string // the label of the hosts to compare with, "" to compare hosts with each other

	facts  []Fact
	blamed []difference
}

// run compares each attribute of each place.
func (c *comparison) run() {
	by := map[cell][]value{}
	for _, h := range c.hosts {
		for _, v := range c.values(h) {
			by[v.cell] = append(by[v.cell], v)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(by), compareCells) {
		c.compare(at, by[at])
	}
	c.facts = merged(c.facts)
}

// compare compares the values of one attribute of one place.
func (c *comparison) compare(at cell, have []value) {
	if at.attr.Form == compare.Amount {
		together(have)
	}
	counts, names, known := map[string]int{}, map[string]int{}, map[*Host]bool{}
	for i := range have {
		v := &have[i]
		counts[v.text]++
		names[v.name]++
		known[v.host] = true
	}
	f := Fact{Among: c.among, Key: at.attr.Key, Of: len(have)}
	if at.place != "" {
		f.Subjects = []string{mostFrequent(names, topo.NaturalCompare)}
	}
	for _, h := range c.hosts {
		if !known[h] {
			f.Unknown = append(f.Unknown, h.Host)
		}
	}
	majority, ok := majorityOf(counts)
	agreed := ok || len(counts) == 1
	for _, same := range group.By(have, func(v value) string { return v.text }) {
		said := same[0].said()
		if agreed && same[0].text == majority {
			f.Majority, f.Hosts = &said, len(same)
			c.blame(have, &same[0], len(same))
			continue
		}
		o := Others{Value: said}
		for _, v := range same {
			o.Hosts = append(o.Hosts, v.host.Host)
		}
		f.Others = append(f.Others, o)
	}
	slices.SortFunc(f.Others, func(a, b Others) int {
		return cmp.Or(len(b.Hosts)-len(a.Hosts), topo.NaturalCompare(a.Value, b.Value))
	})
	c.facts = append(c.facts, f)
}

// blame notes the hosts whose value is not that of the majority, which count hosts have.
func (c *comparison) blame(have []value, majority *value, count int) {
	for _, v := range have {
		if v.text != majority.text {
			c.blamed = append(c.blamed, difference{v, majority.said(), majority.host, count})
		}
	}
}

// together gives nearly equal amounts the same text, that of the smallest: equal hosts differ a little in how much memory
// their kernels reserve.
func together(have []value) {
	order := make([]*value, len(have))
	for i := range have {
		order[i] = &have[i]
	}
	slices.SortFunc(order, func(a, b *value) int { return cmp.Compare(a.amount, b.amount) })
	for i := 1; i < len(order); i++ {
		if order[i].same(order[i-1]) {
			order[i].text = order[i-1].text
		}
	}
}

// merged joins facts that say the same about several devices.
func merged(list []Fact) []Fact {
	var out []Fact
	for _, same := range group.By(list, func(f Fact) string {
		majority := ""
		if f.Majority != nil {
			majority = *f.Majority
		}
		return fmt.Sprintf("%q %t %d %d %q %q", []string{f.Among, f.Key, majority}, len(f.Subjects) > 0, f.Hosts, f.Of, f.Others, f.Unknown)
	}) {
		f := same[0]
		for _, more := range same[1:] {
			f.Subjects = append(f.Subjects, more.Subjects...)
		}
		out = append(out, f)
	}
	return out
}

// mostNames is how many names a sentence has.
const mostNames = 3

// oddities are the findings about hosts that differ from most: one for each attribute and value of
// a host, its devices together.
func (c *comparison) oddities() []Finding {
	type said struct {
		host           *Host
		attr           *compare.Attribute
		text, majority string
	}
	direct := map[*Host]bool{} // hosts with a difference that others may follow from
	parts := map[*Host]bool{}  // hosts with a difference that explains why their structure differs
	for i := range c.blamed {
		d := &c.blamed[i]
		direct[d.host] = direct[d.host] || !d.attr.Follows
		parts[d.host] = parts[d.host] || d.attr.Structural && d.attr.Key != structure || d.attr.Key == "direct_links"
	}
	var out []Finding
	for _, same := range group.By(c.blamed, func(d difference) said { return said{d.host, d.attr, d.text, d.majority} }) {
		d, severity := &same[0], doctor.Warning
		if d.attr.Follows && direct[d.host] || d.attr.Key == structure && parts[d.host] {
			continue
		}
		if d.attr.Severe && slices.ContainsFunc(same, func(s difference) bool { return !s.minor }) {
			severity = doctor.Error
		}
		var names, subjects, evidence []string
		for i := range same {
			s := &same[i]
			if s.place != "" {
				names = append(names, s.name)
				subjects = append(subjects, s.host.Host+"/"+s.name)
			}
			where := "on " + text.Plural(s.count, "host")
			if c.golden != "" {
				where = "in " + c.golden
			}
			if d.attr.Key == structure {
				if differ := s.host.unlikeParts(s.of, where); len(differ) > 0 {
					evidence = append(evidence, differ...)
					continue
				}
			}
			evidence = append(evidence, fmt.Sprintf("%s%s: %s on %s, %s %s", d.attr.Key, ofWhat(s.name), s.said(), s.host.Host, s.majority, where))
		}
		out = append(out, Finding{Code: CodeHostOdd, Severity: severity, Hosts: []string{d.host.Host}, Subjects: subjects,
			Text: d.sentence(names, c.golden), Evidence: evidence, Fix: d.attr.Fix})
	}
	return out
}

func ofWhat(name string) string {
	if name == "" {
		return ""
	}
	return " of " + name
}

// wordsOf returns the words that name an attribute before its value.
func wordsOf(a *compare.Attribute) string {
	switch {
	case a.Form == compare.Count:
		return "number of " + a.Words
	case a.Key == "presence":
		return "kind of device"
	}
	return a.Words
}

// verb chooses the form of a verb that fits an attribute's words.
func verb(a *compare.Attribute, one, many string) string {
	if a.Form == compare.Many || a.Form == compare.Set {
		return many
	}
	return one
}

// sentence says what a host has and what the others have, or the golden one. A set is told by what differs.
func (d *difference) sentence(names []string, golden string) string {
	a, own, others := d.attr, d.said(), d.majority
	what, they, where, who := wordsOf(a)+ofWhat(text.Join(names, mostNames)), "the others have", "on the others", "the others"
	if golden != "" {
		they, where, who = golden+" has", "in "+golden, golden
	}
	switch {
	case a.Form == compare.Count:
		return fmt.Sprintf("%s, %s %s", counted(a, own), others, where)
	case a.Key == structure:
		if differ := d.host.unlikeParts(d.of, where); len(differ) > 0 {
			return "it is built differently from " + who + ": " + text.Join(differ, mostNames)
		}
		return "it has the parts of " + who + ", but not in the same places"
	case a.Form == compare.Set:
		lacks, has := setDifference(others, own), setDifference(own, others)
		switch {
		case len(has) == 0:
			return fmt.Sprintf("%s: lacks %s, which %s", what, text.Join(lacks, mostNames), they)
		case len(lacks) == 0:
			return fmt.Sprintf("%s: has %s, which %s not", what, text.Join(has, mostNames), they)
		}
		return fmt.Sprintf("%s: has %s where %s %s", what, text.Join(has, mostNames), they, text.Join(lacks, mostNames))
	}
	return fmt.Sprintf("%s %s %s, %s %s", what, verb(a, "is", "are"), own, others, where)
}

// counted is a number of what the attribute counts: "7 GPUs".
func counted(a *compare.Attribute, number string) string {
	n, err := strconv.Atoi(number)
	if err != nil {
		return number
	}
	return text.Plural(n, a.Single())
}

func (c *comparison) hostNamed(name string) *Host {
	return c.hosts[slices.IndexFunc(c.hosts, func(h *Host) bool { return h.Host == name })]
}

// setDifference returns the words of a set's text that the other set lacks.
func setDifference(a, b string) []string {
	if a == "none" {
		return nil
	}
	others := strings.Split(b, ", ")
	return slices.DeleteFunc(strings.Split(a, ", "), func(w string) bool { return slices.Contains(others, w) })
}

// disagreements are the findings about values that nothing says which are right.
func (c *comparison) disagreements() []Finding {
	open := slices.DeleteFunc(slices.Clone(c.facts), func(f Fact) bool { return f.Majority != nil })
	direct := slices.ContainsFunc(open, func(f Fact) bool { return !compare.Of(f.Key).Follows })
	var out []Finding
	for _, f := range open {
		a := compare.Of(f.Key)
		if a.Follows && direct {
			continue
		}
		var parts, hosts []string
		for i, o := range f.Others {
			value := o.Value
			switch {
			case a.Key == structure:
				value = "one"
			case a.Form == compare.Count && i == 0:
				value = counted(a, value)
			}
			parts = append(parts, fmt.Sprintf("%s on %s", value, text.Join(o.Hosts, mostNames)))
			hosts = append(hosts, o.Hosts...)
		}
		slices.SortFunc(hosts, topo.NaturalCompare)
		said := wordsOf(a) + ofWhat(text.Join(f.Subjects, mostNames)) + " " + verb(a, "is", "are") + " " + text.Join(parts, mostNames)
		switch {
		case a.Form == compare.Count:
			said = text.Join(parts, mostNames)
		case a.Key == structure:
			said = fmt.Sprintf("they are built in %d ways", len(f.Others))
			x, y := c.hostNamed(f.Others[0].Hosts[0]), c.hostNamed(f.Others[1].Hosts[0])
			if differ := x.unlikeParts(y, "on "+y.Host); len(differ) > 0 {
				said += ": on " + x.Host + " " + text.Join(differ, mostNames)
				parts = differ
			}
		}
		out = append(out, Finding{Code: CodeHostsDisagree, Severity: doctor.Warning, Hosts: hosts, Text: said, Evidence: parts,
			Fix: "nothing says which value is right: compare with --against GOLDEN, or collect more hosts of this kind"})
	}
	return out
}

// configurations accepts several structures of one model if enough hosts have each of them, because a model may be sold
// in several configurations. Hosts with any other structure are odd.
func (c *comparison) configurations() []Finding {
	const leastPart = 0.1
	ways, several := map[string]int{}, 0
	for _, h := range c.hosts {
		ways[h.Fingerprint]++
	}
	enough := func(fingerprint string) bool {
		n := ways[fingerprint]
		return fingerprint != "" && n >= leastHosts && float64(n) >= leastPart*float64(len(c.hosts))
	}
	for fingerprint := range ways {
		if enough(fingerprint) {
			several++
		}
	}
	if several < 2 {
		return nil
	}
	values := c.values
	c.values = func(h *Host) []value {
		return slices.DeleteFunc(values(h), func(v value) bool { return v.attr.Structural })
	}
	var out []Finding
	for _, h := range c.hosts {
		if h.Fingerprint == "" || enough(h.Fingerprint) {
			continue
		}
		out = append(out, Finding{Code: CodeHostOdd, Severity: doctor.Warning, Hosts: []string{h.Host},
			Text:     fmt.Sprintf("it is built in none of the %d ways in which others of its model are", several),
			Evidence: []string{fmt.Sprintf("fingerprint %s on %s", h.Fingerprint, text.Plural(ways[h.Fingerprint], "host"))}, Fix: compare.Of(structure).Fix})
	}
	return out
}
