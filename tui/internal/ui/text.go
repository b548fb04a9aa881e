package ui

import (
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Wrap breaks a text at words into lines of at most w columns; words that are longer are
// broken, too. What follows the first line is indented.
func Wrap(text string, w, indent int) []string {
	w = max(w, 8)
	indent = min(indent, w/2)
	var out []string
	for _, line := range strings.Split(ansi.Wrap(text, w-indent, ""), "\n") {
		if Width(line) > w-indent { // before a hyphen it breaks too late
			out = append(out, strings.Split(ansi.Hardwrap(line, w-indent, false), "\n")...)
		} else {
			out = append(out, line)
		}
	}
	for i := 1; i < len(out); i++ {
		out[i] = strings.Repeat(" ", indent) + out[i]
	}
	return out
}

// nameWidth is that of the names in a list of fields.
const nameWidth = 13

// Field is a name with what there is to say, "" nothing: then there is no line.
func Field(l *Look, name, value string, w int, style Style) []string {
	if value == "" {
		return nil
	}
	lead := max(nameWidth, Width(name)+1)
	narrow := w < 3*nameWidth || lead > w/2 // the value stands below the name
	if narrow {
		lead = 2
	}
	lines := Wrap(value, w-lead, 0)
	for i := range lines {
		lines[i] = strings.Repeat(" ", lead) + l.Paint(lines[i], style)
	}
	if narrow {
		return append([]string{l.Paint(l.Cut(name, w), Faint)}, lines...)
	}
	lines[0] = l.Paint(l.Fit(name, lead), Faint) + lines[0][lead:]
	return lines
}

// Flow puts pieces into lines of at most w columns, two blanks between them. None is
// broken; one that is too long is cut.
func Flow(l *Look, w int, pieces ...string) []string {
	var out []string
	line := ""
	for _, p := range pieces {
		p = l.Cut(p, w)
		switch {
		case p == "":
		case line == "":
			line = p
		case Width(line)+2+Width(p) > w:
			out = append(out, line)
			line = p
		default:
			line += "  " + p
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

// Ago is how long ago something was: "0.4 s ago".
func Ago(l *Look, ns int64) string {
	if ns = max(ns, 0); ns < 9_950_000_000 {
		return strconv.FormatFloat(float64(ns)/1e9, 'f', 1, 64) + " s ago"
	}
	return Duration(l, ns) + " ago"
}

// Duration is a time for people, with two or three digits: "12.3 ms", "4 min".
func Duration(l *Look, ns int64) string {
	micro := "µs"
	if l.ASCII {
		micro = "us"
	}
	number := func(unit float64) string {
		v := float64(ns) / unit
		digits := 0
		if v < 10 {
			digits = 1
		}
		return strconv.FormatFloat(v, 'f', digits, 64)
	}
	switch {
	case ns < 0:
		return Unknown
	case ns < 1e3:
		return strconv.FormatInt(ns, 10) + " ns"
	case ns < 999_500:
		return number(1e3) + " " + micro
	case ns < 999_500_000:
		return number(1e6) + " ms"
	case ns < 60e9:
		return number(1e9) + " s"
	case ns < 3600e9:
		return strconv.FormatInt(ns/60e9, 10) + " min"
	case ns < 48*3600e9:
		return strconv.FormatInt(ns/3600e9, 10) + " h"
	}
	return strconv.FormatInt(ns/(24*3600e9), 10) + " days"
}
