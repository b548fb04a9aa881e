package cli

import (
	"context"
	"errors"
	"fmt"
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
	show               string
	rowNames, colNames []string
	rows, cols         []topo.Kind
	color              bool
	Measured
}

// matrixKinds are what the rows and columns of a matrix can be.
var matrixKinds = map[string]topo.Kind{"gpu": topo.KindGPU, "nic": topo.KindNIC, "numa": topo.KindNUMA}

var matrixKindNames = []string{"gpu", "nic", "numa"}

var matrixViews = []string{string(picture.ViewClass), string(picture.ViewNCCL), string(picture.ViewExpected), string(picture.ViewMeasured), string(picture.ViewDelta)}

func newMatrixCmd(f *Env, runF func(context.Context, *matrixOptions) error) *cobra.Command {
	opts := &matrixOptions{Host: f.Host()}
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Print how GPUs, NICs and NUMA nodes are connected to each other",
		Args:  noArgs,
		RunE:  action(opts, opts.parse, runF),
	}
	fl := cmd.Flags()
	fl.StringVar(&opts.show, "show", string(picture.ViewClass), "what to show (`VIEW`): class, nccl, expected, measured or delta")
	fl.StringSliceVar(&opts.rowNames, "rows", []string{"gpu", "nic"}, "`KINDS` of device in the rows: gpu, nic, numa")
	fl.StringSliceVar(&opts.colNames, "cols", []string{"gpu", "nic"}, "`KINDS` of device in the columns: gpu, nic, numa")
	opts.Measured.Add(cmd)
	Offer(cmd, map[string]completer{
		"show": Words(matrixViews...), "rows": WordList(matrixKindNames...), "cols": WordList(matrixKindNames...),
	})
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON, formatCSV, formatTSV, formatMarkdown)
	return cmd
}

// parse takes over the flags and refuses values that make no sense.
func (o *matrixOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := o.Measured.Check(cmd); err != nil {
		return err
	}
	if !slices.Contains(matrixViews, o.show) {
		return fmt.Errorf("--show %q: want %s", o.show, either(matrixViews))
	}
	if err := checkTogether(cmd,
		flagRule{"show=measured show=delta", needs, "probe", "create a report with \"topoctl probe local --report FILE\""},
		flagRule{"probe", needs, "show=measured show=delta output=json", ""}); err != nil {
		return err
	}
	var errRows, errCols error
	o.rows, errRows = kindsOf("--rows", o.rowNames, matrixKinds, matrixKindNames)
	o.cols, errCols = kindsOf("--cols", o.colNames, matrixKinds, matrixKindNames)
	o.color = o.Color()
	return errors.Join(errRows, errCols)
}

func runMatrix(ctx context.Context, opts *matrixOptions) error {
	t, err := opts.Load(ctx)
	if err != nil {
		return err
	}
	m := t.Matrix(opts.rows, opts.cols)
	if opts.Format == formatTable { // as nvidia-smi topo -m has it, and as we read that
		nics := texts.NICs(t)
		listed := func(e topo.MatrixEntry) bool {
			return e.Kind == topo.KindGPU || e.Kind == topo.KindNUMA || slices.Contains(nics, e.ID)
		}
		m = explain.Part(m, listed, listed)
	}
	if err := opts.measure(m, t); err != nil {
		return err
	}
	if opts.Format == formatJSON {
		err = printJSON(opts.Streams.Out, m)
	} else {
		err = opts.draw(m, t)
	}
	if err != nil {
		return err
	}
	return incomplete(t, false)
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
	d := picture.MatrixOptions{View: picture.MatrixView(o.show), Format: picture.Format(o.Format), Color: o.color, Units: units.System(o.Globals.Units), Width: o.Streams.Width}
	if d.View == picture.ViewClass {
		d.Host = t
	}
	return picture.Matrix(o.Streams.Out, m, d)
}
