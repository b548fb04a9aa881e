package views

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// engineOrders are what lanes and connections are sorted by, the larger figure first.
var engineOrders = []string{"name", "throughput", "retries"}

// EngineView is the dashboard's fifth view: the engines of the agents (and benches) that are
// watched, their lanes, the connections that peers have to them, and what became of their latest
// batches.
type EngineView struct {
	rowsView
	order int // of engineOrders
}

// NewEngine makes the view.
func NewEngine() *EngineView {
	v := &EngineView{}
	v.rowsView = rowsView{of: v, name: "Engine", folded: map[string]bool{}, width: 80,
		hints: []ui.Action{ui.Sort, ui.Enter, ui.FilterKey, ui.Units, ui.Copy}}
	return v
}

func (v *EngineView) above(*ui.Env, int) []string { return nil }

func (v *EngineView) act(a ui.Action, env *ui.Env, _ *row) (ui.Request, bool) {
	if a != ui.Sort {
		return ui.Request{}, false
	}
	v.order = (v.order + 1) % len(engineOrders)
	env.Shared.Message = "sorted by " + engineOrders[v.order]
	return ui.Request{}, true
}

// agent is one that is watched.
type agent struct {
	source string // "agent http://..."
	env    *ui.Env
	status *state.Source // nil: nothing is said of how it does
	engine *state.Engine // nil: it has not answered yet
}

// isOld says whether the figures are not those of now.
func (a *agent) isOld() bool { return a.status != nil && a.status.Status != record.StatusOK }

// agents are those that are watched, by the names of their sources.
func agents(env *ui.Env) []*agent {
	bySource := map[string]*agent{}
	var out []*agent
	of := func(source string) *agent {
		if bySource[source] == nil {
			bySource[source] = &agent{source: source, env: env}
			out = append(out, bySource[source])
		}
		return bySource[source]
	}
	for i := range env.State.Sources {
		if x := &env.State.Sources[i]; strings.HasPrefix(x.Name, record.AgentPrefix) {
			of(x.Name).status = x
		}
	}
	for _, e := range env.State.Engines {
		of(e.Source).engine = e
	}
	slices.SortStableFunc(out, func(a, b *agent) int { return cmp.Compare(a.source, b.source) })
	return out
}

func (v *EngineView) rows(env *ui.Env, w int) []row {
	all := agents(env)
	var out []row
	if len(all) == 0 {
		out = append(out, textRow(env.Look.Paint("no agent is watched", ui.Strong)), textRow(""))
		for _, s := range ui.Wrap("topoctl tui --agent http://HOST:PORT shows the engine of an agent (topoctl agent --http), "+
			"or of a bench while it runs (topoctl bench --http)", w, 0) {
			out = append(out, textRow(s))
		}
	}
	for i, a := range all {
		if i > 0 {
			out = append(out, textRow(""))
		}
		out = append(out, v.agentRows(a, w)...)
		if a.engine == nil {
			continue
		}
		out = append(out, v.laneRows(a)...)
		out = append(out, v.servedRows(a)...)
		out = append(out, v.batchRows(a)...)
	}
	return out
}

// agentRows name the engine and its state, then the totals.
func (v *EngineView) agentRows(a *agent, w int) []row {
	l := a.env.Look
	key := "block " + a.source
	head := row{key: key, folds: a.engine != nil, detail: a.tell}
	sign, name := "  ", strings.TrimPrefix(a.source, record.AgentPrefix)
	if a.engine != nil {
		head.value = a.engine.Last
		sign, name = v.fold(a.env, key), strings.TrimPrefix(a.engine.Last.Name+" at "+name, " at ")
	}
	head.text = func(w int) string {
		right := a.asOf()
		return l.Paint(l.Fit(sign+l.Safe(name), w-ui.Width(right)-1), ui.Accent) + " " + right
	}
	out := []row{head}
	if text, style := a.trouble(); text != "" {
		for _, line := range ui.Wrap(l.Safe(l.Marked(text, style)), w-2, 2) {
			out = append(out, textRow("  "+l.Paint(line, style)))
		}
	}
	if a.engine == nil {
		return out
	}
	x := a.engine.Last
	for _, pieces := range [][]string{
		{text.Plural(x.Batches, "batch", "batches"),
			wrong(l, x.Failed, itoa(x.Failed)+" failed", ui.Bad),
			wrong(l, x.Unsafe, itoa(x.Unsafe)+" unsafe", ui.Bad),
			wrong(l, x.Retries, text.Plural(x.Retries, "retry", "retries"), ui.Middle),
			wrong(l, x.Fallback, text.Plural(x.Fallback, "fallback"), ui.Middle)},
		{"peers:", "wrote " + units.Bytes(x.ServedWrittenBytes) + ", " + a.rate(&a.engine.WrittenBytesPerSec),
			"read " + units.Bytes(x.ServedReadBytes) + ", " + a.rate(&a.engine.ReadBytesPerSec), l.Safe(a.uncounted("(", " not counted)"))},
	} {
		for _, line := range ui.Flow(l, w-2, pieces...) {
			out = append(out, textRow("  "+line))
		}
	}
	return out
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// wrong marks a number that should be 0 and is not.
func wrong(l *ui.Look, n int64, text string, style ui.Style) string {
	if n == 0 {
		return text
	}
	return l.Paint(l.Marked(text, style), style)
}

// rate is the newest value of a history; what a source said that is silent now is not of now.
func (a *agent) rate(s *state.Series) string {
	if x, ok := s.Last(); ok && !a.isOld() {
		return a.env.Look.RateOf(x)
	}
	return ui.Unknown
}

// uncounted names the transports that peers use uncounted, "" none.
func (a *agent) uncounted(before, after string) string {
	if names := a.engine.Last.ServedUncounted; len(names) > 0 {
		return before + strings.Join(names, ", ") + after
	}
	return ""
}

// ageNS is how old the figures are.
func (a *agent) ageNS() int64 {
	if a.engine.LastNS > a.env.State.Now {
		return 0
	}
	return addTimes(a.env.State.Now, -a.engine.LastNS)
}

// addTimes adds times that come from elsewhere.
func addTimes(a, b int64) int64 {
	if sum := a + b; (sum > a) == (b > 0) {
		return sum
	}
	return math.MaxInt64
}

// asOf is how old the figures are, for people.
func (a *agent) asOf() string {
	if a.engine == nil {
		return ""
	}
	ago := ui.Ago(a.env.Look, a.ageNS())
	if a.isOld() {
		return a.env.Look.Paint("old, "+ago, ui.Bad)
	}
	return a.env.Look.Paint(ago, ui.Faint)
}

// trouble says what is wrong with the source, "" nothing.
func (a *agent) trouble() (string, ui.Style) {
	if !a.isOld() {
		return "", ui.Plain
	}
	what, style := a.status.Status, ui.Bad
	switch what {
	case record.StatusWaiting:
		what, style = "no answer", ui.Middle
	case record.StatusEnded:
		style = ui.Middle
	}
	if a.engine != nil {
		what += ", last heard of " + ui.Ago(a.env.Look, a.ageNS())
	}
	if a.status.Detail != "" {
		what += ": " + a.status.Detail
	}
	if a.engine != nil {
		what += "; what follows is old"
	}
	return what, style
}

// section is a head that names columns and folds the lines below it.
func section[T any](v *EngineView, a *agent, what, first string, columns []ui.Column[T]) row {
	if a.isOld() {
		first = "old: " + first
	}
	key := what + " of " + a.source
	first = v.fold(a.env, key) + first
	return row{key: key, folds: true, parent: "block " + a.source, value: a.engine.Last, detail: a.tell, text: func(w int) string {
		if v.isFolded(a.env, key) {
			return a.env.Look.Paint(first, ui.Head)
		}
		fitted := ui.Fit(columns, w)
		fitted[0].Title = first
		return a.env.Look.Paint(ui.Heads(a.env.Look, fitted), ui.Head)
	}}
}

// cells is the text of a line in columns.
func cells[T any](l *ui.Look, columns []ui.Column[T], x T) func(w int) string {
	return func(w int) string { return ui.Cells(l, ui.Fit(columns, w), x) }
}

// shownOf says how many there are, and how many the filter lets through.
func shownOf(shown, all int, one, many string) string {
	if shown == all {
		return text.Plural(all, one, many)
	}
	return fmt.Sprintf("%d of %s", shown, text.Plural(all, one, many))
}

// compare puts the larger figure first where figures are sorted by; what is not known
// comes last.
func (v *EngineView) compare(a, b *state.Series, retriesA, retriesB int64) int {
	last := func(s *state.Series) float64 {
		if x, ok := s.Last(); ok {
			return x
		}
		return math.Inf(-1)
	}
	switch engineOrders[v.order] {
	case "throughput":
		return cmp.Compare(last(b), last(a))
	case "retries":
		return cmp.Compare(retriesB, retriesA)
	}
	return 0
}

func (v *EngineView) laneRows(a *agent) []row {
	all, more := a.engine.Lanes, len(a.engine.Last.Lanes)-len(a.engine.Lanes)
	if len(all) == 0 {
		return []row{{parent: "block " + a.source, text: func(int) string { return "  no lanes: no peer was opened, or nothing was sent yet" }}}
	}
	top := 0.0
	var list []*state.Lane
	for _, x := range all {
		top = max(top, x.Throughput.Max())
		if a.env.Filter.Match(strings.Join([]string{x.Lane, x.Peer, string(x.Transport), string(x.Health), x.LastError, x.LocalAddress, x.RemoteAddress,
			string(x.LocalPort), string(x.RemotePort)}, " ")) {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(x, y *state.Lane) int {
		return cmp.Or(v.compare(&x.Throughput, &y.Throughput, x.Retries, y.Retries), cmp.Compare(x.Peer, y.Peer),
			cmp.Compare(x.Transport, y.Transport), cmp.Compare(x.Lane, y.Lane), cmp.Compare(x.ID, y.ID))
	})
	what := shownOf(len(list), len(all), "lane", "lanes")
	if more > 0 {
		what += fmt.Sprintf(" (+%d)", more)
	}
	if v.order > 0 {
		what += " by " + engineOrders[v.order]
	}
	columns := laneColumns(a, top)
	out := []row{section(v, a, "lanes", what, columns)}
	for _, x := range list {
		key := strings.Join([]string{"lane", a.source, x.Peer, x.Lane, strconv.Itoa(int(x.ID))}, "\x00")
		out = append(out, row{key: key, parent: out[0].key, value: &x.LaneStats,
			text: cells(a.env.Look, columns, x), detail: func(d *detail) { a.lane(d, x) }})
	}
	return out
}

// laneColumns are the columns of lanes. top is the rate of a full column of the graph, the same for all lanes of an
// engine. Where there are several peers, their names are worth more room than what the detail shows, too.
func laneColumns(a *agent, top float64) []ui.Column[*state.Lane] {
	l, peerRank := a.env.Look, 11
	for _, x := range a.engine.Lanes {
		if x.Peer != a.engine.Lanes[0].Peer {
			peerRank = 4
		}
	}
	healthStyle := func(x *state.Lane) ui.Style { return healthStyle(x.Health) }
	return []ui.Column[*state.Lane]{
		{Title: "lane", Width: 24, Most: 44, Rank: 0, Text: func(x *state.Lane) string { return x.Lane }},
		{Title: "via", Width: 4, Rank: 7, Text: func(x *state.Lane) string { return string(x.Transport) }},
		{Title: "health", Width: 11, Rank: 1, Style: healthStyle,
			Text: func(x *state.Lane) string { return l.Mark(healthStyle(x)) + " " + string(x.Health) }},
		{Title: "moves", Width: 10, Right: true, Rank: 2, Text: func(x *state.Lane) string { return a.rate(&x.Throughput) }},
		{Width: 8, Most: 32, Rank: 3, Graph: func(x *state.Lane) ([]float64, float64) { return x.Throughput.Values(), top }},
		{Title: "estimate", Width: 11, Right: true, Rank: 6, Text: func(x *state.Lane) string { return estimate(l, &x.LaneStats) }},
		{Title: "basis", Width: 8, Rank: 10, Text: func(x *state.Lane) string { return basis(&x.LaneStats) }},
		{Title: "in flight", Width: 9, Right: true, Rank: 5, Text: func(x *state.Lane) string { return units.Bytes(x.InflightBytes) }},
		{Title: "slices", Width: 9, Right: true, Rank: 8, Text: func(x *state.Lane) string { return itoa(x.Slices) }},
		{Title: "retries", Width: 9, Right: true, Rank: 4, Text: retries},
		{Title: "sick", Width: 4, Right: true, Rank: 9, Text: func(x *state.Lane) string { return itoa(x.Failures) }},
		{Title: "peer", Width: 11, Most: 24, Rank: peerRank, Text: func(x *state.Lane) string { return x.Peer }},
	}
}

func healthStyle(health engine.LaneHealth) ui.Style {
	switch health {
	case engine.LaneHealthy:
		return ui.Good
	case engine.LaneIdle:
		return ui.Plain
	case engine.LaneSick, engine.LaneGone:
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

// retries are all so far, and behind a + those that the dashboard has seen come.
func retries(x *state.Lane) string {
	if x.Retried > 0 {
		return itoa(x.Retries) + " +" + itoa(x.Retried)
	}
	return itoa(x.Retries)
}

func (v *EngineView) servedRows(a *agent) []row {
	all := len(a.engine.Last.Served) + a.engine.Last.ServedUnlisted
	if all == 0 {
		return nil
	}
	top := 0.0
	var list []*state.Served
	for _, c := range a.engine.Served {
		top = max(top, c.Throughput.Max())
		if a.env.Filter.Match(strings.Join([]string{c.Peer, string(c.Transport), c.LocalAddress, c.RemoteAddress, string(c.LocalPort)}, " ")) {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(x, y *state.Served) int {
		return cmp.Or(v.compare(&x.Throughput, &y.Throughput, 0, 0), cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.Transport, y.Transport),
			cmp.Compare(x.Conn, y.Conn), cmp.Compare(x.RemoteAddress, y.RemoteAddress))
	})
	columns := []ui.Column[*state.Served]{
		{Title: "peer", Width: 23, Most: 32, Rank: 0, Text: func(x *state.Served) string { return x.Peer }},
		{Title: "via", Width: 4, Rank: 5, Text: func(x *state.Served) string { return string(x.Transport) }},
		{Title: "moves", Width: 10, Right: true, Rank: 1, Text: func(x *state.Served) string { return a.rate(&x.Throughput) }},
		{Width: 8, Most: 32, Rank: 2, Graph: func(x *state.Served) ([]float64, float64) { return x.Throughput.Values(), top }},
		{Title: "written", Width: 9, Right: true, Rank: 3, Text: func(x *state.Served) string { return bytesOf(x.WrittenBytes) }},
		{Title: "read", Width: 9, Right: true, Rank: 4, Text: func(x *state.Served) string { return bytesOf(x.ReadBytes) }},
		{Title: "from", Width: 21, Most: 47, Rank: 6, Text: func(x *state.Served) string { return cmp.Or(x.RemoteAddress, "-") }},
		{Title: "to", Width: 21, Most: 47, Rank: 7, Text: func(x *state.Served) string { return cmp.Or(x.LocalAddress, "-") }},
		{Title: "port", Width: 12, Most: 24, Rank: 8, Text: func(x *state.Served) string { return cmp.Or(string(x.LocalPort), "-") }},
	}
	out := []row{section(v, a, "served", shownOf(len(list), all, "conn of peers", "conns of peers"), columns)}
	for _, x := range list {
		key := strings.Join([]string{"served", a.source, x.Peer, string(x.Transport), strconv.FormatUint(x.Conn, 10), x.RemoteAddress}, "\x00")
		out = append(out, row{key: key, parent: out[0].key, value: &x.ServedStats,
			text: cells(a.env.Look, columns, x), detail: func(d *detail) { a.served(d, x) }})
	}
	return out
}

// bytesOf is a counter that may not be known.
func bytesOf(n *int64) string {
	if n == nil {
		return ui.Unknown
	}
	return units.Bytes(*n)
}

func (v *EngineView) batchRows(a *agent) []row {
	all := a.engine.Last.Recent
	if len(all) == 0 {
		return nil
	}
	l := a.env.Look
	columns := []ui.Column[*engine.Explanation]{
		{Title: "batch", Width: 14, Most: 24, Rank: 0, Style: batchStyle,
			Text: func(x *engine.Explanation) string { return l.Mark(batchStyle(x)) + " " + string(x.State) }},
		{Title: "bytes", Width: 9, Right: true, Rank: 1, Text: func(x *engine.Explanation) string { return units.Bytes(x.Bytes) }},
		{Title: "took", Width: 8, Right: true, Rank: 2, Text: func(x *engine.Explanation) string { return ui.Duration(l, x.DurationNS) }},
		{Title: "rate", Width: 10, Right: true, Rank: 3, Text: func(x *engine.Explanation) string { return l.RateOf(batchRate(x)) }},
		{Title: "lanes", Width: 5, Right: true, Rank: 4, Text: lanesUsed},
		{Title: "retries", Width: 7, Right: true, Rank: 5, Text: func(x *engine.Explanation) string { return itoa(x.Retries) }},
		{Title: "ended", Width: 11, Right: true, Rank: 6, Text: a.ended},
		{Title: "peer", Width: 14, Most: 32, Rank: 7, Text: func(x *engine.Explanation) string { return x.Peer }},
		{Title: "label or error", Width: 16, Most: 80, Rank: 8, Text: func(x *engine.Explanation) string { return cmp.Or(x.Error, x.Label) }},
	}
	var out []row
	for i := range all {
		x := &all[i]
		if a.env.Filter.Match(strings.Join([]string{x.Peer, x.Label, string(x.State), x.Error}, " ")) {
			out = append(out, row{key: fmt.Sprintf("batch\x00%s\x00%d", a.source, len(out)), parent: "batches of " + a.source, value: x,
				text: cells(l, columns, x), detail: func(d *detail) { a.batch(d, x) }})
		}
	}
	return slices.Insert(out, 0, section(v, a, "batches", shownOf(len(out), len(all), "batch", "batches"), columns))
}

// batchStyle marks batches that failed, and those that needed a second try.
func batchStyle(x *engine.Explanation) ui.Style {
	switch {
	case x.State == engine.BatchFailed || x.State == engine.BatchUnsafe:
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
	if x.State == engine.BatchRunning {
		return ui.Unknown
	}
	n := 0
	for i := range x.Routes {
		n += len(x.Routes[i].Used)
	}
	return strconv.Itoa(n)
}

// ended is how long ago, by now and not by when the agent said so.
func (a *agent) ended(x *engine.Explanation) string {
	if x.State == engine.BatchRunning {
		return "-"
	}
	return ui.Ago(a.env.Look, addTimes(x.EndedAgoNS, a.ageNS()))
}
