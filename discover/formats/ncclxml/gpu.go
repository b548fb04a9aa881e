package ncclxml

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/text"
)

// gpuElement is a GPU with its element, nil where only the PCI function tells.
type gpuElement struct {
	gpu topo.GPU
	e   *document.Element
	cpu *cpu
}

// gpu adds one GPU. e is its gpu element, nil where there is only the function.
func (d *decoder) gpu(e *document.Element, p *topo.PCIDevice, c *cpu) {
	g := d.GPU(p)
	g.CPUAffinity = c.cpus
	d.Fact(&g.Facts, c.numa != nil, "cpu_affinity", "affinity of the cpu")
	switch { // where the file tells no vendor, by what the element holds
	case g.Vendor != "" || e == nil:
	case e.Get("gcn") != "":
		g.Vendor = "amd"
	case e.Get("sm") != "":
		g.Vendor = "nvidia"
	}
	g.Facts.Set("vendor", topo.SourceNCCL, "")
	item := gpuElement{gpu: g, e: e, cpu: c}
	if e != nil {
		item.gpu.Evidence = e.Path()
		d.gpuFacts(&item)
	}
	d.gpus = append(d.gpus, item)
}

// gpuFacts reads dev (NVML's index), sm (of AMD GPUs it counts compute units)
// and gcn.
func (d *decoder) gpuFacts(item *gpuElement) {
	g, e := &item.gpu, item.e
	if gcn := e.Get("gcn"); gcn != "" {
		g.ComputeCap = text.Clip(gfxName(gcn), maxName)
		g.Facts.Set("compute_capability", topo.SourceNCCL, "gcn")
	}
	if g.Vendor == "amd" {
		return
	}
	if sm, err := strconv.Atoi(e.Get("sm")); err == nil && sm > 0 && sm < 10000 {
		g.ComputeCap = fmt.Sprintf("%d.%d", sm/10, sm%10)
		g.Facts.Set("compute_capability", topo.SourceNCCL, "sm")
	}
	if dev, err := strconv.Atoi(e.Get("dev")); err == nil && dev >= 0 {
		g.NVMLIndex = &dev
		g.Facts.Set("nvml_index", topo.SourceNCCL, "dev")
	}
}

// gfxName gives the name of a gcn number; newer files hold the name itself.
func gfxName(gcn string) string {
	switch {
	case strings.HasPrefix(gcn, "gfx"):
		return gcn
	case gcn == "910":
		return "gfx90a"
	}
	return "gfx" + gcn
}

// numberGPUs gives the GPUs their indices, in PCI order.
func (d *decoder) numberGPUs() {
	slices.SortStableFunc(d.gpus, func(a, b gpuElement) int {
		return cmp.Or(a.gpu.BDF.Compare(*b.gpu.BDF), cmp.Compare(a.mlopart(), b.mlopart()))
	})
	for i := range d.gpus {
		g := &d.gpus[i].gpu
		g.ID, g.Index = topo.GPUID(i), i
		d.GPUs = append(d.GPUs, *g)
	}
}

// mlopart is the number of a GPU part, 0 for a whole GPU.
func (g gpuElement) mlopart() int {
	if g.e == nil {
		return 0
	}
	n, err := strconv.Atoi(g.e.Get("mlopart"))
	if err != nil {
		return 0
	}
	return n
}
