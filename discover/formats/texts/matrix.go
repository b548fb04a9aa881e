package texts

import (
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// The matrices that vendor tools print: the text of nvidia-smi topo -m (with NICs, any driver since 2016),
// of nvidia-smi topo -p2p, and of rocm-smi --showtopo.
//
// Such a text states classes without the tree behind them, so a topology made
// from it carries asserted classes, no PCI devices and no link rates.

// tableKind says which tool's matrix a table is.
type tableKind string

// The kinds of table.
const (
	kindTopo tableKind = "topo" // nvidia-smi topo -m: classes
	kindP2P  tableKind = "p2p"  // nvidia-smi topo -p2p: peer access states
	kindROCm tableKind = "rocm" // rocm-smi --showtopotype: link types
	// rocm-smi --showtopohops and --showtopoweight.
	kindNumbers tableKind = "numbers"
)

// matrix is a matrix as it was printed. Cells are kept as written.
type matrix struct {
	Kind     tableKind
	Line     int        // of the column heads, from 1
	Title    string     // "Link Type", "Hops", "Weight" of rocm-smi; "" for none
	Devices  []string   // column heads: "GPU0", "NIC0", or NIC names in old drivers
	Rows     []tableRow // published texts may lack rows
	NICNames []nicName
	// Affinities is how many of the columns CPU Affinity, NUMA Affinity and GPU
	// NUMA ID there are, in this order; it grew with the driver's age.
	Affinities int
	// Across are the pairs of devices whose NUMA nodes differ, as rocm-smi's table of hops says.
	Across   map[[2]string]bool
	Problems problems
}

// tableRow is one device's line.
type tableRow struct {
	Name         string
	Line         int      // in the text, from 1
	Cells        []string // one per device; "" where the row was cut short
	CPUAffinity  string   // list form; "" where blank
	NUMAAffinity string
	GPUNUMAID    string
}

// nicName is one entry of the "NIC Legend".
type nicName struct{ Label, Name string }

// row finds a device's line.
func (t *matrix) row(name string) *tableRow {
	for i := range t.Rows {
		if t.Rows[i].Name == name {
			return &t.Rows[i]
		}
	}
	return nil
}

// nicName is the RDMA device behind a column head.
func (t *matrix) nameOf(label string) string {
	for _, n := range t.NICNames {
		if n.Label == label {
			return n.Name
		}
	}
	return label
}

// detectMatrix finds column heads that start with a GPU, and a row of one of them.
func detectMatrix(head []byte) bool {
	if isDocument(head) {
		return false
	}
	found, err := matrices(lines(head))
	return err != nil || slices.ContainsFunc(found, (*matrix).readable)
}

func decodeMatrix(data []byte) (*topo.Topology, error) {
	table, err := parseMatrix(data)
	if err != nil {
		return nil, err
	}
	return table.topology()
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
