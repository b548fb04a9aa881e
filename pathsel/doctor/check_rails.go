package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

func checkRates(h *host) (o outcome) {
	var unknown []topo.ID
	var layers groups[string, *pathsel.Port]
	for _, p := range h.dataPorts {
		switch {
		case !h.active(p):
		case p.BytesPerSec == nil:
			unknown = append(unknown, p.ID)
		default:
			layers.add(cmp.Or(p.LinkLayer, "link layer unknown"), p)
			o.judged++
		}
	}
	if o.judged < 2 && len(unknown) < 2 {
		return notApplicable("fewer than two RDMA data ports that are up")
	}
	slices.Sort(layers.order)
	layers.each(func(layer string, ports []*pathsel.Port) {
		var by groups[topo.Rate, *pathsel.Port]
		for _, p := range ports {
			by.add(*p.BytesPerSec, p)
		}
		if len(by.order) < 2 {
			return
		}
		slices.SortFunc(by.order, func(a, b topo.Rate) int { return int(b - a) })
		f := differing(&by, h.wire, func(p *pathsel.Port, _ topo.Rate) string {
			raw := ""
			if x := h.Port(p.ID); x != nil {
				raw = x.RateRaw
			}
			return h.portFile(p, "rate", raw)
		})
		f.Subjects = f.Subjects[len(by.of[by.order[0]]):] // all but the fastest
		f.Text = layer + " data ports have different rates: " + f.Text + ": even shares run at the pace of the slowest"
		f.Basis, f.Fix = topo.BasisRead, lookAtCable+" of the slower ones (mlxlink -d DEV), or leave them out"
		o.find(f)
	})
	o.missing("the rate of the port is not known", h.rateHow(unknown), unknown...)
	return o
}

// rolesOf lists the roles of ports, each once.
func rolesOf(ports []*pathsel.Port) []string {
	return distinct(mapped(ports, func(p *pathsel.Port) string { return string(p.Role) })...)
}

// rateHow says how to get the rate of ports.
func (h *host) rateHow(ports []topo.ID) string {
	for _, id := range ports {
		if p, ok := h.paths.Port(id); !ok || h.RDMADevice(p.NIC) == nil || h.RDMADevice(p.NIC).Transport != "efa" {
			return h.lookAgain()
		}
	}
	return "EFA has no rate file: see what the cloud provider says of the instance type"
}

func checkLayers(h *host) (o outcome) {
	var by groups[string, *pathsel.Port]
	for _, p := range h.hardwarePorts {
		switch {
		case p.Role == pathsel.RoleDecoy || !h.active(p):
		case p.LinkLayer == "":
			o.missingLayer(h, p)
		case p.LinkLayer == "InfiniBand" || p.LinkLayer == "Ethernet":
			by.add(p.LinkLayer, p)
			o.judged++
		}
	}
	slices.Sort(by.order)
	if len(by.order) > 1 {
		f := Finding{Severity: Info, Fix: "configure other programs with the data ports (NCCL_IB_HCA, UCX_NET_DEVICES): topoctl export env --for nccl"}
		var data, other []topo.ID
		var parts []string
		layersOfData := 0
		by.each(func(layer string, ports []*pathsel.Port) {
			part := fmt.Sprintf("%s on %s", layer, portList(ports))
			if made := onlyData(ports); len(made) > 0 {
				layersOfData++
				data = append(data, ids(made)...)
			} else {
				part += " (" + text.Join(rolesOf(ports), mostNames) + ")"
				other = append(other, ids(ports)...)
			}
			parts = append(parts, part)
			f.Evidence = append(f.Evidence, h.portFile(ports[0], "link_layer", layer))
		})
		f.Text = strings.Join(parts, "; ") + ": programs that take every RDMA device mix two networks"
		f.Subjects = other
		if layersOfData > 1 {
			f.Severity, f.Subjects = Warning, data
		}
		o.find(f)
	}
	o.note = strings.Join(by.order, " and ")
	return o
}

func checkFirmware(h *host) (o outcome) {
	var boards groups[string, *topo.RDMADevice]
	var unknown []topo.ID
	for _, r := range h.hardware {
		switch {
		case r.Transport == "efa":
		case r.Board == "" || r.Firmware == "":
			unknown = append(unknown, r.ID)
		default:
			boards.add(r.Board, r)
			o.judged++
		}
	}
	if o.judged < 2 && len(unknown) < 2 {
		return notApplicable("fewer than two NICs with a board and firmware of their own")
	}
	boards.each(func(board string, devices []*topo.RDMADevice) {
		var by groups[string, string]
		for _, r := range devices {
			by.add(r.Firmware, r.Name)
		}
		if len(by.order) < 2 {
			return
		}
		slices.SortFunc(by.order, topo.NaturalCompare)
		f := Finding{Severity: Info, Fix: "update the older ones: mlxfwmanager; the NIC is down while it starts the new firmware"}
		var parts []string
		by.each(func(version string, names []string) {
			parts = append(parts, version+" on "+text.Join(names, mostNames))
			f.Evidence = append(f.Evidence, "/sys/class/infiniband/"+names[0]+"/fw_ver = "+version)
			f.Subjects = append(f.Subjects, mapped(names, topo.RDMAID)...)
		})
		f.Text = "NICs of one board (" + board + ") have different firmware: " + strings.Join(parts, "; ")
		o.find(f)
	})
	if len(unknown) > 1 {
		o.missing("firmware or board is not known", h.lookAgain(), unknown...)
	}
	return o
}

func checkSubnets(h *host) (o outcome) {
	ports := h.ethernetData(&o)
	var nets groups[netip.Prefix, *pathsel.Port]
	for _, p := range ports {
		if p.Netdev == "" || len(p.Addresses) == 0 && !h.paths.AddressesKnown() {
			o.missing("the interface of the port or its addresses are not visible", h.seeInterfaces(), p.ID)
			continue
		}
		o.judged++
		for _, a := range p.Addresses {
			if addr := a.Addr(); addr.IsLinkLocalUnicast() || addr.IsLoopback() {
				continue
			}
			if net := a.Masked(); !slices.Contains(nets.of[net], p) {
				nets.add(net, p)
			}
		}
	}
	nets.each(func(net netip.Prefix, ports []*pathsel.Port) {
		if len(ports) < 2 {
			return
		}
		f := Finding{Severity: Info, Subjects: ids(ports),
			Text: fmt.Sprintf("%s have addresses in one network, %s: without rules by source address the kernel sends all TCP by one of them", portList(ports), net),
			Fix:  "a network for each rail, or ip rule from ADDRESS for each interface with arp_ignore=1 and arp_announce=2"}
		for _, p := range ports[:2] {
			f.Evidence = append(f.Evidence, fmt.Sprintf("ip addr show %s = %s", p.Netdev, addressIn(p, net)))
		}
		o.find(f)
	})
	if len(ports) < 2 && len(o.unknown) == 0 {
		return notApplicable("fewer than two Ethernet data ports")
	}
	return o
}

func addressIn(p *pathsel.Port, net netip.Prefix) string {
	for _, a := range p.Addresses {
		if a.Masked() == net {
			return a.String()
		}
	}
	return ""
}
