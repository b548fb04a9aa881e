package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/agent"
	"github.com/topoctl/topoctl/internal/app/bench"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// benchEnd is the hidden command that is the other end of bench's raw sockets.
const benchEnd = "bench-raw-end"

func newBenchEndCmd(f *factory) *cobra.Command {
	return &cobra.Command{
		Use: benchEnd, Hidden: true, Args: noArgs,
		Short: "The other end of the raw sockets that bench compares with",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.ServeRaw(cmd.Context(), f.streams.In, f.streams.Out)
		},
	}
}

func runBench(ctx context.Context, o *benchOptions) error {
	if !o.globals.quiet {
		fmt.Fprintln(o.streams.Err, "topoctl: "+text.Printable(o.announce()))
	}
	t, err := o.find(ctx)
	if err != nil {
		return err
	}
	if o.globals.debug {
		o.say(t)
	}
	if o.run.Overlay, err = o.measured.start(o.input, t); err != nil {
		return err
	}
	o.run.Topology, o.run.Tool = t, topo.Tool{Name: "topoctl", Version: buildInfo().Version}
	o.run.RawEnd = o.rawEnd
	o.run.Engine = o.rdma.transports(withFallbacks(o.run.Transports))
	if !o.globals.quiet && o.streams.ErrTTY {
		o.run.Progress = o.progress
	}
	if o.run.Peer == "" {
		stop, err := o.startAgent(ctx)
		if err != nil {
			return err
		}
		defer stop() //nolint:errcheck // the measurements are done; the child ends with this process at the latest
	} else if o.run.Token, err = readToken(o.tokenFile, o.streams.In, o.streams.Err); err != nil {
		return err
	}
	if len(o.http) > 0 {
		o.run.Show = func(e *bench.Engines) (func(), error) { return o.show(ctx, e) }
	}
	report, err := bench.Run(ctx, o.run)
	if o.run.Progress != nil {
		fmt.Fprint(o.streams.Err, clearLine)
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
		return o.hint(err)
	case report.Bad():
		return errBad
	}
	return nil
}

// show answers HTTP for the engines that measure.
func (o *benchOptions) show(ctx context.Context, e *bench.Engines) (stop func(), err error) {
	pages, err := agent.ServePages(ctx, o.http, e)
	if err != nil {
		return nil, err
	}
	if !o.globals.quiet {
		for _, at := range reachable(pages.Addresses(), "localhost") {
			fmt.Fprintf(o.streams.Err, "topoctl: http://%s/v1/engine, for \"topoctl tui --agent http://%[1]s\"\n", at)
		}
	}
	return func() {
		if err := pages.Stop(ctx); err != nil {
			fmt.Fprintln(o.streams.Err, "topoctl: "+text.Printable(err.Error()))
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
func (o *benchOptions) announce() string {
	r := &o.run
	n := len(r.Ops) * len(r.Sizes) * len(r.Transports) * len(r.Policies)
	peer := r.Peer
	if peer == "" {
		peer = "an agent started here"
	}
	return fmt.Sprintf("%s of %s each with %s, and their ceilings", text.Plural(n, "measurement"), r.Duration, peer)
}

// hint adds the next step to what commonly goes wrong.
func (o *benchOptions) hint(err error) error {
	var lane *bench.UnknownLaneError
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return withHint(err, "is it the address of \"topoctl agent\"? --timeout DURATION gives it more time")
	case errors.As(err, &lane):
		if near := closest(lane.Name, lane.Lanes); near != "" {
			return withHint(err, "did you mean %q?", near)
		}
	case errors.Is(err, syscall.EADDRINUSE):
		return withHint(err, "another program has that port; --http with port 0 takes any that is free")
	case errors.Is(err, engine.ErrNoRegion):
		return withHint(err, "--region NAME names another; \"topoctl agent\" serves %q", benchRegion)
	case strings.Contains(text, "token"):
		return withHint(err, "both ends need the same --token-file")
	case strings.Contains(text, "not a topoctl engine"):
		return withHint(err, "--peer is the --listen address of \"topoctl agent\", not that of its --http")
	case strings.Contains(text, "rdma: the peer does not offer it"):
		return withHint(err, "the agent at the other end says when it starts why it has no RDMA")
	case strings.Contains(text, "connection refused"):
		return withHint(err, "run \"topoctl agent\" at the other end: it prints the line to run here")
	}
	return err
}

const clearLine = "\r\x1b[K"

// progress draws one line over and over.
func (o *benchOptions) progress(p bench.Progress) {
	line := fmt.Sprintf("[%d/%d] %s", p.Step, p.Steps, p.What)
	if p.BytesPerSec > 0 {
		line += "  " + units.Rate(p.BytesPerSec, o.look.units)
	}
	line += fmt.Sprintf("  %s left", p.Left.Round(time.Second))
	width := max(20, o.look.width)
	if o.look.width == 0 {
		width = 80
	}
	fmt.Fprint(o.streams.Err, clearLine+text.Printable(string([]rune(line)[:min(len([]rune(line)), width-1)])))
}

// startAgent runs the other end on this host.
func (o *benchOptions) startAgent(ctx context.Context) (stop func() error, err error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	o.run.Token = []byte(hex.EncodeToString(secret))
	args := []string{"agent", "--listen", "127.0.0.1:0", "--token-file", "-", "--until-eof", "-o", "json", "-q", "--size", fmt.Sprint(o.run.Memory)}
	for _, g := range []struct{ flag, value string }{{"--host-root", o.globals.hostRoot}, {"--timeout", o.globals.timeout.String()}} {
		if g.value != "" {
			args = append(args, g.flag, g.value)
		}
	}
	args = append(args, o.rdma.args()...)
	var ready agentReady
	pid, stop, err := child(ctx, args, append(slices.Clone(o.run.Token), '\n'), &ready)
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
func (o *benchOptions) rawEnd(ctx context.Context, c bench.RawConfig) (*bench.RawEnd, error) {
	c.Token = make([]byte, 32)
	if _, err := rand.Read(c.Token); err != nil {
		return nil, err
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var ready bench.RawReady
	pid, stop, err := child(ctx, []string{benchEnd}, append(config, '\n'), &ready)
	if err != nil {
		return nil, fmt.Errorf("start the other end of raw sockets: %w", err)
	}
	at, err := netip.ParseAddrPort(ready.Address)
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &bench.RawEnd{Address: at, Token: c.Token, PID: pid, CongestionControl: ready.CongestionControl, Stop: stop}, nil
}

// childTime is how long a child may take to be ready, and to end.
const childTime = 20 * time.Second

// child runs this program again: it gets a line, answers with a line of JSON, and
// ends when its standard input does, which is when this process is gone at the
// latest.
func child(ctx context.Context, args []string, line []byte, answer any) (pid int, stop func() error, err error) {
	self, err := os.Executable()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return 0, nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.SysProcAttr = ownGroup() // Ctrl-C is for this process, which ends the child when it is done
	var errs strings.Builder
	cmd.Stderr = &limited{w: &errs, left: 64 << 10}
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	limit := time.AfterFunc(childTime, func() { cmd.Process.Kill() }) //nolint:errcheck // it has ended
	interrupted := context.AfterFunc(ctx, func() { limit.Reset(time.Second) })
	_, err = in.Write(line)
	if err == nil {
		var first []byte
		if first, err = bufio.NewReader(out).ReadBytes('\n'); err == nil {
			err = json.Unmarshal(first, answer)
		}
	}
	limit.Stop()
	interrupted()
	stop = func() error {
		in.Close()                                                    //nolint:errcheck // this is what ends it
		t := time.AfterFunc(childTime, func() { cmd.Process.Kill() }) //nolint:errcheck // it has ended
		defer t.Stop()
		return cmd.Wait()
	}
	if err != nil {
		ended := stop()
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if said := strings.TrimSpace(errs.String()); said != "" {
			return 0, nil, errors.New(withoutPackage(strings.TrimPrefix(said, "topoctl: ")))
		}
		return 0, nil, errors.Join(err, ended)
	}
	return cmd.Process.Pid, stop, nil
}

// limited keeps the beginning of what is written.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(len(p), l.left)]
	l.left -= len(keep)
	if _, err := l.w.Write(keep); err != nil {
		return 0, err
	}
	return len(p), nil
}
