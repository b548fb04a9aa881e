package sysfs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
)

// kfdTypeXGMI is the type of an xGMI link in the KFD topology.
// Source: drivers/gpu/drm/amd/amdkfd/kfd_crat.h.
const kfdTypeXGMI = 11

// xgmiWhere names the files of all links: one fact for all of them.
const xgmiWhere = "/" + kfdNodes + "/*/io_links/*/properties"

// readXGMI adds a link for each pair of GPUs with xGMI between them. Links to
// CPUs and between partitions of one GPU are none of these; the directory
// p2p_links, beside io_links, holds ways over PCIe only.
func (k *kfd) readXGMI() {
	byNumber := map[int]*kfdNode{}
	for i := range k.nodes {
		byNumber[k.nodes[i].number] = &k.nodes[i]
		k.readLinks(k.nodes[i])
	}
	pairs := map[[2]int][]gpulink.XGMIEnd{} // by place of the GPUs: several where they are partitioned
	compare := func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }
	for _, key := range slices.SortedFunc(maps.Keys(k.ends), compare) {
		a, b := byNumber[key[0]], byNumber[key[1]]
		if b == nil || a.gpu == b.gpu {
			continue
		}
		end := k.ends[key]
		back, ok := k.ends[[2]int{key[1], key[0]}]
		if !ok && k.hidden == 0 {
			a.warn(topo.CodeLinkDisagrees, "io_links", fmt.Sprintf("xGMI to node %d, which has none to node %d", b.number, a.number))
		} else if ok && key[0] < key[1] && end != back {
			a.warn(topo.CodeLinkDisagrees, "io_links", fmt.Sprintf("xGMI to node %d, which describes it otherwise", b.number))
		}
		pair := [2]int{min(a.gpu, b.gpu), max(a.gpu, b.gpu)}
		pairs[pair] = append(pairs[pair], end)
	}
	for _, pair := range slices.SortedFunc(maps.Keys(pairs), compare) {
		a, b := &k.t.GPUs[pair[0]], &k.t.GPUs[pair[1]]
		k.t.Links = append(k.t.Links, gpulink.XGMI(a, b, pairs[pair], topo.SourceSysfs, xgmiWhere))
	}
}

// readLinks collects a node's xGMI links.
func (k *kfd) readLinks(n kfdNode) {
	for _, i := range k.numbers(n.dir + "/io_links") {
		name := "io_links/" + strconv.Itoa(i) + "/properties"
		p := k.properties(n.files, name)
		if p["type"] != kfdTypeXGMI {
			continue
		}
		from, to := p["node_from"], p["node_to"]
		_, told := p["node_to"]
		key := [2]int{n.number, int(min(to, 1<<30))}
		_, twice := k.ends[key]
		wrong := ""
		switch {
		case from != uint64(n.number):
			wrong = fmt.Sprintf("node_from %d, in the directory of node %d", from, n.number)
		case !told:
			wrong = "no node_to"
		case !k.listed[key[1]] || key[1] == n.number:
			wrong = fmt.Sprintf("node_to %d: no other node", to)
		case twice:
			wrong = fmt.Sprintf("a second link to node %d", to)
		default:
			if p["max_bandwidth"] > gpulink.MaxMBs {
				wrong = fmt.Sprintf("max_bandwidth %d: more than any link has", p["max_bandwidth"])
				delete(p, "max_bandwidth")
			}
			k.ends[key] = gpulink.NewXGMI(p["min_bandwidth"], p["max_bandwidth"], p["weight"])
		}
		if wrong != "" {
			n.warn(topo.CodeMalformed, name, wrong)
		}
	}
}
