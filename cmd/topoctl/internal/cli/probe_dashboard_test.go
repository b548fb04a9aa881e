package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/plan"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// fakeProber has the pairs of a described host, and moves nothing.
type fakeProber struct {
	t      *testing.T
	hang   bool  // pairs and rounds take until they are stopped
	err    error // of pairs
	began  chan struct{}
	rounds int
	held   int // how often it is open
}

func (g *fakeProber) Pairs(ctx context.Context) (*plan.Pairs, error) {
	if g.err != nil {
		return nil, g.err
	}
	if g.hang && g.began != nil {
		close(g.began)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	pairs, err := plan.Local(fixturetest.Topology(g.t, "cpu-2eth"), plan.LocalOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return pairs, errors.New("one host is missing")
}

func (*fakeProber) Hosts() []probe.Host { return nil }

func (g *fakeProber) Close() error {
	g.held--
	return nil
}

func (g *fakeProber) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(int, probe.Sample)) []probe.Measurement {
	g.rounds++
	if g.hang && g.rounds == 2 {
		close(g.began)
		<-ctx.Done()
	}
	out := make([]probe.Measurement, len(pairs))
	for i := range out {
		if out[i].Err = context.Cause(ctx); out[i].Err != nil {
			continue
		}
		tell(i, probe.Sample{SizeBytes: spec.SizesBytes[0], BytesPerSec: 1e9})
		out[i].Bandwidth = []probe.Bandwidth{probe.NewBandwidth(spec.SizesBytes[0], []int64{1e9, 1e9, 1e9}, 3e8, 3e8, probe.StoppedCI)}
	}
	return out
}

func fakeDashboard(g *fakeProber) *dashboardProber {
	m := measuring{Host: quietHost(&Host{Streams: newStreams().Streams, Now: time.Now}), spec: probe.DefaultSpec(), rules: probe.DefaultRules()}
	x := &dashboardProber{m: m, open: func(context.Context) (openProber, error) { g.held++; return g, nil }}
	x.closing, x.stop = context.WithCancel(context.Background())
	return x
}

// What is chosen is measured, and no more; an error beside pairs says what is missing.
func TestTUIProber(t *testing.T) {
	g := &fakeProber{t: t}
	x := fakeDashboard(g)
	if _, err := x.Plan([]string{"a"}); err == nil {
		t.Error("a plan before the pairs are known")
	}
	pairs, err := x.Pairs(t.Context())
	if err == nil || err.Error() != "one host is missing" || len(pairs) == 0 {
		t.Fatalf("%d pairs, %v", len(pairs), err)
	}
	var chosen []string
	for i := range pairs {
		if pairs[i].Waived == "" && pairs[i].Kind == probe.Memory && len(chosen) < 3 {
			chosen = append(chosen, pairs[i].ID)
		}
	}
	p, err := x.Plan(chosen)
	if err != nil || p.Pairs != 3 || p.Rounds < 1 || p.TimeNS <= 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if g.rounds > 0 {
		t.Error("a plan measures")
	}
	if _, err := x.Plan([]string{chosen[0], "no such pair"}); err == nil {
		t.Error("a plan of a pair that is not there")
	}
	var events []*probe.Event
	if err := x.Run(t.Context(), chosen, func(e *probe.Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	measured := map[string]bool{}
	for _, e := range events {
		if e.Result != nil {
			measured[e.Result.ID] = true
		}
	}
	if last := events[len(events)-1]; events[0].Start == nil || last.End == nil || !last.End.Complete || len(measured) != 3 || !measured[chosen[2]] {
		t.Errorf("%d events, measured %v", len(events), measured)
	}
	if g.held > 0 {
		t.Error("the run has not given back what it had")
	}
	if err := errors.Join(x.Close(), x.Close()); err != nil {
		t.Error(err)
	}
	if _, err := x.Pairs(t.Context()); err == nil {
		t.Error("it answers after Close")
	}
}

// A run that is stopped tells what it has, and its end; Close stops what hangs and waits for it.
func TestTUIProberStops(t *testing.T) {
	for _, how := range []string{"by its context", "by Close"} {
		g := &fakeProber{t: t}
		x := fakeDashboard(g)
		pairs, _ := x.Pairs(t.Context())
		var ids []string
		for i := range pairs {
			if pairs[i].Waived == "" {
				ids = append(ids, pairs[i].ID)
			}
		}
		g.hang, g.began = true, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var events []*probe.Event
		var err error
		running.Go(func() { err = x.Run(ctx, ids, func(e *probe.Event) { events = append(events, e) }) })
		<-g.began
		if _, err := x.Pairs(t.Context()); !errors.Is(err, errBusy) {
			t.Errorf("%s: pairs while it runs: %v", how, err)
		}
		if how == "by Close" {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		} else {
			cancel()
		}
		running.Wait()
		cancel()
		last := events[len(events)-1]
		if err != nil || last.End == nil || last.End.Complete || last.End.Summary.Inconclusive == 0 ||
			!slices.ContainsFunc(events, func(e *probe.Event) bool { return e.Result != nil && e.Result.Judged() != nil }) {
			t.Errorf("%s: %v, the last event %+v", how, err, last)
		}
		if err := x.Close(); err != nil || g.held > 0 {
			t.Errorf("%s: %v, held %d times", how, err, g.held)
		}
	}
	g := &fakeProber{t: t, hang: true, began: make(chan struct{})}
	x := fakeDashboard(g)
	var running sync.WaitGroup
	running.Go(func() {
		if _, err := x.Pairs(context.Background()); !errors.Is(err, context.Canceled) {
			t.Errorf("pairs that hang: %v", err)
		}
	})
	<-g.began
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	running.Wait()
}

// An error has its advice in the same line.
func TestTUIProberAdvice(t *testing.T) {
	x := fakeDashboard(&fakeProber{t: t, err: withHint(errors.New("it is not there"), "look elsewhere")})
	if _, err := x.Pairs(t.Context()); err == nil || err.Error() != "it is not there: look elsewhere" {
		t.Error(err)
	}
}

// What the flags say, before anything is opened.
func TestNewTUIProber(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-that-is-long-enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	two := []string{"n1=127.0.0.1:7411", "n2=127.0.0.1:7412"}
	for _, c := range []struct {
		name      string
		hosts     agentFlags
		notLive   string
		globals   Globals
		why, want string // why there is no prober; of the error
	}{
		{name: "this host"},
		{name: "hosts", hosts: agentFlags{names: two, credentials: probeWithToken(token)}},
		{name: "one host", hosts: agentFlags{names: two[:1]}, want: "1 host: want two or more"},
		{name: "no token", hosts: agentFlags{names: two, credentials: probeWithToken(token + "x")}, want: "--token-file"},
		{name: "standard input", hosts: agentFlags{file: "-"}, want: "keys"},
		{name: "no such file", hosts: agentFlags{file: token + "x"}, want: "--hosts"},
		{name: "a fixture", globals: Globals{Fixture: "dgx-h100"}, why: "only the running host"},
		{name: "a recording", notLive: "a recording is played", hosts: agentFlags{names: two}, why: "a recording is played"},
	} {
		in := &Host{Streams: newStreams().Streams, Globals: c.globals, Now: time.Now}
		p, closer, why, err := newDashboardProber(t.Context(), in, c.hosts, c.notLive)
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) || p != nil || closer != nil {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		case c.why != "":
			if err != nil || p != nil || closer != nil || !strings.Contains(why, c.why) {
				t.Errorf("%s: %q, %v, want %q", c.name, why, err, c.why)
			}
		case err != nil || p == nil || why != "":
			t.Errorf("%s: %v, %q", c.name, err, why)
		default:
			if err := closer.Close(); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// probeWithToken are the flags of a token file.
func probeWithToken(name string) Credentials {
	return Credentials{Files: trust.Files{Token: name}}
}
