package hwlocxml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
)

// maxMatrix bounds the objects of a distance matrix.
const maxMatrix = 512

// words joins the texts of an element's children of one name: hwloc writes
// long lists in parts.
func words(e *document.Element, name string) []string {
	var out []string
	for _, c := range e.All(name) {
		out = append(out, strings.Fields(c.Text)...)
	}
	return out
}

// matrixValues reads a matrix of n rows and columns, nil if there is no such matrix.
func (d *decoder) matrixValues(e *document.Element, n int) [][]int64 {
	values := words(e, "u64values")
	if n < 1 || n > maxMatrix || len(values) != n*n {
		d.Warn(topo.CodeMalformed, "", fmt.Sprintf("matrix %.40q of %d objects has %d values: left out", e.Get("name"), n, len(values)), e.Path())
		return nil
	}
	m := make([][]int64, n)
	for i, v := range values {
		x, err := strconv.ParseInt(v, 10, 64)
		if err != nil || x < 0 {
			d.Warn(topo.CodeMalformed, "", fmt.Sprintf("matrix %.40q holds %.20q: left out", e.Get("name"), v), e.Path())
			return nil
		}
		m[i/n] = append(m[i/n], x)
	}
	return m
}

// distances reads the latencies between NUMA nodes, which are SLIT values.
func (d *decoder) distances() {
	nodes := d.NUMANodes
	slices.SortStableFunc(nodes, func(a, b topo.NUMANode) int { return a.Index - b.Index })
	for _, e := range d.root.All("distances2") {
		if e.Get("type") != "NUMANode" || e.Get("name") != "NUMALatency" && e.Get("name") != "" || nodes == nil {
			continue
		}
		indexes := words(e, "indexes")
		m := d.matrixValues(e, len(indexes))
		if m == nil {
			continue
		}
		at := map[string]int{}
		for i, index := range indexes {
			at[index] = i
		}
		d.setDistances(e, func(i, j int) (int64, bool) {
			x, ok1 := at[strconv.Itoa(nodes[i].Index)]
			y, ok2 := at[strconv.Itoa(nodes[j].Index)]
			if !ok1 || !ok2 {
				return 0, false
			}
			return m[x][y], true
		})
		return
	}
	if d.version == 1 {
		d.oldDistances(d.root)
	}
}

// setDistances fills the rows of all NUMA nodes, or none.
func (d *decoder) setDistances(e *document.Element, value func(i, j int) (int64, bool)) {
	nodes := d.NUMANodes
	rows := make([][]int, len(nodes))
	for i := range nodes {
		for j := range nodes {
			v, ok := value(i, j)
			if !ok || v > 1<<20 {
				return
			}
			rows[i] = append(rows[i], int(v))
		}
	}
	for i := range nodes {
		nodes[i].Distances = rows[i]
		nodes[i].Facts.Set("distances", topo.SourceHwloc, e.Path())
	}
}

// oldDistances reads version 1's: relative latencies below the machine, in the
// order of the nodes in the file.
func (d *decoder) oldDistances(e *document.Element) {
	for _, o := range e.All("object") {
		for _, m := range o.All("distances") {
			cells := m.All("latency")
			base, err := strconv.ParseFloat(m.Get("latency_base"), 64)
			n := len(d.NUMANodes)
			if err != nil || m.Get("nbobjs") != strconv.Itoa(n) || len(cells) != n*n {
				continue
			}
			d.setDistances(m, func(i, j int) (int64, bool) {
				v, err := strconv.ParseFloat(cells[i*n+j].Get("value"), 64)
				return int64(v*base + 0.5), err == nil && v >= 0 && v*base < 1<<20
			})
		}
	}
}

// matrices reads the bandwidths between GPUs.
func (d *decoder) matrices() {
	for _, e := range d.root.Children {
		if e.Name != "distances2" && e.Name != "distances2hetero" {
			continue
		}
		switch e.Get("name") {
		case "NVLinkBandwidth":
			d.gpuMatrix(e, topo.LinkNVLink)
		case "XGMIBandwidth":
			d.gpuMatrix(e, topo.LinkXGMI)
		}
	}
}

// gpuMatrix reads MB/s between GPUs and NVSwitches, which are all one end.
func (d *decoder) gpuMatrix(e *document.Element, kind topo.LinkKind) {
	indexes := words(e, "indexes")
	m := d.matrixValues(e, len(indexes))
	if m == nil {
		return
	}
	ends := make([]topo.ID, len(indexes))
	for i, index := range indexes {
		_, gp, hetero := strings.Cut(index, ":")
		if !hetero {
			gp = index
		}
		ends[i] = d.objects[gp]
	}
	sums := map[[2]topo.ID]int64{}
	var order [][2]topo.ID
	for i, a := range ends {
		for j, b := range ends {
			forward := b == topo.FabricID || a != topo.FabricID && i < j
			if a == "" || b == "" || a == b || m[i][j] == 0 || !forward || m[i][j] > 1<<30 {
				continue
			}
			key := [2]topo.ID{a, b}
			if sums[key] == 0 {
				order = append(order, key)
			}
			sums[key] += m[i][j]
		}
	}
	for _, key := range order {
		d.Links = append(d.Links, d.gpuLink(kind, key, sums[key], e.Path()))
	}
}

// gpuLink makes the link of a pair from its MB/s.
func (d *decoder) gpuLink(kind topo.LinkKind, key [2]topo.ID, mbs int64, path string) topo.Link {
	rate := topo.Rate(mbs) * topo.MBPerSec
	l := topo.Link{ID: topo.XGMILinkID(key[0], key[1]), Kind: kind, A: key[0], B: key[1], BytesPerSec: &rate, Basis: topo.BasisRead}
	if kind == topo.LinkNVLink {
		l.ID = topo.NVLinkID(key[0], key[1])
		one := d.nvlinkRate(key[0], mbs)
		l.Count = int(mbs / one)
		l.Basis = topo.BasisTypical
		l.Note = fmt.Sprintf("hwloc's constant of %d MB/s for one link gives the count", one)
	}
	l.Facts.Set("bytes_per_sec", topo.SourceHwloc, path)
	return l
}

// nvlinkRate is hwloc's constant for one NVLink in MB/s: 20000 for the first
// version (P100), 25000 since. Source: hwloc topology-nvml.c.
func (d *decoder) nvlinkRate(gpu topo.ID, mbs int64) int64 {
	for i := range d.GPUs {
		if g := &d.GPUs[i]; g.ID == gpu && strings.Contains(g.Model, "P100") {
			return 20000
		}
	}
	if mbs%25000 != 0 && mbs%20000 == 0 {
		return 20000
	}
	return min(25000, mbs)
}
