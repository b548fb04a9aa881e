package texts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// published are the published matrices.
const published = "topo-matrices/*.txt"

// tokens reads the cells of a text without our parser: the words after each
// row's name, as many as there are columns.
func tokens(text string) (devices []string, cells map[string][]string) {
	cells = map[string][]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || strings.HasPrefix(line, "#"):
		case devices == nil && f[0] == "GPU0":
			for _, w := range f {
				if w == "CPU" {
					break
				}
				devices = append(devices, w)
			}
		case devices != nil && cells[f[0]] == nil && len(f) > len(devices):
			for _, d := range devices {
				if d == f[0] {
					cells[d] = f[1 : 1+len(devices)]
				}
			}
		}
	}
	return devices, cells
}

func TestPublishedMatricesParseAndPrintAgain(t *testing.T) {
	for name, data := range fixturetest.Published(t, published) {
		t.Run(name, func(t *testing.T) {
			if !detectMatrix(data[:min(len(data), 4096)]) {
				t.Error("not recognised")
			}
			table, err := parseMatrix(data)
			if err != nil {
				t.Fatal(err)
			}
			if len(table.Problems) > 0 {
				t.Errorf("problems: %q", table.Problems)
			}
			devices, cells := tokens(string(data))
			if diff := cmp.Diff(devices, table.Devices); diff != "" {
				t.Errorf("columns (-text +parsed):\n%s", diff)
			}
			if len(cells) != len(table.Rows) {
				t.Errorf("%d rows, the text has %d", len(table.Rows), len(cells))
			}
			for _, r := range table.Rows {
				if diff := cmp.Diff(cells[r.Name], r.Cells); diff != "" {
					t.Errorf("row %s (-text +parsed):\n%s", r.Name, diff)
				}
			}
			again := reparse(t, table)
			if diff := cmp.Diff(printed(table), printed(again)); diff != "" {
				t.Errorf("printed and parsed again:\n%s", diff)
			}
		})
	}
}

func TestPublishedMatricesKeepTheirClasses(t *testing.T) {
	for name, data := range fixturetest.Published(t, published) {
		top, err := decodeMatrix(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		table, _ := parseMatrix(data)
		if table.Kind != kindTopo {
			continue
		}
		for _, r := range table.Rows {
			for j, cell := range r.Cells {
				a, b := idOf(table, r.Name), idOf(table, table.Devices[j])
				if got := top.Relate(a, b).Class.String(); got != cell {
					t.Errorf("%s: %s %s: class %q, published %q", name, a, b, got, cell)
				}
			}
		}
	}
}

func idOf(table *matrix, label string) topo.ID {
	if n, ok := strings.CutPrefix(label, "GPU"); ok {
		return topo.ID("gpu:" + n)
	}
	return topo.RDMAID(table.nameOf(label))
}

// reparse prints a table and parses the print.
func reparse(t *testing.T, table *matrix) *matrix {
	t.Helper()
	text := table.text()
	again, err := parseMatrix([]byte(text))
	if err != nil {
		t.Fatalf("our own print: %v\n%s", err, text)
	}
	return again
}

// text is the table with its cells, affinities and names in the look of the tool that it came from.
func (t *matrix) text() string {
	var b strings.Builder
	if t.Kind == kindROCm {
		b.WriteString("== Link Type between two GPUs ==\n")
	}
	titles := []string{"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"}[:t.Affinities]
	fmt.Fprintf(&b, "\t%s\n", strings.Join(slices.Concat(t.Devices, titles), "\t"))
	for _, r := range t.Rows {
		cells := r.Cells
		for len(cells) > 0 && cells[len(cells)-1] == "" {
			cells = cells[:len(cells)-1]
		}
		b.WriteString(strings.Join(slices.Concat([]string{r.Name}, cells), "\t"))
		affinity := []string{r.CPUAffinity, r.NUMAAffinity, "\t" + r.GPUNUMAID}[:t.Affinities]
		if strings.TrimSpace(strings.Join(affinity, "")) != "" {
			b.WriteString("\t" + strings.Join(affinity, "\t"))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nLegend:\n\n")
	for _, r := range t.Rows {
		if t.Kind == kindROCm && r.NUMAAffinity != "" {
			fmt.Fprintf(&b, "GPU[%s]\t\t: (Topology) Numa Affinity: %s\n", strings.TrimPrefix(r.Name, "GPU"), r.NUMAAffinity)
		}
	}
	for _, n := range t.NICNames {
		fmt.Fprintf(&b, "  %s: %s\n", n.Label, n.Name)
	}
	return b.String()
}

// printed is what printing keeps: not the line numbers.
func printed(t *matrix) matrix {
	c := matrix{Kind: t.Kind, Devices: t.Devices, NICNames: t.NICNames, Affinities: t.Affinities}
	for _, r := range t.Rows {
		r.Line = 0
		c.Rows = append(c.Rows, r)
	}
	return c
}

// matrixText is a matrix as a terminal shows it: underlined head, tabs, CR LF.
const matrixText = "$ nvidia-smi topo -m\r\n\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\r\n" +
	"GPU0\t X \tNV4\tPIX\t0-3\t0\t\tN/A\r\nGPU1\tNV4\t X \tSOC\t4-7\t1\t\t2\r\nNIC0\tPIX\tSOC\t X \t\t\t\t\r\n" +
	"\r\nNIC Legend:\r\n\r\n  NIC0: mlx5_bond_0\r\n"

func TestTerminalText(t *testing.T) {
	top, err := decodeMatrix([]byte(matrixText))
	if err != nil {
		t.Fatal(err)
	}
	if c := top.Relate(topo.GPUID(1), topo.RDMAID("mlx5_bond_0")).Class.String(); c != "SYS" {
		t.Errorf("SOC is SYS, got %q", c)
	}
	if g := top.GPUs[1]; g.CPUAffinity != "4-7" || *g.NUMA != 1 || *g.MemoryNUMA != 2 {
		t.Errorf("GPU1: %+v", g)
	}
	table, _ := parseMatrix([]byte(matrixText))
	if table.Rows[1].Cells[2] != "SOC" {
		t.Errorf("cells are kept as written, got %q", table.Rows[1].Cells[2])
	}
}

func TestBadTextsSayWhere(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":      {"", "no line with column heads"},
		"other text": {"hello\nworld\n", "no line with column heads"},
		"binary":     {"\x00\x01\x02", "binary data"},
		"heads only": {"# comment\n\tGPU0\tGPU1\n", "line 2: column heads without a row"},
		"twice":      {"\tGPU0\tGPU0\nGPU0\tX\tX\n", `two columns are called "GPU0"`},
		"two hosts":  {"A:\n\tGPU0\tGPU1\nGPU0\tX\tNV4\nB:\n\tGPU0\tGPU1\nGPU0\tX\tSYS\n", "lines 2 and 5 begin two matrices that differ, of two hosts"},
		"hops":       {"== Hops between two GPUs ==\n\tGPU0\tGPU1\nGPU0\t0\t1\nGPU1\t1\t0\n", "line 2: a table of numbers"},
		"two hops": {"== Link Type between two GPUs ==\n\tGPU0\tGPU1\nGPU0\t0\tPCIE\n== Hops between two GPUs ==\n\tGPU0\tGPU1\nGPU0\t0\t2\n" +
			"== Hops between two GPUs ==\n\tGPU0\tGPU1\nGPU0\t0\t3\n", "lines 5 and 8 begin two matrices that differ"},
		"two nodes": {"\tGPU0\tGPU1\nGPU0\t0\tXGMI\nGPU1\tXGMI\t0\n== Numa Nodes ==\nGPU[0]\t: (Topology) Numa Affinity: 0\nGPU[0]\t: (Topology) Numa Affinity: 1\n",
			"GPU0 has NUMA node 0 in line 5 and 1 in line 6"},
	} {
		_, err := decodeMatrix([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestDamagedTextsKeepTheRest(t *testing.T) {
	for name, c := range map[string]struct{ text, warning string }{
		"short row":     {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\n", `row "GPU1" has 0 cells for 2 columns`},
		"cell is text":  {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tnv4!\tX\n", `row "GPU1" has 0 cells`},
		"strange cell":  {"\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV4\tPSB\nGPU1\tNV4\tX\tNV4\nGPU2\tPSB\tNV4\tX\n", `"PSB" name no class`},
		"asymmetric":    {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tSYS\tX\n", "row GPU0 says NV4 to GPU1, row GPU1 says SYS"},
		"other line":    {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nulimit soft: 1024\nGPU1\tNV4\tX\n", `"ulimit" is no column's name`},
		"peer access":   {"\tGPU0\tGPU1\nGPU0\tX\tNV4\n\n\tGPU0\tGPU1\nGPU0\tX\tCNS\n", "line 4: a second matrix is not read: that of line 1 is"},
		"printed twice": {strings.Repeat("\tGPU0\tGPU1\nGPU0\tX\tNV4\n\nLegend:\n\n", 2), "line 6: the matrix of line 1 again"},
		"too many NICs": {"\tGPU0\tGPU1\nGPU0\tX\tNV4\n\n76 NICs found, only displaying 56\n", "line 4: the tool found 76 NICs and shows 56"},
		"its legend":    {"\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV4\tPIX\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n", "line 7: the legend has NIC1, and the matrix of line 1 has not"},
		"two legends":   {"\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV4\tPIX\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC0: mlx5_1\n", "line 7: NIC0 is mlx5_1, and mlx5_0 above"},
		"row twice":     {"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU0\tX\tSYS\n", `a second row "GPU0"`},
		"numa range":    {"\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV4\t0-3\t0-1\nGPU1\tNV4\tX\t0-3\tzero\n", `NUMA affinity "zero"`},
	} {
		top, err := decodeMatrix([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := top.Relate(topo.GPUID(0), topo.GPUID(1)).Class; got != topo.NV(4) {
			t.Errorf("%s: GPU 0 to 1 %q, want NV4", name, got)
		}
		found := false
		for _, w := range top.Warnings {
			found = found || strings.Contains(w.Detail, c.warning)
		}
		if !found {
			t.Errorf("%s: no warning %q in %v", name, c.warning, top.Warnings)
		}
	}
}

// Terminals show columns that are as wide as the distance of their tabs without a blank between.
func TestGluedColumns(t *testing.T) {
	const heads = "\tGPU0\tGPU1\tNIC0\tNIC1NIC2\tNIC3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
	const gpu1 = "GPU1\tNV18\t X \tSYS\tSYSSYS\tPIX\t56-111\t1\t\tN/A\n"
	class := func(t *testing.T, text string, gpu, nic int) string {
		top, err := decodeMatrix([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return top.Relate(topo.GPUID(gpu), topo.RDMAID(fmt.Sprintf("NIC%d", nic))).Class.String()
	}
	t.Run("split", func(t *testing.T) {
		text := heads + "GPU0\t X \tNV18\tPIX\tNODENODE\tSYS\t0-55\t0\t\tN/A\n" + gpu1
		for nic, want := range []string{"PIX", "NODE", "NODE", "SYS"} {
			if got := class(t, text, 0, nic); got != want {
				t.Errorf("GPU0 NIC%d: %q, want %s", nic, got, want)
			}
		}
		if got := class(t, text, 1, 3); got != "PIX" {
			t.Errorf("GPU1 NIC3: %q, want PIX", got)
		}
	})
	t.Run("a cell is missing", func(t *testing.T) { // any of them: none may move into another's place
		text := heads + "GPU0\t X \tNV18\tPIX\tNODE\tSYS\t0-55\t0\t\tN/A\n" + gpu1
		for nic := range 4 {
			if got := class(t, text, 0, nic); got != "" {
				t.Errorf("GPU0 NIC%d: %q, want not known", nic, got)
			}
		}
	})
}

// Hops of rocm-smi tell pairs whose NUMA nodes differ; the table of link types may be the first.
func TestROCmHops(t *testing.T) {
	hops := "========= Hops between two GPUs =========\n       GPU0  GPU1  GPU2\nGPU0   0     1     3\nGPU1   1     0     2\nGPU2   3     2     0\n\n"
	types := "========= Link Type between two GPUs =========\n       GPU0  GPU1  GPU2\nGPU0   0     XGMI  PCIE\nGPU1   XGMI  0     PCIE\nGPU2   PCIE  PCIE  0\n\n"
	for _, text := range []string{hops + types, types + hops} {
		top, err := decodeMatrix([]byte("=== ROCm System Management Interface ===\n" + text + "========= Numa Nodes =========\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := [3]string{}
		for i, pair := range [][2]topo.ID{{"gpu:0", "gpu:1"}, {"gpu:0", "gpu:2"}, {"gpu:1", "gpu:2"}} {
			got[i] = top.Relate(pair[0], pair[1]).Class.String()
		}
		if want := [3]string{"XGMI", "SYS", ""}; got != want {
			t.Errorf("classes %q, want %q", got, want)
		}
	}
}

// What a NIC is called in the text stays its number, though names have another order.
func TestNICsKeepTheirNumbers(t *testing.T) {
	const text = "\tGPU0\tNIC0\tNIC1\tNIC2\nGPU0\tX\tPIX\tNODE\tSYS\nNIC0\tPIX\tX\tNODE\tSYS\nNIC1\tNODE\tNODE\tX\tSYS\nNIC2\tSYS\tSYS\tSYS\tX\n" +
		"\nNIC Legend:\n\n  NIC0: rocep9s0\n  NIC1: mlx5_1\n  NIC2: ibp3s0\n"
	top, err := decodeMatrix([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []topo.ID{"rdma:rocep9s0", "rdma:mlx5_1", "rdma:ibp3s0"}
	if diff := cmp.Diff(want, top.MatrixAxis(topo.KindNIC)); diff != "" {
		t.Errorf("matrix:\n%s", diff)
	}
	if diff := cmp.Diff(want, NICs(top)); diff != "" {
		t.Errorf("numbers:\n%s", diff)
	}
	doc, err := top.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := topo.Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, back.MatrixAxis(topo.KindNIC)); diff != "" {
		t.Errorf("written and read:\n%s", diff)
	}
}

// A text is the same in whatever wrapping people paste it: a reply's marks, a Markdown block, a byte
// order mark, narrower titles, columns of drives.
func TestWrappedTexts(t *testing.T) {
	const plain = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" +
		"GPU0\t X \tNV4\tPIX\t0-3\t0\t\tN/A\nGPU1\tNV4\t X \tSYS\t4-7\t1\t\tN/A\nNIC0\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_3\n"
	quote := "> > " + strings.ReplaceAll(plain, "\n", "\n> > ")
	for name, text := range map[string]string{
		"plain":         plain,
		"quoted":        quote,
		"Markdown":      "The host:\n```console\n" + plain + "```\nthanks\n",
		"cut Markdown":  "```\n" + plain[:strings.Index(plain, "\nNIC Legend")] + "```\n  NIC0: mlx5_3\n",
		"escape lost":   "\t[4m" + strings.Replace(plain[1:], "GPU NUMA ID", "GPU NUMA ID[0m", 1),
		"escape shown":  "\t^[[4m" + strings.Replace(plain[1:], "GPU NUMA ID", "GPU NUMA ID\\u001b[0m", 1),
		"glued":         strings.NewReplacer("NIC0\tCPU", "NIC0CPU", "SYS\t4-7", "SYS4-7", "PIX\t0-3", "PIX 0-3", "1\t\tN/A", "1N/A").Replace(plain),
		"web page":      strings.NewReplacer("\t", "\u00a0\u00a0 ").Replace(plain),
		"Windows":       "\ufeff" + strings.ReplaceAll(plain, "\n", "\r\n"),
		"narrow titles": strings.NewReplacer("CPU Affinity", "CPU", "NUMA Affinity", "NUMA", "GPU NUMA ID", "GPU NUMA").Replace(plain),
		"a drive":       strings.NewReplacer("NIC0\tCPU", "NIC0\tNVME0\tCPU", "PIX\t0", "PIX\tPHB\t0", "SYS\t4", "SYS\tSYS\t4", " X \n\n", " X \tPHB\nNVME0\tPHB\tSYS\tPHB\t X \n\n").Replace(plain),
	} {
		top, err := decodeMatrix([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !detectMatrix([]byte(text)) || !top.Complete || len(top.RDMADevices) != 1 {
			t.Errorf("%s: %d NICs, warnings %v", name, len(top.RDMADevices), top.Warnings)
		}
		if c := top.Relate(topo.GPUID(1), topo.RDMAID("mlx5_3")).Class.String(); c != "SYS" {
			t.Errorf("%s: GPU1 to mlx5_3 %q", name, c)
		}
		if g := top.GPUs[1]; g.CPUAffinity != "4-7" || g.NUMA == nil || *g.NUMA != 1 {
			t.Errorf("%s: GPU1 %q %v", name, g.CPUAffinity, g.NUMA)
		}
	}
}

// On Grace the NUMA affinity lists the CPUs' node and those of the memory of the GPUs near it.
func TestNodesOfGPUMemoryAreNotTheGPUsPlace(t *testing.T) {
	top, err := decodeMatrix([]byte("\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\tX\tNV18\tNV18\t0-71\t0,3-9,11-17\t\t2\n" +
		"GPU1\tNV18\tX\tNV18\t0-71\t0,3-9,11-17\t\t10\nGPU2\tNV18\tNV18\tX\t72-143\t1,19-25,27-33\t\t18\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ numa, memory int }{{0, 2}, {0, 10}, {1, 18}} {
		if g := top.GPUs[i]; g.NUMA == nil || *g.NUMA != want.numa || g.MemoryNUMA == nil || *g.MemoryNUMA != want.memory {
			t.Errorf("%s: NUMA node %v, memory %v", g.ID, g.NUMA, g.MemoryNUMA)
		}
	}
	if n := len(top.NUMANodes); n != 5 || top.NUMANodes[0].CPUs != "0-71" {
		t.Errorf("%d NUMA nodes, want two of CPUs and three of GPUs: %+v", n, top.NUMANodes)
	}
}

func TestDetectRefusesOtherFormats(t *testing.T) {
	for _, s := range []string{"", `{"schema":"topoctl.topology/v1"}`, "<system version=\"1\">\n GPU0 GPU1\n", "GPU0 is fine\n"} {
		if detectMatrix([]byte(s)) {
			t.Errorf("%q is no matrix", s)
		}
	}
}

// What kind a matrix is, its own lines say: neither words around it nor another tool's title change it.
func TestProseAroundAMatrix(t *testing.T) {
	nvidia := matrixText[strings.Index(matrixText, "\t"):]
	amd := "=== Link Type between two GPUs ===\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Affinity: 1\n"
	facts := func(t rapid.TB, text string) *topo.Topology {
		top, err := decodeMatrix([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for i := range top.GPUs {
			top.GPUs[i].Evidence = ""
		}
		for i := range top.RDMADevices {
			top.RDMADevices[i].Evidence = ""
		}
		for i := range top.NUMANodes {
			top.NUMANodes[i].Evidence = ""
		}
		return top
	}
	prose := rapid.SliceOf(rapid.SampledFrom([]string{
		"CUDA Archs: 7.5; ROCm: Disabled; XPU: Disabled", "ROCm version: N/A", "HIP runtime version: N/A", "root@amd-17:~# nvidia-smi topo -m", "", "GPU0",
		"=== ROCm System Management Interface ===", "see Link Type between two GPUs", "=== Link Type between two GPUs ===", "LINK_TYPE: XGMI", "NVIDIA H100: NV18", "mlx5_0: up", "GPU Topology:",
	}))
	for _, text := range []string{nvidia, amd} {
		want := facts(t, text)
		rapid.Check(t, func(t *rapid.T) {
			around := func(name string) string { return strings.Join(append(prose.Draw(t, name), ""), "\n") }
			got := facts(t, around("before")+text+around("after"))
			if diff := cmp.Diff([]any{want.GPUs, want.RDMADevices, want.NUMANodes, want.Asserted}, []any{got.GPUs, got.RDMADevices, got.NUMANodes, got.Asserted}); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

// The texts of two hosts in one are refused, or only the first is read.
func TestTwoHostsInOneText(t *testing.T) {
	host := func(t *rapid.T, name string) string {
		gpus, nics := rapid.IntRange(1, 3).Draw(t, "gpus"), rapid.IntRange(0, 3).Draw(t, "nics")
		var b strings.Builder
		var names []string
		for i := range gpus {
			names = append(names, fmt.Sprintf("GPU%d", i))
		}
		for i := range nics {
			names = append(names, fmt.Sprintf("NIC%d", i))
		}
		title, own, cells := "$ nvidia-smi topo -m", "X", []string{"PIX", "NODE", "SYS"}
		if nics == 0 && rapid.Bool().Draw(t, "amd") {
			title, own, cells = "\n=== Link Type between two GPUs ===", "0", []string{"XGMI", "PCIE"}
		}
		fmt.Fprintf(&b, "%s%s\n\t%s\n", name, title, strings.Join(names, "\t"))
		for i := range names {
			b.WriteString(names[i])
			for j := range names {
				b.WriteString("\t" + map[bool]string{true: own, false: rapid.SampledFrom(cells).Draw(t, "cell")}[i == j])
			}
			b.WriteString("\n")
		}
		if rapid.Bool().Draw(t, "legend") {
			b.WriteString("\nNIC Legend:\n\n")
			for i := range nics {
				fmt.Fprintf(&b, "  NIC%d: %s_%d\n", i, name, i)
			}
		}
		return b.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		first, second := host(t, "a"), host(t, "b")
		if rapid.Bool().Draw(t, "unread") { // the heads of the second in a form that is not read
			second = strings.Replace(second, "\tGPU0", "| |GPU0", 1)
		}
		want, err := decodeMatrix([]byte(first))
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeMatrix([]byte(first + second))
		if err != nil {
			return
		}
		if diff := cmp.Diff([]any{want.GPUs, want.RDMADevices, want.Asserted}, []any{got.GPUs, got.RDMADevices, got.Asserted}); diff != "" || len(got.Warnings) <= len(want.Warnings) {
			t.Fatalf("%s%s%s %v", first, second, diff, got.Warnings)
		}
	})
}

func FuzzMatrix(f *testing.F) {
	f.Add([]byte(matrixText))
	f.Add([]byte(" \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"))
	f.Add([]byte("=== ROCm System Management Interface ===\n=== Link Type between two GPUs ===\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 PCIE 0\n=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Affinity: 1\n"))
	f.Add([]byte("\tGPU0\tNIC0NIC1\nGPU0\tX\tNODENODE\n"))
	f.Add([]byte("        GPU0    mlx5_0  CPU Affinity    NUMA Affinity\nGPU0     X      PIX     0-19,40-59      0\nmlx5_0  PIX      X\n"))
	f.Add([]byte("> \ufeff```\n> \tGPU0\tNVME0\tCPU\tNUMA\tGPU NUMA\n> GPU0\tX\tPHB\t0-71\t0,3-9\t\t2\n> ```\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := parseMatrix(data)
		if err != nil {
			return
		}
		again := reparse(t, table)
		for i, r := range table.Rows {
			if diff := cmp.Diff(r.Cells, again.Rows[i].Cells); diff != "" {
				t.Errorf("row %s printed again:\n%s", r.Name, diff)
			}
		}
		top, err := decodeMatrix(data)
		if err != nil {
			return
		}
		fixturetest.ReadBack(t, top)
	})
}
