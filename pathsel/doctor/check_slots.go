package doctor

import (
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/picture"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/pathsel"
)

// carries is what a PCIe link can carry: at the maximum of both ends if both are
// known, else at its current state, because the unknown end may be narrower. If that is
// not known either, ok is false, and the result is what the known end can carry.
func (h *host) carries(l *topo.Link) (lane topo.LaneRate, ok bool) {
	ends := picture.EndsOf(h.PCIDevice(l.A), h.PCIDevice(l.B))
	a, b := &ends.Above, &ends.Below
	both := a.MaxSpeedMTs != nil && a.MaxWidth != nil && b.MaxSpeedMTs != nil && b.MaxWidth != nil
	switch {
	case l.Max != nil && both:
		return *l.Max, true
	case l.Cur != nil:
		return *l.Cur, true
	case l.Max != nil:
		return *l.Max, false
	case l.BytesPerSec != nil:
		return topo.LaneRate{BytesPerSec: *l.BytesPerSec}, true
	}
	return topo.LaneRate{}, false
}

// slotPorts lists the ports whose slot matters: those of hardware that are up, without
// virtual functions.
func (h *host) slotPorts() []*pathsel.Port {
	return matching(h.ports, func(p *pathsel.Port) bool {
		if p.Software || p.Virtual || p.VF || p.Role == pathsel.RoleDecoy || !h.active(p) {
			return false
		}
		d := h.function(p) // without a slot: paravirtual, or a part of the root complex
		return d != nil && !d.Implausible && (d.Link != nil || h.LinkAbove(d.ID) != nil)
	})
}

func checkSlots(h *host) (o outcome) {
	var rates, links []topo.ID
	for _, p := range h.slotPorts() {
		o.judged++
		if p.BytesPerSec == nil || *p.BytesPerSec <= 0 {
			rates = append(rates, p.ID)
			continue
		}
		known, own := true, true
		for d := range h.Climb(h.function(p).ID) {
			l := h.LinkAbove(d.ID)
			if l != nil && !(d.Implausible || h.PCIDevice(l.A) != nil && h.PCIDevice(l.A).Implausible && l.Cur == nil && l.Max == nil) {
				lane, ok := h.carries(l)
				switch {
				case lane.BytesPerSec > 0 && lane.BytesPerSec < *p.BytesPerSec:
					o.find(h.slotFinding(p, l, lane, own))
				case !ok:
					known = false
				}
			}
			own = own && l == nil
		}
		if !known {
			links = append(links, p.ID)
		}
	}
	o.missing("the rate of the port is not known", h.rateHow(rates), rates...)
	o.missing("a PCIe link on the way to the port is not known", h.linkHow(), links...)
	if o.judged == 0 && h.imported() && len(h.t.PCIDevices) == 0 && len(h.t.RDMADevices) > 0 {
		return couldNotCheck("the input has no PCIe links and no port rates", h.lookAgain())
	}
	return o
}

func (h *host) slotFinding(p *pathsel.Port, l *topo.Link, lane topo.LaneRate, own bool) Finding {
	state := "its PCIe link"
	if lane.Width > 0 {
		state = units.PCIe(lane.SpeedMTs, lane.Width)
	}
	d := h.PCIDevice(l.B)
	f := Finding{Severity: Warning, Subjects: []topo.ID{p.ID}, Basis: topo.BasisRead,
		Evidence: append([]string{h.portFile(p, "rate", h.wire(*p.BytesPerSec))}, h.slotFiles(l)...)}
	if !own {
		f.Severity = Info
		f.Text = fmt.Sprintf("the switch uplink %s above it carries %s (%s), its port %s (%s): less for host memory and for GPUs elsewhere",
			d.BDF, h.rate(lane.BytesPerSec), state, h.rate(*p.BytesPerSec), h.wire(*p.BytesPerSec))
		f.Fix = "pair the NIC with GPUs below the same switch: topoctl path gpu:N"
		return f
	}
	f.Text = fmt.Sprintf("the port has %s (%s), its slot carries %s (%s): %d %% of the port",
		h.wire(*p.BytesPerSec), h.rate(*p.BytesPerSec), h.rate(lane.BytesPerSec), state, lane.BytesPerSec*100/(*p.BytesPerSec))
	ends := picture.EndsOf(h.PCIDevice(l.A), d)
	card, slot := ends.Below, ends.Above
	switch {
	case card.MaxSpeedMTs == nil || card.MaxWidth == nil || slot.MaxSpeedMTs == nil || slot.MaxWidth == nil:
		f.Fix = "compare what the card and its slot can do, one of them is not known here; until then plan with " + h.rate(lane.BytesPerSec)
	case topo.PCIeRate(*card.MaxSpeedMTs, *card.MaxWidth) <= lane.BytesPerSec:
		f.Fix = "the card itself can do no more: plan with " + h.rate(lane.BytesPerSec)
	default:
		f.Fix = fmt.Sprintf("move the card, which can do %s, to a slot that can; until then plan with %s", units.PCIe(*card.MaxSpeedMTs, *card.MaxWidth), h.rate(lane.BytesPerSec))
	}
	return f
}

func checkSharedSlot(h *host) (o outcome) {
	var cards groups[topo.ID, *pathsel.Port]
	for _, p := range h.slotPorts() {
		if p.Card != "" {
			cards.add(p.Card, p)
		}
	}
	cards.each(func(card topo.ID, ports []*pathsel.Port) {
		if len(ports) < 2 {
			return
		}
		o.judged++
		total, known := topo.Rate(0), true
		for _, p := range ports {
			if known = known && p.BytesPerSec != nil; known {
				total += *p.BytesPerSec
			}
		}
		d := h.function(ports[0])
		var lane topo.LaneRate
		l := h.LinkAbove(d.ID)
		if l == nil {
			known = false
		} else if known {
			lane, known = h.carries(l)
		}
		switch {
		case !known:
			o.missing("the rate of a port or of the slot is not known", h.lookAgain(), ids(ports)...)
		case total > lane.BytesPerSec:
			o.find(h.sharedFinding(ports, total, lane, l))
		}
	})
	if o.judged == 0 && h.imported() && len(h.t.PCIDevices) == 0 && len(h.t.RDMADevices) > 1 {
		return couldNotCheck("the input does not say which ports are on one card", h.lookAgain())
	}
	return o
}

func (h *host) sharedFinding(ports []*pathsel.Port, total topo.Rate, lane topo.LaneRate, l *topo.Link) Finding {
	f := Finding{Severity: Warning, Subjects: ids(ports), Basis: topo.BasisRead,
		Text: fmt.Sprintf("%s of one card have %s together, their slot carries %s (%s)", portList(ports),
			h.rate(total), h.rate(lane.BytesPerSec), units.PCIe(lane.SpeedMTs, lane.Width)),
		Evidence: append([]string{h.portFile(ports[0], "rate", h.wire(*ports[0].BytesPerSec))}, h.slotFiles(l)...),
		Fix:      "use one of the ports, or ports of different cards first; topoctl counts the slot once"}
	if len(onlyData(ports)) < 2 {
		f.Severity = Info
		f.Text += fmt.Sprintf("; their role is %s", ports[0].Role)
	}
	return f
}

// slotFiles are the files that say what carries takes for what a slot can do.
func (h *host) slotFiles(l *topo.Link) []string {
	e := end{dev: h.PCIDevice(l.B), up: h.PCIDevice(l.A)}
	if lane, _ := h.carries(l); l.Max != nil && lane == *l.Max {
		return e.files("max_link_speed", "max_link_width")
	}
	return e.files("current_link_speed", "current_link_width")
}

func checkNoPCI(h *host) (o outcome) {
	for _, r := range h.hardware {
		o.judged++
		switch {
		case r.PCI != "":
		case h.imported():
			o.missing("the input has no PCI functions for RDMA devices", h.lookAgain(), r.ID)
		default:
			o.find(Finding{Severity: Warning, Subjects: []topo.ID{r.ID}, Evidence: []string{r.Evidence},
				Text: "RDMA hardware without a PCI function here: its slot, NUMA node and distance to GPUs are not known, and it ranks last",
				Fix:  "in a container, mount all of the host's /sys; on the host, look at /sys/class/infiniband/" + r.Name + "/device and the driver's messages"})
		}
	}
	return o
}
