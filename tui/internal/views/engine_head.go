package views

import (
	"strings"

	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

const inlineSpark = 16 // columns

// head names the engine and its state, then the totals.
func (v *EngineView) head(env *ui.Env, b *block) []engineRow {
	l := env.Look
	key := "block " + b.source
	glyph := l.Open()
	if v.folded[key] {
		glyph = l.Folded()
	}
	name := strings.TrimPrefix(b.source, record.AgentPrefix)
	if b.engine == nil {
		glyph = " "
	} else if b.engine.Last.Name != "" {
		name = b.engine.Last.Name + " at " + name
	}
	out := []engineRow{{key: key, folds: b.engine != nil, block: b, text: func(w int) string {
		right := asOf(env, b)
		return l.Paint(l.Fit(glyph+" "+l.Safe(name), w-ui.Width(right)-1), ui.Accent) + " " + right
	}}}
	add := func(pieces ...string) {
		for _, line := range ui.Flow(l, v.lineWidth()-2, pieces...) {
			out = append(out, textRow("  "+line))
		}
	}
	if text, style := sourceTrouble(env, b); text != "" {
		for _, line := range ui.Wrap(l.Mark(style)+" "+text, v.lineWidth()-2, 2) {
			out = append(out, textRow("  "+l.Paint(line, style)))
		}
	}
	if e := b.engine; e != nil {
		x := e.Last
		add(text.Plural(x.Batches, "batch", "batches"), count(l, x.Failed, itoa(x.Failed)+" failed", ui.Bad), count(l, x.Unsafe, itoa(x.Unsafe)+" unsafe", ui.Bad),
			count(l, x.Retries, text.Plural(x.Retries, "retry", "retries"), ui.Middle), count(l, x.Fallback, text.Plural(x.Fallback, "fallback"), ui.Middle))
		add(served(l, b)...)
	}
	return out
}

// count marks a number that should be 0 and is not.
func count(l *ui.Look, n int64, text string, style ui.Style) string {
	if n == 0 {
		return text
	}
	return l.Paint(l.Mark(style)+" "+text, style)
}

// served is what peers did here, as far as it is counted.
func served(l *ui.Look, b *block) []string {
	e := b.engine
	one := func(what string, total int64, s *state.Series) string {
		return what + " " + units.Bytes(total) + ", " + currentRate(l, b, s) + " " + strings.TrimLeft(l.Spark(s.Values(), 0, inlineSpark), " ")
	}
	out := []string{"peers:", one("wrote", e.Last.ServedWrittenBytes, &e.WrittenBytesPerSec), one("read", e.Last.ServedReadBytes, &e.ReadBytesPerSec)}
	if len(e.Last.ServedUncounted) > 0 {
		var names []string
		for _, n := range e.Last.ServedUncounted {
			names = append(names, l.Safe(n))
		}
		out = append(out, "("+strings.Join(names, ", ")+" not counted)")
	}
	return out
}

// asOf is how old the figures are.
func asOf(env *ui.Env, b *block) string {
	if b.engine == nil {
		return ""
	}
	text := ui.Ago(env.Look, ageNS(env, b))
	if b.isOld() {
		return env.Look.Paint("old, "+text, ui.Bad)
	}
	return env.Look.Paint(text, ui.Faint)
}

// sourceTrouble says what is wrong with the source, "" nothing.
func sourceTrouble(env *ui.Env, b *block) (string, ui.Style) {
	x := b.status
	if x == nil || x.Status == record.StatusOK {
		return "", ui.Plain
	}
	what, style := "", ui.Bad
	switch x.Status {
	case record.StatusWaiting:
		what, style = "no answer", ui.Middle
	case record.StatusEnded:
		what, style = "ended", ui.Middle
	default:
		what = env.Look.Safe(x.Status)
	}
	if b.engine != nil {
		what += ", last heard of " + ui.Ago(env.Look, ageNS(env, b))
	}
	if x.Detail != "" {
		what += ": " + env.Look.Safe(x.Detail)
	}
	if b.engine != nil {
		what += "; what follows is old"
	}
	return what, style
}
