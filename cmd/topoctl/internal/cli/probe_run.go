package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/probe/show"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
)

// measuring is what the commands that measure have in common.
type measuring struct {
	*Host
	flags measureFlags
	spec  probe.Spec
	rules probe.Rules
	show  show.Options
}

// runFormats are those of commands that measure.
var runFormats = []string{formatTable, formatWide, formatTSV, formatJSON, formatJSONL, formatSVG, formatHTML}

// parseMeasuring takes over what the commands that measure have in common.
func (o *measuring) parseMeasuring(cmd *cobra.Command) (err error) {
	if o.spec, o.rules, err = o.flags.parse(cmd); err != nil {
		return err
	}
	o.prepareShow()
	return nil
}

// prepareShow says how reports are printed: where --out-file names a file, as for a file.
func (o *measuring) prepareShow() {
	o.show = o.ReportOptions()
	o.show.All = o.flags.all
	if !o.flags.outFile.Stdout() {
		o.show.Color = false
	}
}

// layout lays pairs out in rounds. Where there are none, err says why.
func (o *measuring) layout(pairs *plan.Pairs, err error) (*plan.Plan, error) {
	if pairs == nil {
		return nil, planHint(err)
	}
	p := plan.Options{Schedule: o.flags.schedule, Spec: o.spec}
	if o.flags.contend != "" {
		if p.Contend, err = pairs.Link(o.flags.contend); err != nil {
			return nil, fmt.Errorf("--contend: %w", pkgerr.Plain(err))
		}
	}
	return plan.Make(pairs, p)
}

// measure carries a plan out, prints what came of it, and gives the answer as an error.
func (o *measuring) measure(ctx context.Context, p *plan.Plan, prober measure.Prober) error {
	out, err := o.open()
	if err != nil {
		return err
	}
	if !o.Globals.Quiet {
		e := p.Estimate
		fmt.Fprintf(o.Streams.Err, "topoctl: %s in %s, about %s to %s\n", text.Plural(p.Summary().Pairs, "pair"), text.Plural(len(p.Rounds), "round"),
			e.Time.Round(time.Second), e.MostTime.Round(time.Second))
	}
	began := time.Now()
	bar := progressBar{o: o, elapsed: func() time.Duration { return time.Since(began) }, last: -drawEvery, status: status{in: o.Host}}
	ro := o.options(p)
	ro.Resume, ro.Event = out.resume, out.event
	if !o.Globals.Quiet {
		ro.Progress = bar.show
	}
	report, err := measure.Run(ctx, prober, ro)
	bar.end()
	err = errors.Join(err, out.close())
	return o.answer(ctx, report, err)
}

// options say how a plan is carried out.
func (o *measuring) options(p *plan.Plan) measure.Options {
	return measure.Options{Plan: p, Rules: o.rules, Now: o.Now, MaxDuration: o.flags.maxDuration}
}

// answer prints a report and says by an error what it comes to. What could not be
// written is told last, so that nothing that was measured is lost over it.
func (o *measuring) answer(ctx context.Context, r *probe.Report, failed error) error {
	if o.Format != formatJSONL {
		failed = errors.Join(failed, o.printReport(r))
	}
	if o.flags.report != "" {
		data, err := safeJSON(r.Encode())
		if err == nil {
			err = writeFile(o.flags.report, data, everyone)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("--report: %w", err))
		}
	}
	switch {
	case ctx.Err() != nil:
		if rest := unlessCanceled(failed); rest != nil {
			fmt.Fprintln(o.Streams.Err, "topoctl: "+oneLine("", rest))
		}
		return ctx.Err()
	case failed != nil:
		return failed
	}
	return o.outcome(r)
}

// unlessCanceled is an error without the one that says that the user stopped the run.
func unlessCanceled(err error) error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, e := range list.Unwrap() {
			rest = append(rest, unlessCanceled(e))
		}
		return errors.Join(rest...)
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// outcome gives the exit code as an error, and says on stderr what a report lacks where
// nothing else has said so: tables have the notes.
func (o *measuring) outcome(r *probe.Report) error {
	var missing []string
	if o.Format != formatTable && o.Format != formatWide {
		missing = partialNotes(r)
	}
	if r.Complete && probeTried(r) == 0 {
		missing = append(missing, "no pair was measured: "+nothingWhy(r))
	}
	o.tell("partial", missing...)
	err := outcome(r)
	if err != nil && !o.flags.outFile.Stdout() && !o.Globals.Quiet { // the exit code alone would say that something is wrong
		fmt.Fprintf(o.Streams.Err, "topoctl: %s; the report is in %s\n", show.Answer(r, o.show), text.Printable(o.flags.outFile.Name))
	}
	return err
}

// partialNotes are the notes on what is there and was not measured.
func partialNotes(r *probe.Report) []string {
	var out []string
	for _, n := range r.Notes {
		if text, ok := strings.CutPrefix(n, probe.PartialNote); ok {
			out = append(out, text)
		}
	}
	return out
}

// probeTried counts the pairs that were not waived.
func probeTried(r *probe.Report) int {
	s := &r.Summary
	return s.Pass + s.Measured + s.Warn + s.Fail + s.Inconclusive + s.Error
}

// nothingWhy says why no pair was measured.
func nothingWhy(r *probe.Report) string {
	for i := range r.Results {
		if x := &r.Results[i]; x.Pair.Waived != "" {
			return fmt.Sprintf("%s waived, the first because %s", text.Plural(r.Summary.Waived, "pair"), x.Pair.Waived)
		}
	}
	return "there is none; see the notes of the report"
}

// outcome is what a report's verdicts come to, as the error that gives the exit code.
func outcome(r *probe.Report) error {
	if r.Summary.Fail > 0 || len(r.Blame) > 0 {
		return errBad
	}
	if r.Summary.Error > 0 || !r.Complete || slices.ContainsFunc(r.Hosts, func(h probe.Host) bool { return h.Error != "" }) {
		return errPartial
	}
	if probeTried(r) == 0 || len(partialNotes(r)) > 0 {
		return errPartial
	}
	for i := range r.Results {
		if x := &r.Results[i]; x.Verdict == probe.Inconclusive && slices.ContainsFunc(x.Reasons, untold) {
			return errPartial
		}
	}
	return nil
}

// untold says whether a reason is one that more samples, or another try, would change.
func untold(r probe.Reason) bool {
	return r.Code == probe.CodeWideInterval || r.Code == probe.CodeBusy || r.Code == probe.CodeNotMeasured || r.Code == probe.CodeTooFast
}

// printReport prints a report, or writes it to --out-file.
func (o *measuring) printReport(r *probe.Report) error {
	return o.print(answer{doc: r, rows: func() string { return show.TSV(r, o.show) }, svg: func() []byte { return show.SVG(r, o.show) },
		html: func() ([]byte, error) { return show.HTML(r, o.show) }, text: func() string { return show.Table(r, o.show) }}, o.flags.outFile)
}

// probeOutputs are what a run writes to while it measures, and what it goes on from.
type probeOutputs struct {
	resume *probe.Report
	sinks  []*sink
}

// sink is somebody who gets events as lines. One that fails gets no more, and stops
// nobody.
type sink struct {
	name string
	w    io.Writer
	err  error
}

// open prepares what a run reads and writes, so that nothing is measured that cannot
// be kept.
func (o *measuring) open() (*probeOutputs, error) {
	var out probeOutputs
	var err error
	if o.flags.resume != "" {
		if out.resume, err = o.ReadReport(o.flags.resume); err != nil {
			return nil, fmt.Errorf("--resume: %w", err)
		}
	}
	if err := o.flags.outFile.Check(); err != nil {
		return nil, err
	}
	if err := writable(o.flags.report); err != nil {
		return nil, fmt.Errorf("--report: %w", err)
	}
	if o.Format == formatJSONL {
		out.sinks = append(out.sinks, &sink{name: "standard output", w: o.Streams.Out})
	}
	if o.flags.events != "" {
		file, err := os.Create(o.flags.events)
		if err != nil {
			return nil, fmt.Errorf("--events: %s: %w", o.flags.events, Cause(err))
		}
		out.sinks = append(out.sinks, &sink{name: "--events: " + o.flags.events, w: file})
	}
	return &out, nil
}

// event writes an event to all sinks that still take them.
func (x *probeOutputs) event(e *probe.Event) {
	if len(x.sinks) == 0 {
		return
	}
	line, err := safeJSON(e.Encode())
	for _, s := range x.sinks {
		if s.err == nil && err == nil {
			_, s.err = s.w.Write(line)
		} else if s.err == nil {
			s.err = err
		}
	}
}

// close gives what went wrong with the sinks.
func (x *probeOutputs) close() error {
	var errs []error
	for _, s := range x.sinks {
		if file, ok := s.w.(*os.File); ok && strings.HasPrefix(s.name, "--") {
			if err := file.Close(); s.err == nil {
				s.err = err
			}
		}
		if s.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, Cause(s.err)))
		}
	}
	return errors.Join(errs...)
}

// How often the state of a run is told: to a terminal, where one line is drawn over and
// over, and to a file.
const (
	drawEvery = 100 * time.Millisecond
	sayEvery  = 10 * time.Second
)

// progressBar tells on stderr where a run is.
type progressBar struct {
	o       *measuring
	elapsed func() time.Duration
	last    time.Duration
	status
}

func (b *progressBar) show(p measure.Progress) {
	now, every := b.elapsed(), sayEvery
	if b.o.Streams.ErrTTY {
		every = drawEvery
	}
	if now-b.last < every {
		return
	}
	b.last = now
	line := b.line(&p)
	if !b.o.Streams.ErrTTY {
		fmt.Fprintln(b.o.Streams.Err, "topoctl: "+line)
		return
	}
	b.status.show(line)
}

func (b *progressBar) line(p *measure.Progress) string {
	before, width := "", 0
	if p.Again {
		before = "again, alone: "
	}
	if b.o.Streams.ErrTTY {
		if width = b.o.Streams.Width; width == 0 {
			width = 80
		}
		width = max(20, width-1) - len(before)
	}
	return before + progressLine(p, width, b.o.show)
}

// progressLine is the state of a run in one line of at most width columns, 0 no limit: "round 9/16, 36 of 64
// pairs, 12 GiB moved, 19 s left: gpu:0 > mlx5_0 and 3 more".
func progressLine(p *measure.Progress, width int, o show.Options) string {
	line := fmt.Sprintf("round %d/%d, %d of %s", p.Round, max(p.Round, p.Rounds), p.Done, text.Plural(p.Total, "pair"))
	if p.Bytes > 0 {
		line += ", " + units.Bytes(p.Bytes) + " moved"
	}
	if p.Left > 0 {
		line += ", " + show.Seconds(p.Left.Nanoseconds()) + " left"
	}
	if n := len(p.Pairs); n > 0 {
		line += ": " + show.PairName(&p.Pairs[0], p.Pairs[0].From.Host == p.Pairs[0].To.Host)
		if n > 1 {
			line += fmt.Sprintf(" and %d more", n-1)
		}
	}
	end := text.Ellipsis
	if o.ASCII {
		line, end = text.InASCII(line), "~"
	}
	if width > 0 {
		line = text.Cut(line, width, end)
	}
	return line
}
