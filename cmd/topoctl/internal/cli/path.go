package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
	"github.com/topoctl/topoctl/internal/rival"
	"github.com/topoctl/topoctl/pathsel"
)

type pathOptions struct {
	*Host
	src, dst string

	peer, fabric string
	bytes        int64
	policy       pick.Policy

	transport pathsel.Transport
	roles     []string
	down      []string
	downIDs   []topo.ID
	engines   []rival.Engine
	most      int // ports to list, 0 is all
	plan      bool
	ranks     int
	visible   string // the list that cuda:N counts in
	measured  Measured
}

// tableMost is how many ports the table lists unless --k says otherwise.
const tableMost = 8

func newPathCmd(f *Env) *cobra.Command {
	opts := &pathOptions{Host: f.Host()}
	cmd := newCommand(opts, "path SRC [DST]", "Show which NIC a GPU or NUMA node should use, and why")
	cmd.ValidArgsFunction = opts.complete
	fl := cmd.Flags()
	fl.StringVar(&opts.peer, "peer", "", "pair the ports of this host with those of the host in `FILE` (as for --from); DST is memory there (default: the same as SRC)")
	fl.StringVar(&opts.fabric, "fabric", "", "`FILE` with the rail, leaf and plane of each port (topoctl.fabric/v1)")
	Var(cmd, &opts.bytes, "bytes", "64MiB", "`SIZE` of the transfer that lanes share", parseBytes)
	wordFlag(cmd, &opts.policy, "policy", pick.Adaptive, "`POLICY` by which lanes share the transfer: "+either(pick.Policies()), policies())
	wordFlag(cmd, &opts.transport, "transport", "", "choose ports for `TRANSPORT`: rdma or tcp (default: rdma if it can be used)", []pathsel.Transport{pathsel.RDMA, pathsel.TCP})
	fl.StringArrayVar(&opts.roles, "role", nil, "set the role of a NIC (`NIC=ROLE`): "+either(roleNames)+"; repeatable")
	fl.StringSliceVar(&opts.down, "down", nil, "what if `NIC` (or a port, mlx5_0/1) of this host were down; repeatable")
	wordListFlag(cmd, &opts.engines, "engine", nil, "also show what `ENGINE` would choose, and the cost of that: mooncake, nccl or ucx; repeatable", rival.Engines())
	intFlag(cmd, &opts.most, "k", tableMost, 0, unbounded, "list the best `N` ports, 0 for all (with -o json, all by default)")
	fl.BoolVar(&opts.plan, "plan", false, "assign all ports to all GPUs at once")
	intFlag(cmd, &opts.ranks, "ranks", 0, 1, unbounded, "with --plan, assign them to `N` local ranks instead")
	fl.StringVar(&opts.visible, "visible", "", "number cuda:N by `LIST`, as in CUDA_VISIBLE_DEVICES")
	opts.measured.Add(cmd)
	Offer(cmd, map[string]completer{"peer": hostFlag, "role": opts.completeRole, "down": opts.completeDown})
	mainFlags(cmd, "plan", "peer", "down", "engine", "transport", "k")
	Uses(cmd, inputFlags, "units")
	Formats(cmd, formatTable, formatJSON)
	return cmd
}

// roleNames are the roles that --role gives.
var roleNames = []string{string(pathsel.RoleData), string(pathsel.RoleStorage), string(pathsel.RoleManagement), string(pathsel.RoleDecoy), string(pathsel.RoleUnknown)}

// policies are those by which lanes share transfers.
func policies() []pick.Policy {
	var out []pick.Policy
	for _, p := range pick.Policies() {
		out = append(out, pick.Policy(p))
	}
	return out
}

func (o *pathOptions) parse(cmd *cobra.Command, args []string) error {
	if o.plan && len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: --plan is for all GPUs", args[0])
	}
	if err := cmp.Or(o.measured.Check(cmd), checkTogether(cmd,
		flagRule{"fabric bytes policy", needs, "peer", ""},
		flagRule{"ranks", needs, "plan", ""},
		flagRule{"plan", excludes, "visible peer engine", ""},
		flagRule{"from=-", excludes, "peer=-", readOnce})); err != nil {
		return err
	}
	if len(args) > 0 {
		o.src = args[0]
	}
	if len(args) > 1 {
		o.dst = args[1]
	}
	if o.dst != "" && o.peer == "" && len(o.engines) > 0 {
		return errors.New("--engine has no effect with DST")
	}
	if o.Format == formatJSON && !cmd.Flags().Changed("k") {
		o.most = 0
	}
	return nil
}

func (o *pathOptions) run(ctx context.Context) error {
	t, err := o.Load(ctx)
	if err != nil {
		return err
	}
	roles, err := rolesOf(t, o.roles)
	if err != nil {
		return err
	}
	if o.downIDs, err = downOf(t, o.down); err != nil {
		return err
	}
	rates, err := o.measured.Start(o.Host, t)
	if err != nil {
		return err
	}
	h, err := pathsel.New(t, pathsel.Options{Transport: o.transport, Roles: roles, Down: o.downIDs, Overlay: rates})
	if err != nil {
		return err
	}
	if o.plan {
		return o.runPlan(h)
	}
	doc, err := o.answer(ctx, h)
	if err != nil {
		return err
	}
	look := o.Look()
	err = o.printAnswer(doc, func() string { return doc.Text(&look) })
	switch {
	case err != nil:
		return err
	case doc.Why != "":
		return errBad
	}
	return incomplete(t, false)
}

// rolesOf reads --role: NICs by name, RDMA devices before interfaces.
func rolesOf(t *topo.Topology, given []string) (map[topo.ID]pathsel.Role, error) {
	out := map[topo.ID]pathsel.Role{}
	for _, g := range given {
		name, role, ok := strings.Cut(g, "=")
		if !ok || name == "" || role == "" {
			return nil, fmt.Errorf("--role %q: want NIC=ROLE, with a role of %s", g, either(roleNames))
		}
		id, err := named(t.MatrixAxis(topo.KindNIC), name)
		if err != nil {
			return nil, fmt.Errorf("--role %w", err)
		}
		if _, twice := out[id]; twice {
			return nil, fmt.Errorf("--role %q: %s is given twice", g, id.Name())
		}
		out[id] = pathsel.Role(role)
	}
	return out, nil
}

// downOf reads --down: NICs, or single ports of RDMA devices, by name.
func downOf(t *topo.Topology, given []string) ([]topo.ID, error) {
	known := t.MatrixAxis(topo.KindNIC)
	for i := range t.Ports {
		known = append(known, t.Ports[i].ID)
	}
	var out []topo.ID
	for _, name := range given {
		id, err := named(known, name)
		if err != nil {
			return nil, fmt.Errorf("--down %w", err)
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out, nil
}

// named finds a NIC or port by its ID or name.
func named(known []topo.ID, name string) (topo.ID, error) {
	name = strings.TrimPrefix(name, "nic:")
	i := slices.IndexFunc(known, func(id topo.ID) bool { return string(id) == name || id.Name() == name })
	if i < 0 {
		var names []string
		for _, id := range known {
			names = append(names, id.Name())
		}
		return "", suggest(fmt.Errorf("%s: this host has no such NIC", name), name, names, "")
	}
	return known[i], nil
}

// complete offers memory locations and NICs of the host that the flags name.
func (o *pathOptions) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 1 {
		return nil, none
	}
	h := o.named(cmd)
	if h == nil {
		return nil, none
	}
	var out []string
	for i, l := range h.Locations() {
		what := "NUMA node"
		if gpus := h.Topology().GPUs; i < len(gpus) {
			what = gpus[i].Model
		}
		out = append(out, cobra.CompletionWithDesc(string(l), what))
	}
	return append(out, o.nics(h, "")...), none
}

// named prepares the host that the flags name, nil without one.
func (o *pathOptions) named(cmd *cobra.Command) *pathsel.Host {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	if o.Ready(cmd) != nil {
		return nil
	}
	t, err := o.Find(ctx)
	if err != nil {
		return nil
	}
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil
	}
	return h
}

// nics are the NICs of a host with what they are, followed by what is typed next.
func (o *pathOptions) nics(h *pathsel.Host, next string) []string {
	var out []string
	look := o.Look()
	for _, id := range h.Topology().MatrixAxis(topo.KindNIC) {
		what := "NIC"
		for _, p := range h.Ports() {
			switch ours := p.Device == id.Name() || p.Name == id.Name(); {
			case !ours || p.BytesPerSec == nil:
			case *p.BytesPerSec == 0:
				what = "NIC, down"
			default:
				what = "NIC, " + look.Rate(p.BytesPerSec, "")
			}
		}
		out = append(out, cobra.CompletionWithDesc(id.Name()+next, what))
	}
	return out
}

// completeRole offers the NICs of the host, then the roles.
func (o *pathOptions) completeRole(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	nic, _, typing := strings.Cut(typed, "=")
	if typing {
		var out []string
		for _, role := range roleNames {
			out = append(out, nic+"="+role)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	if h := o.named(cmd); h != nil {
		return o.nics(h, "="), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeDown offers the NICs of the host.
func (o *pathOptions) completeDown(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if h := o.named(cmd); h != nil {
		for _, id := range h.Topology().MatrixAxis(topo.KindNIC) {
			names = append(names, id.Name())
		}
	}
	return WordList(names...)(cmd, args, typed)
}
