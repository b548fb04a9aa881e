package texts

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// maxColumns bounds the columns of a matrix: far more than any machine has.
const maxColumns = 512

var (
	gpuName    = regexp.MustCompile(`^GPU(0|[1-9][0-9]{0,3})$`)
	columnName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]{0,63}$`)
	cellWord   = regexp.MustCompile(`^([A-Z]{1,8}|NV[0-9]{1,3}|[CP]2C|\?)$`) // not NVME0, a column of some machines
	cpuTitle   = regexp.MustCompile(`CPU( Affinity)?\b`)
	nicEntry   = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_]{0,31}):\s+([!-~]{1,64})$`)
	nicLabel   = regexp.MustCompile(`^NIC[0-9]{1,4}$`)
	rocmNUMA   = regexp.MustCompile(`^GPU\[([0-9]{1,4})\]\s*:\s*\(Topology\) Numa Affinity:\s*([0-9]{1,6})$`)
	rocmHead   = regexp.MustCompile(`^=+ (Link Type|Hops|Weight) between two GPUs =+$`)
	// nvidia-smi's word that its matrix leaves NICs out.
	leftOut   = regexp.MustCompile(`\b([0-9]{1,6}) NICs? found, only displaying ([0-9]{1,6})\b`)
	gluedHead = regexp.MustCompile(`^((GPU|NIC)[0-9]{1,4}|mlx[45]_[0-9]{1,4})+$`)
	headWord  = regexp.MustCompile(`(GPU|NIC)[0-9]{1,4}|mlx[45]_[0-9]{1,4}`)
	gluedRow  = regexp.MustCompile(`^(XGMI|X|SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?|C2C)+$`)
	rowWord   = regexp.MustCompile(`XGMI|X|SYS|NODE|PHB|PXB|PIX|NV[1-9][0-9]?|C2C`)
	gluedTail = regexp.MustCompile(`(X|SYS|NODE|PHB|PXB|PIX)([0-9])|([0-9])(N/A)`) // a cell and a CPU, a NUMA node and "N/A"
	isDigits  = regexp.MustCompile(`^[0-9]{1,9}$`)
	p2pWords  = []string{"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}
	rocmWords = []string{"XGMI", "PCIE", "N/A"}
)

// parseMatrix reads the matrix of a text. Lines that belong to none are passed over. What kind a matrix is,
// and of which host, is what its own lines say: a text of two hosts is refused.
func parseMatrix(data []byte) (*matrix, error) {
	all := lines(data)
	found, err := matrices(all)
	if err != nil {
		return nil, err
	}
	i := max(0, slices.IndexFunc(found, func(t *matrix) bool { return t.Kind != kindNumbers && t.readable() }))
	if len(found) == 0 {
		if bytes.IndexByte(data, 0) >= 0 {
			return nil, pkgerr.New("texts", "binary data, not the text of nvidia-smi topo -m")
		}
		return nil, pkgerr.New("texts", "no line with column heads (GPU0 ...): not a matrix of nvidia-smi topo or rocm-smi --showtopo")
	}
	t := found[i]
	switch {
	case len(t.Rows) == 0:
		return nil, pkgerr.Errorf("texts", "line %d: column heads without a row below: truncated?", t.Line)
	case t.Kind == kindNumbers:
		return nil, pkgerr.Errorf("texts", "line %d: a table of numbers, which are not link types: want the text of rocm-smi --showtopo", t.Line)
	}
	if err := t.others(found); err != nil {
		return nil, err
	}
	if t.Kind == kindROCm {
		return t, t.parseNUMA(all)
	}
	for i, l := range all {
		if m := leftOut.FindStringSubmatch(l); m != nil {
			t.Problems.add(topo.CodeSkipped, "line %d: the tool found %s NICs and shows %s: the others are missing", i+1, m[1], m[2])
		}
	}
	return t, nil
}

// matrices are the matrices of a text, in their order, rocm-smi's tables of numbers among them.
func matrices(all []string) (found []*matrix, err error) {
	cut := slices.ContainsFunc(all, leftOut.MatchString)
	for i := 0; i < len(all); i++ {
		h, ok := headerAt(all, i)
		if !ok {
			continue
		}
		if len(h.devices) > maxColumns {
			return nil, pkgerr.Errorf("texts", "line %d: %d columns, at most %d are read", i+1, len(h.devices), maxColumns)
		}
		for k, d := range h.devices {
			if slices.Contains(h.devices[:k], d) {
				return nil, pkgerr.Errorf("texts", "line %d: two columns are called %q", i+1, d)
			}
		}
		t := &matrix{Line: i + 1, Title: titleAbove(all[:i]), Devices: h.devices, Affinities: h.affinity, Kind: kindTopo}
		if own := t.ownCell(all[i+1:]); h.affinity == 0 && (own == "0" || own == "" && t.Title != "") {
			t.Kind = kindROCm
		}
		end := t.parseRows(all, i+1)
		t.Kind = t.guessKind()
		i = t.parseLegend(all, end, cut) - 1
		found = append(found, t)
	}
	return found, nil
}

// titleAbove is what rocm-smi calls a table, in the line above its column heads; "" for other tables.
func titleAbove(before []string) string {
	for _, l := range slices.Backward(before) {
		if l = strings.TrimSpace(l); l != "" {
			return wordAt(rocmHead.FindStringSubmatch(l), 1)
		}
	}
	return ""
}

func wordAt(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return ""
}

// ownCell is what rows below the heads have for their own device: "X" of nvidia-smi, "0" of rocm-smi.
func (t *matrix) ownCell(below []string) string {
	for _, l := range below {
		if _, again := parseHeader(l); again {
			break
		}
		words := strings.Fields(l)
		if i := slices.Index(t.Devices, wordAt(words, 0)); i >= 0 {
			if own := wordAt(words, 1+i); own == "X" || own == "0" {
				return own
			}
		}
	}
	return ""
}

// readable says whether at least one row's cells are known.
func (t *matrix) readable() bool {
	return slices.ContainsFunc(t.Rows, func(r tableRow) bool { return r.Cells[0] != "" })
}

// others looks at the text's other matrices. Those of the same kind are of the same host only if they
// say the same; the tables of hops add to the matrix.
func (t *matrix) others(found []*matrix) error {
	found = slices.DeleteFunc(found, func(o *matrix) bool { return !o.readable() })
	for i, o := range found {
		same := slices.IndexFunc(found[:i], func(f *matrix) bool { return f.Kind == o.Kind && f.Title == o.Title })
		switch {
		case same >= 0 && o.Kind != kindP2P && !o.equal(found[same]):
			return pkgerr.Errorf("texts", "lines %d and %d begin two matrices that differ, "+twoHosts, found[same].Line, o.Line)
		case o.Kind == kindNumbers:
			if o.Title == "Hops" && t.Kind == kindROCm && slices.Equal(o.Devices, t.Devices) {
				t.addHops(o)
			}
		case same >= 0 && o.equal(found[same]):
			t.Problems.add(topo.CodeLossyImport, "line %d: the matrix of line %d again, of this host or of one like it: read once", o.Line, found[same].Line)
		case o != t:
			t.Problems.add(topo.CodeSkipped, "line %d: a second matrix is not read: that of line %d is", o.Line, t.Line)
		}
	}
	return nil
}

// equal says whether two matrices say the same.
func (t *matrix) equal(o *matrix) bool {
	return slices.Equal(t.Devices, o.Devices) && slices.Equal(t.NICNames, o.NICNames) && slices.EqualFunc(t.Rows, o.Rows, func(a, b tableRow) bool {
		return a.Name == b.Name && slices.Equal(a.Cells, b.Cells) &&
			a.CPUAffinity == b.CPUAffinity && a.NUMAAffinity == b.NUMAAffinity && a.GPUNUMAID == b.GPUNUMAID
	})
}

// header is the line of column heads.
type header struct {
	devices  []string
	affinity int // CPU Affinity, NUMA Affinity, GPU NUMA ID: how many are there
}

// headerAt is the header in a line. A lone "GPU0" is one only where its row follows.
func headerAt(all []string, i int) (header, bool) {
	h, ok := parseHeader(all[i])
	if ok && len(h.devices)+h.affinity == 1 {
		row := strings.Fields(wordAt(all, i+1))
		ok = wordAt(row, 0) == h.devices[0] && (wordAt(row, 1) == "X" || wordAt(row, 1) == "0")
	}
	return h, ok
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
		if !columnName.MatchString(d) || !strings.ContainsAny(d, "0123456789") || isClassWord(d) {
			return header{}, false
		}
	}
	return h, true
}

// isCell tells matrix cells from device names and numbers: "X", "PIX", "NV18",
// "GNS", and rocm-smi's numbers.
func (t *matrix) isCell(word string) bool {
	return isClassWord(word) || t.Kind == kindROCm && (isDigits.MatchString(word) || slices.Contains(rocmWords, word))
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
		if _, again := headerAt(all, i); again {
			return i
		}
		name, rest := cutWord(line)
		if !slices.Contains(t.Devices, name) {
			t.Problems.add(topo.CodeMalformed, "line %d: %q is no column's name: line not read", i+1, text.Clip(name, maxQuoted))
			continue
		}
		if t.row(name) != nil {
			t.Problems.add(topo.CodeSkipped, "line %d: a second row %q: another matrix begins, without column heads: not read", i+1, name)
			return len(all)
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
	if t.Kind != kindROCm { // which has nothing behind the cells
		rest = gluedTail.ReplaceAllString(rest, "$1$3 $2$4")
	}
	for len(cells) < len(r.Cells) {
		word, after := cutWord(rest)
		if word == "" || !t.isCell(word) && !gluedRow.MatchString(word) {
			break
		}
		cells, rest = append(cells, unglue(word, gluedRow, rowWord)...), after
	}
	if len(cells) != len(r.Cells) {
		t.Problems.add(topo.CodeMalformed, "line %d: row %q has %d cells for %d columns: not read", line, name, len(cells), len(r.Cells))
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
		t.Problems.add(topo.CodeMalformed, "line %d: row %q: %d words after the cells for %d columns",
			r.Line, r.Name, len(words), len(dst))
	}
}

// guessKind tells a matrix of peer access and a table of numbers from one of classes by the cells.
func (t *matrix) guessKind() tableKind {
	only := func(is func(cell string) bool) bool {
		return t.readable() && !slices.ContainsFunc(t.Rows, func(r tableRow) bool {
			return slices.ContainsFunc(r.Cells, func(c string) bool { return c != "" && !is(c) })
		})
	}
	switch isX := func(c string) bool { return c == "X" }; {
	case t.Kind == kindROCm && t.Title != "Link Type" && only(isDigits.MatchString):
		return kindNumbers
	case t.Kind == kindTopo && len(t.Devices) > 1 && !only(isX) && only(func(c string) bool { return isX(c) || slices.Contains(p2pWords, c) }):
		return kindP2P
	}
	return t.Kind
}

// parseLegend reads the "NIC0: mlx5_0" lines that follow a matrix, up to the next one, and
// gives the index of the first line after them. One that does not fit the matrix is another's.
func (t *matrix) parseLegend(all []string, from int, cut bool) int {
	why, i := "", from
	for ; i < len(all); i++ {
		if _, next := headerAt(all, i); next {
			break
		}
		if words := strings.Fields(strings.ReplaceAll(all[i], "|", " ")); len(words) > 1 && gpuName.MatchString(words[0]) && (isClassWord(words[1]) || words[1] == "0") {
			t.Problems.add(topo.CodeSkipped, "line %d: another matrix begins, without column heads: not read", i+1)
			break
		}
		m := nicEntry.FindStringSubmatch(strings.TrimSpace(all[i]))
		switch {
		case m == nil:
		case !slices.Contains(t.Devices, m[1]):
			if why == "" && !cut && nicLabel.MatchString(m[1]) {
				why = fmt.Sprintf("line %d: the legend has %s, and the matrix of line %d has not", i+1, m[1], t.Line)
			}
		case t.nameOf(m[1]) == m[1]:
			t.NICNames = append(t.NICNames, nicName{m[1], m[2]})
		case t.nameOf(m[1]) != m[2] && why == "":
			why = fmt.Sprintf("line %d: %s is %s, and %s above", i+1, m[1], m[2], t.nameOf(m[1]))
		}
	}
	if why != "" {
		t.NICNames = nil
		t.Problems.add(topo.CodeMalformed, "%s: no name of a NIC is taken from it", why)
	}
	return i
}

// parseNUMA reads rocm-smi's lines of NUMA nodes, which stand below its tables.
func (t *matrix) parseNUMA(all []string) error {
	told := map[string]int{}
	for i, line := range all {
		m := rocmNUMA.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		r := t.row("GPU" + m[1])
		switch {
		case r == nil:
		case told[r.Name] == 0:
			r.NUMAAffinity, told[r.Name] = m[2], i+1
		case r.NUMAAffinity != m[2]:
			return pkgerr.Errorf("texts", "%s has NUMA node %s in line %d and %s in line %d, by texts "+twoHosts,
				r.Name, r.NUMAAffinity, told[r.Name], m[2], i+1)
		}
	}
	return nil
}

// addHops takes rocm-smi's table of hops, which are no links: 1 is xGMI, 2 is PCIe within a NUMA
// node, more is PCIe between nodes. Source: AMD, MI200 system optimization, "Hops between two GPUs";
// rocm-systems pull request 7372.
func (t *matrix) addHops(hops *matrix) {
	t.Across = map[[2]string]bool{}
	for _, r := range hops.Rows {
		for i, cell := range r.Cells {
			if n, err := strconv.Atoi(cell); err == nil && n >= 3 {
				t.Across[[2]string{r.Name, hops.Devices[i]}] = true
			}
		}
	}
}

const maxQuoted = 40 // bytes of a text in a message

// cutWord splits off the first word.
func cutWord(s string) (word, rest string) {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
