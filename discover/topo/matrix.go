package topo

import (
	"encoding/json"
	"strconv"
)

// SchemaMatrix is the name and major version of a matrix document.
const SchemaMatrix = "topoctl.matrix/v1"

// MatrixEntry is one row or column of a matrix.
type MatrixEntry struct {
	ID   ID     `json:"id"`
	Kind Kind   `json:"kind"` // "gpu", "rdma", "netdev" or "numa"
	Name string `json:"name"` // "GPU0", "mlx5_0", "NUMA0"
	BDF  *BDF   `json:"bdf"`
	NUMA *int   `json:"numa_node"`
}

// Matrix holds the relations of every row to every column. All matrices have
// len(Rows) rows of len(Cols) cells.
type Matrix struct {
	Rows  []MatrixEntry
	Cols  []MatrixEntry
	Class [][]Class
	NCCL  [][]NCCLClass
	Rate  [][]*Rate // expected, bytes per second in one direction
	Hops  [][]*int
	Limit [][]LinkID
	Basis [][]Basis
	// Measured are measured rates, nil without a probe's report; a cell is nil where
	// the pair was not measured.
	Measured [][]*Rate
}

// Matrix returns the relations between nodes of the given kinds (KindGPU, KindNIC, KindNUMA) of a
// derived topology, in the order given.
func (t *Topology) Matrix(rows, cols []Kind) *Matrix {
	x := NewIndex(t)
	m := &Matrix{Rows: t.entries(x, rows), Cols: t.entries(x, cols)}
	nr, nc := len(m.Rows), len(m.Cols)
	m.Class, m.NCCL, m.Rate = grid[Class](nr, nc), grid[NCCLClass](nr, nc), grid[*Rate](nr, nc)
	m.Hops, m.Limit, m.Basis = grid[*int](nr, nc), grid[LinkID](nr, nc), grid[Basis](nr, nc)
	for i := range m.Rows {
		for j := range m.Cols {
			a, b := x.axis[m.Rows[i].ID], x.axis[m.Cols[j].ID]
			r := t.Derived.At(a, b)
			m.Class[i][j], m.NCCL[i][j], m.Rate[i][j] = r.Class, r.NCCL, r.BytesPerSec
			m.Hops[i][j], m.Basis[i][j] = r.Hops, r.Basis
			if l := t.Derived.Limit[a][b]; l != nil {
				m.Limit[i][j] = t.Links[*l].ID
			}
		}
	}
	return m
}

func grid[T any](rows, cols int) [][]T {
	out := make([][]T, rows)
	for i := range out {
		out[i] = make([]T, cols)
	}
	return out
}

// entries describes the nodes of the given kinds, in order.
func (t *Topology) entries(x *Index, kinds []Kind) []MatrixEntry {
	out := []MatrixEntry{}
	for _, kind := range kinds {
		for _, id := range t.MatrixAxis(kind) {
			out = append(out, x.entry(id))
		}
	}
	return out
}

func (x *Index) entry(id ID) MatrixEntry {
	switch n := x.Node(id).(type) {
	case *GPU:
		return MatrixEntry{id, KindGPU, "GPU" + strconv.Itoa(n.Index), n.BDF, n.NUMA}
	case *RDMADevice:
		return MatrixEntry{id, KindRDMA, n.Name, n.BDF, n.NUMA}
	case *Netdev:
		return MatrixEntry{id, KindNetdev, n.Name, n.BDF, n.NUMA}
	case *NUMANode:
		return MatrixEntry{id, KindNUMA, "NUMA" + strconv.Itoa(n.Index), nil, &n.Index}
	}
	return MatrixEntry{ID: id, Name: id.Name()}
}

// MarshalJSON writes a topoctl.matrix/v1 document. Unknown cells are null.
func (m *Matrix) MarshalJSON() ([]byte, error) {
	limit := grid[*LinkID](len(m.Rows), len(m.Cols))
	for i, row := range m.Limit {
		for j := range row {
			if row[j] != "" {
				limit[i][j] = &row[j]
			}
		}
	}
	return json.Marshal(struct {
		Schema string        `json:"schema"`
		Rules  string        `json:"rules"`
		Rows   []MatrixEntry `json:"rows"`
		Cols   []MatrixEntry `json:"cols"`
		Class  [][]Class     `json:"class"`
		NCCL   [][]NCCLClass `json:"nccl"`
		Rate   [][]*Rate     `json:"expected_bytes_per_sec"`
		Hops   [][]*int      `json:"hops"`
		Limit  [][]*LinkID   `json:"limit_link"`
		Basis  [][]Basis     `json:"basis"`
		// Only where a probe's report was given.
		Measured [][]*Rate `json:"measured_bytes_per_sec,omitempty"`
	}{SchemaMatrix, Rules, m.Rows, m.Cols, m.Class, m.NCCL, m.Rate, m.Hops, limit, m.Basis, m.Measured})
}
