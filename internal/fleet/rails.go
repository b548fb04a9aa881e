package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Codes of findings about cables.
const (
	CodeRailMiswired    Code = "rail-miswired"      // a port is on another leaf than that of most hosts
	CodeHostNotInFabric Code = "host-not-in-fabric" // what is known of the fabric has none of its ports
	CodePortNotInFabric Code = "port-not-in-fabric" // has others of the host, but not this one
)

// wiring is the ports of one role of a host, in the order of places, and the leaf of each.
type wiring struct {
	host  *Host
	ports []*Port
}

// unit is a set of hosts that are meant to be wired to the same leaves, place by place.
type unit struct {
	members []*wiring
	leaf    map[string]string // by place: the leaf of most hosts, "" if there is no majority
}

// wirings are the cabled ports of a class's hosts.
func wirings(hosts []*Host, role pathsel.Role) []*wiring {
	var out []*wiring
	for _, h := range hosts {
		w := &wiring{host: h}
		for i := range h.Ports {
			if p := &h.Ports[i]; p.Role == role && p.Place != "" && p.Leaf != "" {
				w.ports = append(w.ports, p)
			}
		}
		slices.SortFunc(w.ports, func(a, b *Port) int { return topo.NaturalCompare(a.Place, b.Place) })
		if len(w.ports) > 0 {
			out = append(out, w)
		}
	}
	return out
}

// key is the host's wiring as text: equal keys are equal wirings.
func (w *wiring) key() string {
	var b strings.Builder
	for _, p := range w.ports {
		fmt.Fprintf(&b, "%s=%s;", p.Place, p.Leaf)
	}
	return b.String()
}

// alike says whether two hosts are wired to the same leaves: more than half of the places to the
// same one, or all leaves the same with the cables swapped.
func (w *wiring) alike(o *wiring) bool {
	leaf, mine, theirs, same := map[string]string{}, map[string]bool{}, map[string]bool{}, 0
	for _, p := range o.ports {
		leaf[p.Place], theirs[p.Leaf] = p.Leaf, true
	}
	swapped := true
	for _, p := range w.ports {
		mine[p.Leaf] = true
		swapped = swapped && theirs[p.Leaf]
		if leaf[p.Place] == p.Leaf {
			same++
		}
	}
	return 2*same > max(len(w.ports), len(o.ports)) || swapped && len(mine) == len(theirs) && len(w.ports) == len(o.ports)
}

// unitsOf groups hosts of one class that are wired to the same leaves. A host with wrong wiring joins the hosts that it
// deviates from.
func unitsOf(list []*wiring) []*unit {
	var out []*unit
	for _, members := range joined(list, (*wiring).key, (*wiring).alike) {
		u := &unit{members: members}
		u.settle()
		out = append(out, u)
	}
	return out
}

// settle finds the leaf that each place is meant for.
func (u *unit) settle() {
	counts := map[string]map[string]int{}
	for _, w := range u.members {
		for _, p := range w.ports {
			if counts[p.Place] == nil {
				counts[p.Place] = map[string]int{}
			}
			counts[p.Place][p.Leaf]++
		}
	}
	u.leaf = map[string]string{}
	for place, by := range counts {
		if leaf, ok := majorityOf(by); ok {
			u.leaf[place] = leaf
		}
	}
}

// misplaced is a port on another leaf than that of most.
type misplaced struct {
	host *Host
	port *Port
	want string
	of   int // hosts of its unit
	done bool
}

// meant says where ports belong that are cabled elsewhere, or whose cables are not known.
type meant struct {
	leaf map[*Port]string
	also map[string][]*Host // by leaf: the hosts with a port that belongs there and has no known cable
}

// checkRails compares where the ports of one place are cabled to, class by class. Ports without a rail get the rail of
// their leaf.
func (f *Fleet) checkRails(byClass [][]*Host) meant {
	should := meant{map[*Port]string{}, map[string][]*Host{}}
	var wrong []misplaced
	var settled, unsettled int
	railOf := map[string]int{}
	for _, hosts := range byClass {
		for _, role := range []pathsel.Role{pathsel.RoleData, pathsel.RoleStorage} {
			list := wirings(hosts, role)
			for _, u := range unitsOf(list) {
				if len(u.leaf) == 0 {
					unsettled += len(u.members)
					continue
				}
				settled += len(u.members)
				if role == pathsel.RoleData {
					u.rails(railOf)
				}
				for _, w := range u.members {
					for _, p := range w.ports {
						if want := u.leaf[p.Place]; want != "" && want != p.Leaf {
							wrong = append(wrong, misplaced{host: w.host, port: p, want: want, of: len(u.members)})
							should.leaf[p] = want
						}
					}
					for place, leaf := range u.leaf {
						if !slices.ContainsFunc(w.ports, func(p *Port) bool { return p.Place == place }) {
							should.also[leaf] = append(should.also[leaf], w.host)
						}
					}
				}
			}
		}
	}
	for _, p := range f.Ports() {
		if rail, ok := railOf[p.Leaf]; ok && p.Rail == nil && p.Role == pathsel.RoleData {
			p.Rail = &rail
		}
	}
	if unsettled > 0 {
		f.unknown(CodeRailMiswired, fmt.Sprintf("%s: fewer than %d of one class are wired to the same leaves, so nothing says which cable is right", text.Plural(unsettled, "host"), leastHosts), "", nil)
	}
	f.miswired(wrong)
	return should
}

// rails numbers the leaves of a unit in the order of places. A unit with a single leaf has no rails.
func (u *unit) rails(railOf map[string]int) {
	var leaves []string
	for _, place := range slices.SortedFunc(maps.Keys(u.leaf), topo.NaturalCompare) {
		if !slices.Contains(leaves, u.leaf[place]) {
			leaves = append(leaves, u.leaf[place])
		}
	}
	if len(leaves) < 2 {
		return
	}
	for i, leaf := range leaves {
		if _, ok := railOf[leaf]; !ok {
			railOf[leaf] = i
		}
	}
}

// miswired tells of misplaced ports: pairs that are on each other's leaf are two swapped cables.
func (f *Fleet) miswired(wrong []misplaced) {
	slices.SortFunc(wrong, func(a, b misplaced) int {
		return cmp.Or(topo.NaturalCompare(a.host.Host, b.host.Host), topo.NaturalCompare(a.port.Place, b.port.Place))
	})
	swapped := func(a, b *misplaced) bool { return a.want == b.port.Leaf && b.want == a.port.Leaf }
	for _, sameHost := range []bool{true, false} {
		for i := range wrong {
			a := &wrong[i]
			for j := i + 1; j < len(wrong) && !a.done; j++ {
				b := &wrong[j]
				if !b.done && (a.host == b.host) == sameHost && swapped(a, b) {
					a.done, b.done = true, true
					f.swapped(a, b)
				}
			}
		}
	}
	for i := range wrong {
		m := &wrong[i]
		if m.done {
			continue
		}
		name := m.host.Host + "/" + m.port.ShortName()
		f.find(Finding{Code: CodeRailMiswired, Severity: doctor.Error, Hosts: []string{m.host.Host}, Subjects: []string{name},
			Text:     fmt.Sprintf("%s is cabled to %s, the others' to %s", name, f.SwitchName(m.port.Leaf), f.SwitchName(m.want)),
			Evidence: []string{f.cableEvidence(m)}, Fix: "move its cable to " + f.SwitchName(m.want)})
	}
}

func (f *Fleet) swapped(a, b *misplaced) {
	names := []string{a.host.Host + "/" + a.port.ShortName(), b.host.Host + "/" + b.port.ShortName()}
	hosts := []string{a.host.Host}
	if b.host != a.host {
		hosts = append(hosts, b.host.Host)
	}
	f.find(Finding{Code: CodeRailMiswired, Severity: doctor.Error, Hosts: hosts, Subjects: names,
		Text:     fmt.Sprintf("the cables of %s are swapped", text.Join(names, 2)),
		Evidence: []string{f.cableEvidence(a), f.cableEvidence(b)},
		Fix:      "swap them: " + names[0] + " belongs to " + f.SwitchName(a.want) + ", " + names[1] + " to " + f.SwitchName(b.want)})
}

func (f *Fleet) cableEvidence(m *misplaced) string {
	at := f.SwitchName(m.port.Leaf)
	if m.port.LeafPort != "" {
		at += " port " + m.port.LeafPort
	}
	return fmt.Sprintf("%s: %s/%s is on %s; on most of %s with the same leaves it is on %s", m.port.Known, m.host.Host, m.port.ShortName(), at, text.Plural(m.of, "host"), f.SwitchName(m.want))
}

// checkPresence finds hosts and ports that are missing in the description of the fabric. Hosts that lack the same ports
// share a finding.
func (f *Fleet) checkPresence(source string) {
	type lacking struct {
		host  *Host
		ports []*Port
		names []string // of the ports
		whole bool
	}
	var all []lacking
	for _, h := range f.known() {
		l := lacking{host: h, whole: true}
		for j := range h.Ports {
			switch p := &h.Ports[j]; {
			case p.Known != "":
				l.whole = false
			case p.Role == pathsel.RoleData && p.Place != "":
				l.ports, l.names = append(l.ports, p), append(l.names, p.ShortName())
			}
		}
		if len(l.ports) > 0 {
			all = append(all, l)
		}
	}
	for _, same := range group.By(all, func(l lacking) string {
		if l.whole {
			return ""
		}
		return strings.Join(l.names, "\x00")
	}) {
		x := Finding{Code: CodePortNotInFabric, Severity: doctor.Warning}
		names := same[0].names
		for _, l := range same {
			x.Hosts = append(x.Hosts, l.host.Host)
			for _, p := range l.ports {
				x.Subjects = append(x.Subjects, l.host.Host+"/"+p.ShortName())
				x.Evidence = append(x.Evidence, fmt.Sprintf("%s/%s: GUID %s, MAC %s, state %s: not in %s", l.host.Host, p.Port, cmp.Or(p.GUID, "none"), cmp.Or(p.MAC, "none"), cmp.Or(p.State, "unknown"), source))
			}
		}
		if same[0].whole {
			x.Code, x.Subjects = CodeHostNotInFabric, nil
			x.Text = fmt.Sprintf("%s %s not in %s", text.Join(x.Hosts, mostNames), text.Noun(len(x.Hosts), "is", "are"), source)
			x.Fix = "add it to the fabric file, or discover the fabric it is part of"
		} else {
			x.Text = fmt.Sprintf("%s of %s %s not in %s", text.Join(names, mostNames), text.Join(x.Hosts, mostNames), text.Noun(len(names)*len(same), "is", "are"), source)
			x.Fix = "look whether the port is up and cabled; a fabric is discovered from ports that are up"
		}
		const most = 32
		if n := len(x.Evidence) - most; n > 0 {
			x.Evidence = append(x.Evidence[:most:most], fmt.Sprintf("and %d more", n))
		}
		f.find(x)
	}
}
