package texts

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// p2pLegend explains the states of peer access.
var p2pLegend = [][2]string{
	{"X", "Self"},
	{"OK", "works"},
	{"CNS", "chipset not supported"},
	{"GNS", "gpu not supported"},
	{"TNS", "topology not supported"},
	{"NS", "not supported"},
	{"DR", "disabled by a registry key"},
	{"U", "unknown"},
}

// write prints the table in the look of the tool that it came from, so that tests can
// read it again: the cells, affinities and names are the same.
func (t *matrix) write(w io.Writer) (int64, error) {
	var b bytes.Buffer
	switch t.Kind {
	case kindROCm:
		t.writeROCm(&b)
	case kindP2P:
		t.writeP2P(&b)
	default:
		t.writeTopo(&b)
	}
	return b.WriteTo(w)
}

func (t *matrix) writeP2P(b *bytes.Buffer) {
	fmt.Fprintf(b, " \t%s\t\n", strings.Join(t.Devices, "\t"))
	for _, r := range t.Rows {
		fmt.Fprintf(b, " %s\t%s\t\n", r.Name, strings.Join(r.cells(), "\t"))
	}
	writeLegend(b, p2pLegend)
}

func (t *matrix) writeROCm(b *bytes.Buffer) {
	b.WriteString("============================ ROCm System Management Interface ============================\n" +
		"=============================== Link Type between two GPUs ===============================\n")
	fmt.Fprintf(b, "%6s", "")
	for _, d := range t.Devices {
		fmt.Fprintf(b, " %-12s", d)
	}
	b.WriteByte('\n')
	for _, r := range t.Rows {
		fmt.Fprintf(b, "%-6s", r.Name)
		for _, c := range r.cells() {
			fmt.Fprintf(b, " %-12s", c)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "%s End of ROCm SMI Log %s\n", strings.Repeat("=", 34), strings.Repeat("=", 35))
	for _, r := range t.Rows {
		if r.NUMAAffinity != "" {
			fmt.Fprintf(b, "GPU[%s]\t\t: (Topology) Numa Affinity: %s\n", strings.TrimPrefix(r.Name, "GPU"), r.NUMAAffinity)
		}
	}
}

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
