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
	format exportFormat[fleetWriter]
	args   []string
	fabric string
	out    OutFile

	node      string // --node: a host of the fleet
	namespace string
	name      string
	class     string
	engine    engines.Engine
	gpus      int
	lists     bool

	failed bool // a topology that the format needs could not be read again
}

// fleetWriter writes a fleet in a format.
type fleetWriter struct {
	needs fleetNeed // else there is nothing to write
	write func(*fleetExportOptions, context.Context, *model.Fleet) (export.Output, error)
}

// fleetNeed is what a format has to know of the fleet beside its hosts.
type fleetNeed int

const (
	needsHosts           fleetNeed = iota // nothing more
	needsCables                           // of some host
	needsCablesOrDomains                  // or the NVLink domain of some host
)

// met is the error of a fleet of which that is not known.
func (n fleetNeed) met(f *model.Fleet) error {
	cabled := slices.ContainsFunc(f.Hosts, func(h model.Host) bool {
		return slices.ContainsFunc(h.Ports, func(p model.Port) bool { return p.Leaf != "" })
	})
	var err error
	switch {
	case n == needsHosts || cabled || n == needsCablesOrDomains && len(f.Domains) > 0:
		return nil
	case n == needsCables:
		err = errors.New("nothing to write: no cable of a host is known")
	default:
		err = errors.New("nothing to write: neither a cable nor the NVLink domain of a host is known")
	}
	return withHint(err, "give --fabric what \"topoctl fleet fabric\" has written")
}

// fleetPlain is a format that needs no flags.
func fleetPlain(needs fleetNeed, write func(*model.Fleet) export.Output) fleetWriter {
	return fleetWriter{needs, func(_ *fleetExportOptions, _ context.Context, f *model.Fleet) (export.Output, error) {
		return write(f), nil
	}}
}

// fleetFormats are the formats of fleet export, with the flags that each takes.
func fleetFormats() exportFormats[fleetWriter] {
	type options = *fleetExportOptions
	type output = export.Output
	return exportFormats[fleetWriter]{
		{"slurm-tree", "Slurm's topology.conf for topology/tree", nil, fleetPlain(needsCables, export.SlurmTree)},
		{"slurm-block", "Slurm's topology.conf for topology/block", nil, fleetPlain(needsCablesOrDomains, export.SlurmBlock)},
		{"slurm-yaml", "Slurm's topology.yaml", nil, fleetPlain(needsCablesOrDomains, export.SlurmYAML)},
		{"k8s-labels", "kubectl commands that label nodes", nil, fleetPlain(needsHosts, export.NodeLabels)},
		{"nfd", "a feature file of Node Feature Discovery", []string{"node"},
			fleetWriter{needsHosts, func(o options, _ context.Context, f *model.Fleet) (output, error) {
				return export.FeatureFile(f, o.node)
			}}},
		{"nodefeature", "NodeFeatures of Node Feature Discovery", []string{"namespace"},
			fleetWriter{needsHosts, func(o options, _ context.Context, f *model.Fleet) (output, error) {
				return export.NodeFeatures(f, o.namespace), nil
			}}},
		{"kueue", "a Topology of Kueue", []string{"name"},
			fleetWriter{needsCables, func(o options, _ context.Context, f *model.Fleet) (output, error) {
				return export.KueueTopology(f, o.name), nil
			}}},
		{"hypernode", "HyperNodes of Volcano", nil, fleetPlain(needsCables, export.HyperNodes)},
		{"dra-claim", "ResourceClaimTemplates for each class of hosts", []string{"gpus"},
			fleetWriter{needsHosts, func(o options, _ context.Context, f *model.Fleet) (output, error) {
				return export.Claims(f, o.gpus), nil
			}}},
		{"dra-attributes", "attributes of network devices, as JSON", []string{"lists"},
			fleetWriter{needsHosts, func(o options, _ context.Context, f *model.Fleet) (output, error) {
				out, err := export.DeviceAttributes(f, o.lists)
				out.Data, err = safeJSON(out.Data, err)
				return out, err
			}}},
		{"env", "variables for an engine on all hosts of a class", []string{"class", "for"},
			fleetWriter{needsHosts, func(o options, ctx context.Context, f *model.Fleet) (output, error) {
				return export.Env(f, o.documents(ctx), o.class, o.engine)
			}}},
		{"topograph-model", "a model for topograph's simulator", nil, fleetPlain(needsCables, export.TopographModel)},
		{"ibsim", "a net file of ibsim", nil, fleetPlain(needsCables, export.Ibsim)},
		{"dot", "the network as a graph for Graphviz", nil, fleetPlain(needsCables, export.DOT)},
		{"svg", "the network as a drawing", nil, fleetPlain(needsCables, export.SVG)},
	}
}

func newFleetExportCmd(f *Env) *cobra.Command {
	opts := &fleetExportOptions{Host: f.Host()}
	formats := fleetFormats()
	cmd := newCommand(opts, "export FORMAT FLEET | SOURCE...", "Write a fleet and its network for schedulers and other tools")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return hostArgs(typed, "")
		}
		return formats.offer()
	}
	fl := cmd.Flags()
	fl.StringVar(&opts.fabric, "fabric", "", "`FILE` with the rail and leaf of each port, and uplinks (topoctl.fabric/v1)")
	fl.StringVar(&opts.node, "node", "", "nfd: the `HOST` that the file is for")
	fl.StringVar(&opts.namespace, "namespace", "node-feature-discovery", "nodefeature: `NAMESPACE` of the objects")
	fl.StringVar(&opts.name, "name", "topoctl", "kueue: `NAME` of the Topology")
	fl.StringVar(&opts.class, "class", "", "env: the `CLASS` of hosts, as \"fleet show\" has it (default: the only one)")
	wordFlag(cmd, &opts.engine, "for", "", "env: write variables for `ENGINE`: "+either(engineWords()), engines.Engines())
	intFlag(cmd, &opts.gpus, "gpus", 0, 1, unbounded, "dra-claim: GPUs of a claim, `N` (default: all of a host)")
	fl.BoolVar(&opts.lists, "lists", false, "dra-attributes: also attributes that are lists, which need the gate DRAListTypeAttributes")
	fl.Lookup("gpus").DefValue = "all"
	opts.out.Add(cmd)
	formats.flagsWith(cmd)
	mainFlags(cmd, "fabric", "for", "class", "out-file")
	Uses(cmd, "from", "timeout", "quiet")
	TakesLong(cmd)
	Prints(cmd, "the format of the other program, FORMAT")
	return cmd
}

func (o *fleetExportOptions) parse(cmd *cobra.Command, args []string) error {
	var err error
	if o.format, err = fleetFormats().choose(cmd, args); err != nil {
		return err
	}
	if err := o.out.Check(); err != nil {
		return err
	}
	if o.args, err = fleetArgs(o.Host, args[1:]); err != nil {
		return err
	}
	switch {
	case o.format.name == "nfd" && o.node == "":
		return withHint(errors.New("--node is required"), "a feature file is for one host: --node HOST")
	case o.format.name == "env":
		return wantEngine(o.engine)
	}
	return nil
}

func (o *fleetExportOptions) run(ctx context.Context) error {
	f, err := loadFleet(ctx, o.Host, o.args, o.fabric)
	if err != nil {
		return err
	}
	if err := someReached(f); err != nil {
		return err
	}
	if err := o.format.write.needs.met(f); err != nil {
		return err
	}
	out, err := o.format.write.write(o, ctx, f)
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	o.tell("note", out.Notes...)
	if len(out.Data) == 0 {
		return errors.New("nothing to write: all of it was left out")
	}
	if err := o.out.Write(o.Streams, out.Data); err != nil {
		return err
	}
	noteUnreached(o.Host, f)
	if len(f.Missing()) > 0 || o.failed {
		return errPartial
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
		o.failed = o.failed || err != nil
		return t, err
	}
}

// document reads the topology of a host.
func (o *fleetExportOptions) document(ctx context.Context, h *model.Host, dir string) (*topo.Topology, error) {
	if h.Document != "" {
		return o.stored(ctx, h, filepath.Join(dir, filepath.FromSlash(h.Document)))
	}
	if strings.HasSuffix(h.Source, stdinName) {
		return nil, fmt.Errorf("%s: its topology is needed again, and standard input is read once: "+
			"collect into a folder first (topoctl fleet collect - --out-dir DIR)", h.Host)
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
