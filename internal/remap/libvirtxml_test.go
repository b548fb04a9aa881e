package remap_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/remap"
)

// domain is in the form that libvirt documents: docs/formatdomain (Host device assignment, Controllers).
const domain = `<?xml version='1.0'?>
<domain type='kvm'>
  <name>vm1</name>
  <devices>
    <controller type='pci' index='0' model='pcie-root'/>
    <controller type='pci' index='6' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x02' function='0x5' multifunction='on'/>
    </controller>
    <controller type='pci' index='7' model='pcie-expander-bus'>
      <target busNr='0x80'><node>1</node></target>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x04' function='0x0'/>
    </controller>
    <controller type='pci' index='8' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x0'/>
    </controller>
    <controller type='usb' index='0'/>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source><address domain='0x0000' bus='0x1b' slot='0x00' function='0x0'/></source>
      <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
    </hostdev>
    <interface type='hostdev' managed='yes'>
      <mac address='52:54:00:6d:90:02'/>
      <source><address type='pci' domain='0x0001' bus='0x18' slot='0x00' function='0x3'/></source>
      <address type='pci' domain='0x0000' bus='0x08' slot='0x00' function='0x0'/>
    </interface>
    <interface type='bridge'><address type='pci' bus='0x01' slot='0x00'/></interface>
    <hostdev mode='subsystem' type='usb'/>
  </devices>
</domain>`

func TestParse(t *testing.T) {
	got, err := remap.Parse([]byte(domain))
	if err != nil {
		t.Fatal(err)
	}
	want := []remap.Passed{
		{Host: topo.BDF{Bus: 0x1b}, Guest: remap.Place{Path: []remap.Slot{{2, 5}, {0, 0}}}, Line: 17},
		{Host: topo.BDF{Domain: 1, Bus: 0x18, Func: 3}, Guest: remap.Place{RootBus: 0x80, Path: []remap.Slot{{0, 0}, {0, 0}}}, Line: 21},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{domain, "<x/>", "no <domain>"},
		{domain, "<domain>", "line 1"},
		{"index='6'", "index='9'", `line 17: <hostdev>: bus 0x6: the description has no PCI controller`},
		{"bus='0x1b'", "bus='0x1bb'", "bus 0x1bb: want 0xff at most"},
		{"slot='0x02'", "slot='0x20'", `slot: "0x20": want a number below 0x20`},
		{"busNr='0x80'", "", "has no busNr"},
		{"index='7'", "index='6'", "a second PCI controller 6"},
		{"bus='0x00' slot='0x02'", "bus='0x06' slot='0x02'", "more than 32 controllers"},
		{"<address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>\n    </hostdev>", "</hostdev>", "no <address> in the guest"},
	} {
		_, err := remap.Parse([]byte(strings.Replace(domain, tt.old, tt.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.new, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(domain))
	f.Add([]byte("<domain><devices><hostdev type='pci'/></devices></domain>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := remap.Parse(data)
		for _, p := range all {
			if len(p.Guest.Path) == 0 || err != nil {
				t.Errorf("%+v, %v", p, err)
			}
		}
	})
}
