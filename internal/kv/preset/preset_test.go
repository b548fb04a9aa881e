package preset

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv"
)

// Every preset runs with a few requests, the same twice, and says all that it should.
func TestEveryPreset(t *testing.T) {
	top := topologies(t)
	names := Names()
	for _, want := range []string{"a10-qwen2.5-7b-tcp", "a10-qwen2.5-7b-1nic", "a10-qwen2.5-7b-2nic", "h20-qwen3-32b-3p", "h20-qwen3-32b-6p", "h20-qwen3-32b-12p",
		"h20-r1-1p1d-tp16", "nd96asr-llama3-70b-tp4pp2"} {
		if !slices.Contains(names, want) {
			t.Errorf("no preset %s", want)
		}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			t.Errorf("two presets %s", name)
		}
		p, err := Find(strings.ToUpper(name))
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Topology: top, Requests: 3, Rows: func(r Row) bool { return r.Concurrency <= 1 && r.RatePerSec <= 2 }}
		c, err := Run(name, o)
		if err != nil {
			t.Fatal(err)
		}
		checkComparison(t, p, c)
		again, err := Run(name, o)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%s: another run differs: %v", name, err)
		}
	}
}

func checkComparison(t *testing.T, p *Preset, c *Comparison) {
	t.Helper()
	if len(c.Rows) == 0 || c.About == "" || len(c.Assumed) == 0 || c.Prefill.Source == "" || c.Decode.Source == "" || (c.Software == nil) != (p.Software == nil) {
		t.Errorf("%s: %+v", p.Name, c)
	}
	for _, r := range c.Rows {
		if r.Requests > 3 || (r.NetworkShare != nil) != (p.Split() || p.Activations) || (r.WireOnlyTTFTMean != nil) != (p.Software != nil) {
			t.Errorf("%s, %s %s: %+v", p.Name, r.Table, r.Row, r)
		}
		if s := r.NetworkShare; s != nil && !(*s > 0 && *s < 0.5) {
			t.Errorf("%s, %s %s: the network has %v of TTFT", p.Name, r.Table, r.Row, *s)
		}
		for _, x := range r.Columns {
			if x.Predicted == nil || !(*x.Predicted > 0) || (x.ErrorPct == nil) != (x.Why != "") {
				t.Errorf("%s, %s %s: %+v", p.Name, r.Table, r.Row, x)
			}
		}
		if p.Software != nil && r.column(TTFTMean) != nil && !(*r.WireOnlyTTFTMean < *r.column(TTFTMean).Predicted) {
			t.Errorf("%s, %s %s: software costs nothing", p.Name, r.Table, r.Row)
		}
	}
}

// Each software cost gives the figure it was fitted to, within 2 %; and each figure that
// something was fitted to stands in a row.
func TestFits(t *testing.T) {
	top := topologies(t)
	fitted := 0
	for _, name := range Names() {
		p, _ := Find(name)
		for _, r := range p.Rows {
			for _, f := range r.Figures {
				if f.Fitted != "" {
					fitted++
				}
			}
		}
		s := p.Software
		if s == nil || !slices.ContainsFunc(p.Rows, func(r Row) bool { return r.Table == s.Table && r.Key == s.Key }) {
			continue
		}
		c, err := Run(name, Options{Topology: top, Rows: func(r Row) bool { return r.Table == s.Table && r.Key == s.Key }})
		if err != nil {
			t.Fatal(err)
		}
		if x := c.Rows[0].column(s.Metric); x == nil || math.Abs(*x.ErrorPct) > 2 || x.Fitted == "" {
			t.Errorf("%s: %+v", name, x)
		}
	}
	if want := len(fits()) + 4; fitted != want {
		t.Errorf("%d figures are marked as fitted, want %d", fitted, want)
	}
}

func TestErrors(t *testing.T) {
	none := errors.New("no such file")
	for want, run := range map[string]func() (*Comparison, error){
		`no preset "a10-x": there are a10-qwen2.5-7b-tcp`: func() (*Comparison, error) { return Run("a10-x", Options{}) },
		`no preset "": there are a10-qwen2.5-7b-tcp`:      func() (*Comparison, error) { return Run("", Options{}) },
		"want a source of topologies":                     func() (*Comparison, error) { return Run("h20-r1-tp16", Options{}) },
		"preset h20-r1-tp16: no such file": func() (*Comparison, error) {
			return Run("h20-r1-tp16", Options{Topology: func(string) (*topo.Topology, error) { return nil, none }})
		},
	} {
		if _, err := run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// NumPy's first exponential draws with seed 0, which its documentation's readers know.
func TestArrivals(t *testing.T) {
	requests := make([]kv.Request, 4)
	arrive(requests, 1)
	at := 0.
	for i, gap := range []float64{0, 0.79587450816311, 1.2559307629658378, 0.9232231458040688} {
		at += gap
		if d := float64(requests[i].ArriveNS) - at*1e9; math.Abs(d) > 1 {
			t.Errorf("request %d comes at %d ns, want %.0f", i, requests[i].ArriveNS, at*1e9)
		}
	}
}

// The published runs had these arrivals: at each rate they took 0.1 to 0.5 s longer than ours,
// up to 1 %, where the standard deviation of a draw is 7 %.
func TestArrivalsArePublished(t *testing.T) {
	c, err := Run("a10-qwen2.5-7b-base", Options{Topology: topologies(t), Rows: func(r Row) bool { return r.Table == "mooncake-a10-v0.1.02" }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Rows {
		x := c.Rows[i].column(DurationS)
		if d := x.Published - *x.Predicted; d < 0.1 || d > 0.5 {
			t.Errorf("%s: %.2f s, published %.2f s", c.Rows[i].Row, *x.Predicted, x.Published)
		}
	}
	if len(c.Rows) != 4 {
		t.Errorf("%d rows", len(c.Rows))
	}
}

// Requests have the lengths of the benchmark's settings, not of its results, or the row says so.
func TestLengthsAreSettings(t *testing.T) {
	declared := 0
	for _, name := range Names() {
		p, _ := Find(name)
		for _, r := range p.Rows {
			if r.Declared != "" {
				declared++
			}
			w, err := p.requests(r, 8)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range w.Requests {
				want := settings[r.Table]
				if !r.Spread && (q.Input != want[0] || q.Output != want[1]) {
					t.Errorf("%s, %s %s: a request of %d and %d tokens, the table has %v", name, r.Table, r.Key, q.Input, q.Output, want)
				}
			}
		}
	}
	if declared != 4 { // those of drawn lengths
		t.Errorf("%d rows have a declared input", declared)
	}
}

// A row of which one figure was fitted, or an input computed, is not held out for any other figure.
func TestHeldOutRows(t *testing.T) {
	notHeldOut := map[string]Metric{ // a figure of each row that was not fitted itself
		"mooncake-a10-v0.1.01" + ": Non-disaggregated": TTFTMean, "mooncake-a10-v0.1.02" + ": 2,Non-disaggregated": TTFTMean, "mooncake-a10-v0.1.02" + ": 2,MooncakeTransferEngine with TCP backend": TTFTMean,
		qwen32Report + ".02: 4": TTFTMean, r1Report + ".05: 64": TTFTMean, r1Report + ".01: 1": E2EMean, "nd96asr-llama3-70b-vllm.01: tp4_pp2_optimized_IB_qps_16": TTFTMean,
	}
	heldOut := 0
	for _, name := range Names() {
		p, _ := Find(name)
		for _, r := range p.Rows {
			row := r.Table + ": " + r.Key
			for _, f := range r.Figures {
				if f.Fitted != "" && r.HeldOut() {
					t.Errorf("%s: held out, but %s was fitted", row, f.Metric)
				}
				if f.Metric == notHeldOut[row] && f.Fitted == "" && !r.HeldOut() {
					delete(notHeldOut, row)
				}
			}
			if r.HeldOut() {
				heldOut++
			}
		}
	}
	if len(notHeldOut) > 0 || heldOut < 150 {
		t.Errorf("%d rows are held out, and these too: %v", heldOut, notHeldOut)
	}
}

const qwen32Report, r1Report = "h20-qwen3-32b-dynamo-vllm", "h20-deepseek-r1-dynamo-vllm"

// settings are the tokens of prompts and answers by table: of the titles, or of the columns that
// count the tokens of all requests.
var settings = func() map[string][2]int {
	out := map[string][2]int{"mooncake-a10-v0.1.01": {1012, 6}, "mooncake-a10-v0.1.02": {245, 6}, "mooncake-a10-v0.2.01": {1010, 6}, "mooncake-a10-v0.2.02": {1010, 6}}
	for _, first := range []int{1, 5, 9, 13, 17} {
		for i, l := range [][2]int{{3000, 150}, {1000, 1000}, {500, 1000}} {
			out[fmt.Sprintf("%s.%02d", qwen32Report, first+i)] = l
		}
	}
	for _, first := range []int{1, 4} {
		for i, l := range [][2]int{{3000, 150}, {1000, 1000}} {
			out[fmt.Sprintf("%s.%02d", r1Report, first+i)] = l
		}
	}
	return out
}()

func TestOrders(t *testing.T) {
	row := func(published, predicted float64, heldOut bool) RowResult {
		e := 0.
		return RowResult{Workload: "w", HeldOut: heldOut, Columns: []Column{{Metric: TTFTMean, Published: published, Predicted: &predicted, ErrorPct: &e}}}
	}
	a := &Comparison{Preset: "a", Rows: []RowResult{row(200, 100, true)}}
	b := &Comparison{Preset: "b", Rows: []RowResult{row(100, 90, true)}}
	near := &Comparison{Preset: "near", Rows: []RowResult{row(105, 300, true)}}
	wrong := &Comparison{Preset: "wrong", Rows: []RowResult{row(50, 90, false)}}
	got := Orders([]*Comparison{a, b, near, wrong})
	var text []string
	for _, o := range got {
		text = append(text, o.Presets[0]+"<"+o.Presets[1]+" "+strconv.FormatBool(o.Hit))
	}
	want := []string{"b<a true", "near<a false", "wrong<a true", "wrong<b false", "wrong<near true"}
	if !slices.Equal(text, want) {
		t.Errorf("%v, want %v", text, want)
	}
	if s := ScoreOf(got); s != (Score{3, 2, 1, 1}) {
		t.Errorf("%+v", s)
	}
}

// tablesDir holds the published tables as files; it is no part of the project.
const tablesDir = "../../../../shared/data/serving-tables"

// metricOf is what a column of a file is; "" one that names the row.
var metricOf = map[string]Metric{
	"Successful Requests": "requests", "# of req.": "requests", "Duration (s)": DurationS, "Total Input Tokens": "input_tokens", "Total Generated Tokens": "output_tokens",
	"Req Throughput (req/s)": RequestsPerSec, "Reqeuest Throughput (req/s)": RequestsPerSec, "Tput (req/s)": RequestsPerSec,
	"Output Token Throughput (tok/s)": OutputTokensPerSec, "Output Tput (tok/s)": OutputTokensPerSec,
	"Total Token Throughput (tok/s)": TotalTokensPerSec, "Total Tput (tok/s)": TotalTokensPerSec,
	"Mean E2E Lantency (ms)": E2EMean, "P99 E2E Lantency (ms)": "e2e_ms.p99",
	"Mean TTFT (ms)": TTFTMean, "Median TTFT (ms)": TTFTMedian, "P99 TTFT (ms)": "ttft_ms.p99", "Mean TPOT (ms)": TPOTMean, "Median TPOT (ms)": "tpot_ms.median",
	"P99 TPOT (ms)": "tpot_ms.p99", "Mean ITL (ms)": "itl_ms.mean", "Median ITL (ms)": ITLMedian, "P99 ITL (ms)": "itl_ms.p99",
}

// Every figure is the files', and every row of every file is in some preset.
func TestTablesAreTheFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(tablesDir, "*.csv"))
	if err != nil || len(files) == 0 {
		t.Skipf("%s is not there: the published tables cannot be compared", tablesDir)
	}
	carried := map[string]int{}
	for _, name := range Names() {
		p, _ := Find(name)
		for _, r := range p.Rows {
			carried[r.Table+": "+r.Key]++
		}
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".csv")
		var table []published
		for _, row := range tables() {
			if row.table == name {
				table = append(table, row)
			}
		}
		rows := readTable(t, file)
		if len(rows) != len(table) {
			t.Errorf("%s: %d rows, the file has %d", name, len(table), len(rows))
			continue
		}
		for i, row := range rows {
			got := map[Metric]float64{}
			for _, f := range table[i].figures {
				got[f.Metric] = f.Value
			}
			if !reflect.DeepEqual(got, row.figures) {
				t.Errorf("%s, row %s: %v, the file has %v", name, table[i].key, got, row.figures)
			}
			if !strings.HasPrefix(row.key, table[i].key) || carried[name+": "+table[i].key] != 1 {
				t.Errorf("%s: row %q, in the file %q, is in %d presets", name, table[i].key, row.key, carried[name+": "+table[i].key])
			}
		}
	}
}

type fileRow struct {
	key     string
	figures map[Metric]float64
}

func readTable(t *testing.T, file string) []fileRow {
	t.Helper()
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the published table is not there: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []fileRow
	for _, cells := range lines[1:] {
		r := fileRow{figures: map[Metric]float64{}}
		var key []string
		for i, cell := range cells {
			m := metricOf[lines[0][i]]
			if m == "" {
				key = append(key, strings.ReplaceAll(cell, "`", ""))
				continue
			}
			if r.figures[m], err = strconv.ParseFloat(cell, 64); err != nil {
				t.Fatal(err)
			}
		}
		r.key = strings.Join(key, ",")
		out = append(out, r)
	}
	return out
}

// Requests whose lengths are drawn have the table's tokens on average.
func TestSpreadHasTheTablesMeans(t *testing.T) {
	p, err := Find("nd96asr-llama3-70b-tp4pp2")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Rows {
		w, err := p.requests(r, 0)
		if err != nil {
			t.Fatal(err)
		}
		var in, out, longest int
		for _, x := range w.Requests {
			in, out, longest = in+x.Input, out+x.Output, max(longest, x.Input)
		}
		if n := len(w.Requests); math.Abs(float64(in)/float64(n)-213) > 0.5 || math.Abs(float64(out)/float64(n)-214) > 0.5 || longest < 2*213 {
			t.Errorf("%s: %d requests of %d and %d tokens, the longest prompt has %d", r.Key, n, in, out, longest)
		}
	}
}
