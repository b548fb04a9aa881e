package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/build"
	"github.com/topoctl/topoctl/internal/observe"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/watch"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

type watchOptions struct {
	*Host
	interval     time.Duration // of counters, 0 none
	every        time.Duration // of looks at the whole host, 0 only when something says so
	limit        time.Duration // 0: until it is stopped
	exitOnChange bool
	infos        bool
	baseline     string
	agents       []string
}

func newWatchCmd(f *Env) *cobra.Command {
	opts := &watchOptions{Host: f.Host()}
	cmd := newCommand(opts, "watch", "Print changes on this host as they happen")
	fl := cmd.Flags()
	fl.DurationVar(&opts.interval, "interval", time.Second, "read counters and query agents every `TIME`; 0 for never")
	everyFlag(cmd, &opts.every)
	timeFlag(cmd, &opts.limit, "duration", 0, 1, unbounded, "stop after `TIME`")
	fl.BoolVar(&opts.exitOnChange, "exit-on-change", false, "stop at the first change, with exit code 1")
	fl.BoolVar(&opts.infos, "all", false, "also print findings of severity info")
	fl.StringVar(&opts.baseline, "baseline", "", "report drift from the host in `FILE` (as for diff, or "+fixturePrefix+"NAME), instead of from the start")
	fl.StringSliceVar(&opts.agents, "agent", nil, "also watch whether the agent with the --http address `URL` answers; repeatable")
	Offer(cmd, map[string]completer{"baseline": hostFlag, "interval": Words("1s"), "every": Words("30s")})
	Uses(cmd, inputFlags)
	Lasts(cmd)
	Formats(cmd, formatTable, formatJSONL, formatJSON)
	return cmd
}

// leastInterval is how often counters are read at most.
const leastInterval = 100 * time.Millisecond

// everyFlag adds --every.
func everyFlag(cmd *cobra.Command, to *time.Duration) {
	cmd.Flags().DurationVar(to, "every", 30*time.Second, "discover the host again every `TIME`, and when the kernel reports a change; 0 for only then")
}

// checkPace refuses a time between two looks that is shorter than they are worth; 0 stands for never. A look at the whole
// host takes a good part of a second.
func checkPace(interval, every time.Duration) error {
	switch {
	case interval != 0 && interval < leastInterval:
		return fmt.Errorf("--interval %s: want %s or more, or 0", interval, leastInterval)
	case every != 0 && every < time.Second:
		return fmt.Errorf("--every %s: want 1s or more, or 0", every)
	}
	return nil
}

// checkAgents completes the values of --agent.
func checkAgents(list []string) error {
	for i, a := range list {
		url, err := observe.AgentURL(a)
		if err != nil {
			return fmt.Errorf("--%w", pkgerr.Plain(err)) // it begins with "agent"
		}
		list[i] = url
	}
	return nil
}

func (o *watchOptions) parse(cmd *cobra.Command, _ []string) error {
	return cmp.Or(checkPace(o.interval, o.every), checkTogether(cmd,
		flagRule{"interval every duration exit-on-change agent", idleWith, savedHost, "that host does not change: leave out the flag that selects it to watch this one"},
		flagRule{"from=-", excludes, "baseline=-", readOnce}), checkAgents(o.agents))
}

// against is what drift is told against; nil is the start.
func (o *watchOptions) against(ctx context.Context) (*topo.Topology, error) {
	if o.baseline == "" {
		return nil, nil //nolint:nilnil // none was asked for
	}
	t, err := o.Named(ctx, o.baseline)
	if err != nil {
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	return t, nil
}

// errChanged ends a watch that waits for a change.
var errChanged = errors.New("something has changed")

func (o *watchOptions) run(ctx context.Context) error {
	baseline, err := o.against(ctx)
	if err != nil {
		return err
	}
	t, err := o.Load(ctx) // also so that a host that cannot be looked at is an error at once
	if err != nil {
		return err
	}
	w := watch.New(watch.Options{Baseline: baseline, BaselineName: o.baseline, Infos: o.infos})
	p := watchPrinter{o: o}
	if err := p.print(w.Topology(0, t)); err != nil || o.Globals.Described() { // which is looked at once
		return errors.Join(err, incomplete(t, false))
	}
	var sampler *discover.Sampler
	if o.interval > 0 {
		if sampler, err = o.sampler(); err != nil {
			return err
		}
		defer sampler.Close() //nolint:errcheck // files of /sys that were only read
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if o.limit > 0 {
		timed, end := context.WithTimeout(limited, o.limit)
		defer end()
		limited = timed
	}
	err = o.follow(limited, o.feed(t, sampler), w, &p)
	switch {
	case errors.Is(err, errChanged):
		return errBad
	case err != nil:
		return err
	case ctx.Err() != nil && (o.limit > 0 || o.exitOnChange): // stopped before it could answer
		return ctx.Err()
	}
	return nil
}

// follow prints events until ctx ends or no one reads them, which is no error, or something
// goes wrong.
func (o *watchOptions) follow(ctx context.Context, feed *observe.Feed, w *watch.Watch, p *watchPrinter) error {
	ctx, cancel := context.WithCancel(ctx)
	news, ended := make(chan *record.Record), make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() {
		ended <- feed.Run(ctx, func(r *record.Record) {
			select {
			case news <- r:
			case <-ctx.Done():
			}
		})
	})
	defer running.Wait()
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began, last := time.Now(), int64(0)
	for {
		var events []watch.Event
		select {
		case r := <-news:
			last = max(last, r.AtNS)
			events = watchStep(w, last, r)
		case <-tick.C:
			if readerGone(o.Streams.Out) { // else that would be noticed with the next event
				return nil
			}
			last = max(last, int64(time.Since(began)))
			events = w.Tick(last)
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
		if err := p.print(events); err != nil {
			return err
		}
		for i := range events {
			if o.exitOnChange && events[i].Change() {
				return errChanged
			}
		}
	}
}

// watchStep hands a record to a watch.
func watchStep(w *watch.Watch, at int64, r *record.Record) []watch.Event {
	switch {
	case r.Topology != nil:
		return w.Topology(at, r.Topology)
	case r.Counters != nil:
		return w.Counters(at, r.Counters)
	case r.State != nil:
		return w.Source(at, r.Source, r.State.Status, r.State.Detail)
	}
	return nil
}

// feed looks at this host, of which the first topology is known already.
func (o *watchOptions) feed(first *topo.Topology, sampler *discover.Sampler) *observe.Feed {
	var once sync.Once
	return observe.Local(observe.Options{
		Start: record.Start{Tool: build.Tool(), Host: "live"},
		Discover: func(ctx context.Context) (t *topo.Topology, err error) {
			once.Do(func() { t = first })
			if t != nil {
				return t, nil
			}
			return o.Find(ctx)
		},
		Agents: o.agents, Every: o.every, Interval: o.interval,
	}, sampler)
}

// watchPrinter writes events as lines.
type watchPrinter struct{ o *watchOptions }

func (p *watchPrinter) print(events []watch.Event) error {
	if len(events) == 0 {
		return nil
	}
	var b bytes.Buffer
	now := p.o.Now()
	for i := range events {
		e := &events[i]
		if p.o.Format == formatTable {
			p.text(&b, now, e)
			continue
		}
		e.Time = now.UTC().Format(time.RFC3339Nano)
		line, err := jsonLine(e)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		b.Write(line)
	}
	return Write(p.o.Streams.Out, b.Bytes())
}

// mostDetail is how many lines stand below an event for people.
const mostDetail = 6

// text is an event for people: one line, and what there is to know below it.
func (p *watchPrinter) text(w io.Writer, now time.Time, e *watch.Event) {
	severity := doctor.Severity(e.Severity)
	label := severity.Label()
	if p.o.Color() {
		label = "\x1b[" + severityColors[severity] + "m" + label + "\x1b[0m"
	}
	what := string(e.Kind)
	if e.Code != "" {
		what += " " + e.Code
	}
	line := strings.TrimPrefix(e.Who()+": ", ": ") + e.Text
	fmt.Fprintf(w, "%s %s %s  %s\n", now.Format(time.TimeOnly), label, text.Printable(what), text.Printable(line))
	for i, d := range e.Detail {
		if i == mostDetail && len(e.Detail) > mostDetail+1 {
			fmt.Fprintf(w, "%14sand %d more (-o jsonl has them)\n", "", len(e.Detail)-i)
			break
		}
		fmt.Fprintf(w, "%14s%s\n", "", text.Printable(d))
	}
}

var severityColors = map[doctor.Severity]string{doctor.Error: "31", doctor.Warning: "33", doctor.Info: "36"}
