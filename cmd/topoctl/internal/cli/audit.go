package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/internal/report"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel"
)

type auditOptions struct {
	*Host
	child     Streams // what a command has: as they came to this process
	duration  time.Duration
	command   []string
	plan      string
	engine    string
	logs      []string
	logHost   string
	transport pathsel.Transport
	tolerance float64
	interval  time.Duration
	outFile   OutFile
}

// auditDuration is how long audit looks at a host where nothing else is said.
const auditDuration = 10 * time.Second

func auditEngines() []string {
	var out []string
	for _, e := range audit.Engines {
		out = append(out, e.Name)
	}
	return out
}

func newAuditCmd(f *Env) *cobra.Command {
	opts := &auditOptions{Host: f.Host(), child: f.Streams}
	cmd := newCommand(opts, "audit [-- COMMAND [ARG...]]", "Show which NICs traffic really used, against the plan")
	fl := cmd.Flags()
	timeFlag(cmd, &opts.duration, "duration", auditDuration, 100*time.Millisecond, 7*24*time.Hour, "read counters for `TIME`")
	fl.StringVar(&opts.plan, "plan", "", "compare with the plan in `FILE` (topoctl.plan/v1, from path --plan -o json)")
	wordFlag(cmd, &opts.engine, "for", "", "only show variables and logs that `ENGINE` has: "+either(auditEngines()), auditEngines())
	fl.StringArrayVar(&opts.logs, "log", nil, "also read the log of NCCL or UCX in `FILE`; repeatable")
	fl.StringVar(&opts.logHost, "log-host", "", "of logs of several hosts take the lines of `NAME` (default: those of this host)")
	wordFlag(cmd, &opts.transport, "transport", "", "plan for `TRANSPORT`: rdma or tcp (default: rdma if it can be used)", []pathsel.Transport{pathsel.RDMA, pathsel.TCP})
	Var(cmd, &opts.tolerance, "tolerance", partText(audit.DefaultTolerance), "accept a share that differs from the plan's by `PART` of it", parsePart)
	timeFlag(cmd, &opts.interval, "interval", 500*time.Millisecond, leastInterval, time.Minute, "read counters and look for processes every `TIME`")
	opts.outFile.Add(cmd)
	Offer(cmd, map[string]completer{"tolerance": Words("10%", "25%", "50%"), "duration": Words("10s", "1m"), "interval": Words("500ms")})
	mainFlags(cmd, "duration", "plan", "for", "log", "log-host", "transport", "out-file")
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON)
	Lasts(cmd)
	return cmd
}

// parse takes over the flags and the command, and refuses what makes no sense.
func (o *auditOptions) parse(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0 && len(args) > 0, dash > 0:
		return withHint(fmt.Errorf("unexpected argument %q", args[0]), "put -- before the command: topoctl audit -- %s", args[0])
	case dash == 0 && len(args) == 0:
		return errors.New("no command after --")
	}
	o.command = args
	changed := cmd.Flags().Changed
	if len(o.command) > 0 && changed("duration") {
		return errors.New("--duration and a command cannot be used together: the audit lasts as long as the command")
	}
	if err := checkTogether(cmd,
		flagRule{"duration interval", idleWith, savedHost, "that host does not change: leave out the flag that selects it, or give --log alone"},
		flagRule{"log-host", needs, "log", ""}); err != nil {
		return err
	}
	if o.Globals.Described() {
		if len(o.command) > 0 {
			return errors.New("a command has no effect on a host that does not change")
		}
		if len(o.logs) == 0 {
			return withHint(errors.New("a saved host has no counters that change"), "use --log FILE to check what an engine logged there")
		}
	}
	if len(o.logs) > 0 && len(o.command) == 0 && !changed("duration") {
		o.duration = 0 // the log alone
	}
	return o.outFile.Check()
}

func (o *auditOptions) run(ctx context.Context) error {
	waiting, stop := o.Waiting(ctx)
	defer stop()
	t, err := o.Load(waiting)
	if err != nil {
		return err
	}
	h, err := pathsel.New(t, pathsel.Options{Transport: o.transport})
	if err != nil {
		return err
	}
	ao := audit.Options{Host: h, PlanFrom: "topoctl path --plan", Engine: o.engine, LogHost: o.logHost, Tolerance: o.tolerance}
	if o.plan != "" {
		ao.PlanFrom = o.plan
		ao.Plan, err = o.readPlan(waiting)
	} else {
		ao.Plan, err = h.Plan(nil)
	}
	if err != nil {
		return err
	}
	a, err := audit.New(ao)
	if err != nil {
		return withHint(err, "\"topoctl path --plan\" shows the plan of this host")
	}
	var child *audit.Command
	if o.duration > 0 {
		if child, err = o.observe(ctx, a); err != nil {
			return err
		}
	}
	if o.duration > 0 { // logs may have been written meanwhile, and are read although Ctrl-C ended the rest
		waiting, stop = o.Waiting(context.WithoutCancel(ctx))
		defer stop()
	}
	for _, name := range o.logs {
		data, err := o.ReadFile(waiting, name)
		if err != nil {
			return fmt.Errorf("--log %w", err)
		}
		if err := a.Log(name, audit.Parse(data)); err != nil {
			var which *audit.LogHostError
			if errors.As(err, &which) {
				return withHint(err, "choose one with --log-host %s", which.Hosts[0])
			}
			return withHint(err, "NCCL needs NCCL_DEBUG=INFO, UCX UCX_PROTO_INFO=y or UCX_LOG_LEVEL=info")
		}
	}
	r := a.Report()
	r.Command = child
	return o.finish(ctx, r)
}

// finish prints the report and gives the exit code.
func (o *auditOptions) finish(ctx context.Context, r *audit.Report) error {
	to := *o.Host
	if len(o.command) > 0 {
		to.Streams.Out = o.Streams.Err // its standard output is the command's
	}
	err := to.print(answer{doc: r, text: func() string { return report.Finish(auditText(r, o.Look())) }}, o.outFile)
	switch {
	case err != nil:
		return err
	case r.Command != nil && r.Command.ExitCode != 0:
		return badAnswer(fmt.Errorf("%s exited with code %d", r.Command.Args[0], r.Command.ExitCode), "")
	case r.Command == nil && ctx.Err() != nil:
		return ctx.Err()
	case r.Answer == audit.AsPlanned:
		return nil
	case r.Answer == audit.Unchecked:
		return errPartial
	}
	return errBad
}

// readPlan reads a plan that path --plan printed.
func (o *auditOptions) readPlan(ctx context.Context) (*pathsel.Plan, error) {
	data, err := o.ReadFile(ctx, o.plan)
	if err != nil {
		return nil, fmt.Errorf("--plan %w", err)
	}
	var doc struct {
		Schema string `json:"schema"`
		pathsel.Plan
	}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&doc); err != nil {
		return nil, withHint(fmt.Errorf("--plan %s: %w", o.plan, pkgerr.Plain(err)), "\"topoctl path --plan -o json\" prints one")
	}
	if doc.Schema != pathsel.SchemaPlan {
		return nil, withHint(fmt.Errorf("--plan %s: its schema is %q, want %s", o.plan, doc.Schema, pathsel.SchemaPlan), "\"topoctl path --plan -o json\" prints one")
	}
	return &doc.Plan, nil
}
