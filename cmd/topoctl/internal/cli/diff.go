package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/pathsel/diff"
)

type diffOptions struct {
	*Host
	old, new  string // new is "" for the host that the flags name
	ignore    []string
	structure bool
	all       bool // print what could not be compared
	probe     bool // OLD and NEW are reports of measurements
	show      show.Options
}

func newDiffCmd(f *Env) *cobra.Command {
	opts := &diffOptions{Host: f.Host()}
	cmd := newCommand(opts, "diff OLD [NEW]", "Compare two hosts, or a host with how it was")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return hostArgs(typed, "")
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&opts.ignore, "ignore", nil, "ignore these `KINDS` of difference (removed, added, moved, renumbered, degraded, improved, changed, policy) or attributes (by their JSON names)")
	fl.BoolVar(&opts.structure, "structure", false, "compare only hardware and connections: ignore names, identifiers, addresses, software and settings")
	fl.BoolVar(&opts.all, "all", false, "also list what could not be compared, and why")
	fl.BoolVar(&opts.probe, "probe", false, "compare two reports of \"topoctl probe\"")
	Offer(cmd, map[string]completer{"ignore": WordList(diff.Ignorable()...)})
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON, formatTSV)
	return cmd
}

// parse takes over the flags and arguments and refuses what makes no sense.
func (o *diffOptions) parse(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return withHint(errors.New("no capture to compare with"), "create one with %q", "topoctl discover > host.json")
	case len(args) == 2 && args[0] == "-" && args[1] == "-":
		return errors.New("only one of OLD and NEW can be standard input")
	}
	o.old = args[0]
	if err := checkTogether(cmd,
		flagRule{"all ignore structure with " + otherHost, idleWith, "probe", "--probe compares reports"},
		flagRule{"probe", needs, "output=table output=json", ""},
		flagRule{"units", needs, "probe", ""},
		allInTables); err != nil {
		return err
	}
	if o.probe {
		return o.parseProbe(args)
	}
	if len(args) > 1 {
		o.new = args[1]
		if g := &o.Globals; g.Described() || g.HostRoot != "" {
			return withHint(errors.New("more than two hosts to compare"), "leave out NEW or the flag that selects a host")
		}
	} else if o.old == "-" && o.Globals.From == "-" {
		return errors.New("only one of OLD and --from can be standard input")
	}
	known := diff.Ignorable()
	for _, word := range o.ignore {
		if slices.Contains(known, word) {
			continue
		}
		err := fmt.Errorf("--ignore %q: neither a kind of difference nor an attribute", word)
		return suggest(err, word, known, "use -o json to see the names of attributes")
	}
	return nil
}

func (o *diffOptions) run(ctx context.Context) error {
	if o.probe {
		return runDiffProbe(o)
	}
	older, err := o.Named(ctx, o.old)
	if err != nil {
		return err
	}
	newer, err := o.Named(ctx, o.new)
	if err != nil {
		return err
	}
	o.sayOnce(older, newer)
	r, err := diff.Compare(older, newer, diff.Options{OldLabel: o.label(o.old), NewLabel: o.label(o.new), Structure: o.structure, Ignore: o.ignore})
	if err != nil {
		return err
	}
	err = o.print(answer{doc: r, rows: diffTable(r).TSV, text: func() string { return r.Text(diff.TextOptions{Width: o.Streams.Width, All: o.all}) }}, OutFile{})
	if err != nil {
		return err
	}
	switch {
	case !r.Equal:
		return errBad
	case !older.Complete || !newer.Complete:
		return errPartial
	}
	return nil
}

func diffTable(r *diff.Report) *report.Table {
	t := &report.Table{Head: []string{"KIND", "SUBJECT", "DIFFERENCE", "EFFECT"}}
	for _, cells := range r.Rows() {
		t.Add(cells...)
	}
	return t
}

// label is what the report calls a side.
func (o *diffOptions) label(arg string) string {
	if arg == "-" || arg == "" && o.Globals.From == "-" {
		return stdinName
	}
	g := &o.Globals
	return cmp.Or(arg, g.From, g.Root, g.HostRoot, g.Fixture, "this host")
}

// sayOnce writes the warnings of both sides to stderr, those that both have once.
func (o *diffOptions) sayOnce(older, newer *topo.Topology) {
	both := *newer
	both.Warnings = slices.Clone(newer.Warnings)
	for _, w := range older.Warnings {
		if !slices.Contains(both.Warnings, w) {
			both.Warnings = append(both.Warnings, w)
		}
	}
	slices.SortStableFunc(both.Warnings, func(a, b topo.Warning) int { return strings.Compare(string(a.Code), string(b.Code)) })
	o.Say(&both)
}

// parseProbe takes over the arguments of a comparison of reports.
func (o *diffOptions) parseProbe(args []string) error {
	if len(args) < 2 {
		return withHint(errors.New("--probe: expected two reports"), "create one with %q", "topoctl probe local --report FILE")
	}
	o.new, o.show = args[1], o.ReportOptions()
	o.show.Width = o.Streams.Width // in a pipe each change is a line
	return nil
}

func runDiffProbe(o *diffOptions) error {
	older, err := o.ReadReport(o.old)
	if err != nil {
		return err
	}
	newer, err := o.ReadReport(o.new)
	if err != nil {
		return err
	}
	d := show.NewDocument(older, newer, o.label(o.old), o.label(o.new))
	if err := o.print(answer{doc: d, text: func() string { return show.Changes(d.Changes, o.show) }}, OutFile{}); err != nil {
		return err
	}
	switch {
	case !d.Equal:
		return errBad
	case !d.Complete:
		o.tell("warning", "one of the runs ended early; pairs that it did not measure were not compared")
		return errPartial
	}
	return nil
}
