package nvsmi

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// topoLegend explains the classes, in the words of every reader of the tool.
var topoLegend = [][2]string{
	{"X", "Self"},
	{"SYS", "PCIe and the link between NUMA nodes"},
	{"NODE", "PCIe and the link between host bridges of one NUMA node"},
	{"PHB", "PCIe and a host bridge"},
	{"PXB", "several PCIe switches, no host bridge"},
	{"PIX", "at most one PCIe switch"},
	{"NV#", "# bonded NVLinks"},
}

// otherCells explains what only some machines have.
var otherCells = [][2]string{
	{"XGMI", "AMD's link between GPUs"},
	{"C2C", "NVLink-C2C between a GPU and its CPU"},
	{"?", "not known"},
}

func (t *matrix) writeTopo(b *bytes.Buffer) {
	titles := []string{"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"}[:t.Affinities]
	fmt.Fprintf(b, "\t%s\n", strings.Join(append(append([]string{}, t.Devices...), titles...), "\t"))
	for _, r := range t.Rows {
		b.WriteString(r.Name)
		for _, c := range r.cells() {
			if c == "X" {
				c = " X "
			}
			b.WriteString("\t" + c)
		}
		affinity := []string{r.CPUAffinity, r.NUMAAffinity, "\t" + r.GPUNUMAID}[:t.Affinities]
		if strings.TrimSpace(strings.Join(affinity, "")) != "" {
			b.WriteString("\t" + strings.Join(affinity, "\t"))
		}
		b.WriteByte('\n')
	}
	legend := append([][2]string{}, topoLegend...)
	for _, l := range otherCells {
		if t.hasCell(l[0]) {
			legend = append(legend, l)
		}
	}
	writeLegend(b, legend)
	if len(t.NICNames) == 0 {
		return
	}
	b.WriteString("\nNIC Legend:\n\n")
	for _, n := range t.NICNames {
		fmt.Fprintf(b, "  %s: %s\n", n.Label, n.Name)
	}
}

func (t *matrix) hasCell(cell string) bool {
	return slices.ContainsFunc(t.Rows, func(r tableRow) bool { return slices.Contains(r.Cells, cell) })
}

// cells are the row's cells up to the last one that is there.
func (r *tableRow) cells() []string {
	n := len(r.Cells)
	for n > 0 && r.Cells[n-1] == "" {
		n--
	}
	return r.Cells[:n]
}

func writeLegend(b *bytes.Buffer, legend [][2]string) {
	b.WriteString("\nLegend:\n\n")
	for _, l := range legend {
		fmt.Fprintf(b, "  %-4s = %s\n", l[0], l[1])
	}
}
