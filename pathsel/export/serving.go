package export

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/pathsel"
)

// vllm maps GPUs to NICs by PCI address; vLLM's workers then set the variable
// that is named to the NIC of their GPU.
func (e *env) vllm() {
	const mapping, selection = "VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS"
	if !e.rdma() {
		e.leaveOut(mapping, "no usable RDMA port")
		return
	}
	var pairs, why, faults []string
	number := -1
	for i := range e.ranks {
		r := &e.ranks[i]
		if r.gpu == nil || r.gpu.BDF == nil || len(r.ports) == 0 {
			faults = append(faults, fmt.Sprintf("rank %d has no GPU with a PCI address, or no port", r.n))
			continue
		}
		p := &r.ports[0]
		nic, fault := e.vllmNIC(p)
		switch {
		case fault != "":
			faults = append(faults, fault)
			continue
		case number >= 0 && number != p.Number:
			faults = append(faults, fmt.Sprintf("%s cannot be chosen: vLLM adds the same port number to every NIC", p.Name))
			continue
		}
		number = p.Number
		pairs = append(pairs, r.gpu.BDF.String()+"="+nic)
		about := fmt.Sprintf("rank %d (%s): %s", r.n, r.location, reasons(e.ranks, r)[0])
		if rest := r.ports[1:]; len(rest) > 0 {
			var names []string
			for _, p := range rest {
				names = append(names, p.Name)
			}
			about += "; vLLM takes one NIC for each GPU, so without " + few(names)
		}
		why = append(why, about)
	}
	if len(pairs) < len(e.ranks) {
		e.leaveOut(mapping, "a worker whose GPU is missing in it fails. "+strings.Join(faults, "; "))
		return
	}
	e.set(mapping, strings.Join(pairs, ","), why...)
	variable := "UCX_NET_DEVICES"
	if number > 0 {
		variable += ":" + strconv.Itoa(number)
	}
	e.set(selection, variable, "what each worker sets to its NIC, for NIXL over UCX. Leave UCX_NET_DEVICES itself unset: vLLM adds to what it holds",
		"NCCL_IB_HCA is not among them: it must be the same for all ranks of a host (NVIDIA/nccl issue 1478, topoctl export env --for nccl)")
	e.number("UCX_IB_GID_INDEX", false, e.facts.gidIndex)
	e.number("UCX_IB_TRAFFIC_CLASS", false, e.facts.trafficClass)
}

// vllmNIC is the PCI address by which vLLM finds an RDMA device, or why it would not.
func (e *env) vllmNIC(p *pathsel.Port) (bdf, fault string) {
	d := e.facts.rdma[p.NIC]
	if d == nil || d.BDF == nil {
		return "", p.Name + " has no PCI address"
	}
	for _, other := range e.facts.rdma {
		if other.ID != d.ID && other.BDF != nil && *other.BDF == *d.BDF && other.Name < d.Name {
			return "", fmt.Sprintf("%s has the PCI address of %s, which vLLM would take", d.Name, other.Name)
		}
	}
	return d.BDF.String(), ""
}

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
	}
	engine := enginePort(e.h)
	var why []string
	byGPU := make([]string, len(e.ranks))
	for i := range e.ranks {
		r := &e.ranks[i]
		if why := e.facts.unnamed(r.ports); why != "" {
			e.leaveOut(name, why)
			return
		}
		names := e.deviceNames(r, engine)
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
	e.common = append(e.common, setting{name: name, value: value, why: append([]string{flag}, why...), ok: true, local: true})
}

// deviceNames are the RDMA devices of a rank that Mooncake can use, best first,
// each once. port is the port that it uses of each.
func (e *env) deviceNames(r *rank, port int) []string {
	var out []string
	for i := range r.ports {
		p := &r.ports[i]
		usable := (p.Number == 0 || p.Number == port) && e.transport(p) != "iwarp"
		if usable && listable(p.Device) && !slices.Contains(out, p.Device) {
			out = append(out, p.Device)
		}
	}
	return out
}

// mooncake points to the priority matrix, or limits discovery to a rank's
// devices where there is none.
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
		e.leaveOut("MC_CUSTOM_TOPO_JSON", "--topology-file says where the output of topoctl export mooncake is. "+
			"Without it Mooncake discovers by itself, and only which devices it may use is set below")
		for i := range e.ranks {
			e.mooncakeFilter(&e.ranks[i], engine)
		}
	}
	e.number("MC_GID_INDEX", e.o.TopologyFile == "", e.facts.gidIndex)
	e.number("MC_IB_TC", e.o.TopologyFile == "", e.facts.trafficClass)
}

// mooncakeFilter limits a rank's discovery to its own devices.
func (e *env) mooncakeFilter(r *rank, port int) {
	const name = "MC_TE_FILTERS"
	if why := e.facts.unnamed(r.ports); why != "" {
		r.leaveOut(name, why)
	} else if names := e.deviceNames(r, port); len(names) > 0 {
		r.set(name, strings.Join(names, ","), reasons(e.ranks, r)...)
	} else {
		r.leaveOut(name, "no port of the rank can be used")
	}
}
