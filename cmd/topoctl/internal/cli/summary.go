package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/build"

	"github.com/topoctl/topoctl/internal/explain/show"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// schemaSummary is the name and major version of what summary -o json prints.
const schemaSummary = "topoctl.summary/v1"

type summaryOptions struct {
	*Host
	rdma RDMASource
}

func newSummaryCmd(f *Env) *cobra.Command {
	opts := &summaryOptions{f.Host(), f.RDMA}
	cmd := newCommand(opts, summaryName, "Show a host in ten lines; topoctl without a command does the same")
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

// summaryDoc is a host in brief.
type summaryDoc struct {
	Schema  string     `json:"schema"`
	Tool    topo.Tool  `json:"tool"`
	Host    string     `json:"host"`
	Product string     `json:"product"`
	Has     []string   `json:"has"` // "2 sockets", "8 GPUs"
	Health  health     `json:"health"`
	Choice  choice     `json:"choice"`
	Next    []nextStep `json:"next"`

	what  []string // the first line
	color string   // of the choice
}

// health is what doctor says.
type health struct {
	Text string `json:"text"`
	doctor.Summary
}

// choice is which ports each GPU, or NUMA node, uses.
type choice struct {
	Text  string `json:"text"`
	Users []user `json:"users"` // none if no port is usable
}

type user struct {
	Name  string   `json:"name"`  // gpu:0
	Ports []string `json:"ports"` // all of them where nothing tells which are near

	any bool // of Ports
}

// nextStep is a command that says more.
type nextStep struct {
	Command string `json:"command"`
	Why     string `json:"why"`
}

func (o *summaryOptions) run(ctx context.Context) error {
	t, err := o.Find(ctx)
	if err != nil {
		return err
	}
	if o.Globals.Verbose { // the warnings of discovery are findings of doctor
		o.Say(t)
	}
	doc, err := o.summarize(ctx, t)
	if err != nil {
		return err
	}
	if err := o.printAnswer(doc, func() string { return doc.text(o.Look()) }); err != nil {
		return err
	}
	return incomplete(t, false)
}

func (o *summaryOptions) summarize(ctx context.Context, t *topo.Topology) (*summaryDoc, error) {
	r, err := examine(ctx, o.Host, o.rdma, t)
	if err != nil {
		return nil, err
	}
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil, err
	}
	d := &summaryDoc{Schema: schemaSummary, Tool: build.Tool(), Host: t.Host.Name, Product: t.Host.Product, Has: picture.New(t).Counts(),
		Health: health{r.Headline(), r.Summary}}
	first := picture.NewOutline(t, picture.TreeOptions{}).Lines[0]
	d.what = []string{first.Name}
	for _, c := range first.Details {
		if c.Text != "" {
			d.what = append(d.what, c.Text)
		}
	}
	d.choose(h, o.Look())
	d.Next = o.next(t, d)
	return d, nil
}

// choose notes which ports everything uses that moves data.
func (d *summaryDoc) choose(h *pathsel.Host, l Look) {
	d.Choice.Users = []user{}
	p, err := h.Plan(nil)
	if err != nil {
		d.Choice.Text, d.color = pkgerr.Message(err)+".", Faint
		return
	}
	d.Choice.Text, d.color = show.PlanHeadline(h, p, &l)
	if len(p.Ports) == 0 {
		return
	}
	all := make([]string, len(p.Ports))
	for i := range all {
		all[i] = p.Ports[i].Name
	}
	for i := range p.Assignments {
		a := &p.Assignments[i]
		u := user{Name: a.Consumer, Ports: []string{}}
		for _, port := range a.Ports {
			u.Ports = append(u.Ports, port.Name)
		}
		if p.Nearness != nil && len(a.Ports) > 0 && !a.Ports[0].Class.Known() {
			u.any, u.Ports = true, all
		}
		d.Choice.Users = append(d.Choice.Users, u)
	}
}

// next chooses commands by what was found. They name the same host.
func (o *summaryOptions) next(t *topo.Topology, d *summaryDoc) []nextStep {
	var out []nextStep
	add := func(args, why string) {
		out = append(out, nextStep{"topoctl " + args + o.Globals.SameHost(), why})
	}
	if d.Health.Errors+d.Health.Warnings > 0 {
		add("doctor", "the problem, and the fix")
	}
	if len(t.GPUs)+len(t.RDMADevices) == 0 && !o.Globals.Described() {
		add("--fixture dgx-h100", "the same for a machine with 8 GPUs")
	}
	if len(d.Choice.Users) > 0 {
		add("path "+d.Choice.Users[0].Name, "which NIC, and why")
	}
	add("topo", "the host as a tree")
	return append(out[:min(2, len(out))], nextStep{"topoctl --help", "all commands"})
}

// The room of the choice: lines, fewer where there are more to show than they take anyway.
const (
	mostLines = 8
	mostRows  = 4
)

// text is the summary for people.
func (d *summaryDoc) text(l Look) string {
	var b strings.Builder
	name := l.Paint(d.what[0], Strong)
	b.WriteString(strings.Replace(l.Wrap("", strings.Join(d.what, "  "), ""), d.what[0], name, 1))
	healthy := Good
	switch s := d.Health.Summary; {
	case s.Errors > 0:
		healthy = Bad
	case s.Warnings > 0:
		healthy = Caution
	case s.OK == 0:
		healthy = Faint
	}
	b.WriteString(l.Wrap("", d.Health.Text, healthy))
	b.WriteString(l.Wrap("", d.Choice.Text, d.color))
	b.WriteString("\n")
	if lines := choiceLines(d.Choice.Users, l.Width); len(lines) > 0 {
		b.WriteString(strings.Join(lines, "\n") + "\n\n")
	}
	var rows []Row
	for _, n := range d.Next {
		rows = append(rows, Row{Cells: []string{n.Command, n.Why}})
	}
	return b.String() + l.Listing(rows)
}

// choiceLines set who uses what in columns, with one port for each where two of each take too many lines.
func choiceLines(users []user, width int) []string {
	if width <= 0 {
		width = plainWidth
	}
	const lead = 2
	pairs, wide := choicePairs(users, 2)
	if len(pairs) > mostRows*across(width-lead, wide) {
		pairs, wide = choicePairs(users, 1)
	}
	columns, left := across(width-lead, wide), 0
	if len(pairs) > mostLines {
		left = max(0, len(pairs)-columns*mostRows)
	}
	var out []string
	for row := range slices.Chunk(pairs[:len(pairs)-left], columns) {
		line := ""
		for _, p := range row {
			line += text.Pad(p, wide+columnGap)
		}
		out = append(out, strings.Repeat(" ", lead)+strings.TrimRight(line, " "))
	}
	if left > 0 {
		out = append(out, fmt.Sprintf("%*sand %d more: topoctl path --plan", lead, "", left))
	}
	return out
}

const columnGap = 3

// across is how many columns of a width have room in a line.
func across(line, wide int) int { return max(1, (line+columnGap)/(wide+columnGap)) }

// choicePairs say who uses what: those in a row who use the same as one, of many ports the first few.
func choicePairs(users []user, ports int) (pairs []string, widest int) {
	for i := 0; i < len(users); {
		n := i + 1
		for n < len(users) && slices.Equal(users[n].Ports, users[i].Ports) {
			n++
		}
		name := users[i].Name
		if n-i > 1 {
			_, last, _ := strings.Cut(users[n-1].Name, ":")
			name += ".." + last
		}
		uses := "no usable port"
		if len(users[i].Ports) > 0 {
			uses = text.List(users[i].Ports, ports)
		}
		if users[i].any {
			uses = "any of " + uses
		}
		pairs = append(pairs, text.Printable(name+" -> "+uses))
		widest = max(widest, text.Width(pairs[len(pairs)-1]))
		i = n
	}
	return pairs, widest
}
