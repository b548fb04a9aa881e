package diff

import (
	"cmp"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// differences puts findings that are alike together, in the report's order.
func (c *comparer) differences() []Difference {
	slices.SortStableFunc(c.found, compareFindings)
	type key struct {
		kind, attr, old, new, note string
	}
	out := []Difference{}
	var links [][][2]topo.LinkID
	at := map[key]int{}
	for _, run := range runs(c.found) {
		f := run[0]
		k := key{string(f.kind), f.attr + presenceOf(f), f.old.key + "\x00" + f.old.text, f.new.key + "\x00" + f.new.text, f.note}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, Difference{Kind: f.kind, Attribute: f.attr, Nodes: []Node{},
				Old: f.old.text, New: f.new.text, OldValue: f.old.data, NewValue: f.new.data, Note: f.note})
			links = append(links, nil)
		}
		if len(run) > 1 {
			last := run[len(run)-1]
			out[i].Old, out[i].New = span(f.attr, f.old.text, last.old.text, len(run)), span(f.attr, f.new.text, last.new.text, len(run))
			out[i].OldValue, out[i].NewValue = out[i].Old, out[i].New
		}
		for _, f := range run {
			out[i].Nodes = append(out[i].Nodes, f.node)
			links[i] = append(links[i], f.links)
		}
	}
	for i := range out {
		c.effects(&out[i], links[i])
		c.consequence(&out[i])
	}
	return out
}

// presenceOf keeps devices of unlike kinds apart where they came or went.
func presenceOf(f finding) string {
	if f.attr == "presence" {
		return string(f.node.Kind)
	}
	return ""
}

func compareFindings(a, b finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(kinds, a.kind), slices.Index(kinds, b.kind)),
		cmp.Compare(slices.Index(kindOrder, a.node.Kind), slices.Index(kindOrder, b.node.Kind)),
		cmp.Compare(place(a.attr), place(b.attr)),
		topo.NaturalCompare(cmp.Or(a.node.New, a.node.Old), cmp.Or(b.node.New, b.node.Old)),
		strings.Compare(a.note, b.note), strings.Compare(a.old.text, b.old.text))
}

// runs parts sorted findings into runs of devices that moved, or were renumbered
// by the same step, one after the other; anything else is a run of one.
func runs(list []finding) [][]finding {
	var out [][]finding
	for i := 0; i < len(list); {
		end := i + 1
		for end < len(list) && follows(&list[end-1], &list[end]) {
			end++
		}
		if end-i < leastRun {
			end = i + 1
		}
		out = append(out, list[i:end])
		i = end
	}
	return out
}

// addresses says whether an attribute's values are PCI addresses, which need no
// step in common.
func addresses(attr string) bool { return attr == "pci_address" || attr == "slot" }

// follows says whether b moved or was renumbered as a, its neighbour, was.
func follows(a, b *finding) bool {
	if a.kind != b.kind || a.kind != Renumbered && a.kind != Moved || a.attr != b.attr || a.node.Kind != b.node.Kind || a.note != b.note {
		return false
	}
	if addresses(a.attr) {
		return true
	}
	return next(a.old.text, b.old.text) && next(a.new.text, b.new.text)
}

// omissions puts what could not be compared together by reason.
func (c *comparer) omissions() []Omission {
	slices.SortStableFunc(c.missing, func(a, b omission) int {
		return cmp.Or(-strings.Compare(a.side.word, b.side.word),
			cmp.Compare(place(a.attr), place(b.attr)), strings.Compare(a.reason, b.reason),
			cmp.Compare(slices.Index(kindOrder, a.node.Kind), slices.Index(kindOrder, b.node.Kind)),
			topo.NaturalCompare(cmp.Or(a.node.New, a.node.Old), cmp.Or(b.node.New, b.node.Old)))
	})
	out := []Omission{}
	for _, m := range c.missing {
		if n := len(out); n > 0 && out[n-1].Side == m.side.word && out[n-1].Attribute == m.attr && out[n-1].Reason == m.reason {
			out[n-1].Nodes = append(out[n-1].Nodes, m.node)
			continue
		}
		out = append(out, Omission{Attribute: m.attr, Nodes: []Node{m.node}, Side: m.side.word, Reason: m.reason})
	}
	return out
}
