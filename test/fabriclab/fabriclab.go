// Package fabriclab makes fabrics as data, of the shapes that clusters have: hosts of the fixture
// dgx-h100 with names and GUIDs of their own, switches, and every cable between them. Its tests give
// them to programs that we did not write.
package fabriclab

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
)

// Shape says what a fabric is like. Compute ports are in order of their GPUs: port r is rail r.
type Shape struct {
	Hosts         int
	Rails         int  // compute ports of each host, at most 8
	ByHost        bool // all ports of a host on one leaf (a fat tree), else port r on the leaf of rail r
	Planes        int  // separate networks that a host's ports take turns on; 0 is 1
	HostsPerGroup int  // hosts that share leaves
	Spines        int  // of each plane, or pod; 0: leaves are not joined
	Uplinks       int  // from a leaf to each spine, and from a spine to each core; 0 is 1
	HostsPerPod   int  // hosts whose leaves have spines of their own; 0: all
	Cores         int  // of each plane: join the spines of its pods
	Storage       int  // ports of each host on a network of their own, at most 2
}

// computePorts and storagePorts are the InfiniBand ports of dgx-h100: the first eight have a GPU each.
var (
	computePorts = []string{"mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"}
	storagePorts = []string{"mlx5_1", "mlx5_7"}
)

const portRate topo.Rate = 50e9 // 400 Gb/s, 4x NDR

// Fabric is a network with its hosts.
type Fabric struct {
	Switches []Switch
	Hosts    []Host
	Cables   []Cable
}

// Switch is a switch with its ports counted from 1.
type Switch struct {
	GUID uint64
	Name string
	Tier int
	used int
}

// Host is a host; its document is Document's.
type Host struct {
	Name  string
	Ports []Port
}

// Port is an InfiniBand port of a host.
type Port struct {
	Device string
	GUID   uint64 // of the port, and of its device
	Role   string // "data" or "storage"
	Rail   int    // of compute ports
}

// End is one end of a cable: a switch's port, or port 1 of a host's device (Switch < 0).
type End struct {
	Switch int
	Host   int
	HCA    int // in Host.Ports
	Port   int
}

// Cable joins two ports. A host's is A, else the switch of the lower tier.
type Cable struct{ A, B End }

// New makes a fabric.
func New(s Shape) *Fabric {
	f := &Fabric{}
	planes, per := max(s.Planes, 1), max(s.HostsPerGroup, 1)
	for h := range s.Hosts {
		host := Host{Name: "n" + strconv.Itoa(h+1)}
		for r := range s.Rails {
			host.Ports = append(host.Ports, Port{Device: computePorts[r], GUID: guid(h, computePorts[r]), Role: "data", Rail: r})
		}
		for i := range s.Storage {
			host.Ports = append(host.Ports, Port{Device: storagePorts[i], GUID: guid(h, storagePorts[i]), Role: "storage"})
		}
		f.Hosts = append(f.Hosts, host)
	}
	for plane := range planes {
		f.network(s, fmt.Sprintf("p%d-", plane), func(host, port int) (leaf string, on bool) {
			p := f.Hosts[host].Ports[port]
			if p.Role != "data" || p.Rail%planes != plane {
				return "", false
			}
			if s.ByHost {
				return fmt.Sprintf("g%d", host/per), true
			}
			return fmt.Sprintf("g%d-rail%d", host/per, p.Rail), true
		})
	}
	if s.Storage > 0 {
		f.network(s, "storage-", func(host, port int) (leaf string, on bool) {
			return fmt.Sprintf("g%d", host/per), f.Hosts[host].Ports[port].Role == "storage"
		})
	}
	return f
}

// network cables the ports that leafOf takes to leaves, and these to spines.
func (f *Fabric) network(s Shape, prefix string, leafOf func(host, port int) (string, bool)) {
	leaves := map[string]int{}
	var order [][]int // by pod
	for h := range f.Hosts {
		for p := range f.Hosts[h].Ports {
			name, on := leafOf(h, p)
			if !on {
				continue
			}
			leaf, ok := leaves[name]
			if !ok {
				leaf = f.addSwitch(prefix+"leaf-"+name, 0)
				leaves[name] = leaf
				pod := 0
				if s.HostsPerPod > 0 {
					pod = h / s.HostsPerPod
				}
				for len(order) <= pod {
					order = append(order, nil)
				}
				order[pod] = append(order[pod], leaf)
			}
			f.Cables = append(f.Cables, Cable{End{Switch: -1, Host: h, HCA: p, Port: 1}, f.nextPort(leaf)})
		}
	}
	var spines []int
	for pod, below := range order {
		name := prefix
		if s.HostsPerPod > 0 {
			name += fmt.Sprintf("pod%d-", pod)
		}
		spines = append(spines, f.join(s, name+"spine-", 1, s.Spines, below)...)
	}
	f.join(s, prefix+"core-", 2, s.Cores, spines)
}

// join puts switches above others, each of which it has cables to.
func (f *Fabric) join(s Shape, name string, tier, count int, below []int) (list []int) {
	for i := range count {
		up := f.addSwitch(name+strconv.Itoa(i), tier)
		list = append(list, up)
		for _, lower := range below {
			for range max(s.Uplinks, 1) {
				f.Cables = append(f.Cables, Cable{f.nextPort(lower), f.nextPort(up)})
			}
		}
	}
	return list
}

func (f *Fabric) addSwitch(name string, tier int) int {
	f.Switches = append(f.Switches, Switch{GUID: 0xb0cf0e0300000000 + uint64(len(f.Switches)+1)<<8, Name: name, Tier: tier})
	return len(f.Switches) - 1
}

func (f *Fabric) nextPort(sw int) End {
	f.Switches[sw].used++
	return End{Switch: sw, Port: f.Switches[sw].used}
}

// Swap exchanges the cables of two ports of hosts: each is "n1/mlx5_0".
func (f *Fabric) Swap(a, b string) {
	i, j := f.cableOf(a), f.cableOf(b)
	f.Cables[i].B, f.Cables[j].B = f.Cables[j].B, f.Cables[i].B
}

func (f *Fabric) cableOf(name string) int {
	i := slices.IndexFunc(f.Cables, func(c Cable) bool {
		return c.A.Switch < 0 && f.Hosts[c.A.Host].Name+"/"+f.Hosts[c.A.Host].Ports[c.A.HCA].Device == name
	})
	if i < 0 {
		panic("fabriclab: no port " + name)
	}
	return i
}

// CutUplinks takes away n cables between a leaf and its spines.
func (f *Fabric) CutUplinks(leaf string, n int) {
	f.Cables = slices.DeleteFunc(f.Cables, func(c Cable) bool {
		if n == 0 || c.A.Switch < 0 || f.Switches[c.A.Switch].Name != leaf {
			return false
		}
		n--
		return true
	})
}

// Networks gives a host's port in each network that no cable joins to another.
func (f *Fabric) Networks() []uint64 {
	of := map[uint64]uint64{} // union-find over GUIDs
	var find func(g uint64) uint64
	find = func(g uint64) uint64 {
		up, ok := of[g]
		if !ok || up == g {
			return g
		}
		of[g] = find(up)
		return of[g]
	}
	for _, c := range f.Cables {
		of[find(f.guidOf(c.A))] = find(f.guidOf(c.B))
	}
	seen := map[uint64]bool{}
	var out []uint64
	for _, c := range f.Cables {
		if g := f.guidOf(c.A); c.A.Switch < 0 && !seen[find(g)] {
			seen[find(g)] = true
			out = append(out, g)
		}
	}
	return out
}

// Edges are the cables as text, by GUIDs and port numbers, in order: what any reader of the fabric
// should find again.
func (f *Fabric) Edges() []string {
	var out []string
	for _, c := range f.Cables {
		out = append(out, Edge(f.guidOf(c.A), c.A.Port, f.guidOf(c.B), c.B.Port))
	}
	slices.Sort(out)
	return out
}

// Edge writes a cable between two nodes, the lower GUID first.
func Edge(a uint64, aPort int, b uint64, bPort int) string {
	if a > b {
		a, aPort, b, bPort = b, bPort, a, aPort
	}
	return fmt.Sprintf("%016x[%d] %016x[%d]", a, aPort, b, bPort)
}

func (f *Fabric) guidOf(e End) uint64 {
	if e.Switch >= 0 {
		return f.Switches[e.Switch].GUID
	}
	return f.Hosts[e.Host].Ports[e.HCA].GUID
}

// Fleet is the fabric as a document of ours, with the hosts' InfiniBand ports and nothing else of them.
func (f *Fabric) Fleet() *fleet.Fleet {
	rate := portRate
	out := &fleet.Fleet{Schema: fleet.Schema}
	for i := range f.Switches {
		s := &f.Switches[i]
		out.Switches = append(out.Switches, fleet.Switch{ID: switchID(s.GUID), Name: s.Name, Kind: "ib", Tier: &s.Tier, Description: "MQM9700"})
	}
	for _, h := range f.Hosts {
		host := fleet.Host{Host: h.Name, Status: fleet.OK, Source: "fabriclab"}
		for _, p := range h.Ports {
			host.Ports = append(host.Ports, fleet.Port{Port: p.Device + "/1", Device: p.Device, GUID: hexGUID(p.GUID), NodeGUID: hexGUID(p.GUID),
				LinkLayer: "InfiniBand", Role: "data", State: "ACTIVE", BytesPerSec: &rate})
		}
		out.Hosts = append(out.Hosts, host)
	}
	for _, c := range f.Cables {
		if c.A.Switch < 0 {
			p := &out.Hosts[c.A.Host].Ports[c.A.HCA]
			p.Leaf, p.LeafPort, p.Known = switchID(f.Switches[c.B.Switch].GUID), strconv.Itoa(c.B.Port), "fabriclab"
			continue
		}
		out.Links = append(out.Links, fleet.Link{A: switchID(f.Switches[c.A.Switch].GUID), APort: strconv.Itoa(c.A.Port),
			B: switchID(f.Switches[c.B.Switch].GUID), BPort: strconv.Itoa(c.B.Port), BytesPerSec: &rate, Count: 1})
	}
	return out
}

func switchID(guid uint64) string { return fmt.Sprintf("sw:%016x", guid) }
func hexGUID(guid uint64) string  { return fmt.Sprintf("0x%016x", guid) }

// GUIDs of dgx-h100's devices begin with these; those of a host have its number there instead.
const guidPrefix, macPrefix = "a088:c203:", "a0:88:c2:03:"

// fixtureGUIDs are the GUIDs of the devices, without that beginning.
var fixtureGUIDs = map[string]uint64{
	"mlx5_0": 0x00eab7a0, "mlx5_1": 0x00c275a0, "mlx5_3": 0x00bf8da0, "mlx5_4": 0x00567fb0, "mlx5_5": 0x00455eb0, "mlx5_6": 0x0099b600,
	"mlx5_7": 0x00057620, "mlx5_9": 0x00067d80, "mlx5_10": 0x0017f340, "mlx5_11": 0x0056e370,
}

func guid(host int, device string) uint64 {
	return 0xa088<<48 | uint64(0xd000+host)<<32 | fixtureGUIDs[device]
}

// Document is a host's topology: fixture's, that of dgx-h100 as topoctl discover writes it, with the
// name, the GUIDs and the MACs of the host.
func (f *Fabric) Document(fixture []byte, host int) ([]byte, error) {
	n := 0xd000 + host
	data := bytes.ReplaceAll(fixture, []byte(guidPrefix), fmt.Appendf(nil, "a088:%04x:", n))
	data = bytes.ReplaceAll(data, []byte(macPrefix), fmt.Appendf(nil, "a0:88:%02x:%02x:", n>>8, n&0xff))
	data = bytes.ReplaceAll(data, []byte("a0:88:c2:"), fmt.Appendf(nil, "06:%02x:%02x:", n>>8, n&0xff))
	t, err := topo.Decode(data)
	if err != nil {
		return nil, err
	}
	t.Host.Name = f.Hosts[host].Name
	t.Host.MachineIDSHA256 = fmt.Sprintf("%064x", host+1)
	for i := range t.GPUs {
		t.GPUs[i].UUID = fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", host, i)
	}
	return t.Encode()
}
