package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
)

type exportOptions struct {
	*Host
	format exportFormat[exportWriter]
	out    OutFile

	vars     export.EnvOptions
	visible  string
	skeleton bool
	theme    picture.Theme
	allPairs bool
}

// exportWriter writes a topology in a format.
type exportWriter func(*exportOptions, io.Writer, *topo.Topology) error

// hostFormats are what export writes.
func hostFormats() exportFormats[exportWriter] {
	return exportFormats[exportWriter]{
		{"mooncake", "Mooncake's NIC priority matrix (MC_CUSTOM_TOPO_JSON)", []string{"visible"}, (*exportOptions).mooncake},
		{"nccl-xml", "NCCL's topology file (NCCL_TOPO_FILE)", []string{"skeleton"}, (*exportOptions).ncclXML},
		{"env", "variables for " + either(engineWords()), []string{"for", "rank", "ranks", "visible", "topology-file"}, (*exportOptions).env},
		{"dot", "a graph for Graphviz", []string{"units"}, (*exportOptions).dot},
		{"svg", "a drawing", []string{"theme", "units"}, (*exportOptions).svg},
		{"prometheus", "metrics for node_exporter's textfile collector", []string{"all-pairs"}, (*exportOptions).prometheus},
	}
}

func newExportCmd(f *Env) *cobra.Command {
	opts := &exportOptions{Host: f.Host()}
	formats := hostFormats()
	cmd := newCommand(opts, "export FORMAT", "Write settings and files for NCCL, UCX, Mooncake and other programs")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return formats.offer()
	}
	fl := cmd.Flags()
	opts.out.Add(cmd)
	wordFlag(cmd, &opts.vars.For, "for", "", "env: write variables for `ENGINE`: "+either(engineWords()), export.Engines())
	intFlag(cmd, &opts.vars.Rank, "rank", -1, 0, unbounded, "env: write only the settings of local rank `N`")
	intFlag(cmd, &opts.vars.Ranks, "ranks", 0, 1, unbounded, "env: number `N` of local ranks (default: one for each visible GPU)")
	fl.StringVar(&opts.visible, "visible", "", "mooncake, env: number GPUs by `LIST`, as in CUDA_VISIBLE_DEVICES (default: that of the environment, on this host)")
	fl.StringVar(&opts.vars.TopologyFile, "topology-file", "", "env for nccl or mooncake: `FILE` where the engine finds the exported topology")
	fl.BoolVar(&opts.skeleton, "skeleton", false, "nccl-xml: write only CPUs and PCI elements; NCCL adds the GPUs and NICs that it finds")
	wordFlag(cmd, &opts.theme, "theme", picture.ThemeAuto, "svg: `THEME`: "+either(picture.Themes()), []picture.Theme{picture.ThemeAuto, picture.ThemeLight, picture.ThemeDark})
	fl.BoolVar(&opts.allPairs, "all-pairs", false, "prometheus: write the paths from each GPU to every NIC, not only to preferred ones")
	fl.Lookup("rank").DefValue = "all"
	formats.flagsWith(cmd)
	mainFlags(cmd, "for", "rank", "visible", "out-file")
	Uses(cmd, inputFlags, "units")
	Prints(cmd, "the format of the other program, FORMAT")
	return cmd
}

func (o *exportOptions) parse(cmd *cobra.Command, args []string) (err error) {
	if o.format, err = hostFormats().choose(cmd, args); err != nil || o.format.name != "env" {
		return err
	}
	if cmd.Flags().Changed("topology-file") && o.vars.For != "" && !o.vars.For.TakesTopology() {
		return fmt.Errorf("--topology-file has no effect with %s", o.vars.For)
	}
	return wantEngine(o.vars.For)
}

func (o *exportOptions) run(ctx context.Context) error {
	t, err := o.Load(ctx)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := o.format.write(o, &out, t); err != nil {
		return err
	}
	if err := o.out.Write(o.Streams, out.Bytes()); err != nil {
		return err
	}
	return incomplete(t, false)
}

func (o *exportOptions) mooncake(w io.Writer, t *topo.Topology) error {
	h, v, err := o.host(t)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	notes, err := export.Mooncake(&buf, h, v)
	o.tell("note", notes...)
	data, err := safeJSON(buf.Bytes(), err)
	if err != nil {
		return err
	}
	return Write(w, data)
}

func (o *exportOptions) env(w io.Writer, t *topo.Topology) error {
	h, v, err := o.host(t)
	if err != nil {
		return err
	}
	o.vars.Visible = v
	return export.Env(w, h, o.vars)
}

func (o *exportOptions) ncclXML(w io.Writer, t *topo.Topology) error {
	if why := ncclxml.TooLarge(t, o.skeleton); why != "" {
		if !o.skeleton && ncclxml.TooLarge(t, true) == "" {
			why += "; --skeleton, which leaves out GPUs and NICs, does not"
		}
		o.tell("warning", why)
	}
	if !o.skeleton {
		return ncclxml.Encode(w, t)
	}
	o.tell("note", "NCCL adds the GPUs and NICs that it finds at these addresses; on another machine of this type the addresses must be its own")
	return ncclxml.EncodeSkeleton(w, t)
}

func (o *exportOptions) diagram() picture.Options {
	return picture.Options{Units: units.System(o.Globals.Units), Theme: o.theme}
}

func (o *exportOptions) dot(w io.Writer, t *topo.Topology) error {
	return picture.DOT(w, t, o.diagram())
}

func (o *exportOptions) svg(w io.Writer, t *topo.Topology) error {
	return picture.SVG(w, t, o.diagram())
}

func (o *exportOptions) prometheus(w io.Writer, t *topo.Topology) error {
	return metrics(w, t, o.allPairs)
}

// host prepares a host for decisions, with the GPUs that a job sees.
func (o *exportOptions) host(t *topo.Topology) (*pathsel.Host, export.Visible, error) {
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil, export.Visible{}, err
	}
	v := export.AllGPUs(t)
	if o.visible != "" {
		if v, err = v.Select(o.visible); err != nil {
			err = fmt.Errorf("--visible: %w", pkgerr.Plain(err))
		}
		return h, v, err
	}
	if !o.Globals.Described() && len(v.GPUs) > 0 {
		v, err = o.jobGPUs(v)
	}
	return h, v, err
}

// jobGPUs applies what this process was given to the GPUs: a list of CUDA's, or
// on AMD's GPUs one of the driver's library and then one of HIP's.
// Source: rocm.docs.amd.com, GPU isolation techniques.
func (o *exportOptions) jobGPUs(v export.Visible) (export.Visible, error) {
	names := []string{"CUDA_VISIBLE_DEVICES"}
	if v.GPUs[0].GPU.Vendor == "amd" {
		names = []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
		if o.Streams.Getenv("HIP_VISIBLE_DEVICES") == "" {
			names[1] = "CUDA_VISIBLE_DEVICES" // HIP takes it too
		}
	}
	for _, name := range names {
		list := o.Streams.Getenv(name)
		if list == "" {
			continue
		}
		selected, err := v.Select(list)
		if err != nil {
			return v, withHint(fmt.Errorf("%s: %w", name, pkgerr.Plain(err)), "use --visible LIST to override it")
		}
		v = selected
		v.Notes = append(v.Notes, fmt.Sprintf("GPUs are numbered by %s=%s from the environment", name, list))
	}
	return v, nil
}
