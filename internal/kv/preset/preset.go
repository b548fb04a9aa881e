package preset

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/pathsel"
)

// Preset is a published system.
type Preset struct {
	Name  string
	About string
	Model string
	GPU   string
	// Fixture is what its hosts are, Hosts how many.
	Fixture string
	Hosts   int
	// Prefill are the instances that prefill, or do both; Decode those that decode, none
	// without disaggregation.
	Prefill, Decode Instances
	// Serving says how it serves; instances, compute, pages and layout are put in by Run.
	Serving   serve.Config
	Transport pathsel.Transport
	// NICs is how many data ports of each host are used; 0: all.
	NICs int
	// Staged: caches are moved from and to host memory, without GPUDirect.
	Staged bool
	// SliceBytes are those of serve.Spec: coarse ones where the wire is a small part.
	SliceBytes int64
	Software   *Software // nil: none
	// Activations: what crosses the network is not a cache but activations between the stages
	// of a pipeline. That is only added up, by formula.
	Activations bool
	// Assumed is what the report does not tell, in sentences.
	Assumed []string
	// Uncompared are columns that are not compared, and why.
	Uncompared map[Metric]string
	Rows       []Row
}

// Instances are equal ones.
type Instances struct {
	Count, TP, PP int
	PageTokens    int
}

// Software is the time that a system's software takes to move a cache, in addition to the network.
// One of its two times was fitted; the other is 0.
type Software struct {
	What string `json:"what"`
	// PieceNS is for each contiguous piece, one after the other on a rank; HandoffNS once for a
	// prompt.
	PieceNS   int64 `json:"piece_ns"`
	HandoffNS int64 `json:"handoff_ns"`
	// Table, Key and Metric are the figure that it was fitted to.
	Table  string `json:"fitted_table"`
	Key    string `json:"fitted_row"`
	Metric Metric `json:"fitted_metric"`
}

// Row is a published one.
type Row struct {
	Table, Key string
	// Workload names the requests, equal for rows whose settings may be compared.
	Workload string
	// Input and Output are tokens of each request; means where Spread is set. They are the
	// benchmark's settings unless Declared says otherwise.
	Input, Output int
	Spread        bool
	// Declared is the input that was computed from published results of the row itself; ""
	// none. Such a row is not held out.
	Declared    string
	Requests    int
	RatePerSec  float64 // 0: all at once, or a concurrency
	Concurrency int
	Figures     []Figure
}

// Figure is a published one.
type Figure struct {
	Metric Metric
	Value  float64
	// Fitted is what was fitted to it, "" nothing.
	Fitted string
}

// HeldOut says whether a row can tell how good a prediction is: no parameter was fitted to any of
// its figures, and no input was computed from them.
func (r *Row) HeldOut() bool {
	return r.Declared == "" && !slices.ContainsFunc(r.Figures, func(f Figure) bool { return f.Fitted != "" })
}

// Split says whether a cache moves.
func (p *Preset) Split() bool { return p.Decode.Count > 0 }

// Names lists the presets, in the order of the reports.
func Names() []string {
	var out []string
	for _, p := range all() {
		out = append(out, p.Name)
	}
	return out
}

// Find gives a preset. The error lists those whose names begin alike, or all.
func Find(name string) (*Preset, error) {
	var near []string
	for _, p := range all() {
		if strings.EqualFold(p.Name, name) {
			return p, nil
		}
		if head, _, _ := strings.Cut(name, "-"); len(head) <= 64 && head != "" && strings.HasPrefix(p.Name, strings.ToLower(head)+"-") {
			near = append(near, p.Name)
		}
	}
	if near == nil {
		near = Names()
	}
	return nil, fmt.Errorf("no preset %.64q: there are %s", name, strings.Join(near, ", "))
}

// requests makes a row's workload.
func (p *Preset) requests(r Row, most int) (*kv.Workload, error) {
	if most > 0 {
		r.Requests = min(r.Requests, most)
	}
	s := kv.Spec{Requests: r.Requests, Seed: 1, Input: kv.Fixed(r.Input), Output: kv.Fixed(r.Output),
		Arrivals: kv.Arrivals{Concurrency: r.Concurrency}}
	if r.Spread {
		s.Input, s.Output = kv.LognormalMean(r.Input/2, r.Input, 1024), kv.LognormalMean(r.Output/2, r.Output, 1024)
	}
	w, err := kv.Generate(s)
	if err != nil {
		return nil, err
	}
	w.Name = r.Workload
	if r.Spread {
		scale(w.Requests, r.Input, r.Output)
	}
	if r.RatePerSec > 0 {
		arrive(w.Requests, r.RatePerSec)
		w.Name += ", arrivals of NumPy's seed 0"
	}
	return w, nil
}

// scale gives requests of drawn lengths the table's mean numbers of tokens: with such a long tail, the
// mean of 200 draws may be off by a quarter.
func scale(requests []kv.Request, input, output int) {
	var in, out float64
	for _, r := range requests {
		in, out = in+float64(r.Input), out+float64(r.Output)
	}
	n := float64(len(requests))
	for i := range requests {
		r := &requests[i]
		r.Input, r.Output = round(float64(r.Input)*float64(input)*n/in), round(float64(r.Output)*float64(output)*n/out)
	}
}

// round is to a whole number, at least 1.
func round(x float64) int { return max(1, int(math.Round(x))) }
