package picture

import (
	"bytes"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// names that a file may hold, and that an image must survive.
var names = []string{
	"", "eth0", "mlx5_0", `<script>alert("1")</script>`, "a&b;\"'", "]]>", "--><!--", "\x00\x1b[31m\x7f", "\xff\xfe", "\u202eesrever\u2066",
	strings.Repeat("long ", 200), "日本語の名前", "\\N\\G\\", "\\", "\"", "tab\tline\nfeed\r", "{a|b|c}", "<b>html</b>", "&lt;", "\ufffe\uffff", "a\u0301\u0301", "🖧", "*/ %s %d",
}

// hostile is a host all of whose texts are names that harm.
func hostile() *topo.Topology {
	t := &topo.Topology{Origin: names[3], Host: topo.Host{Name: names[4], Product: names[7], CPUVendor: names[2], Lacks: names}}
	t.Packages = []topo.Package{{Node: topo.Node{ID: topo.PackageID(0), Evidence: names[7]}, Model: names[3], CPUs: names[10]}}
	t.NUMANodes = []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}, CPUs: names[10], Package: ptr(0)}, {Node: topo.Node{ID: topo.NUMAID(1)}, Index: 1, CPUs: names[9]}}
	t.HostBridges = []topo.HostBridge{{Node: topo.Node{ID: topo.ID("hb:" + names[3])}, NUMA: ptr(0)}}
	for i, name := range names {
		b := topo.BDF{Bus: uint8(i + 1)}
		d := topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(b), Evidence: name}, BDF: b, Parent: t.HostBridges[0].ID, Class: "0x020000",
			DeviceName: name, VendorName: name, Driver: name, Link: &topo.PCILink{RawSpeed: name}}
		t.PCIDevices = append(t.PCIDevices, d)
		t.RDMADevices = append(t.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name), Evidence: name}, Name: name, PCI: d.ID, BDF: &d.BDF, Transport: name, Netdevs: names})
		t.Ports = append(t.Ports, topo.Port{Node: topo.Node{ID: topo.PortID(name, i)}, RDMA: topo.RDMAID(name), Number: i, State: name, PhysState: name, LinkLayer: name})
		t.Netdevs = append(t.Netdevs, topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name)}, Name: name, LinkKind: "bond", Lower: names, Virtual: true, State: name, Type: name})
		t.NVMes = append(t.NVMes, topo.NVMe{Node: topo.Node{ID: topo.NVMeID(name)}, Name: name, Model: name})
		g := topo.GPU{Node: topo.Node{ID: topo.GPUID(i), Evidence: name}, Index: i, Model: name, Vendor: name, UUID: name, NUMA: ptr(i % 3)}
		t.GPUs = append(t.GPUs, g)
		t.Links = append(t.Links, topo.Link{ID: topo.LinkID(name), Kind: topo.LinkNVLink, A: topo.GPUID(i), B: topo.ID(name), Note: name},
			topo.Link{ID: topo.LinkID(fmt.Sprint(i)), Kind: topo.LinkNVLink, A: topo.GPUID(i), B: topo.GPUID(i / 2), Count: i, Note: name})
		t.Warnings = append(t.Warnings, topo.Warning{Detail: name})
	}
	t.Derive()
	return t
}

// checkImage draws a host in both formats and checks what must hold of any.
func checkImage(t failer, host *topo.Topology) {
	s := newScene(host, Options{})
	s.arrange()
	checkLayout(t, s)
	var a, b, c, d bytes.Buffer
	for _, out := range []*bytes.Buffer{&a, &b} {
		if err := SVG(out, host, Options{}); err != nil {
			t.Errorf("SVG: %v", err)
		}
	}
	for _, out := range []*bytes.Buffer{&c, &d} {
		if err := DOT(out, host, Options{}); err != nil {
			t.Errorf("DOT: %v", err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) || !bytes.Equal(c.Bytes(), d.Bytes()) {
		t.Errorf("two drawings of one host differ")
	}
	if _, err := parse(a.Bytes()); err != nil {
		t.Errorf("SVG: %v", err)
	}
	for _, out := range []string{a.String(), c.String()} {
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }); i >= 0 {
			t.Errorf("what cannot be printed: %q", out[max(0, i-40):i+1])
		}
	}
	if err := balanced(c.String()); err != nil {
		t.Errorf("DOT: %v\n%s", err, c.String())
	}
}

// balanced checks that quotes and braces of a graph match: no name leaves its
// quotes.
func balanced(s string) error {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\n' {
					return fmt.Errorf("a line ends in a quoted text")
				}
				if s[i] == '\\' {
					i++
				}
			}
		case '/':
			for i < len(s) && s[i] != '\n' {
				i++
			}
		case '{':
			depth++
		case '}':
			depth--
		case '<', '>', '&', '\\':
			return fmt.Errorf("%q outside quotes", s[i])
		}
	}
	if depth != 0 {
		return fmt.Errorf("%d braces are open", depth)
	}
	return nil
}

func TestHostileNames(t *testing.T) {
	checkImage(t, hostile())
	picture := mustParse(t, svg(t, hostile(), Options{}))
	all := strings.Join(append(picture.texts, picture.titles...), "\n")
	for _, want := range []string{`<script>alert("1")</script>`, "日本語の名前", `\x1b[31m\x7f`} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not shown as text", want)
		}
	}
}

// drawHost makes a host at random: NUMA nodes with and without sockets, trees
// of ports with GPUs, NICs and drives anywhere, links that may lead nowhere,
// devices without place, and names of every sort.
func drawHost(t *rapid.T) *topo.Topology {
	h := &topo.Topology{Origin: "test"}
	name := func(label string, i int) string {
		return rapid.SampledFrom(names).Draw(t, label) + fmt.Sprint(i)
	}
	numa := func() *int {
		if n := rapid.IntRange(-1, 5).Draw(t, "numa"); n >= 0 {
			return &n
		}
		return nil
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "numas") {
		n := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(i)}, Index: i, CPUs: "0-3"}
		if rapid.Bool().Draw(t, "socket") {
			n.Package = ptr(i / 2)
		}
		h.NUMANodes = append(h.NUMANodes, n)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "sockets") {
		h.Packages = append(h.Packages, topo.Package{Node: topo.Node{ID: topo.PackageID(i)}, Index: i, Model: name("model", i)})
	}
	parents := []topo.ID{"hb:none"}
	for i := range rapid.IntRange(0, 3).Draw(t, "bridges") {
		id := topo.HostBridgeID(fmt.Sprintf("%04x:00", i))
		h.HostBridges = append(h.HostBridges, topo.HostBridge{Node: topo.Node{ID: id}, Domain: uint32(i), NUMA: numa()})
		parents = append(parents, id)
	}
	for i := range rapid.IntRange(0, 40).Draw(t, "functions") {
		parents = append(parents, drawFunction(t, h, i, rapid.SampledFrom(parents).Draw(t, "parent"), name, numa())...)
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "netdevs") {
		n := topo.Netdev{Node: topo.Node{ID: topo.NetdevID(fmt.Sprint("n", i))}, Name: name("netdev", i), NUMA: numa(), Virtual: rapid.Bool().Draw(t, "virtual"),
			LinkKind: rapid.SampledFrom([]string{"", "bond", "vlan", "veth"}).Draw(t, "kind"), State: rapid.SampledFrom([]string{"", "up", "down"}).Draw(t, "state")}
		if len(h.PCIDevices) > 0 && rapid.Bool().Draw(t, "on PCI") {
			n.PCI = rapid.SampledFrom(h.PCIDevices).Draw(t, "function").ID
		}
		h.Netdevs = append(h.Netdevs, n)
	}
	drawLinks(t, h)
	return h
}

func drawFunction(t *rapid.T, h *topo.Topology, i int, parent topo.ID, name func(string, int) string, numa *int) []topo.ID {
	b := topo.BDF{Bus: uint8(i/3 + 1), Device: uint8(i % 3 / 2), Func: uint8(i % 2)}
	link := func() *int {
		return rapid.SampledFrom([]*int{nil, ptr(2500), ptr(32000), ptr(7777)}).Draw(t, "speed")
	}
	width := func() *int { return rapid.SampledFrom([]*int{nil, ptr(4), ptr(16)}).Draw(t, "width") }
	d := topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(b)}, BDF: b, Parent: parent, NUMA: numa, DeviceName: name("device", i),
		Link: &topo.PCILink{SpeedMTs: link(), MaxSpeedMTs: link(), Width: width(), MaxWidth: width()}}
	var below []topo.ID
	switch rapid.IntRange(0, 6).Draw(t, "what") {
	case 0, 1, 2:
		d.Class = "0x060400"
		below = append(below, d.ID)
	case 3:
		d.Class = "0x030200"
		n := len(h.GPUs)
		h.GPUs = append(h.GPUs, topo.GPU{Node: topo.Node{ID: topo.GPUID(n)}, Index: n, PCI: d.ID, BDF: &d.BDF, NUMA: numa, Model: name("gpu", i)})
	case 4:
		d.Class = "0x010802"
		h.NVMes = append(h.NVMes, topo.NVMe{Node: topo.Node{ID: topo.NVMeID(fmt.Sprint(i))}, Name: name("drive", i), PCI: d.ID})
	default:
		d.Class = "0x020000"
		if len(h.PCIDevices) > 0 && rapid.IntRange(0, 3).Draw(t, "VF") == 0 {
			d.PF = rapid.SampledFrom(h.PCIDevices).Draw(t, "PF").ID
		}
		r := topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(fmt.Sprint("r", i))}, Name: name("rdma", i), PCI: d.ID, BDF: &d.BDF, NUMA: numa,
			Software: rapid.IntRange(0, 5).Draw(t, "software") == 0}
		if rapid.IntRange(0, 5).Draw(t, "loose") == 0 {
			r.PCI, r.BDF = "", nil
		}
		h.RDMADevices = append(h.RDMADevices, r)
		for p := range rapid.IntRange(0, 12).Draw(t, "ports") {
			h.Ports = append(h.Ports, topo.Port{Node: topo.Node{ID: topo.PortID(fmt.Sprint("r", i), p)}, RDMA: r.ID, Number: p,
				State: rapid.SampledFrom([]string{"", "ACTIVE", "DOWN"}).Draw(t, "state"), BytesPerSec: rapid.SampledFrom([]*topo.Rate{nil, ptr(50 * topo.GBPerSec)}).Draw(t, "rate")})
		}
	}
	h.PCIDevices = append(h.PCIDevices, d)
	return below
}

func drawLinks(t *rapid.T, h *topo.Topology) {
	ends := []topo.ID{topo.FabricID, topo.NUMAID(0), "gone"}
	for i := range h.GPUs {
		ends = append(ends, h.GPUs[i].ID)
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "links") {
		h.Links = append(h.Links, topo.Link{ID: topo.LinkID(fmt.Sprint("link:", i)),
			Kind: rapid.SampledFrom([]topo.LinkKind{topo.LinkNVLink, topo.LinkXGMI, topo.LinkC2C}).Draw(t, "kind"),
			A:    rapid.SampledFrom(ends).Draw(t, "a"), B: rapid.SampledFrom(ends).Draw(t, "b"), Count: rapid.IntRange(0, 3).Draw(t, "count"),
			BytesPerSec: rapid.SampledFrom([]*topo.Rate{nil, ptr(20 * topo.GBPerSec)}).Draw(t, "rate"), Basis: topo.BasisTypical})
	}
}

func TestAnyHost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		host := drawHost(rt)
		host.Derive()
		checkImage(rt, host)
		shown := map[topo.ID]bool{}
		for _, p := range newScene(host, Options{}).parts() {
			p.walk(func(n *node) {
				for _, id := range n.stands {
					if shown[id] {
						rt.Errorf("%s is shown twice", id)
					}
					shown[id] = true
				}
			})
		}
		for _, id := range append(host.MatrixAxis(topo.KindGPU), host.MatrixAxis(topo.KindNIC)...) {
			if !shown[id] {
				rt.Errorf("%s is not shown", id)
			}
		}
	})
}

// The order in which sources find things changes nothing.
func TestOrderDoesNotMatter(t *testing.T) {
	for _, name := range []string{"dgx-h100", "bonds", "sriov-pf-vf", "v100-8gpu", "lab-softrdma"} {
		host := fixturetest.Topology(t, name)
		want, graph := svg(t, host, Options{}), dot(t, host, Options{})
		r := rand.New(rand.NewSource(1))
		r.Shuffle(len(host.PCIDevices), func(i, j int) { host.PCIDevices[i], host.PCIDevices[j] = host.PCIDevices[j], host.PCIDevices[i] })
		r.Shuffle(len(host.GPUs), func(i, j int) { host.GPUs[i], host.GPUs[j] = host.GPUs[j], host.GPUs[i] })
		r.Shuffle(len(host.RDMADevices), func(i, j int) { host.RDMADevices[i], host.RDMADevices[j] = host.RDMADevices[j], host.RDMADevices[i] })
		r.Shuffle(len(host.Netdevs), func(i, j int) { host.Netdevs[i], host.Netdevs[j] = host.Netdevs[j], host.Netdevs[i] })
		r.Shuffle(len(host.NVMes), func(i, j int) { host.NVMes[i], host.NVMes[j] = host.NVMes[j], host.NVMes[i] })
		r.Shuffle(len(host.NUMANodes), func(i, j int) { host.NUMANodes[i], host.NUMANodes[j] = host.NUMANodes[j], host.NUMANodes[i] })
		r.Shuffle(len(host.Links), func(i, j int) { host.Links[i], host.Links[j] = host.Links[j], host.Links[i] })
		host.Derive()
		if !bytes.Equal(svg(t, host, Options{}), want) || !bytes.Equal(dot(t, host, Options{}), graph) {
			t.Errorf("%s: another order gives another drawing", name)
		}
	}
}

// Very many devices are drawn in bounded time, and a deep tree does not break it.
func TestVeryMany(t *testing.T) {
	h := &topo.Topology{NUMANodes: []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}}}}
	h.HostBridges = []topo.HostBridge{{Node: topo.Node{ID: "hb:0000:00"}, NUMA: ptr(0)}}
	for i := range 700 {
		b := topo.BDF{Domain: uint32(i / 256), Bus: uint8(i)}
		h.PCIDevices = append(h.PCIDevices, topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(b)}, BDF: b, Parent: "hb:0000:00", Class: "0x030200",
			Link: &topo.PCILink{SpeedMTs: ptr(32000), Width: ptr(16), MaxSpeedMTs: ptr(32000), MaxWidth: ptr(16 + i%2*16)}})
		h.GPUs = append(h.GPUs, topo.GPU{Node: topo.Node{ID: topo.GPUID(i)}, Index: i, PCI: topo.PCIID(b)})
	}
	for i := range 300 {
		b := topo.BDF{Domain: 99, Bus: uint8(i), Device: uint8(i / 256)}
		parent := topo.ID("hb:0000:00")
		if i > 0 {
			parent = h.PCIDevices[len(h.PCIDevices)-1].ID
		}
		h.PCIDevices = append(h.PCIDevices, topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(b)}, BDF: b, Parent: parent, Class: "0x060400"})
	}
	h.GPUs = append(h.GPUs, topo.GPU{Node: topo.Node{ID: topo.GPUID(700)}, Index: 700, PCI: h.PCIDevices[len(h.PCIDevices)-1].ID})
	h.Derive()
	s := newScene(h, Options{})
	s.arrange()
	stands := 0
	for _, p := range s.parts() {
		p.walk(func(n *node) { stands += len(n.stands) })
	}
	if stands != len(h.GPUs) {
		t.Errorf("%d GPUs are drawn, want %d", stands, len(h.GPUs))
	}
}

// FuzzDiagram draws any document that can be read.
func FuzzDiagram(f *testing.F) {
	for _, host := range []*topo.Topology{hostile(), fixturetest.Topology(f, "sriov-pf-vf"), fixturetest.Topology(f, "gh200-4gpu"), fixturetest.Topology(f, "lab-softrdma"), {}} {
		if host.Derived == nil {
			host.Derive()
		}
		data, err := host.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		host, err := topo.Decode(data)
		if err != nil || len(host.PCIDevices)+len(host.NUMANodes)+len(host.Ports) > 500 {
			return
		}
		checkImage(t, host)
	})
}
