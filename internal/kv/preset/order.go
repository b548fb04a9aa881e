package preset

import (
	"cmp"
	"math"
	"slices"
)

// Scored are published figures that are further apart than noise, and predictions that are not
// equal.
const (
	publishedGap = 0.10
	predictedGap = 0.01
)

// scored are the columns whose order is scored: the means that most tables have.
var scored = []Metric{TTFTMean, TPOTMean, E2EMean}

// Order is two settings with the same workload.
type Order struct {
	Workload  string     `json:"workload"`
	Metric    Metric     `json:"metric"`
	Presets   [2]string  `json:"presets"` // the one with the smaller published figure first
	Published [2]float64 `json:"published"`
	Predicted [2]float64 `json:"predicted"`
	Hit       bool       `json:"hit"`
	HeldOut   bool       `json:"held_out"` // both rows are
	// NetworkHit is Hit without software costs, with network and computing alone. null where the
	// metric is not the mean TTFT.
	NetworkHit *bool `json:"hit_without_software"`
}

// Score counts orders.
type Score struct {
	Hits       int `json:"hits"`
	Misses     int `json:"misses"`
	HeldHits   int `json:"held_out_hits"` // of those where both rows are held out
	HeldMisses int `json:"held_out_misses"`
}

// Schema is that of a Report in JSON.
const Schema = "topoctl.kv-preset/v1"

// Report is comparisons, and how far the order between their settings is right.
type Report struct {
	Schema      string        `json:"schema"`
	Comparisons []*Comparison `json:"comparisons"`
	Orders      []Order       `json:"orders"`
	Score       Score         `json:"score"`
}

// NewReport puts comparisons together.
func NewReport(cs []*Comparison) *Report {
	orders := Orders(cs)
	return &Report{Schema: Schema, Comparisons: cs, Orders: orders, Score: ScoreOf(orders)}
}

// Orders gives every two settings of the comparisons that had the same workload and whose
// published figures are more than 10 % apart. It is a hit if ours are more than 1 % apart the
// same way round.
func Orders(cs []*Comparison) []Order {
	out := []Order{}
	for i, a := range cs {
		for _, b := range cs[i+1:] {
			for k := range a.Rows {
				for n := range b.Rows {
					if a.Rows[k].Workload == b.Rows[n].Workload && a.Preset != b.Preset {
						out = append(out, pair(a.Preset, b.Preset, &a.Rows[k], &b.Rows[n])...)
					}
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Order) int { return cmp.Compare(a.Workload, b.Workload) })
	return out
}

func pair(first, second string, a, b *RowResult) []Order {
	var out []Order
	for _, m := range scored {
		less, more, names := a, b, [2]string{first, second}
		x, y := a.column(m), b.column(m)
		if x == nil || y == nil {
			continue
		}
		if x.Published > y.Published {
			less, more, x, y = b, a, y, x
			names = [2]string{second, first}
		}
		if y.Published <= x.Published*(1+publishedGap) {
			continue
		}
		o := Order{Workload: a.Workload, Metric: m, Presets: names, Published: [2]float64{x.Published, y.Published},
			Predicted: [2]float64{*x.Predicted, *y.Predicted}, Hit: differ(*x.Predicted, *y.Predicted), HeldOut: a.HeldOut && b.HeldOut}
		if m == TTFTMean {
			hit := differ(*cmp.Or(less.WireOnlyTTFTMean, x.Predicted), *cmp.Or(more.WireOnlyTTFTMean, y.Predicted))
			o.NetworkHit = &hit
		}
		out = append(out, o)
	}
	return out
}

func differ(less, more float64) bool { return more > less*(1+predictedGap) }

// column is a compared one; nil: there is none.
func (r *RowResult) column(m Metric) *Column {
	for i := range r.Columns {
		if c := &r.Columns[i]; c.Metric == m && c.ErrorPct != nil {
			return c
		}
	}
	return nil
}

// ScoreOf counts hits and misses.
func ScoreOf(orders []Order) Score {
	var s Score
	for i := range orders {
		o := &orders[i]
		switch {
		case o.Hit && o.HeldOut:
			s.Hits++
			s.HeldHits++
		case o.Hit:
			s.Hits++
		case o.HeldOut:
			s.Misses++
			s.HeldMisses++
		default:
			s.Misses++
		}
	}
	return s
}

// Explained counts the held-out rows with a mean TTFT, and those of them that are explained.
func (c *Comparison) Explained() (explained, heldOut int) {
	for i := range c.Rows {
		x := c.Rows[i].column(TTFTMean)
		if x == nil || !c.Rows[i].HeldOut {
			continue
		}
		heldOut++
		if math.Abs(*x.ErrorPct) <= Explains {
			explained++
		}
	}
	return explained, heldOut
}
