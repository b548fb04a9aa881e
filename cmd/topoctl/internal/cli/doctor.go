package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

type doctorOptions struct {
	*Host
	codes    []doctor.Code
	failOn   doctor.Severity
	all      bool
	peer     string
	gidIndex int // -1: not given
	rdma     RDMASource
}

// maxGIDIndex is the largest index that a GID table can have.
const maxGIDIndex = 1<<16 - 1

func newDoctorCmd(f *Env) *cobra.Command {
	opts := &doctorOptions{Host: f.Host(), rdma: f.RDMA}
	cmd := newCommand(opts, "doctor [CODE...]", "Check a host for problems that slow down or break data transfers")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, c := range doctor.Checks() {
			if !slices.Contains(args, string(c.Code)) {
				out = append(out, cobra.CompletionWithDesc(string(c.Code), c.Title))
			}
		}
		slices.Sort(out)
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	fl := cmd.Flags()
	failOnFlag(cmd, &opts.failOn)
	fl.StringVar(&opts.peer, "peer", "", "also compare both ends of each lane to the host in `FILE` (as for --from)")
	intFlag(cmd, &opts.gidIndex, "gid-index", -1, 0, maxGIDIndex, "also check GID index `N`, which a program will use")
	fl.Lookup("gid-index").DefValue = "0" // which is not printed
	fl.BoolVar(&opts.all, "all", false, "print notes, checks that could not be made, and checks that pass or do not apply in full")
	Offer(cmd, map[string]completer{"peer": hostFlag})
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON, formatTSV, formatNagios)
	return cmd
}

func (o *doctorOptions) parse(cmd *cobra.Command, args []string) error {
	if err := checkTogether(cmd, failOnItsOwn, allInTables, flagRule{"from=-", excludes, "peer=-", readOnce}); err != nil {
		return err
	}
	known := doctor.Codes()
	for _, arg := range args {
		if !slices.Contains(known, doctor.Code(arg)) {
			return unknownCheck(arg, known)
		}
		o.codes = append(o.codes, doctor.Code(arg))
	}
	return nil
}

func unknownCheck(arg string, known []doctor.Code) error {
	names := wordsOf(known)
	var within []string
	for _, n := range names {
		if len(arg) > 2 && strings.Contains(n, strings.ToLower(arg)) {
			within = append(within, n)
		}
	}
	otherwise := "use \"topoctl doctor --all\" to list the checks"
	if len(within) > 0 {
		otherwise = "did you mean " + either(within) + "?"
	}
	return suggest(fmt.Errorf("unknown check %q", arg), arg, names, otherwise)
}

func (o *doctorOptions) run(ctx context.Context) error {
	t, err := o.Find(ctx)
	if err != nil {
		return err
	}
	if o.Globals.Verbose { // the warnings of discovery are findings here
		o.Say(t)
	}
	run := doctor.Options{Codes: o.codes}
	if o.gidIndex >= 0 {
		run.GIDIndex = &o.gidIndex
	}
	if asksDevices(o.codes) {
		run.Verbs = tryDevices(ctx, o.Host, o.rdma, t)
	}
	if o.Format == formatTable {
		run.Units = o.Globals.Units
	}
	if o.peer != "" {
		if run.Peer, err = o.Named(ctx, o.peer); err != nil {
			return fmt.Errorf("--peer %w", err)
		}
	}
	r, err := doctor.Run(t, run)
	if err != nil {
		return err
	}
	if err := o.print(o.answer(r), OutFile{}); err != nil {
		return err
	}
	if o.Format == formatNagios {
		return Exit(doctorCode(r))
	}
	if fails(r.Worst(), o.failOn) {
		return errBad
	}
	return incomplete(t, false)
}

// examine runs all checks on a host.
func examine(ctx context.Context, in *Host, rdma RDMASource, t *topo.Topology) (*doctor.Report, error) {
	return doctor.Run(t, doctor.Options{Verbs: tryDevices(ctx, in, rdma, t), Units: in.Globals.Units})
}

// asksDevices says whether one of these checks wants to know of the RDMA devices; none are all checks.
func asksDevices(codes []doctor.Code) bool {
	return len(codes) == 0 || slices.ContainsFunc(doctor.Checks(), func(c doctor.Check) bool { return c.AsksDevices && slices.Contains(codes, c.Code) })
}

// tryDevices asks the RDMA devices, if the host is this machine.
func tryDevices(ctx context.Context, in *Host, rdma RDMASource, t *topo.Topology) *replies.VerbsReport {
	g := &in.Globals
	if g.Described() || len(t.RDMADevices) == 0 {
		return nil
	}
	if rdma == nil {
		return &replies.VerbsReport{Unavailable: "this program was built without libibverbs"}
	}
	limited, stop := in.Waiting(ctx)
	defer stop()
	return rdma.Try(limited)
}

func (o *doctorOptions) answer(r *doctor.Report) answer {
	return answer{doc: r, rows: doctorTable(r).TSV, nagios: func() string { return nagiosText(r) }, text: func() string {
		return r.Text(doctor.TextOptions{Width: o.Streams.Width, All: o.all || len(o.codes) > 0, Color: o.Color()})
	}}
}

// doctorTable has a line for each finding, and for each fact that a check lacks.
func doctorTable(r *doctor.Report) *report.Table {
	t := &report.Table{Head: []string{"SEVERITY", "CHECK", "SUBJECTS", "TEXT", "NEXT"}}
	add := func(severity string, code doctor.Code, subjects []topo.ID, text, next string) {
		t.Add(severity, string(code), subjectNames(subjects, ","), text, next)
	}
	for _, f := range r.Findings() {
		add(string(f.Severity), f.Code, f.Subjects, f.Text, f.Fix)
	}
	for _, c := range r.Checks {
		for _, m := range c.Missing {
			add(string(doctor.CouldNotCheck), c.Code, m.Subjects, m.Text, m.How)
		}
	}
	return t
}

func subjectNames(ids []topo.ID, between string) string {
	var names []string
	for _, id := range ids {
		names = append(names, doctor.SubjectName(id))
	}
	return strings.Join(names, between)
}

// doctorCode sums a report up. A check that could not be made is unknown where it could have been worse
// than info.
func doctorCode(r *doctor.Report) int {
	return nagiosCode(r.Worst(), slices.ContainsFunc(r.Checks, func(c doctor.CheckResult) bool { return len(c.Missing) > 0 && c.Worst.AtLeast(doctor.Warning) }))
}

// nagiosText is the answer with the counts as performance data, and one line for
// each finding and each check that could not be made.
func nagiosText(r *doctor.Report) string {
	var b strings.Builder
	plain := nagiosLine
	s := r.Summary
	fmt.Fprintf(&b, "TOPOCTL %s - %s | errors=%d warnings=%d infos=%d could_not_check=%d ok=%d\n",
		nagiosWords[doctorCode(r)], plain(strings.TrimSuffix(r.Headline(), ".")), s.Errors, s.Warnings, s.Infos, s.CouldNotCheck, s.OK)
	for _, f := range r.Findings() {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Severity.Label(), f.Code, plain(strings.TrimPrefix(subjectNames(f.Subjects, ", ")+": "+f.Text, ": ")))
	}
	for _, c := range r.Checks {
		for _, m := range c.Missing {
			fmt.Fprintf(&b, "???? %s: %s\n", c.Code, plain(m.Text))
		}
	}
	return b.String()
}
