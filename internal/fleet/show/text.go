// Package show draws a fleet: text for people, a map as SVG, a page as HTML, a line for monitoring.
// What a host or a switch is called may be anything: package report makes it harmless.
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
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Options say how a fleet is printed.
type Options struct {
	Width int  // columns to break lines at, 0: the first line is whole, others are broken at 100
	All   bool // fold nothing
	Color bool
	Units units.System
}

const (
	customary   = 100
	mostHosts   = 4 // names of a list of hosts
	mostFolded  = 3 // codes on a folded line
	mostReasons = 5 // why hosts were not reached
)

func (o *Options) text() *report.Text {
	return report.NewText(report.Look{Width: o.Width, Color: o.Color}, customary)
}

// Check is what is wrong with a fleet: the answer, then the findings from the worst to the least.
// Notes and what could not be checked are a line each unless all is wanted.
func Check(f *fleet.Fleet, o Options) string {
	t := o.text()
	t.Answer(f.Headline(), "")
	t.Gap()
	var notes, unchecked []string
	for _, x := range together(f.Findings) {
		if x.Severity == doctor.Info && !o.All {
			notes = append(notes, fmt.Sprintf("%s on %s", x.Code, text.Plural(len(x.Hosts), "host")))
			continue
		}
		t.Finding(&report.Finding{Label: x.Severity.Label(), Code: string(x.Code), About: about(x), Text: x.Text,
			Evidence: x.Evidence, Fix: x.Fix})
	}
	if o.All {
		t.Gap()
		var list []report.Unchecked
		for _, u := range f.Unknown {
			list = append(list, report.Unchecked{Code: string(u.Code), Text: u.Text, How: u.How})
		}
		t.Unchecked(list)
		if !f.NoneReached() {
			t.Gap()
			t.Table(Facts(f))
		}
		return t.String()
	}
	folded := unreached(t, f)
	t.Gap()
	for _, u := range f.Unknown {
		if code := string(u.Code); u.Code != fleet.CodeNotReached && !slices.Contains(unchecked, code) {
			unchecked = append(unchecked, code)
		}
	}
	if len(notes) > 0 {
		t.Say("", text.Plural(len(notes), "note")+": "+text.List(notes, mostFolded), "")
	}
	if len(unchecked) > 0 {
		t.Say("", fmt.Sprintf("%s could not be made: %s", text.Plural(len(unchecked), "check"), text.List(unchecked, mostFolded)), "")
	}
	if len(unchecked)+len(notes) > 0 || folded {
		t.Say("", "--all shows everything.", "")
	}
	return strings.TrimRight(t.String(), "\n") + "\n"
}

// together makes one finding of those that say the same of several hosts.
func together(list []fleet.Finding) []*fleet.Finding {
	var out []*fleet.Finding
	for _, same := range group.By(list, func(x fleet.Finding) [3]string { return [3]string{string(x.Severity), string(x.Code), x.Text} }) {
		x := same[0]
		for _, more := range same[1:] {
			x.Hosts, x.Subjects = slices.Concat(x.Hosts, more.Hosts), slices.Concat(x.Subjects, more.Subjects)
			x.Evidence = slices.Concat(x.Evidence, more.Evidence)
		}
		out = append(out, &x)
	}
	return out
}

// about names the devices of one host, or the hosts.
func about(x *fleet.Finding) []string {
	if len(x.Subjects) > 0 && len(x.Hosts) < 2 {
		return x.Subjects
	}
	return x.Hosts
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

// unreached adds a table of the hosts that were not reached, by reason. folded: not all reasons, or not all hosts, are in it.
func unreached(t *report.Text, f *fleet.Fleet) (folded bool) {
	list := f.Unreached()
	if len(list) == 0 {
		return false
	}
	table := report.TableOf([]string{"NOT REACHED", "SOURCE", "REASON"})
	for i, x := range list {
		folded = folded || len(x.Hosts) > mostHosts+1
		if i == mostReasons && len(list) > mostReasons+1 {
			hosts := 0
			for _, x := range list[i:] {
				hosts += len(x.Hosts)
			}
			table.Add(fmt.Sprintf("%d more", hosts), "", text.Plural(len(list)-i, "other reason"))
			folded = true
			break
		}
		table.Add(text.List(x.Hosts, mostHosts), sourceOf(x.Sources), x.Reason)
	}
	t.Gap()
	t.Table(table)
	return folded
}

// Facts are all facts, with how many hosts have the value of most.
func Facts(f *fleet.Fleet) *report.Table {
	rows := report.TableOf([]string{"AMONG", "FACT", "OF", "HOSTS", "VALUE"})
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
		rows.Add(strings.TrimPrefix(x.Among, "kind:"), x.Key, of, fmt.Sprintf("%d of %d", x.Hosts, x.Of), value)
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
	t := o.text()
	t.Answer(f.Headline(), "")
	t.Gap()
	switch {
	case view == "host": // hosts that were not reached are among them
		t.Table(hosts(f))
		return t.String()
	case f.NoneReached():
	case view == "leaf" && len(f.Groups) == 0, view == "rail" && !railsKnown(f):
		t.Say("", "Which switches the ports are cabled to is not known: use --fabric FILE.", "")
	case view == "leaf":
		leaves(t, f, o)
	default:
		t.Table(Rows(f, view))
	}
	unreached(t, f)
	return t.String()
}

func railsKnown(f *fleet.Fleet) bool {
	for _, p := range f.Ports() {
		if p.Rail != nil {
			return true
		}
	}
	return len(f.Groups) > 0
}

func classes(f *fleet.Fleet) *report.Table {
	rows := report.TableOf([]string{"CLASS", "MODEL", "GPUS", "DATA PORTS", "HOSTS"})
	for i := range f.Classes {
		c := &f.Classes[i]
		gpus := strconv.Itoa(c.GPUs)
		if c.GPUModel != "" {
			gpus += " " + strings.TrimPrefix(c.GPUModel, "NVIDIA ")
		}
		rows.Add(c.Class, c.Model, gpus, strconv.Itoa(c.DataPorts), fmt.Sprintf("%d: %s", len(c.Hosts), text.List(c.Hosts, mostHosts)))
	}
	return rows
}

func hosts(f *fleet.Fleet) *report.Table {
	worst := map[string]doctor.Severity{}
	for i := range f.Findings { // the worst first
		for _, h := range f.Findings[i].Hosts {
			if worst[h] == "" {
				worst[h] = f.Findings[i].Severity
			}
		}
	}
	rows := report.TableOf([]string{"HOST", "STATUS", "CLASS", "WORST", "GPUS", "DATA PORTS", "KERNEL", "GPU DRIVER", "SOURCE"})
	for i := range f.Hosts {
		h := &f.Hosts[i]
		if !h.Known() {
			rows.Add(h.Host, string(h.Status), "-", "-", "-", "-", "-", "-", strings.TrimSuffix(h.Source+": "+h.Reason, ": "))
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
		rows.Add(h.Host, string(h.Status), cmp.Or(h.Class, "-"), cmp.Or(string(worst[h.Host]), "-"), strconv.Itoa(len(h.GPUs)), ports,
			cmp.Or(h.Kernel, "-"), cmp.Or(h.GPUDriver, "-"), h.Source)
	}
	return rows
}

// leaves adds the tree of groups, their leaves, and the ports on each.
func leaves(t *report.Text, f *fleet.Fleet, o Options) {
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
		t.Say("", fmt.Sprintf("%s  %s: %s", g.Group, text.Plural(len(g.Hosts), "host"), text.List(g.Hosts, mostHosts)), "")
		for i, leaf := range g.Leaves {
			branch, trunk := "├─ ", "│  "
			if i == len(g.Leaves)-1 {
				branch, trunk = "└─ ", "   "
			}
			t.Say(branch, f.SwitchName(leaf)+rail[leaf], "")
			if len(up[leaf]) > 0 {
				t.Say(trunk+"   up    ", text.List(up[leaf], mostHosts), "")
			}
			hosts := map[string][]string{} // by name of port
			for _, e := range on[leaf] {
				hosts[e.port] = append(hosts[e.port], e.host)
			}
			for _, name := range slices.SortedFunc(maps.Keys(hosts), topo.NaturalCompare) {
				t.Say(trunk+"   ", fmt.Sprintf("%s of %s", name, text.Join(hosts[name], mostHosts)), "")
			}
		}
	}
}

// rails are the rails with their leaves.
func rails(f *fleet.Fleet) *report.Table {
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
	rows := report.TableOf([]string{"RAIL", "PORTS", "NAMES", "LEAVES"})
	for _, r := range slices.Sorted(maps.Keys(ports)) {
		rows.Add(strconv.Itoa(r), strconv.Itoa(ports[r]), list(names[r]), list(leaves[r]))
	}
	if without > 0 {
		rows.Add("unknown", strconv.Itoa(without), "", "")
	}
	return rows
}

// Findings are the findings, and what could not be checked.
func Findings(f *fleet.Fleet) *report.Table {
	rows := report.TableOf([]string{"SEVERITY", "SOURCE", "CODE", "HOSTS", "SUBJECTS", "TEXT", "NEXT"})
	for i := range f.Findings {
		x := &f.Findings[i]
		rows.Add(string(x.Severity), x.Source, string(x.Code), strings.Join(x.Hosts, ","), strings.Join(x.Subjects, ","), x.Text, x.Fix)
	}
	for _, u := range f.Unknown {
		rows.Add(string(doctor.CouldNotCheck), fleet.SourceFleet, string(u.Code), strings.Join(u.Hosts, ","), "", u.Text, u.How)
	}
	return rows
}

// Rows are a view's rows.
func Rows(f *fleet.Fleet, view string) *report.Table {
	switch view {
	case "host":
		return hosts(f)
	case "leaf":
		return leafPorts(f)
	case "rail":
		return rails(f)
	case "fact":
		return Facts(f)
	}
	return classes(f)
}

// leafPorts are the ports with their leaves.
func leafPorts(f *fleet.Fleet) *report.Table {
	rows := report.TableOf([]string{"LEAF", "LEAF PORT", "HOST", "PORT", "RAIL", "KNOWN"})
	for h, p := range f.Ports() {
		if p.Leaf == "" {
			continue
		}
		rail := ""
		if p.Rail != nil {
			rail = strconv.Itoa(*p.Rail)
		}
		rows.Add(f.SwitchName(p.Leaf), p.LeafPort, h.Host, p.Port, rail, p.Known)
	}
	slices.SortStableFunc(rows.Rows, func(a, b report.Row) int { return topo.NaturalCompare(a.Cells[0], b.Cells[0]) })
	return rows
}

// Collected says what was collected: the answer, the hosts that were not reached, the classes.
func Collected(f *fleet.Fleet, dir string, o Options) string {
	t := o.text()
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
	t.Answer(strings.TrimSuffix(s, ".")+".", "")
	if known > 0 {
		t.Gap()
		t.Table(classes(f))
	}
	unreached(t, f)
	return t.String()
}
