package show

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
	"github.com/topoctl/topoctl/probe"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// What a page holds at most: beyond it browsers are slow.
const (
	mostPageRows    = 2000
	mostPageDetails = 400
)

// HTML writes a report as one page that needs no network and works without scripts:
// the summary, who is to blame, heat maps, the table of pairs, the details of each, and where
// the figures come from. Of reports beyond 2,000 pairs those that passed are left out,
// and beyond 400 their details.
func HTML(r *probe.Report, o Options) ([]byte, error) {
	p := newPage(r, o)
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("probe: write the page: %w", err)
	}
	return out.Bytes(), nil
}

// page is what the template shows. Everything in it but CSS, JS, SVG and the lines of
// samples is text, which the template escapes.
type page struct {
	Title, Subtitle, CSP string
	CSS                  template.CSS
	JS                   template.JS
	SVG                  template.HTML
	Counts               []countView
	Incomplete           []string
	Blame                []blameView
	Waived, Notes        []string
	Sections             []sectionView
	Details              []detailView
	DetailsMore          string
	Facts                []fact
	Hosts                []probe.Host
	Bases                []basisView
}

type countView struct {
	Verdict probe.Verdict
	N       int
}

type blameView struct {
	Title, Next        string
	Suspects, Evidence []string
}

type sectionView struct {
	Title, Unit, Latency, More string
	Rows                       []rowView
}

type rowView struct {
	Detail, Pair, Class, Samples, Rate, Expected, Efficiency, OfBest, Latency, Reason string
	// The keys are what rows are sorted by, "" what is not known.
	RateKey, ExpectedKey, EfficiencyKey, OfBestKey, LatencyKey string
	Verdict                                                    probe.Verdict
}

type fact struct{ Name, Value string }

type basisView struct {
	Name    topo.Basis
	N       int
	Meaning string
}

func newPage(r *probe.Report, o Options) *page {
	p := &page{Title: reportTitle(r), Subtitle: countsText(r), Incomplete: incomplete(r), Waived: waived(r),
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS), SVG: template.HTML(draw(r, o, false)), //nolint:gosec // our own, escaped by SVG
	}
	p.CSP = "default-src 'none'; style-src " + hashed(pageCSS) + " " + hashed(svgSheet()) + "; script-src " + hashed(pageJS) + "; base-uri 'none'; form-action 'none'"
	s := probe.Count(r.Results)
	for _, c := range []countView{{probe.Pass, s.Pass}, {probe.Warn, s.Warn}, {probe.Fail, s.Fail}, {probe.Inconclusive, s.Inconclusive}, {probe.Error, s.Error}, {probe.Waived, s.Waived}} {
		if c.N > 0 {
			p.Counts = append(p.Counts, c)
		}
	}
	for _, n := range r.Notes {
		p.Notes = append(p.Notes, clean(n))
	}
	for i := range r.Blame {
		p.Blame = append(p.Blame, viewBlame(&r.Blame[i], r, o.Units))
	}
	p.pairs(r, o)
	p.provenance(r)
	return p
}

// hashed is a source of a content security policy.
func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func viewBlame(b *probe.Blame, r *probe.Report, u units.System) blameView {
	v := blameView{Title: blameTitle(b, r), Next: clean(b.Next)}
	for i := range b.Suspects {
		text := suspectText(&b.Suspects[i])
		if seen := seenText(&b.Suspects[i], r, u); seen != "" {
			text += ": " + seen
		}
		v.Suspects = append(v.Suspects, text)
	}
	for _, e := range b.Evidence {
		v.Evidence = append(v.Evidence, clean(e))
	}
	return v
}

// pairs fills in the tables and details.
func (p *page) pairs(r *probe.Report, o Options) {
	k := newKnown(r)
	large, rows := len(r.Results) > mostPageRows, 0
	few := len(r.Results) <= mostPageDetails
	without := 0
	for _, s := range sections(r, o.Units) {
		v := sectionView{Title: s.title, Unit: s.unit.Suffix(), Latency: "latency"}
		if s.latency != "" {
			v.Latency = s.latency + " p50 / p99 " + s.nsUnit
		}
		passed, more := 0, 0
		for _, x := range s.results {
			switch {
			case large && (x.Verdict == probe.Pass || x.Verdict == probe.Waived):
				passed++
				continue
			case rows == mostPageRows:
				more++
				continue
			}
			rows++
			row := s.view(x)
			if len(p.Details) < mostPageDetails && (few || x.Verdict != probe.Pass && x.Verdict != probe.Waived) {
				row.Detail = "pair-" + strconv.Itoa(len(p.Details)+1)
				p.Details = append(p.Details, s.detail(x, k, row.Detail))
			} else {
				without++
			}
			v.Rows = append(v.Rows, row)
		}
		var left []string
		if passed > 0 {
			left = append(left, text.Plural(passed, "pair")+" that passed or were waived")
		}
		if more > 0 {
			left = append(left, strconv.Itoa(more)+" that did not pass")
		}
		if len(left) > 0 {
			v.More = "Not listed: " + strings.Join(left, ", ") + "."
		}
		p.Sections = append(p.Sections, v)
	}
	if without > 0 {
		p.DetailsMore = "Of " + text.Plural(without, "pair") + " in the tables there are no details here."
	}
}

// view is a row of a table.
func (s *section) view(x *probe.Result) rowView {
	v := rowView{Pair: PairName(&x.Pair, s.local), Class: classText(&x.Pair), Samples: samples(x), Rate: s.rate(x), Expected: expected(&x.Expected, s.unit),
		Efficiency: percent(x.Efficiency), OfBest: percent(x.OfBest), Latency: s.latencies(x), Reason: reason(x, true), Verdict: x.Verdict}
	if b := x.Judged(); b != nil {
		v.RateKey = strconv.FormatInt(b.MeanBytesPerSec, 10)
	}
	if e := x.Expected.BytesPerSec; e != nil {
		v.ExpectedKey = strconv.FormatInt(int64(*e), 10)
	}
	v.EfficiencyKey, v.OfBestKey = millis(x.Efficiency), millis(x.OfBest)
	if _, l := x.Typical(); l != nil {
		v.LatencyKey = strconv.FormatInt(l.P50, 10)
	}
	return v
}

// millis is a ratio as a whole number, for sorting.
func millis(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatInt(int64(*v*1e4), 10)
}

// provenance says where the report comes from.
func (p *page) provenance(r *probe.Report) {
	s, l := &r.Spec, &r.Rules
	sizes := make([]string, len(s.SizesBytes))
	for i, n := range s.SizesBytes {
		sizes[i] = units.Bytes(n)
	}
	add := func(name, format string, args ...any) {
		p.Facts = append(p.Facts, fact{name, clean(fmt.Sprintf(format, args...))})
	}
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
	for i := range r.Hosts {
		h := r.Hosts[i]
		p.Hosts = append(p.Hosts, probe.Host{Name: clean(h.Name), Address: clean(h.Address), Fingerprint: clean(h.Fingerprint), Error: clean(h.Error)})
	}
	p.bases(r)
}

// bases says how the expected rates are known, and of how many pairs.
func (p *page) bases(r *probe.Report) {
	n := map[topo.Basis]int{}
	for i := range r.Results {
		e := &r.Results[i].Expected
		if e.BytesPerSec == nil {
			n[topo.BasisUnknown]++
		} else {
			n[e.Basis]++
		}
	}
	for _, b := range []basisView{
		{Name: topo.BasisRead, Meaning: "the hardware said so"},
		{Name: topo.BasisMeasured, Meaning: "an earlier measurement"},
		{Name: topo.BasisConstant, Meaning: "a table by model: warns, and never fails a pair"},
		{Name: topo.BasisAssumed, Meaning: "an upper bound, because something on the way has no known rate: warns, and never fails a pair"},
		{Name: topo.BasisUnknown, Meaning: "nothing is expected: pairs are held against their peers only"},
	} {
		if b.N = n[b.Name]; b.N > 0 {
			p.Bases = append(p.Bases, b)
		}
	}
}
