package nvsmi

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// fromTopology makes the table that nvidia-smi topo -m would print for a
// derived topology: its GPUs, then its NICs as NIC0, NIC1, ... As there, these
// are the RDMA devices with hardware; a host without any shows its netdevs.
func fromTopology(t *topo.Topology) (*matrix, error) {
	if len(t.GPUs) == 0 || t.Derived == nil {
		return nil, pkgerr.New("nvsmi", "the topology has no GPU: nvidia-smi topo has no form for that")
	}
	table := &matrix{Kind: kindTopo, Affinities: 3}
	ids := t.MatrixAxis(topo.KindGPU)
	for i := range t.GPUs {
		table.Devices = append(table.Devices, "GPU"+strconv.Itoa(t.GPUs[i].Index))
	}
	for i, id := range NICs(t) {
		label := "NIC" + strconv.Itoa(i)
		ids = append(ids, id)
		table.Devices = append(table.Devices, label)
		table.NICNames = append(table.NICNames, nicName{label, id.Name()})
	}
	if len(ids) > maxDevices {
		return nil, pkgerr.Errorf("nvsmi", "%d devices, at most %d fit a matrix", len(ids), maxDevices)
	}
	x := topo.NewIndex(t)
	for i, id := range ids {
		row := tableRow{Name: table.Devices[i], Cells: make([]string, len(ids))}
		for j, other := range ids {
			row.Cells[j] = "?"
			if r, ok := x.Relation(id, other); ok && r.Class.Known() {
				row.Cells[j] = r.Class.String()
			}
		}
		if i < len(t.GPUs) {
			affinityOf(x, &t.GPUs[i], &row)
		}
		table.Rows = append(table.Rows, row)
	}
	return table, nil
}

// NICs are those that nvidia-smi topo -m has of a host: the RDMA devices with hardware. Of a host without
// any they are its software devices and interfaces.
func NICs(t *topo.Topology) []topo.ID {
	all := t.MatrixAxis(topo.KindNIC)
	var hardware []topo.ID
	x := topo.NewIndex(t)
	for _, id := range all {
		if r := x.RDMADevice(id); r != nil && !r.Software {
			hardware = append(hardware, id)
		}
	}
	if hardware == nil {
		return all
	}
	return hardware
}

// affinityOf fills the last three columns of a GPU's row.
func affinityOf(x *topo.Index, g *topo.GPU, row *tableRow) {
	row.CPUAffinity, row.GPUNUMAID = g.CPUAffinity, "N/A"
	if g.NUMA != nil {
		row.NUMAAffinity = strconv.Itoa(*g.NUMA)
		if n := x.NUMANodeAt(*g.NUMA); n != nil && row.CPUAffinity == "" {
			row.CPUAffinity = n.CPUs
		}
	}
	if g.MemoryNUMA != nil {
		row.GPUNUMAID = strconv.Itoa(*g.MemoryNUMA)
	}
}
