package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
)

func (o *benchOptions) run(ctx context.Context) error {
	if !o.Globals.Quiet {
		fmt.Fprintln(o.Streams.Err, "topoctl: "+text.Printable(o.announce()))
	}
	began := time.Now()
	waiting, stop := o.Waiting(ctx)
	defer stop()
	t, err := o.Find(waiting)
	if err != nil {
		return err
	}
	if o.Globals.Verbose {
		o.Say(t)
	}
	if o.job.Overlay, err = o.measured.Start(o.Host, t); err != nil {
		return err
	}
	o.job.Topology, o.job.Tool = t, build.Tool()
	// What a peer is asked beside the measurements goes over shm or tcp where RDMA is not for that.
	o.job.Protection = o.transports.Protection
	o.job.Engine = o.transports.Factories(append(slices.Clone(o.job.Transports), "shm", "tcp")...)
	bar := status{in: o.Host}
	if o.Streams.ErrTTY { // elsewhere nothing runs beside the measurements
		o.job.Progress = func(p bench.Progress) { bar.show(o.progressLine(p)) }
	}
	if o.job.Peer == "" {
		a, err := startAgent(ctx, o.Host, &o.transports.RDMA, "--size", fmt.Sprint(o.job.Memory))
		if err != nil {
			return err
		}
		defer a.Stop() //nolint:errcheck // the measurements are done
		o.job.Peer, o.job.ChildPID, o.job.Credentials = a.Address, a.PID, a.Credentials
	} else if o.job.Credentials, err = o.credentials.Read(waiting, o.Host, nil); err != nil {
		return err
	}
	names, err := o.registry.Open(waiting, o.Host, nil)
	if err != nil {
		return err
	}
	if names != nil {
		defer names.Close() //nolint:errcheck // it only finds the peer
		o.job.Registry = finder(names)
	}
	if len(o.http) > 0 {
		o.job.Show = func(e *engine.Engine) (func(), error) { return o.show(ctx, e) }
	}
	o.job.Timeout, o.job.Waited = o.Globals.Timeout, time.Since(began)
	report, err := bench.Run(ctx, o.job)
	bar.end()
	if report != nil {
		if err := o.print(report); err != nil {
			return err
		}
	}
	var gone *bench.PeerGoneError
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &gone) && o.job.ChildPID != 0:
		return badAnswer(gone, "something ended the agent that bench had started, such as the kernel when memory ran out (journalctl -k)")
	case errors.As(err, &gone):
		return badAnswer(gone, gone.Hint())
	case err != nil && o.registry.Given() && errors.Is(err, engine.ErrNoPeer):
		return o.registry.Hint(err)
	case err != nil:
		return peerHint(err)
	case report.Bad():
		return errBad
	}
	return nil
}

// show answers HTTP for the engine that measures.
func (o *benchOptions) show(ctx context.Context, e *engine.Engine) (stop func(), err error) {
	pages, err := agent.ServePages(ctx, o.http, e, nil)
	if err != nil {
		return nil, err
	}
	if !o.Globals.Quiet {
		for _, at := range reachableAddress(pages.Addresses(), "localhost") {
			fmt.Fprintf(o.Streams.Err, "topoctl: http://%s/v1/engine, for \"topoctl tui --agent http://%[1]s\"\n", at)
		}
	}
	return func() {
		if err := pages.Stop(ctx); err != nil {
			fmt.Fprintln(o.Streams.Err, "topoctl: "+text.Printable(err.Error()))
		}
	}, nil
}

// announce says what is going to happen.
func (o *benchOptions) announce() string {
	peer := o.job.Peer
	if peer == "" {
		peer = "an agent on this host"
	}
	return fmt.Sprintf("%s of %s with %s, and of a raw socket and memcpy beside them", text.Plural(o.measurements(), "measurement"), o.job.Duration, peer)
}

// measurements is how many are asked for.
func (o *benchOptions) measurements() int {
	r := &o.job
	return len(r.Ops) * len(r.Sizes) * len(r.Transports)
}

// peerHint adds the next step to what commonly goes wrong.
func peerHint(err error) error {
	if lane, ok := errors.AsType[*bench.UnknownLaneError](err); ok {
		return suggest(err, lane.Name, lane.Lanes, "")
	}
	if missing, ok := errors.AsType[*engine.NotOfferedError](err); ok && slices.Contains(missing.Transports, "rdma") {
		return withHint(err, "see the output of the agent on the other host for why it has no RDMA")
	}
	return advise(advise(err, peerAdvice...),
		advice{engine.ErrNoRegion, "\"topoctl agent\" serves \"" + benchRegion + "\"; use --region NAME for another"},
		advice{context.DeadlineExceeded, "check that this is the address of \"topoctl agent\", or use --timeout DURATION to allow more time"},
		advice{syscall.EADDRINUSE, "another program uses this port; --http with port 0 chooses a free one"},
		advice{engine.ErrNoPeer, "--peer wants the address or a name of the other host, and the port of its \"topoctl agent\""},
		advice{engine.ErrNotEngine, "--peer is the --listen address of \"topoctl agent\", not its --http address"},
		advice{syscall.ECONNREFUSED, "run \"topoctl agent\" on the other host; it prints the command to run here"})
}

// progressLine says what is being measured.
func (o *benchOptions) progressLine(p bench.Progress) string {
	line := fmt.Sprintf("[%d/%d] %s", p.Step, p.Steps, p.What)
	if p.BytesPerSec > 0 {
		line += "  " + units.Rate(p.BytesPerSec, o.Look().Units)
	}
	return line + fmt.Sprintf("  %s left", p.Left.Round(time.Second))
}
