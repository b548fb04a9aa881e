package cli

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/redact"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/units"
)

type discoverOptions struct {
	*Host
	redact  bool
	strict  bool
	capture string
}

func newDiscoverCmd(f *Env) *cobra.Command {
	opts := &discoverOptions{Host: f.Host()}
	cmd := newCommand(opts, "discover", "Print the topology of a host as a JSON document")
	fl := cmd.Flags()
	fl.StringSliceVar(&opts.Sources, "sources", nil, "use only these `SOURCES` ("+strings.Join(discover.SourceNames(), ", ")+"); sysfs is always used")
	fl.BoolVar(&opts.redact, "redact", false, "replace names, serial numbers, UUIDs, GUIDs, and MAC and IP addresses with placeholders")
	fl.BoolVar(&opts.strict, "strict", false, "exit with code 2 if anything could not be read")
	fl.StringVar(&opts.capture, "capture", "", "also write a redacted capture of the host to `FILE`; with -, print it instead of the document")
	Offer(cmd, map[string]completer{"sources": WordList(discover.SourceNames()...)})
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatJSON, formatYAML, formatTable, formatTSV)
	return cmd
}

func (*discoverOptions) parse(cmd *cobra.Command, _ []string) error {
	return checkTogether(cmd, flagRule{"with", excludes, "capture", ""})
}

func (o *discoverOptions) run(ctx context.Context) error {
	if o.capture != "" {
		if done, err := o.writeCapture(ctx); done || err != nil {
			return err
		}
	}
	t, err := o.Find(ctx)
	if err != nil {
		return err
	}
	if o.redact {
		t = redact.New(t).Topology(t)
	}
	o.Say(t)
	if err := o.printHost(t); err != nil {
		return err
	}
	return incomplete(t, o.strict)
}

func (o *discoverOptions) printHost(t *topo.Topology) error {
	if o.Format == formatTable || o.Format == formatTSV {
		rows := o.table(t)
		return o.print(answer{rows: rows.TSV, text: func() string { return o.Streams.tableText(rows) }}, OutFile{})
	}
	return printTopology(o.Host, t)
}

// printTopology prints a topology as a document.
func printTopology(in *Host, t *topo.Topology) error {
	data, err := safeJSON(t.Encode())
	if err == nil && in.Format == formatYAML {
		data, err = toYAML(data)
	}
	if err != nil {
		return err
	}
	return Write(in.Streams.Out, data)
}

// table lists the devices that a transfer can use, one a line.
func (o *discoverOptions) table(t *topo.Topology) *report.Table {
	out := &report.Table{Head: []string{"KIND", "NAME", "PCI", "NUMA", "RATE", "STATE", "MODEL"}}
	system := units.System(o.Globals.Units)
	x := topo.NewIndex(t)
	model := func(function topo.ID) string {
		if d := x.PCIDevice(function); d != nil {
			return d.DeviceName
		}
		return ""
	}
	link := func(function topo.ID) string {
		if l := x.LinkAbove(function); l != nil {
			return rateOf(l.BytesPerSec, system.Or(units.Gbyte))
		}
		return ""
	}
	for i := range t.GPUs {
		g := &t.GPUs[i]
		out.Add("gpu", "GPU"+strconv.Itoa(g.Index), addressOf(g.BDF), numberOf(g.NUMA),
			link(g.PCI), "", cmp.Or(g.Model, model(g.PCI), g.Vendor))
	}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		for _, p := range x.Ports(r.ID) {
			out.Add("rdma", r.Name+"/"+strconv.Itoa(p.Number), addressOf(r.BDF), numberOf(r.NUMA),
				rateOf(p.BytesPerSec, system.Or(units.Gbit)), p.State, model(r.PCI))
		}
		if len(x.Ports(r.ID)) == 0 {
			out.Add("rdma", r.Name, addressOf(r.BDF), numberOf(r.NUMA), "", "", model(r.PCI))
		}
	}
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		out.Add("net", n.Name, addressOf(n.BDF), numberOf(n.NUMA), rateOf(n.BytesPerSec, system.Or(units.Gbit)), n.State, model(n.PCI))
	}
	for i := range t.NVMes {
		n := &t.NVMes[i]
		out.Add("nvme", n.Name, addressOf(n.BDF), numberOf(n.NUMA), link(n.PCI), "",
			cmp.Or(n.Model, model(n.PCI)))
	}
	for i := range t.NVSwitches {
		s := &t.NVSwitches[i]
		out.Add("nvswitch", s.ID.Name(), addressOf(s.BDF), numberOf(s.NUMA), link(s.PCI), "", model(s.PCI))
	}
	return out
}

func addressOf(b *topo.BDF) string {
	if b == nil {
		return ""
	}
	return b.String()
}

func numberOf(v *int) string {
	if v == nil {
		return "?"
	}
	return strconv.Itoa(*v)
}

func rateOf(r *topo.Rate, system units.System) string {
	if r == nil {
		return ""
	}
	return units.Rate(int64(*r), system)
}

// writeCapture writes the capture; done says that it took the place of the
// document on stdout.
func (o *discoverOptions) writeCapture(ctx context.Context) (done bool, err error) {
	place, err := o.Locate(ctx)
	if err != nil {
		return false, err
	}
	limited, stop := o.Waiting(ctx)
	defer stop()
	var data strings.Builder
	if err := discover.Capture(limited, place, &data); err != nil {
		return false, o.TimeoutHint(err)
	}
	if o.capture == "-" {
		return true, Write(o.Streams.Out, []byte(data.String()))
	}
	return false, writeFile(o.capture, []byte(data.String()), ownerOnly)
}
