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

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// block is one agent that is watched.
type block struct {
	source string        // "agent http://..."
	status *state.Source // nil: nothing is said of how it does
	engine *state.Engine // nil: it has not answered yet
	lanes  []*state.Lane // that the filter lets through, sorted
	served []*state.Served
	recent []*engine.Explanation
}

// isOld says whether the figures are not those of now.
func (b *block) isOld() bool { return b.status != nil && b.status.Status != record.StatusOK }

// engineRow is one line: of a block, of a section of it, or of a thing in that.
type engineRow struct {
	key    string // "": the cursor skips it
	parent string // the key of what it is folded away with
	folds  bool
	block  *block
	lane   *state.Lane
	served *state.Served
	batch  *engine.Explanation
	text   func(w int) string
}

// blocks are the agents by the names of their sources.
func (v *EngineView) blocks(env *ui.Env) []*block {
	s := env.State
	var out []*block
	of := func(source string) *block {
		for _, b := range out {
			if b.source == source {
				return b
			}
		}
		out = append(out, &block{source: source})
		return out[len(out)-1]
	}
	for i := range s.Sources {
		if x := &s.Sources[i]; strings.HasPrefix(x.Name, record.AgentPrefix) {
			of(x.Name).status = x
		}
	}
	for _, e := range s.Engines {
		b := of(e.Source)
		b.engine = e
		v.filter(env, b)
	}
	slices.SortStableFunc(out, func(a, b *block) int { return cmp.Compare(a.source, b.source) })
	return out
}

// filter takes what the filter lets through, and sorts it.
func (v *EngineView) filter(env *ui.Env, b *block) {
	f := env.Filter
	for _, l := range b.engine.Lanes {
		if f.Match(strings.Join([]string{l.Lane, l.Peer, l.Transport, l.Health, l.LastError, l.LocalAddress, l.RemoteAddress, string(l.LocalPort), string(l.RemotePort)}, " ")) {
			b.lanes = append(b.lanes, l)
		}
	}
	slices.SortStableFunc(b.lanes, func(x, y *state.Lane) int {
		return cmp.Or(v.compare(&x.Throughput, &y.Throughput, x.Retries, y.Retries), cmp.Compare(x.Peer, y.Peer),
			cmp.Compare(x.Transport, y.Transport), cmp.Compare(x.Lane, y.Lane), cmp.Compare(x.ID, y.ID))
	})
	for _, c := range b.engine.Served {
		if f.Match(strings.Join([]string{c.Peer, c.Transport, c.LocalAddress, c.RemoteAddress, string(c.LocalPort)}, " ")) {
			b.served = append(b.served, c)
		}
	}
	slices.SortStableFunc(b.served, func(x, y *state.Served) int {
		return cmp.Or(v.compare(&x.Throughput, &y.Throughput, 0, 0), cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.Transport, y.Transport),
			cmp.Compare(x.Conn, y.Conn), cmp.Compare(x.RemoteAddress, y.RemoteAddress))
	})
	for i := range b.engine.Last.Recent {
		x := &b.engine.Last.Recent[i]
		if f.Match(strings.Join([]string{x.Peer, x.Label, x.State, x.Error}, " ")) {
			b.recent = append(b.recent, x)
		}
	}
}

// compare puts the larger figure first where figures are sorted by; what is not known
// comes last.
func (v *EngineView) compare(a, b *state.Series, retriesA, retriesB int64) int {
	switch v.order {
	case byThroughput:
		return cmp.Compare(lastOrNone(b), lastOrNone(a))
	case byRetries:
		return cmp.Compare(retriesB, retriesA)
	}
	return 0
}

func lastOrNone(s *state.Series) float64 {
	if x, ok := s.Last(); ok {
		return x
	}
	return math.Inf(-1)
}

// rows are all lines, for the width of the last frame.
func (v *EngineView) rows(env *ui.Env) []engineRow {
	blocks := v.blocks(env)
	if len(blocks) == 0 {
		return v.noAgent(env)
	}
	var out []engineRow
	for i, b := range blocks {
		if i > 0 {
			out = append(out, textRow(""))
		}
		out = append(out, v.head(env, b)...)
		if b.engine == nil || v.folded["block "+b.source] {
			continue
		}
		out = append(out, v.laneRows(env, b)...)
		out = append(out, v.servedRows(env, b)...)
		out = append(out, v.batchRows(env, b)...)
	}
	return out
}

func (v *EngineView) noAgent(env *ui.Env) []engineRow {
	out := []engineRow{textRow(env.Look.Paint("no agent is watched", ui.Strong)), textRow("")}
	for _, s := range ui.Wrap("topoctl tui --agent http://HOST:PORT shows the engine of an agent (topoctl agent --http), "+
		"or of a bench while it runs (topoctl bench --http)", v.lineWidth(), 0) {
		out = append(out, textRow(s))
	}
	return out
}

// lineWidth are the columns of a line without the cursor's.
func (v *EngineView) lineWidth() int { return max(v.width-2, 1) }

// textRow is a line that the cursor passes by.
func textRow(text string) engineRow { return engineRow{text: func(int) string { return text }} }

func engineLines(rows []engineRow) []ui.Line {
	out := make([]ui.Line, len(rows))
	for i := range rows {
		out[i] = ui.Line{Key: rows[i].key, Text: rows[i].text}
	}
	return out
}

// title is the head of a section, and of its columns.
func (v *EngineView) title(env *ui.Env, b *block, what, first string, columns func(w int) []ui.Column) engineRow {
	if b.isOld() {
		first = "old: " + first
	}
	key := what + " of " + b.source
	return engineRow{key: key, folds: true, block: b, parent: "block " + b.source, text: func(w int) string {
		glyph := env.Look.Open()
		if v.folded[key] {
			return env.Look.Paint(env.Look.Folded()+" "+first, ui.Head)
		}
		fitted := columns(w)
		for i := range fitted {
			if fitted[i].Width > 0 {
				fitted[i].Title = glyph + " " + first
				break
			}
		}
		return env.Look.Paint(ui.Heads(env.Look, fitted), ui.Head)
	}}
}

// shownOf says how many there are, and how many the filter lets through.
func shownOf(shown, all int, one, many string) string {
	if shown == all {
		return text.Plural(all, one, many)
	}
	return fmt.Sprintf("%d of %s", shown, text.Plural(all, one, many))
}

func (v *EngineView) laneRows(env *ui.Env, b *block) []engineRow {
	if len(b.engine.Last.Lanes) == 0 {
		return []engineRow{textRow("  no lanes: no peer was opened, or nothing was sent yet")}
	}
	what := shownOf(len(b.lanes), len(b.engine.Lanes), "lane", "lanes")
	if more := len(b.engine.Last.Lanes) - len(b.engine.Lanes); more > 0 {
		what += fmt.Sprintf(" (+%d)", more)
	}
	if v.order != engineByName {
		what += " by " + orderNames[v.order]
	}
	out := []engineRow{v.title(env, b, "lanes", what, laneColumns(b))}
	if v.folded[out[0].key] {
		return out
	}
	top := 0.0
	for _, l := range b.engine.Lanes {
		top = max(top, l.Throughput.Max())
	}
	for _, l := range b.lanes {
		out = append(out, engineRow{
			key: strings.Join([]string{"lane", b.source, l.Peer, l.Lane, strconv.Itoa(int(l.ID))}, "\x00"), parent: out[0].key, block: b, lane: l,
			text: func(w int) string { return laneText(env, b, l, top, w) },
		})
	}
	return out
}

func (v *EngineView) servedRows(env *ui.Env, b *block) []engineRow {
	all := len(b.engine.Last.Served) + b.engine.Last.ServedUnlisted
	if all == 0 {
		return nil
	}
	out := []engineRow{v.title(env, b, "served", shownOf(len(b.served), all, "conn of peers", "conns of peers"), servedColumns)}
	if v.folded[out[0].key] {
		return out
	}
	top := 0.0
	for _, c := range b.engine.Served {
		top = max(top, c.Throughput.Max())
	}
	for _, c := range b.served {
		out = append(out, engineRow{
			key:    strings.Join([]string{"served", b.source, c.Peer, c.Transport, strconv.FormatUint(c.Conn, 10), c.RemoteAddress}, "\x00"),
			parent: out[0].key, block: b, served: c,
			text: func(w int) string { return servedText(env, b, c, top, w) },
		})
	}
	return out
}

func (v *EngineView) batchRows(env *ui.Env, b *block) []engineRow {
	all := len(b.engine.Last.Recent)
	if all == 0 {
		return nil
	}
	out := []engineRow{v.title(env, b, "batches", shownOf(len(b.recent), all, "batch", "batches"), batchColumns)}
	if v.folded[out[0].key] {
		return out
	}
	for i, x := range b.recent {
		out = append(out, engineRow{
			key: fmt.Sprintf("batch\x00%s\x00%d", b.source, i), parent: out[0].key, block: b, batch: x,
			text: func(w int) string { return batchText(env, b, x, w) },
		})
	}
	return out
}
