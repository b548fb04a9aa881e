package export

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/text"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// listable says whether a device's name can stand in the lists that libraries
// read: they split at commas and colons, and give "^", "=" and "-" at the
// beginning a meaning.
func listable(name string) bool {
	return name != "" && len(name) < 64 && name[0] != '-' && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r))
	}) < 0
}

// unnamed is the reason why ports cannot be named where an import put something
// else in the place of their names: nvidia-smi's column NIC0 without a legend,
// the PCI address of an XML without net elements, or nothing. "" if none is so.
// One is enough: a list of the others would keep an engine off a NIC that may
// be the nearest.
func unnamed(t *topo.Topology, ports []pathsel.Port) string {
	if !imported(t) {
		return ""
	}
	var left []string
	for i := range ports {
		p := &ports[i]
		name := p.Device
		if !p.RDMA() {
			name = p.Netdev
		}
		if !isName(name) {
			left = append(left, p.Name)
		}
	}
	if len(left) == 0 {
		return ""
	}
	return "the input does not tell the device names of " + few(left)
}

// imported says whether a topology is another tool's file, which lacks much that a host has.
func imported(t *topo.Topology) bool { return strings.HasPrefix(t.Origin, "import:") }

// isName says whether a name in an import is one that the system can have given
// to a device.
func isName(name string) bool {
	if n, ok := strings.CutPrefix(name, "NIC"); name == "" || ok && n != "" && strings.Trim(n, "0123456789") == "" {
		return false
	}
	_, err := topo.ParseBDF(name)
	return err != nil
}

// devicePort is "mlx5_0:1": an RDMA device and its port. Without the number,
// which some imports do not tell, it is the device alone.
func devicePort(p *pathsel.Port) string {
	if p.Number == 0 {
		return p.Device
	}
	return p.Device + ":" + strconv.Itoa(p.Number)
}

// enginePort is the port of every device that Mooncake uses (MC_IB_PORT): 1
// unless no usable device has that, then the lowest there is.
func enginePort(h *pathsel.Host) int {
	lowest := 0
	for _, p := range h.Ports() {
		if p.Usable && p.RDMA() && p.Number > 0 && (lowest == 0 || p.Number < lowest) {
			lowest = p.Number
		}
	}
	return max(lowest, 1)
}

// roce says whether a port's connections are RoCE's, with GIDs and traffic
// classes that matter. Where that cannot be told, why says so.
func roce(index *topo.Index, p *pathsel.Port) (is bool, why string) {
	d := index.RDMADevice(p.NIC)
	if d == nil || d.Transport == "iwarp" || d.Transport == "efa" {
		return false, ""
	}
	if p.LinkLayer == "" {
		return false, fmt.Sprintf("needed with RoCE only, and whether %s is RoCE or InfiniBand is not known", p.Name)
	}
	return p.LinkLayer == "Ethernet", ""
}

// gidIndex is the GID index that reaches routed peers from all the given ports.
// ok is false without one; why says what it rests on, or why not. All
// of them on InfiniBand need none, and why is "".
func gidIndex(index *topo.Index, ports []pathsel.Port) (gid int, why string, ok bool) {
	var common []topo.GID
	first := true
	var each []string
	for i := range ports {
		if is, why := roce(index, &ports[i]); why != "" {
			return 0, why, false
		} else if !is {
			continue
		}
		p := index.Port(ports[i].ID)
		if p == nil || p.GIDTable == nil && len(p.GIDs) == 0 {
			return 0, fmt.Sprintf("the origin does not tell the GID table of %s", ports[i].Name), false
		}
		usable := pathsel.RoCEGIDs(p)
		if len(usable) == 0 {
			return 0, fmt.Sprintf("%s has no RoCE v2 GID with a routable address", ports[i].Name), false
		}
		each = append(each, fmt.Sprintf("%s %d", ports[i].Name, usable[0].Index))
		if first {
			common, first = usable, false
			continue
		}
		common = slices.DeleteFunc(slices.Clone(common), func(g topo.GID) bool {
			return !slices.ContainsFunc(usable, func(u topo.GID) bool { return u.Index == g.Index })
		})
	}
	switch {
	case first:
		return 0, "", false
	case len(common) == 0:
		return 0, "no index is right for all ports: " + strings.Join(each, ", "), false
	case len(each) == 1:
		return common[0].Index, "RoCE v2, " + address(common[0].GID), true
	}
	return common[0].Index, fmt.Sprintf("RoCE v2 with a routable address on each of the %d ports", len(each)), true
}

// address is a GID as an IP address.
func address(gid string) string {
	if a, err := netip.ParseAddr(gid); err == nil {
		return a.Unmap().String()
	}
	return gid
}

// trafficClass is the one that the host's set-up forces on all the given RoCE
// ports. ok is false where it is not known or differs; why is "" where there is
// no RoCE port.
func trafficClass(index *topo.Index, ports []pathsel.Port) (tc int, why string, ok bool) {
	var found *int
	var where string
	for i := range ports {
		if is, why := roce(index, &ports[i]); why != "" {
			return 0, why, false
		} else if !is {
			continue
		}
		p := index.Port(ports[i].ID)
		if p == nil || p.TrafficClass == nil {
			if p != nil {
				if _, looked := p.Facts.Get("traffic_class"); looked {
					return 0, fmt.Sprintf("the host sets none for %s: take what the switches' lossless queue wants", ports[i].Name), false
				}
			}
			return 0, fmt.Sprintf("not known for %s: take what the switches' lossless queue wants", ports[i].Name), false
		}
		if found != nil && *found != *p.TrafficClass {
			return 0, fmt.Sprintf("%s has %d, %s has %d", where, *found, ports[i].Name, *p.TrafficClass), false
		}
		if found == nil {
			found, where = p.TrafficClass, ports[i].Name
		}
	}
	if found == nil {
		return 0, "", false
	}
	return *found, "what the host forces on these ports", true
}

// engineDevices are the RDMA devices of ports that Mooncake can use, in their order,
// each once. number is the port that it uses of each device.
func engineDevices(index *topo.Index, ports []pathsel.Port, number int) []string {
	var out []string
	for i := range ports {
		p := &ports[i]
		usable := (p.Number == 0 || p.Number == number) && rdmaTransport(index, p) != "iwarp"
		if usable && listable(p.Device) && !slices.Contains(out, p.Device) {
			out = append(out, p.Device)
		}
	}
	return out
}

// rdmaTransport is the RDMA transport of a port's device, "" unknown.
func rdmaTransport(index *topo.Index, p *pathsel.Port) string {
	if d := index.RDMADevice(p.NIC); d != nil {
		return d.Transport
	}
	return ""
}

// few lists names, the first of many only.
func few(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
	}
	return text.Join(names, len(names))
}
