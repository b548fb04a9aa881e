package picture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

// texts adds what stands around the boxes: heading, notes, legend and foot.
func (b *builder) texts(s *scene) {
	name := joined(cmp.Or(clean(b.T.Host.Name), "host"), clean(b.T.Host.Product))
	counts := cmp.Or(joined(b.Counts()...), "nothing was found")
	s.title = joined(name, counts)
	s.head = &node{look: lookNone, rows: append([]row{{left: name, style: rowTitle}, {left: counts}}, b.marked()...)}
	if rows := b.notes(); len(rows) > 0 {
		s.notes = &node{look: lookNone, rows: rows}
	}
	if entries := legend(s); len(entries) > 0 {
		s.legend = &node{look: lookNone, inside: entries}
	}
	s.foot = &node{look: lookNone, rows: []row{{left: b.foot(), style: rowFaint}}}
}

// marked are the rows on top that repeat what is marked in the image.
func (b *builder) marked() []row {
	const most = 4
	var rows []row
	if !b.T.Complete {
		rows = append(rows, row{left: "incomplete: some of the host could not be read", alert: true})
	}
	for i, p := range b.problems {
		if i == most {
			return append(rows, row{left: fmt.Sprintf("and %d more, marked in the image", len(b.problems)-most), alert: true})
		}
		rows = append(rows, row{left: p, alert: true})
	}
	return rows
}

// notes say what the image does not show.
func (b *builder) notes() []row {
	const most = 6
	var rows []row
	undrawn := b.countOthers("interface")
	if b.hidden > 0 {
		undrawn = append(undrawn, text.Plural(b.hidden, "other PCI function"))
	}
	if len(undrawn) > 0 {
		rows = append(rows, row{left: "not drawn: " + strings.Join(undrawn, ", "), style: rowFaint})
	}
	unknown := b.T.Unknown()
	for i, l := range unknown {
		if i == most {
			rows = append(rows, row{left: fmt.Sprintf("not known: %d more things", len(unknown)-i), style: rowFaint})
			break
		}
		rows = append(rows, row{left: "not known: " + clean(l), style: rowFaint})
	}
	if n := len(b.T.Warnings); n > 0 {
		rows = append(rows, row{left: text.Plural(n, "warning") + " in the document", style: rowFaint})
	}
	return rows
}

// foot says where the host's facts come from, and how rates are meant.
func (b *builder) foot() string {
	from, when := clean(b.T.Origin), ""
	if b.T.CapturedAt != nil {
		when = b.T.CapturedAt.UTC().Format("2006-01-02 15:04 UTC")
	}
	return joined(from, when, "rates for one direction, after line coding", "topoctl")
}

// legend explains the boxes and lines that the image has.
func legend(s *scene) []*node {
	looks := map[look]bool{}
	states := map[wireState]bool{}
	alerts := false
	for _, p := range s.parts() {
		p.walk(func(n *node) {
			looks[n.look] = true
			alerts = alerts || n.alert
			if w := n.up; w != nil && len(w.labels) > 0 {
				states[w.state] = true
			}
			if n.look == lookBar && slices.ContainsFunc(n.rows, func(r row) bool { return strings.Contains(r.left, "~") }) {
				states[wireTypical] = true
			}
		})
	}
	var out []*node
	box := func(l look, meaning string) {
		if looks[l] {
			out = append(out, &node{look: l, rows: []row{{left: meaning}}})
		}
	}
	box(lookSwitch, "PCIe switch or bridge")
	box(lookGPU, "GPU")
	box(lookNIC, "NIC: rate of its port")
	box(lookSoftware, "software RDMA device")
	box(lookCard, "card: one link for all its functions")
	box(lookSmall, "interface: slow, down or of unknown rate")
	box(lookDrive, "NVMe drives")
	line := func(state wireState, meaning string) {
		if states[state] {
			out = append(out, &node{look: lookLine, rows: []row{{left: meaning}}, up: &wire{state: state, lanes: 8}})
		}
	}
	line(wireRead, "link: rate read from the hardware")
	line(wireTypical, "~ typical rate, not measured")
	line(wireUnknown, "? unknown rate")
	line(wireDegraded, "below what both ends can do")
	if alerts {
		out = append(out, &node{look: lookLine, rows: []row{{left: "needs attention", alert: true}}})
	}
	return out
}
