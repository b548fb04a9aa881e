package discover

import (
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// applyRDMAMap adds what rdmamap says of the RDMA devices where sysfs had
// nothing, and reports where the two disagree.
func applyRDMAMap(t *topo.Topology, answers map[string]rdmaAnswer) {
	index := topo.NewIndex(t)
	seen := map[string]bool{}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		a, ok := answers[r.Name]
		if !ok {
			conflict(t, r.ID, "device", topo.SourceSysfs, "it exists", topo.SourceRDMAMap, "it does not")
			continue
		}
		seen[r.Name] = true
		m := merger{t, r.ID, &r.Facts, topo.SourceRDMAMap}
		if a.bdf != nil {
			mergeRDMAPCI(m, r, index.PCIDevice(topo.PCIID(*a.bdf)), *a.bdf)
		}
		m.fillList("netdevs", &r.Netdevs, a.netdevs)
		if a.asked {
			m.fillList("char_devs", &r.CharDevs, a.charDevs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		if !seen[name] {
			conflict(t, topo.RDMAID(name), "device", topo.SourceSysfs, "it does not exist", topo.SourceRDMAMap, "it does")
		}
	}
}

// mergeRDMAPCI joins an RDMA device to its PCI function.
func mergeRDMAPCI(m merger, r *topo.RDMADevice, d *topo.PCIDevice, bdf topo.BDF) {
	if d == nil {
		return
	}
	if r.PCI != "" {
		if r.PCI != d.ID {
			conflict(m.t, r.ID, "pci", source(r.Facts, "pci"), r.PCI, m.from, d.ID)
		}
		return
	}
	r.PCI, r.BDF = d.ID, &bdf
	r.Facts.Set("pci", m.from, "infiniband")
	r.Facts.Set("bdf", m.from, "infiniband")
	if r.NUMA == nil && d.NUMA != nil {
		n := *d.NUMA
		r.NUMA = &n
		r.Facts.Set("numa_node", topo.SourceDerived, string(d.ID))
	}
	m.t.Warnings = slices.DeleteFunc(m.t.Warnings, func(w topo.Warning) bool {
		return w.Code == topo.CodeNoPCIParent && w.Subject == r.ID
	})
}

// fillList is fill for a list of names, whose order says nothing.
func (m merger) fillList(attribute string, field *[]string, value []string) {
	value = slices.Sorted(slices.Values(value))
	switch {
	case len(value) == 0:
	case len(*field) == 0:
		*field = value
		m.facts.Set(attribute, m.from, "")
	case !slices.Equal(slices.Sorted(slices.Values(*field)), value):
		conflict(m.t, m.id, attribute, source(*m.facts, attribute), strings.Join(*field, " "), m.from, strings.Join(value, " "))
	}
}
