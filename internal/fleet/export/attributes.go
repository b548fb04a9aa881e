package export

// This file has the attributes by which Kubernetes' dynamic resource allocation can choose network devices: the rail and
// the leaf of a port, its role, its PCIe switch, and the GPUs nearest to it.
//
// The attributes are in topoctl's own domain, because drivers publish the standard ones.
// Source: k8s.io/api/resource/v1 of Kubernetes 1.37 (DeviceAttribute), dranet's webhook (DeviceIdentifiers).

import (
	"slices"

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

// AttributesOf are those of a port of a host; what is not known is left out. lists also gives attributes that are lists,
// which a cluster without the gate DRAListTypeAttributes refuses, and the device with them.
func AttributesOf(f *fleet.Fleet, h *fleet.Host, p *fleet.Port, lists bool) Attributes {
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
		word("leaf", f.SwitchName(p.Leaf))
	}
	word("gpuClass", p.Class)
	word("pcieSwitch", p.Switch)
	var near []string
	for _, g := range h.GPUs {
		if slices.Contains(p.Nearest, g.GPU) && g.PCI != "" && len(near) < mostList {
			near = append(near, g.PCI)
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

// short keeps a text within what Kubernetes allows; its end goes first, and three dots say so.
func short(s string) string {
	s = text.ASCII(s)
	if len(s) > mostText {
		s = s[:mostText-3] + "..."
	}
	return s
}
