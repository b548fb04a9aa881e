package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	model "github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/collect"
	"github.com/topoctl/topoctl/internal/fleet/export"
	engines "github.com/topoctl/topoctl/pathsel/export"
)

type fleetExportOptions struct {
	*Host
	format string
	args   []string
	fabric string
	out    OutFile

	node      string // --node: a host of the fleet
	namespace string
	name      string
	class     string
	engine    string
	gpus      int
	lists     bool

	read, failed int   // topologies that the format needed again
	unread       error // of the last that could not be read
}

// fleetExportFormat is one thing that export writes, and the flags that mean something to it alone.
type fleetExportFormat struct {
	name, about string
	flags       []string
	needs       fleetNeed // else there is nothing to write
	write       func(*fleetExportOptions, context.Context, *model.Fleet) (export.Output, error)
}

// fleetNeed is what a format has to know of the fleet beside its hosts.
type fleetNeed int

const (
	hosts           fleetNeed = iota // nothing more
	cables                           // of some host
	cablesOrDomains                  // or the NVLink domain of some host
)

// met is the error of a fleet of which that is not known.
func (n fleetNeed) met(f *model.Fleet) error {
	cabled := slices.ContainsFunc(f.Hosts, func(h model.Host) bool {
		return slices.ContainsFunc(h.Ports, func(p model.Port) bool { return p.Leaf != "" })
	})
	var err error
	switch {
	case n == hosts || cabled || n == cablesOrDomains && len(f.Domains) > 0:
		return nil
	case n == cables:
		err = errors.New("nothing to write: no cable of a host is known")
	default:
		err = errors.New("nothing to write: neither a cable nor the NVLink domain of a host is known")
	}
	return WithHint(err, "give --fabric what \"topoctl fleet fabric\" has written")
}

// fleetPlain is a format that the fleet alone makes.
func fleetPlain(write func(*model.Fleet) export.Output) func(*fleetExportOptions, context.Context, *model.Fleet) (export.Output, error) {
	return func(_ *fleetExportOptions, _ context.Context, f *model.Fleet) (export.Output, error) {
		return write(f), nil
	}
}

// fleetExportFormats lists the formats in the order of the help.
func fleetExportFormats() []fleetExportFormat {
	return []fleetExportFormat{
		{"slurm-tree", "Slurm's topology.conf for topology/tree", nil, cables, fleetPlain(export.SlurmTree)},
		{"slurm-block", "Slurm's topology.conf for topology/block", nil, cablesOrDomains, fleetPlain(export.SlurmBlock)},
		{"slurm-yaml", "Slurm's topology.yaml", nil, cablesOrDomains, fleetPlain(export.SlurmYAML)},
		{"k8s-labels", "kubectl commands that label nodes", nil, hosts, fleetPlain(export.NodeLabels)},
		{"nfd", "a feature file of Node Feature Discovery", []string{"node"}, hosts, (*fleetExportOptions).featureFile},
		{"nodefeature", "NodeFeatures of Node Feature Discovery", []string{"namespace"}, hosts, (*fleetExportOptions).nodeFeatures},
		{"kueue", "a Topology of Kueue", []string{"name"}, cables, (*fleetExportOptions).kueue},
		{"hypernode", "HyperNodes of Volcano", nil, cables, fleetPlain(export.HyperNodes)},
		{"dra-claim", "ResourceClaimTemplates for each class of hosts", []string{"gpus"}, hosts, (*fleetExportOptions).claims},
		{"dra-attributes", "attributes of network devices, as JSON", []string{"lists"}, hosts, (*fleetExportOptions).attributes},
		{"env", "variables for an engine on all hosts of a class", []string{"class", "for"}, hosts, (*fleetExportOptions).env},
		{"topograph-model", "a model for topograph's simulator", nil, cables, fleetPlain(export.TopographModel)},
		{"ibsim", "a net file of ibsim", nil, cables, fleetPlain(export.Ibsim)},
		{"dot", "the network as a graph for Graphviz", nil, cables, fleetPlain(export.DOT)},
		{"svg", "the network as a drawing", nil, cables, fleetPlain(export.SVG)},
	}
}

func (o *fleetExportOptions) featureFile(_ context.Context, f *model.Fleet) (export.Output, error) {
	return export.FeatureFile(f, o.node)
}

func (o *fleetExportOptions) nodeFeatures(_ context.Context, f *model.Fleet) (export.Output, error) {
	return export.NodeFeatures(f, o.namespace), nil
}

func (o *fleetExportOptions) kueue(_ context.Context, f *model.Fleet) (export.Output, error) {
	return export.KueueTopology(f, o.name), nil
}

func (o *fleetExportOptions) claims(ctx context.Context, f *model.Fleet) (export.Output, error) {
	return export.Claims(f, o.documents(ctx), o.gpus)
}

func (o *fleetExportOptions) attributes(ctx context.Context, f *model.Fleet) (export.Output, error) {
	out, err := export.DeviceAttributes(f, o.documents(ctx), o.lists)
	if err == nil {
		out.Data, err = SafeJSON(out.Data, nil)
	}
	return out, err
}

func (o *fleetExportOptions) env(ctx context.Context, f *model.Fleet) (export.Output, error) {
	return export.Env(f, o.documents(ctx), o.class, engines.Engine(o.engine))
}

func newFleetExportCmd(f *Env, runF func(context.Context, *fleetExportOptions) error) *cobra.Command {
	opts := &fleetExportOptions{Host: f.Host()}
	var formats strings.Builder
	for _, e := range fleetExportFormats() {
		fmt.Fprintf(&formats, "\n  %-15s  %s", e.name, e.about)
	}
	cmd := &cobra.Command{
		Use:   "export FORMAT FLEET | SOURCE...",
		Short: "Write a fleet and its network for schedulers and other tools",
		Long: "export writes a fleet for another program:\n" + formats.String() + "\n\n" +
			"Most need to know how hosts are cabled: give --fabric what \"topoctl fleet fabric\" has written.\n" +
			"What a format has no place for is told, and stands in a comment of the file.\n\n" +
			"docs/fleet-export.md describes each format.",
		Example: "  topoctl fleet export slurm-tree fleet --fabric fabric.json --out-file topology.conf\n" +
			"  topoctl fleet export dra-claim fleet --gpus 4\n" +
			"  topoctl fleet export env fleet --for nccl --class c-462d55d8",
		Args:              fleetExportArgs,
		ValidArgsFunction: fleetExportNames,
		RunE:              Action(opts, opts.parse, runF),
	}
	fl := cmd.Flags()
	fl.StringVar(&opts.fabric, "fabric", "", "`FILE` with the rail and leaf of each port, and uplinks (topoctl.fabric/v1)")
	fl.StringVar(&opts.node, "node", "", "nfd: the `HOST` that the file is for")
	fl.StringVar(&opts.namespace, "namespace", "node-feature-discovery", "nodefeature: `NAMESPACE` of the objects")
	fl.StringVar(&opts.name, "name", "topoctl", "kueue: `NAME` of the Topology")
	fl.StringVar(&opts.class, "class", "", "env: the `CLASS` of hosts, as \"fleet show\" has it (default: the only one)")
	fl.StringVar(&opts.engine, "for", "", "env: write variables for `ENGINE`: "+Either(fleetEngineWords()))
	fl.IntVar(&opts.gpus, "gpus", 0, "dra-claim: GPUs of a claim, `N` (default: all of a host)")
	fl.BoolVar(&opts.lists, "lists", false, "dra-attributes: also attributes that are lists, which need the gate DRAListTypeAttributes")
	fl.Lookup("gpus").DefValue = "all"
	opts.out.Add(cmd)
	Offer(cmd, map[string]Completer{"for": Words(fleetEngineWords()...)})
	for _, e := range fleetExportFormats() {
		FlagsWith(cmd, e.name, e.flags...)
	}
	mainFlags(cmd, "fabric", "for", "class", "out-file")
	Uses(cmd, "from", "timeout", "quiet")
	TakesLong(cmd)
	Prints(cmd, "the format of the other program, FORMAT")
	return cmd
}

func fleetEngineWords() []string {
	var out []string
	for _, e := range engines.Engines() {
		out = append(out, string(e))
	}
	return out
}

func fleetFormatNames() []string {
	var out []string
	for _, e := range fleetExportFormats() {
		out = append(out, e.name)
	}
	return out
}

// fleetExportArgs wants a format that exists.
func fleetExportArgs(_ *cobra.Command, args []string) error {
	names := fleetFormatNames()
	switch {
	case len(args) == 0:
		return WithHint(errors.New("no format"), "formats: %s", strings.Join(names, ", "))
	case !slices.Contains(names, args[0]):
		return Suggest(fmt.Errorf("unknown format %q", args[0]), args[0], names, "formats: "+strings.Join(names, ", "))
	}
	return nil
}

// fleetExportNames offers formats, then fleets, to the shell.
func fleetExportNames(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return HostArgs(typed, "")
	}
	var out []string
	for _, e := range fleetExportFormats() {
		out = append(out, cobra.CompletionWithDesc(e.name, e.about))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (o *fleetExportOptions) parse(cmd *cobra.Command, args []string) error {
	o.format = args[0]
	format := o.chosen()
	var others []string
	for _, e := range fleetExportFormats() {
		others = append(others, e.flags...)
	}
	others = slices.DeleteFunc(others, func(name string) bool { return slices.Contains(format.flags, name) })
	if err := errors.Join(NoEffect(cmd, "with "+format.name, others...), NotEmpty(cmd, "fabric", "node", "namespace", "name", "class", "out-file"), o.out.Check()); err != nil {
		return err
	}
	var err error
	if o.args, err = fleetArgs(o.Host, args[1:]); err != nil {
		return err
	}
	switch {
	case o.format == "nfd" && o.node == "":
		return WithHint(errors.New("--node is required"), "a feature file is for one host: --node HOST")
	case o.format == "env" && o.engine == "":
		return WithHint(errors.New("--for is required"), "--for ENGINE: %s", Either(fleetEngineWords()))
	case o.format == "env" && !slices.Contains(fleetEngineWords(), o.engine):
		return WithHint(fmt.Errorf("--for %q: want an engine", o.engine), "--for ENGINE: %s", Either(fleetEngineWords()))
	case cmd.Flags().Changed("gpus") && o.gpus < 1:
		return fmt.Errorf("--gpus %d: want 1 or more", o.gpus)
	}
	return nil
}

// chosen is the format that was asked for.
func (o *fleetExportOptions) chosen() fleetExportFormat {
	all := fleetExportFormats()
	return all[slices.IndexFunc(all, func(e fleetExportFormat) bool { return e.name == o.format })]
}

func runFleetExport(ctx context.Context, o *fleetExportOptions) error {
	n, err := fleetNetwork(ctx, o.Host, o.fabric)
	if err != nil {
		return err
	}
	f, err := loadFleet(ctx, o.Host, o.args, n)
	if err != nil {
		return err
	}
	if err := someReached(f); err != nil {
		return err
	}
	if err := o.chosen().needs.met(f); err != nil {
		return err
	}
	out, err := o.chosen().write(o, ctx, f)
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	if o.failed > 0 && o.read == 0 {
		return o.unread
	}
	for _, line := range out.Notes {
		fleetNote(o.Host, line)
	}
	if len(out.Data) == 0 {
		return errors.New("nothing to write: all of it was left out")
	}
	if err := o.out.Write(o.Streams, out.Data); err != nil {
		return err
	}
	noteUnreached(o.Host, f)
	if len(f.Missing()) > 0 || o.failed > 0 {
		return ErrPartial
	}
	return nil
}

// documents reads the topologies of hosts: those that the fleet's document names, or else the sources
// again that the fleet was put together from.
func (o *fleetExportOptions) documents(ctx context.Context) export.Documents {
	dir := o.args[0]
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	return func(h *model.Host) (*topo.Topology, error) {
		if err := ctx.Err(); err != nil { // also where all that is left is to compute
			return nil, err
		}
		t, err := o.document(ctx, h, dir)
		if err != nil {
			o.failed, o.unread = o.failed+1, err
		} else {
			o.read++
		}
		return t, err
	}
}

// document reads the topology of a host.
func (o *fleetExportOptions) document(ctx context.Context, h *model.Host, dir string) (*topo.Topology, error) {
	if h.Document != "" {
		return o.stored(ctx, h, filepath.Join(dir, filepath.FromSlash(h.Document)))
	}
	if strings.HasSuffix(h.Source, StdinName) {
		return nil, WithHint(fmt.Errorf("%s: its topology is needed again, and standard input is read once", h.Host), "collect into a folder first: topoctl fleet collect - --out-dir DIR")
	}
	sources, err := describedFile(o.Host, o.args)
	if err != nil {
		return nil, err
	}
	for s, err := range sources {
		if err == nil && s.Name == h.Host {
			data, err := s.Read(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", h.Host, err)
			}
			return o.Decode(ctx, s.From, data)
		}
	}
	return nil, fmt.Errorf("%s: its topology is not there", h.Host)
}

// stored reads a document, which must be the one that the fleet is of.
func (o *fleetExportOptions) stored(ctx context.Context, h *model.Host, file string) (*topo.Topology, error) {
	data, sum, err := collect.Document(file)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", h.Host, err)
	case h.SHA256 != "" && sum != h.SHA256:
		return nil, fmt.Errorf("%s: %s is not the document that the fleet was made of: collect again", h.Host, file)
	}
	return o.Decode(ctx, file, data)
}
