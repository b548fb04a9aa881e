package show

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// detailView is everything that is known of a pair.
type detailView struct {
	ID, Pair, Of, Rate string
	Verdict            probe.Verdict
	Reasons            []string
	Facts              []fact
	Sizes              []sizeView
	Latencies          [][]string
	LatencyUnit, Unit  string
	Path               []hopView
	PathKnown          bool
	Retests            []string
}

type sizeView struct {
	Size, Mean, Median, N, Stopped string
	Spark                          template.HTML
}

// hopView is one link of a way.
type hopView struct {
	Name, Rate, State string
	Basis             topo.Basis
	Limit, Suspect    bool
}

// reportLinks are the links of a report, and which of them are suspects of each pair's faults.
type reportLinks struct {
	links    map[probe.LinkKey]*probe.Link
	suspects map[string]map[probe.LinkKey]bool // by pair
}

func newReportLinks(r *probe.Report) *reportLinks {
	k := &reportLinks{map[probe.LinkKey]*probe.Link{}, map[string]map[probe.LinkKey]bool{}}
	for i := range r.Links {
		k.links[r.Links[i].Key] = &r.Links[i]
	}
	for i := range r.Blame {
		b := &r.Blame[i]
		of := map[probe.LinkKey]bool{}
		for j := range b.Suspects {
			for _, l := range b.Suspects[j].Links {
				of[l] = true
			}
		}
		for _, id := range b.Pairs {
			k.suspects[id] = of
		}
	}
	return k
}

func (s *section) detail(x *probe.Result, k *reportLinks, id string) detailView {
	d := detailView{ID: id, Of: s.title, Pair: PairName(&x.Pair, s.local), Verdict: x.Verdict, PathKnown: x.PathKnown, LatencyUnit: s.nsUnit, Unit: s.unit.Suffix()}
	if x.Judged() != nil {
		d.Rate = s.rate(x) + " " + s.unit.Suffix()
	}
	if why := x.Why(); why != "" {
		d.Reasons = append(d.Reasons, clean(why))
	}
	for _, w := range x.Reasons {
		d.Reasons = append(d.Reasons, clean(w.Code)+": "+clean(w.Text))
	}
	d.Facts = s.facts(x)
	for i := range x.Bandwidth {
		d.Sizes = append(d.Sizes, s.sizeOf(&x.Bandwidth[i]))
	}
	if l := x.Latency; l != nil {
		for _, of := range []struct {
			name string
			p    *probe.Percentiles
		}{{"round trip", l.RTT}, {"one way, assumed to be half of it", l.OneWay}, {"load of memory", l.Load}, {"copy", l.Copy}} {
			if of.p != nil {
				d.Latencies = append(d.Latencies, s.percentiles(of.name, of.p))
			}
		}
	}
	for _, key := range x.Path {
		hop := s.hop(x, key, k.links[key])
		hop.Suspect = k.suspects[x.ID][key]
		d.Path = append(d.Path, hop)
	}
	for i := range x.Retests {
		d.Retests = append(d.Retests, s.retest(&x.Retests[i]))
	}
	return d
}

// facts are what is known besides the figures.
func (s *section) facts(x *probe.Result) []fact {
	out := []fact{{"id", clean(x.ID)}}
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{name, value})
		}
	}
	want := "nothing is known"
	if x.Expected.BytesPerSec != nil {
		want = units.Rate(int64(*x.Expected.BytesPerSec), s.unit) + ": " + clean(x.Expected.Why)
	}
	add("expected", want)
	if x.OfBest != nil {
		add("of the best of its group", percent(x.OfBest))
	}
	add("class", classText(&x.Pair))
	for _, e := range []struct {
		name string
		end  *probe.End
	}{{"from", &x.From}, {"to", &x.To}} {
		text := endName(e.end, s.local)
		if e.end.Location != "" {
			text += ", memory of " + clean(string(e.end.Location))
		}
		add(e.name, text)
	}
	if x.Round > 0 {
		add("round", fmt.Sprint(x.Round))
	}
	b := &x.Binding
	var where []string
	if b.Threads > 0 {
		where = append(where, text.Plural(b.Threads, "thread"))
	}
	if b.CPUs != "" {
		where = append(where, "CPUs "+clean(b.CPUs))
	}
	if b.FromMemory != nil {
		where = append(where, fmt.Sprintf("from memory of NUMA node %d", *b.FromMemory))
	}
	if b.ToMemory != nil {
		where = append(where, fmt.Sprintf("to memory of NUMA node %d", *b.ToMemory))
	}
	add("bound to", strings.Join(where, ", "))
	if x.CPUSecondsPerGB != nil {
		add("processor time", number(*x.CPUSecondsPerGB)+" s per GB, both ends")
	}
	for _, n := range x.Notes {
		add("note", clean(n))
	}
	return out
}

// sizeOf is the result of one size of op.
func (s *section) sizeOf(b *probe.Bandwidth) sizeView {
	v := sizeView{Size: units.Bytes(b.SizeBytes), Mean: "-", Median: "-", N: count(len(b.SamplesBytesPerSec)), Stopped: stoppedText(b.Stopped)}
	if len(b.SamplesBytesPerSec) > 0 {
		v.Mean, v.Median = interval(b.MeanBytesPerSec, b.CI95BytesPerSec, s.unit), units.RateNumber(b.MedianBytesPerSec, s.unit)
		v.Spark = spark(b)
	}
	return v
}

func stoppedText(s string) string {
	switch s {
	case probe.StoppedCI:
		return "interval narrow enough"
	case probe.StoppedMaxSamples:
		return "maximum number of samples, interval still wide"
	case probe.StoppedTime:
		return "out of time"
	}
	return clean(s)
}

func (s *section) percentiles(name string, p *probe.Percentiles) []string {
	p999 := "-"
	if p.P999 != nil {
		p999 = s.ns(*p.P999)
	}
	return []string{name, count(p.N), s.ns(p.Min), s.ns(p.P50), s.ns(p.P90), s.ns(p.P99), p999, s.ns(p.Max)}
}

// hop is a link of the path, with its state during the measurement. l is nil if the report does not have
// it.
func (s *section) hop(x *probe.Result, key probe.LinkKey, l *probe.Link) hopView {
	v := hopView{Name: clean(string(key)), Rate: "-", Basis: topo.BasisUnknown, Limit: key == x.Expected.Limit}
	if l != nil {
		u := s.unit
		if l.Kind != topo.LinkPort && l.Kind != probe.LinkUplink && u == units.Gbit {
			u = units.Gbyte
		}
		v.Name = clean(l.Name) + directionText(l.Direction)
		v.Basis = l.Basis
		if l.BytesPerSec != nil {
			v.Rate = units.Rate(int64(*l.BytesPerSec), u)
		}
	}
	var parts []string
	for i := range x.Links {
		st := &x.Links[i]
		if st.Link != key {
			continue
		}
		if st.State != "" {
			parts = append(parts, clean(st.State))
		}
		for _, name := range slices.SortedFunc(maps.Keys(st.Counters), topo.NaturalCompare) {
			parts = append(parts, fmt.Sprintf("%s +%d", clean(name), st.Counters[name]))
		}
	}
	v.State = strings.Join(parts, ", ")
	return v
}

func directionText(d string) string {
	switch d {
	case "up", "down":
		return ", " + d
	}
	return ""
}

func (s *section) retest(t *probe.Retest) string {
	text := "retested"
	switch t.How {
	case probe.RetestAlone:
		text += " alone"
	case probe.RetestOtherPartner:
		text += " with another partner, " + clean(t.Pair)
	default:
		text += ", " + clean(t.How)
	}
	if t.BytesPerSec != nil {
		text += ": " + units.Rate(*t.BytesPerSec, s.unit)
	}
	if t.LatencyNS != nil {
		text += fmt.Sprintf(", latency %s %s", s.ns(*t.LatencyNS), s.nsUnit)
	}
	switch {
	case t.Error != "":
		return text + ": " + clean(t.Error)
	case t.Confirms:
		return text + ": as bad as before"
	}
	return text + ": not as bad as before"
}

// mostPoints is how many samples a line shows at most: of more, every n-th.
const mostPoints = 120

// spark draws samples in their order, with the mean and its interval.
func spark(b *probe.Bandwidth) template.HTML {
	const w, h = 160, 30
	list := b.SamplesBytesPerSec
	low, high := slices.Min(list), slices.Max(list)
	if b.CI95BytesPerSec != nil {
		low, high = min(low, b.MeanBytesPerSec-*b.CI95BytesPerSec), max(high, b.MeanBytesPerSec+*b.CI95BytesPerSec)
	}
	y := func(v int64) float64 {
		if high == low {
			return h / 2
		}
		return 2 + (h-4)*float64(high-v)/float64(high-low)
	}
	every := (len(list) + mostPoints - 1) / mostPoints
	var points []string
	for i := 0; i < len(list); i += every {
		x := w / 2.0
		if len(list) > 1 {
			x = 2 + (w-4)*float64(i)/float64(len(list)-1)
		}
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y(list[i])))
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg class="spark" width="%d" height="%d" role="img" aria-label="%d samples">`, w, h, len(list))
	if b.CI95BytesPerSec != nil {
		top, bottom := y(b.MeanBytesPerSec+*b.CI95BytesPerSec), y(b.MeanBytesPerSec-*b.CI95BytesPerSec)
		fmt.Fprintf(&out, `<rect class="band" x="0" y="%.1f" width="%d" height="%.1f"/>`, top, w, bottom-top)
	}
	fmt.Fprintf(&out, `<path class="mean" d="M0 %.1fh%d"/>`, y(b.MeanBytesPerSec), w)
	fmt.Fprintf(&out, `<polyline class="run" points="%s"/>`, strings.Join(points, " "))
	if len(points) <= 40 {
		for _, p := range points {
			x, y, _ := strings.Cut(p, ",")
			fmt.Fprintf(&out, `<circle cx="%s" cy="%s" r="1.8"/>`, x, y)
		}
	}
	out.WriteString("</svg>")
	return template.HTML(out.String()) //nolint:gosec // numbers only
}
