package pathsel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/units"
)

// Role is the purpose of a NIC.
type Role string

// The roles, best first.
const (
	RoleData       Role = "data"
	RoleUnknown    Role = "unknown"
	RoleStorage    Role = "storage" // another fabric, or away from the GPUs: storage or in-band network
	RoleManagement Role = "management"
	RoleDecoy      Role = "decoy" // looks like a data NIC and must not carry data
)

// roleOrder ranks roles: data first, decoys never used.
var roleOrder = map[Role]int{RoleData: 0, RoleUnknown: 1, RoleStorage: 2, RoleManagement: 3, RoleDecoy: 4}

// muchSlower is how far apart management and data ports are in rate.
const muchSlower = 4

// roles collects the facts by which roles are judged.
type roles struct {
	h       *Host
	fastest topo.Rate      // of all hardware ports that are up
	beside  []topo.ID      // for each port, a GPU below the same PCIe switch, "" if none
	placed  []bool         // for each port, whether its place in the tree, or its class to some GPU, is known
	covered bool           // every GPU has a port beside it, for all we know
	layers  map[string]int // link layers of the ports beside GPUs
	rates   map[topo.Rate]int
	fabrics map[string]*fabric // by link layer
}

// fabric is all RDMA ports of one link layer together.
type fabric struct {
	rate    topo.Rate
	unknown bool // the rate of a port is not known
}

// assignRoles gives every port its role and the reason for it.
func (h *Host) assignRoles(override map[topo.ID]Role) error {
	for nic, role := range override {
		if _, ok := roleOrder[role]; !ok {
			return pkgerr.Errorf("pathsel", "role %q of %s: want data, storage, management, decoy or unknown", role, nic)
		}
		if !slices.ContainsFunc(h.ports, func(p Port) bool { return p.NIC == nic }) {
			return pkgerr.Errorf("pathsel", "role %q of %s: this host has no such NIC", role, nic)
		}
	}
	r := roles{h: h, beside: make([]topo.ID, len(h.ports)), placed: make([]bool, len(h.ports)),
		layers: map[string]int{}, rates: map[topo.Rate]int{}, fabrics: map[string]*fabric{"InfiniBand": {}, "Ethernet": {}}}
	r.gather()
	for i := range h.ports {
		p := &h.ports[i]
		if role, ok := override[p.NIC]; ok {
			p.Role, p.RoleReason = role, Reason{CodeOverride, "set by the user", ""}
			continue
		}
		p.Role, p.RoleReason = r.judge(i)
	}
	h.followCard(r.fastest)
	h.followPF()
	return nil
}

// followCard makes what is undecided on the card of a management port a
// management port too: a second connector that is not plugged in says nothing.
func (h *Host) followCard(fastest topo.Rate) {
	managed := map[topo.ID]string{}
	for i := range h.ports {
		if p := &h.ports[i]; p.Role == RoleManagement && p.Card != "" {
			managed[p.Card] = p.Name
		}
	}
	for i := range h.ports {
		p := &h.ports[i]
		name := managed[p.Card]
		undecided := !p.RDMA() && p.Role != RoleManagement || p.RoleReason.Code == codeNoOther && (p.BytesPerSec == nil || *p.BytesPerSec*2 <= fastest)
		if name != "" && undecided && p.RoleReason.Code != CodeOverride {
			p.Role, p.RoleReason = RoleManagement, Reason{codeSameCard, "on the card of " + name + ", a management port", p.evidence}
		}
	}
}

// followPF gives virtual functions the role of their physical function.
func (h *Host) followPF() {
	for i := range h.ports {
		p := &h.ports[i]
		if pf, ok := h.portIndex[p.PF]; ok && p.RoleReason.Code != CodeOverride {
			p.Role, p.RoleReason = h.ports[pf].Role, h.ports[pf].RoleReason
		}
	}
}

// gather collects rates, link layers and which ports stand beside a GPU.
func (r *roles) gather() {
	t := r.h.t
	near, rdma := map[topo.ID]bool{}, r.hasRDMA()
	unplaced := 0 // ports that may be beside a GPU for all we know
	for i := range r.h.ports {
		p := &r.h.ports[i]
		if p.Software || p.Virtual {
			continue
		}
		_, isDecoy := r.decoy(p)
		if p.BytesPerSec != nil && !isDecoy {
			r.fastest = max(r.fastest, *p.BytesPerSec)
		}
		if _, onAxis := r.h.index.Place(p.NIC); !onAxis || isDecoy || rdma && !p.RDMA() {
			continue
		}
		if f := r.fabrics[p.LinkLayer]; f != nil && p.RDMA() {
			if p.BytesPerSec != nil {
				f.rate += *p.BytesPerSec
			} else {
				f.unknown = true
			}
		}
		r.placed[i] = r.h.index.PCIDevice(p.pci()) != nil
		for g := range t.GPUs {
			way, _ := r.h.index.Relation(t.GPUs[g].ID, p.NIC)
			r.placed[i] = r.placed[i] || way.Class.Known()
			if way.Class.Kind == topo.ClassPIX || way.Class.Kind == topo.ClassPXB {
				near[t.GPUs[g].ID] = true
				if r.beside[i] == "" {
					r.beside[i] = t.GPUs[g].ID
				}
			}
		}
		if !r.placed[i] {
			unplaced++
		}
		if r.beside[i] != "" {
			r.layers[p.LinkLayer]++
			if p.BytesPerSec != nil && *p.BytesPerSec > 0 {
				r.rates[*p.BytesPerSec]++
			}
		}
	}
	r.covered = len(near) > 0 && len(near)+unplaced >= len(t.GPUs)
}

// judge finds a port's role: the first rule that applies.
func (r *roles) judge(i int) (Role, Reason) {
	p := &r.h.ports[i]
	if reason, ok := r.decoy(p); ok {
		return RoleDecoy, reason
	}
	if r.beside[i] == "" {
		if reason, ok := r.management(p); ok {
			return RoleManagement, reason
		}
	} else {
		return RoleData, Reason{codeBesideGPU, fmt.Sprintf("shares a PCIe switch with %s", r.beside[i]), p.evidence}
	}
	if reason, ok := r.storage(i); ok {
		return RoleStorage, reason
	}
	if len(r.layers) == 0 {
		if role, reason, ok := r.lesserFabric(p); ok {
			return role, reason
		}
	}
	return RoleData, Reason{codeNoOther, "nothing sets it apart from a data port", p.evidence}
}

// decoy recognizes NICs that must not carry data: the ConnectX-7 functions that
// manage NVLink on B200 and later boards (Mellanox 1021 with subsystem 0087),
// and ports whose slot has two lanes at most for 100 Gb/s or more.
func (r *roles) decoy(p *Port) (Reason, bool) {
	d := r.h.index.PCIDevice(p.pci())
	if d == nil || p.Software {
		return Reason{}, false
	}
	if d.Vendor == "0x15b3" && d.Device == "0x1021" && d.SubVendor == "0x15b3" && d.SubDevice == "0x0087" {
		return Reason{codeManagesNV, "a ConnectX that manages NVLink, not a data NIC (subsystem 15b3:0087)", d.Evidence + "/subsystem_device"}, true
	}
	const manyBits, fewLanes = 12_500 * topo.MBPerSec, 2
	if d.Link != nil && !d.Implausible && d.Link.MaxWidth != nil && *d.Link.MaxWidth > 0 && *d.Link.MaxWidth <= fewLanes &&
		p.BytesPerSec != nil && *p.BytesPerSec >= manyBits {
		return Reason{codeNarrow, fmt.Sprintf("at most %d PCIe lanes for a port of %s: not built to carry data",
			*d.Link.MaxWidth, units.Rate(int64(*p.BytesPerSec), units.Gbit)), d.Evidence + "/max_link_width"}, true
	}
	return Reason{}, false
}

// management recognizes the slow ports beside fast ones, and what has the default
// route and is slower than others or no RDMA device beside such.
func (r *roles) management(p *Port) (Reason, bool) {
	route := ""
	if p.netdev != nil && hasDefaultRoute(p.netdev) {
		route = ", has the default route"
	}
	switch {
	case p.Virtual || p.Software:
		return Reason{}, false
	case p.BytesPerSec != nil && *p.BytesPerSec > 0 && *p.BytesPerSec*muchSlower < r.fastest:
		return Reason{codeSlow, fmt.Sprintf("%s beside %s%s", units.Rate(int64(*p.BytesPerSec), units.Gbit),
			units.Rate(int64(r.fastest), units.Gbit), route), p.evidence}, true
	case route != "" && p.BytesPerSec != nil && *p.BytesPerSec > 0 && *p.BytesPerSec < r.fastest:
		return Reason{codeDefaultRoute, fmt.Sprintf("has the default route, and %s beside %s", units.Rate(int64(*p.BytesPerSec), units.Gbit),
			units.Rate(int64(r.fastest), units.Gbit)), p.evidence}, true
	case !p.RDMA() && route != "" && r.hasRDMA():
		return Reason{codeDefaultRoute, "has the default route and no RDMA device, which others have", p.evidence}, true
	}
	return Reason{}, false
}

func (r *roles) hasRDMA() bool {
	return slices.ContainsFunc(r.h.ports, func(p Port) bool { return p.RDMA() && !p.Software })
}

func hasDefaultRoute(n *topo.Netdev) bool {
	return slices.ContainsFunc(n.Routes, topo.Route.IsDefault)
}

// storage recognizes ports away from the GPUs on hosts where GPUs have ports of
// their own: every GPU has one, or this one is of another fabric. EFA is never for
// storage, which AWS attaches by ENA and as NVMe: instances have EFA devices away
// from the GPUs too. Source: NIXL test/unit/utils/libfabric/topo/p6e-gb200.36xl-topo.xml.
func (r *roles) storage(i int) (Reason, bool) {
	p := &r.h.ports[i]
	switch {
	case p.Software || p.Virtual || len(r.layers) == 0 || p.rdma != nil && p.rdma.Transport == "efa":
		return Reason{}, false
	case r.covered && r.placed[i]:
		return Reason{codeNoGPUBeside, "no GPU below its PCIe switch, and every GPU has a port below its own", p.evidence}, true
	case p.LinkLayer != "" && r.layers[p.LinkLayer] == 0 && r.layers[""] == 0:
		return Reason{codeOtherFabric, fmt.Sprintf("%s, and the ports beside GPUs are %s", p.LinkLayer, strings.Join(slices.Sorted(maps.Keys(r.layers)), " and ")), p.at("link_layer")}, true
	case p.BytesPerSec != nil && *p.BytesPerSec > 0 && len(r.rates) == 1 && r.rates[*p.BytesPerSec] == 0:
		for rate := range r.rates { // the only one
			return Reason{codeOtherFabric, fmt.Sprintf("%s, and the ports beside GPUs have %s",
				units.Rate(int64(*p.BytesPerSec), units.Gbit), units.Rate(int64(rate), units.Gbit)), p.evidence}, true
		}
	}
	return Reason{}, false
}

// lesserFabric recognizes the ports of a link layer that carries less than the
// other one, where InfiniBand and Ethernet stand side by side and no port is
// nearer to a GPU than the others. Where the rates that are known do not tell, it
// doubts Ethernet: InfiniBand is built for data alone.
func (r *roles) lesserFabric(p *Port) (Role, Reason, bool) {
	own, other, otherLayer := r.fabrics[p.LinkLayer], r.fabrics["Ethernet"], "Ethernet"
	if p.LinkLayer == otherLayer {
		other, otherLayer = r.fabrics["InfiniBand"], "InfiniBand"
	}
	switch {
	case !p.RDMA() || p.Software || own == nil || own.carriesNothing() || other.carriesNothing() || own.rate > other.rate:
		return "", Reason{}, false
	case own.rate < other.rate && !own.unknown:
		return RoleStorage, Reason{codeOtherFabric, fmt.Sprintf("%s (%s in all) beside %s (%s in all)", p.LinkLayer,
			units.Rate(int64(own.rate), units.Gbit), otherLayer, units.Rate(int64(other.rate), units.Gbit)), p.at("link_layer")}, true
	case p.LinkLayer == "Ethernet" && (own.unknown || other.unknown):
		return RoleUnknown, Reason{codeWhichFabric, "Ethernet beside InfiniBand, and their rates are not known: it may not be the data network", p.evidence}, true
	}
	return "", Reason{}, false
}

func (f *fabric) carriesNothing() bool { return f.rate == 0 && !f.unknown }
