package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

func checkImplausible(h *host) outcome {
	if len(h.t.GPUs)+len(h.hardware()) == 0 {
		return notApplicable("no GPU and no RDMA hardware")
	}
	var o outcome
	if len(h.t.PCIDevices) == 0 {
		o.lack("the input has no PCI functions", h.lookAgain())
		return o
	}
	guest, known := h.guest()
	var low, fine []*topo.PCIDevice // by whether the maximum is invented too
	bridges := 0
	for i := range h.t.PCIDevices {
		d := &h.t.PCIDevices[i]
		if !d.IsBridge() || !h.leadsToDevice(d, 0) {
			continue
		}
		bridges++
		slow := h.maxBelow(d)
		switch {
		case d.Implausible && slow:
			low = append(low, d)
		case d.Implausible:
			fine = append(fine, d)
		case !known && slow:
			low = append(low, d)
		}
	}
	o.note = count(bridges, "bridge")
	if len(low) > 0 {
		o.find(h.inventedLinks(low, Warning, guest || known))
	}
	if len(fine) > 0 {
		o.find(h.inventedLinks(fine, Info, true))
	}
	if !known && len(low)+len(fine) == 0 {
		o.lack("whether the host is a virtual machine is not told", h.lookAgain())
	}
	return o
}

// leadsToDevice says whether a GPU or an RDMA device is below a bridge.
func (h *host) leadsToDevice(d *topo.PCIDevice, depth int) bool {
	const deepest = 64 // a hostile document could hold a cycle
	for _, f := range h.below[d.ID] {
		if h.gpuOf[f.ID] != nil || depth < deepest && h.leadsToDevice(f, depth+1) {
			return true
		}
		for i := range h.t.RDMADevices {
			if h.t.RDMADevices[i].PCI == f.ID {
				return true
			}
		}
	}
	return false
}

// maxBelow says whether the maximum that a bridge reports is a quarter or less
// of what a function below it can do.
func (h *host) maxBelow(d *topo.PCIDevice) bool {
	const muchSlower = 4
	if d.Link == nil || d.Link.MaxSpeedMTs == nil || d.Link.MaxWidth == nil {
		return false
	}
	own := topo.PCIeRate(*d.Link.MaxSpeedMTs, *d.Link.MaxWidth)
	for _, f := range h.below[d.ID] {
		l := f.Link
		if l != nil && l.MaxSpeedMTs != nil && l.MaxWidth != nil && own > 0 && own*muchSlower <= topo.PCIeRate(*l.MaxSpeedMTs, *l.MaxWidth) {
			return true
		}
	}
	return false
}

// maxTold says whether the maximum of a bridge and of what is below it is known.
func (h *host) maxTold(d *topo.PCIDevice) bool {
	told := func(l *topo.PCILink) bool { return l != nil && l.MaxSpeedMTs != nil && l.MaxWidth != nil }
	return told(d.Link) && slices.ContainsFunc(h.below[d.ID], func(f *topo.PCIDevice) bool { return told(f.Link) })
}

func (h *host) inventedLinks(bridges []*topo.PCIDevice, severity Severity, sure bool) Finding {
	var list []topo.ID
	for _, d := range bridges {
		list = append(list, d.ID)
	}
	d := bridges[0]
	link, file := d.Believed(), "current_link_speed"
	if d.Implausible {
		link = *d.Link
	}
	mts, lanes := link.SpeedMTs, link.Width
	if severity == Warning {
		mts, lanes, file = link.MaxSpeedMTs, link.MaxWidth, "max_link_speed"
	}
	state := pcie(value(mts), value(lanes))
	if state == "" { // neither speed nor width could be understood
		state = "a link"
	}
	text := fmt.Sprintf("%s above GPUs and NICs report %s, which the hypervisor invented", count(len(bridges), "virtual bridge"), state)
	if len(bridges) == 1 {
		text = strings.Replace(text, "report ", "reports ", 1)
	}
	if !sure {
		text = fmt.Sprintf("%s above GPUs and NICs can do a quarter or less of what is below: a real bottleneck, or a hypervisor's invention", count(len(bridges), "bridge"))
	}
	fix := "nothing to do here: topoctl does not count them, and NCCL reads the maximum, which is not that low"
	if slices.ContainsFunc(bridges, func(d *topo.PCIDevice) bool { return !h.maxTold(d) }) {
		fix = "topoctl does not count them; NCCL reads the maximum, which is not told here of all: look at max_link_speed and max_link_width of the bridges"
	}
	if severity == Warning {
		fix = "NCCL takes them for true: topoctl export nccl-xml > topo.xml, and set NCCL_TOPO_FILE=topo.xml"
	}
	return Finding{Severity: severity, Subjects: list, Text: text, Evidence: places(pciFile(d, file, "")), Fix: fix}
}

// value is a number, 0 where it is not known.
func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
