package nvsmi

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxDevices bounds the columns of a matrix: far more than any machine has.
const maxDevices = 512

var (
	gpuName   = regexp.MustCompile(`^GPU(0|[1-9][0-9]{0,3})$`)
	device    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]{0,63}$`)
	cellWord  = regexp.MustCompile(`^([A-Z]{1,8}|NV[0-9]{1,3}|[CP]2C|\?)$`) // not NVME0, a column of some machines
	cpuTitle  = regexp.MustCompile(`\bCPU( Affinity)?\b`)
	quoted    = regexp.MustCompile(`^[ \t]*(?:>[ \t]?)+`)
	nicEntry  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_]{0,31}):\s+([!-~]{1,64})$`)
	rocmNUMA  = regexp.MustCompile(`^GPU\[([0-9]{1,4})\]\s*:\s*\(Topology\) Numa Affinity:\s*([0-9]{1,6})$`)
	ansi      = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	gluedHead = regexp.MustCompile(`^((GPU|NIC)[0-9]{1,4}|mlx[45]_[0-9]{1,4})+$`)
	headWord  = regexp.MustCompile(`(GPU|NIC)[0-9]{1,4}|mlx[45]_[0-9]{1,4}`)
	gluedRow  = regexp.MustCompile(`^(XGMI|X|SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?|C2C)+$`)
	rowWord   = regexp.MustCompile(`XGMI|X|SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?|C2C`)
	p2pWords  = []string{"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}
	rocmWords = []string{"0", "XGMI", "PCIE", "N/A"}
)

// lines gives the text's lines without what editors, terminals, mail and Markdown put around them: a
// byte order mark, escapes, line ends of Windows, and the marks of a quotation.
func lines(data []byte) []string {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	out := strings.Split(string(ansi.ReplaceAll(data, nil)), "\n")
	for i, l := range out {
		out[i] = strings.TrimRight(l[len(quoted.FindString(l)):], "\r")
	}
	return out
}

// parse reads the first matrix of a text. Lines before it, comments ("#") and
// legends are passed over; of rocm-smi's tables the one of link types is taken.
func parse(data []byte) (*matrix, error) {
	all := lines(data)
	start, header := findHeader(all)
	if header == nil {
		if bytes.IndexByte(data, 0) >= 0 {
			return nil, errors.New("nvsmi: binary data, not the text of nvidia-smi topo -m")
		}
		return nil, errors.New("nvsmi: no line with column heads (GPU0 ...): not a matrix of nvidia-smi topo or rocm-smi --showtopo")
	}
	if len(header.devices) > maxDevices {
		return nil, fmt.Errorf("nvsmi: line %d: %d columns, at most %d are read", start+1, len(header.devices), maxDevices)
	}
	t := &matrix{Devices: header.devices, Affinities: header.affinity, Kind: kindTopo}
	for i, d := range t.Devices {
		if slices.Contains(t.Devices[:i], d) {
			return nil, fmt.Errorf("nvsmi: line %d: two columns are called %q", start+1, d)
		}
	}
	isROCm := slices.ContainsFunc(all[:start], func(l string) bool {
		return strings.Contains(l, "ROCm") || strings.Contains(l, "Link Type between two GPUs")
	})
	if isROCm {
		t.Kind = kindROCm
	}
	end := t.parseRows(all, start+1)
	if len(t.Rows) == 0 {
		return nil, fmt.Errorf("nvsmi: line %d: column heads without a row below: truncated?", start+1)
	}
	t.Kind = t.guessKind()
	t.parseLegend(all[end:])
	if t.Kind == kindROCm {
		t.parseHops(all)
	}
	return t, nil
}

// header is the line of column heads.
type header struct {
	devices  []string
	affinity int // CPU Affinity, NUMA Affinity, GPU NUMA ID: how many are there
}

// findHeader gives the index of the header line. Of the tables of rocm-smi the
// one titled "Link Type" is meant.
func findHeader(all []string) (int, *header) {
	title := 0
	for i, l := range all {
		if strings.Contains(l, "Link Type between two GPUs") {
			title = i
			break
		}
	}
	for i := title; i < len(all); i++ {
		if h, ok := parseHeader(all[i]); ok {
			return i, &h
		}
	}
	return 0, nil
}

// parseHeader reads a line of column heads: device names, the first a GPU,
// followed by up to three affinity titles.
func parseHeader(line string) (header, bool) {
	h := header{}
	if at := cpuTitle.FindStringIndex(line); at != nil {
		h.affinity = 1
		switch titles := line[at[1]:]; { // "NUMA" and "GPU NUMA" where someone made them narrower
		case strings.Contains(titles, "GPU NUMA"):
			h.affinity = 3
		case strings.Contains(titles, "NUMA"):
			h.affinity = 2
		}
		line = line[:at[0]]
	}
	for _, word := range strings.Fields(line) {
		h.devices = append(h.devices, unglue(word, gluedHead, headWord)...)
	}
	if len(h.devices) == 0 || !gpuName.MatchString(h.devices[0]) {
		return header{}, false
	}
	for _, d := range h.devices {
		if !device.MatchString(d) || !strings.ContainsAny(d, "0123456789") || isClassWord(d) {
			return header{}, false
		}
	}
	return h, true
}

// isCell tells matrix cells from device names and numbers: "X", "PIX", "NV18",
// "GNS", and rocm-smi's "0".
func (t *matrix) isCell(word string) bool {
	return isClassWord(word) || t.Kind == kindROCm && slices.Contains(rocmWords, word)
}

func isClassWord(word string) bool {
	return cellWord.MatchString(word) && !gpuName.MatchString(word) && !strings.HasPrefix(word, "NIC")
}

// parseRows reads lines that start with a column's name, up to the legend, and
// gives the index of the first line after them.
func (t *matrix) parseRows(all []string, from int) int {
	for i := from; i < len(all); i++ {
		line := strings.TrimLeft(all[i], " \t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case strings.HasPrefix(line, "Legend"), strings.HasPrefix(line, "NIC Legend"), strings.HasPrefix(line, "===="), strings.HasPrefix(line, "```"):
			return i
		}
		if h, again := parseHeader(line); again && len(h.devices) > 1 {
			t.problem("line %d: a second matrix is not read", i+1)
			return i
		}
		name, rest := cutWord(line)
		if !slices.Contains(t.Devices, name) {
			t.problem("line %d: %q is no column's name: line not read", i+1, clip(name))
			continue
		}
		if t.row(name) != nil {
			t.problem("line %d: a second row %q: the first is kept", i+1, name)
			continue
		}
		t.Rows = append(t.Rows, t.parseRow(name, rest, i+1))
	}
	return len(all)
}

// parseRow reads a row's cells and its affinity columns. Of a row with more or fewer cells than
// there are columns none is taken: which of them is missing cannot be known, and those behind it
// would be another device's.
func (t *matrix) parseRow(name, rest string, line int) tableRow {
	r := tableRow{Name: name, Line: line, Cells: make([]string, len(t.Devices))}
	var cells []string
	for len(cells) < len(r.Cells) {
		word, after := cutWord(rest)
		if word == "" || !t.isCell(word) && !gluedRow.MatchString(word) {
			break
		}
		cells, rest = append(cells, unglue(word, gluedRow, rowWord)...), after
	}
	if len(cells) != len(r.Cells) {
		t.problem("line %d: row %q has %d cells for %d columns: not read", line, name, len(cells), len(r.Cells))
		return r
	}
	copy(r.Cells, cells)
	t.parseAffinity(&r, rest)
	return r
}

// unglue takes apart words that stand in one, as a terminal shows columns that are as wide as
// the distance of its tabs: "NODENODE", "NIC10NIC11".
func unglue(word string, run, one *regexp.Regexp) []string {
	if !run.MatchString(word) {
		return []string{word}
	}
	return one.FindAllString(word, -1)
}

// parseAffinity reads what follows the cells. With tabs the columns are told
// apart even when blank; with blanks a lone "N/A" is the GPU NUMA ID.
func (t *matrix) parseAffinity(r *tableRow, rest string) {
	dst := []*string{&r.CPUAffinity, &r.NUMAAffinity, &r.GPUNUMAID}[:t.Affinities]
	if parts := strings.Split(rest, "\t"); len(parts) > t.Affinities && strings.TrimSpace(parts[0]) == "" &&
		!slices.ContainsFunc(parts, func(p string) bool { return len(strings.Fields(p)) > 1 }) {
		parts = parts[1:]
		for i, p := range dst {
			*p = strings.TrimSpace(parts[i])
		}
		if t.Affinities == 3 { // nvidia-smi writes two tabs before the last column
			r.GPUNUMAID = strings.TrimSpace(parts[len(parts)-1])
		}
		return
	}
	words := strings.Fields(rest)
	if len(words) < len(dst) && len(words) > 0 && t.Affinities == 3 && words[len(words)-1] == "N/A" {
		r.GPUNUMAID = "N/A"
		words = words[:len(words)-1]
	}
	for i := 0; i < len(dst) && i < len(words); i++ {
		*dst[i] = words[i]
	}
	if len(words) > len(dst) {
		t.problem("line %d: row %q: %d words after the cells for %d columns",
			r.Line, r.Name, len(words), len(dst))
	}
}

// guessKind tells a peer access matrix from one of classes by its cells.
func (t *matrix) guessKind() tableKind {
	p2p := false
	for _, r := range t.Rows {
		for _, c := range r.Cells {
			if c != "" && c != "X" && !slices.Contains(p2pWords, c) {
				return t.Kind
			}
			p2p = p2p || slices.Contains(p2pWords, c)
		}
	}
	if p2p {
		return kindP2P
	}
	return t.Kind
}

// parseLegend reads "NIC0: mlx5_0" lines, and rocm-smi's NUMA lines.
func (t *matrix) parseLegend(rest []string) {
	for _, line := range rest {
		line = strings.TrimSpace(line)
		if m := nicEntry.FindStringSubmatch(line); m != nil && slices.Contains(t.Devices, m[1]) {
			if t.nameOf(m[1]) == m[1] {
				t.NICNames = append(t.NICNames, nicName{m[1], m[2]})
			}
		}
		if m := rocmNUMA.FindStringSubmatch(line); m != nil && t.Kind == kindROCm {
			if r := t.row("GPU" + m[1]); r != nil && r.NUMAAffinity == "" {
				r.NUMAAffinity = m[2]
			}
		}
	}
}

// parseHops reads rocm-smi's table of hops, which are no links: 1 is xGMI, 2 is PCIe within a NUMA
// node, more is PCIe between nodes. Source: AMD, MI200 system optimization, "Hops between two GPUs";
// rocm-systems pull request 7372.
func (t *matrix) parseHops(all []string) {
	t.Across = map[[2]string]bool{}
	title := slices.IndexFunc(all, func(l string) bool { return strings.Contains(l, "Hops between two GPUs") })
	if title < 0 {
		return
	}
	var heads []string
	for _, line := range all[title+1:] {
		words := strings.Fields(line)
		h, isHead := parseHeader(line)
		switch {
		case strings.HasPrefix(line, "===="):
			return
		case heads == nil && isHead:
			heads = h.devices
		case len(words) != len(heads)+1:
		case slices.Contains(t.Devices, words[0]):
			for i, steps := range words[1:] {
				if n, err := strconv.Atoi(steps); err == nil && n >= 3 {
					t.Across[[2]string{words[0], heads[i]}] = true
				}
			}
		}
	}
}

// maxProblems bounds what a text that is mostly something else can cause.
const maxProblems = 32

func (t *matrix) problem(format string, args ...any) {
	if len(t.Problems) < maxProblems {
		t.Problems = append(t.Problems, fmt.Sprintf(format, args...))
	}
}

// cutWord splits off the first word.
func cutWord(s string) (word, rest string) {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// clip keeps a hostile word from filling a message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
