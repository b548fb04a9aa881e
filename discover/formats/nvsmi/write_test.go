package nvsmi

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
