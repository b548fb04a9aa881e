package pathsel

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text is the decision for people, a line for each port.
func (a *Affinity) Text() string {
	rows := [][]string{{"rank", "port", "class", "hops", "expected", "verdict", "why"}}
	for i := range a.Ranked {
		c := &a.Ranked[i]
		rows = append(rows, c.row(fmt.Sprint(i+1)))
	}
	for i := range a.Rejected {
		rows = append(rows, a.Rejected[i].row("-"))
	}
	return string(a.Location) + "\n" + columns(rows)
}

func (c *Candidate) row(rank string) []string {
	hops, rate := "?", "?"
	if c.Hops != nil {
		hops = fmt.Sprint(*c.Hops)
	}
	if c.BytesPerSec != nil {
		rate = rateText(c)
	}
	why := fmt.Sprintf("%s: %s", c.Reason.Code, c.Reason.Text)
	if c.Reason.Evidence != "" {
		why += " (" + c.Reason.Evidence + ")"
	}
	for _, n := range c.Notes {
		why += fmt.Sprintf("; %s: %s", n.Code, n.Text)
	}
	class := c.Class.String()
	if class == "" {
		class = "?"
	}
	return []string{rank, c.Name, class, hops, rate, string(c.Verdict), why}
}

// columns sets rows in columns, the last one as long as it is.
func columns(rows [][]string) string {
	var widths []int
	for _, r := range rows {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			line += "  " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
