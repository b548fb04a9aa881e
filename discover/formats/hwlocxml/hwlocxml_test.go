package hwlocxml

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// small is a file by hand: one package, a switch with a GPU and a NIC, a GPU's memory as a NUMA node, a second
// package with its bridges left out. old is one of version 1.
var (
	//go:embed testdata/small.xml
	small string
	//go:embed testdata/old.xml
	old string
)

// published are the published files.
const published = "captures/hwloc-xml/*.xml.gz"

func decode(t *testing.T, data []byte) *topo.Topology {
	t.Helper()
	top, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// An oracle of its own: the file's tree with nothing of the importer's.
type oracleObject struct {
	Type    string         `xml:"type,attr"`
	Nodes   string         `xml:"nodeset,attr"`
	Bridge  string         `xml:"bridge_type,attr"`
	Range   string         `xml:"bridge_pci,attr"`
	BusID   string         `xml:"pci_busid,attr"`
	PCIType string         `xml:"pci_type,attr"`
	Name    string         `xml:"name,attr"`
	OSType  int            `xml:"osdev_type,attr"`
	Objects []oracleObject `xml:"object"`
}

// oraclePlace is where a device stands: the NUMA nodes near, its host bridge, and the
// bridges above it from the root port down.
type oraclePlace struct {
	nodes, root string
	bridges     []string
}

type oracleFile struct {
	gpus map[string]oraclePlace // by address
	nics map[string]oraclePlace // RDMA devices by name
	pci  int
}

func oracle(t *testing.T, data []byte) oracleFile {
	t.Helper()
	var file struct {
		Version string         `xml:"version,attr"`
		Objects []oracleObject `xml:"object"`
	}
	if err := xml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	isRDMA := func(n int) bool { return n == 3 }
	if strings.HasPrefix(file.Version, "3") {
		isRDMA = func(n int) bool { return n&32 != 0 }
	}
	out := oracleFile{gpus: map[string]oraclePlace{}, nics: map[string]oraclePlace{}}
	var walk func(o oracleObject, at oraclePlace)
	walk = func(o oracleObject, at oraclePlace) {
		switch {
		case o.Type == "Bridge" && o.Bridge == "0-1":
			at.root, at.bridges = o.Range, nil
		case o.Type == "Bridge":
			out.pci++
			at.bridges = append(slices.Clip(at.bridges), o.BusID)
		case o.Type == "PCIDev":
			out.pci++
			vendor := strings.Contains(o.PCIType, "[10de:") || strings.Contains(o.PCIType, "[1002:")
			for _, class := range []string{"0302", "0380", "1200", "0300"} {
				if strings.HasPrefix(o.PCIType, class) && vendor && !strings.Contains(o.PCIType, "1002:515e") {
					out.gpus[o.BusID] = at
				}
			}
		case o.Type == "OSDev":
			if isRDMA(o.OSType) {
				out.nics[o.Name] = at
			}
		case o.Nodes != "":
			at.nodes = o.Nodes
		}
		for _, c := range o.Objects {
			walk(c, at)
		}
	}
	for _, o := range file.Objects {
		walk(o, oraclePlace{})
	}
	return out
}

// class counts switches: of the bridges below a host bridge the first is the
// root port, and each two that follow are the ports of one switch.
func (a oraclePlace) class(b oraclePlace) string {
	common := 0
	for common < len(a.bridges) && common < len(b.bridges) && a.bridges[common] == b.bridges[common] && a.root == b.root {
		common++
	}
	switch {
	case common == 0 && a.root == b.root:
		return "PHB"
	case common == 0 && (strings.Trim(a.nodes, "0x1248") != "" || strings.Trim(b.nodes, "0x1248") != ""):
		return "" // several NUMA nodes are near: not told
	case common == 0 && a.nodes == b.nodes:
		return "NODE"
	case common == 0:
		return "SYS"
	}
	switches := map[string]bool{}
	if meet := common - 1; meet%2 == 1 { // at the upstream port of a switch
		switches[a.bridges[meet]] = true
	}
	for _, side := range [][]string{a.bridges, b.bridges} {
		for i := common; i < len(side); i++ {
			upstream := i
			if i%2 == 0 {
				upstream = i - 1
			}
			switches[side[upstream]] = true
		}
	}
	if len(switches) <= 1 {
		return "PIX"
	}
	return "PXB"
}

func TestClassesAgreeWithTheFilesTree(t *testing.T) {
	for name, data := range fixturetest.Published(t, published) {
		t.Run(name, func(t *testing.T) {
			if !Detect(data[:min(len(data), 4096)]) {
				t.Error("not recognised")
			}
			top, want := decode(t, data), oracle(t, data)
			if len(top.PCIDevices) != want.pci || len(top.GPUs) != len(want.gpus) || len(top.RDMADevices) != len(want.nics) {
				t.Fatalf("%d PCI functions, %d GPUs, %d RDMA devices; the file has %d, %d and %d",
					len(top.PCIDevices), len(top.GPUs), len(top.RDMADevices), want.pci, len(want.gpus), len(want.nics))
			}
			for i := range top.GPUs {
				g := &top.GPUs[i]
				at, ok := want.gpus[g.BDF.String()]
				if !ok {
					t.Fatalf("%s at %s is not in the file", g.ID, g.BDF)
				}
				for j := range top.RDMADevices {
					r := &top.RDMADevices[j]
					if got := top.Relate(g.ID, r.ID).Class.String(); got != at.class(want.nics[r.Name]) {
						t.Errorf("%s (%s) %s: class %q, the file's tree says %q", g.ID, g.BDF, r.Name, got, at.class(want.nics[r.Name]))
					}
				}
				for j := range top.GPUs {
					o := &top.GPUs[j]
					if c := top.Relate(g.ID, o.ID).Class; i != j && c.Kind != topo.ClassNV && c.String() != at.class(want.gpus[o.BDF.String()]) {
						t.Errorf("%s %s: class %q, the file's tree says %q", g.BDF, o.BDF, c, at.class(want.gpus[o.BDF.String()]))
					}
				}
			}
			if top.Origin != "import:hwloc" || len(top.Host.Lacks) == 0 || !hasWarning(top, topo.CodeLossyImport, "no network rates") {
				t.Errorf("says not what it lacks: %v", top.Warnings)
			}
		})
	}
}

func hasWarning(top *topo.Topology, code topo.Code, part string) bool {
	return slices.ContainsFunc(top.Warnings, func(w topo.Warning) bool { return w.Code == code && strings.Contains(w.Detail, part) })
}

func TestBadFilesSayWhere(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":     {"", "no XML element"},
		"cut":       {small[:len(small)/2], "the text ends inside <"},
		"no object": {"<topology version=\"2.0\"/>", "no <object>"},
		"other XML": {"\n<system/>", "line 2: root element <system>"},
		"two hosts": {"<topology/>\n<topology/>", "lines 1 and 2 begin two topologies"},
		"deep":      {"<topology>" + strings.Repeat(`<object type="Group">`, 80), "nested deeper than 64"},
		"too many":  {"<topology version=\"2.0\"><object type=\"Machine\">" + manyNetdevs() + "</object></topology>", "2001 GPUs, NICs and NUMA nodes: at most 1024"},
	} {
		if _, err := Decode([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func manyNetdevs() string {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, `<object type="OSDev" name="eth%d" osdev_type="2"/>`, i)
	}
	return b.String()
}

func TestBrokenPartsKeepTheRest(t *testing.T) {
	for name, c := range map[string]struct{ old, new, warning string }{
		"busid":        {`pci_busid="0000:80:00.0"`, `pci_busid="80"`, `pci_busid "80" is no PCI address`},
		"twice":        {`pci_busid="0000:80:00.0"`, `pci_busid="0000:14:00.0"`, "a second object with this address"},
		"type":         {`pci_type="0207 [15b3:1021] [15b3:0041] 00"`, `pci_type="NIC"`, `pci_type "NIC"`},
		"bridge":       {`bridge_pci="0000:[10-14]"`, `bridge_pci="10"`, `bridge_pci "10" has no domain`},
		"cpuset":       {`cpuset="0x000000f0"`, `cpuset="zz"`, `cpuset "zz" is no mask`},
		"numa index":   {`<object type="NUMANode" os_index="8"`, `<object type="NUMANode" os_index="x"`, `os_index "x"`},
		"numa twice":   {`<object type="NUMANode" os_index="8"`, `<object type="NUMANode" os_index="0"`, `os_index "0"`},
		"matrix":       {"80 80 80 10 ", "80 ", "3 objects has 6 values"},
		"matrix words": {"80 80 80 10 ", "80 80 many 10 ", `holds "many"`},
		"name twice":   {`name="mlx5_1"`, `name="mlx5_0"`, `"mlx5_0", which is no name or a second one`},
		"version":      {`version="2.0"`, `version="7.0"`, `version "7.0" is not known`},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		if text == small {
			t.Fatalf("%s: nothing to replace", name)
		}
		top := decode(t, []byte(text))
		if k := top.Relate(topo.GPUID(0), topo.RDMAID("mlx5_0")).Class.Kind; name != "version" && k != topo.ClassPIX {
			t.Errorf("%s: GPU and mlx5_0 are hurt: %v", name, k)
		}
		found := slices.ContainsFunc(top.Warnings, func(w topo.Warning) bool { return strings.Contains(w.Detail, c.warning) && w.Evidence != "" })
		if !found {
			t.Errorf("%s: no warning %q with its place in %v", name, c.warning, top.Warnings)
		}
	}
}

func TestInvertOnlyWhatIsUnique(t *testing.T) {
	for gbs, want := range map[float64]string{63.015385: "32000x16", 0.984615: "8000x1", 8: "5000x16", 15.753846: "", 31.507692: "", 31: "", 0.25: "2500x1", 0.5: ""} {
		got := ""
		if speed, width, ok := invert(gbs); ok {
			got = fmt.Sprintf("%dx%d", speed, width)
		}
		if got != want {
			t.Errorf("%f GB/s: %q, want %q", gbs, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(old))
	f.Add([]byte(`<topology version="3.0"><object type="Machine" cpuset="0x1" nodeset="0x1"><object type="OSDev" name="nvml0" osdev_type="12"/></object></topology>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		Detect(data)
		top, err := Decode(data)
		if err != nil {
			return
		}
		fixturetest.ReadBack(t, top)
	})
}
