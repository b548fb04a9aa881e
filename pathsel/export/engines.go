package export

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// Names and forms of the variables are from the sources of the readers:
//
//	NCCL      docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html;
//	          NCCL 2.30.7 src/transport/net_ib/init.cc, src/misc/utils.cc;
//	          github.com/NVIDIA/nccl/issues/1478 (one list for all ranks)
//	UCX       src/ucp/core/ucp_context.c (MAX_RNDV_RAILS), src/uct/ib/base/ib_md.c
//	          (GID_INDEX), ib_iface.c (TRAFFIC_CLASS); docs.open-mpi.org (NET_DEVICES)
//	NVSHMEM   docs.nvidia.com/nvshmem/api/gen/env.html; nvshmem 2d7d25f
//	          src/modules/transport/{common/env_defs.h,ibrc/ibrc.cpp},
//	          src/host/transport/transport.cpp
//	vLLM      vllm/v1/executor/vllm_net_devices.py (pull request 42083)
//	SGLang    pull requests 12817 and 25521, mooncake_transfer_engine.py
//	Mooncake  3b5a594 mooncake-transfer-engine/src/{config,topology,transfer_engine_impl}.cpp

// mostNCCL is how many ports NCCL's InfiniBand transport takes (MAX_IB_DEVS).
const mostNCCL = 32

// nccl sets the same for all ranks: ranks of one host that see other NICs than
// each other number them differently, and NCCL's search fails or hangs.
func (e *env) nccl() {
	if e.o.TopologyFile != "" {
		e.set("NCCL_TOPO_FILE", e.o.TopologyFile, "the topology to use instead of what NCCL finds; it still fills in GPUs and NICs")
	} else if why := flatGuest(e.h); why != "" {
		e.leaveOut("NCCL_TOPO_FILE", why)
	}
	e.ncclHCA()
	e.ncclSockets()
	if e.rdma() {
		e.number("NCCL_IB_GID_INDEX", false, e.facts.gidIndex)
		e.number("NCCL_IB_TC", false, e.facts.trafficClass)
	}
}

func (e *env) ncclHCA() {
	const name = "NCCL_IB_HCA"
	if !e.rdma() {
		e.leaveOut(name, "no usable RDMA port: NCCL uses sockets")
		return
	}
	if why := e.facts.unnamed(e.ports); why != "" {
		e.leaveOut(name, why)
		return
	}
	list, why := e.devices(e.ports, func(p *pathsel.Port) string {
		if e.transport(p) == "efa" {
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
	e.set(name, "="+strings.Join(list, ","), append([]string{
		"the ports of all ranks, by exact name. All ranks of a host must have the same list (NVIDIA/nccl issue 1478); NCCL takes the nearest of it for each GPU",
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
	if why := e.facts.unnamed(e.ports); why != "" {
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

// flatGuest says that a virtual machine hides how its devices hang together,
// "" where that is not so.
func flatGuest(h *pathsel.Host) string {
	t := h.Topology()
	if t.Host.Virtual == "" || t.Host.Virtual == "none" || len(t.GPUs) == 0 {
		return ""
	}
	m := t.Matrix([]topo.Kind{topo.KindGPU}, []topo.Kind{topo.KindNIC})
	for _, row := range m.Class {
		for _, c := range row {
			if c.Known() && c.Compare(topo.Class{Kind: topo.ClassPHB}) < 0 {
				return ""
			}
		}
	}
	return fmt.Sprintf("this virtual machine (%s) shows no PCIe switch between GPUs and NICs. With a file of how its host really is "+
		"(topoctl export nccl-xml --skeleton on a host of that type, with this machine's bus addresses) NCCL would choose better", t.Host.Virtual)
}

// ucx limits each rank to its own ports.
func (e *env) ucx() {
	for i := range e.ranks {
		r := &e.ranks[i]
		if why := e.facts.unnamed(r.ports); why != "" {
			r.leaveOut("UCX_NET_DEVICES", why)
			continue
		}
		var list, why []string
		if e.rdma() {
			list, why = e.devices(r.ports, func(p *pathsel.Port) string {
				if p.Number == 0 {
					return "UCX wants the number of the port, which is not known"
				}
				return ""
			})
		} else {
			for _, p := range r.ports {
				list = append(list, p.Netdev)
			}
		}
		if len(list) == 0 {
			r.leaveOut("UCX_NET_DEVICES", strings.Join(append([]string{"no port of the rank can be used"}, why...), "; "))
			continue
		}
		r.set("UCX_NET_DEVICES", strings.Join(list, ","), append(reasons(e.ranks, r), why...)...)
		r.set("UCX_MAX_RNDV_RAILS", strconv.Itoa(len(list)), "as many as the rank has ports; UCX's default is 2")
	}
	if e.rdma() {
		e.number("UCX_IB_GID_INDEX", true, e.facts.gidIndex)
		e.number("UCX_IB_TRAFFIC_CLASS", true, e.facts.trafficClass)
	}
}

// nvshmem gives each rank a list of one. With a list for the whole host it
// would deal the NICs out in the order in which libibverbs finds them, whatever
// the list's order, and NVSHMEM_HCA_PE_MAPPING is no better: it only says how
// often each NIC is dealt. A rank that is given a list uses one NIC.
func (e *env) nvshmem() {
	const name = "NVSHMEM_HCA_LIST"
	if why := e.facts.unnamed(e.ports); why != "" {
		e.leaveOut(name, why)
		return
	}
	usable, why := e.devices(e.ports, func(p *pathsel.Port) string {
		if !p.RDMA() || e.transport(p) == "efa" {
			return "the list holds InfiniBand and RoCE devices"
		}
		return ""
	})
	if len(usable) == 0 {
		e.leaveOut(name, strings.Join(append([]string{"no port of the plan can be used"}, why...), "; "))
		return
	}
	e.set("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1", "without it NVSHMEM_HCA_LIST has no effect")
	for i := range e.ranks {
		r := &e.ranks[i]
		var own []string
		for j := range r.ports {
			if d := devicePort(&r.ports[j]); slices.Contains(usable, d) {
				own = append(own, d)
			}
		}
		if len(own) == 0 {
			r.leaveOut(name, strings.Join(append([]string{"no port of the rank can be used"}, why...), "; "))
			continue
		}
		about := reasons(e.ranks, r)
		if len(own) > 1 {
			about = append(about, fmt.Sprintf("NVSHMEM uses one NIC of a list for each process, so without %s", few(own[1:])))
		}
		r.set(name, own[0], about...)
	}
	e.nvshmemPrefix()
	e.number("NVSHMEM_IB_GID_INDEX", true, e.facts.gidIndex)
	e.number("NVSHMEM_IB_TRAFFIC_CLASS", true, e.facts.trafficClass)
}

// nvshmemPrefix names devices that are not called mlx5_N: transports that the
// GPU drives skip those.
func (e *env) nvshmemPrefix() {
	common := ""
	for i := range e.ports {
		d := e.ports[i].Device
		if strings.Contains(d, "mlx5") {
			return
		}
		if i == 0 {
			common = d
		}
		for !strings.HasPrefix(d, common) {
			common = common[:len(common)-1]
		}
	}
	common = strings.TrimRight(common, "0123456789_")
	if !listable(common) {
		e.leaveOut("NVSHMEM_HCA_PREFIX", "the devices are not called mlx5 and have no common beginning: NVSHMEM's GPU-driven transports skip them")
		return
	}
	e.set("NVSHMEM_HCA_PREFIX", common, "NVSHMEM's GPU-driven transports skip devices whose name does not contain this; the default is mlx5")
}

// devices are ports as "mlx5_0:1" and why some are not among them. refuse says
// why a port cannot be used at all, "" if it can.
func (e *env) devices(ports []pathsel.Port, refuse func(*pathsel.Port) string) (list, why []string) {
	left := map[string][]string{}
	var order []string
	for i := range ports {
		p := &ports[i]
		reason := refuse(p)
		switch {
		case reason != "":
		case e.transport(p) == "iwarp":
			reason = "iWARP connects through rdma_cm only"
		case !listable(p.Device):
			reason = "the name cannot be written in a list"
		default:
			list = append(list, devicePort(p))
			continue
		}
		if left[reason] == nil {
			order = append(order, reason)
		}
		left[reason] = append(left[reason], p.Name)
	}
	for _, reason := range order {
		why = append(why, fmt.Sprintf("%s cannot be listed: %s", few(left[reason]), reason))
	}
	return list, why
}

// transport is the RDMA transport of a port's device, "" unknown.
func (e *env) transport(p *pathsel.Port) string {
	if d := e.facts.rdma[p.NIC]; d != nil {
		return d.Transport
	}
	return ""
}

// few lists names, the first of many only.
func few(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
	}
	return join(names)
}
