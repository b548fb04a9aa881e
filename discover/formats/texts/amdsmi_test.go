package texts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

var amdFiles = []string{"tables.txt", "links.json", "tables.json", "tables.csv"}

func readAMD(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/amdsmi-" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func amdHost(t *testing.T, data []byte) *topo.Topology {
	t.Helper()
	if !detectAMD(data) {
		t.Error("not recognised")
	}
	top, err := decodeAMD(data)
	if err != nil {
		t.Fatal(err)
	}
	fixturetest.ReadBack(t, top)
	return top
}

// The same machine in all forms: classes, and links with what is known of them.
func TestAMDForms(t *testing.T) {
	want := `gpu:0 0000:0c:00.0 X XGMI XGMI SYS
gpu:1 0000:2a:00.0 XGMI X SYS SYS
gpu:2 0000:8c:00.0 XGMI SYS X XGMI
gpu:3 0000:aa:00.0 SYS SYS XGMI X
xgmi:gpu:0/gpu:1 2 100.0 read
xgmi:gpu:0/gpu:2 0 2 hops unknown
xgmi:gpu:2/gpu:3 2 100.0 read
complete true
`
	for _, name := range amdFiles {
		if diff := cmp.Diff(want, amdSummary(amdHost(t, readAMD(t, name)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func amdSummary(top *topo.Topology) string {
	var b strings.Builder
	for i := range top.GPUs {
		fmt.Fprintf(&b, "%s %s", top.GPUs[i].ID, top.GPUs[i].BDF)
		for j := range top.GPUs {
			if c := top.Relate(top.GPUs[i].ID, top.GPUs[j].ID).Class; c.Known() {
				fmt.Fprintf(&b, " %s", c)
			} else {
				b.WriteString(" ?")
			}
		}
		b.WriteByte('\n')
	}
	for _, l := range top.Links {
		fmt.Fprintf(&b, "%s %d ", l.ID, l.Count)
		if l.BytesPerSec != nil {
			fmt.Fprintf(&b, "%.1f ", float64(*l.BytesPerSec)/1e9)
		}
		if l.Note != "" {
			b.WriteString(l.Note + " ")
		}
		fmt.Fprintf(&b, "%s\n", l.Basis)
	}
	fmt.Fprintf(&b, "complete %t\n", top.Complete)
	return b.String()
}

// What one table alone tells, and what none tells.
func TestAMDTables(t *testing.T) {
	const head = "TABLE:\n             0000:03:00.0 0000:0c:00.0\n"
	two := func(a, b string) string { return "gpu:0 0000:03:00.0 X " + a + "\ngpu:1 0000:0c:00.0 " + b + " X\n" }
	for name, c := range map[string]struct{ text, want string }{
		"PCIe within a node": {"HOPS " + head + "0000:03:00.0 0            2\n0000:0c:00.0 2            0\nLINK TYPE " + head + "0000:03:00.0 SELF         PCIE\n0000:0c:00.0 PCIE         SELF\n",
			two("?", "?") + "complete true\n"},
		"PCIe of unknown nodes": {"LINK TYPE " + head + "0000:03:00.0 SELF         PCIE\n0000:0c:00.0 PCIE         SELF\n", two("?", "?") + "complete true\n"},
		"hops alone":            {"HOPS " + head + "0000:03:00.0 0            1\n0000:0c:00.0 1            0\n", two("XGMI", "XGMI") + "xgmi:gpu:0/gpu:1 1 unknown\ncomplete true\n"},
		"no rate, no weight": {"WEIGHT " + head + "0000:03:00.0 0            0\n0000:0c:00.0 0            0\nLINK TYPE " + head + "0000:03:00.0 SELF         XGMI\n0000:0c:00.0 XGMI         SELF\nNUMA BW " + head + "0000:03:00.0 N/A          0-0\n0000:0c:00.0 0-0          N/A\n",
			two("XGMI", "XGMI") + "xgmi:gpu:0/gpu:1 1 unknown\ncomplete true\n"},
		"rows that disagree": {"LINK TYPE " + head + "0000:03:00.0 SELF         XGMI\n0000:0c:00.0 PCIE         SELF\nHOPS " + head + "0000:03:00.0 0            1\n0000:0c:00.0 3            0\n", two("?", "?") + "complete true\n"},
		"a row cut short":    {"LINK TYPE " + head + "0000:03:00.0 SELF\n0000:0c:00.0 XGMI         SELF\n", two("XGMI", "XGMI") + "xgmi:gpu:0/gpu:1 1 unknown\ncomplete false\n"},
		"a table that is not read, blanks and line ends": {"ACCESS " + head + "0000:03:00.0 ENABLED      DISABLED\r\n\r\n  LINK TYPE " + head + "  0000:03:00.0 SELF         XGMI\r\n  0000:0c:00.0 XGMI         SELF\r\n\nLegend:\n  SELF = Current GPU\n",
			two("XGMI", "XGMI") + "xgmi:gpu:0/gpu:1 1 unknown\ncomplete true\n"},
	} {
		if diff := cmp.Diff(c.want, amdSummary(amdHost(t, []byte(c.text)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAMDRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"ACCESS TABLE:\n             0000:03:00.0\n0000:03:00.0 ENABLED\n": "texts: no table of link types, hops or weights: not the text of amd-smi topology",
		"HOPS TABLE:\n             0000:03:00.0 GPU1\n":                    `texts: line 2: "GPU1" is no PCI address`,
		"HOPS TABLE:\n             0000:03:00.0 0000:03:00.0\n":            "texts: line 2: a second GPU at 0000:03:00.0",
		"HOPS TABLE:\n 0000:03:00.0\nLINK TYPE TABLE:\n 0000:04:00.0\n":    `texts: line 4: "0000:04:00.0" is no GPU of the tables above, or is there twice`,
		`[{"gpu":0,"bdf":"x","links":[]}]`:                                 `texts: element 0: "x" is no PCI address`,
		`[{"gpu":0,"bdf":"0000:03:00.0","links":[`:                         "texts: [0]: the document ends in the middle",
		"gpu,bdf,hops_gpu_0\n0,0000:03:00.0\n":                             "texts: record on line 2: wrong number of fields",
		"gpu,bdf,hops_gpu_0\n0,zero,0\n":                                   `texts: line 2: "zero" is no PCI address`,
	} {
		if _, err := decodeAMD([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// Texts of other tools are none of these.
func TestAMDOthers(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", "<system/>", "\tGPU0\tGPU1\n", `[{"ifname":"lo"}]`, "HOPS:\n"} {
		if detectAMD([]byte(text)) {
			t.Errorf("%q is taken for amd-smi's", text)
		}
	}
}

func FuzzAMD(f *testing.F) {
	for _, name := range amdFiles {
		f.Add(readAMD(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		detectAMD(data)
		if top, err := decodeAMD(data); err == nil {
			fixturetest.ReadBack(t, top)
		}
	})
}

// Tables of two hosts are refused; those of one may be there twice.
func TestAMDTablesAgain(t *testing.T) {
	text := string(readAMD(t, "tables.txt"))
	if diff := cmp.Diff(amdSummary(amdHost(t, []byte(text))), strings.Replace(amdSummary(amdHost(t, []byte(text+text))), "complete false", "complete true", 1)); diff != "" {
		t.Error(diff)
	}
	for _, other := range []string{strings.Replace(text, "XGMI", "PCIE", 1), strings.ReplaceAll(text, "0000:0c:00.0", "0000:0d:00.0")} {
		if _, err := decodeAMD([]byte(text + other)); err == nil || !strings.Contains(err.Error(), "host") {
			t.Errorf("error %v", err)
		}
	}
}
