package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
)

// differences puts findings that are alike together, in the report's order.
func (c *comparer) differences() []Difference {
	slices.SortStableFunc(c.found, compareFindings)
	type key struct {
		kind, attr, old, new, note string
	}
	out := []Difference{}
	for _, alike := range group.By(slices.Collect(runs(c.found, movesAlong)), func(run []finding) key {
		f := run[0]
		k := key{string(f.kind), f.attr, f.old.key + "\x00" + f.old.text, f.new.key + "\x00" + f.new.text, f.note}
		if f.attr == "presence" { // devices of unlike kinds are told apart
			k.attr += string(f.node.Kind)
		}
		return k
	}) {
		f := alike[0][0]
		d := Difference{Kind: f.kind, Attribute: f.attr, Old: f.old.text, New: f.new.text, OldValue: f.old.data, NewValue: f.new.data, Note: f.note}
		var links [][2]topo.LinkID
		for _, run := range alike {
			if last := run[len(run)-1]; len(run) > 1 {
				d.Old, d.New = span(f.attr, f.old.text, last.old.text, len(run)), span(f.attr, f.new.text, last.new.text, len(run))
				d.OldValue, d.NewValue = d.Old, d.New
			}
			for _, f := range run {
				d.Nodes = append(d.Nodes, f.node)
				links = append(links, f.links)
			}
		}
		c.effects(&d, links)
		c.consequence(&d)
		out = append(out, d)
	}
	return out
}

func compareFindings(a, b finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(kinds, a.kind), slices.Index(kinds, b.kind)),
		cmp.Compare(slices.Index(kindOrder, a.node.Kind), slices.Index(kindOrder, b.node.Kind)),
		cmp.Compare(compare.Position(a.attr), compare.Position(b.attr)),
		topo.NaturalCompare(cmp.Or(a.node.New, a.node.Old), cmp.Or(b.node.New, b.node.Old)),
		strings.Compare(a.note, b.note), strings.Compare(a.old.text, b.old.text))
}

// omissions puts what could not be compared together by reason.
func (c *comparer) omissions() []Omission {
	slices.SortStableFunc(c.missing, func(a, b omission) int {
		return cmp.Or(-strings.Compare(a.side.word, b.side.word),
			cmp.Compare(compare.Position(a.attr), compare.Position(b.attr)), strings.Compare(a.reason, b.reason),
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

// leastRun is how many devices make a run.
const leastRun = 3

// runs splits a list into runs of elements that follow each other. Any other element is a run of its own.
func runs[T any](list []T, follows func(a, b T) bool) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for i := 0; i < len(list); {
			end := i + 1
			for end < len(list) && follows(list[end-1], list[end]) {
				end++
			}
			if end-i < leastRun {
				end = i + 1
			}
			if !yield(list[i:end]) {
				return
			}
			i = end
		}
	}
}

// addressed says whether an attribute's values are PCI addresses, which need no
// step in common.
func addressed(attr string) bool { return attr == "pci_address" || attr == "slot" }

// movesAlong says whether b moved or was renumbered as a, its neighbour, was.
func movesAlong(a, b finding) bool {
	if a.kind != b.kind || a.kind != Renumbered && a.kind != Moved || a.attr != b.attr || a.node.Kind != b.node.Kind || a.note != b.note {
		return false
	}
	return addressed(a.attr) || next(a.old.text, b.old.text) && next(a.new.text, b.new.text)
}

// next says whether b is a name with a's number and one.
func next(a, b string) bool {
	p, m, ok1 := numbered(a)
	q, n, ok2 := numbered(b)
	return ok1 && ok2 && p == q && n == m+1
}

// numbered splits a name into a prefix and the number at its end. The number at the end of an address is that of its
// function.
func numbered(s string) (prefix string, n int, ok bool) {
	prefix = strings.TrimRight(s, "0123456789")
	digits := s[len(prefix):]
	if digits == "" || len(digits) > 9 || len(digits) > 1 && digits[0] == '0' {
		return "", 0, false
	}
	n, err := strconv.Atoi(digits)
	return prefix, n, err == nil
}

// span is a run of names: "mlx5_0..11". Addresses have no order of their own.
func span(attr, first, last string, count int) string {
	if addressed(attr) {
		return first + " and " + strconv.Itoa(count-1) + " more"
	}
	_, n, _ := numbered(last)
	return first + ".." + strconv.Itoa(n)
}

// effects finds the paths that got slower because of links that got worse, or faster because of links that got
// better: the paths that these links limit.
func (c *comparer) effects(d *Difference, links [][2]topo.LinkID) {
	if c.paths == nil || d.Kind != Degraded && d.Kind != Improved {
		return
	}
	limits := [2]map[topo.LinkID]bool{{}, {}} // of the old and the new side
	for _, l := range links {
		limits[0][l[0]], limits[1][l[1]] = true, true
	}
	var list []*pathPair
	for i := range c.paths.changed {
		p := &c.paths.changed[i]
		if d.Kind == Improved && p.better && limits[0][p.oldLimit] || d.Kind == Degraded && !p.better && limits[1][p.newLimit] {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return
	}
	order := func(p *pathPair) int { // preferred ports first, and of those alike the paths of GPUs
		n := 3
		if p.oldBest && d.Kind == Degraded || p.newBest && d.Kind == Improved {
			n -= 2
		}
		if p.gpu {
			n--
		}
		return n
	}
	slices.SortStableFunc(list, func(a, b *pathPair) int { return cmp.Compare(order(a), order(b)) })
	seen := map[string]bool{}
	for _, p := range list {
		if !seen[p.NewLocation] {
			seen[p.NewLocation] = true
			d.Paths = append(d.Paths, p.Path)
		}
	}
	d.PathsAffected = len(list)
	first := list[0]
	d.Effect = fmt.Sprintf("expected %s -> %s %s", first.NewLocation, first.newName, rates(first.OldBytesPerSec, first.NewBytesPerSec, first.OldBasis, first.NewBasis))
	if more := len(list) - 1; more > 0 {
		d.Effect += fmt.Sprintf(" (and %d more %s)", more, text.Noun(more, "path"))
	}
}

// consequence says what a difference means for the configuration of the hosts.
func (c *comparer) consequence(d *Difference) {
	switch {
	case d.isRenamed() && c.hosts == DifferentHosts:
		d.Effect = "settings that name " + d.Old + " fit one host only"
	case d.isRenamed():
		d.Effect = fmt.Sprintf("same device under a new name: settings that name %s must be changed", d.Old)
		if len(d.Nodes) > 1 {
			d.Effect = "same devices under new names: settings that name them must be changed"
		}
		if users := c.preferredBy(d); users != "" {
			d.Effect += "; preferred by " + users
		}
	case d.Attribute == "pci_address":
		d.Effect = "same slot: settings that name the address must be changed"
	case d.Attribute == "nvml_index":
		d.Effect = "settings that count GPUs as NVML does must be changed"
	case d.Attribute == "gid_index" && c.hosts == DifferentHosts:
		d.Effect = "no single GID index fits both hosts"
	case d.Attribute == "gid_index":
		d.Effect = "settings that name the GID index must be changed"
	}
}

// preferredBy lists the locations that prefer a renamed NIC.
func (c *comparer) preferredBy(d *Difference) string {
	if c.paths == nil || d.Nodes[0].Kind != topo.KindRDMA && d.Nodes[0].Kind != topo.KindNetdev {
		return ""
	}
	var users []string
	for _, l := range c.paths.locations {
		if slices.ContainsFunc(d.Nodes, func(n Node) bool { return slices.Contains(l.nics, topo.ID(n.New)) }) {
			users = append(users, string(l.new))
		}
	}
	return names(users)
}
