package ncclxml

import (
	"fmt"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/document"
)

// maxNUMA bounds NUMA node numbers: Linux has at most 1024 (CONFIG_NODES_SHIFT 10).
const maxNUMA = 4096

// cpuAt gives the CPU of a cpu element; nil stands for an unknown one. Two
// elements of one NUMA node are one CPU, as are all without a NUMA node.
func (d *decoder) cpuAt(e, at *document.Element) *cpu {
	numa := -1
	if e != nil {
		d.hostFacts(e)
		numa = d.numaID(e)
	}
	name := "nccl:unknown"
	if numa >= 0 {
		name = "nccl:" + strconv.Itoa(numa)
	}
	c, ok := d.cpus[name]
	if ok {
		return c
	}
	c = &cpu{bridge: topo.HostBridgeID(name)}
	hb := topo.HostBridge{Node: topo.Node{ID: c.bridge, Evidence: at.Path()}, Synthetic: true}
	hb.Facts.Set("synthetic", topo.SourceNCCL, "")
	if numa >= 0 {
		c.numa, hb.NUMA = &numa, &numa
		hb.Facts.Set("numa_node", topo.SourceNCCL, "numaid")
		c.cpus = d.numaNode(e, numa)
	} else {
		d.Warn(topo.CodeNUMAUnknown, c.bridge, "no NUMA node is named: the devices below share one invented bridge", at.Path())
	}
	d.HostBridges = append(d.HostBridges, hb)
	d.cpus[name] = c
	return c
}

// numaID is the element's NUMA node, -1 for none.
func (d *decoder) numaID(e *document.Element) int {
	text, ok := e.Attr("numaid")
	if !ok || text == "" || text == "-1" {
		return -1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxNUMA {
		d.Warn(topo.CodeMalformed, "", fmt.Sprintf("numaid %q is no NUMA node: taken as unknown", text), e.Path())
		return -1
	}
	return n
}

// numaNode adds the NUMA node of a cpu element and gives its CPUs.
func (d *decoder) numaNode(e *document.Element, index int) string {
	n := topo.NUMANode{Node: topo.Node{ID: topo.NUMAID(index), Evidence: e.Path()}, Index: index}
	n.Facts.Set("index", topo.SourceNCCL, "numaid")
	if mask, ok := e.Attr("affinity"); ok {
		cpus, err := cpuset.ParseHwlocMask(mask)
		if err != nil {
			d.Warn(topo.CodeMalformed, n.ID, "affinity "+err.Error(), e.Path())
		} else {
			n.CPUs = cpus.String()
			n.Facts.Set("cpus", topo.SourceNCCL, "affinity")
		}
	}
	d.NUMANodes = append(d.NUMANodes, n)
	return n.CPUs
}

// hostFacts takes architecture and CPU from the first element that has them.
func (d *decoder) hostFacts(e *document.Element) {
	h := &d.Topology.Host
	d.Text(&h.Facts, "arch", &h.Arch, e.Get("arch"), e.Path()+" arch")
	if h.Arch == "arm64" {
		h.Arch = "aarch64" // as uname says
	}
	d.Text(&h.Facts, "cpu_vendor", &h.CPUVendor, e.Get("vendor"), e.Path()+" vendor")
	family, errF := strconv.Atoi(e.Get("familyid"))
	model, errM := strconv.Atoi(e.Get("modelid"))
	if h.Arch != "x86_64" || h.CPUFamily != nil || errF != nil || errM != nil || family < 0 || family > 0xfff || model < 0 || model > 0xff {
		return
	}
	family = cpuidFamily(family)
	h.CPUFamily, h.CPUModelID = &family, &model
	h.Facts.Set("cpu_family", topo.SourceNCCL, e.Path()+" familyid")
	h.Facts.Set("cpu_model_id", topo.SourceNCCL, e.Path()+" modelid")
}

// cpuidFamily turns NCCL's family number, base + 16 * extended, into the usual
// base + extended: 175 (0xaf) is family 25. The extended family counts only
// where the base is 15. Source: NCCL src/graph/xml.cc; AMD APM volume 3, CPUID.
func cpuidFamily(nccl int) int {
	if nccl&0xf != 0xf {
		return nccl
	}
	return 0xf + nccl>>4
}

// ncclFamily is the inverse of cpuidFamily.
func ncclFamily(family int) int {
	if family < 0xf {
		return family
	}
	return (family-0xf)<<4 | 0xf
}
