package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/build"
	model "github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/collect"
	"github.com/topoctl/topoctl/internal/fleet/show"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

type fleetCollectOptions struct {
	*Host
	args     []string
	agents   string
	hosts    string
	names    []string
	launch   string
	command  string
	parallel int
	dir      string
	resume   bool
	bounded  bool // --timeout is given: it is for all hosts together
	fabric   string

	registry    Registry
	credentials Credentials
}

const (
	mostParallel = 1024
	gcPercent    = 400
)

func newFleetCollectCmd(f *Env) *cobra.Command {
	opts := &fleetCollectOptions{Host: f.Host()}
	cmd := newCommand(opts, "collect [SOURCE...]", "Put the topologies of many hosts together")
	cmd.ValidArgsFunction = hostFlag
	fl := cmd.Flags()
	fl.StringVar(&opts.agents, "agents", "", "ask these agents over HTTP: `HOST[:PORT],...`, or a file with one per line")
	opts.registry.Add(cmd, "ask the engines in the registry at `URL`, such as etcd://HOST/PREFIX, for what they know of their hosts")
	opts.credentials.Add(cmd)
	fl.StringVar(&opts.hosts, "hosts", "", "with --launch, hosts to run topoctl on, one per line of `FILE`, - for standard input")
	fl.StringArrayVar(&opts.names, "host", nil, "with --launch, a host to run topoctl on: `[NAME=]HOST`; repeatable")
	wordFlag(cmd, &opts.launch, "launch", "", "run topoctl on the hosts with `METHOD` (ssh)", []string{"ssh"})
	fl.StringVar(&opts.command, "launch-command", "topoctl", "with --launch, `COMMAND` that runs topoctl on the hosts")
	intFlag(cmd, &opts.parallel, "parallel", 64, 1, mostParallel, "ask at most `N` hosts at the same time")
	fl.StringVar(&opts.dir, "out-dir", "", "write fleet.json and the topologies to `DIR`")
	fl.BoolVar(&opts.resume, "resume", false, "with --out-dir, do not ask hosts again whose topologies are there")
	fl.StringVar(&opts.fabric, "fabric", "", "`FILE` with the rail and leaf of each port, and uplinks (topoctl.fabric/v1)")
	Group(cmd, "Hosts", append([]string{"agents", "hosts", "host", "launch", "launch-command", "parallel", "registry"}, credentialFlags...)...)
	Uses(cmd, "from", "timeout", "quiet")
	Lasts(cmd)
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

func (o *fleetCollectOptions) parse(cmd *cobra.Command, args []string) error {
	if err := cmp.Or(o.registry.Check(), o.credentials.Check(cmd)); err != nil {
		return err
	}
	o.args = withFrom(o.Host, args)
	o.bounded = cmd.Flags().Changed("timeout")
	if len(o.args) == 0 && o.agents == "" && o.hosts == "" && len(o.names) == 0 && o.launch == "" && !o.registry.Given() {
		return withHint(errors.New("no hosts"), "name files, --agents HOST,HOST, --registry URL, or --hosts FILE --launch ssh")
	}
	return checkTogether(cmd,
		flagRule{strings.Join(credentialFlags, " "), needs, "registry", "credentials are for the engines of a registry"},
		flagRule{"hosts host", needs, "launch", "--launch ssh runs topoctl on them; use --agents for hosts with agents"},
		flagRule{"launch", needs, "hosts host", ""},
		flagRule{"launch-command", needs, "launch", ""},
		flagRule{"resume", needs, "out-dir", ""})
}

func (o *fleetCollectOptions) run(ctx context.Context) error {
	waiting, stop := ctx, context.CancelFunc(func() {})
	if o.bounded {
		waiting, stop = o.Waiting(ctx)
	}
	defer stop()
	net, err := fleetNetwork(waiting, o.Host, o.fabric)
	if err != nil {
		return err
	}
	registered, end, err := o.registered(waiting)
	if err != nil {
		return err
	}
	defer end()
	sources, total, err := o.sources(waiting, registered)
	if err != nil {
		return err
	}
	c := collect.Options{Parallel: o.parallel, Timeout: o.Globals.Timeout, Decode: o.Decode, Resume: o.resume}
	c.Until, _ = waiting.Deadline()
	if o.dir != "" {
		write := func(name string, data []byte) error { return writeFile(name, data, everyone) }
		if c.Store, err = collect.OpenStore(o.dir, write); err != nil {
			return fmt.Errorf("--out-dir: %w", err)
		}
	}
	// Documents are garbage as soon as they are read, and what stays of a host is small.
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	bar := status{in: o.Host}
	c.Progress = func(p collect.Progress) { bar.show(collectLine(p, total)) }
	hosts, err := collect.Run(ctx, sources, c)
	bar.end()
	if err != nil {
		return pkgerr.Plain(err)
	}
	if len(hosts) == 0 {
		return errors.New("no hosts were found")
	}
	f, err := model.Build(hosts, net)
	if err != nil {
		return pkgerr.Plain(err)
	}
	at := o.Now().UTC()
	f.Tool, f.CapturedAt = build.Tool(), &at
	return o.write(f, c.Store)
}

// registered are the engines of a registry, which are asked over an engine of our own until end.
func (o *fleetCollectOptions) registered(ctx context.Context) (list []collect.Source, end func(), err error) {
	none := func() {}
	names, err := o.registry.Open(ctx, o.Host, nil)
	if names == nil || err != nil {
		return nil, none, err
	}
	end = func() { _ = names.Close() } // it only finds engines
	there, err := o.registry.List(ctx, o.Host, names)
	if err != nil {
		end()
		return nil, none, err
	}
	o.tellBad(there)
	credentials, err := o.credentials.Read(ctx, o.Host, nil)
	if err == nil {
		var e *engine.Engine
		e, err = engine.New(ctx, engine.Options{Security: engine.Security{Credentials: credentials}, Transports: []engine.TransportFactory{engine.TCP()}, Registry: finder(names)})
		if err == nil {
			return collect.Engines(e, there.Records), func() { _ = errors.Join(e.Close(), names.Close()) }, nil
		}
	}
	end()
	return nil, none, err
}

// sources are all that the flags and arguments name, and how many they are, 0 where that is not known.
func (o *fleetCollectOptions) sources(ctx context.Context, registered []collect.Source) (iter.Seq2[collect.Source, error], int, error) {
	files, err := describedFile(withPipe(ctx, o.Host), o.args)
	if err != nil {
		return nil, 0, err
	}
	asked := registered
	if o.agents != "" {
		targets, err := agentTargets(ctx, o.Host, o.agents)
		if err != nil {
			return nil, 0, err
		}
		asked = append(asked, collect.Agents(targets, nil)...)
	}
	if o.launch != "" {
		targets, err := sshTargets(ctx, o.Host, o.hosts, o.names)
		if err != nil {
			return nil, 0, err
		}
		asked = append(asked, collect.Launch{Command: strings.Fields(o.command)}.Hosts(targets)...)
	}
	total := len(asked)
	if len(o.args) > 0 {
		total = 0
	}
	return func(yield func(collect.Source, error) bool) {
		for _, s := range asked {
			if !yield(s, nil) {
				return
			}
		}
		for s, err := range files {
			if !yield(s, err) {
				return
			}
		}
	}, total, nil
}

// write stores the document and says what was collected.
func (o *fleetCollectOptions) write(f *model.Fleet, store *collect.Store) error {
	data, err := safeJSON(f.Encode())
	if err != nil {
		return pkgerr.Plain(err)
	}
	if store != nil {
		if err := writeFile(filepath.Join(o.dir, collect.FleetFile), data, everyone); err != nil {
			return fmt.Errorf("--out-dir: %w", err)
		}
		kept := map[string]bool{}
		for i := range f.Hosts {
			kept[f.Hosts[i].Document] = true
		}
		if err := store.Drop(func(path string) bool { return kept[path] }); err != nil {
			o.tell("warning", err.Error())
		}
	}
	if o.Format == formatJSON {
		if err := Write(o.Streams.Out, data); err != nil {
			return err
		}
	} else if err := Write(o.Streams.Out, []byte(show.Collected(f, o.dir, show.Options{Width: o.Streams.Width}))); err != nil {
		return err
	}
	if f.NoneReached() {
		if store != nil {
			return withHint(errors.New("no host was reached"), "the same command with --resume asks again")
		}
		return errors.New("no host was reached")
	}
	if len(f.Missing()) > 0 || slices.ContainsFunc(f.Hosts, func(h model.Host) bool { return h.Status == model.Partial }) {
		return errPartial
	}
	return nil
}

// collectLine says how far a collection is, of so many hosts; 0 is not known.
func collectLine(p collect.Progress, total int) string {
	line := fmt.Sprintf("collected %d", p.Done)
	if total > 0 {
		line += fmt.Sprintf(" of %d", total)
	}
	if p.Resumed > 0 {
		line += fmt.Sprintf(", %d of them before", p.Resumed)
	}
	if p.NotReached > 0 {
		line += fmt.Sprintf(", %d not reached", p.NotReached)
	}
	return line + ", last " + p.Last
}
