package draw

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
)

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
	g.textRow(w, g.head, widths, func(int) Style { return Strong })
	for i, row := range g.rows {
		g.textRow(w, row, widths, func(col int) Style {
			switch {
			case col == 0:
				return Strong
			case col <= len(g.m.Cols):
				return g.style(i, col-1)
			}
			return Plain
		})
	}
	g.legend(w)
	if len(g.nics) > 0 {
		w.WriteString("\nNIC Legend:\n\n")
		for i, e := range g.nics {
			fmt.Fprintf(w, "  NIC%d: %s\n", i, Printable(e.Name, false))
		}
	}
}

// textRow writes one row without blanks at its end.
func (g *grid) textRow(w *bytes.Buffer, row []string, widths []int, styleOf func(col int) Style) {
	last := len(row) - 1
	for last > 0 && row[last] == "" {
		last--
	}
	for i, c := range row[:last+1] {
		if c == "X" {
			c = " X"
		}
		w.WriteString(paint(c, styleOf(i), g.opts.Color))
		if i < last {
			w.WriteString(strings.Repeat(" ", max(0, widths[i]-text.Width(c))))
		}
	}
	w.WriteByte('\n')
}

// style colours a class from near to far.
func (g *grid) style(i, j int) Style {
	switch g.opts.View {
	case ViewExpected, ViewMeasured, ViewDelta:
		return Plain
	}
	switch c := g.m.Class[i][j]; c.Kind {
	case topo.ClassUnknown:
		return Bad
	case topo.ClassSelf:
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

// Legend says what the cells of a view of classes mean; other views have none.
func Legend(v View) []LegendEntry {
	switch v {
	case ViewClass:
		return slices.Clone(classLegend)
	case ViewNCCL:
		return slices.Clone(ncclLegend)
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

// legend says what the cells mean.
func (g *grid) legend(w *bytes.Buffer) {
	w.WriteString("\nLegend:\n\n")
	switch g.opts.View {
	case ViewExpected:
		fmt.Fprintf(w, "  Expected %s in one direction: the slowest link of the path, after line coding.\n",
			g.opts.Units.Suffix())
		if g.most {
			w.WriteString("  <    = at most: a link of the path has no known rate\n")
		}
		if g.none {
			w.WriteString("  0    = nothing: the NIC's network ports are down\n")
		}
		if g.used[unknown] {
			w.WriteString("  ?    = not known\n")
		}
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
		w.WriteString("  By how many percent the measured rate differs from the expected one.\n")
	} else {
		fmt.Fprintf(w, "  Measured %s in one direction.\n", g.opts.Units.Suffix())
	}
	w.WriteString("  Where the two were measured, that is it; else what the slowest link of the path\n  was seen to carry.\n")
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
