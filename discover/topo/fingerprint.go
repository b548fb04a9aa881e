package topo

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Fingerprint is a digest of the host's structure: "sha256:" and 64 hex digits.
// Two hosts built alike have the same one. It covers processors, NUMA nodes,
// the shape of the PCI trees with the functions' vendor, device, class and
// maximum link, GPU models and direct GPU links. It leaves out names, serial
// numbers, addresses and bus numbers, current speeds, port states, virtual
// functions and everything that software sets up.
func (t *Topology) Fingerprint() string {
	children := map[ID][]*PCIDevice{}
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; d.PF == "" {
			children[d.Parent] = append(children[d.Parent], d)
		}
	}
	lines := []string{fmt.Sprintf("host %s %s %s", t.Host.Arch, t.Host.CPUVendor, t.Host.CPUModel)}
	for i := range t.NUMANodes {
		n := &t.NUMANodes[i]
		cpus, _ := CPUCount(n.CPUs)
		lines = append(lines, fmt.Sprintf("numa %d package %s cpus %d memory_gib %s distances %v", n.Index,
			optional(n.Package), cpus, gibibytes(n.MemoryBytes), n.Distances))
	}
	for i := range t.HostBridges {
		hb := &t.HostBridges[i]
		if len(children[hb.ID]) > 0 {
			lines = append(lines, fmt.Sprintf("root numa %s %s", optional(hb.NUMA), shapes(children, hb.ID, 0)))
		}
	}
	lines = append(lines, t.gpuLines()...)
	slices.Sort(lines[1:])
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// shapes describes the functions below a node, in an order that does not
// depend on their addresses.
func shapes(children map[ID][]*PCIDevice, id ID, depth int) string {
	if depth > maxDepth {
		return "..."
	}
	var out []string
	for _, d := range children[id] {
		speed, width := "?", "?"
		if d.Link != nil {
			speed, width = optional(d.Link.MaxSpeedMTs), optional(d.Link.MaxWidth)
		}
		out = append(out, fmt.Sprintf("%s %s:%s %s:%s %s %sx%s%s", d.Role, d.Vendor, d.Device,
			d.SubVendor, d.SubDevice, d.Class, speed, width, shapes(children, d.ID, depth+1)))
	}
	slices.Sort(out)
	return "(" + strings.Join(out, ",") + ")"
}

// gpuLines describes GPUs and their direct links without saying which GPU.
func (t *Topology) gpuLines() []string {
	direct := map[ID][]string{}
	for i := range t.Links {
		l := &t.Links[i]
		switch l.Kind {
		case LinkNVLink, LinkXGMI, LinkC2C:
			s := fmt.Sprintf("%s*%d", l.Kind, l.Count)
			direct[l.A] = append(direct[l.A], s)
			direct[l.B] = append(direct[l.B], s)
		}
	}
	var lines []string
	for i := range t.GPUs {
		g := &t.GPUs[i]
		slices.Sort(direct[g.ID])
		lines = append(lines, fmt.Sprintf("gpu %s %s numa %s %v", g.Vendor, g.Model, optional(g.NUMA), direct[g.ID]))
	}
	return lines
}

func optional(v *int) string {
	if v == nil {
		return "?"
	}
	return fmt.Sprint(*v)
}

// gibibytes rounds, because firmware keeps a little differently on each host.
func gibibytes(v *int64) string {
	if v == nil {
		return "?"
	}
	return fmt.Sprint((*v + 1<<29) >> 30)
}
