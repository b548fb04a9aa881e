package sysfs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/gpulink"
	"github.com/topoctl/topoctl/discover/topo"
)

const nvidiaProc = "proc/driver/nvidia/gpus"

// nvidiaGPU is what the NVIDIA driver tells of one GPU in /proc.
type nvidiaGPU struct {
	model, uuid string
	minor       *int
}

// readGPUs makes a GPU of each accelerator function, in PCI order.
func (r *reader) readGPUs() {
	listed := r.list(nvidiaProc)
	proc := map[topo.BDF]string{}
	for _, e := range listed {
		if b, ok := elementBDF(e.Name()); ok {
			proc[b] = e.Name()
		}
	}
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		name, known := proc[d.BDF]
		if known || d.Accelerator() { // the driver knows its GPUs even if the class file is broken
			delete(proc, d.BDF)
			r.addGPU(d, name, known, len(listed) > 0)
		}
	}
	for _, name := range slices.Sorted(maps.Values(proc)) {
		r.warn(topo.CodePartialView, "", nvidiaProc+"/"+name,
			fmt.Sprintf("the NVIDIA driver lists GPU %s, which is not in /%s", name, pciDevices))
	}
	r.warnNoDriver()
	r.warnHidden()
}

func (r *reader) addGPU(d *topo.PCIDevice, name string, known, driverLists bool) {
	g := topo.GPU{Index: len(r.t.GPUs), PCI: d.ID, BDF: new(d.BDF), Vendor: gpulink.Vendor(d.Vendor), Driver: d.Driver, KnownFrom: "pci"}
	g.Node = topo.Node{ID: topo.GPUID(g.Index), Kind: topo.KindGPU, Evidence: d.Evidence}
	f := files{facts: &g.Facts}
	f.fact(true, "bdf", "")
	f.fact(r.tellsDrivers(), "driver", "driver") // none, where there is a fact and no driver
	f.fact(true, "known_from", "class")
	f.fact(d.PF != "", "known_from", "class physfn") // a virtual function
	f.fact(true, "pci", "")
	f.fact(g.Vendor != "", "vendor", "vendor")
	if known {
		r.readNVIDIA(&g, nvidiaProc+"/"+name)
	}
	if r.live && g.Vendor == "nvidia" {
		r.setVisible(&g, known, driverLists)
	}
	r.t.GPUs = append(r.t.GPUs, g)
}

// tellsDrivers says whether the tree shows which drivers are bound: a tree in which no function has a
// driver was saved without the links.
func (r *reader) tellsDrivers() bool {
	return slices.ContainsFunc(r.t.PCIDevices, func(d topo.PCIDevice) bool { return d.Driver != "" })
}

// readNVIDIA adds what the driver's /proc directory of a GPU tells.
func (r *reader) readNVIDIA(g *topo.GPU, dir string) {
	f := files{r: r, dir: dir, show: dir, subject: g.ID}
	g.KnownFrom = "proc" // whatever its files say: the driver lists only GPUs that it has
	g.Facts.Set("known_from", topo.SourceProc, "/"+nvidiaProc+"/{bdf}")
	r.readGPUMemoryNode(f, g)
	data, err := r.tree.ReadFile(dir + "/information")
	if err != nil {
		f.readError("information", required, err)
		return
	}
	info, err := parseNVIDIA(data)
	if err != nil {
		f.warn(topo.CodeMalformed, "information", err.Error())
		return
	}
	const where = "/" + nvidiaProc + "/{bdf}/information"
	g.Facts.Set("known_from", topo.SourceProc, where)
	if g.Vendor == "" {
		g.Vendor = "nvidia"
		g.Facts.Set("vendor", topo.SourceProc, where)
	}
	if g.Model = info.model; g.Model != "" {
		g.Facts.Set("model", topo.SourceProc, where)
	}
	if g.UUID = info.uuid; g.UUID != "" {
		g.Facts.Set("uuid", topo.SourceProc, where)
	}
	if g.Minor = info.minor; g.Minor != nil {
		g.Facts.Set("minor", topo.SourceProc, where)
	}
}

// parseNVIDIA reads the "Key: value" lines of a GPU's information file.
func parseNVIDIA(data []byte) (nvidiaGPU, error) {
	var g nvidiaGPU
	for line := range bytes.Lines(data) {
		key, v, ok := cpuinfoLine(line)
		if s, err := oneLine([]byte(v)); !ok || err != nil || s != v {
			continue
		}
		switch key {
		case "Model":
			g.model = v
		case "GPU UUID":
			if !strings.Contains(v, "?") { // the driver has not started the GPU yet
				g.uuid = v
			}
		case "Device Minor":
			g.minor = number(v)
		}
	}
	if g.model == "" && g.uuid == "" {
		return g, fmt.Errorf("neither Model nor GPU UUID in %d bytes", len(data))
	}
	return g, nil
}

// readGPUMemoryNode finds the NUMA node that a GPU's memory is, on machines
// where it is one (Grace Hopper, POWER9).
func (r *reader) readGPUMemoryNode(f files, g *topo.GPU) {
	data, err := r.tree.ReadFile(f.dir + "/numa_status")
	if err != nil {
		return
	}
	for line := range bytes.Lines(data) {
		key, v, ok := cpuinfoLine(line)
		if !ok || key != "Node" {
			continue
		}
		n, err := parseNUMANode(v)
		if err != nil {
			f.warn(topo.CodeMalformed, "numa_status", err.Error())
			return
		}
		for i := range r.t.NUMANodes {
			if node := &r.t.NUMANodes[i]; node.Index == n {
				g.MemoryNUMA = &n
				g.Facts.Set("memory_numa_node", topo.SourceProc, "/"+nvidiaProc+"/{bdf}/numa_status")
				node.Owner = g.ID
				node.Facts.Set("owner", topo.SourceProc, "/"+f.dir+"/numa_status")
			}
		}
		return
	}
	f.warn(topo.CodeMalformed, "numa_status", "no Node")
}

// setVisible says whether this process can use an NVIDIA GPU: by its device
// file, or by the driver's list, of which a container sees only its own GPUs.
func (r *reader) setVisible(g *topo.GPU, known, driverLists bool) {
	switch {
	case g.Minor != nil:
		device := "dev/nvidia" + strconv.Itoa(*g.Minor)
		g.Visible = new(r.exists(device))
		g.Facts.Set("visible", topo.SourceDev, "/dev/nvidia{minor}")
	case !known && driverLists && g.Driver == "nvidia":
		g.Visible = new(false)
		g.Facts.Set("visible", topo.SourceProc, "/"+nvidiaProc)
	}
}

// warnNoDriver says once for each vendor that its GPUs are known from PCI alone.
func (r *reader) warnNoDriver() {
	count := map[string]int{}
	var vendors []string
	for _, g := range r.t.GPUs {
		if g.KnownFrom != "pci" || g.Vendor != "nvidia" && g.Driver != "" {
			continue
		}
		if count[g.Vendor] == 0 {
			vendors = append(vendors, g.Vendor)
		}
		count[g.Vendor]++
	}
	for _, v := range vendors {
		where, what := pciDevices, "no driver is bound to them"
		if !r.tellsDrivers() {
			what = "which drivers are bound is not told"
		}
		if v == "nvidia" {
			where, what = nvidiaProc, "the driver does not list them in /"+nvidiaProc
		}
		r.warn(topo.CodeDriverOnly, "", where, fmt.Sprintf("GPUs of vendor %s known from their PCI class alone: %d; %s", v, count[v], what))
	}
}

// warnHidden says once for the host that some GPUs are not for this process.
func (r *reader) warnHidden() {
	var hidden []string
	for _, g := range r.t.GPUs {
		if g.Visible != nil && !*g.Visible {
			hidden = append(hidden, string(g.ID))
		}
	}
	if len(hidden) > 0 {
		r.warn(topo.CodePartialView, "", "dev", fmt.Sprintf("this process cannot use %s: no /dev/nvidia* file for them", strings.Join(hidden, ", ")))
	}
}

// readNVSwitches makes an NVSwitch of each NVIDIA bridge of class "other".
func (r *reader) readNVSwitches() {
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		if d.Vendor != gpulink.VendorNVIDIA || !strings.HasPrefix(string(d.Class), "0x0680") {
			continue
		}
		s := topo.NVSwitch{
			Node: topo.Node{ID: topo.NVSwitchID(d.BDF), Kind: topo.KindNVSwitch, Evidence: d.Evidence},
			PCI:  d.ID, BDF: new(d.BDF),
		}
		s.Facts.Set("bdf", topo.SourceSysfs, "")
		s.Facts.Set("pci", topo.SourceSysfs, "")
		r.t.NVSwitches = append(r.t.NVSwitches, s)
	}
}
