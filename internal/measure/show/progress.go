package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

// Progress is how far a run has come.
type Progress struct {
	Round, Rounds int
	Done, Total   int      // pairs
	Pairs         []string // that are being measured, by PairName
	Bytes         int64    // moved so far
	// Left is the time that remains, 0 not known.
	Left time.Duration
}

// remaining is a time in whole seconds: with fractions it would flicker.
func remaining(d time.Duration) string {
	if d = d.Round(time.Second); d < 10*time.Second {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return duration(d)
}

// Line is the state in one line of at most width runes, 0 no limit: "round 9/16, 36 of 64
// pairs, 12 GiB moved, 19 s left: gpu:0 > mlx5_0 and 3 more".
func (p *Progress) Line(width int, o Options) string {
	line := fmt.Sprintf("round %d/%d, %d of %s", p.Round, max(p.Round, p.Rounds), p.Done, text.Plural(p.Total, "pair"))
	if p.Bytes > 0 {
		line += ", " + units.Bytes(p.Bytes) + " moved"
	}
	if p.Left > 0 {
		line += ", " + remaining(p.Left) + " left"
	}
	if n := len(p.Pairs); n > 0 {
		line += ": " + clean(p.Pairs[0])
		if n > 1 {
			line += fmt.Sprintf(" and %d more", n-1)
		}
	}
	line = o.text(line)
	if width > 0 {
		line = text.Cut(line, width, text.Ellipsis)
	}
	if o.ASCII {
		line = strings.ReplaceAll(line, "…", "~")
	}
	return line
}
