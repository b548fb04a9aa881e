package pathsel

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// Nearness says whether the classes of this host can be believed. One that cannot is unknown in every
// answer of this package.
func (h *Host) Nearness() topo.Nearness { return h.near }

// Unseen ends a sentence about how near something is whose class is unknown.
func (h *Host) Unseen() string {
	if h.near == topo.NearnessHidden {
		return "cannot be seen in this virtual machine"
	}
	return "is not known"
}

// Blind says that nothing tells which of several usable ports are near any of the given locations. It is nil
// where something does, and where there is no choice.
func (h *Host) Blind(locations ...Location) *Reason {
	usable := 0
	for i := range h.ports {
		if !h.ports[i].Usable {
			continue
		}
		usable++
		for _, l := range locations {
			if loc, ok := h.locIndex[l]; !ok || h.routes[loc][i].class.Known() {
				return nil
			}
		}
	}
	if usable < 2 || len(locations) == 0 {
		return nil
	}
	what := "which GPU"
	switch {
	case len(locations) == 1:
		what = string(locations[0])
	case strings.HasPrefix(string(locations[0]), "cpu:"):
		what = "which NUMA node"
	}
	return h.unplaced("which NIC is near " + what)
}

// unplaced says that something cannot be seen, or is not known, of ports of unknown class.
func (h *Host) unplaced(what string) *Reason {
	code := CodeNearUnknown
	if h.near == topo.NearnessHidden {
		code = CodeNearHidden
	}
	return &Reason{code, what + " " + h.Unseen(), ""}
}

// HowToSee says how to learn which ports are near, where that is not known.
func (h *Host) HowToSee() string {
	switch {
	case h.near == topo.NearnessHidden:
		return "topoctl remap can tell which are near, given a topology of the machine that this one runs on; NCCL takes the provider's topology file (NCCL_TOPO_FILE)"
	case strings.HasPrefix(h.t.Origin, "import:"):
		return "topoctl on the host itself can tell which are near"
	}
	return "topoctl doctor says why"
}

// nearness is what a plan says of consumers whose best port is of unknown class, nil if there are none or no
// choice of ports.
func (pl *planner) nearness(p *Plan) *Reason {
	var locations []Location
	var names []string
	for i := range p.Assignments {
		if a := &p.Assignments[i]; len(a.Ports) > 0 && !a.Ports[0].Class.Known() {
			names, locations = append(names, a.Consumer), append(locations, a.Location)
		}
	}
	if len(names) == 0 || len(p.Ports) < 2 {
		return nil
	}
	if r := pl.h.Blind(locations...); r != nil && len(names) == len(p.Assignments) {
		return r
	}
	return pl.h.unplaced(fmt.Sprintf("how near %s %s ports", planNames(names), text.Noun(len(names), "is to its", "are to their")))
}

// blindLanes is the note about a host whose lanes are chosen without knowing which ports are near.
func (h *Host) blindLanes(name string, l Location) []Reason {
	if r := h.Blind(l); r != nil {
		return []Reason{{r.Code, name + ": " + r.Text, ""}}
	}
	return nil
}
