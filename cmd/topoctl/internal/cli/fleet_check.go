package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	model "github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/show"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// printing is what show and check share: which fleet, and how it is printed.
type printing struct {
	*Host
	args   []string
	fabric string
	out    OutFile
}

func (p *printing) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.fabric, "fabric", "", "`FILE` with the rail and leaf of each port, and uplinks (topoctl.fabric/v1)")
	p.out.Add(cmd)
	cmd.ValidArgsFunction = hostFlag
	Uses(cmd, "from", "timeout", "quiet", "units")
	TakesLong(cmd)
}

func (p *printing) parse(cmd *cobra.Command, args []string) error {
	if err := errors.Join(notEmpty(cmd, "fabric", "out-file"), p.out.Check()); err != nil {
		return err
	}
	var err error
	p.args, err = fleetArgs(p.Host, args)
	return err
}

func (p *printing) options(all bool) show.Options {
	o := show.Options{All: all, Units: units.System(p.Globals.Units)}
	if p.out.Stdout() {
		o.Width, o.Color = p.Streams.Width, p.Color()
	}
	return o
}

// document writes what all formats but the table have in common.
func (p *printing) document(f *model.Fleet, table func() string) error {
	var data []byte
	var err error
	switch p.Format {
	case formatJSON:
		data, err = safeJSON(f.Encode())
	case formatSVG:
		data = show.SVG(f)
	case formatHTML:
		data, err = show.HTML(f)
	default:
		data = []byte(table())
	}
	if err != nil {
		return err
	}
	return p.out.Write(p.Streams, data)
}

type fleetShowOptions struct {
	printing
	by string
}

func newFleetShowCmd(f *Env, runF func(context.Context, *fleetShowOptions) error) *cobra.Command {
	opts := &fleetShowOptions{printing: printing{Host: f.Host()}}
	cmd := &cobra.Command{
		Use:   "show FLEET | SOURCE...",
		Short: "Show what a fleet consists of",
		RunE:  action(opts, opts.parse, runF),
	}
	cmd.Flags().StringVar(&opts.by, "by", show.Views[0], "print a line for each `THING`: "+either(show.Views))
	opts.add(cmd)
	Offer(cmd, map[string]completer{"by": Words(show.Views...)})
	Formats(cmd, formatTable, formatJSON, formatTSV, formatSVG, formatHTML)
	return cmd
}

func (o *fleetShowOptions) parse(cmd *cobra.Command, args []string) error {
	if err := o.printing.parse(cmd, args); err != nil {
		return err
	}
	return cmp.Or(checkWords("by", []string{o.by}, show.Views), checkTogether(cmd, flagRule{"by", needs, "output=table output=tsv", ""}))
}

func runFleetShow(ctx context.Context, o *fleetShowOptions) error {
	f, err := loadFleet(ctx, o.Host, o.args, o.fabric)
	if err != nil {
		return err
	}
	if o.Format == formatTSV {
		err = o.rows(show.Rows(f, o.by))
	} else {
		err = o.document(f, func() string { return show.Show(f, o.by, o.options(false)) })
	}
	if err != nil {
		return err
	}
	return partial(f)
}

// rows prints rows for programs.
func (p *printing) rows(t *report.Table) error { return p.out.Write(p.Streams, []byte(t.TSV())) }

// partial is the error of a fleet that is known in part.
func partial(f *model.Fleet) error {
	if slices.ContainsFunc(f.Hosts, func(h model.Host) bool { return h.Status != model.OK }) {
		return errPartial
	}
	return nil
}

type fleetCheckOptions struct {
	printing
	against string
	failOn  doctor.Severity
	all     bool
}

func newFleetCheckCmd(f *Env, runF func(context.Context, *fleetCheckOptions) error) *cobra.Command {
	opts := &fleetCheckOptions{printing: printing{Host: f.Host()}}
	cmd := &cobra.Command{
		Use:   "check FLEET | SOURCE...",
		Short: "Find the host, device or cable that differs from the others",
		RunE: func(cmd *cobra.Command, args []string) error {
			return forNagios(opts.Host, action(opts, opts.parse, runF)(cmd, args))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&opts.against, "against", "", "also compare with the hosts of `GOLDEN`: a fleet, or a file as for --from")
	failOnFlag(cmd, &opts.failOn)
	fl.BoolVar(&opts.all, "all", false, "print notes, checks that could not be made, and all facts")
	opts.add(cmd)
	Offer(cmd, map[string]completer{"against": hostFlag})
	Formats(cmd, formatTable, formatJSON, formatTSV, formatNagios, formatSVG, formatHTML)
	return cmd
}

func (o *fleetCheckOptions) parse(cmd *cobra.Command, args []string) error {
	if err := o.printing.parse(cmd, args); err != nil {
		return err
	}
	return errors.Join(notEmpty(cmd, "against"), checkTogether(cmd, failOnItsOwn, allInTables))
}

func runFleetCheck(ctx context.Context, o *fleetCheckOptions) error {
	f, err := loadFleet(ctx, o.Host, o.args, o.fabric)
	if err != nil {
		return err
	}
	if o.against != "" {
		golden, err := loadFleet(ctx, o.Host, []string{o.against}, "")
		if err == nil && golden.NoneReached() {
			err = fmt.Errorf("%s: %w", o.against, someReached(golden))
		}
		if err != nil {
			return fmt.Errorf("--against %w", err)
		}
		f.Against(golden, o.against)
	}
	switch o.Format {
	case formatTSV:
		err = o.rows(show.Findings(f))
	case formatNagios:
		err = o.out.Write(o.Streams, []byte(fleetNagiosText(f)))
	default:
		err = o.document(f, func() string { return show.Check(f, o.options(o.all)) })
	}
	switch {
	case err != nil:
		return err
	case o.Format == formatNagios:
		return Exit(fleetCode(f))
	case fails(f.Worst(), o.failOn):
		return errBad
	case !f.Compared() && o.against == "":
		return errPartial
	}
	return partial(f)
}

// fleetCode sums a fleet up for a monitoring system.
func fleetCode(f *model.Fleet) int { return nagiosCode(f.Worst(), partial(f) != nil || !f.Compared()) }

// fleetNagiosText is the answer with the counts as performance data, and a line for each finding.
func fleetNagiosText(f *model.Fleet) string {
	counts := map[doctor.Severity]int{}
	for i := range f.Findings {
		counts[f.Findings[i].Severity]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "TOPOCTL %s - %s | hosts=%d not_reached=%d classes=%d errors=%d warnings=%d infos=%d could_not_check=%d\n",
		nagiosWords[fleetCode(f)], nagiosLine(strings.TrimSuffix(f.Headline(), ".")), len(f.Hosts), len(f.Missing()), len(f.Classes),
		counts[doctor.Error], counts[doctor.Warning], counts[doctor.Info], len(f.Unknown))
	for i := range f.Findings {
		if x := &f.Findings[i]; x.Severity != doctor.Info {
			fmt.Fprintf(&b, "%s %s: %s\n", x.Severity.Label(), x.Code, nagiosLine(strings.Join(x.Hosts, ",")+": "+x.Text))
		}
	}
	return b.String()
}
