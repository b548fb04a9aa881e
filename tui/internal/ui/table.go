package ui

import (
	"slices"
	"strings"
)

// Column is one of a table's.
type Column struct {
	Title string
	Width int  // at least; 0: there is no such column
	Most  int  // that it grows to where there is room; 0: it does not
	Right bool // its figures stand at the right
	Rank  int  // columns of the lowest ranks are left out last
}

// Fit gives the columns that a line of w has room for, by their places, with the widths
// that they have then. A column of a higher rank has no place where one of a lower has none, so
// that a wider line never shows fewer. Room that is left goes to those that grow, the lowest rank
// first.
func Fit(columns []Column, w int) []Column {
	order := make([]int, len(columns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return columns[a].Rank - columns[b].Rank })
	width := make([]int, len(columns)) // 0: left out
	used := -1
	for _, i := range order {
		n := columns[i].Width
		if n > 0 && used >= 0 && used+1+n > w {
			break
		}
		if n > 0 {
			width[i] = n
			used += n + 1
		}
	}
	for _, i := range order {
		if c := &columns[i]; width[i] > 0 && c.Most > c.Width {
			more := max(0, min(c.Most-c.Width, w-used))
			width[i] += more
			used += more
		}
	}
	out := slices.Clone(columns)
	for i := range out {
		out[i].Width = width[i]
	}
	return out
}

// Heads are the titles in their columns.
func Heads(l *Look, fitted []Column) string {
	return Cells(l, fitted, func(i int, _ int) string { return fitted[i].Title })
}

// Cells is a line of a table: text gives what stands in a column, by its place and width.
func Cells(l *Look, fitted []Column, text func(i, w int) string) string {
	var cells []string
	for i, c := range fitted {
		switch {
		case c.Width == 0:
		case c.Right:
			cells = append(cells, l.FitRight(text(i, c.Width), c.Width))
		default:
			cells = append(cells, l.Fit(text(i, c.Width), c.Width))
		}
	}
	return strings.Join(cells, " ")
}
