package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

func bdf(t testing.TB, s string) topo.BDF {
	t.Helper()
	b, err := topo.ParseBDF(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// gpuHost is a host with NVIDIA GPUs at the given addresses, one NVSwitch at
// 0000:05:00.0, and NUMA nodes 0 and 1 with CPUs and 9 without.
func gpuHost(t testing.TB, addresses ...string) *topo.Topology {
	tp := &topo.Topology{NUMANodes: []topo.NUMANode{
		{Node: topo.Node{ID: topo.NUMAID(0)}, Index: 0, CPUs: "0-3"},
		{Node: topo.Node{ID: topo.NUMAID(1)}, Index: 1, CPUs: "4-7"},
		{Node: topo.Node{ID: topo.NUMAID(9)}, Index: 9, MemoryOnly: true},
	}}
	sw := bdf(t, "0000:05:00.0")
	tp.NVSwitches = []topo.NVSwitch{{Node: topo.Node{ID: topo.NVSwitchID(sw)}, PCI: topo.PCIID(sw), BDF: &sw}}
	for i, s := range addresses {
		b := bdf(t, s)
		tp.PCIDevices = append(tp.PCIDevices, topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(b), Kind: topo.KindPCI}, BDF: b, Role: topo.RoleEndpoint})
		tp.GPUs = append(tp.GPUs, topo.GPU{
			Node: topo.Node{ID: topo.GPUID(i), Kind: topo.KindGPU}, Index: i, PCI: topo.PCIID(b), BDF: &b,
			Vendor: vendorNVIDIA, Driver: driverNVIDIA, KnownFrom: "proc",
		})
	}
	return tp
}

// nvlink is count active links that lead to a place: an address, or a type.
func nvlink(t testing.TB, count int, kind, address string) []replies.NVLink {
	var links []replies.NVLink
	for i := range count {
		l := replies.NVLink{Link: i, Active: true, RemoteType: kind}
		if address != "" {
			b := bdf(t, address)
			l.RemoteBDF = &b
		}
		links = append(links, l)
	}
	return links
}

func TestNVLinks(t *testing.T) {
	const a, b, c = "0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0"
	down := replies.NVLink{Link: 17}
	for _, tt := range []struct {
		name     string
		cap      string
		links    [][]replies.NVLink // by GPU
		want     []string           // "id count bytes basis"
		warnings []string
	}{
		{
			"pair, asked at both ends", "8.0",
			[][]replies.NVLink{append(nvlink(t, 4, "gpu", b), down), nvlink(t, 4, "gpu", a), nil},
			[]string{"nvlink:gpu:0/gpu:1 4 80000000000 typical"}, nil,
		},
		{
			"one end silent, driver without types", "7.0",
			[][]replies.NVLink{nil, nvlink(t, 2, "", c), nil},
			[]string{"nvlink:gpu:1/gpu:2 2 40000000000 typical"}, nil,
		},
		{
			"ends disagree", "6.0",
			[][]replies.NVLink{nvlink(t, 4, "gpu", b), nvlink(t, 3, "gpu", a), nil},
			[]string{"nvlink:gpu:0/gpu:1 3 54000000000 typical"},
			[]string{"conflict: gpu:0: NVLinks to gpu:1: nvml says 3, nvml says 4; kept nvml's"},
		},
		{
			"NVSwitches: hidden in a guest, or by address", "9.0",
			[][]replies.NVLink{nvlink(t, 18, "switch", ""), nvlink(t, 18, "", "0000:05:00.0"), nvlink(t, 16, "switch", "0000:06:00.0")},
			[]string{
				"nvlink:gpu:0/nvfabric 18 370800000000 typical",
				"nvlink:gpu:1/nvfabric 18 370800000000 typical",
				"nvlink:gpu:2/nvfabric 16 329600000000 typical",
			}, nil,
		},
		{
			"capability not known", "",
			[][]replies.NVLink{nvlink(t, 4, "gpu", b), nil, nil},
			[]string{"nvlink:gpu:0/gpu:1 4 nil unknown"}, nil,
		},
		{
			"a CPU of POWER9", "7.0",
			[][]replies.NVLink{nvlink(t, 3, "cpu", "0004:00:01.0"), nil, nil},
			[]string{"nvlink:gpu:0/numa:1 3 60000000000 typical"}, nil,
		},
		{
			"to GPUs that are not here, to itself, to nowhere", "9.0",
			[][]replies.NVLink{append(append(nvlink(t, 2, "gpu", "0000:99:00.0"), nvlink(t, 1, "gpu", a)...), nvlink(t, 1, "", "")...), nil, nil},
			nil,
			[]string{"partial-view: gpu:0: 4 of its active NVLinks lead to devices that are not visible here (nvmlDeviceGetNvLinkRemotePciInfo)"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tp := gpuHost(t, a, b, c)
			r := &replies.GPUReport{}
			for i, links := range tt.links {
				r.GPUs = append(r.GPUs, replies.GPU{Index: i, BDF: *tp.GPUs[i].BDF, ComputeCap: tt.cap, NVLinks: links, CPUNUMA: new(1)})
			}
			applyNVML(tp, r)
			if diff := cmp.Diff(tt.want, linkLines(tp)); diff != "" {
				t.Errorf("links (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.warnings, warningLines(tp)); diff != "" {
				t.Errorf("warnings (-want +got)\n%s", diff)
			}
		})
	}
}

func linkLines(tp *topo.Topology) []string {
	var out []string
	for _, l := range tp.Links {
		rate := "nil"
		if l.BytesPerSec != nil {
			rate = itoa(int64(*l.BytesPerSec))
		}
		out = append(out, strings.Join([]string{string(l.ID), itoa(int64(l.Count)), rate, string(l.Basis)}, " "))
	}
	return out
}

func warningLines(tp *topo.Topology) []string {
	var out []string
	for _, w := range tp.Warnings {
		out = append(out, w.String())
	}
	return out
}

func TestGPUsMatched(t *testing.T) {
	tp := gpuHost(t, "0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0")
	tp.GPUs[2].Driver = "vfio-pci"
	tp.Warnings = []topo.Warning{{Code: topo.CodeDriverOnly, Detail: "not in /proc", Evidence: "proc/driver/nvidia/gpus"}}
	tp.PCIDevices = append(tp.PCIDevices, topo.PCIDevice{Node: topo.Node{ID: "pci:0000:40:00.0"}, BDF: bdf(t, "0000:40:00.0")})
	applyNVML(tp, &replies.GPUReport{GPUs: []replies.GPU{
		{Index: 0, BDF: bdf(t, "0000:1c:00.0"), UUID: "GPU-a", P2P: map[int]string{1: "ok", 2: "disabled", 0: "self", 77: "nobody"}},
		{Index: 1, BDF: bdf(t, "0000:1b:00.0"), UUID: "GPU-b"},
		{Index: 2, BDF: bdf(t, "0000:90:00.0"), UUID: "GPU-c"},
		{Index: 3, BDF: bdf(t, "0000:1b:00.0"), UUID: "GPU-d"},
		{Index: 4, BDF: bdf(t, "0000:40:00.0"), UUID: "GPU-e"},
	}})
	var got []string
	for _, g := range tp.GPUs {
		visible := "?"
		if g.Visible != nil {
			visible = map[bool]string{true: "visible", false: "hidden"}[*g.Visible]
		}
		got = append(got, strings.Join([]string{string(g.ID), g.UUID, string(g.PCI), visible, g.KnownFrom}, " "))
	}
	want := []string{
		"gpu:0 GPU-b pci:0000:1b:00.0 visible driver",
		"gpu:1 GPU-a pci:0000:1c:00.0 visible driver",
		"gpu:2  pci:0000:1d:00.0 hidden proc",
		"gpu:3 GPU-e pci:0000:40:00.0 visible driver", // on PCI, of a class that is no GPU's
		"gpu:4 GPU-c  visible driver",                 // not on PCI
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[topo.ID]string{"gpu:0": "ok", "gpu:4": "disabled"}, tp.GPUs[1].P2P); diff != "" {
		t.Errorf("peers of gpu:1 (-want +got)\n%s", diff)
	}
	wantWarnings := []string{
		"malformed: gpu:0: NVML GPU 3 has the PCI address of another one, 0000:1b:00.0: ignored",
		"partial-view: gpu:4: NVML GPU 2 (0000:90:00.0) has no PCI function here: its place in the PCI tree is unknown (nvmlDeviceGetPciInfo)",
		"partial-view: NVML lists 5 GPUs and not these, which are on PCI but cannot be used here: gpu:2 (driver: vfio-pci) (nvmlDeviceGetCount)",
	}
	if diff := cmp.Diff(wantWarnings, warningLines(tp)); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

// What NVML knows best is taken from it, what sysfs knows best stays, and each
// disagreement is told once.
func TestGPUPrecedence(t *testing.T) {
	tp := gpuHost(t, "0000:1b:00.0")
	g, d := &tp.GPUs[0], &tp.PCIDevices[0]
	g.UUID, g.Model, g.Minor, g.NUMA, g.MemoryBytes = "GPU-proc", "from /proc", new(3), new(0), new(int64(5))
	g.Facts.Set("uuid", topo.SourceProc, "")
	g.Facts.Set("minor", topo.SourceProc, "")
	d.NUMA = new(0)
	d.Link = &topo.PCILink{SpeedMTs: new(2500), Width: new(8), MaxWidth: new(16)}
	applyNVML(tp, &replies.GPUReport{GPUs: []replies.GPU{{
		BDF: d.BDF, UUID: "GPU-nvml", Name: "NVIDIA H100", Minor: new(4), MemoryBytes: new(int64(6)), ComputeCap: "9.0",
		CPUNUMA: new(1), CPUAffinity: "0-3", PCIeGen: new(5), PCIeWidth: new(16), PCIeMaxGen: new(5), PCIeMaxWidth: new(16),
	}}})
	if g.UUID != "GPU-nvml" || g.Model != "NVIDIA H100" || *g.MemoryBytes != 6 || g.CPUAffinity != "0-3" || g.ComputeCap != "9.0" {
		t.Errorf("NVML knows these best: %+v", g)
	}
	if *g.Minor != 3 || *g.NUMA != 0 || *d.NUMA != 0 || *d.Link.SpeedMTs != 2500 || *d.Link.Width != 8 {
		t.Errorf("sysfs knows these best: %+v %+v %+v", g, d, d.Link)
	}
	if d.Link.MaxSpeedMTs == nil || *d.Link.MaxSpeedMTs != 32000 {
		t.Errorf("sysfs had no maximum speed, NVML says generation 5: %+v", d.Link)
	}
	want := []string{
		"conflict: gpu:0: uuid: nvml says GPU-nvml, proc says GPU-proc; kept nvml's",
		"conflict: gpu:0: minor: proc says 3, nvml says 4; kept proc's",
		"conflict: gpu:0: memory_bytes: nvml says 6, sysfs says 5; kept nvml's",
		"conflict: gpu:0: numa_node: sysfs says 0, nvml says 1; kept sysfs's",
		"conflict: pci:0000:1b:00.0: link.width: sysfs says 8, nvml says 16; kept sysfs's",
	}
	if diff := cmp.Diff(want, warningLines(tp)); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}

// A host whose firmware gives no NUMA node learns it from NVML, and the warning
// that nothing tells goes away.
func TestGPUNUMAFromNVML(t *testing.T) {
	tp := gpuHost(t, "0000:1b:00.0", "0000:1c:00.0")
	tp.Warnings = []topo.Warning{
		{Code: topo.CodeNUMAUnknown, Subject: "pci:0000:1b:00.0"}, {Code: topo.CodeNUMAUnknown, Subject: "pci:0000:1c:00.0"},
	}
	applyNVML(tp, &replies.GPUReport{GPUs: []replies.GPU{
		{Index: 0, BDF: tp.PCIDevices[0].BDF, CPUNUMA: new(1), MemoryNUMA: new(9), C2C: &replies.C2C{Links: 10, BytesPerSec: new(topo.Rate(447e9))}},
		{Index: 1, BDF: tp.PCIDevices[1].BDF, CPUNUMA: new(7), C2C: &replies.C2C{Links: 10}}, // no such node here
	}})
	if g := tp.GPUs[0]; g.NUMA == nil || *g.NUMA != 1 || *tp.PCIDevices[0].NUMA != 1 || g.MemoryNUMA == nil || *g.MemoryNUMA != 9 {
		t.Errorf("GPU 0: %+v", g)
	}
	if tp.NUMANodes[2].Owner != "gpu:0" || tp.NUMANodes[1].Owner != "" {
		t.Errorf("owners %q, %q", tp.NUMANodes[2].Owner, tp.NUMANodes[1].Owner)
	}
	if tp.GPUs[1].NUMA != nil {
		t.Errorf("GPU 1 is on node %d, which does not exist", *tp.GPUs[1].NUMA)
	}
	want := []string{"c2c:gpu:0 10 447000000000 read"}
	if diff := cmp.Diff(want, linkLines(tp)); diff != "" {
		t.Errorf("links (-want +got)\n%s", diff)
	}
	wantWarnings := []string{
		"numa-unknown: pci:0000:1c:00.0: ",
		"numa-unknown: gpu:1: it has NVLink-C2C, but to which NUMA node is unknown: the link is left out",
	}
	if diff := cmp.Diff(wantWarnings, warningLines(tp)); diff != "" {
		t.Errorf("warnings (-want +got)\n%s", diff)
	}
}
