package ui

import (
	"slices"
	"strings"
)

// Column is one of a table's, with what stands in it on the line of a T.
type Column[T any] struct {
	Title string
	Width int  // at least; 0: there is no such column
	Most  int  // that it grows to where there is room; 0: it does not
	Right bool // its figures stand at the right
	Rank  int  // columns of the lowest ranks are left out last

	Text  func(x T) string // may be foreign
	Style func(x T) Style  // nil: Plain
	// Graph, in place of Text, is a history with the value of a full column.
	Graph func(x T) (values []float64, top float64)
}

// Fit gives the columns that a line of w has room for, in their places, with the widths
// that they have then. A column of a higher rank has no place where one of a lower has none, so
// that a wider line never shows fewer. Room that is left goes to those that grow, the lowest rank
// first.
func Fit[T any](columns []Column[T], w int) []Column[T] {
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
	var out []Column[T]
	for i, c := range columns {
		if c.Width = width[i]; c.Width > 0 {
			out = append(out, c)
		}
	}
	return out
}

// WidthOf is what all columns take at their largest.
func WidthOf[T any](columns []Column[T]) int {
	w := 0
	for _, c := range columns {
		if n := max(c.Width, c.Most); n > 0 {
			w += n + 1
		}
	}
	return w
}

// Heads are the titles in their columns.
func Heads[T any](l *Look, fitted []Column[T]) string {
	return cells(l, fitted, func(c *Column[T]) string { return c.Title })
}

// Cells is the line of x.
func Cells[T any](l *Look, fitted []Column[T], x T) string {
	return cells(l, fitted, func(c *Column[T]) string {
		style := Plain
		if c.Style != nil {
			style = c.Style(x)
		}
		if c.Graph != nil {
			values, top := c.Graph(x)
			return l.Paint(strings.TrimRight(l.Spark(values, top, c.Width), " "), style)
		}
		return l.Paint(l.Cut(l.Safe(c.Text(x)), c.Width), style)
	})
}

func cells[T any](l *Look, fitted []Column[T], text func(*Column[T]) string) string {
	out := make([]string, len(fitted))
	for i := range fitted {
		c := &fitted[i]
		fit := l.Fit
		if c.Right {
			fit = l.FitRight
		}
		out[i] = fit(text(c), c.Width)
	}
	return strings.Join(out, " ")
}
