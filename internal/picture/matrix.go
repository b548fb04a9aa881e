package picture

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// MatrixView is what the cells of a matrix show.
type MatrixView string

// The views of a matrix.
const (
	ViewClass    MatrixView = "class"    // nvidia-smi's classes
	ViewNCCL     MatrixView = "nccl"     // NCCL's path types
	ViewExpected MatrixView = "expected" // expected rate in one direction
	ViewMeasured MatrixView = "measured" // what a probe measured
	ViewDelta    MatrixView = "delta"    // by how much that differs from what is expected
)

// Format is how a matrix is laid out.
type Format string

// The formats of a matrix.
const (
	FormatText     Format = "table" // the look of nvidia-smi topo -m
	FormatMarkdown Format = "md"
	FormatCSV      Format = "csv"
	FormatTSV      Format = "tsv"
)

// MatrixOptions say how a matrix is printed. The zero value prints the classes
// as text, without colour and affinity.
type MatrixOptions struct {
	View   MatrixView
	Format Format
	Color  bool
	// Host adds the columns CPU Affinity, NUMA Affinity and GPU NUMA ID, which
	// a matrix alone does not have; nil leaves them out.
	Host *topo.Topology
	// Units are the units of expected rates; Auto is GB/s.
	Units units.System
	// Width is the columns of the terminal that a text is folded to; 0 is no limit.
	Width int
}

// unknown is what a cell shows where nothing is known.
const unknown = "?"

// Matrix prints a matrix. The text has the look of nvidia-smi topo -m: NICs are
// numbered, and a legend says their names; the other formats name them.
func Matrix(w io.Writer, m *topo.Matrix, opts MatrixOptions) error {
	g := newGrid(m, opts)
	var out bytes.Buffer
	var err error
	switch opts.Format {
	case FormatCSV:
		err = csv.NewWriter(&out).WriteAll(g.records())
	case FormatTSV:
		for _, line := range text.TSV(g.records()) {
			out.WriteString(line + "\n")
		}
	case FormatMarkdown:
		g.markdown(&out)
	default:
		g.text(&out)
	}
	if err == nil {
		_, err = out.WriteTo(w)
	}
	if err != nil {
		return pkgerr.Errorf("draw", "write the matrix: %w", err)
	}
	return nil
}

// Place is where a cell stands in a text: its line, its first column and how many there are.
type Place struct{ Line, Column, Width int }

// MatrixText is the text that Matrix prints, with the places of the cells by row and column.
func MatrixText(m *topo.Matrix, opts MatrixOptions) (string, [][]Place) {
	opts.Format = FormatText
	g := newGrid(m, opts)
	g.places = make([][]Place, len(m.Rows))
	var out bytes.Buffer
	g.text(&out)
	return out.String(), g.places
}

// grid is a matrix as text: head and rows have the same cells, the first of
// which names the row.
type grid struct {
	m    *topo.Matrix
	opts MatrixOptions
	head []string
	rows [][]string
	nics []topo.MatrixEntry // in the order of their numbers, for the legend
	used map[string]bool    // the cells that occur, NV4 and NV12 as "NV", of rates the marks

	places [][]Place // of the cells that were written; nil: nobody asks
}

func newGrid(m *topo.Matrix, opts MatrixOptions) *grid {
	g := &grid{m: m, opts: opts, used: map[string]bool{}, head: []string{""}}
	if opts.Format != FormatText && opts.Format != "" { // text says it in the legend
		switch opts.View {
		case ViewExpected, ViewMeasured:
			g.head[0] = opts.Units.Suffix()
		case ViewDelta:
			g.head[0] = "%"
		}
	}
	label := g.labels()
	for _, c := range m.Cols {
		g.head = append(g.head, label(c))
	}
	affinity := g.affinity()
	if affinity != nil {
		g.head = append(g.head, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
	}
	for i, r := range m.Rows {
		row := []string{label(r)}
		for j := range m.Cols {
			row = append(row, g.cell(i, j))
		}
		if affinity != nil {
			row = append(row, affinity(r)...)
		}
		g.rows = append(g.rows, row)
	}
	return g
}

// labels gives the name of an entry: in text, NICs are numbered.
func (g *grid) labels() func(topo.MatrixEntry) string {
	number := map[topo.ID]string{}
	if g.opts.Format == "" || g.opts.Format == FormatText {
		for _, axis := range [][]topo.MatrixEntry{g.m.Rows, g.m.Cols} {
			for _, e := range axis {
				if _, ok := number[e.ID]; !ok && (e.Kind == topo.KindRDMA || e.Kind == topo.KindNetdev) {
					number[e.ID] = "NIC" + strconv.Itoa(len(g.nics))
					g.nics = append(g.nics, e)
				}
			}
		}
	}
	return func(e topo.MatrixEntry) string {
		if n, ok := number[e.ID]; ok {
			return n
		}
		return printable(e.Name, false)
	}
}

// cell is the text of one relation.
func (g *grid) cell(i, j int) string {
	s := unknown
	switch g.opts.View {
	case ViewNCCL:
		if c := g.m.NCCL[i][j]; c != "" {
			s = text.ASCII(string(c))
		}
	case ViewExpected:
		return g.expected(i, j)
	case ViewMeasured, ViewDelta:
		return g.measured(i, j)
	default:
		if c := g.m.Class[i][j]; c.Known() {
			s = c.String()
		}
	}
	g.used[strings.TrimRight(s, "0123456789")] = true
	return s
}

// expected is a rate, marked by how it is known where people read it; programs get plain numbers.
func (g *grid) expected(i, j int) string {
	switch rate := g.m.Rate[i][j]; {
	case g.m.Rows[i].ID == g.m.Cols[j].ID:
		return "X"
	case rate == nil:
		g.used[unknown] = true
		return unknown
	case *rate == 0:
		g.used["0"] = true
		return "0"
	case g.opts.Format == FormatCSV || g.opts.Format == FormatTSV:
		return units.RateNumber(int64(*rate), g.opts.Units)
	default:
		basis := g.m.Basis[i][j]
		g.used[basis.Mark("")] = true
		return basis.Mark(units.RateNumber(int64(*rate), g.opts.Units))
	}
}

// measured is a measured rate, or by how many percent it differs from the expected one.
func (g *grid) measured(i, j int) string {
	if g.m.Rows[i].ID == g.m.Cols[j].ID {
		return "X"
	}
	if g.m.Measured != nil && g.m.Measured[i][j] != nil {
		rate, want := *g.m.Measured[i][j], g.m.Rate[i][j]
		switch {
		case g.opts.View == ViewMeasured:
			return units.RateNumber(int64(rate), g.opts.Units)
		case want != nil && *want > 0:
			return strconv.FormatInt(int64(math.Round(100*(float64(rate)/float64(*want)-1))), 10)
		}
	}
	g.used[unknown] = true
	return unknown
}

// affinity gives an entry's CPUs, NUMA node and NUMA node of its own memory as
// nvidia-smi has them: for GPUs (and NUMA nodes), blank for NICs.
func (g *grid) affinity() func(topo.MatrixEntry) []string {
	t := g.opts.Host
	if t == nil {
		return nil
	}
	cpus, gpus := map[int]string{}, map[topo.ID]*topo.GPU{}
	for i := range t.NUMANodes {
		cpus[t.NUMANodes[i].Index] = t.NUMANodes[i].CPUs
	}
	for i := range t.GPUs {
		gpus[t.GPUs[i].ID] = &t.GPUs[i]
	}
	return func(e topo.MatrixEntry) []string {
		if e.Kind != topo.KindGPU && e.Kind != topo.KindNUMA {
			return []string{"", "", ""}
		}
		list, own := "", (*int)(nil)
		if gpu := gpus[e.ID]; gpu != nil {
			list, own = gpu.CPUAffinity, gpu.MemoryNUMA
		}
		if list == "" && e.NUMA != nil {
			list = cpus[*e.NUMA]
		}
		if list == "" {
			list = "N/A"
		}
		return []string{printable(list, false), orNA(e.NUMA), orNA(own)}
	}
}

func orNA(v *int) string {
	if v == nil {
		return "N/A"
	}
	return strconv.Itoa(*v)
}

// records are the names and the cells for programs; an unknown cell is empty.
func (g *grid) records() [][]string {
	var out [][]string
	for _, row := range append([][]string{g.head}, g.rows...) {
		record := make([]string, len(row))
		for i, c := range row {
			switch {
			case c == unknown:
			case i > 0 && i <= len(g.m.Cols) && g.opts.View == ViewDelta:
				record[i] = c // a number that may be below zero
			default:
				record[i] = formulaSafe(c)
			}
		}
		out = append(out, record)
	}
	return out
}

// formulaSafe keeps a spreadsheet from running a foreign name as a formula.
func formulaSafe(s string) string {
	if s != "" && strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}

// markdown writes a pipe table.
func (g *grid) markdown(w *bytes.Buffer) {
	writeRow := func(row []string) {
		w.WriteByte('|')
		for _, c := range row {
			w.WriteString(" " + strings.ReplaceAll(c, "|", `\|`) + " |")
		}
		w.WriteByte('\n')
	}
	writeRow(g.head)
	w.WriteString("|" + strings.Repeat(" --- |", len(g.head)) + "\n")
	for _, row := range g.rows {
		writeRow(row)
	}
}

// tabStop is the distance of the tab stops that nvidia-smi's columns keep.
const tabStop = 8

// text writes the look of nvidia-smi topo -m with its tabs expanded.
func (g *grid) text(w *bytes.Buffer) {
	if len(g.m.Rows) == 0 || len(g.m.Cols) == 0 {
		w.WriteString("nothing to relate: no device of the kinds asked for\n")
		return
	}
	widths := make([]int, len(g.head))
	for _, row := range append([][]string{g.head}, g.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], (text.Width(c)/tabStop+1)*tabStop)
		}
	}
	for from := 1; from < len(g.head); {
		to := g.fits(widths, from)
		if from > 1 {
			w.WriteByte('\n')
		}
		g.block(w, widths, from, to)
		from = to
	}
	g.legend(w)
	if len(g.nics) > 0 {
		w.WriteString("\nNIC Legend:\n\n")
		for i, e := range g.nics {
			fmt.Fprintf(w, "  NIC%d: %s\n", i, printable(e.Name, false))
		}
	}
}

// fits says up to which column, one at least, the terminal has room beside the rows' names.
func (g *grid) fits(widths []int, from int) (to int) {
	used := widths[0]
	for to = from; to < len(widths); to++ {
		if used += widths[to]; g.opts.Width > 0 && used > g.opts.Width && to > from {
			break
		}
	}
	return to
}

// block writes the rows' names and some columns.
func (g *grid) block(w *bytes.Buffer, widths []int, from, to int) {
	g.textRow(w, g.head, widths, from, to, func(int) Style { return Strong })
	for i, row := range g.rows {
		if g.places != nil {
			place := Place{Line: bytes.Count(w.Bytes(), []byte("\n")), Column: widths[0]}
			for col := from; col < min(to, len(g.m.Cols)+1); col++ {
				place.Width = max(2, text.Width(row[col]))
				g.places[i] = append(g.places[i], place)
				place.Column += widths[col]
			}
		}
		g.textRow(w, row, widths, from, to, func(col int) Style {
			switch {
			case col == 0:
				return Strong
			case col <= len(g.m.Cols):
				return g.style(i, col-1)
			}
			return Plain
		})
	}
}

// textRow writes the name and some columns of a row, without blanks at the end.
func (g *grid) textRow(w *bytes.Buffer, row []string, widths []int, from, to int, styleOf func(col int) Style) {
	for to > from && row[to-1] == "" {
		to--
	}
	gap := ""
	for i, c := range row[:to] {
		if i > 0 && i < from {
			continue
		}
		if c == "X" {
			c = " X"
		}
		w.WriteString(gap + paint(c, styleOf(i), g.opts.Color))
		gap = strings.Repeat(" ", max(0, widths[i]-text.Width(c)))
	}
	w.WriteByte('\n')
}

// style is that of a cell: only classes have one.
func (g *grid) style(i, j int) Style {
	switch g.opts.View {
	case ViewExpected, ViewMeasured, ViewDelta:
		return Plain
	}
	return ClassStyle(g.m.Class[i][j])
}

// ClassStyle colours a class from near to far.
func ClassStyle(c topo.Class) Style {
	switch c.Kind {
	case topo.ClassUnknown, topo.ClassSelf: // what is not known is no fault
		return Faint
	case topo.ClassPHB, topo.ClassNODE:
		return Middling
	case topo.ClassSYS:
		return Bad
	}
	return Good
}

// LegendEntry is one line of a legend; a rare one is only printed where it occurs.
type LegendEntry struct {
	Name, Meaning string
	Rare          bool
}

// Legend says what the cells of a view mean; views of measurements have none.
func Legend(v MatrixView) []LegendEntry {
	switch v {
	case ViewClass:
		return slices.Clone(classLegend)
	case ViewNCCL:
		return slices.Clone(ncclLegend)
	case ViewExpected:
		return slices.Clone(expectedLegend)
	}
	return nil
}

var classLegend = []LegendEntry{
	{"X", "Self", false},
	{"SYS", "PCIe and the link between NUMA nodes (UPI, QPI, xGMI)", false},
	{"NODE", "PCIe and the link between host bridges of one NUMA node", false},
	{"PHB", "PCIe and a host bridge (usually the CPU)", false},
	{"PXB", "several PCIe switches, no host bridge", false},
	{"PIX", "at most one PCIe switch", false},
	{"C2C", "NVLink-C2C between a GPU and its CPU", true},
	{"XGMI", "AMD's link between GPUs", true},
	{"NV#", "# bonded NVLinks", false},
	{unknown, "not known", true},
}

var ncclLegend = []LegendEntry{
	{"LOC", "Self", false},
	{"NVL", "NVLink, direct or through NVSwitches", false},
	{"NVB", "NVLink through another GPU", true},
	{"C2C", "NVLink-C2C between a GPU and its CPU", true},
	{"PIX", "at most one PCIe switch", false},
	{"PXB", "several PCIe switches, no host bridge", false},
	{"P2C", "C2C to the CPU, then PCIe", true},
	{"PHB", "the CPU, within one NUMA node", false},
	{"SYS", "the link between NUMA nodes", false},
	{unknown, "not known", true},
}

var expectedLegend = []LegendEntry{
	{"<", "at most: a link of the path has no known rate", true},
	{"~", "typical of such hardware, not measured: there may be less, and more", true},
	{"0", "nothing: the NIC's network ports are down", true},
	{unknown, "not known", true},
}

// legend says what the cells mean.
func (g *grid) legend(w *bytes.Buffer) {
	w.WriteString("\nLegend:\n\n")
	switch g.opts.View {
	case ViewExpected:
		fmt.Fprintf(w, "  Expected %s in one direction: slowest link of the path, after line coding.\n",
			g.opts.Units.Suffix())
		g.entries(w, expectedLegend)
		return
	case ViewMeasured, ViewDelta:
		g.measuredLegend(w)
		return
	case ViewNCCL:
		g.entries(w, ncclLegend)
		w.WriteString("\n  These are NCCL's path types. NCCL has no NODE: its PHB covers PHB and NODE.\n")
		return
	}
	g.entries(w, classLegend)
}

// measuredLegend says what measured rates are.
func (g *grid) measuredLegend(w *bytes.Buffer) {
	if g.opts.View == ViewDelta {
		w.WriteString("  Difference between the measured and the expected rate, in percent.\n")
	} else {
		fmt.Fprintf(w, "  Measured %s in one direction.\n", g.opts.Units.Suffix())
	}
	w.WriteString("  The pair itself where it was measured, else the highest rate seen on the slowest\n  link of its path.\n")
	if g.used[unknown] {
		w.WriteString("  ?    = not measured, or nothing is expected\n")
	}
}

func (g *grid) entries(w *bytes.Buffer, list []LegendEntry) {
	for _, e := range list {
		if !e.Rare || g.used[e.Name] {
			fmt.Fprintf(w, "  %-4s = %s\n", e.Name, e.Meaning)
		}
	}
}
