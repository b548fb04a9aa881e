package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/internal/units"
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
	var out []end
	for i := range h.t.Links {
		l := &h.t.Links[i]
		d := h.PCIDevice(l.B)
		if l.Kind != topo.LinkPCIe || d == nil || d.PF != "" {
			continue
		}
		e := end{link: l, dev: d, up: h.PCIDevice(l.A)}
		for _, f := range h.Children(d.Parent) {
			if e.id == "" && h.LinkAbove(f.ID) == l {
				h.identify(&e, f)
			}
		}
		if d.Role == topo.RoleUpstream {
			e.id, e.bridge = h.SwitchOf(d.ID).ID, true
			e.gpu = picture.LeadsToGPU(h.Index, d)
		}
		if e.id != "" {
			out = append(out, e)
		}
	}
	return out
}

// identify says which device a function at the lower end of a link is, if it is one.
func (h *host) identify(e *end, f *topo.PCIDevice) {
	on := h.On(f.ID)
	switch {
	case len(on.GPUs) > 0:
		e.id, e.gpu = on.GPUs[0].ID, true
	case len(on.RDMADevices) > 0:
		e.id = on.RDMADevices[len(on.RDMADevices)-1].ID
	case len(on.Netdevs) > 0:
		e.id = on.Netdevs[len(on.Netdevs)-1].ID
	case len(on.NVSwitches) > 0:
		e.id = on.NVSwitches[0].ID
	case len(on.NVMes) > 0:
		e.id, e.drive = on.NVMes[0].ID, true
	case f.Class.Uint()>>16 == 0x02:
		e.id = f.ID
	}
}

// noLink says whether a function has no PCIe link: neither end has the files of a link, and the port above is not one
// that must have a link.
func (h *host) noLink(e *end, ends *picture.Ends) bool {
	port := e.up != nil && !e.up.Implausible && (e.up.Role == topo.RoleRootPort || e.up.Role == topo.RoleDownstream)
	return !h.imported() && *ends == picture.Ends{} && !port
}

// ends is what both ends say of the link.
func (e *end) ends() picture.Ends { return picture.EndsOf(e.up, e.dev) }

func checkDegraded(h *host) (o outcome) {
	var unknown, idle, hidden []topo.ID
	for _, e := range h.ends() {
		ends := e.ends()
		if e.dev.Implausible || h.noLink(&e, &ends) {
			continue // invented, or no PCIe link at all
		}
		o.judged++
		width, speed := ends.Width(), ends.Speed()
		switch {
		case ends.Degraded(e.gpu):
			o.find(h.degraded(&e, width, speed))
		case width.Ability == picture.Unknown || speed.Ability == picture.Unknown || h.halfTold(&e, &ends):
			unknown = append(unknown, e.id)
		case width.Ability == picture.Maybe || speed.Ability == picture.Maybe && !e.gpu:
			hidden = append(hidden, e.id)
		case speed.Ability != picture.Full:
			idle = append(idle, e.id)
		}
	}
	if o.judged == 0 && h.imported() && len(h.gpus)+len(h.t.RDMADevices) > 0 {
		return couldNotCheck("the input has no PCIe links", h.lookAgain())
	}
	o.missing("current or maximum link state is not known", h.linkHow(), unknown...)
	o.missing("runs below what the device can do, and what the slot above can do is not visible", "look at the hypervisor's host, or at a similar machine", hidden...)
	o.missing("full width, reduced speed: an idle GPU does that, and so does a degraded link", "run topoctl again while the GPU works", idle...)
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
func (h *host) degraded(e *end, width, speed picture.Fit) Finding {
	nowMTs, narrow, severity := speed.Now, width.Ability == picture.Less, Warning
	if e.gpu { // an idle GPU's speed says nothing
		nowMTs = speed.Could
	}
	if e.drive {
		severity = Info
	}
	file := "current_link_speed"
	if narrow {
		file = "current_link_width"
	}
	sentence := fmt.Sprintf("its PCIe link runs at %s, both ends can do %s", units.PCIe(nowMTs, width.Now), units.PCIe(speed.Could, width.Could))
	if nowMTs > 0 && width.Now > 0 {
		sentence += fmt.Sprintf(": %s instead of %s", h.rate(topo.PCIeRate(nowMTs, width.Now)), h.rate(topo.PCIeRate(speed.Could, width.Could)))
	}
	if n := h.limited(e.link.ID); n > 0 {
		sentence += fmt.Sprintf("; the bottleneck of %s between GPUs and NICs", text.Plural(n, "path"))
	}
	fix := "reseat the card, check riser and cable; compare with a similar host (topoctl diff)"
	if !narrow {
		fix = "look for a speed limit of the slot in the firmware set-up; reseat the card, check riser and retimer"
	}
	return Finding{Severity: severity, Subjects: []topo.ID{e.id}, Text: sentence, Basis: topo.BasisRead,
		Evidence: e.files(file), Fix: fix}
}

// files are the files of a name at the two ends of a link, as far as they were read, with what they say.
func (e *end) files(names ...string) []string {
	ends := e.ends()
	var out []string
	for _, name := range names {
		out = append(out, linkFile(e.dev, &ends.Below, name), linkFile(e.up, &ends.Above, name))
	}
	return out
}

// linkFile is a file of one end of a link, or the call that took its place, with what it says; "" where nothing was read.
func linkFile(d *topo.PCIDevice, l *topo.PCILink, name string) string {
	fact := map[string]struct {
		name  string
		value *int
	}{
		"current_link_width": {"link.width", l.Width}, "current_link_speed": {"link.speed_mts", l.SpeedMTs},
		"max_link_width": {"link.max_width", l.MaxWidth}, "max_link_speed": {"link.max_speed_mts", l.MaxSpeedMTs},
	}[name]
	if d == nil || fact.value == nil {
		return ""
	}
	says := fmt.Sprint(*fact.value)
	if strings.HasSuffix(name, "speed") {
		says = units.GTs(*fact.value)
	}
	if f, ok := d.Facts.Get(fact.name); ok && f.Source == topo.SourceNVML {
		return withValue(f.Where, says)
	}
	return pciFile(d, name, says)
}

// halfTold says whether only one end of a link reports its state, so that the other end may disagree. Ports that a
// hypervisor made up do not count, and neither do ports that an imported file says nothing about.
func (h *host) halfTold(e *end, ends *picture.Ends) bool {
	silent := func(l *topo.PCILink) bool { return l.Width == nil || !e.gpu && l.SpeedMTs == nil }
	above := e.up != nil && e.up.Role != topo.RoleUpstream && !e.up.Implausible && !(h.imported() && ends.Above == topo.PCILink{})
	return silent(&ends.Below) || above && silent(&ends.Above)
}

// limited counts the pairs of a GPU and a NIC whose rate a link limits.
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

func checkDisagrees(h *host) (o outcome) {
	for _, e := range h.ends() {
		ends := e.ends()
		if e.up == nil || e.up.Role == topo.RoleUpstream || e.dev.Implausible || e.up.Implausible || h.noLink(&e, &ends) {
			continue // one end only, or an invented one, or no PCIe link
		}
		own, above := &ends.Below, &ends.Above
		if own.Width == nil || above.Width == nil || !e.gpu && (own.SpeedMTs == nil || above.SpeedMTs == nil) {
			o.missing("the current link state of one end or both is not known", h.linkHow(), e.id)
			continue
		}
		o.judged++
		file := "current_link_speed"
		switch {
		case *own.Width != *above.Width:
			file = "current_link_width"
		case e.gpu || *own.SpeedMTs == *above.SpeedMTs:
			continue
		}
		o.find(Finding{Severity: Warning, Subjects: []topo.ID{e.id}, Basis: topo.BasisRead,
			Text:     fmt.Sprintf("the two ends of its PCIe link report different states: %s says %s, the port above (%s) says %s; the lower is taken", e.dev.BDF, own, e.up.BDF, above),
			Evidence: e.files(file),
			Fix:      "look again; if it stays, reseat the card and update firmware and kernel"})
	}
	if o.judged+len(o.unknown) == 0 && h.imported() && len(h.t.PCIDevices) == 0 {
		return couldNotCheck("the input has no PCIe links", h.lookAgain())
	}
	return o
}

func checkImplausible(h *host) (o outcome) {
	if len(h.gpus)+len(h.hardware) == 0 {
		return notApplicable("no GPU and no RDMA hardware")
	}
	if len(h.t.PCIDevices) == 0 {
		return couldNotCheck("the input has no PCI functions", h.lookAgain())
	}
	guest, known := h.guest()
	var low, fine []*topo.PCIDevice // by whether the maximum is invented too
	for i := range h.t.PCIDevices {
		d := &h.t.PCIDevices[i]
		if !d.IsBridge() || !h.leadsToDevice(d) {
			continue
		}
		o.judged++
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
	o.note = text.Plural(o.judged, "bridge")
	if len(low) > 0 {
		o.find(h.inventedLinks(low, Warning, guest || known))
	}
	if len(fine) > 0 {
		o.find(h.inventedLinks(fine, Info, true))
	}
	if !known && len(low)+len(fine) == 0 {
		o.missingOfHost("whether the host is a virtual machine is not known", h.lookAgain())
	}
	return o
}

// leadsToDevice says whether a GPU or an RDMA device is below a bridge.
func (h *host) leadsToDevice(d *topo.PCIDevice) bool {
	for f := range h.Below(d.ID) {
		if on := h.On(f.ID); len(on.GPUs)+len(on.RDMADevices) > 0 {
			return true
		}
	}
	return false
}

// maxBelow says whether the maximum that a bridge reports is a quarter or less
// of what a function below it can do.
func (h *host) maxBelow(d *topo.PCIDevice) bool {
	const muchSlower = 4
	own, ok := maxRate(d.Link)
	return ok && own > 0 && slices.ContainsFunc(h.Children(d.ID), func(f *topo.PCIDevice) bool {
		below, ok := maxRate(f.Link)
		return ok && own*muchSlower <= below
	})
}

// maxRate is what a link's end can carry; ok is false where that is not known.
func maxRate(l *topo.PCILink) (r topo.Rate, ok bool) {
	if l == nil || l.MaxSpeedMTs == nil || l.MaxWidth == nil {
		return 0, false
	}
	return topo.PCIeRate(*l.MaxSpeedMTs, *l.MaxWidth), true
}

// maxKnown says whether the maximum of a bridge and of what is below it is known.
func (h *host) maxKnown(d *topo.PCIDevice) bool {
	known := func(d *topo.PCIDevice) bool { _, ok := maxRate(d.Link); return ok }
	return known(d) && slices.ContainsFunc(h.Children(d.ID), known)
}

func (h *host) inventedLinks(bridges []*topo.PCIDevice, severity Severity, sure bool) Finding {
	d := bridges[0]
	link, file := d.Believed(), "current_link_speed"
	if d.Implausible {
		link = *d.Link
	}
	mts, lanes := link.SpeedMTs, link.Width
	if severity == Warning {
		mts, lanes, file = link.MaxSpeedMTs, link.MaxWidth, "max_link_speed"
	}
	state := units.PCIe(value(mts), value(lanes))
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
	if slices.ContainsFunc(bridges, func(d *topo.PCIDevice) bool { return !h.maxKnown(d) }) {
		fix = "topoctl does not count them; NCCL reads the maximum, which is not known here for all of them: look at max_link_speed and max_link_width of the bridges"
	}
	if severity == Warning {
		fix = "NCCL believes them: topoctl export nccl-xml > topo.xml, and set NCCL_TOPO_FILE=topo.xml"
		if why := ncclxml.TooLarge(h.t, false); why != "" {
			fix = "NCCL believes them; look for the provider's topology file or NCCL plugin. " + strings.ToUpper(why[:1]) + why[1:]
		}
	}
	return Finding{Severity: severity, Subjects: functionIDs(bridges), Text: sentence, Evidence: []string{pciFile(d, file, "")}, Fix: fix}
}

// value is a number, 0 where it is not known.
func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
