package report

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// Table is rows in columns. The last column is for words: it is wrapped where there is too little room.
type Table struct {
	Head    []string
	Rows    []Row
	Columns []text.Column // how columns are set, as in [text.Columns]
	Indent  string        // before each line
	Whole   bool          // lines are never broken, however narrow the terminal is
	// Spare are columns that a narrow terminal goes without, the first one first. All rows and Columns have them.
	Spare []int
	// Pick has a page offer to sort the rows, and to pick them by words and by their marks.
	Pick bool
	// After are lines below: of rows that are left out.
	After []string
}

// Row is a line of a table.
type Row struct {
	Cells []string
	Label string   // stands in the indent of the table
	Color string   // of the line on a terminal, or of its label alone where it has one
	Below []string // lines below it that belong to it
	Mark  string   // what a page colours it by: a verdict, a severity. A cell of these words has the colour
	Link  string   // the part of the page that says more
}

// TableOf is a table of cells without anything else.
func TableOf(head []string, rows ...[]string) *Table {
	t := &Table{Head: head}
	for _, cells := range rows {
		t.Add(cells...)
	}
	return t
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, Row{Cells: cells}) }

// cells are all rows, the head first.
func (t *Table) cells() [][]string {
	var out [][]string
	if t.Head != nil {
		out = append(out, t.Head)
	}
	for i := range t.Rows {
		out = append(out, t.Rows[i].Cells)
	}
	return out
}

// TSV are the rows for programs, in lines of fields that are separated by tabs.
func (t *Table) TSV() string { return strings.Join(text.TSV(t.cells()), "\n") + "\n" }

// Table sets rows in columns.
func (l *Look) Table(t *Table) string {
	cells, columns := t.cells(), slices.Clone(t.Columns)
	for i, row := range cells {
		cells[i] = make([]string, len(row))
		for k, c := range row {
			cells[i][k] = l.ready(c)
		}
	}
	width := l.room(t.Indent)
	if t.Whole {
		width = 0
	}
	for n := range t.Spare {
		if width <= 0 || widest(cells, columns) <= width {
			break
		}
		at := t.Spare[n]
		for _, gone := range t.Spare[:n] {
			if gone < t.Spare[n] {
				at-- // it moved when that one went
			}
		}
		for k := range cells {
			cells[k] = slices.Delete(cells[k], at, at+1)
		}
		columns = slices.Delete(columns, at, at+1)
	}
	lines := text.WrapColumns(cells, width, columns...)
	var b strings.Builder
	if t.Head != nil {
		b.WriteString(l.lines(lines[0], t.Indent, Faint))
		lines = lines[1:]
	}
	for i, r := range t.Rows {
		if r.Label != "" {
			b.WriteString(l.Paint(r.Label, r.Color) + l.lines(lines[i], t.Indent, "")[len(r.Label):])
		} else {
			b.WriteString(l.lines(lines[i], t.Indent, r.Color))
		}
		for _, sentence := range r.Below {
			b.WriteString(l.Wrap(t.Indent+indent, sentence, Faint))
		}
	}
	for _, line := range t.After {
		b.WriteString(l.Wrap(t.Indent, line, ""))
	}
	return b.String()
}

// widest is how wide the columns are together, but for the words in the last one.
func widest(rows [][]string, columns []text.Column) int {
	most := 0
	heads := make([][]string, len(rows))
	for i, row := range rows {
		heads[i] = row[:max(0, len(row)-1)]
	}
	for _, line := range text.Columns(heads, columns...) {
		most = max(most, text.Width(line))
	}
	return most
}

// Sentences are the rows for places without columns: "4 MiB: median 48.1, n 6". Cells that say nothing are left out.
func (t *Table) Sentences() []string {
	var out []string
	for i := range t.Rows {
		var words []string
		for k, cell := range t.Rows[i].Cells[1:] {
			switch {
			case cell == "" || cell == "-":
			case t.Head == nil || t.Head[k+1] == "":
				words = append(words, cell)
			default:
				words = append(words, t.Head[k+1]+" "+cell)
			}
		}
		line := t.Rows[i].Cells[0]
		if len(words) > 0 {
			line += ": " + strings.Join(words, ", ")
		}
		out = append(out, line)
	}
	return out
}
