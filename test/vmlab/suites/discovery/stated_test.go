package discovery

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/test/vmlab"
)

// What was stated, in the same lines as what discovery found.

func statedNodes(m *vmlab.Machine) []string {
	var out []string
	for n, row := range m.Distances {
		first, last := m.CPUsOf(n)
		cpus := fmt.Sprint(first)
		if last > first {
			cpus += fmt.Sprintf("-%d", last)
		}
		out = append(out, fmt.Sprintf("node %d cpus %s distances %v", n, cpus, row))
	}
	return out
}

func statedBridges(m *vmlab.Machine) []string {
	out := []string{"0000:00 node unknown"} // the chipset's own, of no node
	for _, b := range m.Bridges {
		out = append(out, fmt.Sprintf("0000:%02x node %d", b.Bus, b.Node))
	}
	return out
}

var roles = map[string]string{
	vmlab.RootPort: "root_port", vmlab.Upstream: "switch_upstream", vmlab.Downstream: "switch_downstream",
	vmlab.KindNIC: "endpoint", vmlab.KindGPU: "endpoint",
}

func statedFunctions(m *vmlab.Machine) []string {
	var out []string
	for _, f := range m.Functions() {
		parent := fmt.Sprintf("hb:0000:%02x", m.Bridges[f.Bridge].Bus)
		if len(f.Above) > 0 {
			parent = f.Above[len(f.Above)-1]
		}
		out = append(out, fmt.Sprintf("%s %s below %s node %d", f.BDF, roles[f.Kind], parent, f.Node))
	}
	return out
}

func statedSwitches(m *vmlab.Machine) []string {
	var out []string
	for _, up := range m.Functions() {
		if up.Kind != vmlab.Upstream {
			continue
		}
		var ports []string
		for _, f := range m.Functions() {
			if f.Kind == vmlab.Downstream && f.Above[len(f.Above)-1] == up.BDF {
				ports = append(ports, "pci:"+f.BDF)
			}
		}
		out = append(out, fmt.Sprintf("%s node %d ports %v", up.BDF, up.Node, ports))
	}
	return out
}

func statedGPUs(m *vmlab.Machine) []string {
	var all []vmlab.Function
	for _, f := range m.Functions() {
		if f.GPU != nil {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b vmlab.Function) int {
		if a.BDF < b.BDF {
			return -1
		}
		return 1
	})
	var out []string
	for i, f := range all {
		g := f.GPU
		out = append(out, fmt.Sprintf("%d %s vendor nvidia 0x%04x device 0x%04x class 0x%06x subsystem 0x%04x 0x%04x node %d",
			i, f.BDF, g.Vendor, g.Device, g.Class, g.SubsystemVendor, g.SubsystemDevice, f.Node))
	}
	return out
}

// statedClasses has every pair of GPUs and NICs; the management NIC is on no node, so
// that its relations are not known.
func statedClasses(m *vmlab.Machine) []string {
	var all []*vmlab.Function
	for _, f := range m.Functions() {
		if f.GPU != nil || f.NIC != nil {
			all = append(all, &f)
		}
	}
	if m.Management {
		all = append(all, nil)
	}
	var out []string
	for _, a := range all {
		for _, b := range all {
			at, bt, class := "0000:00:1d.0", "0000:00:1d.0", "?"
			if a != nil {
				at = a.BDF
			}
			if b != nil {
				bt = b.BDF
			}
			switch {
			case at == bt:
				class = "X"
			case a != nil && b != nil:
				class = m.Class(a, b)
			}
			out = append(out, fmt.Sprintf("%s %s: %s", at, bt, class))
		}
	}
	slices.Sort(out)
	return out
}
