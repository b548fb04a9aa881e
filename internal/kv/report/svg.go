package report

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/report"
)

// maxBars is how many lanes are drawn.
const maxBars = 24

// parts are those of TTFT, in the order of time: as rows of a table call them, drawings and sentences.
var parts = []struct {
	row, name, words string
	of               func(*kv.Split) *kv.Summary
}{
	{"Queue (ms)", "queue", "waiting for prefill", func(s *kv.Split) *kv.Summary { return s.Queue }},
	{"Prefill (ms)", "prefill", "prefill", func(s *kv.Split) *kv.Summary { return s.Compute }},
	{"Wait for KV memory (ms)", "wait for KV memory", "waiting for KV memory", func(s *kv.Split) *kv.Summary { return s.MemoryWait }},
	{"Wait for the transfer to begin (ms)", "wait for the transfer", "waiting for the transfer to begin",
		func(s *kv.Split) *kv.Summary { return s.LinkWait }},
	{"KV on the wire, not hidden (ms)", "KV on the wire", "KV on the wire", func(s *kv.Split) *kv.Summary { return s.WireExposed }},
	{"Then to the first token (ms)", "then to the first token", "the step of decode", func(s *kv.Split) *kv.Summary { return s.Rest }},
}

// SVG draws where the time to first token goes: of this run and those that it is compared
// with, and by prompt length; then the use of each lane.
func (r *Report) SVG() []byte {
	d := &report.Bars{Title: r.splitTitle("Mean time to first token, by where it goes"),
		Subtitle: fmt.Sprintf("%s, %s; compute is %s, the network is %s", r.Model.Name, r.Workload.Name, r.ComputeBasis, r.NetworkBasis)}
	for _, p := range parts {
		d.Parts = append(d.Parts, p.name)
	}
	runs := report.BarGroup{Title: "By network", Bars: []report.Bar{splitBar("this run", &r.Metrics.Split)}}
	for i := range r.Compared {
		runs.Bars = append(runs.Bars, splitBar(r.Compared[i].Name, &r.Compared[i].Metrics.Split))
	}
	lengths := report.BarGroup{Title: "By prompt length"}
	for i := range r.Metrics.Buckets {
		x := &r.Metrics.Buckets[i]
		lengths.Bars = append(lengths.Bars, splitBar(tokens(x)+" tokens", &x.Split))
	}
	lanes := report.BarGroup{Title: "Use of lanes over the whole run", Full: 1}
	for i := range r.Lanes[:min(len(r.Lanes), maxBars)] {
		x := report.Bar{Name: r.Lanes[i].Lane, Value: "?"}
		if use := r.Lanes[i].Use; use != nil {
			x.Value, x.Parts, x.Tips = percent(*use), []float64{*use}, []string{percent(*use)}
		}
		lanes.Bars = append(lanes.Bars, x)
	}
	if more := len(r.Lanes) - maxBars; more > 0 {
		lanes.More = fmt.Sprintf("and %d more", more)
	}
	d.Groups = append(d.Groups, runs)
	if len(lengths.Bars) > 1 {
		d.Groups = append(d.Groups, lengths)
	}
	if len(lanes.Bars) > 0 {
		d.Groups = append(d.Groups, lanes)
	}
	return d.SVG()
}

// splitBar is the mean of each part of TTFT.
func splitBar(name string, s *kv.Split) report.Bar {
	b := report.Bar{Name: name, Value: "-"}
	sum, known := 0., false
	for _, p := range parts {
		v := 0.
		if x := p.of(s); x != nil {
			v, known = x.Mean, true
		}
		b.Parts, b.Tips = append(b.Parts, v), append(b.Tips, p.name+" "+millis(v))
		sum += v
	}
	if known {
		b.Value = millis(sum)
	}
	return b
}
