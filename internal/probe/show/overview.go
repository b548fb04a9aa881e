package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// mostWaived is how many reasons for waived pairs are listed.
const mostWaived = 12

// overview is what every form of a report shows besides its pairs. Foreign text in it is clean.
type overview struct {
	Title, Subtitle string
	Answer, Busy    string         // Busy is the note on busy processors, "" none
	Counts          []verdictCount // of those that there are
	Early, Lost     []string       // what is missing: pairs, hosts
	Waived, Notes   []string
	units           units.System
}

type verdictCount struct {
	Verdict probe.Verdict
	N       int
}

func newOverview(r *probe.Report, u units.System) *overview {
	v := &overview{Answer: Answer(r, Options{Units: u}), Title: reportTitle(r), Counts: verdictCounts(r), Early: incompleteText(r), Lost: lostHosts(r),
		Waived: waivedReasons(r), Notes: slices.Clone(r.Notes), units: u}
	v.Subtitle = countsText(r, v.Counts)
	if v.Busy = busyNote(r); v.Busy != "" {
		v.Notes = append([]string{v.Busy}, v.Notes...)
	}
	return v
}

// Incomplete says what is missing, if anything.
func (v *overview) Incomplete() []string { return slices.Concat(v.Early, v.Lost) }

// blameHeadline is a fault in one line, with the rate that was seen on its only suspect.
func blameHeadline(b *probe.Blame, r *probe.Report, u units.System) string {
	line := blameTitle(b, r)
	if len(b.Suspects) == 1 {
		if seen := seenText(&b.Suspects[0], r, u); seen != "" {
			line += ", " + seen
		}
	}
	return line
}

// blameSection is everything that is known of a fault.
func blameSection(b *probe.Blame, r *probe.Report, u units.System) report.Section {
	var suspects, next []string
	for i := range b.Suspects {
		line := suspectText(&b.Suspects[i])
		if seen := seenText(&b.Suspects[i], r, u); seen != "" {
			line += ", " + seen
		}
		suspects = append(suspects, line)
	}
	if b.Next != "" {
		next = []string{b.Next}
	}
	return report.Section{Title: blameTitle(b, r), Kind: string(b.Kind), Parts: withContent([]report.Section{
		{Title: "suspects", Lines: suspects}, {Title: "evidence", Lines: b.Evidence}, {Title: "next", Lines: next}, {Title: "explains", Lines: b.Pairs},
	})}
}

// withContent are the sections that say something.
func withContent(list []report.Section) []report.Section {
	return slices.DeleteFunc(list, func(s report.Section) bool {
		return len(s.Lines) == 0 && (s.Table == nil || len(s.Table.Rows) == 0)
	})
}

func verdictCounts(r *probe.Report) []verdictCount {
	s := probe.Count(r.Results)
	all := []verdictCount{{probe.Pass, s.Pass}, {probe.Measured, s.Measured}, {probe.Warn, s.Warn}, {probe.Fail, s.Fail},
		{probe.Inconclusive, s.Inconclusive}, {probe.Error, s.Error}, {probe.Waived, s.Waived}}
	return slices.DeleteFunc(all, func(c verdictCount) bool { return c.N == 0 })
}

// countsText is "58 pass, 5 fail, 1 waived: 64 pairs in 16 rounds, 45 s".
func countsText(r *probe.Report, counts []verdictCount) string {
	if len(counts) == 0 {
		return "no pairs"
	}
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", c.N, strings.ToLower(string(c.Verdict))))
	}
	rounds := 0
	for i := range r.Results {
		rounds = max(rounds, r.Results[i].Round)
	}
	line := strings.Join(parts, ", ") + ": " + text.Plural(len(r.Results), "pair")
	if rounds > 0 {
		line += " in " + text.Plural(rounds, "round")
	}
	return line + ", " + duration(time.Duration(r.DurationNS))
}

// reportTitle is the title of the image and the page.
func reportTitle(r *probe.Report) string {
	title := "probe"
	switch {
	case r.Mode == "local" && len(r.Hosts) == 1:
		title = "probe of " + clean(r.Hosts[0].Name)
	case len(r.Hosts) > 0:
		title = "probe of " + text.Plural(len(r.Hosts), "host")
	}
	return title + ", " + r.StartedAt.UTC().Format("2006-01-02 15:04 UTC")
}

// incompleteText says how much is missing from a run that ended early.
func incompleteText(r *probe.Report) []string {
	var out []string
	if !r.Complete {
		missing := 0
		for i := range r.Results {
			if x := &r.Results[i]; x.Round == 0 && x.Verdict != probe.Waived {
				missing++
			}
		}
		missing += max(0, r.Plan.Pairs-len(r.Results))
		line := "incomplete: the run ended early"
		if missing > 0 {
			line += fmt.Sprintf(", %d of %s were not measured", missing, text.Plural(max(r.Plan.Pairs, len(r.Results)), "pair"))
		}
		out = append(out, line)
	}
	return out
}

// lostHosts are the hosts that took no part, or were lost.
func lostHosts(r *probe.Report) []string {
	var out []string
	for i := range r.Hosts {
		if h := &r.Hosts[i]; h.Error != "" {
			out = append(out, "host "+clean(h.Name)+": "+clean(h.Error))
		}
	}
	return out
}

// waivedReasons counts why pairs were not measured.
func waivedReasons(r *probe.Report) []string {
	var reasons []string
	for i := range r.Results {
		if x := &r.Results[i]; x.Verdict == probe.Waived {
			why := reason(x, false)
			if why == "" {
				why = "no reason is given"
			}
			reasons = append(reasons, why)
		}
	}
	equal := group.By(reasons, func(why string) string { return why })
	slices.SortStableFunc(equal, func(a, b []string) int { return cmp.Or(len(b)-len(a), strings.Compare(a[0], b[0])) })
	var out []string
	for i, list := range equal {
		if i == mostWaived {
			return append(out, fmt.Sprintf("waived for %d other reasons", len(equal)-i))
		}
		out = append(out, fmt.Sprintf("%d waived: %s", len(list), list[0]))
	}
	return out
}

// suspectText names a part and says what kind it is.
func suspectText(s *probe.Suspect) string {
	text := clean(s.Name)
	switch s.Kind {
	case "link", "direction":
		text += " (" + s.Kind + ")"
	}
	return text
}

// seenText is the rate that was seen on a suspect, "" not known. Wires are in gigabits.
func seenText(s *probe.Suspect, r *probe.Report, u units.System) string {
	if s.BytesPerSec == nil {
		return ""
	}
	return "seen to carry at most " + units.Rate(int64(*s.BytesPerSec), suspectUnit(s, r, u))
}

func suspectUnit(s *probe.Suspect, r *probe.Report, u units.System) units.System {
	for i := range r.Links {
		if l := &r.Links[i]; l.Kind == "port" || l.Kind == probe.LinkUplink {
			for _, k := range s.Links {
				if k == l.Key {
					return u.Or(units.Gbit)
				}
			}
		}
	}
	return u.Or(units.Gbyte)
}

// blameTitle is "suspect wire of mlx5_3 of n3 (link): explains 14 of 15 bad pairs".
func blameTitle(b *probe.Blame, r *probe.Report) string {
	var names []string
	for i := range b.Suspects {
		names = append(names, suspectText(&b.Suspects[i]))
	}
	title := "suspect "
	if len(names) > 1 {
		title = "suspects, one of "
	}
	if len(names) > 6 {
		names = append(names[:5], fmt.Sprintf("%d more", len(names)-5))
	}
	title += strings.Join(names, " or ")
	bad := 0
	for i := range r.Results {
		switch r.Results[i].Verdict {
		case probe.Fail, probe.Warn, probe.Error:
			bad++
		}
	}
	of := fmt.Sprintf("%d of %s", len(b.Pairs), text.Plural(max(bad, len(b.Pairs)), "bad pair"))
	if b.Kind == probe.Congestion && len(names) > 0 {
		return "congested: " + strings.Join(names, " or ") + ": explains " + of
	}
	if len(b.Suspects) == 0 { // the evidence says why
		return "no part is to blame for " + of
	}
	return title + ": explains " + of
}
