package transfer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/agent"
	"github.com/topoctl/topoctl/internal/app/bench"
	"github.com/topoctl/topoctl/internal/app/cli/build"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/cli/peers"
	"github.com/topoctl/topoctl/internal/base/engine/session"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// benchEnd is the hidden command that is the other end of bench's raw sockets.
const benchEnd = "bench-raw-end"

func newBenchEndCmd(f *command.Env) *cobra.Command {
	return &cobra.Command{
		Use: benchEnd, Hidden: true, Args: command.NoArgs,
		Short: "The other end of the raw sockets that bench compares with",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.ServeRaw(cmd.Context(), f.Streams.In, f.Streams.Out)
		},
	}
}

func runBench(ctx context.Context, o *BenchOptions) error {
	if !o.Globals.Quiet {
		fmt.Fprintln(o.Streams.Err, "topoctl: "+text.Printable(o.announce()))
	}
	t, err := o.Find(ctx)
	if err != nil {
		return err
	}
	if o.Globals.Verbose {
		o.Say(t)
	}
	if o.run.Overlay, err = o.measured.Start(o.Host, t); err != nil {
		return err
	}
	o.run.Topology, o.run.Tool = t, build.Tool()
	o.run.RawEnd = o.rawEnd
	o.run.Engine = o.rdma.Transports(withFallbacks(o.run.Transports))
	if !o.Globals.Quiet && o.Streams.ErrTTY {
		o.run.Progress = o.progress
	}
	if o.run.Peer == "" {
		stop, err := o.startAgent(ctx)
		if err != nil {
			return err
		}
		defer stop() //nolint:errcheck // the measurements are done; the child ends with this process at the latest
	} else if o.run.Token, err = peers.ReadToken(o.tokenFile, o.Streams.In, o.Streams.Err); err != nil {
		return err
	}
	if len(o.http) > 0 {
		o.run.Show = func(e *bench.Engines) (func(), error) { return o.show(ctx, e) }
	}
	report, err := bench.Run(ctx, o.run)
	if o.run.Progress != nil {
		fmt.Fprint(o.Streams.Err, command.ClearLine)
	}
	if report != nil {
		if err := o.print(report); err != nil {
			return err
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return o.Hint(err)
	case report.Bad():
		return command.ErrBad
	}
	return nil
}

// show answers HTTP for the engines that measure.
func (o *BenchOptions) show(ctx context.Context, e *bench.Engines) (stop func(), err error) {
	pages, err := agent.ServePages(ctx, o.http, e)
	if err != nil {
		return nil, err
	}
	if !o.Globals.Quiet {
		for _, at := range reachable(pages.Addresses(), "localhost") {
			fmt.Fprintf(o.Streams.Err, "topoctl: http://%s/v1/engine, for \"topoctl tui --agent http://%[1]s\"\n", at)
		}
	}
	return func() {
		if err := pages.Stop(ctx); err != nil {
			fmt.Fprintln(o.Streams.Err, "topoctl: "+text.Printable(err.Error()))
		}
	}, nil
}

// withFallbacks adds what every engine has: what a peer is asked beside the
// measurements goes over it where RDMA is not for that.
func withFallbacks(names []string) []string {
	out := slices.Clone(names)
	for _, name := range []string{"shm", "tcp"} {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// announce says what is going to happen.
func (o *BenchOptions) announce() string {
	r := &o.run
	n := len(r.Ops) * len(r.Sizes) * len(r.Transports) * len(r.Policies)
	peer := r.Peer
	if peer == "" {
		peer = "an agent started here"
	}
	return fmt.Sprintf("%s of %s each with %s, and their ceilings", text.Plural(n, "measurement"), r.Duration, peer)
}

// Hint adds the next step to what commonly goes wrong.
func (o *BenchOptions) Hint(err error) error {
	var lane *bench.UnknownLaneError
	var missing *transport.NotOfferedError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return command.WithHint(err, "is it the address of \"topoctl agent\"? --timeout DURATION gives it more time")
	case errors.As(err, &lane):
		if near := command.Closest(lane.Name, lane.Lanes); near != "" {
			return command.WithHint(err, "did you mean %q?", near)
		}
	case errors.Is(err, syscall.EADDRINUSE):
		return command.WithHint(err, "another program has that port; --http with port 0 takes any that is free")
	case errors.Is(err, engine.ErrNoRegion):
		return command.WithHint(err, "--region NAME names another; \"topoctl agent\" serves %q", benchRegion)
	case errors.Is(err, engine.ErrToken):
		return command.WithHint(err, "both ends need the same --token-file")
	case errors.Is(err, session.ErrNotEngine):
		return command.WithHint(err, "--peer is the --listen address of \"topoctl agent\", not that of its --http")
	case errors.As(err, &missing) && slices.Contains(missing.Transports, "rdma"):
		return command.WithHint(err, "the agent at the other end says when it starts why it has no RDMA")
	case errors.Is(err, syscall.ECONNREFUSED):
		return command.WithHint(err, "run \"topoctl agent\" at the other end: it prints the line to run here")
	}
	return err
}

// progress draws one line over and over.
func (o *BenchOptions) progress(p bench.Progress) {
	line := fmt.Sprintf("[%d/%d] %s", p.Step, p.Steps, p.What)
	if p.BytesPerSec > 0 {
		line += "  " + units.Rate(p.BytesPerSec, o.look.Units)
	}
	line += fmt.Sprintf("  %s left", p.Left.Round(time.Second))
	width := max(20, o.look.Width)
	if o.look.Width == 0 {
		width = 80
	}
	fmt.Fprint(o.Streams.Err, command.ClearLine+text.Printable(string([]rune(line)[:min(len([]rune(line)), width-1)])))
}

// startAgent runs the other end on this host.
func (o *BenchOptions) startAgent(ctx context.Context) (stop func() error, err error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	o.run.Token = []byte(hex.EncodeToString(secret))
	args := []string{"agent", "--listen", "127.0.0.1:0", "--token-file", "-", "--until-eof", "-o", "json", "-q", "--size", fmt.Sprint(o.run.Memory)}
	for _, g := range []struct{ flag, value string }{{"--host-root", o.Globals.HostRoot}, {"--timeout", o.Globals.Timeout.String()}} {
		if g.value != "" {
			args = append(args, g.flag, g.value)
		}
	}
	args = append(args, o.rdma.Args()...)
	var ready AgentReady
	pid, stop, err := StartChild(ctx, args, append(slices.Clone(o.run.Token), '\n'), &ready)
	if err != nil {
		return nil, fmt.Errorf("start an agent: %w", err)
	}
	if len(ready.Addresses) == 0 {
		return nil, errors.Join(errors.New("start an agent: it says no address"), stop())
	}
	o.run.Peer, o.run.ChildPID = ready.Addresses[0], pid
	return stop, nil
}

// rawEnd runs the other end of raw sockets on this host.
func (o *BenchOptions) rawEnd(ctx context.Context, c bench.RawConfig) (*bench.RawEnd, error) {
	c.Token = make([]byte, 32)
	if _, err := rand.Read(c.Token); err != nil {
		return nil, err
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var ready bench.RawReady
	pid, stop, err := StartChild(ctx, []string{benchEnd}, append(config, '\n'), &ready)
	if err != nil {
		return nil, fmt.Errorf("start the other end of raw sockets: %w", err)
	}
	at, err := netip.ParseAddrPort(ready.Address)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &bench.RawEnd{Address: at, Token: c.Token, PID: pid, CongestionControl: ready.CongestionControl, Stop: stop}, nil
}
