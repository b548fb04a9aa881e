package pathsel

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/base/text"
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
	return string(a.Location) + "\n" + table(rows)
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

// table aligns rows in columns below a heading.
func table(rows [][]string) string {
	return "  " + strings.Join(text.Columns(rows), "\n  ") + "\n"
}
