package preset

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/serve"
)

// Explains is how far off, in percent, the mean TTFT of a row that is explained may be.
const Explains = 20

// Options say how presets are run.
type Options struct {
	// Topology gives the topology of a fixture.
	Topology func(fixture string) (*topo.Topology, error)
	// Requests is the most of each row, 0: as many as the benchmark had. With fewer a row is no
	// longer what was published.
	Requests int
	// Rows chooses rows; nil: all.
	Rows func(Row) bool
}

// Comparison is a preset's prediction beside what was published.
type Comparison struct {
	Preset   string      `json:"preset"`
	About    string      `json:"about"`
	Model    string      `json:"model"`
	GPU      string      `json:"gpu"`
	Host     string      `json:"host"` // the fixture
	Hosts    int         `json:"hosts"`
	Prefill  Parameters  `json:"prefill"`
	Decode   Parameters  `json:"decode"`
	Software *Software   `json:"software"` // null: none
	Assumed  []string    `json:"assumed"`
	Rows     []RowResult `json:"rows"`
}

// Parameters say where those of a side's compute model are from.
type Parameters struct {
	Basis  serve.Basis `json:"basis"`
	Source string      `json:"source"`
}

// RowResult is a row's.
type RowResult struct {
	Table    string `json:"table"`
	Row      string `json:"row"`
	Workload string `json:"workload"`
	Requests int    `json:"requests"`
	// HeldOut says that no parameter was fitted to any figure of the row, and no input was computed
	// from them; Declared names such an input, "" none.
	HeldOut  bool     `json:"held_out"`
	Declared string   `json:"declared_input"`
	Columns  []Column `json:"columns"`
	// WireOnlyTTFTMean is what the same gives without the software cost, in milliseconds; null where
	// the preset has none.
	WireOnlyTTFTMean *float64 `json:"ttft_ms_mean_without_software"`
	// NetworkShare is the network's part of the mean TTFT: waiting for the link and the wire,
	// exposed, without the software cost. MovingShare has that cost in it. null: no cache moves.
	NetworkShare *float64 `json:"network_share_of_ttft"`
	MovingShare  *float64 `json:"moving_share_of_ttft"`
	// Explained says whether the mean TTFT is within 20 %.
	Explained bool `json:"explained"`
}

// Column is a published figure and ours.
type Column struct {
	Metric    Metric   `json:"metric"`
	Published float64  `json:"published"`
	Predicted *float64 `json:"predicted"`  // null: nothing was answered
	ErrorPct  *float64 `json:"error_pct"`  // predicted / published - 1; null where it is not compared
	Fitted    string   `json:"fitted"`     // what was fitted to it; "" nothing
	Why       string   `json:"uncompared"` // why it is not compared; "" it is
}

// Run predicts the rows of a preset.
func Run(name string, o Options) (*Comparison, error) {
	p, err := Find(name)
	if err != nil {
		return nil, err
	}
	if o.Topology == nil || o.Requests < 0 {
		return nil, errors.New("preset: want a source of topologies, and no number of requests below 0")
	}
	t, err := o.Topology(p.Fixture)
	if err != nil {
		return nil, fmt.Errorf("preset %s: %w", p.Name, err)
	}
	s, err := p.site(t)
	if err != nil {
		return nil, fmt.Errorf("preset %s: %w", p.Name, err)
	}
	c := p.comparison(s)
	for i := range p.Rows {
		if o.Rows != nil && !o.Rows(p.Rows[i]) {
			continue
		}
		r, err := p.row(s, &p.Rows[i], o.Requests)
		if err != nil {
			return nil, fmt.Errorf("preset %s: %s, row %s: %w", p.Name, p.Rows[i].Table, p.Rows[i].Key, err)
		}
		c.Rows = append(c.Rows, *r)
	}
	return c, nil
}

func (p *Preset) comparison(s *site) *Comparison {
	c := &Comparison{Preset: p.Name, About: p.About, Model: p.Model, GPU: p.GPU, Host: p.Fixture, Hosts: p.Hosts, Software: p.Software, Assumed: p.Assumed, Rows: []RowResult{}}
	decode := s.prefill
	if p.Split() {
		decode = s.decode
	}
	c.Prefill = Parameters{s.prefill.Prefill.Basis, s.prefill.Prefill.Source}
	c.Decode = Parameters{decode.Decode.Basis, decode.Decode.Source}
	return c
}

// row predicts a row, where there is a software cost also without it.
func (p *Preset) row(s *site, r *Row, most int) (*RowResult, error) {
	w, err := p.requests(*r, most)
	if err != nil {
		return nil, err
	}
	out := &RowResult{Table: r.Table, Row: r.Key, Workload: r.Workload, Requests: len(w.Requests), HeldOut: r.HeldOut(), Declared: r.Declared}
	spec := s.spec
	spec.Workload = w
	wire, err := p.predict(spec)
	if err != nil {
		return nil, err
	}
	all := wire
	if x := p.Software; x != nil {
		spec.PieceNS, spec.Serve.HandoffNS = x.PieceNS/s.sharing(), x.HandoffNS
		if all, err = p.predict(spec); err != nil {
			return nil, err
		}
		if wire.TTFT != nil {
			out.WireOnlyTTFTMean = &wire.TTFT.Mean
		}
	}
	if p.Split() {
		out.NetworkShare, out.MovingShare = wire.KVShareOfTTFT, all.KVShareOfTTFT
	}
	if p.Activations {
		if out.NetworkShare, err = activations(&s.spec, w, all); err != nil {
			return nil, err
		}
	}
	for _, f := range r.Figures {
		c := Column{Metric: f.Metric, Published: f.Value, Predicted: value(all, f.Metric), Fitted: f.Fitted, Why: p.Uncompared[f.Metric]}
		if c.Why == "" && c.Predicted != nil && f.Value > 0 {
			e := (*c.Predicted/f.Value - 1) * 100
			c.ErrorPct = &e
			out.Explained = out.Explained || f.Metric == TTFTMean && math.Abs(e) <= Explains
		}
		out.Columns = append(out.Columns, c)
	}
	return out, nil
}

func (p *Preset) predict(s serve.Spec) (*kv.Metrics, error) {
	r, err := serve.Run(s)
	if err != nil {
		return nil, err
	}
	for i := range r.Times {
		if why := r.Times[i].Failed; why != nil {
			return nil, fmt.Errorf("request %d: %w", i, why)
		}
	}
	return kv.Compute(s.Workload, r.Times, kv.Options{MemoryFirst: s.Serve.Admit == serve.Before})
}

// value is a metric of a run; nil is unknown.
func value(m *kv.Metrics, what Metric) *float64 {
	switch what {
	case DurationS:
		if m.DurationNS == nil {
			return nil
		}
		x := float64(*m.DurationNS) / 1e9
		return &x
	case RequestsPerSec:
		return m.RequestsPerSec
	case OutputTokensPerSec:
		return m.OutputTokensPerSec
	case TotalTokensPerSec:
		return m.TotalTokensPerSec
	}
	of, part, _ := strings.Cut(string(what), ".")
	s := map[string]*kv.Summary{"ttft_ms": m.TTFT, "tpot_ms": m.TPOT, "itl_ms": m.ITL, "e2e_ms": m.E2E}[of]
	if s == nil {
		return nil
	}
	return map[string]*float64{"mean": &s.Mean, "median": &s.Median, "p99": &s.P99}[part]
}
