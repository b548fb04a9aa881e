package views

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// begin names what the detail is of, and says what is wrong with its source.
func (a *agent) begin(d *detail, title string) {
	d.title(title, ui.Plain)
	if text, style := a.trouble(); text != "" {
		d.say("", d.l.Marked(text, style), style)
	}
}

// tell is about the engine itself, with the peers that it has opened.
func (a *agent) tell(d *detail) {
	if a.engine == nil {
		a.begin(d, a.source)
		return
	}
	x := a.engine.Last
	a.begin(d, "engine "+x.Name)
	d.field("source", a.source)
	d.field("batches", fmt.Sprintf("%s, %d failed, %d unsafe", text.Plural(x.Batches, "batch", "batches"), x.Failed, x.Unsafe))
	for _, f := range []struct {
		what  string
		times map[string]int64
	}{{"peers not opened", x.Failures.Opens}, {"not begun", x.Failures.Submits}, {"batches failed", x.Failures.Batches}} {
		for _, why := range slices.Sorted(maps.Keys(f.times)) {
			d.field(f.what, fmt.Sprintf("%d, %s", f.times[why], why))
		}
	}
	d.field("slices", fmt.Sprintf("%d, %d of them sent again", x.Slices, x.Retries))
	if x.Fallback > 0 {
		d.field("fallen back", text.Plural(x.Fallback, "time")+" to a worse transport, because every lane of the better one was sick")
	}
	uncounted := a.uncounted(" without ", ", which is not counted")
	d.field("peers wrote", units.Bytes(x.ServedWrittenBytes)+uncounted)
	d.field("peers read", units.Bytes(x.ServedReadBytes)+uncounted)
	d.field("refused", text.Plural(x.Refused, "request")+" that peers may not make")
	d.field("open by", text.Plural(x.Sessions, "peer"))
	if more := x.ServedUnlisted + len(x.Served) - len(a.engine.Served); more > 0 {
		d.field("not listed", text.Plural(more, "connection")+" of peers")
	}
	for i := range x.Peers {
		p, style := &x.Peers[i], ui.Plain
		if p.State != engine.PeerOpen {
			style = ui.Bad
		}
		line := "peer " + p.Name + ": " + string(p.State)
		if p.RoundTripNS > 0 {
			line += ", round trip " + ui.Duration(d.l, p.RoundTripNS)
		}
		line += ", " + text.Plural(p.Batches, "batch runs", "batches run")
		if p.Error != "" {
			line += ": " + p.Error
		}
		d.say("", d.l.Marked(line, style), style)
	}
}

// What the states of a lane mean.
var healths = map[engine.LaneHealth]string{
	engine.LaneIdle:      ": nothing has used it yet",
	engine.LaneDialling:  ": it is being connected",
	engine.LaneHalfOpen:  ": it was sick, and carries one slice at a time until it has recovered",
	engine.LaneSick:      ": it failed or stalled: other lanes carry its slices, and it is dialled again after a while",
	engine.LaneSuspended: ": it was taken out of use",
	engine.LaneGone:      ": there is no such lane any more",
}

func (a *agent) lane(d *detail, x *state.Lane) {
	a.begin(d, "lane "+x.Lane)
	style := healthStyle(x.Health)
	d.styled("health", d.l.Marked(string(x.Health), style)+healths[x.Health], style)
	d.field("last error", x.LastError)
	a.moves(d, &x.Throughput)
	if x.BytesPerSec > 0 {
		d.field("estimate", d.l.RateOf(float64(x.BytesPerSec))+" while it is busy, "+basis(&x.LaneStats))
	} else {
		d.field("estimate", ui.Unknown+": not measured, and the topology gives no rate")
	}
	flight := units.Bytes(x.InflightBytes) + " in " + text.Plural(x.InflightSlices, "slice")
	if x.WindowBytes > 0 {
		flight += ", of a window of " + units.Bytes(x.WindowBytes)
	}
	d.field("in flight", flight)
	d.field("carried", units.Bytes(x.Bytes)+" in "+text.Plural(x.Slices, "slice"))
	again := itoa(x.Retries) + " slices were sent again over another lane"
	if x.Retried > 0 {
		again += ", " + itoa(x.Retried) + " of them while this was watched"
	}
	d.field("retries", again)
	d.field("sick", text.Plural(x.Failures, "time"))
	d.field("peer", x.Peer)
	d.field("transport", string(x.Transport))
	d.field("local", strings.TrimSpace(string(x.LocalPort)+" "+x.LocalAddress))
	d.field("remote", strings.TrimSpace(string(x.RemotePort)+" "+x.RemoteAddress))
}

// moves is the rate now, and of late.
func (a *agent) moves(d *detail, s *state.Series) {
	text := a.rate(s)
	if s.Max() > 0 {
		text += ", at most " + d.l.RateOf(s.Max()) + " of late"
	}
	d.field("moves", text)
	if s.Max() > 0 {
		d.add(d.l.Spark(s.Values(), 0, min(d.w, state.HistoryLen)))
	}
}

func (a *agent) served(d *detail, x *state.Served) {
	a.begin(d, "connection "+strconv.FormatUint(x.Conn, 10)+" of peer "+x.Peer)
	d.field("transport", string(x.Transport))
	if x.WrittenBytes == nil && x.ReadBytes == nil {
		d.field("bytes", ui.Unknown+": by "+string(x.Transport)+" peers move them directly, so they are not counted here")
	} else {
		d.field("written", bytesOf(x.WrittenBytes)+" by the peer, into this engine's memory")
		d.field("read", bytesOf(x.ReadBytes)+" by the peer, from this engine's memory")
		a.moves(d, &x.Throughput)
	}
	d.field("local", strings.TrimSpace(string(x.LocalPort)+" "+x.LocalAddress))
	d.field("remote", x.RemoteAddress)
}

// batch is the explanation: what there was to choose from, and what each lane did.
func (a *agent) batch(d *detail, x *engine.Explanation) {
	a.begin(d, strings.TrimPrefix(x.Label+", batch with peer "+x.Peer, ", "))
	state := d.l.Marked(string(x.State), batchStyle(x))
	if x.Error != "" {
		state += ": " + x.Error
	}
	d.styled("state", state, batchStyle(x))
	d.field("bytes", fmt.Sprintf("%s of %s, in %s", units.Bytes(x.Bytes), units.Bytes(x.Total), text.Plural(x.Ops, "op")))
	d.field("took", ui.Duration(d.l, x.DurationNS)+", "+d.l.RateOf(batchRate(x)))
	d.field("ended", a.ended(x))
	d.field("retries", text.Plural(x.Retries, "slice"))
	d.list("note", x.Notes)
	for i := range x.Routes {
		route(d, &x.Routes[i], x.State == engine.BatchRunning)
	}
}

func route(d *detail, r *engine.RouteRecord, running bool) {
	const nowhere = "memory of unknown place"
	d.section(fmt.Sprintf("%s to the peer's %s: %s",
		cmp.Or(string(r.Local), nowhere), cmp.Or(string(r.Remote), nowhere), units.Bytes(r.Bytes)))
	for i := range r.Groups {
		g := &r.Groups[i]
		d.say("", strings.TrimSuffix(string(g.Transport)+": "+g.Reason, ": "), ui.Accent)
		for k := range g.Lanes {
			x := &g.Lanes[k]
			style, sign := ui.Plain, "+"
			if x.Verdict != pathsel.Chosen {
				style, sign = ui.Faint, "o"
			}
			line := fmt.Sprintf("%s %s: %s, expected %s, now %s", sign, x.Lane, x.Verdict, d.l.Rate(x.ExpectedBytesPerSec), x.Health)
			if x.Reason != "" {
				line += " (" + x.Reason + ")"
			}
			d.say("  ", line, style)
		}
		for _, s := range g.Rejected {
			d.say("  ", "- not used: "+s, ui.Faint)
		}
	}
	for i := range r.Used {
		used(d, &r.Used[i])
	}
	switch {
	case len(r.Used) > 0:
	case running:
		d.say("", "what each lane does is known at the end", ui.Faint)
	default:
		d.say("", "no lane carried anything", ui.Faint)
	}
}

// used is what one lane did.
func used(d *detail, u *engine.LaneUse) {
	style := ui.Plain
	line := fmt.Sprintf("%s carried %s in %s, %s to %s",
		cmp.Or(u.Lane, "a lane that is gone"), units.Bytes(u.Bytes), text.Plural(u.Slices, "slice"), ui.Duration(d.l, u.FirstNS), ui.Duration(d.l, u.LastNS))
	if u.Retries > 0 {
		style = ui.Middle
		line += fmt.Sprintf(", %d not delivered", u.Retries)
	}
	if u.Error != "" {
		style = ui.Bad
		line += ", last error: " + u.Error
	}
	d.say("", d.l.Mark(style)+" "+line, style)
}
