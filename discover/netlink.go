package discover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// errNoNetlink says that this system has no netlink to ask.
var errNoNetlink = errors.New("netlink exists on linux only")

// netlink asks the kernel, or replays what a capture recorded.
func (p pipeline) netlink(ctx context.Context) outcome {
	const s = topo.SourceNetlink
	report := &replies.NetlinkReport{}
	recorded := false
	switch {
	case p.live:
		var err error
		if report, err = p.dumpNetlink(ctx); errors.Is(err, errNoNetlink) {
			return withStatus(s, topo.StatusAbsent, err.Error())
		} else if err != nil {
			return failed(s, "netlink", err)
		}
	default:
		found, err := replay(p.tree, replies.NetlinkPath, replies.SchemaNetlink, report)
		if err == nil && found {
			err = checkNetlink(report)
		}
		if err != nil {
			return failed(s, replies.NetlinkPath, err)
		}
		if !found {
			return withStatus(s, topo.StatusAbsent, "the tree has no recorded netlink answers")
		}
		recorded = true
	}
	o := withStatus(s, topo.StatusOK, fmt.Sprintf("%d interfaces, %d addresses, %d routes, %d RDMA devices",
		len(report.Links), len(report.Addresses), len(report.Routes), len(report.RDMA)))
	if len(report.Warnings) > 0 {
		o.report.Status = topo.StatusPartial
	}
	o.report.Recorded = recorded
	o.warnings = fromSource(s, report.Warnings)
	o.raw.netlink = report
	o.apply = func(t *topo.Topology, r *topo.SourceReport) { applyNetlink(t, report) }
	return o
}

// Limits of a recorded report, far above what any host has.
const (
	maxInterfaces = 1 << 16
	maxVFs        = 1 << 16
	maxGPUs       = 1024
	maxNVLinks    = 1 << 8
	maxWarnings   = 1000
)

// checkNetlink refuses a recorded report above the limits.
func checkNetlink(r *replies.NetlinkReport) error {
	for _, x := range []struct {
		what   string
		n, max int
	}{
		{"links", len(r.Links), maxInterfaces},
		{"addresses", len(r.Addresses), 4 * maxInterfaces},
		{"routes", len(r.Routes), 4 * maxInterfaces},
		{"rdma", len(r.RDMA), maxInterfaces},
		{"warnings", len(r.Warnings), maxWarnings},
	} {
		if x.n > x.max {
			return fmt.Errorf("%d %s, more than %d", x.n, x.what, x.max)
		}
	}
	for i := range r.Links {
		if n := len(r.Links[i].VFs); n > maxVFs {
			return fmt.Errorf("link %q has %d vfs, more than %d", r.Links[i].Name, n, maxVFs)
		}
	}
	return nil
}

// fromSource marks the warnings that came with an answer as that source's.
func fromSource(s topo.Source, warnings []topo.Warning) []topo.Warning {
	out := make([]topo.Warning, len(warnings))
	for i, w := range warnings {
		w.Source = s
		out[i] = w
	}
	return out
}

// applyNetlink adds what the kernel says about interfaces and RDMA devices. An
// interface that sysfs does not show is not added: netlink then describes another
// network namespace than the files.
func applyNetlink(t *topo.Topology, r *replies.NetlinkReport) {
	names := make(map[int]string, len(r.Links))
	for i := range r.Links {
		names[r.Links[i].Index] = r.Links[i].Name
	}
	index := topo.NewIndex(t)
	by := make(map[int]*topo.Netdev, len(r.Links)) // those that both know, by index
	var unknown []string
	for i := range r.Links {
		l := &r.Links[i]
		n := index.NetdevNamed(l.Name)
		if n == nil || n.Index != nil && *n.Index != l.Index {
			unknown = append(unknown, fmt.Sprintf("%q", l.Name))
			continue
		}
		by[l.Index] = n
		mergeLink(t, n, l, names)
		mergeParent(index, n, l)
	}
	if len(unknown) > 0 {
		t.Warnings = append(t.Warnings, topo.Warning{
			Code: topo.CodePartialView, Source: topo.SourceNetlink,
			Detail: fmt.Sprintf("netlink sees %d interfaces that /sys does not show, so it is in another network namespace: %s",
				len(unknown), strings.Join(firstOf(unknown, 8), ", ")),
		})
	}
	mergeLegs(r, by, names)
	for _, a := range r.Addresses {
		if n := by[a.Link]; n != nil && a.CIDR != "" {
			n.Addresses = append(n.Addresses, a.CIDR)
			n.Facts.Set("addresses", topo.SourceNetlink, "RTM_GETADDR")
		}
	}
	for _, rt := range r.Routes {
		if n := by[rt.Link]; n != nil && rt.Dst != "" {
			n.Routes = append(n.Routes, topo.Route{Dst: rt.Dst, Gateway: rt.Gateway, Metric: rt.Metric})
			n.Facts.Set("routes", topo.SourceNetlink, "RTM_GETROUTE")
		}
	}
	mergeRDMALinks(t, r)
}

// firstOf is at most the first n of a list, and "..." for the rest.
func firstOf(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), "...")
}

// mergeLink adds what one interface's message says.
func mergeLink(t *topo.Topology, n *topo.Netdev, l *replies.Link, names map[int]string) {
	const where = "RTM_GETLINK"
	m := merger{t, n.ID, &n.Facts, topo.SourceNetlink}
	index := l.Index
	fillNumber(m, "ifindex", &n.Index, &index, where)
	if l.MTU > 0 {
		fillNumber(m, "mtu_bytes", &n.MTU, &l.MTU, where)
	}
	m.fill("state", &n.State, l.OperState, where)
	m.fill("mac", &n.MAC, strings.ToLower(l.MAC), where)
	m.fill("master", &n.Master, names[l.Master], where)
	if n.Type == "" {
		m.fill("type", &n.Type, l.Encap, where)
	}
	if n.LinkKind == "" && l.Kind != "device" {
		m.fill("link_kind", &n.LinkKind, l.Kind, where)
	}
	if l.VLANID != nil {
		overrideNumber(m, "vlan_id", &n.VLANID, l.VLANID, where)
	}
	if l.Bond != nil {
		bond := *l.Bond
		n.Bond = &bond
		n.Facts.Set("bond", topo.SourceNetlink, where)
	}
	if len(l.VFs) > 0 {
		count := len(l.VFs)
		overrideNumber(m, "vfs", &n.VFs, &count, where)
	}
}

// mergeParent joins an interface to its PCI function by the parent device that
// the kernel names, where sysfs did not.
func mergeParent(index *topo.Index, n *topo.Netdev, l *replies.Link) {
	if l.ParentBus != "pci" || n.PCI != "" {
		return
	}
	bdf, err := topo.ParseBDF(l.ParentDev)
	if err != nil {
		return
	}
	d := index.PCIDevice(topo.PCIID(bdf))
	if d == nil {
		return
	}
	n.PCI, n.BDF = d.ID, &bdf
	n.Facts.Set("pci", topo.SourceNetlink, "IFLA_PARENT_DEV_NAME")
	n.Facts.Set("bdf", topo.SourceNetlink, "IFLA_PARENT_DEV_NAME")
	if n.NUMA == nil && d.NUMA != nil {
		numa := *d.NUMA
		n.NUMA = &numa
		n.Facts.Set("numa_node", topo.SourceDerived, string(d.ID))
	}
}

// mergeLegs gives bonds and bridges their legs and VLANs their parent, where
// sysfs gave none.
func mergeLegs(r *replies.NetlinkReport, by map[int]*topo.Netdev, names map[int]string) {
	legs := map[int][]string{}
	for i := range r.Links {
		l := &r.Links[i]
		if l.Master != 0 {
			legs[l.Master] = append(legs[l.Master], l.Name)
		}
		if parent := names[l.Parent]; l.Parent != 0 && parent != "" {
			legs[l.Index] = append(legs[l.Index], parent)
		}
	}
	for index, list := range legs {
		if n := by[index]; n != nil && len(n.Lower) == 0 {
			slices.SortFunc(list, topo.NaturalCompare)
			n.Lower = list
			n.Facts.Set("lower", topo.SourceNetlink, "RTM_GETLINK")
		}
	}
}

// mergeRDMALinks adds what RDMA netlink says of RDMA devices.
func mergeRDMALinks(t *topo.Topology, r *replies.NetlinkReport) {
	const where = "RDMA_NLDEV_CMD_GET"
	by := make(map[string]*replies.RDMA, len(r.RDMA))
	for i := range r.RDMA {
		by[r.RDMA[i].Name] = &r.RDMA[i]
	}
	for i := range t.RDMADevices {
		d := &t.RDMADevices[i]
		a := by[d.Name]
		if a == nil {
			continue
		}
		m := merger{t, d.ID, &d.Facts, topo.SourceNetlink}
		m.fill("firmware", &d.Firmware, a.Firmware, where)
		if d.NodeGUID == "" {
			m.fill("node_guid", &d.NodeGUID, a.NodeGUID, where)
		}
		if d.SysImageGUID == "" {
			m.fill("sys_image_guid", &d.SysImageGUID, a.SysImageGUID, where)
		}
	}
}
