package judge

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// rateText prints a rate of a result in the unit that reports use for its kind: bits for ports.
func (c *judgement) rateText(i int, rate float64) string {
	unit := units.Gbyte
	if c.r.Results[i].Kind == probe.Port {
		unit = units.Gbit
	}
	return units.Rate(int64(math.Round(rate)), unit)
}

// rateOf prints a rate in the unit of the pairs that were searched.
func (q *faultSearch) rateOf(rate float64) string { return q.rateText(q.bad[0].result, rate) }

// percent is a part in percent, rounded down: 79.9 % is not shown as 80.
func percent(part, whole float64) string {
	return strconv.Itoa(int(math.Floor(100*part/whole))) + " %"
}

// ns prints a time with three digits.
func ns(v float64) string {
	unit := "ns"
	for _, u := range []string{"µs", "ms", "s"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + " " + unit
}

// measuredText prints the figure of a result with its interval.
func (c *judgement) measuredText(i int, f *figure) string {
	if math.IsInf(f.hi, 1) {
		return c.rateText(i, f.mean) + " (one sample)"
	}
	return fmt.Sprintf("%s ±%s", c.rateText(i, f.mean), percentUp(f.hi-f.mean, f.mean))
}

func percentUp(part, whole float64) string {
	if whole <= 0 {
		return "0 %"
	}
	return strconv.FormatFloat(math.Ceil(1000*part/whole)/10, 'f', 1, 64) + " %"
}

// figureText prints the figure that findings are about: a latency if nothing else was slow.
func (c *judgement) figureText(i int, f *figure, first []finding) string {
	codes := slowCodes(first)
	if len(codes) == 1 && codes[0] == probe.CodeLatencyOutlier || !f.measured {
		return ns(f.latency)
	}
	return c.rateText(i, f.mean)
}

// linkName names a link with its host.
func (c *judgement) linkName(key probe.LinkKey) string {
	l := c.links[key]
	if l == nil {
		return clean(string(key))
	}
	name := clean(l.Name)
	if l.Host != "" && !strings.Contains(name, l.Host) {
		name += " on " + clean(l.Host)
	}
	return name
}

// directionText is a direction in words.
func directionText(kind topo.LinkKind, direction string) string {
	switch {
	case kind == topo.LinkPort && direction == "down":
		return "sending"
	case kind == topo.LinkPort && direction == "up":
		return "receiving"
	}
	return direction
}

// How much of a name and of a sentence from elsewhere is printed.
const (
	longestName = 96
	longestText = 400
)

// clean makes a name from a peer fit to print.
func clean(s string) string { return text.Cut(text.Printable(s), longestName, text.Ellipsis) }

// cleanSentence does the same for a sentence.
func cleanSentence(s string) string { return text.Cut(text.Printable(s), longestText, text.Ellipsis) }
