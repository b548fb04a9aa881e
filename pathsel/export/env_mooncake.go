package export

import (
	"strconv"
	"strings"
)

// The names and forms of the variables are from:
//
//	Mooncake 3b5a594 mooncake-transfer-engine/src/{config,topology,transfer_engine_impl}.cpp

// mooncake points to the priority matrix, or limits discovery to a rank's
// devices without one.
func (e *env) mooncake() {
	if !e.rdma() {
		e.leaveOut("MC_CUSTOM_TOPO_JSON", "no usable RDMA port: Mooncake uses TCP")
		return
	}
	engine := enginePort(e.h)
	if engine != 1 {
		e.set("MC_IB_PORT", strconv.Itoa(engine), "no usable device has a port 1, which Mooncake takes")
	}
	if e.o.TopologyFile != "" {
		e.set("MC_CUSTOM_TOPO_JSON", e.o.TopologyFile, "written by topoctl export mooncake; it replaces Mooncake's own discovery")
	} else {
		why := "--topology-file says where the output of topoctl export mooncake is. Without it Mooncake discovers by itself"
		if e.blind == "" {
			why += ", and only which devices it may use is set below"
		}
		for i := range e.mapped("MC_TE_FILTERS") {
			e.mooncakeFilter(&e.ranks[i], engine)
		}
		e.leaveOut("MC_CUSTOM_TOPO_JSON", why)
	}
	e.number("MC_GID_INDEX", e.o.TopologyFile == "", gidIndex)
	e.number("MC_IB_TC", e.o.TopologyFile == "", trafficClass)
}

// mooncakeFilter limits a rank's discovery to its own devices.
func (e *env) mooncakeFilter(r *rank, port int) {
	const name = "MC_TE_FILTERS"
	if why := unnamed(e.h.Topology(), r.ports); why != "" {
		r.leaveOut(name, why)
	} else if names := engineDevices(e.index, r.ports, port); len(names) > 0 {
		r.set(name, strings.Join(names, ","), reasons(e.ranks, r)...)
	} else {
		r.leaveOut(name, "no port of the rank can be used")
	}
}
