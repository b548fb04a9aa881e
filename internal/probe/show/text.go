package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
)

// maxText is how much of one foreign text is shown, in cells.
const maxText = 300

// clean makes a foreign text fit for a line.
func clean(s string) string { return text.Cut(text.Printable(s), maxText, text.Ellipsis) }

// endName names an end; the host is left out if there is only one.
func endName(e *probe.End, local bool) string {
	if local || e.Host == "" {
		return clean(e.Name)
	}
	return clean(e.Host + "/" + e.Name)
}

// PairName names a pair for people: "gpu:0 > gpu:1" if all ends are on one host (local), else "n1/mlx5_0 >
// n2/mlx5_0".
func PairName(p *probe.Pair, local bool) string {
	return endName(&p.From, local) + " > " + endName(&p.To, local)
}

// classText is the class of both ends: "PIX", "PIX, SYS", "-".
func classText(p *probe.Pair) string {
	text := func(c topo.Class) string {
		if !c.Known() {
			return "?"
		}
		return c.String()
	}
	a, b := text(p.From.Class), text(p.To.Class)
	switch {
	case a == "?" && b == "?":
		return "-"
	case a == b:
		return a
	}
	return a + ", " + b
}

// rate prints a rate without its unit, or "-" for nil.
func rate[T ~int64](v *T, u units.System) string {
	if v == nil {
		return "-"
	}
	return units.RateNumber(int64(*v), u)
}

// interval prints a mean and the half width of its interval, without the unit: "391.2 ±0.8".
func interval(mean int64, half *int64, u units.System) string {
	text := units.RateNumber(mean, u)
	if half != nil {
		text += " ±" + units.RateNumber(*half, u)
	}
	return text
}

// expected prints what was expected, with how it is known.
func expected(e *probe.Expected, u units.System) string { return e.Basis.Mark(rate(e.BytesPerSec, u)) }

func percent(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v*100, 'f', 0, 64) + " %"
}

// count prints a number of samples in short: "9", "10k", "1.5M".
func count(n int) string {
	switch {
	case n >= 1_000_000:
		return strings.TrimSuffix(strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64), ".0") + "M"
	case n >= 1000:
		return strings.TrimSuffix(strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64), ".0") + "k"
	}
	return strconv.Itoa(n)
}

// number prints a value with three digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// duration prints a time with its unit: "19 s", "3 min 5 s", "2 h 10 min".
func duration(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return number(d.Seconds()) + " s"
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
}
