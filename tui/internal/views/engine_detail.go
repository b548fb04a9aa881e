package views

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"

	"github.com/topoctl/topoctl/tui/internal/state"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Detail tells all of what is under the cursor.
func (v *EngineView) Detail(env *ui.Env, width int) []string {
	r := v.under(env)
	if r == nil {
		return nil
	}
	d := &engineDetail{env: env, l: env.Look, w: width, b: r.block}
	switch {
	case r.lane != nil:
		d.lane(r.lane)
	case r.served != nil:
		d.served(r.served)
	case r.batch != nil:
		d.batch(r.batch)
	default:
		d.block()
	}
	return d.lines
}

// engineDetail is a pane that is being written.
type engineDetail struct {
	env   *ui.Env
	l     *ui.Look
	w     int
	b     *block
	lines []string
}

func (d *engineDetail) title(text string) {
	for _, line := range ui.Wrap(d.l.Safe(text), d.w, 2) {
		d.lines = append(d.lines, d.l.Paint(line, ui.Strong))
	}
	if text, style := sourceTrouble(d.env, d.b); text != "" {
		d.styled(d.l.Mark(style)+" "+text, 2, style)
	}
}

func (d *engineDetail) field(name, value string) {
	d.lines = append(d.lines, ui.Field(d.l, name, value, d.w)...)
}

func (d *engineDetail) styled(text string, indent int, style ui.Style) {
	for _, line := range ui.Wrap(text, d.w, indent) {
		d.lines = append(d.lines, d.l.Paint(line, style))
	}
}

// What the states of a lane mean.
var healths = map[string]string{
	"idle":      "nothing has used it yet",
	"dialling":  "it is being connected",
	"healthy":   "",
	"half-open": "it was sick, and carries one slice at a time until it has recovered",
	"sick":      "it failed or stalled: other lanes carry its slices, and it is dialled again after a while",
	"suspended": "it was taken out of use",
	"gone":      "there is no such lane any more",
}

func (d *engineDetail) lane(x *state.Lane) {
	l := d.l
	d.title("lane " + x.Lane)
	line := markedLine(l, l.Safe(x.Health), healthStyle(x.Health))
	if why := healths[x.Health]; why != "" {
		line += ": " + why
	}
	d.field("health", line)
	d.field("last error", l.Safe(x.LastError))
	d.moves(&x.Throughput)
	if x.BytesPerSec > 0 {
		d.field("estimate", l.RateOf(float64(x.BytesPerSec))+" while it is busy, "+basis(&x.LaneStats))
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
	d.field("peer", l.Safe(x.Peer))
	d.field("transport", l.Safe(x.Transport))
	d.ends(string(x.LocalPort), x.LocalAddress, string(x.RemotePort), x.RemoteAddress)
}

// ends are the ports and addresses that bytes go between, as far as they are known.
func (d *engineDetail) ends(localPort, localAddress, remotePort, remoteAddress string) {
	d.field("local", d.l.Safe(strings.TrimSpace(localPort+" "+localAddress)))
	d.field("remote", d.l.Safe(strings.TrimSpace(remotePort+" "+remoteAddress)))
}

// moves is the rate now, and of late.
func (d *engineDetail) moves(s *state.Series) {
	text := currentRate(d.l, d.b, s)
	if s.Max() > 0 {
		text += ", at most " + d.l.RateOf(s.Max()) + " of late"
	}
	d.field("moves", text)
	if w := min(d.w, state.HistoryLen); s.Max() > 0 {
		d.lines = append(d.lines, d.l.Spark(s.Values(), 0, w))
	}
}

func (d *engineDetail) served(x *state.Served) {
	l := d.l
	d.title("connection " + strconv.FormatUint(x.Conn, 10) + " of peer " + x.Peer)
	d.field("transport", l.Safe(x.Transport))
	if x.WrittenBytes == nil && x.ReadBytes == nil {
		d.field("bytes", ui.Unknown+": by "+l.Safe(x.Transport)+" peers move them directly, so they are not counted here")
	} else {
		d.field("written", bytesOf(x.WrittenBytes)+" by the peer, into this engine's memory")
		d.field("read", bytesOf(x.ReadBytes)+" by the peer, from this engine's memory")
		d.moves(&x.Throughput)
	}
	d.ends(string(x.LocalPort), x.LocalAddress, "", x.RemoteAddress)
}

// block is the engine itself, with the peers that it has opened.
func (d *engineDetail) block() {
	b, l := d.b, d.l
	if b.engine == nil {
		d.title(b.source)
		return
	}
	x := b.engine.Last
	d.title("engine " + x.Name)
	d.field("source", l.Safe(b.source))
	d.field("batches", fmt.Sprintf("%s, %d failed, %d unsafe", text.Plural(x.Batches, "batch", "batches"), x.Failed, x.Unsafe))
	d.field("slices", fmt.Sprintf("%d, %d of them sent again", x.Slices, x.Retries))
	if x.Fallback > 0 {
		d.field("fallen back", text.Plural(x.Fallback, "time")+" to a worse transport, because every lane of the better one was sick")
	}
	d.field("peers wrote", units.Bytes(x.ServedWrittenBytes)+d.uncounted())
	d.field("peers read", units.Bytes(x.ServedReadBytes)+d.uncounted())
	d.field("refused", text.Plural(x.Refused, "request")+" of peers that were against the rules")
	d.field("open by", text.Plural(x.Sessions, "peer"))
	if more := x.ServedUnlisted + len(x.Served) - len(b.engine.Served); more > 0 {
		d.field("not listed", text.Plural(more, "connection")+" of peers")
	}
	for i := range x.Peers {
		d.peer(&x.Peers[i])
	}
}

func (d *engineDetail) uncounted() string {
	if len(d.b.engine.Last.ServedUncounted) == 0 {
		return ""
	}
	return " without " + d.l.Safe(strings.Join(d.b.engine.Last.ServedUncounted, ", ")) + ", which is not counted"
}

func (d *engineDetail) peer(p *engine.PeerStats) {
	style := ui.Plain
	if p.State != "open" {
		style = ui.Bad
	}
	line := "peer " + d.l.Safe(p.Name) + ": " + d.l.Safe(p.State)
	if p.RoundTripNS > 0 {
		line += ", round trip " + ui.Duration(d.l, p.RoundTripNS)
	}
	line += ", " + text.Plural(p.Batches, "batch runs", "batches run")
	if p.Error != "" {
		line += ": " + d.l.Safe(p.Error)
	}
	if mark := d.l.Mark(style); mark != " " {
		line = mark + " " + line
	}
	d.styled(line, 4, style)
}
