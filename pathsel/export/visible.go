package export

import (
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

// Visible are the GPUs that a process sees, in its own numbering: the one at
// place N is what CUDA and HIP call device N.
type Visible struct {
	GPUs []VisibleGPU
	// Notes say what the numbering rests on where that is not certain.
	Notes []string
}

// VisibleGPU is one of them.
type VisibleGPU struct {
	Location pathsel.Location // "gpu:3", in PCI order
	GPU      *topo.GPU
}

// mostVisible bounds a list of devices.
const mostVisible = 1024

// AllGPUs are the GPUs that a process sees which restricts nothing: those that
// it may open, in the order of nvidia-smi where it is known, else of PCI.
func AllGPUs(t *topo.Topology) Visible {
	var v Visible
	ordered := true
	for i := range t.GPUs {
		g := &t.GPUs[i]
		if g.Visible != nil && !*g.Visible {
			continue
		}
		ordered = ordered && g.NVMLIndex != nil
		v.GPUs = append(v.GPUs, VisibleGPU{pathsel.LocationOf(g.ID), g})
	}
	if ordered {
		slices.SortStableFunc(v.GPUs, func(a, b VisibleGPU) int { return *a.GPU.NVMLIndex - *b.GPU.NVMLIndex })
	}
	if len(v.GPUs) == 0 {
		return v
	}
	for _, g := range v.GPUs[1:] {
		if g.GPU.Model != v.GPUs[0].GPU.Model {
			v.Notes = append(v.Notes, "the GPUs differ: CUDA numbers the fastest first unless CUDA_DEVICE_ORDER is PCI_BUS_ID, which is taken for granted here")
			break
		}
	}
	if v.GPUs[0].GPU.Vendor == "amd" {
		v.Notes = append(v.Notes, "the order of HIP's devices is taken to be that of their PCI addresses")
	}
	return v
}

// Select picks the GPUs of a list as in CUDA_VISIBLE_DEVICES, in its
// order: numbers, UUIDs or unique beginnings of them, and UUIDs of MIG devices.
// CUDA stops at an entry that it does not know; here that is an error, because
// the ranks behind it would have no GPU.
// Source: CUDA Programming Guide, CUDA Environment Variables.
func (v Visible) Select(list string) (Visible, error) {
	entries := strings.Split(list, ",")
	if len(entries) > mostVisible {
		return Visible{}, pkgerr.Errorf("export", "%d visible devices: want at most %d", len(entries), mostVisible)
	}
	out := Visible{Notes: v.Notes}
	for _, e := range entries {
		g, err := v.find(strings.TrimSpace(e))
		if err != nil {
			return Visible{}, err
		}
		if slices.Contains(out.GPUs, g) {
			return Visible{}, pkgerr.Errorf("export", "visible device %q: %s is named twice", e, g.Location)
		}
		out.GPUs = append(out.GPUs, g)
	}
	return out, nil
}

// find is the GPU that one entry of the list names.
func (v Visible) find(entry string) (VisibleGPU, error) {
	if n, err := strconv.Atoi(entry); err == nil {
		if n < 0 || n >= len(v.GPUs) {
			return VisibleGPU{}, pkgerr.Errorf("export", "visible device %q: there are %d GPUs, numbered from 0", entry, len(v.GPUs))
		}
		return v.GPUs[n], nil
	}
	var found []VisibleGPU
	for _, g := range v.GPUs {
		if names(g.GPU, entry) {
			found = append(found, g)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return VisibleGPU{}, pkgerr.Errorf("export", "visible device %q: no such GPU: want a number or a UUID", entry)
	}
	return VisibleGPU{}, pkgerr.Errorf("export", "visible device %q: the UUIDs of %d GPUs begin so: give more of it", entry, len(found))
}

// names says whether a UUID, or the beginning of one, is that of a GPU or of a
// MIG device on it.
func names(g *topo.GPU, entry string) bool {
	if strings.HasPrefix(entry, "MIG-") {
		return g.MIG != nil && slices.ContainsFunc(g.MIG.Instances, func(m topo.MIGInstance) bool { return m.UUID == entry })
	}
	return strings.HasPrefix(entry, "GPU-") && strings.HasPrefix(g.UUID, entry)
}
