package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// attribute is something that hosts of a kind should have in common.
type attribute struct {
	key, words string
	severity   doctor.Severity // of a host that differs
	// structural attributes and the settings of the host as a whole are compared among hosts of one
	// model, the others, of devices, among hosts of one class, because there places mean the same.
	structural bool
	// follows says that the attribute may differ because another one of a device does: it is no
	// finding beside one.
	follows bool
	// near says that values within 2 % are one.
	near   bool
	plural bool   // the words are a plural
	noun   string // of what a number is counted
	fix    string
}

// value is what one host has. An attribute that a host's document does not tell has none.
type value struct {
	attr   *attribute
	place  string // "" for the host
	name   string // of the device, as the host calls it
	text   string // for people, and what is compared unless the attribute is near
	number int64  // of a near attribute
	minor  bool   // of a port that carries no data of GPUs: no more than a warning
}

// The attributes, in the order in which a host's differences are told.
var (
	attrGPUs      = &attribute{key: "gpus", words: "number of GPUs", noun: "GPU", severity: doctor.Error, structural: true, fix: "look for a GPU that fell off the bus: dmesg, nvidia-smi, lspci"}
	attrNICs      = &attribute{key: "network_functions", words: "number of network functions", noun: "network function", severity: doctor.Error, structural: true, fix: "look for a card that is not seen: lspci, dmesg"}
	attrNUMANodes = &attribute{key: "numa_nodes", words: "number of NUMA nodes", noun: "NUMA node", severity: doctor.Warning, structural: true, fix: "compare the firmware's settings (NPS, SNC)"}
	attrCPUs      = &attribute{key: "cpus", words: "number of CPUs", noun: "CPU", severity: doctor.Warning, structural: true, fix: "compare the firmware's settings (SMT) and what is offline"}
	attrCPUModel  = &attribute{key: "cpu_model", words: "CPU model", severity: doctor.Warning, structural: true}
	attrLinks     = &attribute{key: "direct_links", words: "NVLink or xGMI links", plural: true, severity: doctor.Error, fix: "nvidia-smi nvlink -s, or amd-smi xgmi, on the host; dmesg for Xid messages"}
	attrStructure = &attribute{key: "structure", words: "structure", severity: doctor.Warning, structural: true, fix: "\"topoctl diff --structure\" of its document and that of another host says what differs"}

	attrMemory  = &attribute{key: "memory_bytes", words: "memory", severity: doctor.Warning, near: true, fix: "look for a memory module that is not seen: dmidecode -t memory"}
	attrKernel  = &attribute{key: "kernel", words: "kernel", severity: doctor.Warning, fix: "install and boot the kernel of the others"}
	attrDriver  = &attribute{key: "gpu_driver_version", words: "GPU driver", severity: doctor.Warning, fix: "install the GPU driver of the others"}
	attrModule  = &attribute{key: "gpu_module", words: "GPU kernel module", severity: doctor.Warning, fix: "install the kernel module of the others (open or proprietary)"}
	attrModules = &attribute{key: "modules", words: "kernel modules", plural: true, severity: doctor.Warning, fix: "load what is missing: modprobe"}
	attrOptions = &attribute{key: "kernel_options", words: "kernel options", plural: true, severity: doctor.Warning, fix: "compare /proc/cmdline"}
	attrVirtual = &attribute{key: "virtual", words: "virtualization", severity: doctor.Warning}

	attrState     = &attribute{key: "state", words: "state", severity: doctor.Error, fix: "look at cable, transceiver and switch port"}
	attrKind      = &attribute{key: "presence", words: "kind of device", severity: doctor.Error, fix: "look for its driver: lspci -k, dmesg"}
	attrRate      = &attribute{key: "bytes_per_sec", words: "rate", severity: doctor.Error, fix: "look at cable, transceiver and switch port"}
	attrLinkLayer = &attribute{key: "link_layer", words: "link layer", severity: doctor.Error, fix: "set it as on the others: mlxconfig LINK_TYPE"}
	attrFirmware  = &attribute{key: "firmware", words: "firmware", severity: doctor.Warning, fix: "install the firmware of the others"}
	attrBoard     = &attribute{key: "board", words: "board", severity: doctor.Warning}
	attrNICDriver = &attribute{key: "driver", words: "driver", severity: doctor.Warning}
	attrMTU       = &attribute{key: "mtu_bytes", words: "MTU", severity: doctor.Warning, fix: "set the MTU of the others, on the switch port too"}
	attrNetMTU    = &attribute{key: "netdev_mtu_bytes", words: "interface MTU", severity: doctor.Warning, fix: "ip link set DEV mtu BYTES"}
	attrGIDIndex  = &attribute{key: "gid_index", words: "GID index", severity: doctor.Warning, fix: "programs that are told one index for all hosts reach nobody from here: make addresses in the order of the others"}
	attrGIDType   = &attribute{key: "gid_type", words: "GID type", severity: doctor.Warning}
	attrTraffic   = &attribute{key: "traffic_class", words: "traffic class", severity: doctor.Warning, fix: "set it as on the others"}
	attrPKeys     = &attribute{key: "pkeys", words: "partition keys", plural: true, severity: doctor.Warning, fix: "compare the subnet manager's partitions"}
	attrVFs       = &attribute{key: "vfs", words: "virtual functions", plural: true, severity: doctor.Warning}
	attrWidth     = &attribute{key: "pcie_width", words: "PCIe width", severity: doctor.Error, fix: "reseat the card, look at riser and slot"}
	attrSpeed     = &attribute{key: "pcie_speed", words: "PCIe speed", severity: doctor.Error, fix: "reseat the card, look at riser, slot and firmware settings"}
	attrNUMA      = &attribute{key: "numa_node", words: "NUMA node", severity: doctor.Warning, fix: "compare the firmware's settings"}
	attrModel     = &attribute{key: "model", words: "model", severity: doctor.Warning}
	attrGPUMemory = &attribute{key: "gpu_memory_bytes", words: "memory", severity: doctor.Warning, near: true}
	attrMIG       = &attribute{key: "mig", words: "MIG", severity: doctor.Warning, fix: "nvidia-smi -mig"}

	attrClass   = &attribute{key: "nearest_class", words: "class to its nearest GPUs", severity: doctor.Warning, follows: true}
	attrNearest = &attribute{key: "nearest", words: "nearest GPUs", plural: true, severity: doctor.Warning, follows: true}
	attrRole    = &attribute{key: "role", words: "role", severity: doctor.Warning, follows: true}
	attrPlan    = &attribute{key: "plan", words: "planned ports", plural: true, severity: doctor.Warning, follows: true}
)

// attributes are all, in that order.
var attributes = []*attribute{attrGPUs, attrNICs, attrNUMANodes, attrCPUs, attrCPUModel, attrLinks, attrStructure,
	attrState, attrKind, attrRate, attrWidth, attrSpeed, attrLinkLayer,
	attrMemory, attrKernel, attrDriver, attrModule, attrModules, attrOptions, attrVirtual,
	attrFirmware, attrBoard, attrNICDriver, attrMTU, attrNetMTU, attrGIDIndex, attrGIDType, attrTraffic, attrPKeys, attrVFs, attrNUMA,
	attrModel, attrGPUMemory, attrMIG, attrClass, attrNearest, attrRole, attrPlan}

// rank is the place of an attribute in the list.
func (a *attribute) rank() int { return slices.Index(attributes, a) }

func attributeOf(key string) *attribute {
	return attributes[slices.IndexFunc(attributes, func(a *attribute) bool { return a.key == key })]
}

// verb is the form of a verb that follows the attribute's words.
func (a *attribute) verb(one, many string) string {
	if a.plural {
		return many
	}
	return one
}

// ofHost are the values of the host as a whole.
func (h *Host) ofHost() []value {
	var out []value
	add := func(a *attribute, text string) {
		if text != "" {
			out = append(out, value{attr: a, text: text})
		}
	}
	if h.Origin != "" {
		add(attrGPUs, strconv.Itoa(len(h.GPUs)))
		add(attrNICs, strconv.Itoa(h.NICs))
		if len(h.NUMA) > 0 {
			add(attrNUMANodes, strconv.Itoa(len(h.NUMA)))
		}
		add(attrStructure, h.Fingerprint)
	}
	add(attrCPUs, number(h.CPUs))
	add(attrCPUModel, h.CPUModel)
	if h.MemoryBytes != nil {
		out = append(out, value{attr: attrMemory, text: units.Bytes(*h.MemoryBytes), number: *h.MemoryBytes})
	}
	add(attrKernel, h.Kernel)
	add(attrDriver, h.GPUDriver)
	add(attrModule, h.GPUModule)
	if h.Modules != nil {
		add(attrModules, setText(h.Modules))
	}
	if h.KernelOptions != nil {
		add(attrOptions, setText(h.KernelOptions))
	}
	add(attrVirtual, h.Virtual)
	return out
}

// ofLinks are the links of each GPU to others.
func (h *Host) ofLinks() []value {
	var out []value
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Links == nil {
			continue
		}
		said := "none"
		if *g.Links > 0 {
			said = number(g.Links)
		}
		if len(g.NoLinkTo) > 0 {
			said += " (fewer to " + text.Join(g.NoLinkTo, mostNames) + ")"
		}
		out = append(out, value{attr: attrLinks, place: g.GPU, name: g.GPU, text: said})
	}
	return out
}

// valuesAgainst are all values of the host that are compared with those of another: where that has another number of
// GPUs, or another fingerprint, places mean something else.
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

// tells says whether what the document lacks is not there. Another tool's file lacks much that a host has.
func (h *Host) tells() bool { return h.Origin != "" && !strings.HasPrefix(h.Origin, "import:") }

// ofDevices are the values of the host's devices.
func (h *Host) ofDevices() []value {
	var out []value
	place, name := "", ""
	add := func(a *attribute, text string) {
		if text != "" {
			out = append(out, value{attr: a, place: place, name: name, text: text})
		}
	}
	for i := range h.NUMA {
		n := &h.NUMA[i]
		if place = "numa:" + strconv.Itoa(n.Index); n.MemoryBytes != nil {
			out = append(out, value{attr: attrMemory, place: place, name: place, text: units.Bytes(*n.MemoryBytes), number: *n.MemoryBytes})
		}
	}
	for i := range h.GPUs {
		g := &h.GPUs[i]
		place, name = g.GPU, g.GPU
		add(attrModel, g.Model)
		if g.MemoryBytes != nil {
			out = append(out, value{attr: attrGPUMemory, place: place, name: name, text: units.Bytes(*g.MemoryBytes), number: *g.MemoryBytes})
		}
		add(attrNUMA, number(g.NUMA))
		add(attrWidth, prefixed("x", g.Width))
		if g.MIG != nil {
			add(attrMIG, map[bool]string{true: "on", false: "off"}[*g.MIG])
		}
		if g.Plan != nil {
			add(attrPlan, setText(g.Plan))
		}
	}
	seen := map[string]bool{}
	for i := range h.Ports {
		p := &h.Ports[i]
		if p.Place == "" || seen[p.Place] {
			continue // nothing tells which port of another host it is
		}
		seen[p.Place] = true
		place, name = p.Place, p.ShortName()
		from := len(out)
		h.ofPort(p, add)
		for j := range out[from:] {
			out[from+j].minor = p.Role != pathsel.RoleData
		}
	}
	if h.tells() && h.Status == OK {
		for i := range h.NICs {
			if place = fmt.Sprintf("nic:%d", i); !seen[place] {
				name = place
				add(attrKind, "no RDMA device and no interface")
			}
		}
	}
	return out
}

func (h *Host) ofPort(p *Port, add func(*attribute, string)) {
	kind := "interface"
	if p.Device != "" {
		kind = "RDMA device"
	}
	if kind != "interface" || h.tells() && h.Status == OK {
		add(attrKind, kind)
	}
	add(attrState, p.State)
	if p.BytesPerSec != nil && *p.BytesPerSec > 0 { // a port that is down has none, and says so
		add(attrRate, units.Rate(int64(*p.BytesPerSec), units.Gbit))
	}
	add(attrLinkLayer, p.LinkLayer)
	add(attrFirmware, p.Firmware)
	add(attrBoard, p.Board)
	add(attrNICDriver, p.Driver)
	add(attrMTU, number(p.MTU))
	add(attrNetMTU, number(p.NetdevMTU))
	add(attrGIDIndex, number(p.GIDIndex))
	add(attrGIDType, p.GIDType)
	add(attrTraffic, number(p.TrafficClass))
	add(attrPKeys, strings.Join(p.PKeys, ", "))
	add(attrVFs, number(p.VFs))
	add(attrNUMA, number(p.NUMA))
	add(attrWidth, prefixed("x", p.Width))
	if p.SpeedMTs != nil {
		add(attrSpeed, units.PCIeGen(*p.SpeedMTs))
	}
	add(attrClass, p.Class)
	add(attrNearest, strings.Join(p.Nearest, ", "))
	add(attrRole, string(p.Role))
}

// ShortName is the port as people call it: by its device where that has one port.
func (p *Port) ShortName() string {
	if strings.HasSuffix(p.Port, "/1") && p.Device != "" {
		return p.Device
	}
	return p.Port
}

// named says a text about places with the names that a host has for them.
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

// setText is a set: the order says nothing.
func setText(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, topo.NaturalCompare)
	return strings.Join(sorted, ", ")
}

func number(n *int) string { return prefixed("", n) }

func prefixed(prefix string, n *int) string {
	if n == nil {
		return ""
	}
	return prefix + strconv.Itoa(*n)
}
