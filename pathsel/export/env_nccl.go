package export

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// The names and forms of the variables are from:
//
//	docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html;
//	NCCL 2.30.7 src/transport/net_ib/init.cc, src/misc/utils.cc;
//	github.com/NVIDIA/nccl/issues/1478 (one list for all ranks)

// mostNCCL is how many ports NCCL's InfiniBand transport takes (MAX_IB_DEVS).
const mostNCCL = 32

// nccl sets the same for all ranks: ranks of one host that see other NICs than
// each other number them differently, and NCCL's search fails or hangs.
func (e *env) nccl() {
	if e.o.TopologyFile != "" {
		e.set("NCCL_TOPO_FILE", e.o.TopologyFile, "the topology to use instead of what NCCL finds; it still fills in GPUs and NICs")
	} else if e.h.Nearness() != topo.NearnessShown {
		e.leaveOut("NCCL_TOPO_FILE", fmt.Sprintf("this virtual machine (%s) shows no PCIe switch between GPUs and NICs. With a file of how its host really is "+
			"(topoctl remap -o nccl-xml, or topoctl export nccl-xml --skeleton on a host of that type, with this machine's bus addresses) NCCL would choose better", e.h.Topology().Host.Virtual))
	}
	e.ncclHCA()
	e.ncclSockets()
	if e.rdma() {
		e.number("NCCL_IB_GID_INDEX", false, gidIndex)
		e.number("NCCL_IB_TC", false, trafficClass)
	}
}

func (e *env) ncclHCA() {
	const name = "NCCL_IB_HCA"
	if !e.rdma() {
		e.leaveOut(name, "no usable RDMA port: NCCL uses sockets")
		return
	}
	if why := unnamed(e.h.Topology(), e.ports); why != "" {
		e.leaveOut(name, why)
		return
	}
	list, why := e.devices(e.ports, func(p *pathsel.Port) string {
		if rdmaTransport(e.index, p) == "efa" {
			return "NCCL uses EFA through its libfabric plugin"
		}
		return ""
	})
	if len(list) > mostNCCL {
		why = append(why, fmt.Sprintf("NCCL takes %d ports at most, these are %d", mostNCCL, len(list)))
	}
	if len(list) == 0 {
		e.leaveOut(name, strings.Join(append([]string{"no port of the plan can be used"}, why...), "; "))
		return
	}
	layers := map[string]bool{}
	for i := range e.ports {
		if l := e.ports[i].LinkLayer; l != "" {
			layers[l] = true
		}
	}
	if len(layers) > 1 {
		why = append(why, "the ports are of different link layers: NCCL cannot connect one with another")
	}
	takes := "NCCL takes the nearest of it for each GPU"
	if e.blind != "" {
		takes = "NCCL decides by itself which of it each GPU uses"
	}
	e.set(name, "="+strings.Join(list, ","), append([]string{
		"the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); " + takes,
	}, why...)...)
}

func (e *env) ncclSockets() {
	const name = "NCCL_SOCKET_IFNAME"
	if e.rdma() {
		if n, why := socketInterface(e.h.Topology()); n != "" {
			e.set(name, "="+n, "for setting connections up: "+why)
		} else {
			e.leaveOut(name, why)
		}
		return
	}
	if why := unnamed(e.h.Topology(), e.ports); why != "" {
		e.leaveOut(name, why)
		return
	}
	var names, why []string
	for _, p := range e.ports {
		if listable(p.Netdev) {
			names = append(names, p.Netdev)
		} else {
			why = append(why, fmt.Sprintf("the name %q cannot be written in a list", p.Netdev))
		}
	}
	if len(names) == 0 {
		e.leaveOut(name, strings.Join(append(why, "no usable interface"), "; "))
		return
	}
	e.set(name, "="+strings.Join(names, ","), append([]string{"the interfaces of all ranks, by exact name"}, why...)...)
}

// socketInterface is the interface for the traffic that sets connections up:
// the one with the default route.
func socketInterface(t *topo.Topology) (name, why string) {
	best := -1
	for i := range t.Netdevs {
		n := &t.Netdevs[i]
		if n.State == "down" || !listable(n.Name) {
			continue
		}
		for _, r := range n.Routes {
			if !r.IsDefault() || best >= 0 && r.Metric > best || r.Metric == best && topo.NaturalCompare(n.Name, name) > 0 {
				continue
			}
			best, name = r.Metric, n.Name
		}
	}
	if name == "" {
		return "", "no interface with a default route is known"
	}
	return name, "has the default route"
}
