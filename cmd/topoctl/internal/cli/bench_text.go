package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

func (o *benchOptions) print(r *bench.Report) error {
	look := o.Look()
	return o.printAnswer(r, func() string { return benchText(r, o.measurements(), &look) })
}

// benchText is a report for people: the answer, what was measured with, then a table for each
// op and size with its ceilings. planned is how many measurements were asked for.
func benchText(r *bench.Report, planned int, l *Look) string {
	var b strings.Builder
	b.WriteString(l.Wrap("", benchAnswer(r, l), "") + "\n")
	peer := r.Peer.Address
	if r.Peer.Name != peer {
		peer = r.Peer.Name + " at " + peer
	}
	if r.Peer.OwnChild {
		peer += " (started for this)"
	}
	fmt.Fprintf(&b, "%s with peer %s, region %s\n", r.Host, peer, r.Peer.Region)
	fmt.Fprintf(&b, "working set %s: %s on each side, %s; %s; %s\n", units.Bytes(r.Memory.WorkingSetBytes), units.Bytes(r.Memory.LocalBytes),
		r.Memory.Layout, text.Plural(r.CPUs, "CPU"), congestionText(r))
	for _, n := range append(slices.Clone(r.Memory.Notes), r.Unavailable...) {
		b.WriteString("note: " + n + "\n")
	}
	b.WriteString(benchLegend)
	for i := 0; i < len(r.Results); {
		n := i + 1
		for n < len(r.Results) && r.Results[n].Op == r.Results[i].Op && r.Results[n].SizeBytes == r.Results[i].SizeBytes {
			n++
		}
		benchGroup(&b, r, r.Results[i:n], l)
		i = n
	}
	if !r.Complete {
		b.WriteString("\n" + incompleteText(r, planned) + "\n")
	}
	return b.String()
}

// benchAnswer is the answer in a sentence: how fast each op is at its best, over which lanes, and whether what arrived is
// right.
func benchAnswer(r *bench.Report, l *Look) string {
	var best []*bench.Result // of each op
	var wrong, lost *bench.Result
	verified, unverified, failed := int64(0), 0, 0
	for i := range r.Results {
		x := &r.Results[i]
		switch v := x.Verified; {
		case v == nil || v.Bytes == 0:
			unverified++
		case v.MismatchedBytes > 0:
			wrong = cmp.Or(wrong, x)
		default:
			verified += v.Bytes
		}
		if x.Error != nil {
			lost = cmp.Or(lost, x)
			failed++
		}
		if x.BytesPerSec == 0 {
			continue
		}
		at := slices.IndexFunc(best, func(y *bench.Result) bool { return y.Op == x.Op })
		if at < 0 {
			best = append(best, x)
		} else if x.BytesPerSec > best[at].BytesPerSec {
			best[at] = x
		}
	}
	var said []string
	if wrong != nil {
		said = append(said, fmt.Sprintf("WRONG: %d bytes of %s differ in %s of %s by %s", wrong.Verified.MismatchedBytes,
			units.Bytes(wrong.Verified.Bytes), wrong.Op, units.Bytes(wrong.SizeBytes), carriedBy(wrong)))
	}
	if len(best) == 0 {
		said = append(said, "Nothing was measured")
		if lost != nil {
			said[len(said)-1] += ": " + *lost.Error
		}
		return strings.Join(said, "; ") + "."
	}
	if lost != nil {
		said = append(said, fmt.Sprintf("FAILED: %d of %s: %s", failed, text.Plural(len(r.Results), "measurement"), *lost.Error))
	}
	var rates []string
	for _, x := range best {
		rates = append(rates, fmt.Sprintf("%s %s (ops of %s)", x.Op, units.Rate(x.BytesPerSec, l.Units), units.Bytes(x.SizeBytes)))
	}
	first := slices.MaxFunc(best, func(a, b *bench.Result) int { return cmp.Compare(a.BytesPerSec, b.BytesPerSec) })
	rate := strings.Join(rates, ", ") + " by " + carriedBy(first)
	if lanes := lanesText(first); lanes != "" {
		rate += " over " + lanes
	}
	if len(said) == 0 {
		rate = strings.ToUpper(rate[:1]) + rate[1:]
	}
	said = append(said, rate)
	switch {
	case verified > 0 && unverified == 0 && wrong == nil:
		said = append(said, "every byte is right ("+units.Bytes(verified)+" verified)")
	case verified > 0 && wrong == nil:
		said = append(said, units.Bytes(verified)+" were verified and are right")
	case wrong == nil:
		said = append(said, "bytes were not verified (--check does)")
	}
	return strings.Join(said, "; ") + "."
}

// benchLegend says what the heads of the tables mean.
const benchLegend = "p50 to max: latency of a batch. CPU s/GB: CPU time for 10^9 bytes (\"here\": without the peer's).\n" +
	"of raw, of copy: the rate divided by that of a raw socket, and of memcpy.\n"

// incompleteText says how much of what was asked for is there.
func incompleteText(r *bench.Report, planned int) string {
	whole, partial := 0, 0
	for i := range r.Results {
		switch x := &r.Results[i]; {
		case x.Complete:
			whole++
		case x.Bytes > 0:
			partial++
		}
	}
	return fmt.Sprintf("incomplete: of %s, %d complete, %d partial, %d without a result", text.Plural(planned, "measurement"), whole, partial, planned-whole-partial)
}

// congestionText says which congestion control was in force.
func congestionText(r *bench.Report) string {
	var names []string
	seen := map[string]bool{}
	for i := range r.Results {
		if c := r.Results[i].CongestionControl; c != nil && !seen[*c] {
			seen[*c] = true
			names = append(names, *c)
		}
	}
	for i := range r.Ceilings {
		if c := r.Ceilings[i].CongestionControl; c != nil && !seen[*c] {
			seen[*c] = true
			names = append(names, *c+" (raw socket)")
		}
	}
	if len(names) == 0 {
		return "no sockets"
	}
	return "congestion control " + strings.Join(names, ", ")
}

// benchGroup writes the measurements of one op and size.
func benchGroup(b *strings.Builder, r *bench.Report, results []bench.Result, l *Look) {
	first := &results[0]
	fmt.Fprintf(b, "\n%s\n", l.Paint(fmt.Sprintf("%s %s x %d, %s x %d in flight", first.Op, units.Bytes(first.SizeBytes), first.Batch,
		text.Plural(first.Threads, "thread"), first.InFlight), Strong))
	t := answerTable("", "rate", "ops/s", "p50", "p99", "p99.9", "max", "CPU s/GB", "of raw", "of copy", "lanes")
	for i := range results {
		t.Rows = append(t.Rows, resultRow(&results[i], l))
	}
	for i := range r.Ceilings {
		if c := &r.Ceilings[i]; c.SizeBytes == first.SizeBytes && c.Op == first.Op {
			t.Rows = append(t.Rows, ceilingRow(c, l))
		}
	}
	b.WriteString(l.Table(t))
}

func resultRow(x *bench.Result, l *Look) Row {
	cpu := "-"
	switch {
	case x.CPUSecondsPerGB != nil:
		cpu = fmt.Sprintf("%.2f", *x.CPUSecondsPerGB)
	case x.LocalCPUSecondsPerGB != nil:
		cpu = fmt.Sprintf("%.2f here", *x.LocalCPUSecondsPerGB)
	}
	rate, ops, raw, memcpy := units.Rate(x.BytesPerSec, l.Units), thousands(x.OpsPerSec), benchPart(x.OfRawSocket), benchPart(x.OfMemcpy)
	if x.Error != nil && x.BytesPerSec == 0 { // nothing was measured
		rate, ops, raw, memcpy = "-", "-", "-", "-"
	}
	r := Row{Cells: []string{carriedBy(x), rate, ops, duration(x.Latency.P50), duration(x.Latency.P99),
		duration(x.Latency.P999), duration(x.Latency.Max), cpu, raw, memcpy, lanesText(x)}}
	add := func(format string, args ...any) { r.Below = append(r.Below, fmt.Sprintf(format, args...)) }
	if !x.Complete && x.Bytes > 0 {
		r.Color = Caution
		add("PARTIAL: measured for %s", duration(&x.DurationNS))
	}
	if x.Retries > 0 || x.Fallbacks > 0 {
		add("%s sent again, %s to a worse transport", text.Plural(int(x.Retries), "slice"), text.Plural(int(x.Fallbacks), "change"))
	}
	switch v := x.Verified; {
	case v == nil:
	case v.Bytes == 0:
		add("nothing was verified")
	case v.MismatchedBytes == 0:
		add("verified %s: every byte is right", units.Bytes(v.Bytes))
	default:
		r.Color = Bad
		add("WRONG: %d bytes of %s in %s differ; the first: %s", v.MismatchedBytes, units.Bytes(v.Bytes), text.Plural(int(v.MismatchedOps), "op"), *v.First)
	}
	if x.Fault != nil {
		r.Below = append(r.Below, faultText(x, l))
	}
	if x.Error != nil {
		r.Color = Bad
		add("FAILED: %s", *x.Error)
	}
	if l.Verbose {
		add("checksum: %s; %d samples of latency", x.Checksum, x.Latency.N)
		for _, lane := range x.Lanes {
			add("lane %s: %s, %s in %d slices, %s", lane.Lane, lane.Transport, units.Bytes(lane.Bytes), lane.Slices, lane.Connection)
		}
	}
	return r
}

// carriedBy is the transport that was asked for, and what it came to.
func carriedBy(x *bench.Result) string {
	var names []string
	for _, l := range x.Lanes {
		if l.Transport != x.Transport && !slices.Contains(names, l.Transport) {
			names = append(names, l.Transport)
		}
	}
	if len(names) == 0 {
		return x.Transport
	}
	slices.Sort(names)
	return x.Transport + ": " + strings.Join(names, ", ")
}

func faultText(x *bench.Result, l *Look) string {
	f := x.Fault
	rate := func(v *int64) string {
		if v == nil {
			return "-"
		}
		return units.Rate(*v, l.Units)
	}
	text := fmt.Sprintf("lane %s out after %s", f.Lane, time.Duration(f.AtNS).Round(time.Millisecond))
	if f.ResumedAtNS != nil {
		text += ", back after " + time.Duration(*f.ResumedAtNS).Round(time.Millisecond).String()
	}
	text += fmt.Sprintf(": %s before, %s during", rate(f.BeforeBytesPerSec), rate(f.DuringBytesPerSec))
	if f.AfterBytesPerSec != nil {
		text += ", " + rate(f.AfterBytesPerSec) + " after"
	}
	text += "; longest time without a batch " + duration(f.LongestGapNS)
	if !slices.ContainsFunc(x.Lanes, func(lane bench.LaneResult) bool { return lane.Lane == f.Lane }) {
		text += " (the lane carried nothing)"
	}
	return text
}

func ceilingRow(c *bench.Ceiling, l *Look) Row {
	name := map[string]string{bench.RawSocket: "raw socket", bench.RawVerbs: "raw verbs", bench.Memcpy: "memcpy", bench.StreamingCopy: "streaming copy"}[c.Kind]
	if c.Streams > 1 {
		name += " x " + strconv.Itoa(c.Streams)
	}
	r := Row{Cells: []string{name, "-"}, Color: Faint}
	if c.BytesPerSec != nil {
		r.Cells[1] = units.Rate(*c.BytesPerSec, l.Units)
		if c.CPUSecondsPerGB != nil {
			r.Cells = append(r.Cells, "", "", "", "", "", fmt.Sprintf("%.2f", *c.CPUSecondsPerGB))
		}
		r.Cells = append(r.Cells, "") // no column is the last: that one is not padded
	} else if c.Reason != nil {
		r.Cells[1] = "- (" + *c.Reason + ")"
	}
	return r
}

// lanesText is each lane's part of the bytes.
func lanesText(x *bench.Result) string {
	total := int64(0)
	for _, l := range x.Lanes {
		total += l.Bytes
	}
	var names []string
	for _, l := range x.Lanes {
		names = append(names, fmt.Sprintf("%s %.0f %%", l.Lane, 100*float64(l.Bytes)/float64(max(1, total))))
	}
	return text.List(names, 4)
}

// duration prints nanoseconds with three digits, "-" where there are none.
func duration(ns *int64) string {
	if ns == nil {
		return "-"
	}
	v, unit := float64(*ns)/1e3, "µs"
	switch {
	case v >= 1e6:
		v, unit = v/1e6, "s"
	case v >= 1e3:
		v, unit = v/1e3, "ms"
	}
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64) + " " + unit
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
	}
	return strconv.FormatFloat(v, 'f', 2, 64) + " " + unit
}

// benchPart prints a ratio.
func benchPart(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}

// thousands prints a count with its thousands apart.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
