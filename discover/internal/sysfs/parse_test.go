package sysfs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

func TestParseLinkSpeed(t *testing.T) {
	for s, want := range map[string]int{
		"2.5 GT/s": 2500, "5.0 GT/s PCIe": 5000, "5 GT/s": 5000, "8 GT/s": 8000, "8.0 GT/s PCIe": 8000, "16.0 GT/s PCIe": 16000,
		"32.0 GT/s PCIe": 32000, "64.0 GT/s PCIe": 64000, "16GT/s": 16000, "Unknown": 0, "Unknown speed": 0,
		"": -1, "8": -1, "8.0 GX/s": -1, "8.0 MT/s": -1, "GT/s": -1, "0 GT/s": -1, "-8 GT/s": -1, "1.2.3 GT/s": -1, "9999 GT/s": -1, "NaN GT/s": -1,
	} {
		got, err := parseLinkSpeed(s)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for s, want := range map[string]int{"16": 16, "1": 1, "0": 0, "255": 0, "33": -1, "x16": -1, "": -1, "-1": -1} {
		got, err := parseLinkWidth(s)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("width %q: %d, %v", s, got, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	for s, want := range map[string]topo.Rate{
		"400 Gb/sec (4X NDR)": 50_000_000_000, "2.5 Gb/sec (1X SDR)": 312_500_000, "56 Gb/sec (4X FDR)": 7_000_000_000,
		"0 Gb/sec": 0, "100 Gb/sec (4X EDR)": 12_500_000_000, "10 Gb/sec (4X)": 1_250_000_000,
		"400": -1, "": -1, "-1 Gb/sec": -1, "NaN Gb/sec": -1, "Inf Gb/sec": -1, "400 GB/sec": -1,
	} {
		got, err := parseRate(s)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}

func TestParseOthers(t *testing.T) {
	check := func(what string, ok bool) {
		t.Helper()
		if !ok {
			t.Error(what)
		}
	}
	s, err := parseNumbered("4: ACTIVE")
	check("state", s == "ACTIVE" && err == nil)
	for _, bad := range []string{"", "ACTIVE", "4:", "x: Y", "4", ": A"} {
		_, err := parseNumbered(bad)
		check("state "+bad, err != nil)
	}
	lid, err := parseLID("0x3a4")
	check("lid", lid == 932 && err == nil)
	_, err = parseLID("932")
	check("decimal lid", err != nil)
	mac, err := parseMAC("B8:CE:F6:00:00:01")
	check("mac", mac == "b8:ce:f6:00:00:01" && err == nil)
	for _, bad := range []string{"b8", "b8:", "b8:ce:zz", "b8-ce", strings.Repeat("00:", 40) + "00"} {
		_, err := parseMAC(bad)
		check("mac "+bad, err != nil || bad == "b8")
	}
	guid, err := parseGUID("A088:c203:0012:3456")
	check("guid", guid == "a088:c203:0012:3456" && err == nil)
	for _, bad := range []string{"", "a088:c203:0012", "a088:c203:0012:345x", "a088-c203-0012-3456"} {
		_, err := parseGUID(bad)
		check("guid "+bad, err != nil)
	}
	for _, tt := range []struct{ s, want string }{{"0x15b3", "0x15b3"}, {"15B3", "0x15b3"}, {"0x5b3", "0x05b3"}, {"0x115b3", ""}, {"", ""}, {"0xzzzz", ""}} {
		id, err := parseHex(tt.s, 4)
		check("hex "+tt.s, string(id) == tt.want && (err != nil) == (tt.want == ""))
	}
	for _, tt := range []struct {
		element string
		ok      bool
	}{{"pci0000:17", true}, {"pci10000:00", true}, {"pci0000:1", false}, {"pci_bus", false}, {"0000:17", false}, {"pci0000:17x", false}} {
		_, ok := rootBus(tt.element)
		check("root "+tt.element, ok == tt.ok)
	}
	for path, want := range map[string]string{
		"sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/virtio2": "0000:18:00.0",
		"sys/devices/pci10000:00/10000:00:04.0":                    "10000:00:04.0",
		"sys/devices/virtual/net":                                  "", "": "",
	} {
		b, ok := nearestBDF(path)
		check("nearest "+path, ok == (want != "") && (!ok || b.String() == want))
	}
}

func TestHypervisors(t *testing.T) {
	for _, tt := range []struct{ vendor, product, want string }{
		{"Amazon EC2", "p5.48xlarge", "nitro"}, {"Amazon EC2", "c7g.metal", "none"}, {"Microsoft Corporation", "Virtual Machine", "hyperv"},
		{"Microsoft Corporation", "Surface", ""}, {"VMware, Inc.", "VMware7,1", "vmware"}, {"QEMU", "Standard PC (Q35 + ICH9, 2009)", "qemu"},
		{"QEMU", "KVM Virtual Machine", "kvm"}, {"RDO", "OpenStack Compute", "kvm"}, {"Google", "Google Compute Engine", "kvm"}, {"Xen", "HVM domU", "xen"}, {"NVIDIA", "DGXH100", ""}, {"", "", ""},
	} {
		if got := hypervisorByDMI(tt.vendor, tt.product); got != tt.want {
			t.Errorf("%s %s: %q", tt.vendor, tt.product, got)
		}
	}
	if got := hypervisorByWord("tsc kvm-clock "); got != "kvm" {
		t.Error(got)
	}
	for text, want := range map[string]bool{"0::/\n": false, "0::/user.slice\n": false, "12:pids:/docker/0123\n": true, "0::/kubepods.slice/x\n": true} {
		if cgroupOfContainer([]byte(text)) != want {
			t.Errorf("%q", text)
		}
	}
}

// FuzzParsers feeds one text to every parser of a line: none may panic, and
// what is accepted must be accepted again in its own spelling.
func FuzzParsers(f *testing.F) {
	for _, s := range []string{"", "0", "-1", "0-3,8", "00000000,0000ffff", "32.0 GT/s PCIe", "Unknown", "16", "0x15b3", "4: ACTIVE",
		"400 Gb/sec (4X NDR)", "0x3a4", "10 21", "802.3ad 4", "RoCE v2", "b8:ce:f6:00:00:01", "fe80:0000:0000:0000:a088:c203:0012:3456", "pci0000:17"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseLinkSpeed(s); err == nil && (n < 0 || n > 1_000_000) {
			t.Errorf("speed %q is %d", s, n)
		}
		if n, err := parseLinkWidth(s); err == nil && (n < 0 || n > 32) {
			t.Errorf("width %q is %d", s, n)
		}
		if n, err := parseRate(s); err == nil && n < 0 {
			t.Errorf("rate %q is %d", s, n)
		}
		if n, err := parseNUMANode(s); err == nil && n < -1 {
			t.Errorf("node %q is %d", s, n)
		}
		if id, err := parseHex(s, 4); err == nil && len(id) != 6 {
			t.Errorf("id %q is %q", s, id)
		}
		if name, err := parseNumbered(s); err == nil && name == "" {
			t.Errorf("state %q is empty", s)
		}
		if line, err := oneLine([]byte(s)); err == nil && strings.ContainsAny(line, "\n\x00\x1b") {
			t.Errorf("%q is a line", line)
		}
		parseDistances(s)
		parseSetting(s)
		parseMAC(s)
		parseGUID(s)
		parseGID([]byte(s))
		parseLID(s)
		parseMachineID(s)
		parseOperState(s)
		parseLinkType(s)
		parsePackage(s)
		parseSpeed(s)
		parseBus(s)
		rootBus(s)
		nearestBDF(s)
		resolve("sys/class/net", s)
	})
}

// FuzzFiles feeds one content to every parser of a whole file.
func FuzzFiles(f *testing.F) {
	m := newMachine()
	f.Add([]byte(m.files["proc/cpuinfo"]))
	f.Add([]byte(m.files["proc/driver/nvidia/gpus/0000:1a:00.0/information"]))
	f.Add([]byte("Node 0 MemTotal:       1024 kB\n"))
	f.Add([]byte("cpu  1 2 3\ncpu0 1\ncpu11 2\n"))
	f.Add([]byte("Cpus_allowed_list:\t0-1\n"))
	f.Add([]byte("DRIVER=x\nPCI_CLASS=88000\nPCI_ID=8086:09A2\nPCI_SUBSYS_ID=8086:0000\nPCI_SLOT_NAME=0000:00:00.0\n"))
	f.Add([]byte("DEVTYPE=bond\nPCI_SLOT_NAME=0000:1a:00.0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		parseCPUInfo(data)
		parseNVIDIA(data)
		listedCPUs(data)
		allowedCPUs(data)
		cgroupOfContainer(data)
		ueventValue(data, "DEVTYPE")
		d := topo.PCIDevice{Class: "0x088000"}
		if ok := parseUevent(data, &d); ok != (d.Vendor != "") {
			t.Errorf("believed %v, but %+v", ok, d)
		}
		if n, err := parseMemTotal(data); err == nil && n < 0 {
			t.Errorf("%d bytes of memory", n)
		}
	})
}

func FuzzConfig(f *testing.F) {
	f.Add(configSpace(0x8086, 0x352a, 1, 4, 4096, 0x1d))
	f.Add(configSpace(0x8086, 0x352a, 0, 0, 256, 0))
	f.Add(configSpace(0x8086, 0x352a, 1, 6, 64, 0))
	loop := configSpace(0x8086, 0x352a, 1, 6, 4096, 0)
	loop[0x41], loop[0x61] = 0x40, 0x40
	copy(loop[0x100:], []byte{1, 0, 1, 0x10})
	f.Add(loop)
	f.Fuzz(func(t *testing.T, data []byte) {
		if info, err := parseConfig(bytes.NewReader(data)); err == nil && info == nil {
			t.Error("nothing and no error")
		}
	})
}
