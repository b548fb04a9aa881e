package show

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// mostPageDetails is of how many pairs a page has details at most: beyond it browsers are slow.
const mostPageDetails = 400

// HTML writes a report as one page that needs no network and works without scripts: the summary, what is
// to blame, heat maps, the table of pairs, the details of each, and where the figures come from. In
// reports of more than 2,000 pairs those that passed are left out, and of more than 400 their details.
func HTML(r *probe.Report, o Options) ([]byte, error) {
	v, all := newOverview(r, o.Units), sections(r, o.Units)
	p := &report.Page{Title: v.Title, Answer: v.Answer, Subtitle: v.Subtitle, Notices: v.Incomplete()}
	for _, c := range v.Counts {
		p.Chips = append(p.Chips, report.Chip{N: c.N, What: string(c.Verdict), Mark: string(c.Verdict)})
	}
	blame := report.Section{Title: "What explains it"}
	for i := range r.Blame {
		s := blameSection(&r.Blame[i], r, o.Units)
		s.Parts = slices.DeleteFunc(s.Parts, func(p report.Section) bool { return p.Title == "explains" }) // the table has them
		blame.Parts = append(blame.Parts, s)
	}
	pairs, details := pairTables(r, all)
	p.Sections = []report.Section{blame, {Title: "Not measured, and notes", Lines: slices.Concat(v.Waived, v.Notes)},
		{Title: "Heat maps", Drawing: heatMap(r, v, all, true)}, pairs, details, provenance(r)}
	return p.HTML()
}

// pairTables are the tables of pairs, and the details that they link to.
func pairTables(r *probe.Report, all []*section) (pairs, details report.Section) {
	pairs, details = report.Section{Title: "Pairs"}, report.Section{Title: "Details"}
	k := newReportLinks(r)
	large, few, rows, without := len(r.Results) > report.MostRows, len(r.Results) <= mostPageDetails, 0, 0
	for _, s := range all {
		var listed []*probe.Result
		passed, more := 0, 0
		for _, x := range s.results {
			switch {
			case large && wellEnough(x):
				passed++
			case rows == report.MostRows:
				more++
			default:
				rows++
				listed = append(listed, x)
			}
		}
		t := s.rows(listed, Options{Wide: true}, nil)
		t.Pick = true
		for i, x := range listed {
			if len(details.Parts) == mostPageDetails || !few && wellEnough(x) {
				without++
				continue
			}
			id, title := "pair-"+strconv.Itoa(len(details.Parts)+1), PairName(&x.Pair, s.local)+", "+s.title
			if x.Judged() != nil {
				title += ", " + s.rate(x) + " " + s.unit.Suffix()
			}
			t.Rows[i].Link = id
			details.Parts = append(details.Parts, report.Section{Title: title, Kind: string(x.Verdict), Folded: true, ID: id, Parts: s.detail(x, k)})
		}
		var left []string
		if passed > 0 {
			left = append(left, text.Plural(passed, "pair")+" that passed or were waived")
		}
		if more > 0 {
			left = append(left, strconv.Itoa(more)+" that did not pass")
		}
		if len(left) > 0 {
			t.After = []string{"Not listed: " + strings.Join(left, ", ") + "."}
		}
		pairs.Parts = append(pairs.Parts, report.Section{Title: s.title, Table: t})
	}
	if without > 0 {
		details.Lines = []string{"Of " + text.Plural(without, "pair") + " in the tables there are no details here."}
	}
	return pairs, details
}

func wellEnough(x *probe.Result) bool { return x.Verdict == probe.Pass || x.Verdict == probe.Waived }

// provenance says where the report comes from.
func provenance(r *probe.Report) report.Section {
	s, l := &r.Spec, &r.Rules
	sizes := make([]string, len(s.SizesBytes))
	for i, n := range s.SizesBytes {
		sizes[i] = units.Bytes(n)
	}
	facts := &report.Table{}
	add := func(name, format string, args ...any) { facts.Add(name, fmt.Sprintf(format, args...)) }
	add("written by", "%s %s", r.Tool.Name, r.Tool.Version)
	add("begun", "%s, took %s", r.StartedAt.UTC().Format(time.RFC3339), duration(time.Duration(r.DurationNS)))
	schedule := r.Plan.Schedule
	if r.Plan.Contend != "" {
		schedule += ", contending for " + r.Plan.Contend
	}
	add("schedule", "%s: %s in %s, at least %d are needed", schedule, text.Plural(r.Plan.Pairs, "pair"), text.Plural(r.Plan.Rounds, "round"), r.Plan.LowerBound)
	add("samples", "%d to %d of %s each after %s of warm-up, until the 95 %% interval is within %g %% of the mean",
		s.MinSamples, s.MaxSamples, duration(s.SampleTime), duration(s.Warmup), s.CI*100)
	if len(sizes) > 0 {
		add("sizes of ops", "%s", strings.Join(sizes, ", "))
	}
	add("latency samples", "%d", s.LatencySamples)
	if s.RateLimit > 0 {
		add("rate limit", "%s a pair", units.Rate(s.RateLimit, units.Gbyte))
	}
	add("verdicts", "FAIL below %s, WARN below %s of what is expected; outliers below %s of the best rate or above %g times the smallest latency of their group",
		percent(&l.FailUnder), percent(&l.WarnUnder), percent(&l.OutlierUnder), l.OutlierOver)
	hosts := report.TableOf([]string{"host", "address", "topology", "error"})
	for i := range r.Hosts {
		h := &r.Hosts[i]
		hosts.Add(h.Name, h.Address, h.Fingerprint, h.Error)
	}
	return report.Section{Title: "About this report", Table: facts, Parts: []report.Section{
		{Title: "Hosts", Table: hosts}, {Title: "Where expected rates come from", Table: bases(r)},
	}}
}

// bases says how the expected rates are known, and of how many pairs.
func bases(r *probe.Report) *report.Table {
	n := map[topo.Basis]int{}
	for i := range r.Results {
		if e := &r.Results[i].Expected; e.BytesPerSec == nil {
			n[topo.BasisUnknown]++
		} else {
			n[e.Basis]++
		}
	}
	t := figures([]string{"known by", "pairs", "meaning"}, 1)
	for _, b := range []struct {
		basis   topo.Basis
		meaning string
	}{
		{topo.BasisRead, "the hardware said so"},
		{topo.BasisMeasured, "an earlier measurement"},
		{topo.BasisBound, "at most that (<): a link on the path has no known rate: warns, and never fails a pair"},
		{topo.BasisTypical, "a constant by model (~), not a bound: warns, and never fails a pair"},
		{topo.BasisUnknown, "nothing is expected: pairs are only compared with each other"},
	} {
		if n[b.basis] > 0 {
			t.Add(string(b.basis), strconv.Itoa(n[b.basis]), b.meaning)
		}
	}
	return t
}
