// Package ncclxml reads and writes the topology files of NCCL (version 1) and
// RCCL (version 2): what NCCL_TOPO_FILE takes and NCCL_TOPO_DUMP_FILE gives.
//
// NCCL's tree has one node for each PCIe switch and one CPU for each NUMA node,
// so host bridges, switch ports and the difference of PHB and NODE are lost.
// Source: NCCL 2.30 src/graph/xml.cc, RCCL src/graph/xml.cc.
package ncclxml

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/formats/internal/imported"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
)

// Detect says whether head, the first bytes of a text, is a file of NCCL's: a
// topology, a fragment of one, or a graph file (which Decode refuses).
func Detect(head []byte) bool {
	switch document.FirstElement(head) {
	case "system", "graphs", "cpu", "pci":
		return true
	}
	return false
}

// Decode reads a topology file; its relations are derived. Beside whole files
// it takes fragments whose roots are cpu or pci elements. A file of several hosts
// is refused.
func Decode(data []byte) (*topo.Topology, error) {
	roots, err := document.ParseXML(data)
	if err != nil {
		return nil, pkgerr.Errorf("ncclxml", "%w", err)
	}
	d := newDecoder()
	for i, e := range roots {
		switch e.Name {
		case "system":
			if i > 0 {
				return nil, pkgerr.Errorf("ncclxml", "lines %d and %d begin two topologies: give each a file", roots[0].Line, e.Line)
			}
			if err := oneHost(e); err != nil {
				return nil, err
			}
			d.system(e)
		case "cpu":
			d.cpu(e)
		case "pci":
			d.Warn(topo.CodeLossyImport, "", "a fragment: the CPU and the switches above are not in it", e.Path())
			d.pci(e, d.cpuAt(nil, e), nil)
		case "graphs":
			return nil, pkgerr.Errorf("ncclxml", "line %d: a NCCL graph file, not a topology: it holds channels, use the file of NCCL_TOPO_DUMP_FILE", e.Line)
		default:
			return nil, pkgerr.Errorf("ncclxml", "line %d: root element <%s>, want <system>", e.Line, e.Name)
		}
	}
	if len(d.cpus) == 0 {
		return nil, pkgerr.New("ncclxml", "no <cpu> in it: not a topology")
	}
	if err := d.finish(); err != nil {
		return nil, pkgerr.Errorf("ncclxml", "%w", err)
	}
	return d.Topology, nil
}

// lacks is what no file of NCCL's tells.
var lacks = []string{
	"host bridges: the devices of one NUMA node hang from one invented bridge, so PHB stands for PHB or NODE",
	"switch ports: each PCIe switch is one bridge",
	"current link states: speeds and widths are the maximum that both ends can do",
	"port states, GIDs, drivers, memory sizes, and the network interfaces of RDMA devices",
}

type decoder struct {
	imported.Host
	cpus   map[string]*cpu        // by host bridge name
	pcis   map[topo.BDF]int       // how many elements have an address
	cards  map[topo.BDF]*function // with NICs
	gpus   []gpuElement
	names  map[topo.ID]bool // of NICs
	noName int              // NICs without a net element
	bare   int              // functions without class, GPU or NIC
}

// cpu is one CPU of NCCL's: a NUMA node, or all devices whose node is not known.
type cpu struct {
	bridge topo.ID
	numa   *int
	cpus   string
}

func newDecoder() *decoder {
	return &decoder{Host: imported.New(topo.SourceNCCL, lacks...), cpus: map[string]*cpu{}, pcis: map[topo.BDF]int{}, cards: map[topo.BDF]*function{}, names: map[topo.ID]bool{}}
}

func (d *decoder) system(e *document.Element) {
	if v := e.Get("version"); v != "" && v != "1" && v != "2" {
		d.Warn(topo.CodeLossyImport, "", fmt.Sprintf("version %q is newer than 1 (NCCL) and 2 (RCCL)", v), e.Path())
	}
	d.Topology.Host.Name = e.Get("name")
	for _, c := range e.Children {
		if c.Name == "cpu" {
			d.cpu(c)
		}
	}
}

// oneHost refuses several hosts: NCCL dumps all hosts of a multi-node NVLink domain in one tree,
// with the same PCI addresses again and again. A CPU that tells no host belongs to any.
func oneHost(system *document.Element) error {
	var hashes []string
	for _, c := range system.All("cpu") {
		if hash := text.Clip(c.Get("host_hash"), maxName); hash != "" && !slices.Contains(hashes, hash) {
			if hashes = append(hashes, hash); len(hashes) > maxHosts {
				return pkgerr.Errorf("ncclxml", "line %d: more than %d hosts in one file", c.Line, maxHosts)
			}
		}
	}
	if len(hashes) > 1 {
		return pkgerr.Errorf("ncclxml", "the file holds %d hosts (host_hash %s): keep the <cpu> elements of one of them, or dump it with one host alone",
			len(hashes), strings.Join(hashes, ", "))
	}
	return nil
}

// maxHosts bounds the list of hosts in an error: the largest NVLink domains have 18 to 36 trays.
const maxHosts = 64

func (d *decoder) cpu(e *document.Element) {
	d.below(e, d.cpuAt(e, e), nil)
}

// finish numbers the GPUs, adds their links and says what is missing.
func (d *decoder) finish() error {
	d.numberGPUs()
	d.gpuLinks()
	h := &d.Topology.Host
	if d.noName > 0 {
		h.Lacks = append(h.Lacks, fmt.Sprintf("NIC names: %d NICs are called by their PCI address", d.noName))
	}
	if d.bare > 0 {
		h.Lacks = append(h.Lacks, fmt.Sprintf("device classes: %d PCI functions may be GPUs, NICs or others", d.bare))
	}
	d.Warn(topo.CodeLossyImport, "", "NCCL's tree has no host bridges and no switch ports: PHB stands for PHB or NODE", "")
	return d.Finish(fmt.Sprintf("%d CPUs, %d PCI functions, %d GPUs, %d NICs", len(d.cpus), len(d.PCIDevices), len(d.GPUs), len(d.names)))
}
