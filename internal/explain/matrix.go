package explain

import "github.com/topoctl/topoctl/discover/topo"

// Part is a matrix without the rows and columns that are not wanted.
func Part(m *topo.Matrix, row, col func(topo.MatrixEntry) bool) *topo.Matrix {
	places := func(axis []topo.MatrixEntry, want func(topo.MatrixEntry) bool) (out []int) {
		for i, e := range axis {
			if want(e) {
				out = append(out, i)
			}
		}
		return out
	}
	rows, cols := places(m.Rows, row), places(m.Cols, col)
	return &topo.Matrix{Rows: at(m.Rows, rows), Cols: at(m.Cols, cols), Class: cells(m.Class, rows, cols), NCCL: cells(m.NCCL, rows, cols),
		Rate: cells(m.Rate, rows, cols), Hops: cells(m.Hops, rows, cols), Limit: cells(m.Limit, rows, cols), Basis: cells(m.Basis, rows, cols)}
}

func at[T any](list []T, places []int) []T {
	out := make([]T, len(places))
	for i, p := range places {
		out[i] = list[p]
	}
	return out
}

func cells[T any](grid [][]T, rows, cols []int) [][]T {
	out := at(grid, rows)
	for i := range out {
		out[i] = at(out[i], cols)
	}
	return out
}

// PairRates are rates between the devices that the measured ports are on.
func PairRates(measured map[[2]topo.ID]topo.Rate, x *topo.Index) map[[2]topo.ID]topo.Rate {
	device := func(id topo.ID) topo.ID {
		if p := x.Port(id); p != nil {
			return p.RDMA
		}
		return id
	}
	out := map[[2]topo.ID]topo.Rate{}
	for k, rate := range measured {
		k = [2]topo.ID{device(k[0]), device(k[1])}
		out[k] = max(out[k], rate)
	}
	return out
}

// Measured are the measured rates of a matrix: of a pair of its own, else of the slowest link of the path under the
// rates of g, if that was measured.
func Measured(m *topo.Matrix, g *topo.Graph, pairs map[[2]topo.ID]topo.Rate) [][]*topo.Rate {
	out := make([][]*topo.Rate, len(m.Rows))
	for i, a := range m.Rows {
		out[i] = make([]*topo.Rate, len(m.Cols))
		for j, b := range m.Cols {
			rate, ok := pairs[[2]topo.ID{a.ID, b.ID}]
			if r := g.Relate(a.ID, b.ID); !ok && r.Basis == topo.BasisMeasured && r.BytesPerSec != nil {
				rate, ok = *r.BytesPerSec, true
			}
			if ok {
				out[i][j] = &rate
			}
		}
	}
	return out
}
