package topo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
)

func ptr[T any](v T) *T { return &v }

func bdf(s string) topo.BDF {
	b, err := topo.ParseBDF(s)
	if err != nil {
		panic(err)
	}
	return b
}

// machine builds a topology from one line per thing, for tests:
//
//	hb 0000:17 numa0            a host bridge
//	port 17:01.0 < 0000:17      a bridge below a host bridge or a function
//	gpu 19:00.0 < 18:00.0 [numaN] [gen5x16 | gen5x16max]
//	nic 1a:00.0 < 18:01.0 mlx5_0 [numaN] [gen5x16] [rate=50000000000] [down] [vf=BDF]
//	numa 0 [pkg0]
//	nvlink 0 1 4 | fabric 0 18 | c2c 0 0
type machine struct {
	t   *topo.Topology
	dev map[string]int
}

func build(tb testing.TB, text string) *topo.Topology {
	tb.Helper()
	m := &machine{t: &topo.Topology{Origin: "test", Complete: true}, dev: map[string]int{}}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			m.add(f)
		}
	}
	m.t.Derive()
	return m.t
}

func (m *machine) add(f []string) {
	switch f[0] {
	case "numa":
		n := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(atoi(f[1]))}, Index: atoi(f[1]), CPUs: "0-3"}
		if len(f) > 2 {
			n.Package = ptr(atoi(f[2][3:]))
		}
		m.t.NUMANodes = append(m.t.NUMANodes, n)
	case "hb":
		var domain, bus int
		if _, err := fmt.Sscanf(f[1], "%x:%x", &domain, &bus); err != nil {
			panic(err)
		}
		m.t.HostBridges = append(m.t.HostBridges, topo.HostBridge{Node: topo.Node{ID: topo.HostBridgeID(f[1])},
			Domain: uint32(domain), Bus: uint8(bus), NUMA: numaOf(f)})
	case "port", "gpu", "nic", "dev":
		m.function(f)
	case "nvlink":
		a, b := topo.GPUID(atoi(f[1])), topo.GPUID(atoi(f[2]))
		m.t.Links = append(m.t.Links, topo.Link{ID: topo.NVLinkID(a, b), Kind: topo.LinkNVLink, A: a, B: b, Count: atoi(f[3]),
			BytesPerSec: ptr(topo.Rate(atoi(f[3])) * 20 * topo.GBPerSec), Basis: topo.BasisTypical})
	case "nvlinkcpu": // POWER9
		a, b := topo.GPUID(atoi(f[1])), topo.NUMAID(atoi(f[2]))
		m.t.Links = append(m.t.Links, topo.Link{ID: topo.NVLinkID(a, b), Kind: topo.LinkNVLink, A: a, B: b, Count: atoi(f[3]), Basis: topo.BasisUnknown})
	case "fabric":
		a := topo.GPUID(atoi(f[1]))
		m.t.Links = append(m.t.Links, topo.Link{ID: topo.NVLinkID(a, topo.FabricID), Kind: topo.LinkNVLink, A: a, B: topo.FabricID,
			Count: atoi(f[2]), Basis: topo.BasisTypical})
	case "c2c":
		a := topo.GPUID(atoi(f[1]))
		m.t.Links = append(m.t.Links, topo.Link{ID: topo.C2CLinkID(a), Kind: topo.LinkC2C, A: a, B: topo.NUMAID(atoi(f[2])), Basis: topo.BasisUnknown})
	default:
		panic("unknown word " + f[0])
	}
}

func (m *machine) function(f []string) {
	d := topo.PCIDevice{BDF: bdf(f[1]), NUMA: numaOf(f), Link: linkOf(f)}
	d.ID = topo.PCIID(d.BDF)
	if p, err := topo.ParseBDF(f[3]); err == nil {
		d.Parent = topo.PCIID(p)
	} else {
		d.Parent = topo.HostBridgeID(f[3])
	}
	for _, w := range f {
		if sub, ok := strings.CutPrefix(w, "bcm="); ok {
			d.Vendor, d.Device, d.SubVendor, d.SubDevice = "0x1000", "0xc030", "0x1000", topo.HexID(sub)
		}
		if sub, ok := strings.CutPrefix(w, "bcm4="); ok {
			d.Vendor, d.Device, d.SubVendor, d.SubDevice = "0x1000", "0xc010", "0x1000", topo.HexID(sub)
		}
		if pf, ok := strings.CutPrefix(w, "vf="); ok {
			d.PF = topo.PCIID(bdf(pf))
		}
		d.Implausible = d.Implausible || w == "implausible"
	}
	switch f[0] {
	case "port":
		d.Class = "0x060400"
	case "gpu":
		d.Class = "0x030200"
		i := len(m.t.GPUs)
		m.t.GPUs = append(m.t.GPUs, topo.GPU{Node: topo.Node{ID: topo.GPUID(i)}, Index: i, PCI: d.ID, BDF: &d.BDF, NUMA: d.NUMA, KnownFrom: "pci"})
	case "nic":
		d.Class = "0x020700"
		m.nic(f, &d)
	}
	m.t.PCIDevices = append(m.t.PCIDevices, d)
}

func (m *machine) nic(f []string, d *topo.PCIDevice) {
	name := f[4]
	m.t.RDMADevices = append(m.t.RDMADevices, topo.RDMADevice{Node: topo.Node{ID: topo.RDMAID(name)}, Name: name, PCI: d.ID, BDF: &d.BDF, NUMA: d.NUMA, Uverbs: "unknown"})
	p := topo.Port{Node: topo.Node{ID: topo.PortID(name, 1)}, RDMA: topo.RDMAID(name), Number: 1, State: "ACTIVE"}
	for _, w := range f {
		if r, ok := strings.CutPrefix(w, "rate="); ok {
			p.BytesPerSec = ptr(topo.Rate(atoi(r)))
		}
		if w == "down" {
			p.State = "DOWN"
		}
	}
	m.t.Ports = append(m.t.Ports, p)
}

func numaOf(f []string) *int {
	for _, w := range f {
		if n, ok := strings.CutPrefix(w, "numa"); ok && n != "" {
			return ptr(atoi(n))
		}
	}
	return nil
}

var genSpeed = map[string]int{"gen1": 2500, "gen3": 8000, "gen4": 16000, "gen5": 32000}

// linkOf reads "gen5x16" (current and maximum), "gen1x16/gen5x16" (current/maximum).
func linkOf(f []string) *topo.PCILink {
	for _, w := range f {
		if !strings.HasPrefix(w, "gen") {
			continue
		}
		cur, most, ok := strings.Cut(w, "/")
		if !ok {
			most = cur
		}
		cg, cw, _ := strings.Cut(cur, "x")
		mg, mw, _ := strings.Cut(most, "x")
		return &topo.PCILink{SpeedMTs: ptr(genSpeed[cg]), Width: ptr(atoi(cw)), MaxSpeedMTs: ptr(genSpeed[mg]), MaxWidth: ptr(atoi(mw))}
	}
	return nil
}

func atoi(s string) int {
	var n int
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil {
		panic(err)
	}
	return n
}

// twoSockets is a host with two sockets; socket 0 has two host bridges, the
// first with a switch (GPU0, mlx5_0), a nested switch (GPU1) and a NIC on a
// port of its own.
const twoSockets = `
numa 0 pkg0
numa 1 pkg1
hb 0000:10 numa0
hb 0000:20 numa0
hb 0000:30 numa1
port 10:01.0 < 0000:10 gen5x16 numa0
port 11:00.0 < 10:01.0 gen5x16 numa0
port 12:00.0 < 11:00.0 gen5x16 numa0
port 12:01.0 < 11:00.0 gen5x16 numa0
port 12:02.0 < 11:00.0 gen5x16 numa0
gpu 13:00.0 < 12:00.0 numa0 gen5x16
nic 14:00.0 < 12:01.0 mlx5_0 numa0 gen5x16 rate=50000000000
port 15:00.0 < 12:02.0 gen5x16 numa0
port 16:00.0 < 15:00.0 gen5x16 numa0
gpu 17:00.0 < 16:00.0 numa0 gen5x16
port 10:02.0 < 0000:10 gen5x16 numa0
nic 18:00.0 < 10:02.0 mlx5_1 numa0 gen5x16 rate=50000000000
nic 18:00.1 < 10:02.0 mlx5_2 numa0 gen5x16 rate=50000000000
port 20:01.0 < 0000:20 gen4x16 numa0
nic 21:00.0 < 20:01.0 mlx5_3 numa0 gen4x16 rate=50000000000
port 30:01.0 < 0000:30 gen5x16 numa1
nic 31:00.0 < 30:01.0 mlx5_10 numa1 gen5x16 rate=50000000000
`
