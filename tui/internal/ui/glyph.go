package ui

import (
	"math"
	"strings"
)

// pick is the first text, or with --ascii the second.
func (l *Look) pick(text, ascii string) string {
	if l.ASCII {
		return ascii
	}
	return text
}

// Branch stands before a line of a tree that has siblings below it. It takes two columns,
// as Last, Pipe and Gap do.
func (l *Look) Branch() string { return l.pick("├ ", "|-") }

// Last stands before the last child.
func (l *Look) Last() string { return l.pick("└ ", "`-") }

// Pipe stands below a child that has siblings further down.
func (l *Look) Pipe() string { return l.pick("│ ", "| ") }

// Gap stands below the last child.
func (l *Look) Gap() string { return "  " }

// Folded marks a line with more behind it.
func (l *Look) Folded() string { return l.pick("▸", "+") }

// Open marks a line that shows what is behind it.
func (l *Look) Open() string { return l.pick("▾", "-") }

// Cursor marks the line under the cursor.
func (l *Look) Cursor() string { return l.pick("›", ">") }

// Arrow points from one thing to another.
func (l *Look) Arrow() string { return l.pick("→", "->") }

// Dots stand for what was cut.
func (l *Look) Dots() string { return l.pick("…", "...") }

// HLine is a piece of a horizontal line.
func (l *Look) HLine() string { return l.pick("─", "-") }

// VLine is a piece of a vertical line.
func (l *Look) VLine() string { return l.pick("│", "|") }

// The heights of a sparkline. The lowest is nothing at all that moved: a blank is where
// nothing is known.
var (
	sparks      = []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
	sparksASCII = []string{"_", ".", ":", "-", "=", "+", "*", "#"}
)

// Spark draws the last w values, the newest at the right. top is the value of a full
// column; 0 or less takes the largest that is shown. NaN is a gap. What moved is never
// drawn as what stood still.
func (l *Look) Spark(values []float64, top float64, w int) string {
	if w <= 0 {
		return ""
	}
	if len(values) > w {
		values = values[len(values)-w:]
	}
	if !(top > 0) {
		top = 0
		for _, v := range values {
			if v > top {
				top = v
			}
		}
	}
	glyphs := sparks
	if l.ASCII {
		glyphs = sparksASCII
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", w-len(values)))
	for _, v := range values {
		switch {
		case math.IsNaN(v):
			b.WriteByte(' ')
		case !(v > 0):
			b.WriteString(glyphs[0])
		default:
			height := 1 + int(min(v/top, 1)*float64(len(glyphs)-2)+0.5)
			b.WriteString(glyphs[height])
		}
	}
	return b.String()
}

// Bar draws a part of a whole over w columns; NaN, not known, is a question mark. Only
// the whole fills it, and only nothing leaves it empty.
func (l *Look) Bar(part float64, w int) string {
	if w <= 0 {
		return ""
	}
	if math.IsNaN(part) {
		return l.Fit("?", w)
	}
	n := int(max(0, min(part, 1))*float64(w) + 0.5)
	if n == w && part < 1 && w > 1 {
		n--
	}
	if n == 0 && part > 0 {
		n = 1
	}
	return strings.Repeat(l.pick("█", "#"), n) + strings.Repeat(l.pick("░", "."), w-n)
}
