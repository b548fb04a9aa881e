package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/remap"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/pathsel/export"
)

type remapOptions struct {
	*Host
	host, guest string
	maps        []string
	libvirt     string
	partial     bool
	out         OutFile
	pairs       map[topo.BDF]topo.BDF
}

func newRemapCmd(f *Env) *cobra.Command {
	opts := &remapOptions{Host: f.Host()}
	cmd := newCommand(opts, "remap", "Give a virtual machine the PCIe switches of its host")
	fl := cmd.Flags()
	fl.StringVar(&opts.host, "host", "", "topology of the hypervisor's `HOST`")
	fl.StringVar(&opts.guest, "guest", "", "topology of the `GUEST` (default: this host)")
	fl.StringArrayVar(&opts.maps, "map", nil, "pair the guest's PCI function with the host's (`GUEST=HOST`); repeatable")
	fl.StringVar(&opts.libvirt, "libvirt", "", "pair by the libvirt domain in `FILE`")
	fl.BoolVar(&opts.partial, "partial", false, "leave devices without a partner where the guest has them")
	opts.out.Add(cmd)
	Offer(cmd, map[string]completer{"host": hostFlag, "guest": hostFlag})
	Uses(cmd, "timeout", "quiet", "verbose")
	Formats(cmd, formatTable, formatJSON, formatTopology, formatNCCL, formatMooncake)
	return cmd
}

// parse takes over the flags and refuses what makes no sense.
func (o *remapOptions) parse(cmd *cobra.Command, _ []string) error {
	if o.host == "" {
		return withHint(errors.New("--host is required"), "\"topoctl discover > host.json\" on the hypervisor writes one")
	}
	if err := checkTogether(cmd, flagRule{"host=-", excludes, "guest=-", readOnce}); err != nil {
		return err
	}
	o.pairs = map[topo.BDF]topo.BDF{}
	for _, m := range o.maps {
		g, h, ok := strings.Cut(m, "=")
		if !ok {
			return fmt.Errorf("--map %q: want GUEST=HOST, two PCI addresses", m)
		}
		guest, err := topo.ParseBDF(g)
		host, err2 := topo.ParseBDF(h)
		if err = cmp.Or(err, err2); err != nil {
			return fmt.Errorf("--map %q: %w", m, pkgerr.Plain(err))
		}
		if _, twice := o.pairs[guest]; twice {
			return fmt.Errorf("--map %s is given twice", guest)
		}
		o.pairs[guest] = host
	}
	return o.out.Check()
}

func (o *remapOptions) run(ctx context.Context) error {
	host, err := o.Named(ctx, o.host)
	if err != nil {
		return fmt.Errorf("--host: %w", err)
	}
	guest, err := o.Named(ctx, o.guest)
	if err != nil {
		return fmt.Errorf("--guest: %w", err)
	}
	ro := remap.Options{Map: o.pairs, Partial: o.partial}
	if o.libvirt != "" {
		data, err := o.ReadFile(ctx, o.libvirt)
		if err != nil {
			return fmt.Errorf("--libvirt %w", err)
		}
		if ro.Libvirt, err = remap.Parse(data); err != nil {
			return fmt.Errorf("--libvirt %s: %w", o.libvirt, pkgerr.Plain(err))
		}
	}
	pairs, notes, err := remap.Pairs(host, guest, ro)
	if err != nil {
		return o.refuse(err)
	}
	t, more, err := remap.Build(host, guest, pairs)
	if err != nil {
		return err
	}
	notes = append(notes, more...)
	data, more, err := o.write(t, host, pairs)
	if err != nil {
		return err
	}
	o.tell("note", append(notes, more...)...)
	if err := o.out.Write(o.Streams, data); err != nil {
		return err
	}
	return incomplete(t, false)
}

// refuse says which devices have no partner, a line each.
func (o *remapOptions) refuse(err error) error {
	var open *remap.Unpaired
	if !errors.As(err, &open) {
		return err
	}
	for line := range strings.Lines(open.Error()) {
		fmt.Fprintln(o.Streams.Err, "  "+text.Printable(strings.TrimSuffix(line, "\n")))
	}
	partial := ""
	if open.Known > 0 {
		partial = "; --partial leaves them where they are"
	}
	return withHint(fmt.Errorf("%d of %s of the guest cannot be paired", len(open.Devices), text.Plural(len(open.Devices)+open.Known, "device")),
		"name the partners with --map GUEST=HOST, or give the domain with --libvirt FILE%s", partial)
}

// write is the output in the format that was asked for, with notes on what it cannot say.
func (o *remapOptions) write(t, host *topo.Topology, pairs []remap.Pair) (data []byte, notes []string, err error) {
	var buf bytes.Buffer
	switch o.Format {
	case formatNCCL:
		if why := ncclxml.TooLarge(t, false); why != "" {
			notes = append(notes, why)
		}
		err = ncclxml.Encode(&buf, t)
		return buf.Bytes(), notes, err
	case formatMooncake:
		h, err := pathsel.New(t, pathsel.Options{})
		if err != nil {
			return nil, nil, err
		}
		if notes, err = export.Mooncake(&buf, h, export.AllGPUs(t)); err != nil {
			return nil, nil, err
		}
		data, err = safeJSON(buf.Bytes(), nil)
		return data, notes, err
	case formatTable:
		return []byte(report.Finish(remapText(t, host, pairs, o.Look()))), nil, nil
	}
	data, err = safeJSON(t.Encode())
	return data, nil, err
}

// remapText shows the pairs.
func remapText(t, host *topo.Topology, pairs []remap.Pair, l Look) string {
	there := topo.NewIndex(host)
	switches := map[topo.ID]bool{}
	rows := []Row{{Cells: []string{"guest", "", "host", "", "by", "below"}, Color: Faint}}
	for i := range pairs {
		p := &pairs[i]
		below := "-"
		for d := range there.Climb(topo.PCIID(p.Host)) {
			if d.Role != topo.RoleUpstream {
				continue
			}
			if switches[d.ID] = true; below == "-" {
				below = "switch " + d.BDF.String()
			}
		}
		rows = append(rows, Row{Cells: []string{p.Guest.String(), nameBeside(p.Device, p.Guest), p.Host.String(), nameBeside(p.HostDevice, p.Host), strings.Join(wordsOf(p.By), ", "), below}})
	}
	gets := "the host's PCI tree, which has no switch above these devices"
	if len(switches) > 0 {
		gets = "the host's " + text.Plural(len(switches), "switch")
	}
	return l.Wrap("", fmt.Sprintf("%s of %s paired with %s; -o nccl-xml, mooncake or topology writes the guest with %s",
		text.Plural(len(pairs), "device"), t.Host.Name, host.Host.Name, gets), Good) + "\n" + l.Listing(rows)
}

// nameBeside is what a device is called, "" where that is its address.
func nameBeside(id topo.ID, at topo.BDF) string {
	if id.Name() == at.String() || id == "" {
		return ""
	}
	if strings.HasPrefix(string(id), "gpu:") {
		return string(id)
	}
	return id.Name()
}
