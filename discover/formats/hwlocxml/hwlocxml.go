// Package hwlocxml reads hwloc's XML: versions 2 and 3, and, as far as they go,
// files of version 1 (Open MPI 3 and before).
// Source: hwloc 2.9 and 3.0, hwloc.dtd, hwloc2.dtd and the chapter on XML.
package hwlocxml

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/formats/internal/imported"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Detect says whether head, the first bytes of a text, is hwloc's XML.
func Detect(head []byte) bool { return document.FirstElement(head) == "topology" }

// Decode reads a file; its relations are derived.
func Decode(data []byte) (*topo.Topology, error) {
	roots, err := document.ParseXML(data)
	if err != nil {
		return nil, pkgerr.Errorf("hwlocxml", "%w", err)
	}
	if roots[0].Name != "topology" {
		return nil, pkgerr.Errorf("hwlocxml", "line %d: root element <%s>, want <topology>", roots[0].Line, roots[0].Name)
	}
	if len(roots) > 1 {
		return nil, pkgerr.Errorf("hwlocxml", "lines %d and %d begin two topologies: give each a file", roots[0].Line, roots[1].Line)
	}
	root := roots[0]
	objects := root.All("object")
	if len(objects) == 0 {
		return nil, pkgerr.New("hwlocxml", "no <object> in it: not a topology of hwloc's")
	}
	d := newDecoder(root)
	for _, e := range objects {
		d.machine(e, nil)
	}
	d.finishMachine(objects[0])
	for _, e := range objects {
		d.object(e, place{pci: -1})
	}
	d.numberGPUs()
	d.matrices()
	if err := d.finish(); err != nil {
		return nil, pkgerr.Errorf("hwlocxml", "%w", err)
	}
	return d.Topology, nil
}

// lacks is what no file of hwloc's tells.
var lacks = []string{
	"network rates, link layers, MTUs and drivers",
	"IOMMU groups and ACS, and which functions are virtual ones",
	"maximum PCIe speeds and widths; the current ones apart, as hwloc gives their product",
}

type decoder struct {
	imported.Host
	version int // major
	root    *document.Element

	cpuNodes  map[int]bool // NUMA nodes with CPUs
	functions map[topo.BDF]bool
	bridges   map[topo.ID]bool
	names     map[topo.ID]bool
	raw       map[topo.ID]topo.Rate // of PCI functions: what hwloc says of the link
	objects   map[string]topo.ID    // gp_index of GPUs' and NVSwitches' objects
	gpus      []gpuItem
	memoryOf  map[int]string // NUMA nodes that are a GPU's memory: its PCI address
	strays    int            // compute devices on no PCI function
}

func newDecoder(root *document.Element) *decoder {
	d := &decoder{root: root, Host: imported.New(topo.SourceHwloc, lacks...), cpuNodes: map[int]bool{}, functions: map[topo.BDF]bool{},
		bridges: map[topo.ID]bool{}, names: map[topo.ID]bool{}, raw: map[topo.ID]topo.Rate{}, objects: map[string]topo.ID{}, memoryOf: map[int]string{}}
	switch version, _ := root.Attr("version"); {
	case strings.HasPrefix(version, "3."):
		d.version = 3
	case strings.HasPrefix(version, "2."):
		d.version = 2
	case version == "":
		d.version = 1
		d.Warn(topo.CodeLossyImport, "", "a file of hwloc 1.x: read as far as it goes", root.Path())
	default:
		d.version = 3
		d.Warn(topo.CodeLossyImport, "", fmt.Sprintf("version %.20q is not known: read as 3", version), root.Path())
	}
	return d
}

// kind is an object's type in the words of version 2.
func kind(e *document.Element) string {
	switch t := e.Get("type"); t {
	case "Socket":
		return "Package"
	case "System":
		return "Machine"
	default:
		return t
	}
}

// info is the value of an object's first info element of a name.
func info(e *document.Element, name string) string {
	for _, c := range e.Children {
		if c.Name == "info" && c.Get("name") == name {
			return strings.TrimSpace(c.Get("value"))
		}
	}
	return ""
}

// finish derives, and fills in the rates that hwloc gives without speed and width.
func (d *decoder) finish() error {
	if d.strays > 0 {
		d.Warn(topo.CodeLossyImport, "", fmt.Sprintf("%d compute devices (OpenCL, CUDA) name no PCI function: left out", d.strays), "")
	}
	d.Warn(topo.CodeLossyImport, "", "hwloc keeps no network rates and no PCIe maxima", "")
	if err := d.Finish(fmt.Sprintf("version %d, %d NUMA nodes, %d PCI functions", d.version, len(d.NUMANodes), len(d.PCIDevices))); err != nil {
		return err
	}
	if d.fillRates() {
		d.Derive()
	}
	return nil
}
