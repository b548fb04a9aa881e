package views

import (
	"math"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// laneColumns are the columns of lanes. Where there are several peers, their names are worth more
// room than what the detail shows, too: the peer stays the last column. A column needs its cell at
// the same place of laneText.
func laneColumns(b *block) func(w int) []ui.Column {
	columns := slices.Clone(columnsOfLanes)
	for _, l := range b.engine.Lanes {
		if l.Peer != b.engine.Lanes[0].Peer {
			columns[len(columns)-1].Rank = 4
			break
		}
	}
	return func(w int) []ui.Column { return ui.Fit(columns, w) }
}

var columnsOfLanes = []ui.Column{
	{Title: "lane", Width: 24, Most: 44, Rank: 0},
	{Title: "via", Width: 4, Rank: 7},
	{Title: "health", Width: 11, Rank: 1},
	{Title: "moves", Width: 10, Right: true, Rank: 2},
	{Title: "", Width: 8, Most: 32, Rank: 3}, // a sparkline
	{Title: "estimate", Width: 11, Right: true, Rank: 6},
	{Title: "basis", Width: 8, Rank: 10},
	{Title: "in flight", Width: 16, Rank: 5},
	{Title: "slices", Width: 9, Right: true, Rank: 8},
	{Title: "retries", Width: 9, Right: true, Rank: 4},
	{Title: "sick", Width: 4, Right: true, Rank: 9},
	{Title: "peer", Width: 11, Most: 24, Rank: 11},
}

// laneText is a lane's line. top is the rate of a full column of the sparkline, which is
// the same for all lanes of an engine.
func laneText(env *ui.Env, b *block, x *state.Lane, top float64, w int) string {
	l := env.Look
	cells := []func(w int) string{
		func(int) string { return l.Safe(x.Lane) },
		func(int) string { return l.Safe(x.Transport) },
		func(int) string { return health(l, x.Health) },
		func(int) string { return currentRate(l, b, &x.Throughput) },
		func(w int) string { return l.Spark(x.Throughput.Values(), top, w) },
		func(int) string { return estimate(l, &x.LaneStats) },
		func(int) string { return basis(&x.LaneStats) },
		func(int) string {
			return l.Bar(fraction(x.InflightBytes, x.WindowBytes), 6) + " " + units.Bytes(x.InflightBytes)
		},
		func(int) string { return strconv.FormatInt(x.Slices, 10) },
		func(int) string { return retries(x) },
		func(int) string { return strconv.FormatInt(x.Failures, 10) },
		func(int) string { return l.Safe(x.Peer) },
	}
	return ui.Cells(l, laneColumns(b)(w), func(i, w int) string { return cells[i](w) })
}

// currentRate is the newest value; what a source said that is silent now is not of now.
func currentRate(l *ui.Look, b *block, s *state.Series) string {
	x, ok := s.Last()
	if !ok || b.isOld() {
		return ui.Unknown
	}
	return l.RateOf(x)
}

// health marks what is worth a look.
func health(l *ui.Look, text string) string {
	style := healthStyle(text)
	return l.Paint(l.Mark(style)+" "+l.Safe(text), style)
}

// markedLine is text for a line of its own: where there is no mark, there is no room for one.
func markedLine(l *ui.Look, text string, style ui.Style) string {
	if mark := l.Mark(style); mark != " " {
		text = mark + " " + text
	}
	return l.Paint(text, style)
}

func healthStyle(text string) ui.Style {
	switch text {
	case "healthy":
		return ui.Good
	case "idle":
		return ui.Plain
	case "sick", "gone":
		return ui.Bad
	}
	return ui.Middle
}

// estimate is what the engine thinks that the lane carries; "~" where nothing was measured.
func estimate(l *ui.Look, x *engine.LaneStats) string {
	if x.BytesPerSec <= 0 {
		return ui.Unknown
	}
	text := l.RateOf(float64(x.BytesPerSec))
	if !x.Measured {
		text = "~" + text
	}
	return text
}

func basis(x *engine.LaneStats) string {
	switch {
	case x.BytesPerSec <= 0:
		return "-"
	case x.Measured:
		return "measured"
	}
	return "promised"
}

// fraction is a share, NaN where the whole is not known.
func fraction(of, whole int64) float64 {
	if whole <= 0 {
		return math.NaN()
	}
	return float64(of) / float64(whole)
}

// retries are all so far, and behind a + those that the dashboard has seen come.
func retries(x *state.Lane) string {
	text := strconv.FormatInt(x.Retries, 10)
	if x.Retried > 0 {
		text += " +" + strconv.FormatInt(x.Retried, 10)
	}
	return text
}

// servedColumns are the columns of connections that peers have.
func servedColumns(w int) []ui.Column { return ui.Fit(columnsOfServed, w) }

var columnsOfServed = []ui.Column{
	{Title: "peer", Width: 23, Most: 32, Rank: 0},
	{Title: "via", Width: 4, Rank: 5},
	{Title: "moves", Width: 10, Right: true, Rank: 1},
	{Title: "", Width: 8, Most: 32, Rank: 2},
	{Title: "written", Width: 9, Right: true, Rank: 3},
	{Title: "read", Width: 9, Right: true, Rank: 4},
	{Title: "from", Width: 21, Most: 47, Rank: 6},
	{Title: "to", Width: 21, Most: 47, Rank: 7},
	{Title: "port", Width: 12, Most: 24, Rank: 8},
}

func servedText(env *ui.Env, b *block, x *state.Served, top float64, w int) string {
	l := env.Look
	cells := []func(w int) string{
		func(int) string { return l.Safe(x.Peer) },
		func(int) string { return l.Safe(x.Transport) },
		func(int) string { return currentRate(l, b, &x.Throughput) },
		func(w int) string { return l.Spark(x.Throughput.Values(), top, w) },
		func(int) string { return bytesOf(x.WrittenBytes) },
		func(int) string { return bytesOf(x.ReadBytes) },
		func(int) string { return orDash(l.Safe(x.RemoteAddress)) },
		func(int) string { return orDash(l.Safe(x.LocalAddress)) },
		func(int) string { return orDash(l.Safe(string(x.LocalPort))) },
	}
	return ui.Cells(l, servedColumns(w), func(i, w int) string { return cells[i](w) })
}

// bytesOf is a counter that may not be known.
func bytesOf(n *int64) string {
	if n == nil {
		return ui.Unknown
	}
	return units.Bytes(*n)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// batchColumns are the columns of batches.
func batchColumns(w int) []ui.Column { return ui.Fit(columnsOfBatches, w) }

var columnsOfBatches = []ui.Column{
	{Title: "batch", Width: 14, Most: 24, Rank: 0},
	{Title: "bytes", Width: 9, Right: true, Rank: 1},
	{Title: "took", Width: 8, Right: true, Rank: 2},
	{Title: "rate", Width: 10, Right: true, Rank: 3},
	{Title: "lanes", Width: 5, Right: true, Rank: 4},
	{Title: "retries", Width: 7, Right: true, Rank: 5},
	{Title: "ended", Width: 11, Right: true, Rank: 6},
	{Title: "peer", Width: 14, Most: 32, Rank: 7},
	{Title: "label or error", Width: 16, Most: 80, Rank: 8},
}

func batchText(env *ui.Env, b *block, x *engine.Explanation, w int) string {
	l := env.Look
	cells := []func(w int) string{
		func(int) string { return batchState(l, x) },
		func(int) string { return units.Bytes(x.Bytes) },
		func(int) string { return ui.Duration(l, x.DurationNS) },
		func(int) string { return l.RateOf(batchRate(x)) },
		func(int) string { return lanesUsed(x) },
		func(int) string { return strconv.FormatInt(x.Retries, 10) },
		func(int) string { return ended(env, b, x) },
		func(int) string { return l.Safe(x.Peer) },
		func(int) string {
			if x.Error != "" {
				return l.Safe(x.Error)
			}
			return l.Safe(x.Label)
		},
	}
	return ui.Cells(l, batchColumns(w), func(i, w int) string { return cells[i](w) })
}

// batchState marks batches that failed, and those that needed a second try.
func batchState(l *ui.Look, x *engine.Explanation) string {
	style := batchStyle(x)
	return l.Paint(l.Mark(style)+" "+l.Safe(x.State), style)
}

func batchStyle(x *engine.Explanation) ui.Style {
	switch {
	case x.State == "failed" || x.State == "unsafe":
		return ui.Bad
	case x.Retries > 0:
		return ui.Middle
	}
	return ui.Plain
}

// batchRate is NaN where nothing can be said.
func batchRate(x *engine.Explanation) float64 {
	if x.DurationNS <= 0 || x.Bytes < 0 {
		return math.NaN()
	}
	return float64(x.Bytes) / (float64(x.DurationNS) / 1e9)
}

// lanesUsed is how many lanes carried something; while a batch runs that is not known.
func lanesUsed(x *engine.Explanation) string {
	if x.State == "running" {
		return ui.Unknown
	}
	n := 0
	for i := range x.Routes {
		n += len(x.Routes[i].Used)
	}
	return strconv.Itoa(n)
}

// ended is how long ago, by now and not by when the agent said so.
func ended(env *ui.Env, b *block, x *engine.Explanation) string {
	if x.State == "running" {
		return "-"
	}
	return ui.Ago(env.Look, addTimes(x.EndedAgoNS, ageNS(env, b)))
}

// ageNS is how old the figures are.
func ageNS(env *ui.Env, b *block) int64 {
	if b.engine.LastNS > env.State.Now {
		return 0
	}
	return addTimes(env.State.Now, -b.engine.LastNS)
}

// addTimes adds times that come from elsewhere.
func addTimes(a, b int64) int64 {
	if sum := a + b; (sum > a) == (b > 0) {
		return sum
	}
	return math.MaxInt64
}
