// Package imported has what all importers do alike to make a topology of another tool's file.
package imported

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
)

// maxDevices bounds the relations, which grow with its square.
const maxDevices = 1024

// Host is a topology in the making, from one source.
type Host struct {
	*topo.Topology
	Source topo.Source
}

// New begins a host; lacks is what no file of this source tells.
func New(source topo.Source, lacks ...string) Host {
	return Host{&topo.Topology{Origin: string(source), Host: topo.Host{Lacks: slices.Clone(lacks)}}, source}
}

// Warn adds a warning; evidence is the place in the file.
func (h Host) Warn(code topo.Code, subject topo.ID, detail, evidence string) {
	h.Warnings = append(h.Warnings, topo.Warning{Code: code, Subject: subject, Detail: detail, Evidence: evidence, Source: h.Source})
}

// Fact records where in the file an attribute is from, if it is known.
func (h Host) Fact(facts *topo.Facts, known bool, name, where string) {
	if known {
		facts.Set(name, h.Source, where)
	}
}

// Text sets a text that is not known yet.
func (h Host) Text(facts *topo.Facts, name string, to *string, value, where string) {
	if value != "" && *to == "" {
		*to = value
		facts.Set(name, h.Source, where)
	}
}

// On is what a device has of the PCI function that it is on; nothing of nil.
func On(d *topo.PCIDevice) (id topo.ID, bdf *topo.BDF, numa *int) {
	if d == nil {
		return "", nil, nil
	}
	return d.ID, new(d.BDF), d.NUMA
}

// GPU is the GPU that a function is, as the function tells; it has no number yet.
func (h Host) GPU(d *topo.PCIDevice) topo.GPU {
	g := topo.GPU{Node: topo.Node{Evidence: d.Evidence}, Vendor: gpulink.Vendor(d.Vendor), KnownFrom: "import"}
	g.PCI, g.BDF, g.NUMA = On(d)
	g.Facts.Set("pci", h.Source, "")
	for name, told := range map[string]bool{"vendor": true, "numa_node": g.NUMA != nil} {
		if from, known := d.Facts.Get(name); known && told {
			g.Facts.Set(name, from.Source, from.Where)
		}
	}
	return g
}

// AddNVSwitch adds the NVSwitch that a function is.
func (h Host) AddNVSwitch(d *topo.PCIDevice, where string) {
	s := topo.NVSwitch{Node: topo.Node{ID: topo.ID("nvsw:" + d.ID.Name()), Evidence: d.Evidence}}
	s.PCI, s.BDF, s.NUMA = On(d)
	s.Facts.Set("pci", h.Source, where)
	h.NVSwitches = append(h.NVSwitches, s)
}

// Finish says how complete the host is, and derives the rest. A host of more devices than
// relations are computed for is refused.
func (h Host) Finish(detail string) error {
	if n := len(h.GPUs) + len(h.RDMADevices) + len(h.Netdevs) + len(h.NUMANodes); n > maxDevices {
		return fmt.Errorf("%d GPUs, NICs and NUMA nodes: at most %d are read", n, maxDevices)
	}
	status := topo.StatusOK
	if h.Complete = !slices.ContainsFunc(h.Warnings, topo.Warning.Partial); !h.Complete {
		status = topo.StatusPartial
	}
	h.Sources = []topo.SourceReport{{Source: h.Source, Status: status, Detail: detail}}
	h.Derive()
	return nil
}
