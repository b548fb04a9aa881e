package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/pcilink"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/internal/base/units"
)

// end is a PCIe link with both of its ends and what hangs from it.
type end struct {
	link   *topo.Link
	dev    *topo.PCIDevice // the function below
	up     *topo.PCIDevice // the port above, nil on a root bus
	id     topo.ID         // the node that people know it by
	gpu    bool
	drive  bool
	bridge bool
}

// ends lists the links of GPUs, network functions, NVSwitches, drives and
// switches. Virtual functions share their physical function's link.
func (h *host) ends() []end {
	network := map[topo.ID]topo.ID{}
	for i := range h.t.Netdevs {
		network[h.t.Netdevs[i].PCI] = h.t.Netdevs[i].ID
	}
	for i := range h.t.RDMADevices {
		network[h.t.RDMADevices[i].PCI] = h.t.RDMADevices[i].ID
	}
	known := map[topo.ID]topo.ID{}
	for i := range h.t.NVMes {
		known[h.t.NVMes[i].PCI] = h.t.NVMes[i].ID
	}
	for i := range h.t.NVSwitches {
		known[h.t.NVSwitches[i].PCI] = h.t.NVSwitches[i].ID
	}
	var out []end
	for i := range h.t.Links {
		l := &h.t.Links[i]
		d := h.PCIDevice(l.B)
		if l.Kind != topo.LinkPCIe || d == nil || d.PF != "" {
			continue
		}
		e := end{link: l, dev: d, up: h.PCIDevice(l.A)}
		for _, f := range h.onLink(l, d) {
			switch {
			case e.id != "":
			case h.gpuOn(f.ID) != nil:
				e.id, e.gpu = h.gpuOn(f.ID).ID, true
			case network[f.ID] != "":
				e.id = network[f.ID]
			case known[f.ID] != "":
				e.id, e.drive = known[f.ID], strings.HasPrefix(string(known[f.ID]), "nvme:")
			case f.Class.Uint()>>16 == 0x02:
				e.id = f.ID
			}
		}
		if d.Role == topo.RoleUpstream {
			e.id, e.bridge = topo.SwitchID(d.BDF), true
			e.gpu = h.gpuModule(d)
		}
		if e.id != "" {
			out = append(out, e)
		}
	}
	return out
}

// onLink are the functions that hang from a link.
func (h *host) onLink(l *topo.Link, d *topo.PCIDevice) []*topo.PCIDevice {
	var out []*topo.PCIDevice
	for _, f := range h.Children(d.Parent) {
		if h.LinkAbove(f.ID) == l {
			out = append(out, f)
		}
	}
	return out
}

// gpuModule says whether a switch is part of a GPU's own card, as AMD builds
// them: the link above it then is the GPU's, which idling slows down.
func (h *host) gpuModule(up *topo.PCIDevice) bool {
	const amd, amdGPU = "0x1022", "0x1002"
	if up.Vendor != amd && up.Vendor != amdGPU {
		return false
	}
	gpus := 0
	for _, down := range h.Children(up.ID) {
		for _, f := range h.Children(down.ID) {
			if g := h.gpuOn(f.ID); g != nil && g.Vendor == "amd" {
				gpus++
			}
		}
	}
	return gpus == 1
}

// ends is what both ends say of the link.
func (e *end) ends() pcilink.Ends { return pcilink.EndsOf(e.up, e.dev) }

var linkDegraded = Check{
	Code: "link-degraded", Severity: Warning,
	Title: "every PCIe link of GPUs, NICs, switches and drives runs at what both of its ends can do",
	Judged: "The current width and speed of a link against the lower of what its two ends can do. A GPU's speed is never judged " +
		"when it is lower, because an idle GPU lowers it: look again while the GPU works. Its width is always judged. " +
		"Virtual functions and links that a hypervisor invented are left out. Drives are reported as info.",
	Facts: "current_link_width, current_link_speed, max_link_width and max_link_speed of both ends in /sys/bus/pci/devices",
	Fix:   "Reseat the card, check riser and cable, look for a limit of the slot in the firmware set-up (speed, bifurcation).",
	run:   checkDegraded,
}

func checkDegraded(h *host) outcome {
	var o outcome
	var unknown, idle, hidden []topo.ID
	looked := 0
	for _, e := range h.ends() {
		if e.dev.Implausible || e.dev.Link == nil && !h.imported() {
			continue // invented, or no PCIe link at all
		}
		looked++
		ends := e.ends()
		width, speed := ends.Width(), ends.Speed()
		switch {
		case ends.Degraded(e.gpu):
			o.find(h.degraded(&e, width, speed))
		case width.Ability == pcilink.Unknown || speed.Ability == pcilink.Unknown:
			unknown = append(unknown, e.id)
		case width.Ability == pcilink.Maybe || speed.Ability == pcilink.Maybe && !e.gpu:
			hidden = append(hidden, e.id)
		case speed.Ability != pcilink.Full:
			idle = append(idle, e.id)
		}
	}
	if looked == 0 {
		if h.imported() && len(h.t.GPUs)+len(h.t.RDMADevices) > 0 {
			o.lack("the input has no PCIe links", h.lookAgain())
			return o
		}
		return notApplicable("no GPU, NIC or drive with a PCIe link")
	}
	o.note = text.Plural(looked, "link")
	o.lackOf(unknown, "current or maximum link state is not known", h.linkHow())
	o.lackOf(hidden, "runs below what the device can do, and what the slot above can do is not visible", "look at the hypervisor's host, or at a sister machine")
	o.lackOf(idle, "full width, reduced speed: an idle GPU does that, and so does a degraded link", "run topoctl again while the GPU works")
	return o
}

// linkHow says how to get the state of links.
func (h *host) linkHow() string {
	if guest, _ := h.guest(); guest {
		return "a guest may not see the links of its devices: look on the host of the virtual machine"
	}
	return h.lookAgain()
}

// degraded is the finding about one link.
func (h *host) degraded(e *end, width, speed pcilink.Fit) Finding {
	nowMTs, narrow, severity := speed.Now, width.Ability == pcilink.Less, Warning
	if e.gpu { // an idle GPU's speed says nothing
		nowMTs = speed.Could
	}
	if e.drive {
		severity = Info
	}
	file, says := "current_link_speed", gts(speed.Now)
	if narrow {
		file, says = "current_link_width", fmt.Sprint(width.Now)
	}
	sentence := fmt.Sprintf("PCIe link %s runs at %s, both ends can do %s", e.dev.BDF, pcie(nowMTs, width.Now), pcie(speed.Could, width.Could))
	if nowMTs > 0 && width.Now > 0 {
		sentence += fmt.Sprintf(": %s instead of %s", h.rate(topo.PCIeRate(nowMTs, width.Now)), h.rate(topo.PCIeRate(speed.Could, width.Could)))
	}
	if n := h.limited(e.link.ID); n > 0 {
		sentence += fmt.Sprintf("; the bottleneck of %s between GPUs and NICs", text.Plural(n, "path"))
	}
	fix := "reseat the card, check riser and cable; compare with a sister host (topoctl diff)"
	if !narrow {
		fix = "look for a speed limit of the slot in the firmware set-up; reseat the card, check riser and retimer"
	}
	return Finding{Severity: severity, Subjects: []topo.ID{e.id}, Text: sentence, Basis: topo.BasisRead,
		Evidence: places(pciFile(e.dev, file, says), upFile(e, file)), Fix: fix}
}

// upFile is the same fact at the port above.
func upFile(e *end, file string) string {
	if e.up == nil {
		return ""
	}
	l := e.ends().Above
	switch {
	case file == "current_link_width" && l.Width != nil:
		return pciFile(e.up, file, fmt.Sprint(*l.Width))
	case file == "current_link_speed" && l.SpeedMTs != nil:
		return pciFile(e.up, file, gts(*l.SpeedMTs))
	}
	return ""
}

// gts prints a lane speed as sysfs does.
func gts(mts int) string { return fmt.Sprintf("%g GT/s", float64(mts)/1000) }

func pcie(mts, lanes int) string { return units.PCIe(topo.PCIeGen(mts), mts, lanes) }

// limited counts the pairs of GPU and NIC whose rate a link bounds.
func (h *host) limited(id topo.LinkID) (n int) {
	for _, g := range h.t.GPUs {
		for _, r := range h.t.RDMADevices {
			i, ok1 := h.Place(g.ID)
			j, ok2 := h.Place(r.ID)
			if !ok1 || !ok2 {
				continue
			}
			if l := h.t.Derived.Limit[i][j]; l != nil && h.t.Links[*l].ID == id {
				n++
			}
		}
	}
	return n
}

var linkDisagrees = Check{
	Code: "link-disagrees", Severity: Warning,
	Title:  "both ends of every PCIe link report the same state",
	Judged: "Width and speed at the device against those at the port above it. Speeds of GPUs are left out, because an idle GPU changes its own between two reads.",
	Facts:  "current_link_width and current_link_speed of both ends in /sys/bus/pci/devices",
	Fix:    "Read again; if it stays, the link is unstable (reseat the card) or one end's report is wrong (update firmware and kernel).",
	run:    checkDisagrees,
}

func checkDisagrees(h *host) outcome {
	var o outcome
	var unknown []topo.ID
	looked := 0
	for _, e := range h.ends() {
		if e.up == nil || e.up.Role == topo.RoleUpstream || e.dev.Implausible || e.up.Implausible || e.dev.Link == nil && !h.imported() {
			continue // one end only, or an invented one, or no PCIe link
		}
		ends := e.ends()
		own, above := &ends.Below, &ends.Above
		if own.Width == nil || above.Width == nil || !e.gpu && (own.SpeedMTs == nil || above.SpeedMTs == nil) {
			unknown = append(unknown, e.id)
			continue
		}
		looked++
		if *own.Width == *above.Width && (e.gpu || *own.SpeedMTs == *above.SpeedMTs) {
			continue
		}
		file := "current_link_speed"
		if *own.Width != *above.Width {
			file = "current_link_width"
		}
		o.find(Finding{Severity: Warning, Subjects: []topo.ID{e.id}, Basis: topo.BasisRead,
			Text:     fmt.Sprintf("one link, two reports: %s says %s, the port above (%s) says %s; the lower is taken", e.dev.BDF, own, e.up.BDF, above),
			Evidence: places(pciFile(e.dev, file, ""), pciFile(e.up, file, "")),
			Fix:      "look again; if it stays, reseat the card and update firmware and kernel"})
	}
	o.lackOf(unknown, "the current link state of one end or both is not known", h.linkHow())
	if looked == 0 && len(unknown) == 0 {
		if h.imported() && len(h.t.PCIDevices) == 0 {
			o.lack("the input has no PCIe links", h.lookAgain())
			return o
		}
		return notApplicable("no link with two ends that can be believed")
	}
	o.note = text.Plural(looked, "link")
	return o
}

var implausibleBridgeLink = Check{
	Code: "implausible-bridge-link", Severity: Warning,
	Title: "no bridge above a GPU or NIC reports a link state that is invented",
	Judged: "Bridges that a hypervisor made up, and in guests those that claim a quarter or less of what is below them. " +
		"They are never a bottleneck here; it is a warning where the maximum, which NCCL reads, is invented too.",
	Facts: "vendor, device and link files of bridges in /sys/bus/pci/devices; the hypervisor of the host",
	Fix:   "Give NCCL a topology file with true links: topoctl export nccl-xml > topo.xml; NCCL_TOPO_FILE=topo.xml.",
	run:   checkImplausible,
}

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
	o.note = text.Plural(bridges, "bridge")
	if len(low) > 0 {
		o.find(h.inventedLinks(low, Warning, guest || known))
	}
	if len(fine) > 0 {
		o.find(h.inventedLinks(fine, Info, true))
	}
	if !known && len(low)+len(fine) == 0 {
		o.lack("whether the host is a virtual machine is not known", h.lookAgain())
	}
	return o
}

// leadsToDevice says whether a GPU or an RDMA device is below a bridge.
func (h *host) leadsToDevice(d *topo.PCIDevice, depth int) bool {
	const deepest = 64 // a hostile document could hold a cycle
	for _, f := range h.Children(d.ID) {
		if h.gpuOn(f.ID) != nil || depth < deepest && h.leadsToDevice(f, depth+1) {
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
	for _, f := range h.Children(d.ID) {
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
	return told(d.Link) && slices.ContainsFunc(h.Children(d.ID), func(f *topo.PCIDevice) bool { return told(f.Link) })
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
	sentence := fmt.Sprintf("%s above GPUs and NICs report %s, which the hypervisor invented", text.Plural(len(bridges), "virtual bridge"), state)
	if len(bridges) == 1 {
		sentence = strings.Replace(sentence, "report ", "reports ", 1)
	}
	if !sure {
		sentence = fmt.Sprintf("%s above GPUs and NICs can do a quarter or less of what is below: a real bottleneck, or a hypervisor's invention", text.Plural(len(bridges), "bridge"))
	}
	fix := "nothing to do here: topoctl does not count them, and NCCL reads the maximum, which is not that low"
	if slices.ContainsFunc(bridges, func(d *topo.PCIDevice) bool { return !h.maxTold(d) }) {
		fix = "topoctl does not count them; NCCL reads the maximum, which is not known here for all of them: look at max_link_speed and max_link_width of the bridges"
	}
	if severity == Warning {
		fix = "NCCL believes them: topoctl export nccl-xml > topo.xml, and set NCCL_TOPO_FILE=topo.xml"
	}
	return Finding{Severity: severity, Subjects: list, Text: sentence, Evidence: places(pciFile(d, file, "")), Fix: fix}
}

// value is a number, 0 where it is not known.
func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
