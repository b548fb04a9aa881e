package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	model "github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/show"
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

func (p *printing) parse(_ *cobra.Command, args []string) error {
	var err error
	p.args, err = fleetArgs(p.Host, args)
	return cmp.Or(p.out.Check(), err)
}

func (p *printing) options(all bool) show.Options {
	o := show.Options{All: all, Units: units.System(p.Globals.Units)}
	if p.out.Stdout() {
		o.Width, o.Color = p.Streams.Width, p.Color()
	}
	return o
}

// answer is what all formats but the table and rows have in common.
func (p *printing) answer(f *model.Fleet) answer {
	return answer{doc: f, svg: func() []byte { return show.SVG(f) }, html: func() ([]byte, error) { return show.HTML(f) }}
}

type fleetShowOptions struct {
	printing
	by string
}

func newFleetShowCmd(f *Env) *cobra.Command {
	opts := &fleetShowOptions{printing: printing{Host: f.Host()}}
	cmd := newCommand(opts, "show FLEET | SOURCE...", "Show what a fleet consists of")
	wordFlag(cmd, &opts.by, "by", show.Views[0], "print a line for each `THING`: "+either(show.Views), show.Views)
	opts.add(cmd)
	Formats(cmd, formatTable, formatJSON, formatTSV, formatSVG, formatHTML)
	return cmd
}

func (o *fleetShowOptions) parse(cmd *cobra.Command, args []string) error {
	return cmp.Or(o.printing.parse(cmd, args), checkTogether(cmd, flagRule{"by", needs, "output=table output=tsv", ""}))
}

func (o *fleetShowOptions) run(ctx context.Context) error {
	f, err := loadFleet(ctx, o.Host, o.args, o.fabric)
	if err != nil {
		return err
	}
	a := o.answer(f)
	a.rows, a.text = func() string { return show.Rows(f, o.by).TSV() }, func() string { return show.Show(f, o.by, o.options(false)) }
	return cmp.Or(o.print(a, o.out), partial(f))
}

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

func newFleetCheckCmd(f *Env) *cobra.Command {
	opts := &fleetCheckOptions{printing: printing{Host: f.Host()}}
	cmd := newCommand(opts, "check FLEET | SOURCE...", "Find the host, device or cable that differs from the others")
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
	return cmp.Or(o.printing.parse(cmd, args), checkTogether(cmd, failOnItsOwn, allInTables))
}

func (o *fleetCheckOptions) run(ctx context.Context) error {
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
	a := o.answer(f)
	a.rows, a.text = func() string { return show.Findings(f).TSV() }, func() string { return show.Check(f, o.options(o.all)) }
	a.nagios = func() string { return fleetNagiosText(f) }
	switch err := o.print(a, o.out); {
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
