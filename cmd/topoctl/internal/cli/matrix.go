package cli

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
)

type matrixOptions struct {
	*Host
	show       picture.MatrixView
	rows, cols []topo.Kind
	Measured
}

func newMatrixCmd(f *Env) *cobra.Command {
	opts := &matrixOptions{Host: f.Host()}
	cmd := newCommand(opts, "matrix", "Print how GPUs, NICs and NUMA nodes are connected to each other")
	wordFlag(cmd, &opts.show, "show", picture.ViewClass, "what to show (`VIEW`): class, nccl, expected, measured or delta",
		[]picture.MatrixView{picture.ViewClass, picture.ViewNCCL, picture.ViewExpected, picture.ViewMeasured, picture.ViewDelta})
	kinds := []topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNUMA}
	wordListFlag(cmd, &opts.rows, "rows", kinds[:2], "`KINDS` of device in the rows: gpu, nic, numa", kinds)
	wordListFlag(cmd, &opts.cols, "cols", kinds[:2], "`KINDS` of device in the columns: gpu, nic, numa", kinds)
	opts.Measured.Add(cmd)
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON, formatCSV, formatTSV, formatMarkdown)
	return cmd
}

func (o *matrixOptions) parse(cmd *cobra.Command, _ []string) error {
	return cmp.Or(o.Measured.Check(cmd), checkTogether(cmd,
		flagRule{"show=measured show=delta", needs, "probe", "create a report with \"topoctl probe local --report FILE\""},
		flagRule{"probe", needs, "show=measured show=delta output=json", ""}))
}

func (o *matrixOptions) run(ctx context.Context) error {
	t, err := o.Load(ctx)
	if err != nil {
		return err
	}
	m := t.Matrix(o.rows, o.cols)
	if o.Format == formatTable { // as nvidia-smi topo -m has it, and as we read that
		nics := texts.NICs(t)
		listed := func(e topo.MatrixEntry) bool {
			return e.Kind == topo.KindGPU || e.Kind == topo.KindNUMA || slices.Contains(nics, e.ID)
		}
		m = explain.Part(m, listed, listed)
	}
	if err := o.measure(m, t); err != nil {
		return err
	}
	if o.Format == formatJSON {
		err = printJSON(o.Streams.Out, m)
	} else {
		err = o.draw(m, t)
	}
	return cmp.Or(err, incomplete(t, false))
}

// measure fills in the measured rates: of a pair of the probe, else of the slowest link
// of the path, if that was measured.
func (o *matrixOptions) measure(m *topo.Matrix, t *topo.Topology) error {
	rates, err := o.Measured.Overlay(o.Host, t)
	if err != nil || o.Measured.Report == nil {
		return err
	}
	pairs := explain.PairRates(o.Measured.Report.Between(o.Measured.Found), topo.NewIndex(t))
	m.Measured = explain.Measured(m, topo.NewGraph(t, rates), pairs)
	return nil
}

func (o *matrixOptions) draw(m *topo.Matrix, t *topo.Topology) error {
	d := picture.MatrixOptions{View: o.show, Format: picture.Format(o.Format), Color: o.Color(), Units: units.System(o.Globals.Units), Width: o.Streams.Width}
	if d.View == picture.ViewClass {
		d.Host = t
	}
	return picture.Matrix(o.Streams.Out, m, d)
}
