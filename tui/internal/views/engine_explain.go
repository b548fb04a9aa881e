package views

import (
	"fmt"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// batch is the explanation: what there was to choose from, and what each lane did.
func (d *engineDetail) batch(x *engine.Explanation) {
	l := d.l
	name := "batch with peer " + x.Peer
	if x.Label != "" {
		name = x.Label + ", " + name
	}
	d.title(name)
	line := markedLine(l, l.Safe(x.State), batchStyle(x))
	if x.Error != "" {
		line += ": " + l.Safe(x.Error)
	}
	d.field("state", line)
	d.field("bytes", fmt.Sprintf("%s of %s, in %s", units.Bytes(x.Bytes), units.Bytes(x.Total), text.Plural(x.Ops, "op")))
	d.field("took", ui.Duration(l, x.DurationNS)+", "+l.RateOf(batchRate(x)))
	d.field("ended", ended(d.env, d.b, x))
	d.field("retries", text.Plural(x.Retries, "slice"))
	for _, n := range x.Notes {
		d.field("note", l.Safe(n))
	}
	for i := range x.Routes {
		d.route(&x.Routes[i], x.State == "running")
	}
}

func (d *engineDetail) route(r *engine.RouteRecord, running bool) {
	l := d.l
	place := func(s string) string {
		if s == "" {
			return "memory of unknown place"
		}
		return l.Safe(s)
	}
	d.lines = append(d.lines, "")
	d.styled(fmt.Sprintf("%s to the peer's %s: %s", place(string(r.Local)), place(string(r.Remote)), units.Bytes(r.Bytes)), 2, ui.Head)
	for i := range r.Groups {
		d.group(&r.Groups[i])
	}
	for i := range r.Used {
		d.used(&r.Used[i])
	}
	switch {
	case len(r.Used) > 0:
	case running:
		d.styled("what each lane does is known at the end", 2, ui.Faint)
	default:
		d.styled("no lane carried anything", 2, ui.Faint)
	}
}

// group is what one transport offered.
func (d *engineDetail) group(g *engine.GroupRecord) {
	l := d.l
	text := l.Safe(g.Transport)
	if g.Reason != "" {
		text += ": " + l.Safe(g.Reason)
	}
	d.styled(text, 2, ui.Accent)
	for i := range g.Lanes {
		x := &g.Lanes[i]
		style, sign := ui.Plain, "+"
		if x.Verdict != "chosen" {
			style, sign = ui.Faint, "o"
		}
		text := fmt.Sprintf("%s %s: %s, expected %s, now %s", sign, l.Safe(x.Lane), l.Safe(x.Verdict), l.Rate(x.ExpectedBytesPerSec), l.Safe(x.Health))
		if x.Reason != "" {
			text += " (" + l.Safe(x.Reason) + ")"
		}
		d.styled("  "+text, 4, style)
	}
	for _, s := range g.Rejected {
		d.styled("  - not used: "+l.Safe(s), 4, ui.Faint)
	}
}

// used is what one lane did.
func (d *engineDetail) used(u *engine.LaneUse) {
	l := d.l
	style := ui.Plain
	text := fmt.Sprintf("%s carried %s in %s, %s to %s", l.Safe(u.Lane), units.Bytes(u.Bytes), text.Plural(u.Slices, "slice"),
		ui.Duration(l, u.FirstNS), ui.Duration(l, u.LastNS))
	if u.Lane == "" {
		text = "a lane that is gone" + text
	}
	if u.Retries > 0 {
		style = ui.Middle
		text += fmt.Sprintf(", %d not delivered", u.Retries)
	}
	if u.Error != "" {
		style = ui.Bad
		text += ", last error: " + l.Safe(u.Error)
	}
	d.styled(l.Mark(style)+" "+text, 4, style)
}
