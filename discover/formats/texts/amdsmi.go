package texts

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// The text of amd-smi topology: its tables, --json and --csv.
//
// It says for each pair of GPUs whether xGMI or PCIe is between them. It has no NICs and no
// PCIe tree, so of pairs over PCIe it is known at most that their NUMA nodes differ.
// Source: ROCm/amdsmi and ROCm/rocm-systems, amdsmi_cli/amdsmi_commands.py and subcommands/topology.py;
// how hops are meant: docs/how-to/amdsmi-cli-tool.md (rocm-systems pull request 7372).

const sourceAMD topo.Source = "import:amdsmi"

// amdLacks is what no such text tells.
var amdLacks = []string{
	"NICs and network ports",
	"the PCI tree and link rates: between GPUs without xGMI classes are not known, but for different NUMA nodes",
	"NUMA nodes, GPU models and memory",
}

const maxGPUs = 512

// amdTable is what a text holds of one kind, and the word by which JSON and CSV begin its columns.
type amdTable struct{ title, key string }

// The tables that are read.
var (
	linkTypes  = amdTable{"LINK TYPE", "link_type"}
	hops       = amdTable{"HOPS", "hops"}
	weights    = amdTable{"WEIGHT", "weight"}
	bandwidths = amdTable{"NUMA BW", "numa_bandwidth"}
	amdTables  = []amdTable{linkTypes, hops, weights, bandwidths}
)

// otherTables are the titles of those that are not.
var otherTables = isOneOf("ACCESS", "CACHE COHERANCY", "CACHE COHERENCY", "ATOMICS", "DMA", "BI-DIRECTIONAL")

// amdTitle is the title of the table that a line begins, "" for none.
func amdTitle(line string) string {
	title, ok := strings.CutSuffix(strings.TrimSpace(line), " TABLE:")
	if !ok || !otherTables(title) && !slices.ContainsFunc(amdTables, func(t amdTable) bool { return t.title == title }) {
		return ""
	}
	return title
}

// amdReport is a text as it was printed: GPUs in its order, and for each pair of them the word of each
// table, "" if the table has no such cell. Tables go by their titles.
type amdReport struct {
	problems
	gpus  []amdGPU
	cells map[string][][]string
}

type amdGPU struct {
	bdf      topo.BDF
	evidence string
}

// csvHead begins what --csv prints.
const csvHead = "gpu,bdf,"

func detectAMD(head []byte) bool {
	trimmed := bytes.TrimSpace(head)
	switch {
	case isDocument(trimmed):
		return false
	case bytes.HasPrefix(trimmed, []byte("[")):
		return bytes.Contains(trimmed, []byte(`"bdf"`)) && (bytes.Contains(trimmed, []byte(`"links"`)) || bytes.Contains(trimmed, []byte(`"gpu_0"`)))
	}
	return bytes.HasPrefix(trimmed, []byte(csvHead)) || slices.ContainsFunc(lines(head), func(line string) bool { return amdTitle(line) != "" })
}

func decodeAMD(data []byte) (*topo.Topology, error) {
	r := &amdReport{cells: map[string][][]string{}}
	var err error
	switch trimmed := bytes.TrimSpace(data); {
	case bytes.HasPrefix(trimmed, []byte("[")):
		err = r.parseJSON(data)
	case bytes.HasPrefix(trimmed, []byte(csvHead)):
		err = r.parseCSV(trimmed)
	default:
		err = r.parseTables(data)
	}
	if err == nil && len(r.cells) == 0 {
		err = errors.New("no table of link types, hops or weights: not the text of amd-smi topology")
	}
	if err != nil {
		return nil, pkgerr.Errorf("texts", "%w", err)
	}
	return r.topology()
}

// place is where a GPU is in the report, -1 for one that it does not have.
func (r *amdReport) place(bdf topo.BDF) int {
	return slices.IndexFunc(r.gpus, func(g amdGPU) bool { return g.bdf == bdf })
}

// addGPU adds one that is new.
func (r *amdReport) addGPU(address, evidence string) error {
	bdf, err := topo.ParseBDF(address)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %.40q is no PCI address", evidence, address)
	case r.place(bdf) >= 0:
		return fmt.Errorf("%s: a second GPU at %s", evidence, bdf)
	case len(r.gpus) == maxGPUs:
		return fmt.Errorf("%s: more than %d GPUs, which are not read", evidence, maxGPUs)
	}
	r.gpus = append(r.gpus, amdGPU{bdf, evidence})
	return nil
}

// set sets the word of a pair in a table; "" says nothing.
func (r *amdReport) set(table amdTable, i, j int, w string) {
	if w != "" {
		r.row(table.title, i)[j] = w
	}
}

// row is that of a GPU in a table.
func (r *amdReport) row(title string, i int) []string {
	if r.cells[title] == nil {
		r.cells[title] = make([][]string, len(r.gpus))
	}
	if r.cells[title][i] == nil {
		r.cells[title][i] = make([]string, len(r.gpus))
	}
	return r.cells[title][i]
}

func (r *amdReport) cell(table amdTable, i, j int) string {
	if rows := r.cells[table.title]; i < len(rows) && j < len(rows[i]) {
		return rows[i][j]
	}
	return ""
}

// count is the number in a cell, 0 if it is not a number.
func (r *amdReport) count(table amdTable, i, j int) int { return orZero(number(r.cell(table, i, j))) }

func (r *amdReport) topology() (*topo.Topology, error) {
	h := begin(sourceAMD, r.problems, amdLacks...)
	h.Warn(topo.CodeLossyImport, "", "amd-smi topology tells xGMI from PCIe between GPUs, and nothing of NICs and the PCIe tree", "")
	order := make([]int, len(r.gpus)) // gpu:N counts in PCI order
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return r.gpus[a].bdf.Compare(r.gpus[b].bdf) })
	a := &topo.Asserted{Source: sourceAMD, Class: make([][]topo.Class, len(order))}
	for n, i := range order {
		g := topo.GPU{Node: topo.Node{ID: topo.GPUID(n), Evidence: r.gpus[i].evidence}, Index: n, BDF: &r.gpus[i].bdf, Vendor: "amd", KnownFrom: "import"}
		g.Facts.Set("bdf", sourceAMD, "")
		g.Facts.Set("vendor", topo.SourceDerived, "the tool")
		h.GPUs = append(h.GPUs, g)
		a.Axis, a.Class[n] = append(a.Axis, g.ID), make([]topo.Class, len(order))
	}
	for n, i := range order {
		a.Class[n][n] = topo.Class{Kind: topo.ClassSelf}
		for m, j := range order[:n] {
			there, back := r.class(i, j), r.class(j, i)
			class := there
			switch {
			case !there.Known():
				class = back
			case back.Known() && back != there:
				h.Warn(topo.CodeConflict, h.GPUs[m].ID, fmt.Sprintf("its row says %s to %s, whose row says %s: taken as unknown", back, h.GPUs[n].ID, there), r.gpus[j].evidence)
				class = topo.Class{}
			}
			a.Class[n][m], a.Class[m][n] = class, class
			if class.Kind == topo.ClassXGMI {
				ends := slices.Concat(r.xgmi(i, j), r.xgmi(j, i))
				h.Links = append(h.Links, gpulink.XGMI(&h.GPUs[m], &h.GPUs[n], ends, sourceAMD, "LINK TYPE, WEIGHT, NUMA BW"))
			}
		}
	}
	h.Asserted = a
	return finish(h, fmt.Sprintf("%d GPUs", len(r.gpus)))
}

// class is what a text says of the way from one GPU to another. Hops are no links: 1 is xGMI however
// many GPUs are crossed, 2 is PCIe within a NUMA node, more is PCIe between nodes.
func (r *amdReport) class(i, j int) topo.Class {
	kind, steps := r.cell(linkTypes, i, j), r.count(hops, i, j)
	switch {
	case kind == "XGMI", kind == "" && steps == 1:
		return topo.Class{Kind: topo.ClassXGMI}
	case (kind == "PCIE" || kind == "") && steps >= 3:
		return topo.Class{Kind: topo.ClassSYS}
	}
	return topo.Class{}
}

var amdRates = regexp.MustCompile(`^([0-9]{1,9})-([0-9]{1,9})$`)

// xgmi is what one end says of the link; nothing where no row says anything.
func (r *amdReport) xgmi(i, j int) []gpulink.XGMIEnd {
	if r.cell(linkTypes, i, j) == "" && r.cell(hops, i, j) == "" {
		return nil
	}
	least, most := 0, 0
	if m := amdRates.FindStringSubmatch(r.cell(bandwidths, i, j)); m != nil {
		least, most = orZero(number(m[1])), orZero(number(m[2]))
	}
	if most > gpulink.MaxMBs {
		least, most = 0, 0
	}
	return []gpulink.XGMIEnd{gpulink.NewXGMI(uint64(least), uint64(most), uint64(r.count(weights, i, j)))}
}

// parseTables reads tables, each with a title, a line of addresses and a line for each GPU. A table that is
// there again says the same, or is another host's.
func (r *amdReport) parseTables(data []byte) error {
	title, start := "", 0 // of the table that the line is in, "" outside
	began := map[string]int{}
	var columns []int // of the table, as places in r.gpus; nil before the line of addresses
	for i, text := range lines(data) {
		line, words := i+1, strings.Fields(text)
		if t := amdTitle(text); t != "" {
			title, columns, start = t, nil, line
			if before, again := began[t]; !again {
				began[t] = line
			} else if !otherTables(t) {
				r.add(topo.CodeMalformed, "line %d: a second %s table, beside that of line %d: read once", line, t, before)
			}
			continue
		}
		if title == "" || otherTables(title) || len(words) == 0 {
			continue
		}
		if columns == nil {
			var err error
			if columns, err = r.columns(words, line); err != nil {
				return err
			}
			continue
		}
		bdf, err := topo.ParseBDF(words[0])
		at := r.place(bdf)
		switch {
		case err != nil:
			title = "" // the legend, or something else
		case at < 0:
			r.add(topo.CodeMalformed, "line %d: %s is no column's GPU: line not read", line, bdf)
		case len(words)-1 != len(columns):
			r.add(topo.CodeMalformed, "line %d: %d cells for %d columns of the %s table: not read", line, len(words)-1, len(columns), title)
		default:
			cells := make([]string, len(r.gpus))
			for i, column := range columns {
				cells[column] = words[1+i]
			}
			row := r.row(title, at)
			if strings.Join(row, "") != "" && !slices.Equal(row, cells) {
				return fmt.Errorf("lines %d and %d begin %s tables that differ, "+twoHosts, began[title], start, title)
			}
			copy(row, cells)
		}
	}
	return nil
}

// columns reads the line of addresses. All tables of a text are of the same GPUs.
func (r *amdReport) columns(words []string, line int) (out []int, err error) {
	fresh := len(r.gpus) == 0
	for _, w := range words {
		if fresh {
			if err := r.addGPU(w, where(line)); err != nil {
				return nil, err
			}
		}
		bdf, err := topo.ParseBDF(w)
		at := r.place(bdf)
		if err != nil || at < 0 || slices.Contains(out, at) {
			return nil, fmt.Errorf("%s: %.40q is no GPU of the tables above, or is there twice: want the tables of one host", where(line), w)
		}
		out = append(out, at)
	}
	return out, nil
}

// amdWord is a number or a text: amd-smi writes "N/A" where it has no number.
type amdWord string

// UnmarshalJSON takes either.
func (w *amdWord) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*w = amdWord(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("%.40s: want a number or a text", data)
	}
	*w = amdWord(n)
	return nil
}

// amdEntry is a GPU of --json. Links are a list since ROCm 6.3; before, each table was an object by GPU.
type amdEntry struct {
	GPU   amdWord `json:"gpu"`
	BDF   string  `json:"bdf"`
	Links []struct {
		BDF       string  `json:"bdf"`
		Type      amdWord `json:"link_type"`
		Hops      amdWord `json:"num_hops"`
		Weight    amdWord `json:"weight"`
		Bandwidth amdWord `json:"bandwidth"`
	} `json:"links"`
	Type      map[string]amdWord `json:"link_type"`
	Hops      map[string]amdWord `json:"hops"`
	Weight    map[string]amdWord `json:"weight"`
	Bandwidth map[string]amdWord `json:"numa_bandwidth"`
}

func (r *amdReport) parseJSON(data []byte) error {
	list, err := readJSON[amdEntry](data, maxGPUs)
	if err != nil {
		return err
	}
	byKey := map[string]int{}
	for i := range list {
		if err := r.addGPU(list[i].BDF, fmt.Sprintf("element %d", i)); err != nil {
			return err
		}
		byKey["gpu_"+string(list[i].GPU)] = i
	}
	for i := range list {
		e := &list[i]
		for n := range e.Links {
			link := &e.Links[n]
			bdf, err := topo.ParseBDF(link.BDF)
			at := r.place(bdf)
			if err != nil || at < 0 {
				r.add(topo.CodeMalformed, "element %d, link %d: %.40q is no GPU of the list: not read", i, n, link.BDF)
				continue
			}
			for k, w := range []amdWord{link.Type, link.Hops, link.Weight, link.Bandwidth} {
				r.set(amdTables[k], i, at, string(w))
			}
		}
		for k, cells := range []map[string]amdWord{e.Type, e.Hops, e.Weight, e.Bandwidth} {
			for key, w := range cells {
				if at, ok := byKey[key]; ok {
					r.set(amdTables[k], i, at, string(w))
				}
			}
		}
	}
	return nil
}

// parseCSV reads --csv, whose columns are called by table and GPU: "link_type_gpu_1".
func (r *amdReport) parseCSV(data []byte) error {
	in := csv.NewReader(bytes.NewReader(data))
	head, err := in.Read()
	if err != nil {
		return err
	}
	if len(head) > maxGPUs*16 {
		return fmt.Errorf("line 1: %d columns, which are not read", len(head))
	}
	var rows [][]string
	byKey := map[string]int{}
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		line, _ := in.FieldPos(0)
		if err := r.addGPU(fields[1], where(line)); err != nil {
			return err
		}
		byKey["gpu_"+fields[0]] = len(rows)
		rows = append(rows, fields)
	}
	for column, name := range head {
		for _, table := range amdTables {
			key, ok := strings.CutPrefix(name, table.key+"_")
			if at, known := byKey[key]; ok && known {
				for i, fields := range rows {
					r.set(table, i, at, fields[column])
				}
			}
		}
	}
	return nil
}
