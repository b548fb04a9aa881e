package topo

import "fmt"

// check refuses what no writer of ours makes and what would mislead a reader:
// nodes without ID, two nodes of one ID, negative rates, matrices that are not
// square; and
// documents whose relations would be too many to compute.
func (t *Topology) check() error {
	if n := len(t.GPUs) + len(t.nics()) + len(t.NUMANodes); n > maxAxis {
		return fmt.Errorf("topo: %d GPUs, NICs and NUMA nodes: at most %d are read", n, maxAxis)
	}
	seen := map[ID]bool{}
	for _, n := range t.nodes() {
		if n.node.ID == "" {
			return fmt.Errorf("topo: a node of kind %q has no id", n.node.Kind)
		}
		if seen[n.node.ID] {
			return fmt.Errorf("topo: two nodes are called %q", n.node.ID)
		}
		seen[n.node.ID] = true
	}
	for i := range t.PCIDevices {
		if err := t.PCIDevices[i].Link.check(); err != nil {
			return fmt.Errorf("topo: %s: %w", t.PCIDevices[i].ID, err)
		}
	}
	for i := range t.Links {
		if l := &t.Links[i]; l.BytesPerSec != nil && *l.BytesPerSec < 0 {
			return fmt.Errorf("topo: link %q: bytes_per_sec %d: want 0 or more, or null", l.ID, *l.BytesPerSec)
		}
	}
	if a := t.Asserted; a != nil {
		if len(a.Class) != len(a.Axis) {
			return fmt.Errorf("topo: asserted: %d rows for an axis of %d", len(a.Class), len(a.Axis))
		}
		for i, row := range a.Class {
			if len(row) != len(a.Axis) {
				return fmt.Errorf("topo: asserted: row %d has %d cells for an axis of %d", i, len(row), len(a.Axis))
			}
		}
	}
	return nil
}

// check refuses what no link has.
func (l *PCILink) check() error {
	if l == nil {
		return nil
	}
	for _, x := range []struct {
		name string
		v    *int
		most int
	}{
		{"speed_mts", l.SpeedMTs, maxPCIeSpeedMTs}, {"max_speed_mts", l.MaxSpeedMTs, maxPCIeSpeedMTs},
		{"width", l.Width, maxPCIeWidth}, {"max_width", l.MaxWidth, maxPCIeWidth},
	} {
		if x.v != nil && (*x.v < 0 || *x.v > x.most) {
			return fmt.Errorf("%s %d: want 0 to %d, or null", x.name, *x.v, x.most)
		}
	}
	return nil
}
