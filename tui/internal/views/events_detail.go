package views

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/diff"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/doctor"

	"github.com/topoctl/topoctl/tui/internal/ui"
)

// eventsDetail is a pane that is being written.
type eventsDetail struct {
	env   *ui.Env
	l     *ui.Look
	w     int
	lines []string
}

func (d *eventsDetail) title(text string, style ui.Style) {
	text = d.l.Safe(text)
	if mark := d.l.Mark(style); mark != " " {
		text = mark + " " + text
	}
	if style == ui.Plain {
		style = ui.Strong
	}
	for _, line := range ui.Wrap(text, d.w, 2) {
		d.lines = append(d.lines, d.l.Paint(line, style))
	}
}

// field is a name with a text from a file or a peer.
func (d *eventsDetail) field(name, value string) {
	d.lines = append(d.lines, ui.Field(d.l, name, d.l.Safe(value), d.w)...)
}

func (d *eventsDetail) list(name string, values []string) {
	for _, v := range values {
		d.field(name, v)
		name = " "
	}
}

func (d *eventsDetail) event(e *watch.Event) {
	d.title(orHost(e.Who())+": "+e.Text, eventsStyleOf(e.Severity))
	d.field("what", string(e.Kind)+", "+e.Severity)
	if e.Initial {
		d.field("since", "it was so at the first look")
	}
	if t, ok := when(d.env, e); ok {
		d.field("when", t.Format(time.RFC3339))
	}
	d.field("after", ui.Duration(d.l, e.AtNS)+" of watching")
	if len(e.Subjects) > 0 {
		d.devices(e.Subjects)
	} else {
		d.field("device", string(e.Subject))
	}
	d.field("source", e.Source)
	d.field("code", e.Code)
	if e.Flaps > 0 {
		d.field("went down", text.Plural(e.Flaps, "time")+" since the watch began")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Counters)) {
		d.field("counter", name+" moved by "+strconv.FormatUint(e.Counters[name], 10))
	}
	d.list("detail", e.Detail)
}

func (d *eventsDetail) finding(f *doctor.Finding) {
	d.title(f.Text, eventsStyleOf(string(f.Severity)))
	d.field("check", string(f.Code)+", "+string(f.Severity))
	d.devices(f.Subjects)
	d.list("evidence", f.Evidence)
	d.field("fix", f.Fix)
	if f.Basis != "" {
		d.field("rate is", string(f.Basis))
	}
}

func (d *eventsDetail) devices(ids []topo.ID) {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = string(id)
	}
	d.field("devices", strings.Join(list, ", "))
}

func (d *eventsDetail) missing(c *doctor.CheckResult, m *doctor.Missing) {
	d.title("not checked: "+m.Text, ui.Plain)
	d.field("check", string(c.Code)+": "+c.Title)
	d.devices(m.Subjects)
	d.field("how", m.How)
}

func (d *eventsDetail) difference(x *diff.Difference) {
	d.title(orHost(nodes(x.Nodes))+": "+string(x.Kind), driftStyle(x.Kind))
	d.field("what", x.Text())
	d.field("attribute", x.Attribute)
	d.field("before", x.Old)
	d.field("now", x.New)
	d.field("note", x.Note)
	d.field("effect", x.Effect)
	for i := range x.Paths {
		p := &x.Paths[i]
		d.field("path", fmt.Sprintf("%s to %s: %s, before %s", p.NewLocation, p.NewPort.Name(), d.l.Rate(p.NewBytesPerSec), d.l.Rate(p.OldBytesPerSec)))
	}
	if more := x.PathsAffected - len(x.Paths); more > 0 && len(x.Paths) > 0 {
		d.field(" ", fmt.Sprintf("and %s", text.Plural(more, "more path", "more paths")))
	}
	for i := range x.Nodes {
		if i == nodesMost {
			d.field("device", fmt.Sprintf("and %d more", len(x.Nodes)-i))
			break
		}
		d.node(&x.Nodes[i])
	}
}

// nodesMost bounds how many devices are listed.
const nodesMost = 32

// node is a device on both sides.
func (d *eventsDetail) node(n *diff.Node) {
	text := string(n.Kind) + " " + n.Name
	switch {
	case n.Old == "":
		text += ", was not there"
	case n.New == "":
		text += ", is not there any more"
	case n.Old != n.New:
		text += ", was " + n.Old
	}
	if n.MatchedBy != "" {
		text += ", known by " + string(n.MatchedBy)
	}
	d.field("device", text)
	d.field("  before", n.OldEvidence)
	d.field("  now", n.NewEvidence)
	if len(n.With) > 0 {
		d.field("  with it", strings.Join(n.With, ", "))
	}
}

func (d *eventsDetail) choice(x *diff.Choice) {
	d.title("the choice of ports changes: "+x.Choice, ui.Middle)
	d.field("of", orHost(nodes(x.Locations)))
	d.field("before", strings.Join(x.OldNames, ", "))
	d.field("now", strings.Join(x.NewNames, ", "))
	d.field("why", x.Reason)
	d.field("effect", x.Effect)
}
