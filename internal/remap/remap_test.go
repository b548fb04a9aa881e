package remap_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/remap"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
	"github.com/topoctl/topoctl/pathsel/export"
	"github.com/topoctl/topoctl/testkit/fixturetest"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// flat is a guest that has a host's GPUs and NICs on one flat tree, as hypervisors show them: each
// below a root port of its own, no NUMA nodes, in the reverse order of the host's addresses. at says
// which of the host's functions each of the guest's is.
func flat(t testing.TB, host *topo.Topology) (guest *topo.Topology, at map[topo.BDF]topo.BDF) {
	t.Helper()
	x := topo.NewIndex(host)
	g := &topo.Topology{Origin: "live", Complete: true}
	g.Host = topo.Host{Name: "guest", Virtual: "kvm", Arch: host.Host.Arch, CPUVendor: host.Host.CPUVendor, Container: new(bool)}
	g.NUMANodes = []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}, CPUs: "0-79"}}
	g.HostBridges = []topo.HostBridge{{Node: topo.Node{ID: topo.HostBridgeID("0000:00")}}}
	at = map[topo.BDF]topo.BDF{}
	here := map[topo.ID]topo.BDF{}
	move := func(id topo.ID) {
		d := x.PCIDevice(id)
		if _, twice := here[id]; d == nil || twice {
			return
		}
		n := len(here)
		root := topo.BDF{Device: uint8(2 + n/8), Func: uint8(n % 8)}
		port := topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(root)}, BDF: root, Parent: g.HostBridges[0].ID, Class: "0x060400", Vendor: "0x1b36", Device: "0x000c"}
		own := *d
		own.BDF = topo.BDF{Bus: uint8(n + 1)}
		own.ID, own.Parent, own.NUMA, own.PF, own.Facts = topo.PCIID(own.BDF), port.ID, nil, "", nil
		g.PCIDevices = append(g.PCIDevices, port, own)
		here[id], at[own.BDF] = own.BDF, d.BDF
	}
	for _, r := range slices.Backward(host.RDMADevices) {
		move(r.PCI)
	}
	for _, gpu := range slices.Backward(host.GPUs) {
		move(gpu.PCI)
	}
	for i := range host.GPUs {
		gpu := host.GPUs[i]
		if bdf, ok := here[gpu.PCI]; ok {
			gpu.PCI, gpu.BDF, gpu.NUMA, gpu.CPUAffinity, gpu.Facts, gpu.P2P = topo.PCIID(bdf), &bdf, nil, "", nil, nil
			g.GPUs = append(g.GPUs, gpu)
		}
	}
	slices.SortFunc(g.GPUs, func(a, b topo.GPU) int { return a.BDF.Compare(*b.BDF) })
	for i := range g.GPUs {
		g.GPUs[i].Index, g.GPUs[i].ID, g.GPUs[i].NVMLIndex = i, topo.GPUID(i), &i
	}
	for i := range host.RDMADevices {
		r := host.RDMADevices[i]
		if bdf, ok := here[r.PCI]; ok {
			r.Name = "rocep" + fmt.Sprint(bdf.Bus)
			r.ID, r.PCI, r.BDF, r.NUMA, r.Netdevs, r.Facts = topo.RDMAID(r.Name), topo.PCIID(bdf), &bdf, nil, nil, nil
			g.RDMADevices = append(g.RDMADevices, r)
			for _, p := range x.Ports(host.RDMADevices[i].ID) {
				own := *p
				own.ID, own.RDMA, own.Netdevs, own.Facts = topo.PortID(r.Name, p.Number), r.ID, nil, nil
				g.Ports = append(g.Ports, own)
			}
		}
	}
	g.Derive()
	return g, at
}

// switched are the fixtures that have PCIe switches, of which an ordinary run takes some.
func switched(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, name := range fixtures.Names() {
		if top := fixturetest.Topology(t, name); len(top.Switches) > 0 && len(top.GPUs)+len(top.RDMADevices) > 1 {
			out = append(out, name)
		}
	}
	if len(out) < 10 {
		t.Fatalf("%d fixtures with switches", len(out))
	}
	return longtest.Sample(out, 6)
}

// build remaps a guest, whose functions are given by hand.
func build(t *testing.T, host, guest *topo.Topology, at map[topo.BDF]topo.BDF) (*topo.Topology, []remap.Pair) {
	t.Helper()
	pairs, _, err := remap.Pairs(host, guest, remap.Options{Map: at})
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := remap.Build(host, guest, pairs)
	if err != nil {
		t.Fatal(err)
	}
	return out, pairs
}

// paired are the pairs, all of them right.
func paired(t *testing.T, host, guest *topo.Topology, at map[topo.BDF]topo.BDF, o remap.Options) []remap.Pair {
	t.Helper()
	pairs, notes, err := remap.Pairs(host, guest, o)
	if err != nil || len(notes) > 0 || len(pairs) != len(at) {
		t.Fatal(err, notes, pairs)
	}
	for _, p := range pairs {
		if at[p.Guest] != p.Host {
			t.Errorf("%+v, want %s", p, at[p.Guest])
		}
	}
	return pairs
}

// compared are pairs of paired devices that both topologies relate.
type compared struct{ guest, host [2]topo.ID }

func comparedPairs(pairs []remap.Pair) []compared {
	var out []compared
	for i, a := range pairs {
		for _, b := range pairs[i+1:] {
			if a.HostDevice != "" && b.HostDevice != "" && a.Device.Name() != a.Guest.String() && b.Device.Name() != b.Guest.String() {
				out = append(out, compared{[2]topo.ID{a.Device, b.Device}, [2]topo.ID{a.HostDevice, b.HostDevice}})
			}
		}
	}
	return out
}

// decoded is a document after it was written and read.
func decoded(t *testing.T, top *topo.Topology) *topo.Topology {
	t.Helper()
	data, err := top.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := topo.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// For each machine with switches: of a flat guest, every pair of devices has the host's class in the document that is
// written, and in NCCL's file, which has no host bridges. No bridge has an address that the guest has.
func TestClassesOfTheHost(t *testing.T) {
	for _, name := range switched(t) {
		t.Run(name, func(t *testing.T) {
			host := fixturetest.Topology(t, name)
			guest, at := flat(t, host)
			out, pairs := build(t, host, guest, at)
			there, here := topo.NewIndex(host), topo.NewIndex(decoded(t, out))
			fileHost, fileGuest := throughXML(t, host), throughXML(t, out)
			for _, c := range comparedPairs(pairs) {
				want, ok := there.Relation(c.host[0], c.host[1])
				got, ok2 := here.Relation(c.guest[0], c.guest[1])
				if !ok || !ok2 || want.Class != got.Class || want.NCCL != got.NCCL {
					t.Errorf("%v of the guest: %s, NCCL %s; %v of the host: %s, NCCL %s", c.guest, got.Class, got.NCCL, c.host, want.Class, want.NCCL)
				}
				if fileHost == nil { // no device of this machine can be in it
					continue
				}
				if want, got := relate(fileHost, there, c.host), relate(fileGuest, here, c.guest); want != got {
					t.Errorf("NCCL's file: %v of the guest: %s; %v of the host: %s", c.guest, got, c.host, want)
				}
			}
			own := map[topo.ID]bool{}
			for i := range guest.PCIDevices {
				own[guest.PCIDevices[i].ID] = true
			}
			for i := range out.PCIDevices {
				if d := &out.PCIDevices[i]; !own[d.ID] && d.BDF.Domain != 0xffff {
					t.Errorf("%s is made up outside domain ffff", d.ID)
				}
			}
		})
	}
}

func throughXML(t *testing.T, top *topo.Topology) *topo.Index {
	t.Helper()
	var xml bytes.Buffer
	if err := ncclxml.Encode(&xml, top); err != nil {
		return nil
	}
	back, err := ncclxml.Decode(xml.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return topo.NewIndex(back)
}

// relate is the class of two devices of a topology by what its file says, which knows GPUs by their
// addresses and NICs by their names.
func relate(file, of *topo.Index, pair [2]topo.ID) string {
	for i, id := range pair {
		if g := of.GPU(id); g != nil {
			pair[i] = file.GPUAt(*g.BDF).ID
		}
	}
	r, _ := file.Relation(pair[0], pair[1])
	return r.Class.String()
}

// doctor finds a flat guest and nothing flat in what is made of it; Mooncake's matrix prefers the NICs
// that are near on the host.
func TestDoctorAndMooncake(t *testing.T) {
	host := fixturetest.Topology(t, "dgx-h100")
	guest, at := flat(t, host)
	out, _ := build(t, host, guest, at)
	finds := func(top *topo.Topology, code string) bool {
		r, err := doctor.Run(decoded(t, top), doctor.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(r.Findings(), func(f doctor.Finding) bool { return string(f.Code) == code })
	}
	if !finds(guest, "vm-flat") || finds(out, "vm-flat") {
		t.Errorf("flat before: %v, after: %v", finds(guest, "vm-flat"), finds(out, "vm-flat"))
	}
	// Each node is the host's word, and not guessed from the guest's bridges.
	if finds(out, "numa-unknown") {
		t.Error("the NUMA nodes that the host has are called unknown")
	}
	h, err := pathsel.New(out, pathsel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var matrix bytes.Buffer
	if _, err := export.Mooncake(&matrix, h, export.AllGPUs(out)); err != nil {
		t.Fatal(err)
	}
	// The guest's last GPU is the host's first, whose NIC is mlx5_0, and mlx5_0 is the guest's last NIC.
	var near string
	for i := range out.RDMADevices {
		if at[*out.RDMADevices[i].BDF] == *topo.NewIndex(host).RDMADevice("rdma:mlx5_0").BDF {
			near = out.RDMADevices[i].Name
		}
	}
	want := fmt.Sprintf(`"cuda:7":[[%q]`, near)
	if compact := strings.NewReplacer(" ", "", "\n", "").Replace(matrix.String()); !strings.Contains(compact, want) {
		t.Errorf("no %s in\n%s", want, matrix.String())
	}
}

// Devices are paired by what they are known by.
func TestIdentities(t *testing.T) {
	host := fixturetest.Topology(t, "dgx-h100")
	for i := range host.GPUs { // those of the fixture are stand-ins
		host.GPUs[i].UUID = fmt.Sprintf("GPU-12345678-aaaa-bbbb-cccc-00000000000%d", i)
	}
	for i := range host.RDMADevices {
		host.RDMADevices[i].NodeGUID = fmt.Sprintf("b8ce:f603:00aa:%04x", i)
		host.RDMADevices[i].SysImageGUID = host.RDMADevices[i].NodeGUID
	}
	guest, at := flat(t, host)
	paired(t, host, guest, at, remap.Options{})

	// A virtual function that the host does not show is on its card.
	for i := range guest.RDMADevices {
		guest.RDMADevices[i].NodeGUID = fmt.Sprintf("aaaa:0000:0000:%04x", i+1)
	}
	for _, p := range paired(t, host, guest, at, remap.Options{}) {
		if p.Device.Name()[0] == 'r' && !slices.Equal(p.By, []remap.By{remap.ByCard}) {
			t.Errorf("%+v", p)
		}
	}
}

// Where the driver tells no UUID and no RDMA device a GUID, serial numbers and MAC addresses pair; stand-ins of
// redacted captures do not.
func TestSerialAndMAC(t *testing.T) {
	host := fixturetest.Topology(t, "a10-2nic")
	for i := range host.GPUs {
		host.GPUs[i].UUID, host.GPUs[i].Serial = "", fmt.Sprintf("165000000000%d", i)
	}
	for i := range host.RDMADevices {
		host.RDMADevices[i].NodeGUID, host.RDMADevices[i].SysImageGUID = "", ""
	}
	guest, at := flat(t, host)
	for i := range guest.RDMADevices {
		r := &guest.RDMADevices[i]
		mac := fmt.Sprintf("b8:ce:f6:00:00:%02x", i)
		for j := range host.Netdevs {
			if host.Netdevs[j].PCI == topo.PCIID(at[*r.BDF]) {
				host.Netdevs[j].MAC = mac
			}
		}
		name := fmt.Sprintf("ens%d", i)
		guest.Netdevs = append(guest.Netdevs, topo.Netdev{Node: topo.Node{ID: topo.NetdevID(name)}, Name: name, PCI: r.PCI, Type: "ether", MAC: mac})
	}
	guest.Derive()
	for _, p := range paired(t, host, guest, at, remap.Options{}) {
		want := remap.ByMAC
		if strings.HasPrefix(string(p.Device), "gpu:") {
			want = remap.BySerial
		}
		if !slices.Equal(p.By, []remap.By{want}) {
			t.Errorf("%+v, want by %s", p, want)
		}
	}

	for i := range guest.Netdevs {
		guest.Netdevs[i].MAC = fmt.Sprintf("02:00:00:00:00:%02x", i+1)
		for j := range host.Netdevs {
			if host.Netdevs[j].PCI == topo.PCIID(at[*guest.RDMADevices[i].BDF]) {
				host.Netdevs[j].MAC = guest.Netdevs[i].MAC
			}
		}
	}
	var open *remap.Unpaired
	if _, _, err := remap.Pairs(host, guest, remap.Options{}); !errors.As(err, &open) || len(open.Devices) != len(guest.RDMADevices) {
		t.Errorf("%v", err)
	}
}

// What is not known is refused, with the devices that it could be.
func TestRefused(t *testing.T) {
	host := fixturetest.Topology(t, "dgx-h100")
	guest, at := flat(t, host)
	for i := range guest.GPUs { // nothing is known of them
		guest.GPUs[i].UUID, guest.GPUs[i].Serial = "", ""
	}
	for i := range guest.RDMADevices {
		guest.RDMADevices[i].NodeGUID, guest.RDMADevices[i].SysImageGUID = "", ""
	}
	var first, second topo.BDF
	for _, g := range []*topo.BDF{&first, &second} {
		*g = topo.BDF{Bus: 1}
	}
	second.Bus = 2
	without := func(drop ...topo.BDF) map[topo.BDF]topo.BDF {
		out := map[topo.BDF]topo.BDF{}
		for g, h := range at {
			if !slices.Contains(drop, g) {
				out[g] = h
			}
		}
		return out
	}
	_, _, err := remap.Pairs(host, guest, remap.Options{Map: without(first)})
	var open *remap.Unpaired
	if !errors.As(err, &open) || len(open.Devices) != 1 || open.Devices[0].Guest != first || len(open.Devices[0].Candidates) != 1 ||
		!strings.Contains(err.Error(), "no usable identity (UUID, GUID, MAC address, serial number); candidates: "+at[first].String()) {
		t.Errorf("%v", err)
	}
	pairs, notes, err := remap.Pairs(host, guest, remap.Options{Map: without(first), Partial: true})
	if err != nil || len(pairs) != len(at)-1 || len(notes) != 1 {
		t.Error(err, len(pairs), notes)
	}
	twice := without()
	twice[first] = twice[second]
	gpuAsNIC := without(first)
	for g, h := range at {
		if topo.NewIndex(guest).GPUAt(g) != nil {
			gpuAsNIC[first], gpuAsNIC[g] = h, at[first]
			break
		}
	}
	unknown, foreign := without(), without()
	unknown[topo.BDF{Bus: 0x99}], foreign[first] = at[first], topo.BDF{Domain: 7}
	bridge := without()
	for i := range host.PCIDevices {
		if host.PCIDevices[i].IsBridge() {
			bridge[first] = host.PCIDevices[i].BDF
			break
		}
	}
	for want, m := range map[string]map[topo.BDF]topo.BDF{
		"are both": twice, "they cannot be one device": gpuAsNIC, "the guest has no PCI function 0000:99:00.0": unknown,
		"the host has no PCI function 0007:00:00.0": foreign, "is a bridge, and no device of a guest": bridge,
	} {
		if _, _, err := remap.Pairs(host, guest, remap.Options{Map: m}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// libvirt and --map do not agree.
	l := []remap.Passed{{Host: at[second], Guest: remap.Place{Path: []remap.Slot{{Device: 2}, {}}}, Line: 9}}
	if _, _, err := remap.Pairs(host, guest, remap.Options{Map: at, Libvirt: l}); err == nil || !strings.Contains(err.Error(), "by --map, and "+at[second].String()+" by libvirt") {
		t.Error(err)
	}
	l[0].Guest.Path[0].Device = 31
	if _, _, err := remap.Pairs(host, guest, remap.Options{Map: at, Libvirt: l}); err == nil || !strings.Contains(err.Error(), "line 9: the guest has no device at") {
		t.Error(err)
	}
}

// ethernet is a topology of one NIC per function, each with those addresses, on root ports of their own.
// A name that ends in a port of another's is its representor.
func ethernet(name string, functions ...[]topo.Netdev) *topo.Topology {
	t := &topo.Topology{Origin: "live", Complete: true, Host: topo.Host{Name: name, Container: new(bool)}}
	t.NUMANodes = []topo.NUMANode{{Node: topo.Node{ID: topo.NUMAID(0)}, CPUs: "0-3"}}
	t.HostBridges = []topo.HostBridge{{Node: topo.Node{ID: topo.HostBridgeID("0000:00")}}}
	for i, ports := range functions {
		root, at := topo.BDF{Device: uint8(i + 1)}, topo.BDF{Bus: uint8(i + 1)}
		t.PCIDevices = append(t.PCIDevices,
			topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(root)}, BDF: root, Parent: t.HostBridges[0].ID, Class: "0x060400"},
			topo.PCIDevice{Node: topo.Node{ID: topo.PCIID(at)}, BDF: at, Parent: topo.PCIID(root), Class: "0x020000", Driver: "vfio-pci"})
		for _, n := range ports {
			n.ID, n.PCI, n.BDF, n.Type = topo.NetdevID(n.Name), topo.PCIID(at), &at, "ether"
			t.Netdevs = append(t.Netdevs, n)
		}
	}
	t.Derive()
	return t
}

func port(name, mac string) topo.Netdev { return topo.Netdev{Name: name, MAC: mac} }

// A NIC without RDMA that has no partner stays, which is said with what was tried. Every address of a
// function counts, but that of another's port does not; what two devices have decides nothing.
func TestNICsLeft(t *testing.T) {
	const a, b, c, d = "52:54:00:00:01:0a", "52:54:00:00:01:0b", "52:54:00:00:01:0c", "52:54:00:00:01:0d"
	representor := port("p0_0", c)
	representor.PhysPort = "pf0vf0"
	leg := port("leg", d)
	leg.Master = "bond0"
	two := []topo.Netdev{port("p0", a), port("p1", b)} // the ports of one function
	for name, test := range map[string]struct {
		host, guest [][]topo.Netdev
		pairs       string
		notes       []string
	}{
		"one of two is the host's": {
			[][]topo.Netdev{{port("p0", a)}}, [][]topo.Netdev{{port("ens1", b)}, {port("ens2", a)}}, "02=01",
			[]string{"0000:01:00.0 (ens1) stays where the guest has it: no device of the host has the same MAC address"},
		},
		"the second port's address": {[][]topo.Netdev{two}, [][]topo.Netdev{{port("ens1", b)}}, "01=01", nil},
		"two ports, two addresses":  {[][]topo.Netdev{two}, [][]topo.Netdev{{port("ens1", b), port("ens2", a)}}, "01=01", nil},
		"ports of two functions": {
			[][]topo.Netdev{{port("p0", a)}, {port("p1", b)}, {port("p2", c)}}, [][]topo.Netdev{two, {port("ens3", c)}}, "02=03",
			[]string{"0000:01:00.0 (p0) stays where the guest has it: its MAC addresses are those of 2 devices of the host"},
		},
		"a representor": {
			[][]topo.Netdev{{representor, port("p0", a)}, {port("vf0", c)}}, [][]topo.Netdev{{port("ens1", c)}, {port("ens2", a)}}, "01=02 02=01", nil,
		},
		"virtual functions with one address": {
			[][]topo.Netdev{{port("vf0", a)}, {port("vf1", a)}, {port("p0", b)}}, [][]topo.Netdev{{port("ens1", a)}, {port("ens2", b)}}, "02=03",
			[]string{"0000:01:00.0 (ens1) stays where the guest has it: 2 devices of the host have the same MAC address"},
		},
		"the guest's with one address": {
			[][]topo.Netdev{{port("p0", a)}, {port("p1", b)}}, [][]topo.Netdev{{port("ens1", a)}, {port("ens2", a)}, {port("ens3", b)}}, "03=02",
			[]string{"0000:01:00.0 (ens1), 0000:02:00.0 (ens2) stay where the guest has them: 2 devices of the guest have the same MAC address"},
		},
		"no address that counts": {
			[][]topo.Netdev{{port("p0", a)}}, [][]topo.Netdev{{leg}, {port("ens2", "02:00:00:00:00:01")}, {port("ens3", a)}}, "03=01",
			[]string{"0000:01:00.0 (leg), 0000:02:00.0 (ens2) stay where the guest has them: no usable identity (UUID, GUID, MAC address, serial number)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pairs, notes, err := remap.Pairs(ethernet("host", test.host...), ethernet("guest", test.guest...), remap.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range pairs {
				got = append(got, fmt.Sprintf("%02x=%02x", p.Guest.Bus, p.Host.Bus))
				if !slices.Equal(p.By, []remap.By{remap.ByMAC}) {
					t.Errorf("%s by %v", p.Guest, p.By)
				}
			}
			if strings.Join(got, " ") != test.pairs || !slices.Equal(notes, test.notes) {
				t.Errorf("pairs %v, want %s; notes %q, want %q", got, test.pairs, notes, test.notes)
			}
		})
	}
}

// Where nothing is paired, each device is named, also with --partial. A function that the host has handed
// over is a candidate, and is known by its class.
func TestNothingPaired(t *testing.T) {
	guest := ethernet("guest", []topo.Netdev{port("ens1", "52:54:00:00:01:0a")})
	host := ethernet("host", nil, []topo.Netdev{port("p1", "52:54:00:00:01:0b")})
	for _, o := range []remap.Options{{}, {Partial: true}} {
		_, _, err := remap.Pairs(host, guest, o)
		want := "0000:01:00.0 (ens1): no device of the host has the same MAC address; candidates: 0000:01:00.0 (vfio-pci), 0000:02:00.0 (p1)"
		var open *remap.Unpaired
		if !errors.As(err, &open) || open.Known != 0 || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, _, err := remap.Pairs(host, ethernet("guest", nil), remap.Options{}); err == nil || !strings.Contains(err.Error(), "the guest has no GPU, NIC or NVMe drive") {
		t.Error(err)
	}
	at := map[topo.BDF]topo.BDF{{Bus: 1}: {Bus: 1}}
	if _, _, err := remap.Pairs(host, guest, remap.Options{Map: at}); err != nil {
		t.Error(err)
	}
	handedOver := topo.NewIndex(host).PCIDevice("pci:0000:01:00.0")
	handedOver.Class, handedOver.Vendor = "0x030200", "0x10de"
	if _, _, err := remap.Pairs(host, guest, remap.Options{Map: at}); err == nil || !strings.Contains(err.Error(), "0000:01:00.0 of the host is vfio-pci: they cannot be one device") {
		t.Error(err)
	}
}

// A libvirt domain alone pairs all devices.
func TestLibvirt(t *testing.T) {
	host := fixturetest.Topology(t, "hgx-h100-8nic")
	guest, at := flat(t, host)
	var passed []remap.Passed
	x := topo.NewIndex(guest)
	for g, h := range at {
		port := x.PCIDevice(x.PCIDevice(topo.PCIID(g)).Parent).BDF
		passed = append(passed, remap.Passed{Host: h, Guest: remap.Place{Path: []remap.Slot{{Device: port.Device, Func: port.Func}, {}}}})
	}
	paired(t, host, guest, at, remap.Options{Libvirt: passed})
}

// NUMA nodes that the guest has as the host has them stay, with their CPUs.
func TestGuestNUMA(t *testing.T) {
	host := fixturetest.Topology(t, "dgx-h100")
	guest, at := flat(t, host)
	guest.NUMANodes = append(guest.NUMANodes, topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(1)}, Index: 1, CPUs: "80-159"})
	x := topo.NewIndex(host)
	for i := range guest.PCIDevices {
		if h, ok := at[guest.PCIDevices[i].BDF]; ok {
			guest.PCIDevices[i].NUMA = new(1 - *x.PCIDevice(topo.PCIID(h)).NUMA) // the other way round
		}
	}
	guest.Derive()
	out, pairs := build(t, host, guest, at)
	if len(out.NUMANodes) != 2 {
		t.Fatalf("%d NUMA nodes", len(out.NUMANodes))
	}
	for _, c := range comparedPairs(pairs) {
		want, _ := topo.NewIndex(host).Relation(c.host[0], c.host[1])
		if got, _ := topo.NewIndex(out).Relation(c.guest[0], c.guest[1]); want.Class != got.Class {
			t.Errorf("%v: %s, want %s", c.guest, got.Class, want.Class)
		}
	}
	for _, g := range out.GPUs {
		if want := map[int]string{0: "0-79", 1: "80-159"}[*g.NUMA]; g.CPUAffinity != want {
			t.Errorf("%s: CPUs %s, want %s", g.ID, g.CPUAffinity, want)
		}
	}
}
