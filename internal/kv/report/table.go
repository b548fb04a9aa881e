package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Options say how a report is printed.
type Options struct {
	Units units.System // of rates; "" is Gbyte
	Width int          // columns to wrap sentences at; 0: no limit
	// All prints everything; otherwise the answer, the latencies and what limits them.
	All bool
}

// maxLanes is how many lanes and places the table lists; the document has all.
const maxLanes = 16

// figures is a table of figures: a name, then columns that are aligned at the right, and that no terminal breaks.
func figures(head []string, rows ...[]string) *report.Table {
	t := report.TableOf(head, rows...)
	t.Columns, t.Whole = []text.Column{{}, {Right: true}}, true
	return t
}

// Text is the report for people, with the answer in the first line.
func (r *Report) Text(o Options) string {
	t := report.NewText(report.Look{Width: o.Width}, 0)
	for _, s := range r.sections(o) {
		t.Section(&s)
	}
	if !o.All {
		t.Gap()
		t.Say("", "--all shows what was run, where the time goes, and lanes.", "")
	}
	return t.String()
}

// HTML is a page with the answer, the drawing and all tables that needs no network and no scripts.
func (r *Report) HTML(o Options) ([]byte, error) {
	o.All = true
	list := r.sections(o)
	p := &report.Page{Title: "kv: " + r.Model.Name + ", " + r.Workload.Name, Answer: list[0].Lines[0]}
	list[0].Lines = list[0].Lines[1:]
	p.Sections = slices.Insert(list, 1, report.Section{Title: "Picture", Drawing: r.SVG()})
	return p.HTML()
}

// sections are those that are printed, without empty ones.
func (r *Report) sections(o Options) []report.Section {
	all := []report.Section{{Lines: append(r.Answer(), fmt.Sprintf("Compute is %s, the network is %s.", r.ComputeBasis, r.NetworkBasis))}}
	if o.All {
		all = append(all, r.run(), r.served())
	}
	all = append(all, r.latencies())
	if m := r.Metrics; m.GoodputPerSec != nil {
		line := fmt.Sprintf("Request goodput (req/s): %s of %s", known(m.GoodputPerSec), known(m.RequestsPerSec))
		all = append(all, report.Section{Lines: []string{line}})
	}
	if o.All {
		all = append(all, r.split(), r.buckets(), r.lanes(o))
	}
	all = append(all, r.compared(), r.remarks())
	return slices.DeleteFunc(all, func(s report.Section) bool { return s.Table == nil && s.Lines == nil })
}

// remarks are failures and notes.
func (r *Report) remarks() (s report.Section) {
	for _, f := range r.Failures {
		where := fmt.Sprintf("request %d", f.First)
		if f.Line != nil {
			where = fmt.Sprintf("line %d of the trace", *f.Line)
		}
		s.Lines = append(s.Lines, fmt.Sprintf("failed: %d, the first in %s: %s", f.Requests, where, f.Reason))
	}
	for _, n := range r.Notes {
		s.Lines = append(s.Lines, "note: "+n)
	}
	return s
}

// run says what was run.
func (r *Report) run() report.Section {
	w := fmt.Sprintf("%s; %s, seed %d", r.Workload.Name, text.Plural(r.Workload.Requests, "request"), r.Workload.Seed)
	if r.Workload.Trace != nil {
		w = fmt.Sprintf("%s; %s", r.Workload.Name, text.Plural(r.Workload.Requests, "request"))
	}
	x := report.TableOf(nil, [][]string{
		{"workload", w}, {"model", fmt.Sprintf("%s, %s of KV cache per token", r.Model.Name, units.Bytes(r.Model.KVBytesPerToken))},
		{"prefill", r.Prefill.text()}, {"", "modelled, " + basisText(string(r.Prefill.Compute.Prefill.Basis), r.Prefill.Compute.Prefill.Source)},
	}...)
	decode := &r.Prefill
	if r.Decode == nil {
		x.Add("decode", "on the same instances")
	} else {
		decode = r.Decode
		x.Add("decode", decode.text())
	}
	x.Add("", "modelled, "+basisText(string(decode.Compute.Decode.Basis), decode.Compute.Decode.Source))
	if r.Decode != nil {
		x.Add("moving", r.Serving.text())
		x.Add("network", r.Network.text(r.NetworkBasis))
	}
	for _, what := range r.Network.WhatIf {
		x.Add("what if", what)
	}
	return report.Section{Table: x}
}

// basisText is how a parameter is known. Sources of assumptions begin with the word.
func basisText(basis, source string) string {
	if strings.HasPrefix(source, basis) {
		return source
	}
	return basis + ": " + source
}

func (p *Pool) text() string {
	var places []string
	for i := range p.Instances {
		places = append(places, span(p.Instances[i].Ranks))
	}
	where := strings.Join(places, "; ")
	if len(places) > 4 {
		where = fmt.Sprintf("%s; and %d more", strings.Join(places[:4], "; "), len(places)-4)
	}
	ranks := fmt.Sprintf("TP%d", p.TP)
	if p.PP > 1 {
		ranks += fmt.Sprintf(" PP%d", p.PP)
	}
	prefixes := ""
	if p.PrefixBytes != nil {
		prefixes = fmt.Sprintf(", %s for prefixes", units.Bytes(*p.PrefixBytes))
	}
	return fmt.Sprintf("%d x %s of %s (%s), %s of cache per rank, pages of %d tokens%s", len(p.Instances), ranks, p.GPU, where,
		units.Bytes(p.CacheBytes), p.PageTokens, prefixes)
}

// span names the ranks of an instance by the first and the last one on each of its hosts.
func span(ranks []string) string {
	if len(ranks) == 0 {
		return "-"
	}
	var spans []string
	host := func(rank string) string { h, _, _ := strings.Cut(rank, ":"); return h }
	for first := 0; first < len(ranks); {
		last := first
		for last+1 < len(ranks) && host(ranks[last+1]) == host(ranks[first]) {
			last++
		}
		text := ranks[first]
		if slices.ContainsFunc(ranks[first:last+1], func(r string) bool { return r != ranks[first] }) {
			text += " to " + ranks[last]
		}
		spans = append(spans, text)
		first = last + 1
	}
	if len(spans) > 4 {
		spans = append(spans[:3], fmt.Sprintf("and %d more hosts", len(spans)-3))
	}
	return strings.Join(spans, ", ")
}

func (s *Serving) text() string {
	what := s.Move
	if s.LayersPerMove != nil {
		what += fmt.Sprintf(" (%s together)", text.Plural(*s.LayersPerMove, "layer"))
	}
	text := fmt.Sprintf("%s; memory is requested %s; the first token comes from %s; router %s", what, map[string]string{
		"before": "before the prefill", "beside": "during the prefill", "after": "after the prefill"}[s.Admit],
		map[string]string{"prefill": "prefill", "cache": "prefill, sent when the cache has arrived", "decode": "decode"}[s.FirstToken], s.Router)
	if s.SetupNS > 0 {
		text += fmt.Sprintf("; starting a transfer takes %v", time.Duration(s.SetupNS))
	}
	if s.PieceNS > 0 {
		text += fmt.Sprintf("; each piece %v", time.Duration(s.PieceNS))
	}
	return text
}

func (n *Network) text(basis Basis) string {
	lanes := fmt.Sprintf("lanes by %s, policy %s", n.Choice, n.Policy)
	switch {
	case n.FabricFile != nil && n.Leaves != nil && n.Spines != nil:
		return *n.FabricFile + ": " + text.Plural(*n.Leaves, "leaf switch") + ", " + text.Plural(*n.Spines, "spine") + "; " + lanes
	case basis == Simulated:
		return "one switch for all ports (assumed); " + lanes
	}
	return lanes
}

// served are figures of vLLM's serving benchmark, with its names.
func (r *Report) served() report.Section {
	m := r.Metrics
	t := figures(nil)
	line := func(name, value string) { t.Add(name+":", value) }
	line("Successful requests", strconv.Itoa(m.Completed))
	if m.Failed > 0 {
		line("Failed requests", strconv.Itoa(m.Failed))
	}
	if m.Unfinished > 0 {
		line("Unfinished requests", strconv.Itoa(m.Unfinished))
	}
	seconds := "-"
	if m.DurationNS != nil {
		seconds = fixed(float64(*m.DurationNS) / 1e9)
	}
	line("Benchmark duration (s)", seconds)
	line("Total input tokens", strconv.FormatInt(m.InputTokens, 10))
	line("Total generated tokens", strconv.FormatInt(m.OutputTokens, 10))
	line("Request throughput (req/s)", known(m.RequestsPerSec))
	line("Output token throughput (tok/s)", known(m.OutputTokensPerSec))
	line("Total token throughput (tok/s)", known(m.TotalTokensPerSec))
	return report.Section{Table: t}
}

// latencies are those of vLLM's serving benchmark.
func (r *Report) latencies() report.Section {
	m := r.Metrics
	return report.Section{Table: figures(summaryHead,
		summary("TTFT (ms)", m.TTFT), summary("TPOT (ms)", m.TPOT), summary("ITL (ms)", m.ITL), summary("E2EL (ms)", m.E2E))}
}

// split is where the time to the first token went.
func (r *Report) split() report.Section {
	m := r.Metrics
	s := report.Section{Title: r.splitTitle("Where the time to first token goes"), Table: figures(summaryHead)}
	for _, p := range parts {
		s.Table.Add(summary(p.row, p.of(&m.Split))...)
	}
	s.Table.Add(summary("KV on the wire, all (ms)", m.Wire)...)
	s.Table.Add(summary("KV exposed: from prefill to cache (ms)", m.Exposed)...)
	share := "-"
	if m.KVShareOfTTFT != nil {
		share = percent(*m.KVShareOfTTFT)
	}
	s.Lines = append(s.Lines, fmt.Sprintf("Moving the KV cache is %s of all time to first token; %s moved.", share, units.Bytes(m.KVBytes)))
	s.Lines = append(s.Lines, r.Prefill.busy("Prefill")...)
	if r.Decode != nil {
		s.Lines = append(s.Lines, r.Decode.busy("Decode")...)
	}
	return s
}

// busy says what the instances of a pool did.
func (p *Pool) busy(name string) []string {
	if p.Busy == nil {
		return nil
	}
	line := fmt.Sprintf("%s instances compute %s of the time.", name, percent(*p.Busy))
	if p.Preempted != nil && *p.Preempted > 0 {
		line += fmt.Sprintf(" %s had to be computed again for lack of memory.", text.Plural(int(*p.Preempted), "sequence"))
	}
	if p.PrefixTokens != nil && p.PrefixHitRatio != nil {
		line += fmt.Sprintf(" %d tokens (%s) of their prompts came from the prefix cache.", *p.PrefixTokens, percent(*p.PrefixHitRatio))
	}
	return []string{line}
}

// splitTitle says what the parts add up to: where prefill gives the first token, caches move after it.
func (r *Report) splitTitle(usual string) string {
	if r.Serving.FirstToken == "prefill" && r.Decode != nil {
		return "Where the time goes until the cache has arrived; the first token comes when prefill ends"
	}
	return usual
}

// tokens are the lengths of prompts of a bucket.
func tokens(x *kv.Bucket) string {
	if x.To == nil {
		return fmt.Sprintf("%d to more", x.From)
	}
	return fmt.Sprintf("%d to %d", x.From, *x.To)
}

func (r *Report) buckets() report.Section {
	if len(r.Metrics.Buckets) < 2 {
		return report.Section{}
	}
	t := figures([]string{"Tokens", "Requests", "TTFT mean (ms)", "P99 (ms)", "Queue mean (ms)", "KV exposed mean (ms)", "P99 (ms)", "moving, of TTFT"})
	for i := range r.Metrics.Buckets {
		x := &r.Metrics.Buckets[i]
		share := "-"
		if x.KVShareOfTTFT != nil {
			share = percent(*x.KVShareOfTTFT)
		}
		ttft, _, ttft99 := texts(x.TTFT)
		queue, _, _ := texts(x.Queue)
		exposed, _, exposed99 := texts(x.Exposed)
		t.Add(tokens(x), strconv.Itoa(x.Completed), ttft, ttft99, queue, exposed, exposed99, share)
	}
	return report.Section{Title: "By prompt length", Table: t}
}

func (r *Report) lanes(o Options) report.Section {
	if r.Decode == nil {
		return report.Section{}
	}
	if len(r.Lanes) == 0 {
		return report.Section{Title: "Lanes", Lines: []string{"none: nothing moved, or only within a host"}}
	}
	t := figures([]string{"", "Bytes", "Share", "Rate", "Use", "Slices", "Retries"})
	for i := range r.Lanes[:min(len(r.Lanes), maxLanes)] {
		x := &r.Lanes[i]
		rate, use, share := "?", "?", "-"
		if x.BytesPerSec != nil {
			rate = units.Rate(*x.BytesPerSec, cmp.Or(o.Units, units.Gbyte))
		}
		if x.Use != nil {
			use = percent(*x.Use)
		}
		if x.Share != nil {
			share = percent(*x.Share)
		}
		t.Add(x.Lane, units.Bytes(x.Bytes), share, rate, use, strconv.FormatInt(x.Slices, 10), strconv.FormatInt(x.Retries, 10))
	}
	s := report.Section{Title: "Lanes", Table: t}
	if more := len(r.Lanes) - maxLanes; more > 0 {
		s.Lines = []string{fmt.Sprintf("and %d more", more)}
	}
	return s
}

func (r *Report) compared() report.Section {
	if len(r.Compared) == 0 {
		return report.Section{}
	}
	t := figures([]string{"", "TTFT mean (ms)", "Median", "P99", "of this run", "E2EL mean (ms)", "KV exposed mean (ms)", "Requests/s", "No answer"})
	var one *float64
	if slices.ContainsFunc(r.Compared, func(c Compared) bool { return c.TTFTRatio != nil }) {
		v := 1.0
		one = &v
	}
	t.Add(comparedRow("this run", r.Metrics, one)...)
	for i := range r.Compared {
		t.Add(comparedRow(r.Compared[i].Name, r.Compared[i].Metrics, r.Compared[i].TTFTRatio)...)
	}
	return report.Section{Title: "The same run with other networks", Table: t}
}

func comparedRow(name string, m *kv.Metrics, ratio *float64) []string {
	times := "-"
	if ratio != nil {
		times = strconv.FormatFloat(*ratio, 'f', 3, 64) + "x"
	}
	ttft, median, p99 := texts(m.TTFT)
	e2e, _, _ := texts(m.E2E)
	exposed, _, _ := texts(m.Exposed)
	return []string{name, ttft, median, p99, times, e2e, exposed, known(m.RequestsPerSec), strconv.Itoa(m.Failed + m.Unfinished)}
}

var summaryHead = []string{"", "Mean", "Median", "P99"}

func summary(name string, s *kv.Summary) []string {
	mean, median, p99 := texts(s)
	return []string{name, mean, median, p99}
}

// texts are the figures of a summary, "-" where there are none.
func texts(s *kv.Summary) (mean, median, p99 string) {
	if s == nil {
		return "-", "-", "-"
	}
	return fixed(s.Mean), fixed(s.Median), fixed(s.P99)
}

func known(v *float64) string {
	if v == nil {
		return "-"
	}
	return fixed(*v)
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" }
