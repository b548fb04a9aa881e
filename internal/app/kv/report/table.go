package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/app/kv/metrics"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// Options say how a report is printed.
type Options struct {
	Units units.System // of rates; "" is Gbyte
	// All prints everything; otherwise the answer, the latencies and what limits them.
	All bool
}

// maxLanes is how many lanes and places the table lists; the document has all.
const maxLanes = 16

// Text is the report for people, with the answer in the first line. Names are printed as they are:
// the caller makes the text safe for a terminal.
func (r *Report) Text(o Options) string {
	var b strings.Builder
	for _, line := range r.Answer() {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "Compute is %s, the network is %s.\n", r.ComputeBasis, r.NetworkBasis)
	if o.All {
		b.WriteByte('\n')
		r.head(&b)
		r.served(&b)
	}
	r.latencies(&b)
	if o.All {
		r.split(&b)
		r.buckets(&b)
		r.lanes(&b, o)
	}
	r.compared(&b)
	if len(r.Notes)+len(r.Failures) > 0 {
		b.WriteByte('\n')
	}
	for _, f := range r.Failures {
		where := fmt.Sprintf("request %d", f.First)
		if f.Line != nil {
			where = fmt.Sprintf("line %d of the trace", *f.Line)
		}
		fmt.Fprintf(&b, "failed: %d, the first in %s: %s\n", f.Requests, where, f.Reason)
	}
	for _, n := range r.Notes {
		b.WriteString("note: " + n + "\n")
	}
	if !o.All {
		b.WriteString("\n--all shows what was run, where the time goes, and lanes.\n")
	}
	return b.String()
}

// head says what was run.
func (r *Report) head(b *strings.Builder) {
	w := fmt.Sprintf("%s; %s, seed %d", r.Workload.Name, text.Plural(r.Workload.Requests, "request"), r.Workload.Seed)
	if r.Workload.Trace != nil {
		w = fmt.Sprintf("%s; %s", r.Workload.Name, text.Plural(r.Workload.Requests, "request"))
	}
	x := [][]string{
		{"workload", w}, {"model", fmt.Sprintf("%s, %s of KV cache per token", r.Model.Name, units.Bytes(r.Model.KVBytesPerToken))},
		{"prefill", r.Prefill.text()}, {"", "modelled, " + basisText(string(r.Prefill.Compute.Prefill.Basis), r.Prefill.Compute.Prefill.Source)},
	}
	decode := &r.Prefill
	if r.Decode == nil {
		x = append(x, []string{"decode", "on the same instances"})
	} else {
		decode = r.Decode
		x = append(x, []string{"decode", decode.text()})
	}
	x = append(x, []string{"", "modelled, " + basisText(string(decode.Compute.Decode.Basis), decode.Compute.Decode.Source)})
	if r.Decode != nil {
		x = append(x, []string{"moving", r.Serving.text()}, []string{"network", r.Network.text(r.NetworkBasis)})
	}
	for _, line := range x {
		fmt.Fprintf(b, "%-9s %s\n", line[0], line[1])
	}
	for _, what := range r.Network.WhatIf {
		fmt.Fprintf(b, "%-9s %s\n", "what if", what)
	}
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

// served are the columns of vLLM's serving benchmark, with its names.
func (r *Report) served(b *strings.Builder) {
	m := r.Metrics
	b.WriteByte('\n')
	line := func(name, value string) { fmt.Fprintf(b, "%-33s %12s\n", name+":", value) }
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
}

// latencies are those of vLLM's serving benchmark, and the goodput where limits were given.
func (r *Report) latencies(b *strings.Builder) {
	m := r.Metrics
	b.WriteByte('\n')
	rows := [][]string{{"", "Mean", "Median", "P99"}}
	rows = append(rows, summary("TTFT (ms)", m.TTFT), summary("TPOT (ms)", m.TPOT), summary("ITL (ms)", m.ITL), summary("E2EL (ms)", m.E2E))
	b.WriteString(columns(rows))
	if m.GoodputPerSec != nil {
		fmt.Fprintf(b, "\nRequest goodput (req/s): %s of %s\n", known(m.GoodputPerSec), known(m.RequestsPerSec))
	}
}

// split is where the time to the first token went.
func (r *Report) split(b *strings.Builder) {
	m := r.Metrics
	b.WriteString("\n" + r.splitTitle("Where the time to first token goes") + "\n")
	rows := [][]string{{"", "Mean", "Median", "P99"}}
	rows = append(rows, summary("Queue (ms)", m.Queue), summary("Prefill (ms)", m.Compute), summary("Wait for KV memory (ms)", m.MemoryWait),
		summary("Wait for the transfer to begin (ms)", m.LinkWait), summary("KV on the wire, not hidden (ms)", m.WireExposed), summary("Then to the first token (ms)", m.Rest),
		summary("KV on the wire, all (ms)", m.Wire), summary("KV exposed: from prefill to cache (ms)", m.Exposed))
	b.WriteString(columns(rows))
	share := "-"
	if m.KVShareOfTTFT != nil {
		share = percent(*m.KVShareOfTTFT)
	}
	fmt.Fprintf(b, "Moving the KV cache is %s of all time to first token; %s moved.\n", share, units.Bytes(m.KVBytes))
	r.Prefill.busy(b, "Prefill")
	if r.Decode != nil {
		r.Decode.busy(b, "Decode")
	}
}

// busy says what the instances of a pool did.
func (p *Pool) busy(b *strings.Builder, name string) {
	if p.Busy == nil {
		return
	}
	fmt.Fprintf(b, "%s instances compute %s of the time.", name, percent(*p.Busy))
	if p.Preempted != nil && *p.Preempted > 0 {
		fmt.Fprintf(b, " %s had to be computed again for lack of memory.", text.Plural(int(*p.Preempted), "sequence"))
	}
	if p.PrefixTokens != nil && p.PrefixHitRatio != nil {
		fmt.Fprintf(b, " %d tokens (%s) of their prompts came from the prefix cache.", *p.PrefixTokens, percent(*p.PrefixHitRatio))
	}
	b.WriteByte('\n')
}

// splitTitle says what the parts add up to: where prefill gives the first token, caches move after it.
func (r *Report) splitTitle(usual string) string {
	if r.Serving.FirstToken == "prefill" && r.Decode != nil {
		return "Where the time goes until the cache has arrived; the first token comes when prefill ends"
	}
	return usual
}

func (r *Report) buckets(b *strings.Builder) {
	if len(r.Metrics.Buckets) < 2 {
		return
	}
	b.WriteString("\nBy prompt length\n")
	rows := [][]string{{"Tokens", "Requests", "TTFT mean (ms)", "P99 (ms)", "Queue mean (ms)", "KV exposed mean (ms)", "P99 (ms)", "moving, of TTFT"}}
	for i := range r.Metrics.Buckets {
		x := &r.Metrics.Buckets[i]
		to := "more"
		if x.To != nil {
			to = strconv.Itoa(*x.To)
		}
		share := "-"
		if x.KVShareOfTTFT != nil {
			share = percent(*x.KVShareOfTTFT)
		}
		rows = append(rows, []string{fmt.Sprintf("%d to %s", x.From, to), strconv.Itoa(x.Completed), mean(x.TTFT), p99(x.TTFT), mean(x.Queue), mean(x.Exposed), p99(x.Exposed), share})
	}
	b.WriteString(columns(rows))
}

func (r *Report) lanes(b *strings.Builder, o Options) {
	if r.Decode == nil {
		return
	}
	b.WriteString("\nLanes\n")
	if len(r.Lanes) == 0 {
		b.WriteString("none: nothing moved, or only within a host\n")
		return
	}
	rows := [][]string{{"", "Bytes", "Share", "Rate", "Use", "Slices", "Retries"}}
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
		rows = append(rows, []string{x.Lane, units.Bytes(x.Bytes), share, rate, use, strconv.FormatInt(x.Slices, 10), strconv.FormatInt(x.Retries, 10)})
	}
	b.WriteString(columns(rows))
	if more := len(r.Lanes) - maxLanes; more > 0 {
		fmt.Fprintf(b, "and %d more\n", more)
	}
}

func (r *Report) compared(b *strings.Builder) {
	if len(r.Compared) == 0 {
		return
	}
	b.WriteString("\nThe same run with other networks\n")
	rows := [][]string{{"", "TTFT mean (ms)", "Median", "P99", "of this run", "E2EL mean (ms)", "KV exposed mean (ms)", "Requests/s", "No answer"}}
	var one *float64
	if slices.ContainsFunc(r.Compared, func(c Compared) bool { return c.TTFTRatio != nil }) {
		v := 1.0
		one = &v
	}
	rows = append(rows, comparedRow("this run", r.Metrics, one))
	for i := range r.Compared {
		rows = append(rows, comparedRow(r.Compared[i].Name, r.Compared[i].Metrics, r.Compared[i].TTFTRatio))
	}
	b.WriteString(columns(rows))
}

func comparedRow(name string, m *metrics.Metrics, ratio *float64) []string {
	times := "-"
	if ratio != nil {
		times = strconv.FormatFloat(*ratio, 'f', 3, 64) + "x"
	}
	median := "-"
	if m.TTFT != nil {
		median = fixed(m.TTFT.Median)
	}
	return []string{name, mean(m.TTFT), median, p99(m.TTFT), times, mean(m.E2E), mean(m.Exposed), known(m.RequestsPerSec), strconv.Itoa(m.Failed + m.Unfinished)}
}

func summary(name string, s *metrics.Summary) []string {
	if s == nil {
		return []string{name, "-", "-", "-"}
	}
	return []string{name, fixed(s.Mean), fixed(s.Median), fixed(s.P99)}
}

func mean(s *metrics.Summary) string {
	if s == nil {
		return "-"
	}
	return fixed(s.Mean)
}

func p99(s *metrics.Summary) string {
	if s == nil {
		return "-"
	}
	return fixed(s.P99)
}

func known(v *float64) string {
	if v == nil {
		return "-"
	}
	return fixed(*v)
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" }

// columns sets names at the left and figures at the right, a row a line.
func columns(rows [][]string) string {
	return strings.Join(text.Columns(rows, text.Column{}, text.Column{Right: true}), "\n") + "\n"
}
