package texts

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func readLspci(t *testing.T, name string) *topo.Topology {
	t.Helper()
	data, err := os.ReadFile("testdata/lspci-" + name)
	if err != nil {
		t.Fatal(err)
	}
	return lspciHostOf(t, string(data))
}

func lspciHostOf(t *testing.T, text string) *topo.Topology {
	t.Helper()
	if !detectLspci([]byte(text)) {
		t.Error("not recognised")
	}
	top, err := decodeLspci([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	fixturetest.ReadBack(t, top)
	return top
}

func functionOf(t *testing.T, top *topo.Topology, id topo.ID) *topo.PCIDevice {
	t.Helper()
	d := topo.NewIndex(top).PCIDevice(id)
	if d == nil {
		t.Fatalf("no %s", id)
	}
	return d
}

// Without root, numbers and domains the same devices are at the same places; what lspci could not
// read is not known.
func TestUserSees(t *testing.T) {
	root, user := readLspci(t, "root-nnvv.txt"), readLspci(t, "user-vv.txt")
	if diff := cmp.Diff(classesOf(root), classesOf(user)); diff != "" {
		t.Errorf("(-root +user):\n%s", diff)
	}
	if len(user.GPUs) != 2 || user.GPUs[0].Model != "GH100 [H100 PCIe]" || user.GPUs[0].Vendor != "nvidia" {
		t.Errorf("GPUs %+v", user.GPUs)
	}
	nic := functionOf(t, user, "pci:0000:1a:00.0")
	if nic.Device != "0x1021" || nic.Link != nil || nic.ACS != nil || *user.Host.ConfigBytes != 64 {
		t.Errorf("device %s, link %v, ACS %v, %d bytes", nic.Device, nic.Link, nic.ACS, *user.Host.ConfigBytes)
	}
	if d := functionOf(t, user, "pci:0000:16:01.0"); d.Device != "0x352a" || d.Facts == nil {
		t.Errorf("a device that has no name: %q", d.Device)
	} else if from, _ := d.Facts.Get("role"); from.Source == topo.SourceConfig {
		t.Error("the role is said to be from configuration space, which was not read")
	}
}

// classesOf are the classes of all pairs of devices on PCI, by address.
func classesOf(top *topo.Topology) map[string]string {
	x := topo.NewIndex(top)
	at := map[topo.ID]string{}
	for i := range top.GPUs {
		if g := &top.GPUs[i]; g.PCI != "" {
			at[g.ID] = g.BDF.String()
		}
	}
	for i := range top.RDMADevices {
		if r := &top.RDMADevices[i]; r.PCI != "" && x.PCIDevice(r.PCI) != nil {
			at[r.ID] = r.BDF.String()
		}
	}
	out := map[string]string{}
	for a, from := range at {
		for b, to := range at {
			rel, ok := x.Relation(a, b)
			if k := rel.Class.Kind; !ok || k == topo.ClassNV || k == topo.ClassXGMI || k == topo.ClassC2C {
				continue // lspci sees no such link
			}
			out[from+" "+to] = rel.Class.String()
		}
	}
	return out
}

// The classes of described machines come back from the text that lspci would print there.
func TestLspciOfMachines(t *testing.T) {
	for _, name := range []string{"a10-2nic", "b300-16nic", "dgx-a100", "dgx-h100", "epyc-nps4", "gb200-tray", "mi300x-8nic"} {
		t.Run(name, func(t *testing.T) {
			before := fixturetest.Topology(t, name)
			after, err := decodeLspci([]byte(asText(before)))
			if err != nil {
				t.Fatal(err)
			}
			got := classesOf(after)
			for pair, class := range classesOf(before) {
				if got[pair] != class {
					t.Errorf("%s: %q, want %q", pair, got[pair], class)
				}
			}
		})
	}
}

// asText writes a topology as lspci -Dnnvv does, as far as classes depend on it.
func asText(top *topo.Topology) string {
	var b strings.Builder
	x := topo.NewIndex(top)
	for i := range top.PCIDevices {
		d := &top.PCIDevices[i]
		class, progIF := fmt.Sprintf("%06x", d.Class.Uint())[:4], fmt.Sprintf("%06x", d.Class.Uint())[4:]
		fmt.Fprintf(&b, "%s Some class [%s]: Some device [%04x:%04x] (rev 01) (prog-if %s)\n\tControl: I/O- Mem+\n", d.BDF, class, d.Vendor.Uint(), d.Device.Uint(), progIF)
		if d.NUMA != nil {
			fmt.Fprintf(&b, "\tNUMA node: %d\n", *d.NUMA)
		}
		if d.IsBridge() {
			secondary, last := 0, 0
			for _, c := range x.Children(d.ID) {
				if secondary == 0 || int(c.BDF.Bus) < secondary {
					secondary = int(c.BDF.Bus)
				}
				last = max(last, int(c.BDF.Bus))
			}
			fmt.Fprintf(&b, "\tBus: primary=%02x, secondary=%02x, subordinate=%02x, sec-latency=0\n", d.BDF.Bus, secondary, last)
			kind := map[topo.PCIRole]string{topo.RoleRootPort: "Root Port (Slot+)", topo.RoleUpstream: "Upstream Port", topo.RoleDownstream: "Downstream Port (Slot+)"}[d.Role]
			if kind != "" {
				fmt.Fprintf(&b, "\tCapabilities: [40] Express (v2) %s, MSI 00\n", kind)
			} else {
				fmt.Fprintf(&b, "\tCapabilities: [40] Null\n")
			}
		}
		if d.Driver != "" {
			fmt.Fprintf(&b, "\tKernel driver in use: %s\n", d.Driver)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Of a part of a text places are not known, and nothing follows from them.
func TestPartOfText(t *testing.T) {
	data, err := os.ReadFile("testdata/lspci-root-nnvv.txt")
	if err != nil {
		t.Fatal(err)
	}
	var part []string
	for _, entry := range strings.Split(string(data), "\n\n") {
		if strings.HasPrefix(entry, "0000:19:00.0") || strings.HasPrefix(entry, "0000:1a:00.0") {
			part = append(part, entry)
		}
	}
	top := lspciHostOf(t, strings.Join(part, "\n\n"))
	if rel := top.Relate("gpu:0", "rdma:0000:1a:00.0"); rel.Class.Known() || top.Complete {
		t.Errorf("class %s, complete %t: the bridges are not in the text", rel.Class, top.Complete)
	}
	if link := functionOf(t, top, "pci:0000:1a:00.0").Link; link == nil || *link.Width != 8 {
		t.Errorf("link %v", link)
	}
}

func TestSmallLspci(t *testing.T) {
	const gpu = "17:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2331] (rev a1)\n"
	for name, c := range map[string]struct{ text, err string }{
		"nothing":      {"Linux\n", "texts: no line with a PCI address and a class: not the text of lspci"},
		"no details":   {"$ lspci -nn\n" + gpu, "texts: line 2: a list of functions without details, which does not tell how they hang together: want the text of lspci -vv"},
		"odd address":  {"17:3f.0 3D controller [0302]: NVIDIA Corporation Device [10de:2331]\n\tControl: I/O-\n", `texts: line 1: "17:3f.0" is no PCI address`},
		"Windows ends": {"\r\n" + strings.ReplaceAll(gpu+"\tControl: I/O-\n\tNUMA node: 1\n", "\n", "\r\n"), ""},
		"blanks":       {"    " + gpu + "            Control: I/O-\n", ""},
	} {
		_, err := decodeLspci([]byte(c.text))
		if got := fmt.Sprint(err); got != c.err && !(err == nil && c.err == "") {
			t.Errorf("%s: error %q, want %q", name, got, c.err)
		}
	}
}

// ACS is known only where the register was printed: -v names the capability alone.
func TestACSNotPrinted(t *testing.T) {
	text := "16:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (prog-if 00 [Normal decode])\n\tFlags: bus master, fast devsel, latency 0, NUMA node 1, IOMMU group 4\n" +
		"\tBus: primary=16, secondary=17, subordinate=17, sec-latency=0\n\tCapabilities: [40] Express Root Port (Slot+), MSI 00\n\tCapabilities: [148] Access Control Services\n"
	d := functionOf(t, lspciHostOf(t, text), "pci:0000:16:01.0")
	if from, _ := d.Facts.Get("role"); d.ACS != nil || from.Source == topo.SourceConfig || *d.NUMA != 1 || *d.IOMMUGroup != 4 {
		t.Errorf("ACS %v, role from %s, node %v, group %v", d.ACS, from.Source, *d.NUMA, *d.IOMMUGroup)
	}
}

// Whether a NIC has ATS is known where capabilities beyond byte 256 are printed, and whether it is on where its register is.
func TestATS(t *testing.T) {
	const head = "17:00.0 Infiniband controller [0207]: Mellanox Technologies ConnectX-8 [15b3:1023]\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
	for text, want := range map[string]string{
		"\tCapabilities: [100 v1] Address Translation Service (ATS)\n\t\tATSCap:\tInvalidate Queue Depth: 00\n\t\tATSCtl:\tEnable+, Smallest Translation Unit: 00\n": "on",
		"\tCapabilities: [100 v1] Address Translation Service (ATS)\n\t\tATSCtl:\tEnable-, Smallest Translation Unit: 00\n":                                          "off",
		"\tCapabilities: [100] Address Translation Service (ATS)\n":                                                                                                  "unknown",
		"\tCapabilities: [100 v2] Advanced Error Reporting\n":                                                                                                        "absent",
		"\tCapabilities: [9c] MSI-X: Enable+ Count=64 Masked-\n":                                                                                                     "",
	} {
		if got := functionOf(t, lspciHostOf(t, head+text), "pci:0000:17:00.0").ATS; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Vendor and device are found by name where only one has it.
func TestLspciNames(t *testing.T) {
	n, err := openNames()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"Mellanox Technologies MT2910 Family [ConnectX-7]":          "0x15b3 0x1021 Mellanox Technologies|MT2910 Family [ConnectX-7]",
		"Broadcom / LSI PEX880xx PCIe Gen 4 Switch":                 "0x1000  Broadcom / LSI|PEX880xx PCIe Gen 4 Switch", // two have this name
		"NVIDIA Corporation Device 2331":                            "0x10de 0x2331 NVIDIA Corporation|",
		"NVIDIA Corporation Something new":                          "0x10de  NVIDIA Corporation|Something new",
		"Advanced Micro Devices, Inc. [AMD/ATI] Device [1002:abcd]": "0x1002 0xabcd Advanced Micro Devices, Inc. [AMD/ATI]|",
		"Acme Accelerator [f00d:0001]":                              "0xf00d 0x0001 |Acme Accelerator",
		"Acme Accelerator":                                          "  |Acme Accelerator",
		"Device f00d:0001":                                          "0xf00d 0x0001 |",
		"10de:2331":                                                 "0x10de 0x2331 NVIDIA Corporation|",
	} {
		id, vendor, device := n.identify(text)
		if got := fmt.Sprintf("%s %s %s|%s", id.vendor, id.device, vendor, device); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzLspci(f *testing.F) {
	for _, name := range []string{"root-nnvv.txt", "user-vv.txt"} {
		data, err := os.ReadFile("testdata/lspci-" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("00:00.0 PCI bridge: x\n\tBus: primary=00, secondary=01, subordinate=ff, sec-latency=0\n\n01:00.0 PCI bridge: y\n\tBus: primary=01, secondary=01, subordinate=01\n\tACSCtl:\tSrcValid+\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		detectLspci(data)
		if top, err := decodeLspci(data); err == nil {
			fixturetest.ReadBack(t, top)
		}
	})
}

// Lists of one host may be together in a text; two hosts may not.
func TestTextsOfOneHost(t *testing.T) {
	const gpu = "\tLatency: 0\n\tNUMA node: 0\n\tKernel driver in use: nvidia\n\n"
	port := func(bus string) string {
		return "00:0" + bus + ".0 PCI bridge [0604]: Intel Corporation Device [8086:352a]\n\tBus: primary=00, secondary=0" + bus + ", subordinate=0" + bus + "\n\n"
	}
	card := func(bus, name string) string {
		return "0" + bus + ":00.0 3D controller [0302]: NVIDIA Corporation " + name + "\n"
	}
	one := port("1") + port("2") + card("1", "GH100 [H100 PCIe] [10de:2331]") + gpu
	for name, c := range map[string]struct{ text, want string }{
		"the same again":       {one + "$ lspci -nnvv\n" + one, ""},
		"a part":               {card("1", "GH100 [H100 PCIe] [10de:2331]") + gpu + one + card("1", "GH100 [H100 PCIe]") + gpu + one, ""},
		"without details":      {card("1", "GH100 [H100 PCIe] (rev a1)") + one, ""},
		"another card":         {one + port("1") + port("2") + card("2", "GH100 [H100 PCIe] [10de:2331]") + gpu, "lines 1 and 12 begin two lists that share some functions only, of two hosts"},
		"another driver":       {one + strings.Replace(one, "nvidia", "vfio-pci", 1), "lines 7 and 18 differ in what they say of 0000:01:00.0, in texts of two hosts"},
		"another sort of card": {"01:00.0 Ethernet controller: Intel Corporation I350\n" + one, "lines 1 and 8 differ in what they say of 0000:01:00.0"},
	} {
		top, err := decodeLspci([]byte(c.text))
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		case err != nil || len(top.PCIDevices) != 3 || len(top.GPUs) != 1 || top.GPUs[0].Driver != "nvidia" || *top.GPUs[0].NUMA != 0:
			t.Errorf("%s: %v %+v", name, err, top)
		}
	}
}

// Of the lists of two hosts in one text, or of one host twice, the functions are those of one list.
func TestFunctionsAreOfOneHost(t *testing.T) {
	host := func(t *rapid.T) string {
		var b strings.Builder
		for bus := 1; bus < 5; bus++ {
			if bus > 1 && !rapid.Bool().Draw(t, "there") { // all have the first
				continue
			}
			fmt.Fprintf(&b, "0%d:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 PCIe] [10de:2331]\n\tLatency: 0\n", bus)
			if rapid.Bool().Draw(t, "node") {
				fmt.Fprintf(&b, "\tNUMA node: %d\n", rapid.IntRange(0, 1).Draw(t, "number"))
			}
		}
		return b.String()
	}
	told := func(text string) (out []string) {
		functions, err := parseLspci([]byte(text))
		if err != nil {
			return nil
		}
		for i := range functions {
			node := -1
			if functions[i].numa != nil {
				node = *functions[i].numa
			}
			out = append(out, fmt.Sprint(functions[i].bdf, node))
		}
		slices.Sort(out)
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := host(t), host(t)
		got := told(a + b)
		if got != nil && !slices.Equal(got, told(a)) && !slices.Equal(got, told(b)) {
			t.Fatalf("%s%s%q", a, b, got)
		}
		if again := told(a + a + a); !slices.Equal(again, told(a)) {
			t.Fatalf("%sthree times: %q", a, again)
		}
	})
}
