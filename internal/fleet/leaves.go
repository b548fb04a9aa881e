package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Codes of findings about leaves.
const (
	CodeLeafThin       Code = "leaf-thin"        // its uplinks carry less than its hosts can send
	CodeLeafUplinkDown Code = "leaf-uplink-down" // it has fewer uplinks than its sisters
)

// leaf is a switch with hosts, and what is above it.
type leaf struct {
	id       string
	ports    []string // "n1/mlx5_0"
	down     topo.Rate
	downOK   bool // the rate of every port is known
	up       topo.Rate
	upOK     bool
	others   int // ports whose hosts are not known
	links    int // that are up
	linksOff int
	data     bool // it has data ports
}

// leaves are the switches that hosts are cabled to.
func (f *Fleet) leaves() []*leaf {
	by := map[string]*leaf{}
	var out []*leaf
	for h, p := range f.Ports() {
		if p.Leaf == "" {
			continue
		}
		l := by[p.Leaf]
		if l == nil {
			l = &leaf{id: p.Leaf, downOK: true, upOK: true}
			by[p.Leaf] = l
			out = append(out, l)
		}
		l.ports = append(l.ports, h.Host+"/"+p.ShortName())
		l.data = l.data || p.Role == pathsel.RoleData
		if p.BytesPerSec == nil {
			l.downOK = false
		} else {
			l.down += *p.BytesPerSec
		}
	}
	for i := range f.Links {
		k := &f.Links[i]
		for _, ends := range [][2]string{{k.A, k.B}, {k.B, k.A}} {
			l := by[ends[0]]
			if l == nil || by[ends[1]] != nil { // between leaves: not up
				continue
			}
			if k.Down {
				l.linksOff += k.Count
				continue
			}
			l.links += k.Count
			if k.BytesPerSec == nil {
				l.upOK = false
			} else {
				l.up += *k.BytesPerSec * topo.Rate(k.Count)
			}
		}
	}
	for _, l := range out {
		if s := f.switchOf(l.id); s != nil {
			l.others = s.UnjoinedPorts
		}
	}
	slices.SortFunc(out, func(a, b *leaf) int { return topo.NaturalCompare(a.id, b.id) })
	return out
}

// checkLeaves judges the uplinks of leaves with data ports.
func (f *Fleet) checkLeaves(list []*leaf) {
	list = slices.DeleteFunc(list, func(l *leaf) bool { return !l.data })
	if len(list) == 0 {
		return
	}
	if len(f.Links) == 0 {
		for _, code := range []Code{CodeLeafThin, CodeLeafUplinkDown} {
			f.unknown(code, "no links between switches are known", "give them in the fabric file (\"uplinks\"), or discover the fabric", nil)
		}
		return
	}
	counts := map[int]int{}
	for _, l := range list {
		counts[l.links]++
	}
	most, ok := majorityOf(counts)
	if !ok && len(counts) > 1 {
		f.unknown(CodeLeafUplinkDown, fmt.Sprintf("%s have different numbers of uplinks, and no majority says which is right", text.Plural(len(list), "leaf", "leaves")), "", nil)
	}
	var thin []*leaf
	var more []string // leaves that more may be sent through than is known
	for _, l := range list {
		if ok && l.links < most || l.linksOff > 0 {
			f.find(Finding{Code: CodeLeafUplinkDown, Severity: doctor.Warning, Subjects: []string{f.SwitchName(l.id)}, Hosts: []string{},
				Text:     fmt.Sprintf("%s has %s, its sisters %d", f.SwitchName(l.id), text.Plural(l.links, "uplink"), max(most, l.links+l.linksOff)),
				Evidence: []string{fmt.Sprintf("%s of %s; %s that are down", text.Plural(l.links, "uplink"), l.id, text.Plural(l.linksOff, "uplink"))},
				Fix:      "look at its cables and transceivers to the switches above"})
		}
		switch {
		case !l.downOK || !l.upOK:
			f.unknown(CodeLeafThin, fmt.Sprintf("%s: the rate of a port or an uplink is not known", f.SwitchName(l.id)), "give bytes_per_sec in the fabric file, or discover the fabric", nil)
		case l.up < l.down:
			thin = append(thin, l)
		case l.others > 0:
			more = append(more, fmt.Sprintf("%s (%d)", f.SwitchName(l.id), l.others))
		}
	}
	if missing := f.Missing(); len(more) == 0 && len(missing) > 0 && len(thin) < len(list) {
		f.unknown(CodeLeafThin, fmt.Sprintf("%s %s not reached, and which leaves %s cabled to is not known", text.Join(missing, mostNames), text.Noun(len(missing), "was", "were"), text.Noun(len(missing), "it is", "they are")), "", missing)
	}
	if len(more) > 0 {
		f.unknown(CodeLeafThin, fmt.Sprintf("%s %s ports of hosts that are not known: %s", text.Plural(len(more), "leaf", "leaves"), text.Noun(len(more), "has", "have"), text.Join(more, mostNames)),
			"collect the hosts that are missing; the rates of their ports are not known", nil)
	}
	f.thin(thin, len(list))
}

// thin reports oversubscribed leaves. If all leaves are alike, the fabric is built that way, and there is one note.
func (f *Fleet) thin(thin []*leaf, of int) {
	ratio := func(l *leaf) string {
		if l.up == 0 {
			return "has no uplink"
		}
		return fmt.Sprintf("is oversubscribed %.3g : 1", float64(l.down)/float64(l.up))
	}
	counts := map[string]int{}
	for _, l := range thin {
		counts[ratio(l)]++
	}
	evidence := func(l *leaf) string {
		return fmt.Sprintf("%s: %s of %s, %s of %s", l.id, units.Rate(int64(l.up), units.Gbit), text.Plural(l.links, "uplink"),
			units.Rate(int64(l.down), units.Gbit), text.Plural(len(l.ports), "port"))
	}
	if len(thin) == of && len(counts) == 1 && of > 1 {
		f.find(Finding{Code: CodeLeafThin, Severity: doctor.Info, Hosts: []string{}, Text: fmt.Sprintf("each of %d leaves %s", of, ratio(thin[0])), Evidence: []string{evidence(thin[0])}})
		return
	}
	for _, l := range thin {
		f.find(Finding{Code: CodeLeafThin, Severity: doctor.Warning, Subjects: []string{f.SwitchName(l.id)}, Hosts: []string{},
			Text:     fmt.Sprintf("%s %s: its hosts send %s, its uplinks carry %s", f.SwitchName(l.id), ratio(l), units.Rate(int64(l.down), units.Gbit), units.Rate(int64(l.up), units.Gbit)),
			Evidence: []string{evidence(l)}, Fix: "look for uplinks that are down; else expect less from traffic between leaves"})
	}
}

// group groups leaves with the same hosts. It takes cables as they are meant to be: a swapped cable, or one that is not
// known, does not split a group.
func (f *Fleet) group(leaves []*leaf, should meant) {
	hosts, found := map[string][]string{}, map[string][]string{}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		on := map[string]bool{}
		for j := range h.Ports {
			p := &h.Ports[j]
			on[cmp.Or(should.leaf[p], p.Leaf)] = true
			if !slices.Contains(found[p.Leaf], h.Host) {
				found[p.Leaf] = append(found[p.Leaf], h.Host)
			}
		}
		for leaf, also := range should.also {
			on[leaf] = on[leaf] || slices.Contains(also, h)
		}
		for leaf, is := range on {
			if is {
				hosts[leaf] = append(hosts[leaf], h.Host)
			}
		}
	}
	for _, l := range leaves {
		if hosts[l.id] == nil { // no port is meant to be on it
			hosts[l.id] = found[l.id]
		}
	}
	names := f.PlaceNames()
	data := f.DataLeaves()
	for _, same := range group.By(leaves, func(l *leaf) string { return strings.Join(hosts[l.id], "\x00") }) {
		g := Group{Hosts: slices.Clone(hosts[same[0].id])}
		var some []string // that the group is called by
		for _, l := range same {
			g.Leaves = append(g.Leaves, l.id)
			if data[l.id] {
				some = append(some, l.id)
			}
		}
		if len(some) == 0 {
			some = g.Leaves
		}
		g.Group = names.Of("su", some)
		f.Groups = append(f.Groups, g)
	}
}

// DataLeaves are the leaves that have more data ports than others.
func (f *Fleet) DataLeaves() map[string]bool {
	count := map[string]int{}
	for _, p := range f.Ports() {
		switch {
		case p.Leaf == "":
		case p.Role == pathsel.RoleData:
			count[p.Leaf]++
		default:
			count[p.Leaf]--
		}
	}
	out := map[string]bool{}
	for leaf, n := range count {
		out[leaf] = n > 0
	}
	return out
}
