package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// gpuMatrix is a host of which a matrix of the classes of its GPUs is all there is.
func gpuMatrix(tb testing.TB, n int, class func(i, j int) string) *topo.Topology {
	tb.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\tGPU%d", i)
	}
	b.WriteString("\tCPU Affinity\tNUMA Affinity\n")
	for i := range n {
		fmt.Fprintf(&b, "GPU%d", i)
		for j := range n {
			cell := " X "
			if i != j {
				cell = class(min(i, j), max(i, j))
			}
			b.WriteString("\t" + cell)
		}
		b.WriteString("\t0-7\t0\n")
	}
	t, err := texts.Decode([]byte(b.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// "NV18" in a matrix says of how many links a pair is joined by: one that is missing, and a GPU with fewer than
// others, are found. What a host is built like is no fault.
func TestLinksInAMatrix(t *testing.T) {
	all := func(class string) func(i, j int) string { return func(int, int) string { return class } }
	except := func(usual, other string, is func(i, j int) bool) func(i, j int) string {
		return func(i, j int) string {
			if is(i, j) {
				return other
			}
			return usual
		}
	}
	pair := func(a, b int) func(i, j int) bool { return func(i, j int) bool { return i == a && j == b } }
	gpu := func(g int) func(i, j int) bool { return func(i, j int) bool { return i == g || j == g } }
	cube := [8]string{".1122...", "1.21.2..", "12.2..1.", "212....1", "2....112", ".2..1.21", "..1.12.2", "...1212."} // a V100 board without NVSwitches
	for _, c := range []struct {
		about string
		gpus  int
		class func(i, j int) string
		want  string
	}{
		{"all alike", 8, all("NV18"), ""},
		{"a GPU with two links down", 8, except("NV18", "NV16", gpu(3)), "nvlink-uneven gpu:3: 16 of 18 links are active"},
		{"of four", 4, except("NV18", "NV16", gpu(2)), "nvlink-uneven gpu:2: 16 of 18 links are active"},
		{"a GPU without links", 8, except("NV18", "NODE", gpu(3)), "nvlink-missing gpu:3: no active NVLink, while gpu:0 has 18"},
		{"a pair without links", 8, except("NV18", "NODE", pair(2, 7)), "nvlink-uneven gpu:2 gpu:7: no NVLink between these two (NODE)"},
		{"a pair with fewer", 8, except("NV18", "NV10", pair(2, 7)), "nvlink-uneven gpu:2 gpu:7: 10 NVLinks between these two"},
		{"an unknown pair beside one that is missing", 8, func(i, j int) string {
			if i == 0 && j == 1 {
				return "?"
			}
			return except("NV18", "SYS", pair(2, 7))(i, j)
		}, "nvlink-uneven gpu:2 gpu:7: no NVLink between these two (SYS)"},
		{"a mesh", 4, all("NV4"), ""},
		{"a mesh that lacks a pair", 4, except("NV4", "SYS", pair(0, 2)), "nvlink-uneven gpu:0 gpu:2: 8 of 12 links are active"},
		{"bridges between pairs", 8, func(i, j int) string {
			if i/2 == j/2 {
				return "NV12"
			}
			return "NODE"
		}, ""},
		{"a cube", 8, func(i, j int) string {
			if c := cube[i][j]; c != '.' {
				return "NV" + string(c)
			}
			return "SYS"
		}, ""},
		{"two partitions of the switches", 8, func(i, j int) string {
			if i/6 == j/6 {
				return "NV18"
			}
			return "SYS"
		}, ""},
		{"no NVLinks", 4, all("NODE"), ""},
	} {
		var got []string
		for _, f := range run(t, gpuMatrix(t, c.gpus, c.class)).Findings() {
			if !strings.HasPrefix(string(f.Code), "nvlink-") {
				continue
			}
			said := string(f.Code)
			for _, id := range f.Subjects {
				said += " " + doctor.SubjectName(id)
			}
			got = append(got, said+": "+f.Text)
		}
		if said := strings.Join(got, "; "); !strings.HasPrefix(said, c.want) || c.want == "" && said != "" || len(got) > 1 {
			t.Errorf("%s: %q, want %q", c.about, said, c.want)
		}
	}
}
