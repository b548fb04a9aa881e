package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv/preset"
	"github.com/topoctl/topoctl/internal/report"
)

type presetOptions struct {
	*Host
	names []string
}

func newPresetCmd(f *Env) *cobra.Command {
	opts := &presetOptions{Host: f.Host()}
	cmd := newCommand(opts, "preset [NAME...]", "Compare predictions with published serving benchmarks")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return preset.Names(), cobra.ShellCompDirectiveNoFileComp
	}
	Uses(cmd, "timeout")
	TakesLong(cmd)
	Formats(cmd, formatTable, formatJSON, formatTSV)
	return cmd
}

func (o *presetOptions) parse(_ *cobra.Command, args []string) error {
	o.names = args
	for i, name := range args {
		if slices.Contains(args[:i], name) {
			return fmt.Errorf("%s is given twice", name)
		}
		if _, err := preset.Find(name); err != nil {
			return err
		}
	}
	return nil
}

// schemaPresets is the name and major version of what preset -o json prints without a name.
const schemaPresets = "topoctl.kv-presets/v1"

// presetList is what preset -o json prints without a name.
type presetList struct {
	Schema  string        `json:"schema"`
	Presets []presetEntry `json:"presets"`
}

type presetEntry struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Rows  int    `json:"rows"`
}

func (o *presetOptions) run(ctx context.Context) error {
	if len(o.names) == 0 {
		return o.list()
	}
	var cs []*preset.Comparison
	for _, name := range o.names {
		c, err := interruptible(ctx, func() (*preset.Comparison, error) {
			return preset.Run(name, preset.Options{Topology: func(fixture string) (*topo.Topology, error) { return o.Named(ctx, fixturePrefix+fixture) }})
		})
		if err != nil {
			return err
		}
		cs = append(cs, c)
	}
	r := preset.NewReport(cs)
	return o.print(answer{doc: r, rows: func() string { return presetTable(r).TSV() }, text: func() string { return o.text(r) }}, OutFile{})
}

func (o *presetOptions) list() error {
	l := presetList{Schema: schemaPresets}
	t := &report.Table{Head: []string{"PRESET", "ROWS", "SYSTEM"}}
	for _, name := range preset.Names() {
		p, err := preset.Find(name)
		if err != nil {
			return err
		}
		l.Presets = append(l.Presets, presetEntry{p.Name, p.About, len(p.Rows)})
		t.Add(p.Name, fmt.Sprint(len(p.Rows)), p.About)
	}
	return o.print(answer{doc: l, rows: t.TSV, text: func() string { return o.Streams.tableText(t) }}, OutFile{})
}

// presetTable has the rows of all comparisons.
func presetTable(r *preset.Report) *report.Table {
	t := &report.Table{Head: append([]string{"ROW"}, presetHeads...)}
	for _, c := range r.Comparisons {
		for i := range c.Rows {
			for _, cells := range presetColumns(&c.Rows[i]) {
				t.Add(append([]string{presetRow(&c.Rows[i])}, cells...)...)
			}
		}
	}
	return t
}

// text is each comparison: where it is from, a line for each row and column, what is assumed.
func (o *presetOptions) text(r *preset.Report) string {
	var b strings.Builder
	look := o.Look()
	for _, c := range r.Comparisons {
		b.WriteString(look.WrapLines(presetHead(c)))
		t := &report.Table{Head: slices.Concat([]string{"  " + presetHeads[0]}, presetHeads[1:])}
		for i := range c.Rows {
			t.Add(presetRow(&c.Rows[i]))
			for _, cells := range presetColumns(&c.Rows[i]) {
				cells[0] = "  " + cells[0]
				t.Add(cells...)
			}
		}
		b.WriteString(o.Streams.tableText(t))
	}
	return b.String() + look.WrapLines(presetFoot(r))
}

var presetHeads = []string{"COLUMN", "PUBLISHED", "PREDICTED", "ERROR", "USE"}

// presetRow is what a published row is called.
func presetRow(r *preset.RowResult) string { return r.Table + ": " + r.Row }

func presetHead(c *preset.Comparison) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", c.Preset, c.About)
	fmt.Fprintf(&b, "modelled: prefill %s (%s); decode %s (%s)\n", c.Prefill.Basis, c.Prefill.Source, c.Decode.Basis, c.Decode.Source)
	if s := c.Software; s != nil {
		cost := fmt.Sprintf("%.1f us for each piece", float64(s.PieceNS)/1e3)
		if s.PieceNS == 0 {
			cost = fmt.Sprintf("%.1f ms for each prompt", float64(s.HandoffNS)/1e6)
		}
		fmt.Fprintf(&b, "software: %s, %s; fitted to %s of %s, row %s\n", s.What, cost, s.Metric, s.Table, s.Key)
	}
	for _, a := range c.Assumed {
		fmt.Fprintf(&b, "assumed: %s\n", a)
	}
	b.WriteByte('\n')
	return b.String()
}

// presetColumns are the figures of a row beside their predictions.
func presetColumns(r *preset.RowResult) (out [][]string) {
	for _, c := range r.Columns {
		predicted, off, use := "?", "-", "held out"
		if c.Predicted != nil {
			predicted = fmt.Sprintf("%.4g", *c.Predicted)
		}
		if c.ErrorPct != nil {
			off = fmt.Sprintf("%+.1f %%", *c.ErrorPct)
		}
		switch {
		case c.Why != "":
			use = "not compared: " + c.Why
		case c.Fitted != "":
			use = "fitted: " + c.Fitted
		case r.Declared != "":
			use = "not held out: given the " + r.Declared
		case !r.HeldOut:
			use = "not held out: another figure of the row was fitted"
		}
		out = append(out, []string{string(c.Metric), fmt.Sprintf("%.4g", c.Published), predicted, off, use})
	}
	share := func(what string, x *float64) {
		if x != nil {
			out = append(out, []string{what, "-", fmt.Sprintf("%.2f %%", *x*100), "-", "of the mean TTFT"})
		}
	}
	share("network's share", r.NetworkShare)
	share("moving's share", r.MovingShare)
	if r.WireOnlyTTFTMean != nil {
		out = append(out, []string{"ttft_ms.mean without software", "-", fmt.Sprintf("%.4g", *r.WireOnlyTTFTMean), "-", ""})
	}
	return out
}

func presetFoot(r *preset.Report) string {
	var b strings.Builder
	b.WriteByte('\n')
	for _, c := range r.Comparisons {
		n, of := c.Explained()
		fmt.Fprintf(&b, "%s: the mean TTFT of %d of %d held-out rows is within %d %%\n", c.Preset, n, of, preset.Explains)
	}
	if len(r.Comparisons) > 1 {
		s := r.Score
		fmt.Fprintf(&b, "order between settings, where the published gap is above 10 %%: %d right, %d wrong (held out: %d, %d)\n", s.Hits, s.Misses, s.HeldHits, s.HeldMisses)
	}
	return b.String()
}
