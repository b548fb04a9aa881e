package export

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/pathsel"
)

// The names and forms of the variables are from:
//
//	docs.nvidia.com/nvshmem/api/gen/env.html; nvshmem 2d7d25f
//	src/modules/transport/{common/env_defs.h,ibrc/ibrc.cpp},
//	src/host/transport/transport.cpp

// nvshmem gives each rank a list of one. With a list for the whole host it
// would deal the NICs out in the order in which libibverbs finds them, whatever
// the list's order, and NVSHMEM_HCA_PE_MAPPING is no better: it only says how
// often each NIC is dealt. A rank that is given a list uses one NIC.
func (e *env) nvshmem() {
	const name = "NVSHMEM_HCA_LIST"
	if why := unnamed(e.h.Topology(), e.ports); why != "" {
		e.leaveOut(name, why)
		return
	}
	usable, why := e.devices(e.ports, func(p *pathsel.Port) string {
		if !p.RDMA() || rdmaTransport(e.index, p) == "efa" {
			return "the list holds InfiniBand and RoCE devices"
		}
		return ""
	})
	if len(usable) == 0 {
		e.leaveOut(name, strings.Join(append([]string{"no port of the plan can be used"}, why...), "; "))
		return
	}
	ranks := e.mapped(name, "NVSHMEM_ENABLE_NIC_PE_MAPPING")
	if ranks != nil {
		e.set("NVSHMEM_ENABLE_NIC_PE_MAPPING", "1", "without it NVSHMEM_HCA_LIST has no effect")
	}
	for i := range ranks {
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
	e.number("NVSHMEM_IB_GID_INDEX", true, gidIndex)
	e.number("NVSHMEM_IB_TRAFFIC_CLASS", true, trafficClass)
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
