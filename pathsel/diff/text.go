package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
)

// TextOptions say how a report is printed.
type TextOptions struct {
	Width int  // columns to wrap lines at; 0: no limit
	All   bool // also list what could not be compared
}

// Text is the report for people: the answer in a sentence, a line for each difference, those that
// cost something first, then what changes in the choice of ports, how was compared, and the sum.
func (r *Report) Text(o TextOptions) string {
	t := report.NewText(report.Look{Width: o.Width}, 0)
	t.Answer(r.headline()+".", "")
	notes := append(r.heading(), r.omitted(o.All)...)
	if !r.Equal {
		t.Gap()
		// A wide cell does not widen its column.
		rows := &report.Table{Columns: []text.Column{{Most: 10}, {Most: 28}, {Most: 48}, {}}}
		for _, cells := range r.Rows() {
			rows.Add(cells...)
		}
		t.Table(rows)
		t.Gap()
		notes = append(notes, r.summary())
	}
	for _, n := range notes {
		t.Say("", n, "")
	}
	return t.String()
}

// Rows are the differences for people, those that cost something first: of each its kind, what it is about, what
// differs, and what follows from it.
func (r *Report) Rows() [][]string {
	type row struct {
		place int
		cells []string
	}
	var rows []row
	add := func(kind Kind, costs bool, cells ...string) {
		place := slices.Index(kinds, kind)
		if !costs {
			place += len(kinds)
		}
		rows = append(rows, row{place, append([]string{string(kind)}, cells...)})
	}
	for _, kind := range []Kind{Removed, Added} {
		if n, makes := r.plainFunctions(kind); makes > mostMakes {
			add(kind, false, fmt.Sprintf("%d PCI functions", n), fmt.Sprintf("of %d makes that are neither GPU, NIC nor drive (see the JSON)", makes), "")
		}
	}
	for i := range r.Differences {
		d := &r.Differences[i]
		if _, makes := r.plainFunctions(d.Kind); d.ofPlainFunctions() && makes > mostMakes {
			continue
		}
		add(d.Kind, d.costs(), d.subject(), d.Text(), d.Effect)
	}
	for i := range r.Policy {
		if p := &r.Policy[i]; p.Choice != ChoicePlan || !r.planFollows(p) {
			add(Policy, true, p.subject(), p.Text(), p.why())
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.place - b.place })
	out := make([][]string, len(rows))
	for i, x := range rows {
		out[i] = x.cells
	}
	return out
}

// costs says whether a difference is for the worse: a device is gone, a link or port got slower,
// or settings and expected rates have to follow.
func (d *Difference) costs() bool {
	switch d.Kind {
	case Degraded:
		return true
	case Removed:
		return !d.ofPlainFunctions()
	case Added, Improved:
		return false
	}
	return d.Effect != ""
}

// headline is the answer in a sentence: how many differences there are, and the worst.
func (r *Report) headline() string {
	if r.Equal {
		return r.noDifference()
	}
	choices := ""
	if n := len(r.Policy); n > 0 {
		choices = text.Plural(n, "choice") + " of ports " + text.Noun(n, "changes", "change")
	}
	n := len(r.Differences)
	sentence := text.Plural(n, "difference")
	worst := r.worst()
	switch {
	case n == 0:
		return "No differences, but " + choices
	case worst == nil && choices == "":
		return sentence + "; nothing is gone or slower, and the same ports are chosen"
	case worst == nil:
		return sentence + "; nothing is gone or slower, but " + choices
	case n == 1:
		sentence += ": " + worst.sentence()
	default:
		sentence += ", the worst: " + worst.sentence()
	}
	if choices != "" {
		sentence += "; " + choices
	}
	return sentence
}

// worst is the first difference that costs something, in the order of kinds; nil: none does.
func (r *Report) worst() *Difference {
	for _, kind := range kinds {
		for i := range r.Differences {
			if d := &r.Differences[i]; d.Kind == kind && d.costs() {
				return d
			}
		}
	}
	return nil
}

// sentence says what differs in words: "gpu:2: PCIe width is x8, was x16".
func (d *Difference) sentence() string {
	switch {
	case d.Kind == Removed && d.Note == "replaced":
		return d.subject() + " " + text.Noun(len(d.Nodes), "is", "are") + " replaced"
	case d.Kind == Removed && d.Attribute == "presence":
		return d.subject() + " " + text.Noun(len(d.Nodes), "is", "are") + " gone"
	case d.isRenamed():
		return d.Old + " is called " + d.New
	case d.Kind == Degraded && d.Attribute == "links" && len(d.Nodes) == 1:
		kind, ends, _ := strings.Cut(d.Nodes[0].Name, " ")
		gpu, own := strings.CutSuffix(ends, " to "+switches)
		return fmt.Sprintf("%s %s of %s %ss", gpu+map[bool]string{true: " has", false: ":"}[own], strings.Replace(d.New, absent, "0", 1), d.Old, kind)
	case d.Kind == Degraded && d.Note == "":
		return fmt.Sprintf("%s: %s is %s, was %s", d.subject(), compare.Of(d.Attribute).Words, d.New, d.Old)
	}
	return d.subject() + ": " + d.Text()
}

// noDifference says that there is none, in what was compared.
func (r *Report) noDifference() string {
	s := "No differences"
	if len(r.NotCompared) > 0 {
		s += " in what both contain"
	}
	if len(r.Ignored) > 0 {
		s += ", " + strings.Join(r.Ignored, ", ") + " ignored"
	}
	return s + r.fingerprints()
}

func (r *Report) fingerprints() string {
	if r.FingerprintsEqual {
		return "; fingerprints equal"
	}
	return "; fingerprints differ"
}

// mostMakes is how many sorts of plain PCI functions are told apart.
const mostMakes = 3

// plainFunctions counts what came or went and is neither device nor switch.
func (r *Report) plainFunctions(kind Kind) (functions, makes int) {
	for i := range r.Differences {
		if d := &r.Differences[i]; d.Kind == kind && d.ofPlainFunctions() {
			functions, makes = functions+len(d.Nodes), makes+1
		}
	}
	return functions, makes
}

func (d *Difference) ofPlainFunctions() bool {
	return d.Attribute == "presence" && !slices.ContainsFunc(d.Nodes, func(n Node) bool { return n.Kind != topo.KindPCI })
}

// isRenamed says whether devices have other names, or other numbers that stand for names.
func (d *Difference) isRenamed() bool {
	return d.Attribute == "name" || d.Attribute == "index"
}

// subject names the nodes of a difference.
func (d *Difference) subject() string {
	if d.isRenamed() {
		return d.Old + " -> " + d.New
	}
	return nodeNames(d.Nodes)
}

// Text says in words what differs, without naming the nodes: "PCIe width x16 -> x8".
func (d *Difference) Text() string {
	a := compare.Of(d.Attribute)
	words := a.Words
	switch {
	case d.Attribute == "presence":
		return d.presence()
	case d.Kind == Moved:
		return fmt.Sprintf("%s -> %s (%s)", d.Old, d.New, d.Note)
	case d.isRenamed():
		return "(" + d.Note + ")"
	case d.Attribute == "modules":
		return fmt.Sprintf("%s %s: %s -> %s", a.Single(), d.Note, d.Old, d.New)
	case a.Form == compare.Set:
		return fmt.Sprintf("%s %s -> %s", a.Single(), d.Old, d.New)
	}
	olds, ok1 := d.OldValue.([]string)
	news, ok2 := d.NewValue.([]string)
	if ok1 && ok2 {
		return words + ": " + strings.Join(slices.DeleteFunc([]string{without(olds, news, "no longer "), without(news, olds, "now ")},
			func(s string) bool { return s == "" }), "; ")
	}
	s := fmt.Sprintf("%s %s -> %s", words, d.Old, d.New)
	if d.Note != "" {
		s += " (" + d.Note + ")"
	}
	return s
}

// presence is what came or went: its make, where it is, what went with it.
func (d *Difference) presence() string {
	s := d.Old + d.New
	var at, with []string
	for _, n := range d.Nodes {
		if a := n.OldAddress + n.NewAddress; a != "" && a != n.Name {
			at = append(at, a)
		}
		with = append(with, n.With...)
	}
	if len(at) > 0 && len(at) <= 2 {
		s += " at " + strings.Join(at, ", ")
	}
	if len(with) > 0 && len(with) <= 2 {
		s += ", with " + strings.Join(with, ", ")
	}
	if d.Note != "" {
		s += " (" + d.Note + ")"
	}
	return strings.TrimLeft(s, " ,")
}

// planFollows says whether a plan changes just as what is preferred does.
func (r *Report) planFollows(p *Choice) bool {
	same := func(q Choice) bool {
		return q.Choice == ChoicePreferred && slices.Equal(q.Old, p.Old) && slices.Equal(q.New, p.New) &&
			!slices.ContainsFunc(p.Locations, func(n Node) bool {
				return !slices.ContainsFunc(q.Locations, func(l Node) bool { return l.New == n.New })
			})
	}
	return slices.ContainsFunc(r.Policy, same)
}

// subject names the locations of a choice.
func (p *Choice) subject() string {
	if len(p.Locations) == 0 {
		return string(KindHost)
	}
	return nodeNames(p.Locations)
}

// Text says in words what is chosen now: "preferred mlx5_6 -> mlx5_7".
func (p *Choice) Text() string {
	return fmt.Sprintf("%s %s -> %s", p.Choice, cmp.Or(names(p.OldNames), absent), cmp.Or(names(p.NewNames), absent))
}

// why is the reason and the effect of a choice that changes.
func (p *Choice) why() string {
	if p.Reason != "" && p.Effect != "" {
		return p.Effect + "; " + p.Reason
	}
	return p.Reason + p.Effect
}

// heading says what was compared, where that is not plain.
func (r *Report) heading() []string {
	switch {
	case r.StructureOnly:
		return []string{"structure only: names, identities, addresses, software and settings are not compared"}
	case r.Hosts == DifferentHosts:
		return []string{fmt.Sprintf("different hosts (%s, %s): identities and addresses are not compared, devices are matched by slot and position",
			r.Old.who(), r.New.who())}
	case r.Identities == IdentitiesRedacted:
		return []string{"a redacted capture: identities and addresses are not compared, devices are matched by slot and position"}
	}
	return nil
}

func (s *Side) who() string {
	if s.Host == "" {
		return s.Label
	}
	return s.Label + ": " + s.Host
}

// mostParts is how many attributes a line of omissions names.
const mostParts = 8

// omitted says what could not be compared: a line for each reason, or how much it is.
func (r *Report) omitted(all bool) (out []string) {
	if n := len(r.NotCompared); n > 0 && !all {
		return []string{text.Plural(n, "fact") + " could not be compared; --all lists " + text.Noun(n, "it", "them")}
	}
	const most = 12
	reasons := group.By(r.NotCompared, func(o Omission) [2]string { return [2]string{o.Side, o.Reason} })
	for i, same := range reasons {
		if i == most {
			return append(out, fmt.Sprintf("not compared: and for %d more reasons (see not_compared in the JSON)", len(reasons)-most))
		}
		label := r.Old.Label
		if same[0].Side == "new" {
			label = r.New.Label
		}
		var list []string
		for _, o := range same {
			what := compare.Of(o.Attribute).Words
			if of := nodeNames(o.Nodes); of != string(KindHost) {
				what += " of " + of
			}
			list = append(list, what)
		}
		if rest := len(list) - mostParts; rest > 1 {
			list = append(list[:mostParts], fmt.Sprintf("and %d more (see not_compared in the JSON)", rest))
		}
		out = append(out, fmt.Sprintf("not compared: %s (%s: %s)", strings.Join(list, ", "), label, same[0].Reason))
	}
	return out
}

// summary is the last line: how many differences of each kind, and whether the structures are equal.
func (r *Report) summary() string {
	var each []string
	for _, k := range kinds {
		count := 0
		for i := range r.Differences {
			if r.Differences[i].Kind == k {
				count++
			}
		}
		if count > 0 {
			each = append(each, fmt.Sprintf("%d %s", count, k))
		}
	}
	if n := len(r.Policy); n > 0 {
		each = append(each, text.Plural(n, "choice")+" of ports")
	}
	return strings.Join(each, ", ") + r.fingerprints()
}

// nodeNames names nodes for people, kind by kind; of many it gives the number.
func nodeNames(nodes []Node) string {
	byKind := map[topo.Kind][]string{}
	for _, n := range nodes {
		byKind[n.Kind] = append(byKind[n.Kind], n.Name)
	}
	var out []string
	for _, kind := range kindOrder {
		if list := byKind[kind]; len(list) > 0 {
			parts := drawTogether(list)
			if len(parts) > 3 {
				parts = []string{fmt.Sprintf("%d %s", len(list), kindWords[kind])}
			}
			out = append(out, parts...)
		}
	}
	return strings.Join(out, ", ")
}

var kindWords = map[topo.Kind]string{
	topo.KindPackage: "CPU packages", topo.KindNUMA: "NUMA nodes", topo.KindHostBridge: "root buses", topo.KindSwitch: "PCIe switches",
	topo.KindPCI: "PCI functions", topo.KindGPU: "GPUs", topo.KindNVSwitch: "NVSwitches", topo.KindRDMA: "RDMA devices",
	topo.KindPort: "ports", topo.KindNetdev: "interfaces", topo.KindNVMe: "NVMe controllers", KindLink: "links", KindHost: "hosts",
	KindLocation: "memory locations",
}

// names lists names for people; of many the first are shown.
func names(list []string) string {
	const most = 6
	parts := drawTogether(list)
	if len(parts) > most {
		return fmt.Sprintf("%s, ... %d in all", strings.Join(parts[:most], ", "), len(list))
	}
	return strings.Join(parts, ", ")
}

// drawTogether turns runs of names into one: "mlx5_0..11".
func drawTogether(list []string) []string {
	var parts []string
	for run := range runs(list, next) {
		part := run[0]
		if len(run) > 1 {
			part = span("", part, run[len(run)-1], len(run))
		}
		parts = append(parts, part)
	}
	return parts
}

// without lists the words of one list that are not in another, after a prefix.
func without(list, other []string, prefix string) string {
	var out []string
	for _, w := range list {
		if !slices.Contains(other, w) {
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return prefix + names(out)
}
