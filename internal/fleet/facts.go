package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// structure is the key of the host's structure. Texts name the parts that differ, not its value.
const structure = "structure"

// cell is an attribute of a place. Values of different hosts in the same cell are compared.
type cell struct {
	attr  *compare.Attribute
	place string // "" for the host
}

// value is the value of one host in a cell. An attribute that is missing in the host's document has no value.
type value struct {
	cell
	host   *Host
	name   string // of the device, as the host calls it
	text   string // for people, and what is compared
	amount int64  // what is compared of memory
	minor  bool   // of a port that carries no data of GPUs: a warning at most
}

// same says whether two values of one attribute are one.
func (v *value) same(o *value) bool {
	return v.text == o.text || v.attr.Form == compare.Amount && compare.SameAmount(v.amount, o.amount)
}

// said is the value in words.
func (v *value) said() string { return v.host.named(v.text) }

func compareCells(a, b cell) int {
	return cmp.Or(compare.Position(a.attr.Key)-compare.Position(b.attr.Key), topo.NaturalCompare(a.place, b.place))
}

// values collects what a host has; place, name and minor are those of the values that are added.
type values struct {
	host        *Host
	list        []value
	place, name string
	minor       bool
}

// add takes in the value of an attribute, "" where it is not known.
func (v *values) add(key, text string) {
	if text != "" {
		v.list = append(v.list, value{cell: cell{compare.Of(key), v.place}, host: v.host, name: v.name, text: text, minor: v.minor})
	}
}

func (v *values) addNumber(key string, n *int) {
	if n != nil {
		v.add(key, strconv.Itoa(*n))
	}
}

func (v *values) addMemory(key string, bytes *int64) {
	if bytes != nil {
		v.add(key, units.Bytes(*bytes))
		v.list[len(v.list)-1].amount = *bytes
	}
}

// addSet takes in a set, nil where it is not known. The order says nothing.
func (v *values) addSet(key string, words []string) {
	switch {
	case words == nil:
	case len(words) == 0:
		v.add(key, "none")
	default:
		v.add(key, strings.Join(slices.SortedFunc(slices.Values(words), topo.NaturalCompare), ", "))
	}
}

func (v *values) addWidth(lanes *int) {
	if lanes != nil {
		v.add("pcie_width", "x"+strconv.Itoa(*lanes))
	}
}

// ofHost are the values of the host as a whole.
func (h *Host) ofHost() []value {
	v := values{host: h}
	if h.Origin != "" {
		v.add("gpus", strconv.Itoa(len(h.GPUs)))
		v.add("network_functions", strconv.Itoa(h.NICs))
		if len(h.NUMA) > 0 {
			v.add("numa_nodes", strconv.Itoa(len(h.NUMA)))
		}
		v.add(structure, h.Fingerprint)
	}
	v.addNumber("cpus", h.CPUs)
	v.add("cpu_model", h.CPUModel)
	v.addMemory("memory_bytes", h.MemoryBytes)
	v.add("kernel", h.Kernel)
	v.add("gpu_driver_version", h.GPUDriver)
	v.add("gpu_module", h.GPUModule)
	v.addSet("modules", h.Modules)
	v.addSet("kernel_options", h.KernelOptions)
	v.add("virtual", h.Virtual)
	return v.list
}

// ofLinks are the links of each GPU to others.
func (h *Host) ofLinks() []value {
	v := values{host: h}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Links == nil {
			continue
		}
		said := "none"
		if *g.Links > 0 {
			said = strconv.Itoa(*g.Links)
		}
		if len(g.NoLinkTo) > 0 {
			said += " (fewer to " + text.Join(g.NoLinkTo, mostNames) + ")"
		}
		v.place, v.name = g.GPU, g.GPU
		v.add("direct_links", said)
	}
	return v.list
}

// valuesAgainst lists the values of the host to compare with those of another host. If the two differ in the number of
// GPUs or in the fingerprint, their places do not correspond.
func (h *Host) valuesAgainst(o *Host) []value {
	out := h.ofHost()
	if len(h.GPUs) == len(o.GPUs) {
		out = append(out, h.ofLinks()...)
	}
	if h.Fingerprint == o.Fingerprint {
		out = append(out, h.ofDevices()...)
	}
	return out
}

// tells says whether a device that is missing in the document is missing in the host. The files of other tools leave out
// much.
func (h *Host) tells() bool { return h.Origin != "" && !strings.HasPrefix(h.Origin, "import:") }

// ofDevices are the values of the host's devices.
func (h *Host) ofDevices() []value {
	v := values{host: h}
	for i := range h.NUMA {
		v.place = "numa:" + strconv.Itoa(h.NUMA[i].Index)
		v.name = v.place
		v.addMemory("memory_bytes", h.NUMA[i].MemoryBytes)
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		v.place, v.name = g.GPU, g.GPU
		v.add("model", g.Model)
		v.addMemory("gpu_memory_bytes", g.MemoryBytes)
		v.addNumber("numa_node", g.NUMA)
		v.addWidth(g.Width)
		if g.MIG != nil {
			v.add("mig", map[bool]string{true: "on", false: "off"}[*g.MIG])
		}
		v.addSet("plan", g.Plan)
	}
	seen := map[string]bool{}
	for i := range h.Ports {
		p := &h.Ports[i]
		if p.Place == "" || seen[p.Place] {
			continue // the same port of another host cannot be told
		}
		seen[p.Place] = true
		v.place, v.name, v.minor = p.Place, p.ShortName(), p.Role != pathsel.RoleData
		v.addPort(p)
	}
	v.minor = false
	if h.tells() && h.Status == OK {
		for i := range h.NICs {
			if v.place = fmt.Sprintf("nic:%d", i); !seen[v.place] {
				v.name = v.place
				v.add("presence", "no RDMA device and no interface")
			}
		}
	}
	return v.list
}

func (v *values) addPort(p *Port) {
	if p.Device != "" {
		v.add("presence", "RDMA device")
	} else if v.host.tells() && v.host.Status == OK {
		v.add("presence", "interface")
	}
	v.add("state", p.State)
	if p.BytesPerSec != nil && *p.BytesPerSec > 0 { // a port that is down has none, and says so
		v.add("bytes_per_sec", units.Rate(int64(*p.BytesPerSec), units.Gbit))
	}
	v.add("link_layer", p.LinkLayer)
	v.add("firmware", p.Firmware)
	v.add("board", p.Board)
	v.add("driver", p.Driver)
	v.addNumber("mtu_bytes", p.MTU)
	v.addNumber("netdev_mtu_bytes", p.NetdevMTU)
	v.addNumber("gid_index", p.GIDIndex)
	v.add("gid_type", p.GIDType)
	v.addNumber("traffic_class", p.TrafficClass)
	v.add("pkeys", strings.Join(p.PKeys, ", "))
	v.addNumber("vfs", p.VFs)
	v.addNumber("numa_node", p.NUMA)
	v.addWidth(p.Width)
	if p.SpeedMTs != nil {
		v.add("pcie_speed", units.PCIeGen(*p.SpeedMTs))
	}
	v.add("nearest_class", p.Class)
	v.add("nearest", strings.Join(p.Nearest, ", "))
	v.add("role", string(p.Role))
}

// ShortName is the port as people call it: by its device where that has one port.
func (p *Port) ShortName() string {
	if strings.HasSuffix(p.Port, "/1") && p.Device != "" {
		return p.Device
	}
	return p.Port
}

// named replaces the places in a text by the names that a host has for them.
func (h *Host) named(text string) string {
	if !strings.Contains(text, "nic:") {
		return text
	}
	words := strings.Split(text, ", ")
	for i, w := range words {
		for j := range h.Ports {
			if h.Ports[j].Place == w {
				words[i] = h.Ports[j].ShortName()
			}
		}
	}
	return strings.Join(words, ", ")
}
