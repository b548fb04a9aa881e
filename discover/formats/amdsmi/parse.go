package amdsmi

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
)

var errNone = errors.New("no table of link types, hops or weights: not the text of amd-smi topology")

// titles are all tables that amd-smi prints; those that are not read have the name "other".
var titles = map[string]table{
	"LINK TYPE TABLE:": linkTypes, "HOPS TABLE:": hops, "WEIGHT TABLE:": weights, "NUMA BW TABLE:": bandwidths,
	"ACCESS TABLE:": "other", "CACHE COHERANCY TABLE:": "other", "CACHE COHERENCY TABLE:": "other", "ATOMICS TABLE:": "other",
	"DMA TABLE:": "other", "BI-DIRECTIONAL TABLE:": "other",
}

// titleOf is the table that a line begins, "" for none.
func titleOf(line string) table { return titles[strings.TrimSpace(line)] }

// parseText reads tables, each with a title, a line of addresses and a line for each GPU. A table that is
// there again says the same, or is another host's.
func parseText(data []byte) (*report, error) {
	r := &report{}
	kind := table("") // of the table that the line is in, "" outside
	began := map[table]int{}
	start := 0        // line of its title
	var columns []int // its columns as places in r.gpus; nil before the line of addresses
	line := 0
	for raw := range bytes.Lines(data) {
		line++
		text := string(raw)
		words := strings.Fields(text)
		if title := titleOf(text); title != "" {
			kind, columns, start = title, nil, line
			if before, again := began[kind]; !again {
				began[kind] = line
			} else if kind != "other" {
				r.problem("line %d: a second %s table, beside that of line %d: read once", line, kind, before)
			}
			continue
		}
		if kind == "" || kind == "other" || len(words) == 0 {
			continue
		}
		if columns == nil {
			var err error
			if columns, err = r.columns(words, line); err != nil {
				return nil, err
			}
			continue
		}
		bdf, err := topo.ParseBDF(words[0])
		at := slices.IndexFunc(r.gpus, func(g gpu) bool { return g.bdf == bdf })
		switch {
		case err != nil:
			kind = "" // the legend, or something else
		case at < 0:
			r.problem("line %d: %s is no column's GPU: line not read", line, bdf)
		case len(words)-1 != len(columns):
			r.problem("line %d: %d cells for %d columns of the %s table: not read", line, len(words)-1, len(columns), kind)
		default:
			cells := make([]string, len(r.gpus))
			for i, column := range columns {
				cells[column] = words[1+i]
			}
			if rows := r.cells[kind]; at < len(rows) && rows[at] != nil && !slices.Equal(rows[at], cells) {
				return nil, fmt.Errorf("lines %d and %d begin %s tables that differ, of two hosts or of one host at two times: give each a file", began[kind], start, kind)
			}
			r.row(kind, at, cells)
		}
	}
	if len(r.cells) == 0 {
		return nil, errNone
	}
	return r, nil
}

// columns reads the line of addresses. All tables of a text are of the same GPUs.
func (r *report) columns(words []string, line int) ([]int, error) {
	where := fmt.Sprintf("line %d", line)
	fresh := len(r.gpus) == 0
	var out []int
	for _, word := range words {
		if fresh {
			if err := r.add(word, where); err != nil {
				return nil, err
			}
		}
		bdf, err := topo.ParseBDF(word)
		at := slices.IndexFunc(r.gpus, func(g gpu) bool { return g.bdf == bdf })
		if err != nil || at < 0 || slices.Contains(out, at) {
			return nil, fmt.Errorf("%s: %.40q is no GPU of the tables above, or is there twice: want the tables of one host", where, word)
		}
		out = append(out, at)
	}
	return out, nil
}

// word is a number or a text: amd-smi writes "N/A" where it has no number.
type word string

// UnmarshalJSON takes either.
func (w *word) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*w = word(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("%.40s: want a number or a text", data)
	}
	*w = word(n)
	return nil
}

// entry is a GPU of --json. Links are a list since ROCm 6.3; before, each table was an object by GPU.
type entry struct {
	GPU   word   `json:"gpu"`
	BDF   string `json:"bdf"`
	Links []struct {
		BDF       string `json:"bdf"`
		Type      word   `json:"link_type"`
		Hops      word   `json:"num_hops"`
		Weight    word   `json:"weight"`
		Bandwidth word   `json:"bandwidth"`
	} `json:"links"`
	Type      map[string]word `json:"link_type"`
	Hops      map[string]word `json:"hops"`
	Weight    map[string]word `json:"weight"`
	Bandwidth map[string]word `json:"numa_bandwidth"`
}

// limits bound a document before it is decoded.
var limits = document.Limits{Bytes: 64 << 20, Text: 4096, Elements: maxGPUs * (maxGPUs + 1), Depth: 8}

func parseJSON(data []byte) (*report, error) {
	if err := limits.Check(data); err != nil {
		return nil, err
	}
	in := document.NewReader(data)
	var list []entry
	err := document.ReadList(in, &list, maxGPUs, 0, nil)
	if err == nil {
		err = in.End()
	}
	if err != nil {
		return nil, in.Locate(err)
	}
	r := &report{}
	byKey, byBDF := map[string]int{}, map[topo.BDF]int{}
	for i := range list {
		if err := r.add(list[i].BDF, fmt.Sprintf("element %d", i)); err != nil {
			return nil, err
		}
		byKey["gpu_"+string(list[i].GPU)], byBDF[r.gpus[i].bdf] = i, i
	}
	for i := range list {
		e := &list[i]
		words := map[table][]string{}
		set := func(kind table, at int, w word) {
			if w == "" {
				return
			}
			if words[kind] == nil {
				words[kind] = make([]string, len(list))
			}
			words[kind][at] = string(w)
		}
		for n := range e.Links {
			link := &e.Links[n]
			bdf, err := topo.ParseBDF(link.BDF)
			at, ok := byBDF[bdf]
			if err != nil || !ok {
				r.problem("element %d, link %d: %.40q is no GPU of the list: not read", i, n, link.BDF)
				continue
			}
			for kind, w := range map[table]word{linkTypes: link.Type, hops: link.Hops, weights: link.Weight, bandwidths: link.Bandwidth} {
				set(kind, at, w)
			}
		}
		for kind, cells := range map[table]map[string]word{linkTypes: e.Type, hops: e.Hops, weights: e.Weight, bandwidths: e.Bandwidth} {
			for key, w := range cells {
				if at, ok := byKey[key]; ok {
					set(kind, at, w)
				}
			}
		}
		for kind, cells := range words {
			r.row(kind, i, cells)
		}
	}
	if len(r.cells) == 0 {
		return nil, errNone
	}
	return r, nil
}

// csvHead begins what --csv prints.
const csvHead = "gpu,bdf,"

// csvTables are the columns of --csv, to which the GPU's key is added: "link_type_gpu_1".
var csvTables = map[string]table{"link_type_": linkTypes, "hops_": hops, "weight_": weights, "numa_bandwidth_": bandwidths}

func parseCSV(data []byte) (*report, error) {
	in := csv.NewReader(bytes.NewReader(data))
	head, err := in.Read()
	if err != nil {
		return nil, err
	}
	if len(head) > maxGPUs*16 {
		return nil, fmt.Errorf("line 1: %d columns, which are not read", len(head))
	}
	r := &report{}
	var rows [][]string
	byKey := map[string]int{}
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		if err := r.add(fields[1], fmt.Sprintf("line %d", line)); err != nil {
			return nil, err
		}
		byKey["gpu_"+fields[0]] = len(rows)
		rows = append(rows, fields)
	}
	for i, fields := range rows {
		for prefix, kind := range csvTables {
			cells := make([]string, len(rows))
			found := false
			for column, name := range head {
				key, ok := strings.CutPrefix(name, prefix)
				if at, known := byKey[key]; ok && known {
					cells[at], found = fields[column], true
				}
			}
			if found {
				r.row(kind, i, cells)
			}
		}
	}
	if len(r.cells) == 0 {
		return nil, errNone
	}
	return r, nil
}
