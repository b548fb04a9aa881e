// Package amdsmi reads what amd-smi topology prints: its tables, --json and --csv.
//
// Such a text says for each pair of GPUs whether xGMI or PCIe is between them. It has no NICs and no
// PCIe tree, so of pairs over PCIe it is known at most that their NUMA nodes differ.
// Source: ROCm/amdsmi and ROCm/rocm-systems, amdsmi_cli/amdsmi_commands.py and subcommands/topology.py;
// how hops are meant: docs/how-to/amdsmi-cli-tool.md (rocm-systems pull request 7372).
package amdsmi

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// source is the origin of such a topology, and of its facts.
const source topo.Source = "import:amdsmi"

const maxGPUs = 512

// table is what a text holds of one kind.
type table string

// The tables that are read.
const (
	linkTypes  table = "LINK TYPE"
	hops       table = "HOPS"
	weights    table = "WEIGHT"
	bandwidths table = "NUMA BW"
)

// report is a text as it was printed: GPUs in its order, and for each pair of them the word of each
// table, "" if the table has no such cell.
type report struct {
	gpus     []gpu
	cells    map[table][][]string
	problems []string // what could not be understood, each with its place
}

type gpu struct {
	bdf   topo.BDF
	where string
}

// Detect says whether head, the first bytes of a text, looks like one of amd-smi topology.
func Detect(head []byte) bool {
	trimmed := bytes.TrimSpace(head)
	switch {
	case len(trimmed) == 0 || trimmed[0] == '<' || trimmed[0] == '{':
		return false
	case trimmed[0] == '[':
		return bytes.Contains(trimmed, []byte(`"bdf"`)) && (bytes.Contains(trimmed, []byte(`"links"`)) || bytes.Contains(trimmed, []byte(`"gpu_0"`)))
	case bytes.HasPrefix(trimmed, []byte(csvHead)):
		return true
	}
	for line := range bytes.Lines(head) {
		if titleOf(string(line)) != "" {
			return true
		}
	}
	return false
}

// Decode reads a text; its relations are derived.
func Decode(data []byte) (*topo.Topology, error) {
	var r *report
	var err error
	switch trimmed := bytes.TrimSpace(data); {
	case len(trimmed) > 0 && trimmed[0] == '[':
		r, err = parseJSON(data)
	case bytes.HasPrefix(trimmed, []byte(csvHead)):
		r, err = parseCSV(trimmed)
	default:
		r, err = parseText(data)
	}
	if err != nil {
		return nil, pkgerr.Errorf("amdsmi", "%w", err)
	}
	return r.topology(), nil
}

// add gives the place of a GPU, which is new.
func (r *report) add(bdf, where string) error {
	b, err := topo.ParseBDF(bdf)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %.40q is no PCI address", where, bdf)
	case slices.ContainsFunc(r.gpus, func(g gpu) bool { return g.bdf == b }):
		return fmt.Errorf("%s: a second GPU at %s", where, b)
	case len(r.gpus) == maxGPUs:
		return fmt.Errorf("%s: more than %d GPUs, which are not read", where, maxGPUs)
	}
	r.gpus = append(r.gpus, gpu{b, where})
	return nil
}

// row sets the words of a GPU in a table.
func (r *report) row(kind table, at int, words []string) {
	if r.cells == nil {
		r.cells = map[table][][]string{}
	}
	if r.cells[kind] == nil {
		r.cells[kind] = make([][]string, len(r.gpus))
	}
	r.cells[kind][at] = words
}

func (r *report) cell(kind table, i, j int) string {
	if rows := r.cells[kind]; i < len(rows) && j < len(rows[i]) {
		return rows[i][j]
	}
	return ""
}

// maxProblems bounds what a text that is mostly something else can cause.
const maxProblems = 32

func (r *report) problem(format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, fmt.Sprintf(format, args...))
	}
}

// lacks is what no such text tells.
var lacks = []string{
	"NICs and network ports",
	"the PCI tree and link rates: between GPUs without xGMI classes are not known, but for different NUMA nodes",
	"NUMA nodes, GPU models and memory",
}

func (r *report) topology() *topo.Topology {
	t := &topo.Topology{Origin: string(source)}
	t.Host.Lacks = slices.Clone(lacks)
	order := make([]int, len(r.gpus)) // gpu:N counts in PCI order
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return r.gpus[a].bdf.Compare(r.gpus[b].bdf) })
	for n, i := range order {
		bdf := r.gpus[i].bdf
		g := topo.GPU{Node: topo.Node{ID: topo.GPUID(n), Evidence: r.gpus[i].where}, Index: n, BDF: &bdf, Vendor: "amd", KnownFrom: "import"}
		g.Facts.Set("bdf", source, "")
		g.Facts.Set("vendor", topo.SourceDerived, "the tool")
		t.GPUs = append(t.GPUs, g)
	}
	warn := func(code topo.Code, subject topo.ID, detail, evidence string) {
		t.Warnings = append(t.Warnings, topo.Warning{Code: code, Subject: subject, Detail: detail, Evidence: evidence, Source: source})
	}
	for _, p := range r.problems {
		warn(topo.CodeMalformed, "", p, "")
	}
	warn(topo.CodeLossyImport, "", "amd-smi topology tells xGMI from PCIe between GPUs, and nothing of NICs and the PCIe tree", "")
	a := &topo.Asserted{Source: source, Class: make([][]topo.Class, len(order))}
	for n := range order {
		a.Axis = append(a.Axis, t.GPUs[n].ID)
		a.Class[n] = make([]topo.Class, len(order))
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
				warn(topo.CodeConflict, t.GPUs[m].ID, fmt.Sprintf("its row says %s to %s, whose row says %s: taken as unknown", back, t.GPUs[n].ID, there), r.gpus[j].where)
				class = topo.Class{}
			}
			a.Class[n][m], a.Class[m][n] = class, class
			if class.Kind == topo.ClassXGMI {
				ends := slices.Concat(r.xgmi(i, j), r.xgmi(j, i))
				t.Links = append(t.Links, gpulink.XGMI(&t.GPUs[m], &t.GPUs[n], ends, source, "LINK TYPE, WEIGHT, NUMA BW"))
			}
		}
	}
	t.Asserted = a
	t.Complete = !slices.ContainsFunc(t.Warnings, topo.Warning.Partial)
	status := topo.StatusOK
	if !t.Complete {
		status = topo.StatusPartial
	}
	t.Sources = []topo.SourceReport{{Source: source, Status: status, Detail: fmt.Sprintf("%d GPUs", len(r.gpus))}}
	t.Derive()
	return t
}

// class is what a text says of the way from one GPU to another. Hops are no links: 1 is xGMI however
// many GPUs are crossed, 2 is PCIe within a NUMA node, more is PCIe between nodes.
func (r *report) class(i, j int) topo.Class {
	kind, steps := r.cell(linkTypes, i, j), number(r.cell(hops, i, j))
	switch {
	case kind == "XGMI", kind == "" && steps == 1:
		return topo.Class{Kind: topo.ClassXGMI}
	case (kind == "PCIE" || kind == "") && steps >= 3:
		return topo.Class{Kind: topo.ClassSYS}
	}
	return topo.Class{}
}

var rates = regexp.MustCompile(`^([0-9]{1,9})-([0-9]{1,9})$`)

// xgmi is one end's word on the link; nothing where no row has any.
func (r *report) xgmi(i, j int) []gpulink.XGMIEnd {
	if r.cell(linkTypes, i, j) == "" && r.cell(hops, i, j) == "" {
		return nil
	}
	least, most := uint64(0), uint64(0)
	if m := rates.FindStringSubmatch(r.cell(bandwidths, i, j)); m != nil {
		least, most = number(m[1]), number(m[2])
	}
	if most > gpulink.MaxMBs {
		least, most = 0, 0
	}
	return []gpulink.XGMIEnd{gpulink.NewXGMI(least, most, number(r.cell(weights, i, j)))}
}

// number is 0 for a text that is no number.
func number(s string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 31)
	if err != nil {
		return 0
	}
	return n
}
