package export

import (
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/pathsel"
)

// The names and forms of the variables are from:
//
//	UCX src/ucp/core/ucp_context.c (MAX_RNDV_RAILS), src/uct/ib/base/ib_md.c
//	(GID_INDEX), ib_iface.c (TRAFFIC_CLASS); docs.open-mpi.org (NET_DEVICES)

// ucx limits each rank to its own ports.
func (e *env) ucx() {
	for i := range e.mapped("UCX_NET_DEVICES", "UCX_MAX_RNDV_RAILS") {
		r := &e.ranks[i]
		if why := unnamed(e.h.Topology(), r.ports); why != "" {
			r.leaveOut("UCX_NET_DEVICES", why)
			continue
		}
		var list, why []string
		if e.rdma() {
			list, why = e.devices(r.ports, func(p *pathsel.Port) string {
				if p.Number == 0 {
					return "UCX wants the number of the port, which is not known (ibstat or ibdev2netdev of the host tells it: --with)"
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
		e.number("UCX_IB_GID_INDEX", true, gidIndex)
		e.number("UCX_IB_TRAFFIC_CLASS", true, trafficClass)
	}
}
