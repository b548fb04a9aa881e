package preset

import "slices"

// table is a published one.
type table struct {
	file    string // its name, without .csv
	columns []Metric
	rows    []published
}

// published is a row: the cells that name it, and its figures in the order of the columns.
type published struct {
	key     string
	figures []float64
}

// Metric is a column: "ttft_ms.mean" and the like, as in topoctl.kv/v1.
type Metric string

// Metrics of published tables.
const (
	Requests           Metric = "requests"
	DurationS          Metric = "duration_s"
	InputTokens        Metric = "input_tokens"
	OutputTokens       Metric = "output_tokens"
	RequestsPerSec     Metric = "requests_per_s"
	OutputTokensPerSec Metric = "output_tokens_per_s"
	TotalTokensPerSec  Metric = "total_tokens_per_s"
	TTFTMean           Metric = "ttft_ms.mean"
	TTFTMedian         Metric = "ttft_ms.median"
	TTFTP99            Metric = "ttft_ms.p99"
	TPOTMean           Metric = "tpot_ms.mean"
	TPOTMedian         Metric = "tpot_ms.median"
	TPOTP99            Metric = "tpot_ms.p99"
	ITLMean            Metric = "itl_ms.mean"
	ITLMedian          Metric = "itl_ms.median"
	ITLP99             Metric = "itl_ms.p99"
	E2EMean            Metric = "e2e_ms.mean"
	E2EP99             Metric = "e2e_ms.p99"
)

var latencies = []Metric{TTFTMean, TTFTMedian, TTFTP99, TPOTMean, TPOTMedian, TPOTP99, ITLMean, ITLMedian, ITLP99}

var (
	a10Columns  = append([]Metric{Requests, DurationS, InputTokens, OutputTokens, RequestsPerSec, OutputTokensPerSec, TotalTokensPerSec}, latencies...)
	h20Columns  = []Metric{RequestsPerSec, OutputTokensPerSec, E2EMean, E2EP99, TTFTMean, TTFTP99, TPOTMean, TPOTP99}
	nd96Columns = append([]Metric{Requests, RequestsPerSec, OutputTokensPerSec, TotalTokensPerSec}, latencies...)
)

// requestFigures are columns of what was requested, not of results.
var requestFigures = []Metric{Requests, InputTokens, OutputTokens}

// figure is a figure of a row; there is none: 0.
func (t *table) figure(key string, m Metric) float64 {
	i := slices.Index(t.columns, m)
	for _, r := range t.rows {
		if r.key == key && i >= 0 {
			return r.figures[i]
		}
	}
	return 0
}

func tableOf(file string) *table {
	for _, of := range [][]table{a10Tables, h20Tables, r1Tables, nd96Tables} {
		for i := range of {
			if of[i].file == file {
				return &of[i]
			}
		}
	}
	return nil
}
