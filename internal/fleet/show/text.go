// Package show draws a fleet: text for people, a map as SVG, a page as HTML, a line for monitoring.
// What a host or a switch is called may be anything: text is not made harmless here but by whoever prints
// it; SVG and HTML are.
package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Options say how a fleet is printed.
type Options struct {
	Width int  // columns to break lines at, 0: the first line is whole, others are broken at 100
	All   bool // fold nothing
	Units units.System
}

const (
	customary   = 100
	narrowest   = 60
	indent      = "      "
	mostSeen    = 3 // pieces of evidence of one finding
	mostHosts   = 4 // names of a list of hosts
	mostFolded  = 3 // codes on a folded line
	mostReasons = 5 // why hosts were not reached
	unchecked   = "????"
)

type writer struct {
	b     strings.Builder
	width int
}

func newWriter(o Options) *writer {
	w := &writer{width: customary}
	if o.Width > 0 {
		w.width = max(o.Width, narrowest)
	}
	return w
}

// headline is the answer; in a pipe it is one line.
func (w *writer) headline(answer string, o Options) {
	if o.Width > 0 {
		w.wrap("", "", answer)
		return
	}
	w.b.WriteString(strings.Join(strings.Fields(answer), " ") + "\n")
}

// wrap writes text in lines of the width: lead begins the first one, more the others.
func (w *writer) wrap(lead, more, s string) {
	for i, line := range text.Wrap(s, max(20, w.width-text.Width(lead))) {
		if i > 0 {
			lead = more
		}
		w.b.WriteString(strings.TrimRight(lead+line, " ") + "\n")
	}
}

func (w *writer) table(rows [][]string) {
	for _, lines := range text.WrapColumns(rows, w.width) {
		w.b.WriteString(strings.Join(lines, "\n") + "\n")
	}
}

// Check is what is wrong with a fleet: the answer, then the findings from the worst to the least.
// Notes and what could not be checked are a line each unless all is wanted.
func Check(f *fleet.Fleet, o Options) string {
	w := newWriter(o)
	w.headline(f.Headline(), o)
	printed, notes := 0, []string{}
	for _, x := range together(f.Findings) {
		if x.Severity == doctor.Info && !o.All {
			notes = append(notes, fmt.Sprintf("%s on %s", x.Code, text.Plural(len(x.Hosts), "host")))
			continue
		}
		if printed++; printed == 1 {
			w.b.WriteString("\n")
		}
		w.finding(x)
	}
	folded := !o.All && w.unreached(f)
	if printed > 0 && (len(notes) > 0 || len(f.Unknown) > 0) || len(f.Missing()) > 0 {
		w.b.WriteString("\n")
	}
	if o.All {
		w.unknown(f)
		if !f.NoneReached() {
			w.facts(f)
		}
		return w.b.String()
	}
	if len(notes) > 0 {
		w.wrap("", "", text.Plural(len(notes), "note")+": "+text.List(notes, mostFolded))
	}
	if w.foldUnknown(f) || folded || len(notes) > 0 {
		w.wrap("", "", "--all shows everything.")
	}
	return strings.TrimRight(w.b.String(), "\n") + "\n"
}

func (w *writer) finding(x *fleet.Finding) {
	w.b.WriteString(strings.TrimRight(x.Severity.Label()+"  "+string(x.Code)+"  "+about(x), " ") + "\n")
	w.wrap(indent, indent, x.Text)
	lead := indent + "seen  "
	for i, e := range x.Evidence {
		if i == mostSeen && len(x.Evidence) > mostSeen+1 {
			w.wrap(lead, indent+indent, fmt.Sprintf("and %d more", len(x.Evidence)-i))
			break
		}
		w.wrap(lead, indent+indent, e)
		lead = indent + indent
	}
	if x.Fix != "" {
		w.wrap(indent+"fix   ", indent+indent, x.Fix)
	}
}

// together makes one finding of those that say the same of several hosts.
func together(list []fleet.Finding) []*fleet.Finding {
	var out []*fleet.Finding
	for _, same := range group.By(list, func(x fleet.Finding) [3]string { return [3]string{string(x.Severity), string(x.Code), x.Text} }) {
		x := same[0]
		for _, more := range same[1:] {
			x.Hosts, x.Subjects, x.Evidence = slices.Concat(x.Hosts, more.Hosts), slices.Concat(x.Subjects, more.Subjects), slices.Concat(x.Evidence, more.Evidence)
		}
		out = append(out, &x)
	}
	return out
}

// about names the devices of one host, or the hosts.
func about(x *fleet.Finding) string {
	if len(x.Subjects) > 0 && len(x.Hosts) < 2 {
		return text.List(x.Subjects, mostHosts)
	}
	return text.List(x.Hosts, mostHosts)
}

// foldUnknown says in a line what could not be checked beside the hosts that were not reached.
func (w *writer) foldUnknown(f *fleet.Fleet) (some bool) {
	var codes []string
	for _, u := range f.Unknown {
		if code := string(u.Code); u.Code != fleet.CodeNotReached && !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	if len(codes) > 0 {
		w.wrap("", "", fmt.Sprintf("%s could not be made: %s", text.Plural(len(codes), "check"), text.List(codes, mostFolded)))
	}
	return len(codes) > 0
}

// sourceOf is the source of one host, or the kind of those of several: "ssh", "agent".
func sourceOf(sources []string) string {
	if len(sources) == 1 {
		return sources[0]
	}
	var kinds []string
	for _, s := range sources {
		if kind, _, _ := strings.Cut(s, " "); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return text.List(kinds, mostHosts)
}

// unreached is a table of the hosts that were not reached, by reason. folded: not all reasons, or not all hosts, are in it.
func (w *writer) unreached(f *fleet.Fleet) (folded bool) {
	list := f.Unreached()
	if len(list) == 0 {
		return false
	}
	rows := [][]string{{"NOT REACHED", "SOURCE", "REASON"}}
	for i, x := range list {
		folded = folded || len(x.Hosts) > mostHosts+1
		if i == mostReasons && len(list) > mostReasons+1 {
			hosts := 0
			for _, x := range list[i:] {
				hosts += len(x.Hosts)
			}
			rows, folded = append(rows, []string{fmt.Sprintf("%d more", hosts), "", text.Plural(len(list)-i, "other reason")}), true
			break
		}
		rows = append(rows, []string{text.List(x.Hosts, mostHosts), sourceOf(x.Sources), x.Reason})
	}
	w.b.WriteString("\n")
	w.table(rows)
	return folded
}

// unknown lists what could not be checked, with what would help.
func (w *writer) unknown(f *fleet.Fleet) {
	for _, u := range f.Unknown {
		s := u.Text
		if u.How != "" {
			s += " (" + u.How + ")"
		}
		w.wrap(unchecked+"  ", indent, string(u.Code)+": "+s)
	}
	if len(f.Unknown) > 0 {
		w.b.WriteString("\n")
	}
}

// facts are all facts, with how many hosts have the value of most.
func (w *writer) facts(f *fleet.Fleet) { w.table(FactRows(f)) }

// FactRows are the facts as rows below a head.
func FactRows(f *fleet.Fleet) [][]string {
	rows := [][]string{{"AMONG", "FACT", "OF", "HOSTS", "VALUE"}}
	for i := range f.Facts {
		x := &f.Facts[i]
		value := "hosts disagree"
		if x.Majority != nil {
			value = shortDigest(*x.Majority)
		}
		for _, o := range x.Others {
			value += fmt.Sprintf("; %s on %s", shortDigest(o.Value), text.Join(o.Hosts, mostHosts))
		}
		if len(x.Unknown) > 0 {
			value += "; not known of " + text.Join(x.Unknown, mostHosts)
		}
		of := "host"
		if len(x.Subjects) > 0 {
			of = text.List(x.Subjects, mostHosts)
		}
		rows = append(rows, []string{strings.TrimPrefix(x.Among, "kind:"), x.Key, of, fmt.Sprintf("%d of %d", x.Hosts, x.Of), value})
	}
	return rows
}

// shortDigest is enough of a fingerprint to tell it from others.
func shortDigest(s string) string {
	const prefix, digits = "sha256:", 12
	if strings.HasPrefix(s, prefix) && len(s) > len(prefix)+digits {
		return s[:len(prefix)+digits]
	}
	return s
}

// Views are what Show can list.
var Views = []string{"class", "host", "leaf", "rail", "fact"}

// Show is what a fleet consists of, in one of the views: the answer, then a table or a tree.
func Show(f *fleet.Fleet, view string, o Options) string {
	w := newWriter(o)
	w.headline(f.Headline(), o)
	if f.NoneReached() && view != "host" {
		w.unreached(f)
		return w.b.String()
	}
	w.b.WriteString("\n")
	switch view {
	case "host":
		w.table(HostRows(f))
		return w.b.String()
	case "leaf":
		w.leaves(f, o)
	case "rail":
		known := len(f.Groups) > 0
		for _, p := range f.Ports() {
			known = known || p.Rail != nil
		}
		if known {
			w.table(railRows(f))
		} else {
			w.wrap("", "", noCables)
		}
	case "fact":
		w.facts(f)
	default:
		w.table(ClassRows(f))
	}
	w.unreached(f)
	return w.b.String()
}

// ClassRows are the classes as rows below a head.
func ClassRows(f *fleet.Fleet) [][]string {
	rows := [][]string{{"CLASS", "MODEL", "GPUS", "DATA PORTS", "HOSTS"}}
	for i := range f.Classes {
		c := &f.Classes[i]
		gpus := strconv.Itoa(c.GPUs)
		if c.GPUModel != "" {
			gpus += " " + strings.TrimPrefix(c.GPUModel, "NVIDIA ")
		}
		rows = append(rows, []string{c.Class, c.Model, gpus, strconv.Itoa(c.DataPorts), fmt.Sprintf("%d: %s", len(c.Hosts), text.List(c.Hosts, mostHosts))})
	}
	return rows
}

// HostRows are the hosts as rows below a head.
func HostRows(f *fleet.Fleet) [][]string {
	worst := map[string]doctor.Severity{}
	for i := range f.Findings { // the worst first
		for _, h := range f.Findings[i].Hosts {
			if worst[h] == "" {
				worst[h] = f.Findings[i].Severity
			}
		}
	}
	rows := [][]string{{"HOST", "STATUS", "CLASS", "WORST", "GPUS", "DATA PORTS", "KERNEL", "GPU DRIVER", "SOURCE"}}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if !h.Known() {
			rows = append(rows, []string{h.Host, string(h.Status), "-", "-", "-", "-", "-", "-", strings.TrimSuffix(h.Source+": "+h.Reason, ": ")})
			continue
		}
		data, active := 0, 0
		for j := range h.Ports {
			if p := &h.Ports[j]; p.Role == pathsel.RoleData {
				data++
				if p.State == "ACTIVE" || p.State == "UP" {
					active++
				}
			}
		}
		ports := strconv.Itoa(data)
		if active < data {
			ports = fmt.Sprintf("%d of %d up", active, data)
		}
		rows = append(rows, []string{h.Host, string(h.Status), cmp.Or(h.Class, "-"), cmp.Or(string(worst[h.Host]), "-"), strconv.Itoa(len(h.GPUs)), ports, cmp.Or(h.Kernel, "-"), cmp.Or(h.GPUDriver, "-"), h.Source})
	}
	return rows
}

const noCables = "Which switches the ports are cabled to is not known: use --fabric FILE."

// leaves is the tree of groups, their leaves, and the ports on each.
func (w *writer) leaves(f *fleet.Fleet, o Options) {
	if len(f.Groups) == 0 {
		w.wrap("", "", noCables)
		return
	}
	type end struct{ port, host string }
	on, rail, up := map[string][]end{}, map[string]string{}, map[string][]string{}
	for h, p := range f.Ports() {
		if p.Leaf == "" {
			continue
		}
		on[p.Leaf] = append(on[p.Leaf], end{p.ShortName(), h.Host})
		if p.Rail != nil {
			rail[p.Leaf] = fmt.Sprintf("  rail %d", *p.Rail)
		}
	}
	for i := range f.Links {
		k := &f.Links[i]
		rate := ""
		if k.BytesPerSec != nil {
			rate = " of " + units.Rate(int64(*k.BytesPerSec), o.Units.Or(units.Gbit))
		}
		up[k.A] = append(up[k.A], fmt.Sprintf("%s to %s%s", text.Plural(k.Count, "link"), f.SwitchName(k.B), rate))
	}
	for _, g := range f.Groups {
		fmt.Fprintf(&w.b, "%s  %s: %s\n", g.Group, text.Plural(len(g.Hosts), "host"), text.List(g.Hosts, mostHosts))
		for i, leaf := range g.Leaves {
			branch, trunk := "├─ ", "│  "
			if i == len(g.Leaves)-1 {
				branch, trunk = "└─ ", "   "
			}
			fmt.Fprintf(&w.b, "%s%s%s\n", branch, f.SwitchName(leaf), rail[leaf])
			if len(up[leaf]) > 0 {
				w.wrap(trunk+"   up    ", trunk+"         ", text.List(up[leaf], mostHosts))
			}
			hosts := map[string][]string{} // by name of port
			for _, e := range on[leaf] {
				hosts[e.port] = append(hosts[e.port], e.host)
			}
			for _, name := range slices.SortedFunc(maps.Keys(hosts), topo.NaturalCompare) {
				w.wrap(trunk+"   ", trunk+"      ", fmt.Sprintf("%s of %s", name, text.Join(hosts[name], mostHosts)))
			}
		}
	}
}

// railRows are the rails with their leaves.
func railRows(f *fleet.Fleet) [][]string {
	ports, leaves, names := map[int]int{}, map[int]map[string]bool{}, map[int]map[string]bool{}
	without := 0
	for _, p := range f.Ports() {
		if p.Role != pathsel.RoleData {
			continue
		}
		if p.Rail == nil {
			without++
			continue
		}
		r := *p.Rail
		if ports[r] == 0 {
			leaves[r], names[r] = map[string]bool{}, map[string]bool{}
		}
		ports[r]++
		names[r][p.ShortName()] = true
		if leaf := f.SwitchName(p.Leaf); leaf != "" {
			leaves[r][leaf] = true
		}
	}
	list := func(words map[string]bool) string {
		return text.List(slices.SortedFunc(maps.Keys(words), topo.NaturalCompare), mostHosts)
	}
	rows := [][]string{{"RAIL", "PORTS", "NAMES", "LEAVES"}}
	for _, r := range slices.Sorted(maps.Keys(ports)) {
		rows = append(rows, []string{strconv.Itoa(r), strconv.Itoa(ports[r]), list(names[r]), list(leaves[r])})
	}
	if without > 0 {
		rows = append(rows, []string{"unknown", strconv.Itoa(without), "", ""})
	}
	return rows
}

// FindingRows are the findings and what could not be checked as rows below a head.
func FindingRows(f *fleet.Fleet) [][]string {
	rows := [][]string{{"SEVERITY", "SOURCE", "CODE", "HOSTS", "SUBJECTS", "TEXT", "NEXT"}}
	for i := range f.Findings {
		x := &f.Findings[i]
		rows = append(rows, []string{string(x.Severity), x.Source, string(x.Code), strings.Join(x.Hosts, ","), strings.Join(x.Subjects, ","), x.Text, x.Fix})
	}
	for _, u := range f.Unknown {
		rows = append(rows, []string{string(doctor.CouldNotCheck), fleet.SourceFleet, string(u.Code), strings.Join(u.Hosts, ","), "", u.Text, u.How})
	}
	return rows
}

// Rows are a view's rows below a head, for programs.
func Rows(f *fleet.Fleet, view string) [][]string {
	switch view {
	case "host":
		return HostRows(f)
	case "leaf":
		return leafRows(f)
	case "rail":
		return railRows(f)
	case "fact":
		return FactRows(f)
	}
	return ClassRows(f)
}

// leafRows are the ports with their leaves.
func leafRows(f *fleet.Fleet) [][]string {
	rows := [][]string{{"LEAF", "LEAF PORT", "HOST", "PORT", "RAIL", "KNOWN"}}
	for h, p := range f.Ports() {
		if p.Leaf == "" {
			continue
		}
		rail := ""
		if p.Rail != nil {
			rail = strconv.Itoa(*p.Rail)
		}
		rows = append(rows, []string{f.SwitchName(p.Leaf), p.LeafPort, h.Host, p.Port, rail, p.Known})
	}
	slices.SortStableFunc(rows[1:], func(a, b []string) int { return topo.NaturalCompare(a[0], b[0]) })
	return rows
}

// Collected says what was collected: the answer, the hosts that were not reached, the classes.
func Collected(f *fleet.Fleet, dir string, o Options) string {
	w := newWriter(o)
	missing := f.Missing()
	known := len(f.Hosts) - len(missing)
	s := fmt.Sprintf("Collected %s in %s", text.Plural(known, "host"), text.Plural(len(f.Classes), "class"))
	if dir != "" {
		s += " into " + dir
	}
	if n := len(missing); n > 0 {
		s += fmt.Sprintf("; %s not reached: %s", text.Plural(n, "host"), text.List(missing, mostHosts))
	}
	if f.NoneReached() {
		s = f.SayUnreached()
	}
	w.headline(s+".", o)
	if known > 0 {
		w.b.WriteString("\n")
		w.table(ClassRows(f))
	}
	w.unreached(f)
	return w.b.String()
}
