package topo

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/cpuset"
)

// Fingerprint is a digest of the host's structure: "sha256:" and 64 hex digits.
// Two hosts built alike have the same one, and a host keeps it while nobody rebuilds
// it. It covers the processors' make and number, NUMA nodes with their distances and
// whether they have memory, the shape of the PCI trees with the functions' vendor,
// device, class and maximum link, and direct GPU links. It leaves out
//
//   - names, serial numbers, addresses and bus numbers;
//   - amounts of memory, which a hypervisor changes under a running guest, and the
//     memory of GPUs, which is a NUMA node's once their driver has come;
//   - current speeds, port states, virtual functions and all that software sets up;
//   - what only a driver or only root can read and the PCI tree tells as well: models
//     and NUMA nodes of GPUs that have a PCI function, roles of bridges.
//
// NVLinks are known from NVML alone: without it, and with one of them down, a host has
// another fingerprint.
func (t *Topology) Fingerprint() string { return t.fingerprint(NewIndex(t)) }

func (t *Topology) fingerprint(x *Index) string {
	lines := []string{fmt.Sprintf("host %s %s %s", t.Host.Arch, t.Host.CPUVendor, t.Host.CPUModel)}
	for i := range t.NUMANodes {
		n := &t.NUMANodes[i]
		cpus, _ := cpuset.Parse(n.CPUs) // an unreadable list counts as none
		lines = append(lines, fmt.Sprintf("numa %d package %s cpus %d memory %s distances %v", n.Index,
			optional(n.Package), cpus.Len(), n.hasMemory(), n.Distances))
	}
	for i := range t.HostBridges {
		hb := &t.HostBridges[i]
		if below := x.shapes(hb.ID, 0); below != "()" {
			lines = append(lines, fmt.Sprintf("root numa %s %s", optional(hb.NUMA), below))
		}
	}
	lines = append(lines, t.gpuLines()...)
	slices.Sort(lines[1:])
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// shapes describes the functions below a node but virtual ones, in an order that
// does not depend on their addresses.
func (x *Index) shapes(id ID, depth int) string {
	if depth > maxDepth {
		return "..."
	}
	var out []string
	for _, d := range x.Children(id) {
		if d.PF != "" {
			continue
		}
		speed, width := "?", "?"
		if d.Link != nil {
			speed, width = optional(d.Link.MaxSpeedMTs), optional(d.Link.MaxWidth)
		}
		out = append(out, fmt.Sprintf("%s:%s %s:%s %s %sx%s%s", d.Vendor, d.Device,
			d.SubVendor, d.SubDevice, d.Class, speed, width, x.shapes(d.ID, depth+1)))
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
		line := fmt.Sprintf("gpu %s %v", g.Vendor, direct[g.ID])
		if g.PCI == "" {
			line += fmt.Sprintf(" %s numa %s", g.Model, optional(g.NUMA))
		}
		lines = append(lines, line)
	}
	return lines
}

func optional(v *int) string {
	if v == nil {
		return "?"
	}
	return fmt.Sprint(*v)
}

// hasMemory says whether a node has memory of the host's own.
func (n *NUMANode) hasMemory() string {
	switch {
	case n.Owner == "" && n.MemoryBytes == nil:
		return "?"
	case n.Owner == "" && *n.MemoryBytes > 0:
		return "yes"
	}
	return "no"
}
