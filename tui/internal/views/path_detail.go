package views

import (
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/internal/explain"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// Detail describes the candidate under the cursor, or of the pair where there is none: its
// route and all reasons.
func (v *PathView) Detail(env *ui.Env, width int) []string {
	if !v.sync(env) {
		d := &pathDetail{l: env.Look, width: width}
		d.wrapped(v.failed, ui.Plain)
		return d.lines
	}
	d := &pathDetail{v: v, env: env, l: env.Look, width: width}
	if c := v.under(env); c != nil {
		d.candidate(c)
	} else if r := v.answer.Route; r != nil {
		d.section("route")
		d.route(r)
	}
	d.peerAccess()
	d.together()
	for i, r := range v.answer.Hints {
		if i == 0 {
			d.section("hints")
		}
		d.reason(r, ui.Middle)
	}
	return d.lines
}

type pathDetail struct {
	v     *PathView
	env   *ui.Env
	l     *ui.Look
	width int
	lines []string
}

func (d *pathDetail) add(line string) { d.lines = append(d.lines, d.l.Cut(line, d.width)) }

func (d *pathDetail) section(title string) {
	if len(d.lines) > 0 {
		d.lines = append(d.lines, "")
	}
	d.add(d.l.Paint(title, ui.Head))
}

func (d *pathDetail) wrapped(text string, s ui.Style) {
	for _, line := range ui.Wrap(d.l.Safe(text), d.width-2, 0) {
		d.add("  " + d.l.Paint(line, s))
	}
}

// reason is a sentence with the place where it was read.
func (d *pathDetail) reason(r pathsel.Reason, s ui.Style) {
	d.wrapped(r.Text, s)
	if r.Evidence != "" {
		d.add("  " + d.l.Paint(d.l.Safe(r.Evidence), ui.Faint))
	}
}

// candidate is one port for the memory of the question.
func (d *pathDetail) candidate(c *pathsel.Candidate) {
	facts := []string{ui.Class(c.Class)}
	if c.NCCL != "" {
		facts = append(facts, "NCCL "+string(c.NCCL))
	}
	facts = append(facts, d.l.Expected(c.BytesPerSec, c.Basis), string(c.Basis), "role "+string(c.Role))
	d.add(d.l.Paint(d.l.Safe(c.Name), ui.Strong) + "  " + d.l.Paint(string(c.Verdict), styleOf(c.Verdict)))
	d.add("  " + strings.Join(facts, ", "))
	d.reason(c.Reason, ui.Plain)
	for _, n := range c.Notes {
		d.reason(n, ui.Faint)
	}
	d.traffic(c)
	d.share(c)
	paths, err := d.v.h.Paths()
	location, ok := d.location(paths)
	if err != nil || !ok {
		return
	}
	r := explain.ToPort(paths, location, c)
	d.section("route from " + string(location))
	if !r.Known {
		d.add("  a part of the way is not known")
	}
	d.route(r)
	d.wrapped("class: "+explain.Why(paths, r), ui.Plain)
}

// location is the memory that the candidates are for.
func (d *pathDetail) location(paths *pathsel.Host) (pathsel.Location, bool) {
	if paths == nil {
		return "", false
	}
	from, to := pathsel.LocationOf(d.v.answer.From), pathsel.LocationOf(d.v.answer.To)
	if slices.Contains(paths.Locations(), from) {
		return from, true
	}
	return to, slices.Contains(paths.Locations(), to)
}

// route lists links, each with what else is known of it below.
func (d *pathDetail) route(r *explain.Route) {
	for i, line := range d.v.h.Links(d.l, r) {
		d.add(" " + line)
		s := &r.Steps[i]
		for _, text := range []string{s.Note, s.Evidence} {
			if text != "" {
				d.add("     " + d.l.Paint(d.l.Safe(text), ui.Faint))
			}
		}
	}
}

// traffic is what the port carries now.
func (d *pathDetail) traffic(c *pathsel.Candidate) {
	line, ok := d.v.h.Line(d.env.State, c.Port)
	if !ok || line.Traffic == nil {
		return
	}
	top := 0.0
	if line.BytesPerSec != nil {
		top = float64(*line.BytesPerSec)
	}
	w := min(40, max(0, d.width-24))
	d.section("now, of " + d.l.PortRate(line.BytesPerSec))
	d.add("  sent     " + d.l.FitRight(d.l.PortRate(line.Sent()), 10) + " " + d.l.Spark(line.Traffic.Sent.Values(), top, w))
	d.add("  received " + d.l.FitRight(d.l.PortRate(line.Received()), 10) + " " + d.l.Spark(line.Traffic.Received.Values(), top, w))
}

// share is what the port carried of all traffic beside its part in the plan.
func (d *pathDetail) share(c *pathsel.Candidate) {
	port, r := d.v.h.Audit(d.env.State, c.Port)
	if port == nil || port.CarriedShare == nil {
		return
	}
	d.section("share in the last " + time.Duration(r.WindowNS).Round(time.Second).String() + ", as topoctl audit")
	d.add("  " + string(port.Verdict) + ": " + audit.Percent(*port.CarriedShare) + " of all, planned " + audit.Percent(*port.PlannedShare))
	for _, why := range port.Reasons {
		d.wrapped("  "+why, ui.Faint)
	}
}

// peerAccess is what the driver says of two GPUs.
func (d *pathDetail) peerAccess() {
	r := d.v.answer.Route
	gpus := r != nil && r.From != r.To && strings.HasPrefix(string(r.From), "gpu:") && strings.HasPrefix(string(r.To), "gpu:")
	switch {
	case !gpus || !r.Known:
	case r.PeerAccess == "ok":
		d.add("peer access: ok, says the driver")
	case r.PeerAccess != "":
		d.add(d.l.Paint(d.l.Mark(ui.Bad)+" peer access: "+d.l.Safe(r.PeerAccess), ui.Bad))
	default:
		d.add("peer access: not known, the driver was not asked")
	}
}

// together is what several ports carry for this memory.
func (d *pathDetail) together() {
	for i, c := range d.v.answer.Capacity {
		if len(c.Shares) == 0 || i > 0 && len(c.Shares) == len(d.v.answer.Capacity[0].Shares) {
			continue
		}
		if i == 0 {
			d.section("together")
		}
		d.add("  " + d.l.Expected(c.BytesPerSec, c.Basis) + " on " + text.Plural(len(c.Shares), c.Of+" port"))
	}
}
