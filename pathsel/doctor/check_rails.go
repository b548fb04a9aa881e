package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/pathsel"
)

// kind is what tells rails apart that need not be alike.
func kind(p *pathsel.Port) string {
	if p.LinkLayer == "" {
		return "link layer unknown"
	}
	return p.LinkLayer
}

var rateMismatch = Check{
	Code: "rate-mismatch", Severity: Warning,
	Title:  "data ports of one kind run at one rate",
	Judged: "The rates of the RDMA data ports that are up, separately for InfiniBand and Ethernet. A slower rail holds back every transfer that is spread evenly.",
	Facts:  "rate in /sys/class/infiniband/DEV/ports/N",
	Fix:    "Look at cable, transceiver and switch port of the slower one (mlxlink -d DEV), or leave it out.",
	run:    checkRates,
}

func checkRates(h *host) outcome {
	var o outcome
	var untold []topo.ID
	var layers bins[string, *pathsel.Port]
	looked := 0
	for _, p := range h.dataPorts() {
		switch {
		case !h.active(p):
		case p.BytesPerSec == nil:
			untold = append(untold, p.ID)
		default:
			layers.add(kind(p), p)
			looked++
		}
	}
	slices.Sort(layers.order)
	layers.each(func(layer string, ports []*pathsel.Port) {
		var by bins[topo.Rate, *pathsel.Port]
		for _, p := range ports {
			by.add(*p.BytesPerSec, p)
		}
		if len(by.order) < 2 {
			return
		}
		slices.SortFunc(by.order, func(a, b topo.Rate) int { return int(b - a) })
		f := Finding{Severity: Warning, Basis: topo.BasisRead, Fix: "look at cable, transceiver and switch port of the slower ones (mlxlink -d DEV), or leave them out"}
		var parts []string
		fastest := by.order[0]
		by.each(func(r topo.Rate, ports []*pathsel.Port) {
			parts = append(parts, h.wire(r)+" on "+text.Join(names(ports), mostNames))
			if r != fastest {
				f.Subjects = append(f.Subjects, ids(ports)...)
			}
			raw := ""
			if x := h.Port(ports[0].ID); x != nil {
				raw = x.RateRaw
			}
			f.Evidence = append(f.Evidence, h.portFile(ports[0], "rate", raw))
		})
		f.Text = layer + " data ports have different rates: " + strings.Join(parts, "; ") + ": even shares run at the pace of the slowest"
		o.find(f)
	})
	o.lackOf(untold, "the rate of the port is not known", h.rateHow(untold))
	if looked < 2 && len(untold) < 2 {
		o.missing = nil // nothing to compare it with
		return notApplicable("fewer than two RDMA data ports that are up")
	}
	o.note = text.Plural(looked, "port")
	return o
}

// rolesOf lists the roles of ports, each once.
func rolesOf(ports []*pathsel.Port) []string {
	var out []string
	for _, p := range ports {
		if !slices.Contains(out, string(p.Role)) {
			out = append(out, string(p.Role))
		}
	}
	return out
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

var mixedLinkLayer = Check{
	Code: "mixed-link-layer", Severity: Warning,
	Title: "the RDMA ports that are up have one link layer",
	Judged: "InfiniBand and Ethernet side by side. A warning where both seem made for data; info where the ports of one kind are recognised as " +
		"storage or management, because topoctl leaves those out and other programs need to be configured.",
	Facts: "link_layer in /sys/class/infiniband/DEV/ports/N; the roles of NICs",
	Fix:   "NCCL_IB_HCA, UCX_NET_DEVICES, Mooncake's device list: topoctl export writes them.",
	run:   checkLayers,
}

func checkLayers(h *host) outcome {
	var o outcome
	var untold []topo.ID
	var by bins[string, *pathsel.Port]
	for _, p := range h.hardwarePorts() {
		switch {
		case p.Role == pathsel.RoleDecoy || !h.active(p):
		case p.LinkLayer == "":
			untold = append(untold, p.ID)
		case p.LinkLayer == "InfiniBand" || p.LinkLayer == "Ethernet":
			by.add(p.LinkLayer, p)
		}
	}
	slices.Sort(by.order)
	if len(by.order) > 1 {
		f := Finding{Severity: Info, Fix: "name the data ports to other programs (NCCL_IB_HCA, UCX_NET_DEVICES): topoctl export env --for nccl"}
		data := 0
		var parts []string
		by.each(func(layer string, ports []*pathsel.Port) {
			made := onlyData(ports)
			part := fmt.Sprintf("%s on %s", layer, text.Join(names(ports), mostNames))
			if len(made) > 0 {
				data++
			} else {
				part += " (" + text.Join(rolesOf(ports), mostNames) + ")"
			}
			parts = append(parts, part)
			if len(made) == 0 {
				f.Subjects = append(f.Subjects, ids(ports)...)
			}
			f.Evidence = append(f.Evidence, h.portFile(ports[0], "link_layer", layer))
		})
		f.Text = strings.Join(parts, "; ") + ": programs that take every RDMA device mix two networks"
		if data > 1 {
			f.Severity, f.Subjects = Warning, nil
			by.each(func(_ string, ports []*pathsel.Port) { f.Subjects = append(f.Subjects, ids(onlyData(ports))...) })
		}
		o.find(f)
	}
	o.lackLayers(h, untold)
	if len(by.order)+len(untold) == 0 {
		return notApplicable("no RDMA hardware port is up")
	}
	o.note = strings.Join(by.order, " and ")
	return o
}

var firmwareDiffers = Check{
	Code: "firmware-differs", Severity: Info,
	Title:  "NICs of one board have one firmware version",
	Judged: "fw_ver of the RDMA devices with the same board_id.",
	Facts:  "fw_ver and board_id in /sys/class/infiniband/DEV",
	Fix:    "Update the older ones: mlxfwmanager.",
	run:    checkFirmware,
}

func checkFirmware(h *host) outcome {
	var o outcome
	var boards bins[string, *topo.RDMADevice]
	var untold []topo.ID
	for _, r := range h.hardware() {
		switch {
		case r.Transport == "efa":
		case r.Board == "" || r.Firmware == "":
			untold = append(untold, r.ID)
		default:
			boards.add(r.Board, r)
		}
	}
	looked := 0
	boards.each(func(board string, devices []*topo.RDMADevice) {
		looked += len(devices)
		var by bins[string, string]
		for _, r := range devices {
			by.add(r.Firmware, r.Name)
		}
		if len(by.order) < 2 {
			return
		}
		slices.SortFunc(by.order, topo.NaturalCompare)
		f := Finding{Severity: Info, Fix: "update the older ones: mlxfwmanager"}
		var parts []string
		by.each(func(version string, names []string) {
			parts = append(parts, version+" on "+text.Join(names, mostNames))
			f.Evidence = append(f.Evidence, "/sys/class/infiniband/"+names[0]+"/fw_ver = "+version)
			for _, n := range names {
				f.Subjects = append(f.Subjects, topo.RDMAID(n))
			}
		})
		f.Text = "NICs of one board (" + board + ") have different firmware: " + strings.Join(parts, "; ")
		o.find(f)
	})
	if len(untold) > 1 {
		o.lackOf(untold, "firmware or board is not known", h.lookAgain())
	}
	if looked < 2 && len(untold) < 2 {
		return notApplicable("fewer than two NICs with a board and firmware of their own")
	}
	o.note = text.Plural(looked, "RDMA device")
	return o
}

var railsShareSubnet = Check{
	Code: "rails-share-subnet", Severity: Info,
	Title: "each Ethernet data port has an IP network of its own",
	Judged: "Data ports that are up with addresses in one IP network. The kernel then sends all TCP, and connections that rdma_cm makes, by one of them, unless there are " +
		"rules that choose by source address, which are not read.",
	Facts: "addresses of the interfaces (netlink)",
	Fix:   "A network for each rail; or ip rule by source address with arp_ignore=1, arp_announce=2.",
	run:   checkSubnets,
}

func checkSubnets(h *host) outcome {
	var o outcome
	ports, layers := h.ethernetData()
	var nets bins[netip.Prefix, *pathsel.Port]
	var untold []topo.ID
	looked := 0
	for _, p := range ports {
		switch {
		case p.Netdev == "":
			untold = append(untold, p.ID)
			continue
		case len(p.Addresses) == 0 && !h.addressesTold():
			untold = append(untold, p.ID)
			continue
		}
		looked++
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
			Text: fmt.Sprintf("%s have addresses in one network, %s: without rules by source address the kernel sends all TCP by one of them", text.Join(names(ports), mostNames), net),
			Fix:  "a network for each rail, or ip rule from ADDRESS for each interface with arp_ignore=1 and arp_announce=2"}
		for _, p := range ports[:2] {
			f.Evidence = append(f.Evidence, fmt.Sprintf("ip addr show %s = %s", p.Netdev, addressIn(p, net)))
		}
		o.find(f)
	})
	o.lackLayers(h, layers)
	o.lackOf(untold, "the interface of the port or its addresses are not visible", h.seeInterfaces())
	if len(ports) < 2 && len(untold)+len(layers) == 0 {
		return notApplicable("fewer than two Ethernet data ports")
	}
	o.note = text.Plural(looked, "port")
	return o
}

// addressesTold says whether the addresses of interfaces are known: they come
// from netlink alone.
func (h *host) addressesTold() bool {
	return slices.ContainsFunc(h.t.Netdevs, func(n topo.Netdev) bool { return len(n.Addresses) > 0 })
}

func addressIn(p *pathsel.Port, net netip.Prefix) string {
	for _, a := range p.Addresses {
		if a.Masked() == net {
			return a.String()
		}
	}
	return ""
}
