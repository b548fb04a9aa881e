package export

import (
	"fmt"
	"strconv"
	"strings"
)

// The names and forms of the variables are from:
//
//	vllm/v1/executor/vllm_net_devices.py (pull request 42083)

// vllm maps GPUs to NICs by PCI address; vLLM's workers then set the variable
// that is named to the NIC of their GPU.
func (e *env) vllm() {
	const mapping, selection = "VLLM_GPU_NIC_PCIE_MAPPING", "VLLM_NIC_SELECTION_VARS"
	if !e.rdma() {
		e.leaveOut(mapping, "no usable RDMA port")
		return
	}
	if e.mapped(mapping, selection) != nil {
		e.vllmMapping(mapping, selection)
	}
	e.number("UCX_IB_GID_INDEX", false, gidIndex)
	e.number("UCX_IB_TRAFFIC_CLASS", false, trafficClass)
}

func (e *env) vllmMapping(mapping, selection string) {
	var pairs, why []string
	var faults []fault
	number := -1
	for i := range e.ranks {
		r := &e.ranks[i]
		nic, problem := e.vllmNIC(r)
		if problem.reason == "" && number >= 0 && number != r.ports[0].Number {
			problem = fault{r.ports[0].Name, "vLLM adds the same port number to every NIC"}
		}
		if problem.reason != "" {
			faults = append(faults, problem)
			continue
		}
		number = r.ports[0].Number
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
	if len(faults) > 0 {
		e.leaveOut(mapping, strings.Join(together(faults, ": "), "; ")+". A worker whose GPU is missing in it fails")
		e.leaveOut(selection, "it has no effect without "+mapping)
	} else {
		e.set(mapping, strings.Join(pairs, ","), why...)
		variable := "UCX_NET_DEVICES"
		if number > 0 {
			variable += ":" + strconv.Itoa(number)
		}
		e.set(selection, variable, "what each worker sets to its NIC, for NIXL over UCX. Leave UCX_NET_DEVICES itself unset: vLLM adds to what it holds",
			"NCCL_IB_HCA is not among them: it must be the same for all ranks of a host (NVIDIA/nccl issue 1478, topoctl export env --for nccl)")
	}
}

// vllmNIC is the PCI address by which vLLM finds the RDMA device of a rank, or why it would not.
func (e *env) vllmNIC(r *rank) (bdf string, _ fault) {
	switch {
	case r.gpu == nil:
		return "", fault{fmt.Sprintf("rank %d", r.n), "no GPU"}
	case r.gpu.BDF == nil:
		return "", fault{string(r.location), "PCI address not known"}
	case len(r.ports) == 0:
		return "", fault{fmt.Sprintf("rank %d", r.n), "no usable port"}
	}
	p := &r.ports[0]
	d := e.index.RDMADevice(p.NIC)
	if d == nil || d.BDF == nil {
		return "", fault{p.Name, "PCI address not known"}
	}
	for _, other := range e.h.Topology().RDMADevices {
		if other.ID != d.ID && other.BDF != nil && *other.BDF == *d.BDF && other.Name < d.Name {
			return "", fault{d.Name, fmt.Sprintf("%s has the same PCI address, and vLLM would take that", other.Name)}
		}
	}
	return d.BDF.String(), fault{}
}
