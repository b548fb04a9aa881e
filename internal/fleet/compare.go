package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// What it takes to say which host is wrong: fewer hosts, or a smaller part of them, disagree and
// nobody is blamed.
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

// majorityOf is the value that most hosts have, by the number of hosts that have each; ok says whether these are more
// than 60 % of three hosts or more.
func majorityOf[V cmp.Ordered](counts map[V]int) (value V, ok bool) {
	of, most := 0, 0
	for v, n := range counts {
		if of += n; n > most || n == most && v < value {
			value, most = v, n
		}
	}
	return value, of >= leastHosts && float64(most) > majorityPart*float64(of)
}

// cell is where a value is: the same attribute of the same place of several hosts is compared.
type cell struct {
	attr  *attribute
	place string
}

// holding is a value and the host that has it.
type holding struct {
	host *Host
	value
}

// difference is that a host has another value than most.
type difference struct {
	holding
	majority string
	of       *Host // one of those that have it, for names
	count    int   // how many have it
	alike    int   // how many have the host's own value
}

// comparison compares hosts that should be alike.
type comparison struct {
	among  string
	hosts  []*Host
	values func(*Host) []value
	golden string // what hosts are compared with instead of each other, "" for those

	facts     []fact
	blamed    []difference
	disagreed []fact
}

// fact is a Fact with what is needed to put it together with like ones.
type fact struct {
	Fact
	cell cell
}

// run compares each attribute of each place.
func (c *comparison) run() {
	by := map[cell][]holding{}
	for _, h := range c.hosts {
		for _, v := range c.values(h) {
			at := cell{v.attr, v.place}
			by[at] = append(by[at], holding{h, v})
		}
	}
	cells := make([]cell, 0, len(by))
	for at := range by {
		cells = append(cells, at)
	}
	slices.SortFunc(cells, func(a, b cell) int {
		return cmp.Or(a.attr.rank()-b.attr.rank(), topo.NaturalCompare(a.place, b.place))
	})
	for _, at := range cells {
		c.compare(at, by[at])
	}
}

// compare compares the values of one attribute of one place.
func (c *comparison) compare(at cell, have []holding) {
	if at.attr.near {
		together(have)
	}
	counts, names := map[string]int{}, map[string]int{}
	for _, v := range have {
		counts[v.text]++
		names[v.name]++
	}
	f := fact{Fact: Fact{Among: c.among, Key: at.attr.key, Of: len(have)}, cell: at}
	if at.place != "" {
		f.Subjects = []string{mostFrequent(names)}
	}
	if len(have) < len(c.hosts) {
		known := map[string]bool{}
		for _, v := range have {
			known[v.host.Host] = true
		}
		for _, h := range c.hosts {
			if !known[h.Host] {
				f.Unknown = append(f.Unknown, h.Host)
			}
		}
	}
	majority, ok := majorityOf(counts)
	if ok || len(counts) == 1 {
		if !ok {
			majority = have[0].text
		}
		shown := have[slices.IndexFunc(have, func(v holding) bool { return v.text == majority })].host
		told := shown.named(majority)
		f.Majority, f.Hosts = &told, counts[majority]
		for _, v := range have {
			if v.text != majority {
				c.blamed = append(c.blamed, difference{v, told, shown, counts[majority], counts[v.text]})
			}
		}
	}
	for _, same := range group.By(have, func(v holding) string { return v.text }) {
		if f.Majority != nil && same[0].text == majority {
			continue
		}
		o := Others{Value: same[0].host.named(same[0].text)}
		for _, v := range same {
			o.Hosts = append(o.Hosts, v.host.Host)
		}
		f.Others = append(f.Others, o)
	}
	slices.SortFunc(f.Others, func(a, b Others) int {
		return cmp.Or(len(b.Hosts)-len(a.Hosts), topo.NaturalCompare(a.Value, b.Value))
	})
	if f.Majority == nil {
		c.disagreed = append(c.disagreed, f)
	}
	c.facts = append(c.facts, f)
}

// together gives values within 2 % of the next smaller one its text: what a kernel keeps for itself
// differs a little between equal hosts.
func together(have []holding) {
	order := make([]int, len(have))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(have[a].number, have[b].number) })
	for i, at := range order[min(1, len(order)):] {
		before := &have[order[i]]
		if v := &have[at]; float64(v.number-before.number) <= 0.02*float64(v.number) {
			v.text = before.text
		}
	}
}

func mostFrequent(counts map[string]int) string {
	best, n := "", 0
	for name, count := range counts {
		if count > n || count == n && topo.NaturalCompare(name, best) < 0 {
			best, n = name, count
		}
	}
	return best
}

// merged puts facts together that say the same of several devices.
func merged(list []fact) []Fact {
	var out []Fact
	for _, same := range group.By(list, func(f fact) string {
		said := fmt.Sprintf("%s\x00%s\x00%t\x00%d\x00%d", f.Among, f.Key, len(f.Subjects) > 0, f.Hosts, f.Of)
		if f.Majority != nil {
			said += "\x00" + *f.Majority
		}
		for _, o := range f.Others {
			said += "\x00" + o.Value + "\x01" + strings.Join(o.Hosts, "\x01")
		}
		return said + "\x00" + strings.Join(f.Unknown, "\x01")
	}) {
		f := same[0].Fact
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
	type said struct{ host, key, value, majority string }
	direct := map[string]bool{} // hosts with a difference that others may follow from
	structural := map[string]bool{}
	for i := range c.blamed {
		d := &c.blamed[i]
		direct[d.host.Host] = direct[d.host.Host] || !d.attr.follows
		structural[d.host.Host] = structural[d.host.Host] || d.attr.structural && d.attr != attrStructure || d.attr == attrLinks
	}
	var out []Finding
	for _, same := range group.By(c.blamed, func(d difference) said { return said{d.host.Host, d.attr.key, d.text, d.majority} }) {
		d, severity := &same[0], same[0].attr.severity
		if severity == doctor.Error && !slices.ContainsFunc(same, func(s difference) bool { return !s.minor }) {
			severity = doctor.Warning
		}
		if d.attr.follows && direct[d.host.Host] || d.attr == attrStructure && structural[d.host.Host] {
			continue
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
			if differ := s.host.unlikeParts(s.of, where); d.attr == attrStructure && len(differ) > 0 {
				evidence = append(evidence, differ...)
				continue
			}
			evidence = append(evidence, fmt.Sprintf("%s%s: %s on %s, %s %s", d.attr.key, ofWhat(s.name), s.host.named(s.text), s.host.Host, s.majority, where))
		}
		sentence := d.sentence(names, c.golden)
		out = append(out, Finding{Code: CodeHostOdd, Severity: severity, Hosts: []string{d.host.Host}, Subjects: subjects,
			Text: sentence, Evidence: evidence, Fix: d.attr.fix})
	}
	return out
}

func ofWhat(name string) string {
	if name == "" {
		return ""
	}
	return " of " + name
}

// sentence says what a host has and what the others have, or the golden one. A set is told by what differs.
func (d *difference) sentence(names []string, golden string) string {
	a, own, others := d.attr, d.host.named(d.text), d.majority
	what, they, where, who := a.words+ofWhat(text.Join(names, mostNames)), "the others have", "on the others", "the others"
	if golden != "" {
		they, where, who = golden+" has", "in "+golden, golden
	}
	if a.noun != "" {
		return fmt.Sprintf("%s, %s %s", a.counted(own), others, where)
	}
	switch a {
	case attrStructure:
		if differ := d.host.unlikeParts(d.of, where); len(differ) > 0 {
			return "it is built differently from " + who + ": " + text.Join(differ, mostNames)
		}
		return "it has the parts of " + who + ", but not in the same places"
	case attrModules, attrOptions:
		lacks, has := setDifference(others, own), setDifference(own, others)
		switch {
		case len(has) == 0:
			return fmt.Sprintf("%s: lacks %s, which %s", what, text.Join(lacks, mostNames), they)
		case len(lacks) == 0:
			return fmt.Sprintf("%s: has %s, which %s not", what, text.Join(has, mostNames), they)
		}
		return fmt.Sprintf("%s: has %s where %s %s", what, text.Join(has, mostNames), they, text.Join(lacks, mostNames))
	}
	return fmt.Sprintf("%s %s %s, %s %s", what, a.verb("is", "are"), own, others, where)
}

// counted is a number of what the attribute counts: "7 GPUs".
func (a *attribute) counted(number string) string {
	n, err := strconv.Atoi(number)
	if err != nil {
		return number
	}
	return text.Plural(n, a.noun)
}

func (c *comparison) hostNamed(name string) *Host {
	return c.hosts[slices.IndexFunc(c.hosts, func(h *Host) bool { return h.Host == name })]
}

// setDifference are the words of a set's text that another lacks.
func setDifference(a, b string) []string {
	if a == "none" {
		return nil
	}
	others := strings.Split(b, ", ")
	return slices.DeleteFunc(strings.Split(a, ", "), func(w string) bool { return slices.Contains(others, w) })
}

// disagreements are the findings about values that nothing says which are right.
func (c *comparison) disagreements(list []Fact) []Finding {
	direct := slices.ContainsFunc(c.disagreed, func(f fact) bool { return !f.cell.attr.follows })
	var out []Finding
	for _, f := range list {
		a := attributeOf(f.Key)
		if f.Majority != nil || a.follows && direct {
			continue
		}
		var parts, hosts []string
		for i, o := range f.Others {
			value := o.Value
			switch {
			case a == attrStructure:
				value = "one"
			case a.noun != "" && i == 0:
				value = a.counted(value)
			}
			parts = append(parts, fmt.Sprintf("%s on %s", value, text.Join(o.Hosts, mostNames)))
			hosts = append(hosts, o.Hosts...)
		}
		slices.SortFunc(hosts, topo.NaturalCompare)
		said := a.words + ofWhat(text.Join(f.Subjects, mostNames)) + " " + a.verb("is", "are") + " " + text.Join(parts, mostNames)
		switch {
		case a.noun != "":
			said = text.Join(parts, mostNames)
		case a == attrStructure:
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

// configurations takes the structure of hosts as it is where hosts enough are built in each of several
// ways, for a model may be bought in several configurations. Others are odd.
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
		return slices.DeleteFunc(values(h), func(v value) bool { return v.attr.structural })
	}
	var out []Finding
	for _, h := range c.hosts {
		if h.Fingerprint == "" || enough(h.Fingerprint) {
			continue
		}
		out = append(out, Finding{Code: CodeHostOdd, Severity: attrStructure.severity, Hosts: []string{h.Host},
			Text:     fmt.Sprintf("it is built in none of the %d ways in which others of its model are", several),
			Evidence: []string{fmt.Sprintf("fingerprint %s on %s", h.Fingerprint, text.Plural(ways[h.Fingerprint], "host"))}, Fix: attrStructure.fix})
	}
	return out
}
