package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/hostlist"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/measure"
	"github.com/topoctl/topoctl/probe/plan"
)

type probeFabricOptions struct {
	measuring
	ports      portFlags
	hosts      agentFlags
	registry   Registry
	rails      plan.Rails
	fabricFile string
	launch     string
	command    string
	dialTime   time.Duration
}

// agentFlags name the hosts to measure between, by their agents.
type agentFlags struct {
	file        string
	names       []string
	credentials Credentials
}

func (h *agentFlags) add(cmd *cobra.Command, fileUsage, nameUsage string) {
	cmd.Flags().StringVar(&h.file, "hosts", "", fileUsage)
	cmd.Flags().StringArrayVar(&h.names, "host", nil, nameUsage)
	h.credentials.Add(cmd)
}

// given says whether the flags name hosts.
func (h *agentFlags) given() bool { return h.file != "" || len(h.names) > 0 }

func newProbeFabricCmd(f *Env) *cobra.Command {
	opts := &probeFabricOptions{measuring: measuring{Host: f.Host()}}
	cmd := newCommand(opts, "fabric", "Measure the ports of many hosts with each other")
	fl := cmd.Flags()
	opts.hosts.add(cmd, "hosts to measure, one per line of `FILE`, - for standard input",
		"host to measure, by its agent at `[NAME=]HOST[:PORT]`; repeatable")
	opts.registry.Add(cmd, "measure between the agents in the registry at `URL`, such as etcd://HOST/PREFIX")
	wordFlag(cmd, &opts.rails, "rails", plan.RailsAll, "`RAILS` of the ports to pair: all, same or cross; same and cross need --fabric", []plan.Rails{plan.RailsAll, plan.RailsSame, plan.RailsCross})
	fl.StringVar(&opts.fabricFile, "fabric", "", "`FILE` with the rail and leaf of each port, and uplinks (topoctl.fabric/v1)")
	wordFlag(cmd, &opts.launch, "launch", "", "start the agents with `METHOD` (ssh), and stop them at the end", []string{"ssh"})
	fl.StringVar(&opts.command, "launch-command", "topoctl", "with --launch, `COMMAND` that runs topoctl on the other hosts")
	Group(cmd, "Hosts", append([]string{"hosts", "host", "registry", "launch", "launch-command"}, credentialFlags...)...)
	opts.flags.add(cmd)
	opts.ports.add(cmd)
	Group(cmd, pairsGroup, "rails", "fabric")
	mainFlags(cmd, "hosts", "host", "token-file", "launch", "fabric", "rails", "max-duration", "report", "out-file", "dry-run")
	Uses(cmd, "timeout", "quiet", "verbose", "units")
	Lasts(cmd)
	Formats(cmd, runFormats...)
	return cmd
}

func (o *probeFabricOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(o.hosts.credentials.Check(cmd), o.registry.Check(), o.parseMeasuring(cmd)); err != nil {
		return err
	}
	if err := measure.CheckSpec(&o.spec); err != nil {
		return fmt.Errorf("agents cannot measure this: %w", err)
	}
	if err := checkTogether(cmd,
		flagRule{"hosts", excludes, "registry", ""},
		flagRule{"launch", excludes, "registry", "agents that are launched are in no registry"},
		flagRule{"launch-command", needs, "launch", ""},
		flagRule{"hosts=-", excludes, "token-file=-", readOnce},
		flagRule{"cert-file", idleWith, "launch", "agents that are launched get a token; for certificates, start them yourself"}); err != nil {
		return err
	}
	switch {
	case !o.hosts.given() && !o.registry.Given():
		return withHint(errors.New("no hosts: want --hosts FILE, --host NAME=HOST[:PORT] or --registry URL"), "run \"topoctl agent --serve-probes\" on each host, or use --launch ssh")
	case cmd.Flags().Changed("timeout") || o.launch != "":
		o.dialTime = o.Globals.Timeout
	}
	return nil
}

func (o *probeFabricOptions) run(ctx context.Context) error {
	waiting, stop := o.Waiting(ctx)
	defer stop()
	names, err := o.registry.Open(waiting, o.Host, nil)
	if err != nil {
		return err
	}
	if names != nil {
		defer names.Close() //nolint:errcheck // it only finds agents
	}
	hosts, described, err := o.hostsFrom(waiting, names)
	if err != nil {
		return err
	}
	if n := len(hosts) + len(described); n < 2 {
		return withHint(fmt.Errorf("%s: want two or more", text.Plural(n, "host")), "use \"topoctl probe local\" to measure this host alone")
	}
	if len(described) > 0 {
		return o.dryDescribed(waiting, described, hosts)
	}
	fleet, err := o.openFleet(ctx, waiting, hosts, names)
	if err != nil {
		return err
	}
	err = o.measureFleet(ctx, fleet)
	if closed := fleet.Close(); closed != nil {
		o.tell("warning", pkgerr.Plain(closed).Error())
	}
	return err
}

// described is a host that a file or a fixture describes.
type describedHost struct{ name, source string }

// hostsFrom gives the hosts of the flags, or with a registry the agents in it.
func (o *probeFabricOptions) hostsFrom(ctx context.Context, names registry.Registry) (hosts []probe.Host, described []describedHost, err error) {
	if names == nil {
		return o.listHosts(ctx)
	}
	hosts, err = o.registered(ctx, names)
	return hosts, nil, err
}

// registered are the agents in a registry that serve probes, or those of them that --host names.
func (o *probeFabricOptions) registered(ctx context.Context, names registry.Registry) ([]probe.Host, error) {
	list, err := o.registry.List(ctx, o.Host, names)
	if err != nil {
		return nil, err
	}
	o.tellBad(list)
	var hosts []probe.Host
	var known []string
	for i := range list.Records {
		r := &list.Records[i]
		serves := slices.Contains(r.Serves, servesProbes)
		if serves {
			known = append(known, r.Name)
		}
		if wanted := slices.Contains(o.hosts.names, r.Name); wanted && !serves {
			return nil, withHint(fmt.Errorf("--host %s: this agent serves no probes", r.Name), "start it with --serve-probes")
		} else if serves && (wanted || len(o.hosts.names) == 0) {
			hosts = append(hosts, probe.Host{Name: r.Name, Address: r.Addresses[0].String()})
		}
	}
	for _, name := range o.hosts.names {
		if !slices.ContainsFunc(hosts, func(h probe.Host) bool { return h.Name == name }) {
			return nil, suggest(fmt.Errorf("--host %q: no agent of that name in the registry", name), name, known, "with --registry, --host is a name in it; \"topoctl peers\" lists them")
		}
	}
	if len(hosts) < 2 {
		return nil, withHint(fmt.Errorf("--registry %s: %s, of which %d serve probes: want two or more", o.registry.URL, text.Plural(len(list.Records), "engine"), len(hosts)),
			"run \"topoctl agent --listen :%s --token-file token --serve-probes --registry %s\" on each host", agentPort, o.registry.URL)
	}
	return hosts, nil
}

// listHosts gives the hosts with addresses, and those that are only described.
func (o *probeFabricOptions) listHosts(ctx context.Context) (hosts []probe.Host, described []describedHost, err error) {
	var lines strings.Builder
	if o.hosts.file != "" {
		data, err := o.ReadFile(ctx, o.hosts.file)
		if err != nil {
			return nil, nil, fmt.Errorf("--hosts: %w", err)
		}
		if hosts, err = hostlist.Parse(data, measure.MaxHosts, agentPort); err != nil {
			return nil, nil, fmt.Errorf("--hosts %s: %w", o.hosts.file, pkgerr.Plain(err))
		}
	}
	for _, text := range o.hosts.names {
		name, address, both := strings.Cut(text, "=")
		if !both {
			address = text
		}
		if o.flags.dryRun && isDescription(address) {
			described = append(described, describedHost{cmp.Or(name, address), address})
			continue
		}
		if strings.ContainsAny(text, " \t\r\n#") || name == "" || address == "" {
			return nil, nil, fmt.Errorf("--host %q: want NAME=HOST[:PORT]", text)
		}
		if both {
			lines.WriteString(name + " ")
		}
		lines.WriteString(address + "\n")
	}
	if lines.Len() > 0 {
		more, err := hostlist.Parse([]byte(lines.String()), measure.MaxHosts, agentPort)
		if err != nil {
			var of *hostlist.LineError
			if errors.As(err, &of) {
				err = of.Err
			}
			return nil, nil, fmt.Errorf("--host: %w", err)
		}
		hosts = append(hosts, more...)
	}
	return hosts, described, nil
}

// isDescription says whether a host is given by what describes it.
func isDescription(source string) bool {
	if strings.HasPrefix(source, fixturePrefix) {
		return true
	}
	_, err := os.Stat(source)
	return err == nil
}

// dryDescribed plans for hosts that need not be there.
func (o *probeFabricOptions) dryDescribed(ctx context.Context, described []describedHost, others []probe.Host) error {
	if len(others) > 0 {
		return withHint(fmt.Errorf("--host %s: descriptions and addresses of agents cannot be mixed", described[0].name), "%s is taken as an agent at %s, because there is no such file", others[0].Name, others[0].Address)
	}
	var hosts []plan.Host
	for _, d := range described {
		t, err := o.Named(ctx, d.source)
		if err != nil {
			return fmt.Errorf("--host %s: %w", d.name, pkgerr.Plain(err))
		}
		hosts = append(hosts, plan.Host{Name: d.name, Topology: t})
	}
	pairs, err := o.pairs(ctx)
	if err != nil {
		return err
	}
	return o.dry(o.layout(plan.Fabric(hosts, pairs)))
}

// pairs say which pairs are wanted.
func (o *probeFabricOptions) pairs(ctx context.Context) (plan.FabricOptions, error) {
	fabric, err := o.ReadFabric(ctx, o.fabricFile)
	return plan.FabricOptions{Rails: o.rails, BothWays: o.flags.bidir, Transport: o.ports.wanted(), Memory: o.ports.memory, Select: o.flags.selected, Fabric: fabric}, err
}

// layout lays pairs between hosts out.
func (o *probeFabricOptions) layout(pairs *plan.Pairs, err error) (*plan.Plan, error) {
	if _, ok := errors.AsType[*plan.FabricFileError](err); ok && o.fabricFile != "" {
		err = fmt.Errorf("--fabric %s: %w", o.fabricFile, pkgerr.Plain(err))
	}
	return o.measuring.layout(pairs, err)
}

func (o *probeFabricOptions) openFleet(ctx, waiting context.Context, hosts []probe.Host, names registry.Registry) (*measure.Fleet, error) {
	fo := measure.HostsOptions{Hosts: hosts, DialTime: o.dialTime, Registry: finder(names)}
	var err error
	if fo.Pairs, err = o.pairs(waiting); err != nil {
		return nil, err
	}
	if fo.Credentials, err = o.hosts.credentials.Read(waiting, o.Host, nil); err != nil {
		return nil, err
	}
	if until, ok := waiting.Deadline(); ok && fo.DialTime > 0 {
		fo.DialTime = max(time.Millisecond, time.Until(until))
	}
	if o.launch != "" {
		fo.Launch = &measure.Launch{Command: strings.Fields(o.command)}
		if fo.Credentials == nil { // no one else needs to know it
			fo.Credentials = trust.Secret([]byte(rand.Text()))
		}
	}
	fleet, err := measure.Hosts(ctx, fo)
	if err != nil {
		return nil, openHint(pkgerr.Plain(err), o.launch != "")
	}
	return fleet, nil
}

// openHint says what to do where no agent can be used.
func openHint(err error, launched bool) error {
	err = advise(advise(err, peerAdvice...),
		advice{syscall.EADDRNOTAVAIL, "check that the interface with this address is up; for loopback, run \"ip link set lo up\""},
		advice{syscall.ENETUNREACH, noRoute}, advice{syscall.EHOSTUNREACH, noRoute})
	if launched && Hint(err) == "" {
		return withHint(err, "check that \"ssh HOST topoctl version\" works without a password; use --launch-command if topoctl is not in the PATH there")
	}
	return advise(err, advice{syscall.ECONNREFUSED, "run \"topoctl agent --listen :" + agentPort + " --token-file token --serve-probes\" on each host, or use --launch ssh"})
}

const noRoute = "this host has no route to it; check \"ip route get ADDRESS\" and \"ip addr\""

// measureFleet measures with the agents that can be used. Warnings say what is wrong with the others.
func (o *probeFabricOptions) measureFleet(ctx context.Context, fleet *measure.Fleet) error {
	agents := fleet.Agents()
	for _, a := range agents {
		if a.Error != "" {
			o.tell("warning", a.Name+" does not take part: "+a.Error)
		} else if o.Globals.Verbose {
			fmt.Fprintln(o.Streams.Err, "topoctl: "+text.Printable(fmt.Sprintf("%s at %s: %s", a.Name, a.Address, strings.Join(slices.Concat(a.Transports, a.Unavailable), "; "))))
		}
	}
	pairs, err := fleet.Pairs(ctx)
	if few, ok := errors.AsType[*measure.TooFewError](err); ok {
		return withHint(few, "see the warnings for what is wrong with the others")
	}
	o.tellTCP(agents)
	p, err := o.layout(pairs, err)
	if err != nil || o.flags.dryRun {
		return o.dry(p, err)
	}
	return o.measure(ctx, p, fleet)
}

// tellTCP warns of hosts with RDMA that their agents cannot use.
func (o *probeFabricOptions) tellTCP(agents []measure.Agent) {
	for _, a := range agents {
		if a.NoRDMA != "" && o.ports.wanted() == pathsel.Auto {
			o.tell("warning", a.NoRDMA)
		}
	}
}

// planHint says what to do about a plan that cannot be made.
func planHint(err error) error {
	if _, ok := errors.AsType[*plan.SelectionError](err); ok {
		return withHint(err, "use --dry-run to list the pairs")
	}
	if _, ok := errors.AsType[*plan.DuplicateHostError](err); ok {
		return withHint(err, "use --host NAME=HOST to name it")
	}
	if _, ok := errors.AsType[*plan.RailsError](err); ok {
		return withHint(err, "use --fabric FILE to give the rail of each port; \"topoctl help path\" shows an example")
	}
	return err
}
