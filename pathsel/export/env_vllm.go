package export

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/pathsel"
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
	e.number("UCX_IB_GID_INDEX", false, gidIndex)
	e.number("UCX_IB_TRAFFIC_CLASS", false, trafficClass)
}

// vllmNIC is the PCI address by which vLLM finds an RDMA device, or why it would not.
func (e *env) vllmNIC(p *pathsel.Port) (bdf, fault string) {
	d := e.index.RDMADevice(p.NIC)
	if d == nil || d.BDF == nil {
		return "", p.Name + " has no PCI address"
	}
	for _, other := range e.h.Topology().RDMADevices {
		if other.ID != d.ID && other.BDF != nil && *other.BDF == *d.BDF && other.Name < d.Name {
			return "", fmt.Sprintf("%s has the PCI address of %s, which vLLM would take", d.Name, other.Name)
		}
	}
	return d.BDF.String(), ""
}
