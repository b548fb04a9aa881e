package ncclxml

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// files are those below and, where they are there, the published ones.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	out := fixturetest.PublishedIfThere(t, published)
	delete(out, "azure-ncv4-graph") // channels, no topology
	out["small"], out["repeated"] = []byte(small), []byte(repeated)
	return out
}

const published = "nccl-xml/*.xml"

// small is a file by hand: two NUMA nodes, a card that NCCL merged, direct NVLinks. In repeated switches of one
// level have one address, and a NIC that of a switch, as in RCCL's models of cascaded switches.
var (
	//go:embed testdata/small.xml
	small string
	//go:embed testdata/repeated.xml
	repeated string
)

func decode(t *testing.T, data []byte) *topo.Topology {
	t.Helper()
	top, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// An oracle of its own: the file's tree with nothing of the importer's.
type oracleCPU struct {
	NUMA string      `xml:"numaid,attr"`
	PCI  []oraclePCI `xml:"pci"`
}

type oraclePCI struct {
	BusID string      `xml:"busid,attr"`
	Class string      `xml:"class,attr"`
	PCI   []oraclePCI `xml:"pci"`
	GPU   []struct{}  `xml:"gpu"`
	Net   []struct {
		Name string `xml:"name,attr"`
	} `xml:"nic>net"`
}

// place is where a device stands: its CPU and the switches above it.
type place struct {
	cpu, busID string
	path       []string // each element has its own number: addresses may repeat
}

func oracle(t *testing.T, data []byte) (gpus []place, nics map[string]place) {
	t.Helper()
	var file struct {
		CPU []oracleCPU `xml:"cpu"`
	}
	if err := xml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	nics = map[string]place{}
	elements := 0
	var walk func(cpu string, p oraclePCI, above []string)
	walk = func(cpu string, p oraclePCI, above []string) {
		here := place{cpu, p.BusID, above}
		gpuClass := strings.HasPrefix(p.Class, "0x03") || strings.HasPrefix(p.Class, "0x12")
		for range p.GPU {
			gpus = append(gpus, here)
		}
		if len(p.GPU) == 0 && gpuClass {
			gpus = append(gpus, here)
		}
		for _, n := range p.Net {
			nics[n.Name] = here
		}
		if len(p.Net) == 0 && strings.HasPrefix(p.Class, "0x02") {
			nics[p.BusID] = here
		}
		elements++
		above = append(slices.Clip(above), fmt.Sprint(elements))
		for _, child := range p.PCI {
			walk(cpu, child, above)
		}
	}
	for _, c := range file.CPU {
		if c.NUMA == "" {
			c.NUMA = "-1"
		}
		for _, p := range c.PCI {
			walk(c.NUMA, p, nil)
		}
	}
	return gpus, nics
}

// class counts the switches between two places of the file.
func (a place) class(b place) string {
	if a.cpu != b.cpu {
		return "SYS"
	}
	common := 0
	for common < len(a.path) && common < len(b.path) && a.path[common] == b.path[common] {
		common++
	}
	if common == 0 {
		return "PHB"
	}
	if len(a.path) == common && len(b.path) == common {
		return "PIX"
	}
	return "PXB"
}

func TestClassesAgreeWithTheFilesTree(t *testing.T) {
	for name, data := range files(t) {
		t.Run(name, func(t *testing.T) {
			if !Detect(data[:min(len(data), 4096)]) {
				t.Error("not recognised")
			}
			top := decode(t, data)
			gpus, nics := oracle(t, data)
			if name == "vr200-mlopart-snippet" {
				if len(top.GPUs) != 2 {
					t.Errorf("%d GPUs, want two parts of one", len(top.GPUs))
				}
				return
			}
			if len(top.GPUs) != len(gpus) || len(top.RDMADevices) != len(nics) {
				t.Fatalf("%d GPUs and %d NICs, the file has %d and %d", len(top.GPUs), len(top.RDMADevices), len(gpus), len(nics))
			}
			byBus := map[string]place{}
			for _, g := range gpus {
				byBus[g.busID] = g
			}
			local := false
			for i := range top.GPUs {
				g := &top.GPUs[i]
				at, ok := byBus[g.BDF.String()]
				if !ok {
					t.Fatalf("%s at %s is not in the file", g.ID, g.BDF)
				}
				for j := range top.RDMADevices {
					r := &top.RDMADevices[j]
					rel := top.Relate(g.ID, r.ID)
					want := at.class(nics[r.Name])
					if got := rel.Class.String(); got != want {
						t.Errorf("%s (%s) %s: class %q, the file's tree says %q", g.ID, g.BDF, r.Name, got, want)
					}
					local = local || want != "SYS"
				}
			}
			if len(gpus) > 0 && len(nics) > 0 && !local {
				t.Error("no GPU has any NIC near: a test that cannot fail")
			}
		})
	}
}

// ncclClasses gives NCCL's class of every pair of GPUs and NICs, GPUs by
// address and NICs by name, and what stands on each side.
func ncclClasses(top *topo.Topology) map[[2]string]topo.NCCLClass {
	names := map[topo.ID]string{}
	for i := range top.GPUs {
		names[top.GPUs[i].ID] = string(top.GPUs[i].ID) + " " + top.GPUs[i].BDF.String()
	}
	for _, id := range top.MatrixAxis(topo.KindNIC) {
		names[id] = string(id)
	}
	out := map[[2]string]topo.NCCLClass{}
	for i, a := range top.Derived.Axis {
		for j, b := range top.Derived.Axis {
			if names[a] != "" && names[b] != "" {
				out[[2]string{names[a], names[b]}] = top.Derived.At(i, j).NCCL
			}
		}
	}
	return out
}

func TestRoundTripKeepsNCCLsClasses(t *testing.T) {
	for name, data := range files(t) {
		t.Run(name, func(t *testing.T) {
			top := decode(t, data)
			var buf bytes.Buffer
			if err := Encode(&buf, top); err != nil {
				t.Fatal(err)
			}
			back := decode(t, buf.Bytes())
			if diff := cmp.Diff(ncclClasses(top), ncclClasses(back)); diff != "" {
				t.Errorf("NCCL's classes after encode and decode:\n%s", diff)
			}
			if diff := cmp.Diff(top.Matrix(everything, everything).Class, back.Matrix(everything, everything).Class); diff != "" {
				t.Errorf("classes after encode and decode:\n%s", diff)
			}
			if diff := cmp.Diff(top.Matrix(everything, everything).Rate, back.Matrix(everything, everything).Rate); diff != "" {
				t.Errorf("rates after encode and decode:\n%s", diff)
			}
			var again bytes.Buffer
			if err := Encode(&again, back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(buf.String(), again.String()); diff != "" {
				t.Errorf("written twice:\n%s", diff)
			}
		})
	}
}

func rdma(t *testing.T, top *topo.Topology, name string) topo.RDMADevice {
	t.Helper()
	for _, r := range top.RDMADevices {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no RDMA device %q", name)
	return topo.RDMADevice{}
}

func hasWarning(top *topo.Topology, code topo.Code, part string) bool {
	return slices.ContainsFunc(top.Warnings, func(w topo.Warning) bool { return w.Code == code && strings.Contains(w.Detail, part) })
}

func TestGraphFileIsRefused(t *testing.T) {
	data := fixturetest.PublishedIfThere(t, "nccl-xml/azure-ncv4-graph.xml")["azure-ncv4-graph"]
	if data == nil {
		data = []byte("<graphs version=\"1\">\n<graph id=\"0\"/></graphs>")
	}
	if !Detect(data) {
		t.Error("a graph file is NCCL's")
	}
	if _, err := Decode(data); err == nil || !strings.Contains(err.Error(), "line 1: a NCCL graph file, not a topology") {
		t.Errorf("error %v", err)
	}
}

// A dump of a multi-node NVLink domain holds every tray, each with the same PCI addresses.
func TestSeveralHostsAreRefused(t *testing.T) {
	const tray = `<cpu host_hash="%s" numaid="0" arch="arm64"><pci busid="0008:06:00.0" class="0x068000"><pci busid="0009:01:00.0" class="0x030200"><gpu dev="0" sm="100"/></pci></pci></cpu>`
	dump := func(hashes ...string) []byte {
		var b strings.Builder
		for _, h := range hashes {
			fmt.Fprintf(&b, tray, h)
		}
		return []byte("<system version=\"1\">" + b.String() + "</system>")
	}
	_, err := Decode(dump("0xa1", "0xb2", "0xa1"))
	if want := "the file holds 2 hosts (host_hash 0xa1, 0xb2)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("two trays: %v, want %q", err, want)
	}
	if _, err := Decode(dump("0xa1", "", "0xa1")); err != nil {
		t.Errorf("one tray: %v", err)
	}
}

func TestBadFilesSayWhere(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":     {"", "no XML element"},
		"cut":       {"<system version=\"1\">\n  <cpu numaid=\"0\">\n    <pci busid=\"0000:01", "line 3: the text ends inside <cpu> of line 2: truncated?"},
		"no cpu":    {"<system version=\"1\"/>", "no <cpu>"},
		"other XML": {"<topology/>", "line 1: root element <topology>"},
		"two hosts": {"<system><cpu numaid=\"0\"/></system>\n<system><cpu numaid=\"0\"/></system>", "lines 1 and 2 begin two topologies"},
		"too many":  {"<system><cpu>" + manyGPUs() + "</cpu></system>", "2000 GPUs, NICs and NUMA nodes: at most 1024"},
		"bomb":      {"<!DOCTYPE x [<!ENTITY a \"aa\">]>\n<system><cpu>&a;</cpu></system>", "line 2: invalid character entity"},
	} {
		if _, err := Decode([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func manyGPUs() string {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, `<pci busid="%04x:00:00.0" class="0x030200"/>`, i)
	}
	return b.String()
}

func TestNICsOnNoFunction(t *testing.T) {
	top := decode(t, []byte(`<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200"/>`+
		`<nic><net name="rxe0" port="1" speed="100000"/></nic><nic><net name="eth0" port="0" speed="100000"/></nic></cpu></system>`))
	if r := rdma(t, top, "rxe0"); r.PCI != "" || r.BDF != nil || top.Relate(topo.GPUID(0), r.ID).Class.Known() {
		t.Errorf("rxe0: %+v", r)
	}
	if len(top.Netdevs) != 1 || !hasWarning(top, topo.CodeNoPCIParent, "on no PCI function") {
		t.Errorf("eth0: %+v, warnings %v", top.Netdevs, top.Warnings)
	}
	var buf bytes.Buffer
	if err := Encode(&buf, top); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ncclClasses(top), ncclClasses(decode(t, buf.Bytes()))); diff != "" {
		t.Errorf("NCCL's classes:\n%s", diff)
	}
}

func TestBrokenPartsKeepTheRest(t *testing.T) {
	for name, c := range map[string]struct{ old, new, warning string }{
		"busid":      {`busid="0000:12:00.0"`, `busid="12"`, `busid "12" is no PCI address`},
		"dup NIC":    {`busid="0000:22:00.0"`, `busid="0000:12:00.0"`, "a second NIC with this busid: taken for the first one's"},
		"dup GPU":    {`<pci busid="0000:22:00.0"`, `<pci busid="0000:21:00.0" class="0x060400"/><pci busid="0000:22:00.0"`, "another element with the busid of pci:0000:21:00.0"},
		"speed":      {`"16 GT/s"`, `"8 GT/x"`, `link_speed "8 GT/x" is no speed`},
		"width":      {`link_width="8"`, `link_width="x8"`, `link_width "x8" is no count`},
		"class":      {`vendor="0x15b3"`, `vendor="mellanox"`, `vendor "mellanox" is no number`},
		"affinity":   {`"0000000f,00000001"`, `"zz"`, `affinity "zz" is no mask`},
		"numaid":     {`numaid="1"`, `numaid="one"`, `numaid "one" is no NUMA node`},
		"numaid -1":  {`numaid="1"`, `numaid="-1"`, "no NUMA node is named"},
		"net speed":  {`speed="100000" port="1"`, `speed="fast" port="1"`, `speed "fast" is no number`},
		"net name":   {`name="mlx5_1"`, `name=""`, "a net element without a name"},
		"same names": {`<net name="mlx4_0" dev="3" speed="40000" port="2"`, `<net name="mlx4_0" dev="3" speed="40000" port="1"`, "port 1: the first is kept"},
		"two cards":  {`name="mlx5_0"`, `name="mlx4_0"`, `a second NIC is called "mlx4_0"`},
		"c2c":        {`bw="1000"`, `bw=""`, "want two positive numbers"},
		"counts":     {`count="4" tclass="0x030200"/>`, `count="6" tclass="0x030200"/>`, "one end states 6 links, the other 4"},
		"no count":   {`count="4" tclass="0x030200"/>`, `tclass="0x030200"/>`, "is no count of links"},
		"version":    {`version="1"`, `version="9"`, `version "9" is newer`},
		"pcilink":    {"<nic>\n          <net", "<pcilink target=\"0000:01:00.0\"/><nic>\n          <net", "a link between switches"},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		if text == small {
			t.Fatalf("%s: nothing to replace", name)
		}
		top := decode(t, []byte(text))
		if len(top.GPUs) != 2 || top.Relate(topo.GPUID(0), topo.GPUID(1)).Class != topo.NV(4) {
			t.Errorf("%s: the GPUs are hurt", name)
		}
		found := slices.ContainsFunc(top.Warnings, func(w topo.Warning) bool { return strings.Contains(w.Detail, c.warning) && w.Evidence != "" })
		if !found {
			t.Errorf("%s: no warning %q with its place in %v", name, c.warning, top.Warnings)
		}
	}
}

func TestCPUFamilies(t *testing.T) {
	for f := range 0x100 {
		if got := cpuidFamily(ncclFamily(f)); got != f {
			t.Errorf("CPU family %d is %d after both ways", f, got)
		}
	}
}

func TestEncodeNeedsAddresses(t *testing.T) {
	top := &topo.Topology{GPUs: []topo.GPU{{Node: topo.Node{ID: topo.GPUID(0)}}}}
	top.Derive()
	if err := Encode(&bytes.Buffer{}, top); err == nil || !strings.Contains(err.Error(), "PCI address") {
		t.Errorf("error %v", err)
	}
}

// TestEncodeCollapsesSwitches writes a tree with root port, upstream and
// downstream ports, as a sysfs reader finds it.
func TestEncodeCollapsesSwitches(t *testing.T) {
	bdf := func(s string) topo.BDF {
		b, err := topo.ParseBDF(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	numa, gen5, gen4, x16, x8 := 0, 32000, 16000, 16, 8
	top := &topo.Topology{}
	top.NUMANodes = []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}, CPUs: "0-3"}}
	top.HostBridges = []topo.HostBridge{{Node: topo.Node{ID: topo.HostBridgeID("0000:10")}, Bus: 0x10, NUMA: &numa}}
	add := func(addr, parent string, class topo.HexID, speed, width *int) {
		p := topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(bdf(addr))}, BDF: bdf(addr), Parent: topo.ID(parent), Class: class, NUMA: &numa,
			Link: &topo.PCILink{MaxSpeedMTs: speed, MaxWidth: width}}
		top.PCIDevices = append(top.PCIDevices, p)
	}
	add("0000:10:00.0", "hb:0000:10", "0x060400", &gen5, &x16)
	add("0000:11:00.0", "pci:0000:10:00.0", "0x060400", &gen5, &x16)
	add("0000:12:00.0", "pci:0000:11:00.0", "0x060400", &gen5, &x16)
	add("0000:12:01.0", "pci:0000:11:00.0", "0x060400", &gen4, &x16)
	add("0000:13:00.0", "pci:0000:12:00.0", "0x030200", &gen5, &x16)
	add("0000:14:00.0", "pci:0000:12:01.0", "0x020000", &gen5, &x8)
	add("0000:14:00.1", "pci:0000:12:01.0", "0x020000", &gen5, &x8)
	gpuBDF := bdf("0000:13:00.0")
	top.GPUs = []topo.GPU{{Node: topo.Node{ID: topo.GPUID(0)}, PCI: topo.PCIID(gpuBDF), BDF: &gpuBDF, NUMA: &numa, ComputeCap: "9.0", Vendor: "nvidia"}}
	for i, addr := range []string{"0000:14:00.0", "0000:14:00.1"} {
		b, name := bdf(addr), []string{"mlx5_0", "mlx5_1"}[i]
		top.RDMADevices = append(top.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name)}, Name: name, PCI: topo.PCIID(b), BDF: &b, NUMA: &numa})
		rate := topo.FromMbps(200000)
		top.Ports = append(top.Ports, topo.Port{Node: topo.Node{ID: topo.PortID(name, 1)}, RDMA: topo.RDMAID(name), Number: 1, BytesPerSec: &rate})
	}
	top.Derive()
	var buf bytes.Buffer
	if err := Encode(&buf, top); err != nil {
		t.Fatal(err)
	}
	want := `<system version="1">
  <cpu numaid="0" affinity="0000000f">
    <pci busid="0000:11:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:13:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"/>
      </pci>
      <pci busid="0000:14:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="8">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" latency="0.000000" guid="0x0" maxconn="131072" gdr="1"/>
          <net name="mlx5_1" dev="1" speed="200000" port="2" latency="0.000000" guid="0x0" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
`
	if diff := cmp.Diff(want, buf.String()); diff != "" {
		t.Error(diff)
	}
	back := decode(t, buf.Bytes())
	if diff := cmp.Diff(ncclClasses(top), ncclClasses(back)); diff != "" {
		t.Errorf("NCCL's classes:\n%s", diff)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(repeated))
	f.Add([]byte(`<pci busid="0002:81:00.0" class="0x030200"><gpu dev="0" sm="107" mlopart="1"><nvlink target="fffffff:ff:ff.0" count="36" tclass="0x068000"/></gpu></pci>`))
	f.Add([]byte(`<system version="2"><cpu numaid="-1"><nic><net name="eth0" port="0" speed="-1"/></nic><pci busid="ffff:ff:01.0"><pci busid="0:1.0"/></pci></cpu></system>`))
	f.Add([]byte(`<graphs version="1"/>`))
	f.Add([]byte(`<system version="2"><cpu numaid="0"><pci busid="0000:20:00.0" class="0x020700" vendor="0x15b3" link_speed="16.0 GT/s PCIe" link_width="56"><nic><net name="mlx5_0" dev="0" port="1"/></nic></pci></cpu></system>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		Detect(data)
		top, err := Decode(data)
		if err != nil {
			return
		}
		fixturetest.ReadBack(t, top)
		var buf bytes.Buffer
		if err := Encode(&buf, top); err != nil {
			return // no address to write
		}
		if _, err := Decode(buf.Bytes()); err != nil {
			t.Fatalf("our own file: %v\n%s", err, buf.Bytes())
		}
	})
}

var everything = []topo.Kind{topo.KindGPU, topo.KindNIC, topo.KindNUMA}
