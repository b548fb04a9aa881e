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

	model "github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/collect"
	"github.com/topoctl/topoctl/internal/report"

	"github.com/topoctl/topoctl/internal/fleet/sources"
	"github.com/topoctl/topoctl/internal/group"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// runHere stands in place of a file for the program itself.
const runHere = "run"

type fleetFabricOptions struct {
	*Host
	args    []string
	ibnet   []string
	lldp    []string
	reports []string
	files   []string
	out     OutFile
}

func newFleetFabricCmd(f *Env) *cobra.Command {
	opts := &fleetFabricOptions{Host: f.Host()}
	cmd := newCommand(opts, "fabric FLEET | SOURCE...", "Find out which switches the hosts are cabled to")
	cmd.ValidArgsFunction = hostFlag
	fl := cmd.Flags()
	fl.StringArrayVar(&opts.ibnet, "ibnetdiscover", nil, "the text of ibnetdiscover in `FILE`, or \""+runHere+"\"; repeatable, one for each subnet")
	fl.StringArrayVar(&opts.lldp, "lldp", nil, "what lldpcli printed in `FILE|DIR`, or \""+runHere+"\"; repeatable")
	fl.StringArrayVar(&opts.reports, "probe", nil, "a report of \"probe fabric\" in `FILE`; repeatable")
	fl.StringArrayVar(&opts.files, "fabric", nil, "a fabric document in `FILE`; repeatable")
	opts.out.Add(cmd)
	Uses(cmd, "from", "timeout", "quiet")
	TakesLong(cmd)
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

func (o *fleetFabricOptions) parse(_ *cobra.Command, args []string) error {
	var err error
	if o.args, err = fleetArgs(o.Host, args); err != nil {
		return err
	}
	if len(o.ibnet)+len(o.lldp)+len(o.reports)+len(o.files) == 0 {
		return withHint(errors.New("nothing about the network"), "use --ibnetdiscover FILE, --lldp DIR, --probe REPORT or --fabric FILE")
	}
	return o.out.Check()
}

func (o *fleetFabricOptions) run(ctx context.Context) error {
	f, err := loadFleet(ctx, o.Host, o.args, "")
	if err != nil {
		return err
	}
	if err := someReached(f); err != nil {
		return err
	}
	n, left, err := o.network(ctx, f)
	if err != nil {
		return err
	}
	if f, err = f.Rebuild(n); err != nil {
		return err
	}
	file, notes := sources.File(f, f.Unjoined())
	left = append(left, notes...)
	if o.Format == formatJSON {
		var data []byte
		if data, err = safeJSON(file.Encode()); err != nil {
			return err
		}
		if len(file.Hosts) == 0 {
			return withHint(errors.New("no cable was joined to a host"), "compare the GUIDs and MACs of the hosts with those of the network; -o table lists what was found")
		}
		err = o.out.Write(o.Streams, data)
	} else {
		err = o.out.Write(o.Streams, []byte(report.Finish(fabricText(f, file))))
	}
	if err != nil {
		return err
	}
	noteUnreached(o.Host, f)
	o.tell("note", left...)
	if len(left)+len(file.Unjoined)+len(f.Missing()) > 0 || len(file.Hosts) == 0 {
		return errPartial
	}
	return nil
}

// noteUnreached tells which hosts the output lacks because they were not reached, and why.
func noteUnreached(in *Host, f *model.Fleet) {
	for _, x := range f.Unreached() {
		in.tell("note", fmt.Sprintf("%s %s not reached: %s", text.Join(x.Hosts, 8), text.Noun(len(x.Hosts), "was", "were"), x.Reason))
	}
}

// network reads all that is said of the network. left is what could not be used.
func (o *fleetFabricOptions) network(ctx context.Context, f *model.Fleet) (n *model.Network, left []string, err error) {
	var all []*model.Network
	for _, name := range o.files {
		file, err := o.ReadFabric(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, model.FromFabric(file, name))
	}
	for _, name := range o.ibnet {
		s, err := o.subnet(ctx, name)
		if err != nil {
			return nil, nil, fmt.Errorf("--ibnetdiscover: %w", pkgerr.Plain(err))
		}
		all = append(all, sources.FromSubnet(s, name))
		for _, p := range s.Problems {
			left = append(left, name+": "+p)
		}
	}
	for _, name := range o.lldp {
		heard, broken, err := o.heard(ctx, name)
		if err != nil {
			return nil, nil, fmt.Errorf("--lldp: %w", pkgerr.Plain(err))
		}
		x, unused := sources.FromLLDP(heard, f, name)
		all, left = append(all, x), slices.Concat(left, broken, unused)
	}
	for _, name := range o.reports {
		r, err := o.ReadReport(name)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, sources.FromProbe(r, name))
	}
	n, conflicts := sources.Merge(all...)
	return n, append(left, conflicts...), nil
}

// subnet reads the text of ibnetdiscover, or runs it.
func (o *fleetFabricOptions) subnet(ctx context.Context, name string) (*sources.Subnet, error) {
	var data []byte
	var err error
	if name == runHere {
		data, err = collect.IBNetDiscover(ctx)
	} else {
		data, err = o.ReadFile(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	s, err := sources.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, pkgerr.Plain(err))
	}
	return s, nil
}

// heard reads a file or a folder of what lldpcli printed, or runs it here. broken are the files of a folder that tell
// nothing: one of many hosts does not cost the others.
func (o *fleetFabricOptions) heard(ctx context.Context, name string) (heard []sources.Heard, broken []string, err error) {
	if name == runHere {
		data, err := collect.LLDP(ctx)
		if err != nil {
			return nil, nil, err
		}
		host, err := os.Hostname()
		if err != nil {
			return nil, nil, err
		}
		r, err := sources.ParseLLDP(data)
		return []sources.Heard{{Host: host, Report: r}}, nil, err
	}
	files := []string{name}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if files, err = lldpFiles(name); err != nil {
			return nil, nil, err
		}
	}
	for _, file := range files {
		one, problem := o.heardBy(ctx, file)
		if problem == nil {
			heard = append(heard, one)
			continue
		}
		broken, err = append(broken, problem.Error()), cmp.Or(err, problem)
	}
	if len(heard) > 0 {
		return heard, broken, ctx.Err()
	}
	return nil, nil, err
}

// lldpFiles are the files of a folder that are called as a host is.
func lldpFiles(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.Type().IsRegular() && (ext == ".json" || ext == ".json0") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: no files called HOST.json", dir)
	}
	return out, err
}

// heardBy reads what lldpcli printed on the host that a file is called after.
func (o *fleetFabricOptions) heardBy(ctx context.Context, file string) (sources.Heard, error) {
	data, err := o.ReadFile(ctx, file)
	if err != nil {
		return sources.Heard{}, err
	}
	r, err := sources.ParseLLDP(data)
	if err != nil {
		return sources.Heard{}, fmt.Errorf("%s: %w", file, pkgerr.Plain(err))
	}
	return sources.Heard{Host: collect.HostName(strings.TrimSuffix(file, "0")), Report: r}, nil
}

// fabricText is the answer for people: how much was joined, by what, the switches, and what was not.
func fabricText(f *model.Fleet, file *pathsel.Fabric) string {
	var known []string // by what, of each cable
	ports := 0
	for _, p := range f.Ports() {
		if p.Role != pathsel.RoleData {
			continue
		}
		if ports++; p.Known != "" {
			known = append(known, p.Known)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Known cables: %d of %s, %s", len(known), text.Plural(ports, "data port"), text.Plural(len(f.Hosts), "host"))
	var by []string
	for _, same := range group.By(known, func(by string) string { return by }) {
		by = append(by, fmt.Sprintf("%d by %s", len(same), same[0]))
	}
	if len(by) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(by, ", "))
	}
	b.WriteString(".\n")
	links := 0
	for i := range file.Uplinks {
		links += file.Uplinks[i].Links()
	}
	fmt.Fprintf(&b, "  %s, %s between them; %s without a host\n", text.Plural(len(file.Switches), "switch", "switches"), text.Plural(links, "link"), text.Plural(len(file.Unjoined), "cable"))
	rows := [][]string{{"SWITCH", "TIER", "KIND", "PORTS", "HOSTS", "UPLINKS"}}
	for i := range file.Switches {
		rows = append(rows, switchRow(f, file, &file.Switches[i]))
	}
	if len(rows) > 1 {
		b.WriteString("\n")
		for _, line := range text.Columns(rows, text.Column{}, text.Column{}, text.Column{}, text.Column{Right: true}, text.Column{}, text.Column{Right: true}) {
			b.WriteString("  " + strings.TrimRight(line, " ") + "\n")
		}
	}
	const most = 20
	for i, u := range file.Unjoined {
		if i == 0 {
			b.WriteString("\nWithout a host:\n")
		}
		if i == most {
			fmt.Fprintf(&b, "  and %d more (-o json has all)\n", len(file.Unjoined)-most)
			break
		}
		fmt.Fprintf(&b, "  %s on %s port %s: %s\n", u.What, cmp.Or(u.Leaf, "?"), cmp.Or(u.LeafPort, "?"), u.Reason)
	}
	return b.String()
}

// switchRow is a switch in the table.
func switchRow(f *model.Fleet, file *pathsel.Fabric, s *pathsel.FabricSwitch) []string {
	id := cmp.Or(s.ID, s.Switch)
	ports := 0
	var hosts []string
	for h, p := range f.Ports() {
		if p.Leaf == id {
			ports++
			hosts = append(hosts, h.Host)
		}
	}
	hosts = slices.Compact(hosts)
	up := 0
	for k := range file.Uplinks {
		if file.Uplinks[k].Leaf == s.Switch {
			up += file.Uplinks[k].Links()
		}
	}
	tier := "?"
	if s.Tier != nil {
		tier = fmt.Sprint(*s.Tier)
	}
	return []string{s.Switch, tier, cmp.Or(s.Kind, "?"), fmt.Sprint(ports), text.List(hosts, 4), fmt.Sprint(up)}
}
