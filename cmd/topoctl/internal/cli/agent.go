package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/dranet"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe/measure"
)

// schemaAgent is the name and major version of the line that agent -o json prints
// when it can be reached.
const schemaAgent = "topoctl.agent/v1"

// The agent's default address, and the region that bench uses.
const (
	agentListen  = "127.0.0.1:" + agentPort
	benchRegion  = "bench"
	benchDefault = 256 << 20
)

type agentOptions struct {
	*Host
	listen      []string
	advertise   string
	credentials Credentials
	registry    Registry
	http        []string
	name        string
	regions     []agent.Region
	rank        int
	ranks       int
	untilEOF    bool
	transports  Transports
	refresh     time.Duration
	measured    Measured
	probes      bool // controllers may measure
	limits      measure.Limits
	targets     measure.Targets
	grants      string
	typed       agentTyped
	dranet      string // the address of --dranet
	fabric      string
	lists       bool
}

// agentTyped are flags as they were typed, before they are checked.
type agentTyped struct {
	size                  int64
	regions, probeTargets []string
}

func newAgentCmd(f *Env) *cobra.Command {
	opts := &agentOptions{Host: f.Host()}
	cmd := newCommand(opts, "agent", "Serve memory and information about this host to other hosts")
	fl := cmd.Flags()
	fl.StringSliceVar(&opts.listen, "listen", []string{agentListen}, "listen for peers on `ADDRESS` (host:port; port 0 chooses a free one); repeatable")
	fl.StringVar(&opts.advertise, "advertise", "", "tell peers to connect to `HOST[:PORT]`")
	opts.credentials.Add(cmd)
	opts.registry.Add(cmd, "tell others where this agent is, by --name, in the registry at `URL`, such as etcd://HOST/PREFIX")
	fl.StringSliceVar(&opts.http, "http", nil, "serve HTTP on `ADDRESS` (host:port; without a host, only to this host); repeatable")
	Var(cmd, &opts.typed.size, "size", "256MiB", "`SIZE` of the region \"bench\"; 0 for none", bytesOrNone)
	fl.StringArrayVar(&opts.typed.regions, "region", nil, "also serve region `NAME=SIZE[@LOCATION][:read]`, on the node of cpu:N or with the lanes of gpu:N; :read: peers do not write; repeatable")
	fl.StringVar(&opts.grants, "grants", "", "let each peer do only what `FILE` says, which is read again when it changes")
	fl.StringVar(&opts.name, "name", "", "`NAME` of this engine (default: the host name)")
	intFlag(cmd, &opts.rank, "rank", 0, 0, unbounded, "this is engine `N` of --ranks, from 0; it uses its share of the NICs, and others if those fail")
	intFlag(cmd, &opts.ranks, "ranks", 0, 1, unbounded, "number `N` of engines that share the NICs of this host")
	fl.StringVar(&opts.dranet, "dranet", "", "answer dranet's webhook at `ADDRESS` (unix:///PATH): rail, leaf, role, PCIe switch and nearest GPU of each network device")
	fl.StringVar(&opts.fabric, "fabric", "", "with --dranet, `FILE` with the rail and leaf of each port (topoctl.fabric/v1)")
	fl.BoolVar(&opts.lists, "dranet-lists", false, "with --dranet, also attributes that are lists, which need the gate DRAListTypeAttributes")
	opts.transports.Add(cmd, "`TRANSPORT` to offer: rdma, tcp, shm, or auto for all that this host has; repeatable")
	opts.measured.Add(cmd)
	opts.addProbes(cmd)
	timeFlag(cmd, &opts.refresh, "refresh", time.Second, 0, unbounded, "check every `TIME` whether network ports have changed; 0 for never")
	fl.BoolVar(&opts.untilEOF, "until-eof", false, "also stop when standard input ends, for child processes and ssh")
	Offer(cmd, map[string]completer{"size": Words("256MiB", "1GiB")})
	mainFlags(cmd, "listen", "token-file", "grants", "http", "region", "transport", "serve-probes")
	Uses(cmd, "host-root", "timeout", "quiet", "verbose")
	Lasts(cmd)
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

// parse takes over the flags and refuses what makes no sense.
func (o *agentOptions) parse(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(checkTogether(cmd,
		flagRule{"fabric dranet-lists", needs, "dranet", ""},
		flagRule{"rank", needs, "ranks", ""},
		flagRule{"probe-memory probe-rate probe-time probe-targets", needs, "serve-probes", ""}),
		o.measured.Check(cmd), o.credentials.Check(cmd), o.registry.Check(), o.parseAddresses(), o.transports.Check(cmd), o.parseProbeTargets(), o.parseRegions()); err != nil {
		return err
	}
	if o.dranet != "" {
		if _, err := dranet.Socket(o.dranet); err != nil {
			return fmt.Errorf("--dranet %w", err)
		}
	}
	if cmd.Flags().Changed("ranks") && o.rank >= o.ranks {
		return fmt.Errorf("--rank %d: want 0 to %d", o.rank, o.ranks-1)
	}
	return nil
}

func (o *agentOptions) parseAddresses() error {
	for i, a := range o.listen {
		full, err := listenAddress(a, "", agentPort)
		if err != nil {
			return fmt.Errorf("--listen %w", err)
		}
		o.listen[i] = full
		if !o.credentials.Given() && !loopbackOnly(full) {
			return withHint(fmt.Errorf("--listen %s: a token or certificate is required, because other hosts could write to memory", a),
				"create one with (umask 077; head -c 32 /dev/urandom | base64 > token), and use --token-file token on both hosts; or see \"topoctl cert\"")
		}
	}
	return httpAddresses(o.http, o.credentials.Given())
}

func (o *agentOptions) parseRegions() error {
	typed := &o.typed
	add := func(name string, size int64, at string, grant memory.Grant) {
		o.regions = append(o.regions, agent.Region{Bytes: size, RegionOptions: engine.RegionOptions{Name: name, Grant: grant, Location: pathsel.Location(at)}})
	}
	if typed.size > 0 {
		add(benchRegion, typed.size, "", memory.PeerRead|memory.PeerWrite)
	}
	for _, r := range typed.regions {
		name, text, ok := strings.Cut(r, "=")
		grant := memory.PeerRead | memory.PeerWrite
		text, readOnly := strings.CutSuffix(text, ":read")
		if readOnly {
			grant = memory.PeerRead
		}
		text, at, located := strings.Cut(text, "@")
		if !ok || name == "" || located && at == "" {
			return fmt.Errorf("--region %q: want NAME=SIZE or NAME=SIZE@LOCATION, with :read behind it to keep peers from writing", r)
		}
		size, err := parseBytes(text)
		if err != nil {
			return fmt.Errorf("--region %q: %w", r, err)
		}
		if slices.ContainsFunc(o.regions, func(have agent.Region) bool { return have.Name == name }) {
			return fmt.Errorf("--region %q: region %s is given twice", r, name)
		}
		add(name, size, at, grant)
	}
	return nil
}

func (o *agentOptions) run(ctx context.Context) error {
	log := o.logger()
	credentials, err := o.credentials.Read(ctx, o.Host, log)
	if err != nil {
		return err
	}
	var allowed *agent.File
	if o.grants != "" {
		if allowed, err = agent.Open(o.grants); err != nil {
			return fmt.Errorf("--grants %w", err)
		}
	}
	look := agent.PortState(o.Globals.HostRoot)
	seen := look()
	t, err := o.Find(ctx)
	if err != nil {
		return err
	}
	if o.Globals.Verbose {
		o.Say(t)
	}
	if err := o.locate(t); err != nil {
		return err
	}
	if o.name == "" {
		if o.name, err = os.Hostname(); err != nil {
			return fmt.Errorf("--name is required: %w", err)
		}
	}
	if o.untilEOF {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		go func() { // ends with the process: nothing ends a read of standard input
			io.Copy(io.Discard, o.Streams.In) //nolint:errcheck // its end is what is waited for
			stop()
		}()
	}
	rates, err := o.measured.Start(o.Host, t)
	if err != nil {
		return err
	}
	beside, err := o.webhook(ctx)
	if err != nil {
		return err
	}
	names, err := o.registry.Open(ctx, o.Host, log)
	if err != nil {
		return err
	}
	if names != nil {
		defer func() {
			if err := names.Close(); err != nil && log != nil {
				log.Warn("closing the registry", "error", err)
			}
		}()
	}
	var printed error
	err = agent.Run(ctx, agent.Options{
		Engine: engine.Options{Name: o.name, Listen: o.listen, Advertise: o.advertise, Security: engine.Security{Credentials: credentials, Protection: o.transports.Protection},
			Ports: engine.Ports{Topology: t, Overlay: rates, LocalRank: o.rank, LocalSize: o.ranks}, Logger: log, Transports: o.transports.Factories(o.transports.Names...),
			Registry: names, Serves: o.serves()},
		Regions: o.regions, Grants: allowed, HTTP: o.http, HostMetrics: o.hostMetrics, Probe: o.prober(),
		Rediscover: o.Find, PortState: look, InitialPortState: seen, PollInterval: o.refresh,
		Ready: func(i agent.Info) { printed = o.print(i) }, Beside: beside,
	})
	return errors.Join(listenHint(err), printed)
}

// webhook prepares the answers to dranet, nil for none.
func (o *agentOptions) webhook(ctx context.Context) (func(context.Context, func() *topo.Topology) (agent.Service, error), error) {
	if o.dranet == "" {
		return nil, nil //nolint:nilnil // it was not asked for
	}
	path, err := dranet.Socket(o.dranet)
	if err != nil {
		return nil, fmt.Errorf("--dranet %w", err)
	}
	file, err := o.ReadFabric(ctx, o.fabric)
	if err != nil {
		return nil, err
	}
	d := dranet.Options{Host: o.name, Lists: o.lists}
	if file != nil {
		d.Network = fleet.FromFabric(file, o.fabric)
	}
	return func(ctx context.Context, topology func() *topo.Topology) (agent.Service, error) {
		d.Topology = topology
		return dranet.Serve(ctx, path, d)
	}, nil
}

// serves is what the registry tells others that this agent is good for.
func (o *agentOptions) serves() []string {
	const most = 32 // regions; peers ask the agent for the others
	var out []string
	if o.probes {
		out = append(out, servesProbes)
	}
	for _, r := range o.regions[:min(len(o.regions), most)] {
		out = append(out, "region:"+r.Name)
	}
	return out
}

// hostMetrics looks at this host and gives its metrics.
func (o *agentOptions) hostMetrics(ctx context.Context) ([]byte, error) {
	t, err := o.Find(ctx)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = metrics(&out, t, false)
	return out.Bytes(), err
}

// locate puts regions that say where they are there.
func (o *agentOptions) locate(t *topo.Topology) error {
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return err
	}
	for i := range o.regions {
		r := &o.regions[i]
		if r.Location == "" {
			continue
		}
		if !slices.Contains(h.Locations(), r.Location) {
			return unknownLocation(fmt.Errorf("--region %s: this host has no location %q", r.Name, r.Location), h.Locations())
		}
		r.Memory.Nodes = nodesAt(t, r.Location)
	}
	return nil
}

// listenHint says what to do where an address is taken, or is not this host's.
func listenHint(err error) error {
	return advise(advise(err, peerAdvice...),
		advice{syscall.EADDRINUSE, "another program, perhaps another agent, uses this port; port 0 chooses a free one"},
		advice{syscall.EADDRNOTAVAIL, "this is not an address of this host; \":" + agentPort + "\" listens on all of them, and --advertise tells peers another"})
}

// logger writes what the engine notes to stderr.
func (o *agentOptions) logger() *slog.Logger {
	if o.Globals.Quiet {
		return nil
	}
	level := slog.LevelInfo
	if o.Globals.Verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(o.Streams.Err, &slog.HandlerOptions{Level: level}))
}

// agentReady is what an agent says of itself when it can be reached.
type agentReady struct {
	Schema     string               `json:"schema"`
	Name       string               `json:"name"`
	Epoch      uint64               `json:"epoch,string"`
	PID        int                  `json:"pid"`
	Addresses  []string             `json:"addresses"`
	Advertised []engine.Advertised  `json:"advertised"`
	HTTP       []string             `json:"http"`
	Regions    []engine.RegionStats `json:"regions"`
	// Unavailable are the transports that this host cannot have, and why.
	Unavailable []string `json:"unavailable"`
	// Probes are what "topoctl probe fabric" may do here, null nothing.
	Probes *measure.Limits `json:"probe_limits"`
	// Client is the command to run at the other end, null without the region for it.
	Client *string `json:"client"`

	everywhere []string // of the addresses that HTTP is served at, those that are all of the host
}

func (o *agentOptions) print(i agent.Info) error {
	r := agentReady{Schema: schemaAgent, Name: i.Name, Epoch: i.Epoch, PID: os.Getpid(), Addresses: i.Addresses,
		Advertised: i.Advertised, HTTP: usableAddress(i), Regions: i.Regions, Unavailable: i.Unavailable, Client: o.client(i), everywhere: unspecified(i.HTTP)}
	if o.probes {
		r.Probes = &o.limits
	}
	if o.Format == formatJSON {
		line, err := jsonLine(r)
		if err != nil {
			return err
		}
		return Write(o.Streams.Out, line)
	}
	return Write(o.Streams.Out, []byte(report.Finish(r.text())))
}

// usableAddress are addresses to ask HTTP at: one that stands for all addresses of the host
// is none.
func usableAddress(i agent.Info) []string { return reachableAddress(i.HTTP, hostOf(i.Advertised)) }

// reachableAddress puts a host in the place of addresses that stand for all of them.
func reachableAddress(list []string, host string) []string {
	out := []string{}
	for _, h := range list {
		at, err := netip.ParseAddrPort(h)
		if err == nil && at.Addr().IsUnspecified() {
			h = net.JoinHostPort(host, strconv.Itoa(int(at.Port())))
		}
		out = append(out, h)
	}
	return out
}

// unspecified are the addresses that stand for all of the host.
func unspecified(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(h string) bool {
		at, err := netip.ParseAddrPort(h)
		return err != nil || !at.Addr().IsUnspecified()
	})
}

// hostOf is the host that peers are told first.
func hostOf(list []engine.Advertised) string {
	for _, a := range list {
		if host, _, err := net.SplitHostPort(a.Address); err == nil && a.Transport == "tcp" {
			return host
		}
	}
	return "localhost"
}

// client is the command that uses the agent from where it is advertised.
func (o *agentOptions) client(i agent.Info) *string {
	if !slices.ContainsFunc(i.Regions, func(r engine.RegionStats) bool { return r.Name == benchRegion }) {
		return nil
	}
	at := ""
	for _, a := range i.Advertised {
		if a.Transport == "tcp" {
			at = a.Address
			break
		}
	}
	if at == "" && len(i.Addresses) > 0 {
		at = i.Addresses[0]
	}
	line := "topoctl bench --peer " + at
	if i.Registered {
		line = "topoctl bench --registry " + text.ShellQuote(o.registry.URL) + " --peer " + text.ShellQuote(i.Name)
	}
	f := &o.credentials.Files
	switch {
	case f.Token == "":
	case f.Token == "-", o.credential(f.Token):
		line += " --token-file FILE"
	default:
		line += " --token-file " + f.Token
	}
	if f.CA != "" {
		line += " --cert-file FILE --key-file FILE --ca-file FILE" // of that host
	}
	return &line
}

// credential says whether a file is one that systemd shows to this service alone.
func (o *agentOptions) credential(file string) bool {
	dir := o.Streams.Getenv("CREDENTIALS_DIRECTORY")
	return dir != "" && filepath.Dir(file) == filepath.Clean(dir)
}

func (r *agentReady) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "agent %s listens on %s\n", r.Name, strings.Join(r.Addresses, ", "))
	for _, g := range r.Regions {
		may := map[[2]bool]string{{true, true}: "peers read and write", {true, false}: "peers read", {false, true}: "peers write"}[[2]bool{g.Read, g.Write}]
		at := ""
		if g.Location != "" {
			at = " at " + g.Location
		}
		fmt.Fprintf(&b, "  region %-10s %s%s, %s\n", g.Name, units.Bytes(g.Bytes), at, may)
		for _, n := range g.Notes {
			fmt.Fprintf(&b, "    %s\n", n)
		}
	}
	for _, a := range r.Advertised {
		line := string("  "+a.Transport+" at ") + a.Address
		switch {
		case a.Transport == "rdma": // its address is for machines
			line = "  rdma at " + a.Port.Name()
			if a.BytesPerSec > 0 {
				line += ", " + a.BytesPerSec.String()
			}
		case a.Port != "":
			line += " (" + a.Port.Name() + ")"
		}
		if a.Reason != "" {
			line += ": " + a.Reason
		}
		b.WriteString(line + "\n")
	}
	for _, u := range r.Unavailable {
		fmt.Fprintf(&b, "  without %s\n", u)
	}
	for _, h := range r.HTTP {
		fmt.Fprintf(&b, "  http://%s/metrics, /metrics/host, /v1/topology, /v1/engine, /healthz\n", h)
	}
	for _, h := range r.everywhere {
		fmt.Fprintf(&b, "    HTTP at %s answers every host that reaches it, without a token\n", h)
	}
	b.WriteString(probesText(r.Probes))
	if r.Client != nil {
		where := "on the other host"
		if !slices.ContainsFunc(r.Addresses, func(a string) bool { return !loopbackOnly(a) }) {
			where = "on this host, in another terminal"
		}
		fmt.Fprintf(&b, "Run %s:\n  %s\n", where, *r.Client)
	}
	return b.String()
}

// What controllers may do with an agent unless its flags say otherwise.
const (
	probeMemory = 1 << 30
	probeTime   = 10 * time.Minute
)

// addProbes adds the flags of what an agent lets controllers measure.
func (o *agentOptions) addProbes(cmd *cobra.Command) {
	fl, typed := cmd.Flags(), &o.typed
	fl.BoolVar(&o.probes, "serve-probes", false, "allow \"topoctl probe fabric\" to measure between this host and others")
	fl.StringSliceVar(&typed.probeTargets, "probe-targets", nil, "let probes connect to `NETWORK` (10.0.0.0/8), HOST or HOST:PORT only; repeatable (default: this host's networks)")
	Var(cmd, &o.limits.MemoryBytes, "probe-memory", sizeText(probeMemory), "memory that a probe may use (`SIZE`)", parseBytes)
	Var(cmd, &o.limits.BytesPerSec, "probe-rate", "", "rate at which a probe may send (`RATE`), such as 10Gb/s (default: no limit)", parseRate)
	timeFlag(cmd, &o.limits.Duration, "probe-time", probeTime, 1, unbounded, "time that a probe may take for each pair (`TIME`)")
	Offer(cmd, map[string]completer{"probe-memory": Words("256MiB", "1GiB"), "probe-rate": Words("10Gb/s")})
}

func (o *agentOptions) parseProbeTargets() (err error) {
	if len(o.typed.probeTargets) > 0 {
		if o.targets, err = measure.ParseTargets(o.typed.probeTargets); err != nil {
			return fmt.Errorf("--probe-targets %w", err)
		}
	}
	return nil
}

// prober says what controllers may do, nil nothing.
func (o *agentOptions) prober() *measure.ServerOptions {
	if !o.probes {
		return nil
	}
	s := &measure.ServerOptions{Limits: o.limits, Targets: o.targets, Transports: map[string]engine.TransportFactory{}}
	if s.Targets == nil && !slices.ContainsFunc(o.listen, func(a string) bool { return !loopbackOnly(a) }) {
		s.Targets = measure.LoopbackTargets // where the peers of this agent are
	}
	for _, name := range transportNames {
		if list := o.transports.Factories(name); len(list) == 1 && o.transports.Offers(name) {
			s.Transports[name] = list[0]
		}
	}
	if o.Globals.HostRoot != "" {
		s.Sysfs = filepath.Join(o.Globals.HostRoot, "sys")
	}
	return s
}

// probesText says in an agent's first words what controllers may do.
func probesText(l *measure.Limits) string {
	if l == nil {
		return "  no probes\n"
	}
	text := fmt.Sprintf("  probes with %s of memory, %s for a pair at most", units.Bytes(l.MemoryBytes), l.Duration)
	if l.BytesPerSec > 0 {
		text += ", " + units.Rate(l.BytesPerSec, units.Auto)
	}
	return text + "\n"
}
