package sysfs

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
)

// configSpace builds a configuration space with the PCI Express capability of
// a port type and, if control is not negative, ACS behind another capability.
func configSpace(vendor, device uint16, header, portType byte, size, control int) []byte {
	c := make([]byte, 4096)
	le := binary.LittleEndian
	le.PutUint16(c, vendor)
	le.PutUint16(c[2:], device)
	c[0x06], c[0x0e], c[0x19], c[0x34] = 0x10, header, 0x18, 0x40
	c[0x40], c[0x41] = 0x01, 0x60                   // power management, then
	c[0x60], c[0x62] = 0x10, portType<<4|2          // PCI Express
	le.PutUint32(c[0x60+0x0c:], 5|16<<4)            // 32 GT/s x16
	le.PutUint16(c[0x60+0x12:], 4|8<<4)             // 16 GT/s x8
	le.PutUint32(c[0x100:], 0x0001|1<<16|0x148<<20) // AER, then
	if control >= 0 {
		le.PutUint32(c[0x148:], 0x000d|1<<16)
		le.PutUint16(c[0x148+6:], uint16(control))
	}
	return c[:size]
}

// conventional is a bridge that has no more than 256 bytes to show, whoever asks.
func conventional() []byte {
	c := configSpace(0x8086, 0x352a, 1, 0, 256, 0)
	c[0x34] = 0
	return c
}

// TestConfigLeast: the bridge of which least can be read counts, and what can
// be read of other functions does not.
func TestConfigLeast(t *testing.T) {
	const port = "sys/devices/pci0000:17/0000:17:01.0"
	full, legacy := configSpace(0x8086, 0x352a, 1, 4, 4096, 0), configSpace(0x1000, 0xc030, 1, 5, 256, 0)
	m := newMachine()
	m.file(port+"/config", string(full))
	m.file(port+"/0000:18:00.0/config", string(legacy))
	m.file("sys/devices/pci0000:97/0000:97:01.0/config", string(full))
	m.remove(gpu0 + "/current_link_width") // so that the GPU's is read
	m.file(gpu0+"/config", string(configSpace(0x10de, 0x2330, 0, 0, 64, -1)))
	if got := m.read(t).Host.ConfigBytes; got == nil || *got != 256 {
		t.Errorf("%v bytes, want 256", got)
	}
}

func TestConfig(t *testing.T) {
	port := "sys/devices/pci0000:17/0000:17:01.0"
	tests := []struct {
		name   string
		config []byte
		role   topo.PCIRole
		acs    *topo.ACS
		warn   string
		size   int // 0: not told
	}{
		{"root port", configSpace(0x8086, 0x352a, 1, 4, 4096, 0x1d), topo.RoleRootPort,
			&topo.ACS{Control: "0x001d", RequestRedirect: true, CompletionRedir: true, UpstreamForward: true}, "", 4096},
		{"upstream, ACS off", configSpace(0x8086, 0x352a, 1, 5, 4096, 0), topo.RoleUpstream, &topo.ACS{Control: "0x0000"}, "", 4096},
		{"downstream, no ACS", configSpace(0x8086, 0x352a, 1, 6, 4096, -1), topo.RoleDownstream, nil, "", 4096},
		{"256 bytes", configSpace(0x8086, 0x352a, 1, 6, 256, 0x1d), topo.RoleDownstream, nil, "", 256},
		{"64 bytes", configSpace(0x8086, 0x352a, 1, 6, 64, 0x1d), "", nil, "", 64},
		{"conventional bridge", conventional(), topo.RoleBridge, nil, "", 0},
		{"all ones", []byte(strings.Repeat("\xff", 4096)), "", nil, "does not answer", 0},
		{"of another device", configSpace(0x8086, 0x352b, 1, 6, 4096, 0), "", nil, "say otherwise", 0},
		{"short", make([]byte, 63), "", nil, "63 bytes", 0},
	}
	for _, tt := range tests {
		m := newMachine()
		m.file(port+"/config", string(tt.config))
		top := m.read(t)
		d := pciOf(t, top, "0000:17:01.0")
		if d.Role != tt.role || cmp.Diff(tt.acs, d.ACS) != "" {
			t.Errorf("%s: role %q, ACS %+v", tt.name, d.Role, d.ACS)
		}
		if (tt.warn != "") != (len(top.Warnings) > 0) || tt.warn != "" && !warned(top, topo.CodeMalformed, tt.warn) {
			t.Errorf("%s: %q", tt.name, texts(top.Warnings))
		}
		_, told := top.Host.Facts.Get("config_space_bytes")
		if got := top.Host.ConfigBytes; got == nil != (tt.size == 0) || got != nil && *got != tt.size || told != (got != nil) {
			t.Errorf("%s: %v bytes of configuration space (%v), want %d", tt.name, got, told, tt.size)
		}
		if lacks := len(top.Host.Lacks) > 0; lacks != (tt.name == "64 bytes") {
			t.Errorf("%s: lacks %q", tt.name, top.Host.Lacks)
		}
	}
}

// TestLinkFromConfig: where a kernel has no link files, configuration space
// tells; where it has some, it fills only the missing ones, with a warning.
func TestLinkFromConfig(t *testing.T) {
	m := newMachine()
	for f := range m.files {
		if strings.Contains(f, "_link_") {
			m.remove(f)
		}
	}
	m.file(gpu0+"/config", string(configSpace(0x10de, 0x2330, 0, 0, 4096, -1)))
	top := m.read(t)
	d := pciOf(t, top, "0000:1a:00.0")
	want := &topo.PCILink{SpeedMTs: new(16000), Width: new(8), MaxSpeedMTs: new(32000), MaxWidth: new(16)}
	if diff := cmp.Diff(want, d.Link); diff != "" || len(top.Warnings) > 0 {
		t.Error(diff, texts(top.Warnings))
	}
	if f, _ := d.Facts.Get("link"); f.Source != topo.SourceConfig {
		t.Errorf("link from %v", f)
	}

	m = newMachine()
	m.remove(gpu0 + "/current_link_width")
	m.file(gpu0+"/config", string(configSpace(0x10de, 0x2330, 0, 0, 4096, -1)))
	top = m.read(t)
	want = &topo.PCILink{SpeedMTs: new(32000), Width: new(8), MaxSpeedMTs: new(32000), MaxWidth: new(16)}
	if diff := cmp.Diff(want, pciOf(t, top, "0000:1a:00.0").Link); diff != "" || !warned(top, topo.CodeMissing, "current_link_width") {
		t.Error(diff, texts(top.Warnings))
	}
}

// TestATS: a NIC below a switch of its own vendor is asked for ATS, others are not.
func TestATS(t *testing.T) {
	const up = "sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0"
	with := func(device uint16, control int) []byte {
		c := configSpace(0x15b3, device, 0, 0, 4096, 0)
		if control >= 0 {
			binary.LittleEndian.PutUint32(c[0x148:], 0x000f|1<<16)
			binary.LittleEndian.PutUint16(c[0x148+6:], uint16(control))
		}
		return c
	}
	for name, tt := range map[string]struct {
		vendor string // of the switch
		config []byte
		want   string
	}{
		"on":                  {"0x15b3", with(0x1021, 0x8000), "on"},
		"off":                 {"0x15b3", with(0x1021, 0x0000), "off"},
		"absent":              {"0x15b3", with(0x1021, -1), "absent"},
		"not root":            {"0x15b3", with(0x1021, -1)[:64], ""},
		"another's switch":    {"0x1000", with(0x1021, 0x8000), ""},
		"of another function": {"0x15b3", with(0x1023, 0x8000), ""},
	} {
		m := newMachine()
		m.file(up+"/vendor", tt.vendor)
		m.file(up+"/0000:1b:00.0/config", string(tt.config))
		if got := pciOf(t, m.read(t), "0000:1b:00.0").ATS; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
