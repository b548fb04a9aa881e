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
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
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

// HTML writes a report as one page that needs no network and works without scripts: the summary, what is
// to blame, heat maps, the table of pairs, the details of each, and where the figures come from. In
// reports of more than 2,000 pairs those that passed are left out, and of more than 400 their details.
func HTML(r *probe.Report, o Options) ([]byte, error) {
	p := newPage(r, o)
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return nil, pkgerr.Errorf("probe", "write the page: %w", err)
	}
	return out.Bytes(), nil
}

// page is what the template shows. Everything in it except CSS, JS, SVG and the lines of samples is text,
// which the template escapes.
type page struct {
	*overview
	CSP         string
	CSS         template.CSS
	JS          template.JS
	SVG         template.HTML
	Sections    []sectionView
	Details     []detailView
	DetailsMore string
	Facts       []fact
	Hosts       []probe.Host
	Bases       []basisView
}

type sectionView struct {
	Title, Unit, Latency, More string
	Rows                       []rowView
}

type fact struct{ Name, Value string }

type basisView struct {
	Name    topo.Basis
	N       int
	Meaning string
}

func newPage(r *probe.Report, o Options) *page {
	v, all := newOverview(r, o.Units), sections(r, o.Units)
	p := &page{overview: v, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), SVG: template.HTML(draw(v, all, false))} //nolint:gosec // our own, escaped by SVG
	p.CSP = "default-src 'none'; style-src " + hashed(pageCSS) + " " + hashed(svgSheet()) + "; script-src " + hashed(pageJS) + "; base-uri 'none'; form-action 'none'"
	p.pairs(r, all)
	p.provenance(r)
	return p
}

// hashed is a source of a content security policy.
func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pairs fills in the tables and details.
func (p *page) pairs(r *probe.Report, all []*section) {
	k := newReportLinks(r)
	large, rows := len(r.Results) > mostPageRows, 0
	few := len(r.Results) <= mostPageDetails
	without := 0
	for _, s := range all {
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
		{Name: topo.BasisBound, Meaning: "at most that (<): a link on the path has no known rate: warns, and never fails a pair"},
		{Name: topo.BasisTypical, Meaning: "a constant by model (~), not a bound: warns, and never fails a pair"},
		{Name: topo.BasisUnknown, Meaning: "nothing is expected: pairs are only compared with each other"},
	} {
		if b.N = n[b.Name]; b.N > 0 {
			p.Bases = append(p.Bases, b)
		}
	}
}
