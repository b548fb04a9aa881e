package export

// This file has the attributes by which Kubernetes' dynamic resource allocation can choose network devices: the rail and
// the leaf of a port, its role, its PCIe switch, and the GPUs nearest to it.
//
// The attributes are in topoctl's own domain, because drivers publish the standard ones.
// Source: k8s.io/api/resource/v1 of Kubernetes 1.37 (DeviceAttribute), dranet's webhook (DeviceIdentifiers).

import (
	"cmp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/text"
)

// Value is the value of an attribute: one of its fields is set.
type Value struct {
	Int     *int64   `json:"int,omitempty"`
	String  *string  `json:"string,omitempty"`
	Strings []string `json:"strings,omitempty"`
}

// Attributes are a device's, by qualified name.
type Attributes map[string]Value

// Domain is that of the attributes.
const Domain = "topoctl.dev"

// Bounds of Kubernetes: of a text, and of the list of one.
const (
	mostText = 64
	mostList = 64
)

// Device is what a driver knows of a device: any of it may be empty.
type Device struct {
	MAC  string `json:"mac_address"`
	PCI  string `json:"pci_address"`
	Name string `json:"name"`
}

// Host is a host whose devices are asked for.
type Host struct {
	t     *topo.Topology
	index *topo.Index
	fleet *fleet.Fleet // for the names of switches
	host  *fleet.Host
}

// New prepares a host; network is what is known of its cables, nil for nothing. name is what the network calls the host.
func New(name string, t *topo.Topology, network *fleet.Network) (*Host, error) {
	h, err := fleet.Summarize(name, t)
	if err != nil {
		return nil, err
	}
	f, err := fleet.Build([]fleet.Host{*h}, network)
	if err != nil {
		return nil, err
	}
	return Of(f, &f.Hosts[0], t), nil
}

// Of is a host of a fleet, with what the fleet knows of its cables; t is its topology.
func Of(f *fleet.Fleet, h *fleet.Host, t *topo.Topology) *Host {
	return &Host{t: t, index: topo.NewIndex(t), fleet: f, host: h}
}

// Port finds the port of a device, nil for none: by PCI address, else by MAC, else by name.
func (h *Host) Port(d Device) *fleet.Port {
	ports := h.host.Ports
	for _, fits := range []func(p *fleet.Port) bool{
		func(p *fleet.Port) bool {
			return d.PCI != "" && strings.EqualFold(string(h.function(p)), string(topo.KindPCI)+":"+d.PCI)
		},
		func(p *fleet.Port) bool { return d.MAC != "" && strings.EqualFold(h.mac(p), d.MAC) },
		func(p *fleet.Port) bool {
			return d.Name != "" && (p.Netdev == d.Name || p.Device == d.Name || p.Port == d.Name)
		},
	} {
		if i := slices.IndexFunc(ports, func(p fleet.Port) bool { return fits(&p) }); i >= 0 {
			return &ports[i]
		}
	}
	return nil
}

// mac is the address of a port's interface, "" where it has none.
func (h *Host) mac(p *fleet.Port) string {
	if n := h.index.NetdevNamed(cmp.Or(p.Netdev, p.Port)); n != nil {
		return n.MAC
	}
	return p.MAC
}

// function is the PCI function of a port, "" where it has none.
func (h *Host) function(p *fleet.Port) topo.ID {
	if r := h.index.RDMADevice(topo.RDMAID(p.Device)); r != nil {
		return r.PCI
	}
	if n := h.index.NetdevNamed(cmp.Or(p.Netdev, p.Port)); n != nil {
		return n.PCI
	}
	return ""
}

// Attributes are those of a port; what is not known is left out. lists also gives attributes that are lists, which
// a cluster without the gate DRAListTypeAttributes refuses, and the device with them.
func (h *Host) Attributes(p *fleet.Port, lists bool) Attributes {
	out := Attributes{}
	word := func(name, value string) {
		if value != "" && value != "unknown" {
			value = short(value)
			out[Domain+"/"+name] = Value{String: &value}
		}
	}
	number := func(name string, value *int) {
		if value != nil {
			n := int64(*value)
			out[Domain+"/"+name] = Value{Int: &n}
		}
	}
	number("rail", p.Rail)
	number("plane", p.Plane)
	word("role", string(p.Role))
	word("leafPort", p.LeafPort)
	if p.Leaf != "" {
		word("leaf", h.fleet.SwitchName(p.Leaf))
	}
	word("gpuClass", p.Class)
	function := h.function(p)
	word("pcieSwitch", h.pcieSwitch(function))
	var near []string
	for _, name := range p.Nearest {
		for i := range h.t.GPUs {
			if g := &h.t.GPUs[i]; string(g.ID) == name && g.BDF != nil && len(near) < mostList {
				near = append(near, g.BDF.String())
			}
		}
	}
	if len(near) > 0 {
		word("nearestGPU", near[0])
		if lists {
			out[Domain+"/nearestGPUs"] = Value{Strings: near}
		}
	}
	return out
}

// pcieSwitch is the upstream port of the topmost PCIe switch above a function. A GPU and a NIC below one switch share it,
// even if the switch has several levels.
func (h *Host) pcieSwitch(function topo.ID) string {
	top := ""
	if function == "" {
		return top
	}
	for up := range h.index.Climb(function) {
		if up.Role == topo.RoleUpstream {
			top = up.BDF.String()
		}
	}
	return top
}

// short keeps a text within what Kubernetes allows; its end goes first, and three dots say so.
func short(s string) string {
	s = text.ASCII(s)
	if len(s) > mostText {
		s = s[:mostText-3] + "..."
	}
	return s
}

// GPUs are the PCI addresses of the host's GPUs, in their order; ok is false where one is not known.
func (h *Host) GPUs() (out []string, ok bool) {
	for i := range h.t.GPUs {
		if h.t.GPUs[i].BDF == nil {
			return nil, false
		}
		out = append(out, h.t.GPUs[i].BDF.String())
	}
	return out, true
}

// Planned are the PCI addresses of the ports that the plan for all GPUs gives each GPU, by place in GPUs.
func (h *Host) Planned() [][]string {
	out := make([][]string, len(h.host.GPUs))
	for i := range h.host.GPUs {
		for _, place := range h.host.GPUs[i].Plan {
			for k := range h.host.Ports {
				p := &h.host.Ports[k]
				if at := h.Address(p); at != "" && cmp.Or(p.Place, p.Port) == place {
					out[i] = append(out[i], at)
				}
			}
		}
	}
	return out
}

// Blind says that it is not known which port is near which GPU, so that Planned goes by order only.
func (h *Host) Blind() bool {
	return !slices.ContainsFunc(h.Ports(), func(p fleet.Port) bool { return p.Class != "" })
}

// Ports are the host's ports.
func (h *Host) Ports() []fleet.Port { return h.host.Ports }

// Address is the PCI address of a port, "" where it has none.
func (h *Host) Address(p *fleet.Port) string {
	if d := h.index.PCIDevice(h.function(p)); d != nil {
		return d.BDF.String()
	}
	return ""
}
