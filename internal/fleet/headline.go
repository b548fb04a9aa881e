package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Worst is the worst severity of all findings, "" for none.
func (f *Fleet) Worst() doctor.Severity {
	if len(f.Findings) == 0 {
		return ""
	}
	return f.Findings[0].Severity
}

// WorstAbout is the severity of the worst finding that blames a host, "" for no more than notes.
func (f *Fleet) WorstAbout(host string) doctor.Severity {
	for i := range f.Findings { // the worst first
		if x := &f.Findings[i]; x.Severity.AtLeast(doctor.Warning) && x.Code != CodeHostsDisagree && slices.Contains(x.Hosts, host) {
			return x.Severity
		}
	}
	return ""
}

// Compared says whether any host was compared with another.
func (f *Fleet) Compared() bool {
	return slices.ContainsFunc(f.Facts, func(x Fact) bool { return x.Of > 1 })
}

// Headline is the answer in a sentence: which hosts are odd and how, or what else is wrong, or what
// was compared.
func (f *Fleet) Headline() string {
	var parts []string
	for _, say := range []func() string{f.sayCables, f.sayOdd, f.sayOther, f.sayDoctor} {
		if s := say(); s != "" {
			parts = append(parts, s)
		}
	}
	unreached := f.SayUnreached()
	switch {
	case len(f.Hosts) == 0:
		return "The fleet has no hosts."
	case f.NoneReached():
		return sentence(unreached)
	}
	if len(parts) == 0 || !f.Compared() && len(f.known()) > 1 {
		parts = append(parts, f.sayFine())
	}
	if unreached != "" {
		parts = append(parts, unreached)
	}
	return sentence(strings.Join(parts, ". "))
}

// sentence adds a full stop, unless the text ends with the dots of a cut or with a question mark.
func sentence(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

func were(n int, noun string) string { return text.Plural(n, noun) + " " + text.Noun(n, "was", "were") }

// serious lists the findings of a source that are warnings or worse. No codes means all codes.
func (f *Fleet) serious(source string, codes ...Code) []*Finding {
	var out []*Finding
	for i := range f.Findings {
		x := &f.Findings[i]
		if x.Source == source && x.Severity.AtLeast(doctor.Warning) && (len(codes) == 0 || slices.Contains(codes, x.Code)) {
			out = append(out, x)
		}
	}
	return out
}

// sayCables says which cables are wrong.
func (f *Fleet) sayCables() string {
	list := f.serious(SourceFleet, CodeRailMiswired)
	if len(list) == 0 {
		return ""
	}
	first := list[0].Text
	if len(list) == 1 {
		return upperIfWord(first)
	}
	return fmt.Sprintf("%d findings about cables: %s, and %d more", len(list), first, len(list)-1)
}

// upperIfWord capitalises the first word of a sentence, unless that is a name.
func upperIfWord(s string) string {
	if rest, ok := strings.CutPrefix(s, "the "); ok {
		return "The " + rest
	}
	return s
}

// sayOdd says which hosts differ from their kin.
func (f *Fleet) sayOdd() string {
	odd := f.serious(SourceFleet, CodeHostOdd, CodeNotGolden)
	byHost := group.By(odd, func(x *Finding) string { return x.Hosts[0] })
	known := len(f.known())
	switch {
	case len(byHost) == 0:
		return f.sayDisagree()
	case len(byHost) == 1:
		s := fmt.Sprintf("1 of %s differs: %s: %s", text.Plural(known, "host"), byHost[0][0].Hosts[0], byHost[0][0].Text)
		return andMore(s, len(byHost[0])-1, "difference")
	}
	slices.SortStableFunc(byHost, func(a, b []*Finding) int {
		return topo.NaturalCompare(a[0].Hosts[0], b[0].Hosts[0])
	})
	var names []string
	for _, x := range byHost {
		names = append(names, x[0].Hosts[0])
	}
	alike := group.By(odd, func(x *Finding) string { return x.Text })
	s := fmt.Sprintf("%d of %s differ: %s", len(byHost), text.Plural(known, "host"), text.Join(names, mostNames))
	if len(alike) == 1 {
		return s + ": " + alike[0][0].Text
	}
	return andMore(s+": "+odd[0].Hosts[0]+": "+odd[0].Text, len(odd)-1, "difference")
}

// andMore adds to the first of several things how many others there are.
func andMore(first string, others int, noun string) string {
	if others == 0 {
		return first
	}
	return first + ", and " + text.Plural(others, "more "+noun)
}

func (f *Fleet) sayDisagree() string {
	list := f.serious(SourceFleet, CodeHostsDisagree)
	if len(list) == 0 {
		return ""
	}
	hosts := map[string]bool{}
	for _, x := range list {
		for _, h := range x.Hosts {
			hosts[h] = true
		}
	}
	return andMore(fmt.Sprintf("%s disagree: %s", text.Plural(len(hosts), "host"), list[0].Text), len(list)-1, "difference")
}

// sayOther says what else is wrong with the fleet.
func (f *Fleet) sayOther() string {
	list := slices.DeleteFunc(f.serious(SourceFleet), func(x *Finding) bool {
		return slices.Contains([]Code{CodeHostOdd, CodeNotGolden, CodeHostsDisagree, CodeRailMiswired}, x.Code)
	})
	if len(list) == 0 {
		return ""
	}
	return andMore(list[0].Text, len(list)-1, "finding")
}

// sayDoctor says for how many hosts doctor has findings. Hosts that are odd are not counted again.
func (f *Fleet) sayDoctor() string {
	hosts, odd := map[string]bool{}, map[string]bool{}
	for _, x := range f.serious(SourceFleet, CodeHostOdd, CodeNotGolden) {
		odd[x.Hosts[0]] = true
	}
	var codes []string
	for _, x := range f.serious(SourceDoctor) {
		others := slices.DeleteFunc(slices.Clone(x.Hosts), func(h string) bool { return odd[h] })
		for _, h := range others {
			hosts[h] = true
		}
		if len(others) > 0 && !slices.Contains(codes, string(x.Code)) {
			codes = append(codes, string(x.Code))
		}
	}
	if len(hosts) == 0 {
		return ""
	}
	return fmt.Sprintf("doctor warns of %s: %s", text.Plural(len(hosts), "host"), text.List(codes, mostNames))
}

// sayFine says what was compared where nothing is wrong.
func (f *Fleet) sayFine() string {
	known := len(f.known())
	hosts := text.Plural(known, "host")
	if !f.Compared() {
		if known == 1 {
			return "1 host, and no other to compare it with"
		}
		return fmt.Sprintf("%s of %s: none is like another, so nothing was compared", hosts, text.Plural(len(f.Classes), "class"))
	}
	alike := fmt.Sprintf("%s in %s", hosts, text.Plural(len(f.Classes), "class"))
	if len(f.Classes) == 1 {
		alike = hosts + " of one class"
	}
	n := 0
	for i := range f.Facts {
		if f.Facts[i].Of > 1 {
			n += max(1, len(f.Facts[i].Subjects))
		}
	}
	return fmt.Sprintf("No problem found: %s, %s compared", alike, text.Plural(n, "fact"))
}
