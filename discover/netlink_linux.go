package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// dumpTries is how often a dump is repeated that changed while it was read.
const dumpTries = 3

// netlinkTimeout bounds the wait for one message of the kernel.
const netlinkTimeout = 10 * time.Second

// dumpNetlink asks the kernel for interfaces, addresses, routes and RDMA
// devices of the process's network namespace. None of it needs privileges.
// Without interfaces there is no report: addresses and routes are theirs.
func dumpNetlink(ctx context.Context) (*replies.NetlinkReport, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	if err := h.SetSocketTimeout(netlinkTimeout); err != nil {
		return nil, err
	}
	r := &replies.NetlinkReport{Schema: replies.SchemaNetlink}
	links, err := dump(ctx, h.LinkList)
	if links == nil && err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	note(r, "interfaces", err)
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	for _, l := range links {
		r.Links = append(r.Links, linkAnswer(l, names))
	}
	addrs, err := dump(ctx, func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	note(r, "addresses", err)
	for _, a := range addrs {
		r.Addresses = append(r.Addresses, addressAnswer(a)...)
	}
	routes, err := dump(ctx, func() ([]netlink.Route, error) {
		main := &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
		return h.RouteListFiltered(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	note(r, "routes", err)
	for _, rt := range routes {
		r.Routes = append(r.Routes, routeAnswers(rt)...)
	}
	rdma, err := dump(ctx, netlink.RdmaLinkList)
	if !errors.Is(err, unix.EPROTONOSUPPORT) { // a kernel without RDMA
		note(r, "RDMA devices", err)
	}
	for _, d := range rdma {
		r.RDMA = append(r.RDMA, rdmaAnswerOf(d.Attrs))
	}
	sortReport(r)
	return r, nil
}

// dump repeats a dump that the kernel says has changed while it was read. What
// the last try gave is returned with the error.
func dump[T any](ctx context.Context, list func() ([]T, error)) (out []T, err error) {
	for range dumpTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, err = list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, err
}

// note adds a warning for a dump that failed or never stood still.
func note(r *replies.NetlinkReport, what string, err error) {
	if err == nil {
		return
	}
	code := topo.CodeSourceFailed
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		code = topo.CodeVanished
	}
	r.Warnings = append(r.Warnings, topo.Warning{
		Code: code, Detail: fmt.Sprintf("netlink: %s: %v", what, err), Source: topo.SourceNetlink,
	})
}

// linkAnswer is one interface. names are the names by index.
func linkAnswer(l netlink.Link, names map[int]string) replies.Link {
	at := l.Attrs()
	a := replies.Link{
		Index: at.Index, Name: at.Name, Kind: l.Type(), Encap: at.EncapType, MTU: at.MTU,
		MAC: at.HardwareAddr.String(), PermMAC: at.PermHWAddr.String(), Master: at.MasterIndex,
		ParentDev: at.ParentDev, ParentBus: at.ParentDevBus,
		// sysfs writes "lowerlayerdown" where the library has dashes.
		OperState: strings.ReplaceAll(at.OperState.String(), "-", ""),
	}
	switch x := l.(type) {
	case *netlink.Bond:
		a.Bond = &topo.Bond{Mode: nameOrEmpty(x.Mode.String()), HashPolicy: nameOrEmpty(x.XmitHashPolicy.String()), ActiveLeg: names[x.ActiveSlave]}
	case *netlink.Vlan:
		a.VLANID = &x.VlanId
	}
	// A veth's "parent" is its other end, and one in another namespace is a
	// number that means something else here.
	switch l.Type() {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
		if at.NetNsID < 0 {
			a.Parent = at.ParentIndex
		}
	}
	for _, vf := range at.Vfs {
		a.VFs = append(a.VFs, replies.VF{ID: vf.ID, MAC: vf.Mac.String()})
	}
	return a
}

// nameOrEmpty is "" for the library's text for a number without a name.
func nameOrEmpty(s string) string {
	if strings.HasSuffix(s, ")") {
		return ""
	}
	return s
}

// addressAnswer is one address, or none for one without a network.
func addressAnswer(a netlink.Addr) []replies.Address {
	if a.IPNet == nil {
		return nil
	}
	return []replies.Address{{Link: a.LinkIndex, CIDR: a.IPNet.String(), Scope: netlink.Scope(a.Scope).String()}}
}

// routeAnswers are a route's legs: one, or one for each next hop.
func routeAnswers(rt netlink.Route) []replies.Route {
	base := replies.Route{Link: rt.LinkIndex, Dst: "default", Metric: rt.Priority}
	if rt.Dst != nil {
		if ones, _ := rt.Dst.Mask.Size(); ones > 0 || !rt.Dst.IP.IsUnspecified() {
			base.Dst = rt.Dst.String()
		}
	}
	if rt.Gw != nil {
		base.Gateway = rt.Gw.String()
	}
	if len(rt.MultiPath) == 0 {
		return []replies.Route{base}
	}
	var legs []replies.Route
	for _, hop := range rt.MultiPath {
		leg := base
		leg.Link, leg.Gateway = hop.LinkIndex, ""
		if len(hop.Gw) > 0 {
			leg.Gateway = hop.Gw.String()
		}
		legs = append(legs, leg)
	}
	return legs
}

// rdmaAnswerOf is one RDMA device, its GUIDs in the spelling of sysfs.
func rdmaAnswerOf(d netlink.RdmaLinkAttrs) replies.RDMA {
	return replies.RDMA{
		Index: int(d.Index), Name: d.Name, Firmware: d.FirmwareVersion, Ports: int(d.NumPorts),
		NodeGUID: sysfsGUID(d.NodeGuid), SysImageGUID: sysfsGUID(d.SysImageGuid),
	}
}

// sysfsGUID turns the library's spelling of a GUID into that of sysfs,
// "9803:9b03:005d:8e12"; another spelling stays as it is. The kernel gives the
// GUID as a number and the library writes its lowest byte first.
func sysfsGUID(s string) string {
	b, err := net.ParseMAC(s)
	if err != nil || len(b) != 8 {
		return s
	}
	return fmt.Sprintf("%02x%02x:%02x%02x:%02x%02x:%02x%02x", b[7], b[6], b[5], b[4], b[3], b[2], b[1], b[0])
}

// sortReport puts every list in an order that does not change between runs.
func sortReport(r *replies.NetlinkReport) {
	slices.SortFunc(r.Links, func(a, b replies.Link) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(r.Addresses, func(a, b replies.Address) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), strings.Compare(a.CIDR, b.CIDR))
	})
	slices.SortFunc(r.Routes, func(a, b replies.Route) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), strings.Compare(a.Dst, b.Dst),
			cmp.Compare(a.Metric, b.Metric), strings.Compare(a.Gateway, b.Gateway))
	})
	slices.SortFunc(r.RDMA, func(a, b replies.RDMA) int { return cmp.Compare(a.Index, b.Index) })
}
