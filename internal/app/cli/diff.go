package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/app/diff"
	"github.com/topoctl/topoctl/internal/app/probe/show"
	"github.com/topoctl/topoctl/internal/base/text"
)

type diffOptions struct {
	*input
	format    string
	old, new  string // new is "" for the host that the flags name
	ignore    []string
	structure bool
	probe     bool // OLD and NEW are reports of measurements
	show      show.Options
}

// fixturePrefix names a described machine where a file is expected.
const fixturePrefix = "fixture:"

func newDiffCmd(f *factory, runF func(context.Context, *diffOptions) error) *cobra.Command {
	opts := &diffOptions{input: f.input()}
	cmd := &cobra.Command{
		Use:   "diff OLD [NEW]",
		Short: "Say what differs between two captures, or between a capture and this host",
		Long: "diff finds out which device of one host is which of the other, by UUID, GUID, MAC\n" +
			"or serial number, then by slot, then by position in the tree, and says what was\n" +
			"added, removed, moved, renumbered, degraded or changed, and which choices of ports\n" +
			"change with it. What only one side tells is listed as not compared.\n\n" +
			"OLD and NEW are files that --from reads, directories that --root reads, - for\n" +
			"standard input, or " + fixturePrefix + "NAME. Without NEW it is this host, or the one that the\n" +
			"flags name. Two hosts without a common device are compared by slot and position,\n" +
			"and what identifies them is no difference.\n\n" +
			"With --probe, OLD and NEW are reports of \"topoctl probe\": it says which pairs got slower\n" +
			"or faster (where the 95 % intervals do not overlap, and by more than 2 %), whose verdict\n" +
			"changed, which came and went, and which hosts are built otherwise.\n\n" +
			"The exit code is 0 if nothing differs, 1 if something does.",
		Example: "  topoctl discover > host.json; topoctl diff host.json\n  topoctl diff node1.json node2.json --structure\n" +
			"  topoctl diff old.json new.json --ignore renumbered,kernel -o json\n  topoctl diff --probe monday.json tuesday.json",
		Args: diffArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opts.parse(f, cmd, args); err != nil {
				return err
			}
			return runF(cmd.Context(), opts)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 || !strings.HasPrefix(typed, fixturePrefix[:min(len(typed), len(fixturePrefix))]) || typed == "" {
				return nil, cobra.ShellCompDirectiveDefault
			}
			names, _ := fixtureNames(nil, nil, "")
			for i := range names {
				names[i] = fixturePrefix + names[i]
			}
			return names, cobra.ShellCompDirectiveDefault
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&opts.ignore, "ignore", nil, "leave out `KINDS` of difference (removed, added, moved, renumbered, degraded, improved, changed, policy) and attributes (as the JSON names them)")
	fl.BoolVar(&opts.structure, "structure", false, "compare what there is and how it is joined only: no names, identities, addresses, software or settings")
	fl.BoolVar(&opts.probe, "probe", false, "OLD and NEW are reports of measurements (\"topoctl probe\")")
	offer(cmd, map[string]completer{"ignore": wordList(diff.Ignorable()...)})
	uses(cmd, append(slices.Clone(inputFlags), "output", "json", "ascii", "units")...)
	formats(cmd, formatTable, formatJSON)
	return cmd
}

func diffArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return withHint(errors.New("nothing to compare with: want a capture"), "%q writes one", "topoctl discover > host.json")
	case len(args) > 2:
		return withHint(fmt.Errorf("unexpected argument %q", args[2]), "see %q", cmd.CommandPath()+" --help")
	case slices.Contains(args, ""):
		return errors.New("an argument is empty: want a file")
	case len(args) == 2 && args[0] == "-" && args[1] == "-":
		return errors.New("only one of OLD and NEW can be standard input")
	}
	return nil
}

// parse takes over the flags and arguments and refuses what makes no sense.
func (o *diffOptions) parse(f *factory, cmd *cobra.Command, args []string) error {
	var err error
	if o.format, err = f.format(cmd); err != nil {
		return err
	}
	if err := errors.Join(checkInput(cmd), o.choose(f)); err != nil {
		return err
	}
	o.old = args[0]
	if o.probe {
		return o.parseProbe(f, cmd, args)
	}
	for _, name := range []string{"ascii", "units"} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s has no effect without --probe", name)
		}
	}
	if len(args) > 1 {
		o.new = args[1]
		if g := &o.globals; g.root+g.hostRoot+g.from+g.fixture != "" {
			return withHint(errors.New("two hosts are named already"), "leave out NEW, or the flag that names a host")
		}
	} else if o.old == "-" && o.globals.from == "-" {
		return errors.New("only one of OLD and --from can be standard input")
	}
	known := diff.Ignorable()
	for _, word := range o.ignore {
		if slices.Contains(known, word) {
			continue
		}
		err := fmt.Errorf("--ignore %q: neither a kind of difference nor an attribute", word)
		if near := closest(word, known); near != "" {
			return withHint(err, "did you mean %s?", near)
		}
		return withHint(err, "-o json names the attributes of differences")
	}
	return nil
}

func runDiff(ctx context.Context, o *diffOptions) error {
	if o.probe {
		return runDiffProbe(o)
	}
	older, err := o.named(ctx, o.old)
	if err != nil {
		return err
	}
	newer, err := o.named(ctx, o.new)
	if err != nil {
		return err
	}
	o.sayOnce(older, newer)
	r, err := diff.Compare(older, newer, diff.Options{OldLabel: o.label(o.old), NewLabel: o.label(o.new), Structure: o.structure, Ignore: o.ignore})
	if err != nil {
		return err
	}
	if err := o.print(r); err != nil {
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

func (o *diffOptions) print(r *diff.Report) error {
	if o.format == formatJSON {
		return printJSON(o.streams.Out, r)
	}
	lines := strings.Split(r.Text(), "\n")
	for i := range lines {
		lines[i] = text.Printable(lines[i])
	}
	return write(o.streams.Out, []byte(strings.Join(lines, "\n")))
}

// named gives the topology of what an argument names; "" is the host that the
// flags name.
func (in *input) named(ctx context.Context, arg string) (*topo.Topology, error) {
	other := *in
	if arg != "" {
		g := &other.globals
		g.root, g.hostRoot, g.from, g.fixture = "", "", "", ""
		name, isFixture := strings.CutPrefix(arg, fixturePrefix)
		info, err := os.Stat(arg)
		switch {
		case isFixture:
			g.fixture = name
		case err == nil && info.IsDir():
			g.root = arg
		default:
			g.from = arg
		}
	}
	return other.find(ctx)
}

// label is what the report calls a side.
func (o *diffOptions) label(arg string) string {
	if arg == "-" || arg == "" && o.globals.from == "-" {
		return stdinName
	}
	g := &o.globals
	return cmp.Or(arg, g.from, g.root, g.hostRoot, g.fixture, "this host")
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
	o.say(&both)
}
