package export

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The names and forms of the variables are from:
//
//	SGLang pull requests 12817 and 25521, mooncake_transfer_engine.py

// sglang has a flag instead of a variable.
func (e *env) sglang() {
	const name, flag = "topoctl_ib_device", `for SGLang's command line: --disaggregation-ib-device "$topoctl_ib_device"`
	e.head = append(e.head, "SGLang's transfer engine has settings of its own: topoctl export env --for mooncake (the default) or ucx (for nixl).")
	switch {
	case !e.rdma():
		e.leaveOut(name, "no usable RDMA port")
		return
	case e.ranks[0].gpu == nil:
		e.leaveOut(name, "this host has no GPU")
		return
	case e.mapped(name) == nil:
		return
	}
	engine := enginePort(e.h)
	var why []string
	byGPU := make([]string, len(e.ranks))
	for i := range e.ranks {
		r := &e.ranks[i]
		if why := unnamed(e.h.Topology(), r.ports); why != "" {
			e.leaveOut(name, why)
			return
		}
		names := engineDevices(e.index, r.ports, engine)
		if len(names) == 0 {
			e.leaveOut(name, fmt.Sprintf("no port of rank %d can be used, and SGLang wants one for each GPU", r.n))
			return
		}
		byGPU[i] = strings.Join(names, ",")
		for _, reason := range reasons(e.ranks, r) {
			why = append(why, fmt.Sprintf("GPU %d (%s): %s", i, r.location, reason))
		}
	}
	value := byGPU[max(0, e.o.Rank)]
	if e.o.Rank < 0 {
		var b strings.Builder
		for i, names := range byGPU { // json.Marshal would sort 10 before 2
			quoted, _ := json.Marshal(names) // names are letters and digits
			fmt.Fprintf(&b, ",%q:%s", strconv.Itoa(i), quoted)
		}
		value = "{" + b.String()[1:] + "}"
		why = append(why, "by the number that the process has for the GPU. Versions that refuse the map (before pull request 12817, and some after it, issue 20241) take what --rank prints")
	}
	e.settings = append(e.settings, setting{name: name, value: value, why: append([]string{flag}, why...), ok: true, local: true})
}
