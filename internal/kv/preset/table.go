package preset

import (
	"bytes"
	"embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/internal/kv/serve"
)

// Metric is a column: "ttft_ms.mean" and the like, as in topoctl.kv/v1.
type Metric string

// Metrics of published tables that are more than a column.
const (
	DurationS          Metric = "duration_s"
	RequestsPerSec     Metric = "requests_per_s"
	OutputTokensPerSec Metric = "output_tokens_per_s"
	TotalTokensPerSec  Metric = "total_tokens_per_s"
	TTFTMean           Metric = "ttft_ms.mean"
	TTFTMedian         Metric = "ttft_ms.median"
	TPOTMean           Metric = "tpot_ms.mean"
	ITLMedian          Metric = "itl_ms.median"
	E2EMean            Metric = "e2e_ms.mean"
)

// requestFigures are columns of what was requested, not of results.
var requestFigures = []Metric{"requests", "input_tokens", "output_tokens"}

// data is the published tables, figure by figure, and the systems that they are of. A row is named by
// its table and by the cells that name it there, joined by commas, without backticks.
//
//go:embed presets.yaml tables/*.csv
var data embed.FS

// published is a row of a table, with its figures in the order of the columns.
type published struct {
	table, key string
	figures    []Figure
}

// tables reads the rows of all published tables.
func tables() []published {
	var out []published
	files, err := data.ReadDir("tables")
	must(err)
	for _, file := range files {
		text, err := data.ReadFile("tables/" + file.Name())
		must(err)
		lines, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		must(err)
		for _, cells := range lines[1:] {
			row := published{table: cells[0], key: cells[1]}
			for i, cell := range cells[2:] {
				x, err := strconv.ParseFloat(cell, 64)
				must(err)
				row.figures = append(row.figures, Figure{Metric: Metric(lines[0][i+2]), Value: x})
			}
			out = append(out, row)
		}
	}
	return out
}

// must is for the embedded files, which tests have read.
func must(err error) {
	if err != nil {
		panic(fmt.Errorf("preset: %w", err))
	}
}

// block is rows of a table that differ by rate or by concurrency alone. In Key and Workload a % stands
// for each entry of At: requests per second ("inf": all at once), or with PerClient clients, which send
// so many requests each.
type block struct {
	Row
	At        []string
	PerClient int
}

// all reads the presets, in the order of the reports.
func all() []*Preset {
	text, err := data.ReadFile("presets.yaml")
	must(err)
	var doc map[string]any
	must(yaml.Unmarshal(text, &doc))
	text, err = json.Marshal(doc["presets"])
	must(err)
	var list []struct {
		Preset
		Rows []block
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	must(d.Decode(&list))
	rows, fitted := tables(), fits()
	var out []*Preset
	for i := range list {
		p := &list[i].Preset
		for _, b := range list[i].Rows {
			for _, at := range b.At {
				r := b.row(at)
				p.addFigures(&r, rows, fitted)
				p.Rows = append(p.Rows, r)
			}
		}
		out = append(out, p)
	}
	return out
}

// row is one of a block, without figures.
func (b *block) row(at string) Row {
	r := b.Row
	r.Key, r.Workload = strings.ReplaceAll(r.Key, "%", at), strings.ReplaceAll(r.Workload, "%", at)
	switch x, err := strconv.ParseFloat(at, 64); {
	case at == "inf":
	case b.PerClient > 0:
		must(err)
		r.Concurrency, r.Requests = int(x), b.PerClient*int(x)
	default:
		must(err)
		r.RatePerSec = x
	}
	return r
}

// addFigures gives a row its published figures, and marks those that something was fitted to.
func (p *Preset) addFigures(r *Row, tables []published, fitted map[fit]string) {
	i := slices.IndexFunc(tables, func(t published) bool { return t.table == r.Table && t.key == r.Key })
	for _, f := range tables[i].figures {
		if slices.Contains(requestFigures, f.Metric) {
			continue
		}
		f.Fitted = fitted[fit{r.Table, r.Key, f.Metric}]
		if s := p.Software; s != nil && s.Table == r.Table && s.Key == r.Key && s.Metric == f.Metric {
			f.Fitted = "software"
		}
		r.Figures = append(r.Figures, f)
	}
}

// fit is a figure that a parameter of compute was fitted to.
type fit struct {
	table, key string
	metric     Metric
}

// fits says what was fitted to which figure by compute's settings. Their rows name a table and a row; which
// column it was stands in the setting's Source.
func fits() map[fit]string {
	// Its fixed part only, which has no row: what a token costs is assumed.
	out := map[fit]string{{"nd96asr-llama3-70b-vllm.01", "tp4_pp2_optimized_IB_qps_01", TTFTMedian}: "prefill"}
	for _, s := range []struct {
		model, gpu      string
		tp, pp          int
		prefill, decode Metric
	}{
		{"Qwen2.5-7B", "A10", 1, 1, TTFTMedian, ITLMedian},
		{"Qwen3-32B", "H20", 4, 1, TTFTMean, TPOTMean},
		{"DeepSeek-R1", "H20", 16, 1, TTFTMean, TPOTMean},
		{"Llama-3.1-70B", "A100-40GB", 4, 2, TTFTMedian, TPOTMean},
	} {
		p, err := serve.Find(s.model, s.gpu, s.tp, s.pp)
		must(err)
		for _, r := range p.Prefill.Rows {
			out[fit{r.Table, r.Key, s.prefill}] = "prefill"
		}
		for _, r := range p.Decode.Rows {
			out[fit{r.Table, r.Key, s.decode}] = "decode"
		}
	}
	return out
}
