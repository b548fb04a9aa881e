package preset

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/kv/report"
	"github.com/topoctl/topoctl/testkit/golden"
)

// full is an environment variable: all presets take half a minute to two minutes on two cores.
const full = "TOPOCTL_PRESETS"

const (
	goldenFile = "testdata/published.md"
	docFile    = "../../../docs/serving-published.md"
)

// The whole comparison. Without the environment variable only the A10 presets are run (2 s) and
// their part of the golden file is compared.
func TestPublished(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: predicts for seconds, in one goroutine")
	}
	families := []string{"a10-"}
	if os.Getenv(full) != "" {
		families = append(families, "h20-qwen3-", "h20-r1-", "nd96asr-")
	}
	published, err := os.ReadFile(goldenFile)
	if err != nil && !golden.Updating() {
		t.Fatal(err)
	}
	var all strings.Builder
	var cs []*Comparison
	for _, family := range families {
		of, text := familyText(t, family)
		cs = append(cs, of...)
		all.WriteString(text)
		if !golden.Updating() && !strings.Contains(string(published), text) {
			t.Errorf("%s: not what %s has:\n%s", family, goldenFile, text)
		}
	}
	total := totalText(cs)
	all.WriteString(total)
	if os.Getenv(full) != "" && !strings.Contains(total, report.Published) {
		t.Errorf("kv predict's first line says %q; the tables: %s", report.Published, total)
	}
	if os.Getenv(full) != "" && !golden.Updating() && !strings.HasSuffix(string(published), total) {
		t.Errorf("%s does not end with:\n%s", goldenFile, total)
	}
	if !golden.Updating() {
		return
	}
	if os.Getenv(full) == "" {
		t.Fatalf("set %s=full: the file has all presets", full)
	}
	if err := os.MkdirAll(filepath.Dir(goldenFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, []byte(all.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The page states the golden file's totals, unchanged, and leaves the rows to the file.
func TestDocument(t *testing.T) {
	tables, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	total := strings.LastIndex(string(tables), "On the wire alone")
	if total < 0 || !strings.Contains(string(doc), string(tables[total:])) {
		t.Errorf("%s does not have the last lines of %s: paste them", docFile, goldenFile)
	}
}

// familyText runs the presets of a family and lays them out: rows, then the order between settings.
func familyText(t *testing.T, family string) ([]*Comparison, string) {
	t.Helper()
	top := topologies(t)
	var cs []*Comparison
	for _, name := range Names() {
		if strings.HasPrefix(name, family) {
			c, err := Run(name, Options{Topology: top})
			if err != nil {
				t.Fatal(err)
			}
			cs = append(cs, c)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "### %s*\n\n| preset | table: row | held out | mean TTFT, ms: published, ours | error | median | P99 | mean TPOT | mean E2E | requests/s | without software, ms | network's share |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n", family)
	for _, c := range cs {
		for i := range c.Rows {
			b.WriteString(rowText(c, &c.Rows[i]))
		}
	}
	b.WriteString(scoreText(cs))
	return cs, b.String()
}

// totalText is the score of all presets. Systems of different reports have no workload in common.
func totalText(cs []*Comparison) string {
	explained, heldOut := 0, 0
	for _, c := range cs {
		n, of := c.Explained()
		explained, heldOut = explained+n, heldOut+of
	}
	s := ScoreOf(Orders(cs))
	var wire []float64
	for _, c := range cs {
		for i := range c.Rows {
			if alone := c.Rows[i].WireOnlyTTFTMean; alone != nil {
				wire = append(wire, c.Rows[i].column(TTFTMean).Published / *alone)
			}
		}
	}
	slices.Sort(wire)
	return fmt.Sprintf("On the wire alone, without the software cost, %d rows are predicted: published systems took %.1f times as long in the median, %.0f times at worst.\n\n",
		len(wire), wire[len(wire)/2], wire[len(wire)-1]) + fmt.Sprintf("All presets: the mean TTFT is within %d %% in %d of %d held-out rows, and the order is right in %d of %d pairs of held-out rows (%d of %d of all).\n",
		Explains, explained, heldOut, s.HeldHits, s.HeldHits+s.HeldMisses, s.Hits, s.Hits+s.Misses)
}

func rowText(c *Comparison, r *RowResult) string {
	ttft := r.column(TTFTMean)
	heldOut := "no"
	if r.HeldOut {
		heldOut = "yes"
	}
	cells := []string{c.Preset, r.Table + ": " + r.Row, heldOut, fmt.Sprintf("%.0f, %.0f", ttft.Published, *ttft.Predicted)}
	for _, m := range []Metric{TTFTMean, TTFTMedian, "ttft_ms.p99", TPOTMean, E2EMean, RequestsPerSec} {
		x := r.column(m)
		switch {
		case x == nil:
			cells = append(cells, "-")
		case x.Fitted != "":
			cells = append(cells, fmt.Sprintf("%+.0f %% (fitted)", *x.ErrorPct))
		default:
			cells = append(cells, fmt.Sprintf("%+.0f %%", *x.ErrorPct))
		}
	}
	wire, share := "-", "-"
	if r.WireOnlyTTFTMean != nil {
		wire = fmt.Sprintf("%.0f", *r.WireOnlyTTFTMean)
	}
	if r.NetworkShare != nil {
		share = fmt.Sprintf("%.2f %%", *r.NetworkShare*100)
	}
	return "| " + strings.Join(append(cells, wire, share), " | ") + " |\n"
}

func scoreText(cs []*Comparison) string {
	var b strings.Builder
	orders := Orders(cs)
	b.WriteString("\n| preset | held-out rows | mean TTFT within 20 % |\n|---|---|---|\n")
	for _, c := range cs {
		n, of := c.Explained()
		fmt.Fprintf(&b, "| %s | %d | %d |\n", c.Preset, of, n)
	}
	if len(orders) == 0 {
		return b.String() + "\nThere is one setting only: nothing is ordered.\n\n"
	}
	b.WriteString("\n| order between settings, published gap above 10 % | hits | misses | held out: hits | misses |\n|---|---|---|---|---|\n")
	line := func(name string, os []Order) {
		s := ScoreOf(os)
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, s.Hits, s.Misses, s.HeldHits, s.HeldMisses)
	}
	var network []Order
	for _, m := range scored {
		var of []Order
		for _, o := range orders {
			if o.Metric == m {
				of = append(of, o)
			}
			if o.Metric == m && o.NetworkHit != nil {
				o.Hit = *o.NetworkHit
				network = append(network, o)
			}
		}
		if len(of) > 0 {
			line(string(m), of)
		}
	}
	line("all", orders)
	line("ttft_ms.mean, without the software cost", network)
	b.WriteString("\n")
	return b.String()
}
