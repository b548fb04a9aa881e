package sysfs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

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
