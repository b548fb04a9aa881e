package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// nearest is the best class of a GPU to some ports, and the ports that have
// it; known is false where a class is not known.
func (h *host) nearest(gpu topo.ID, ports []*pathsel.Port) (best topo.Class, at []*pathsel.Port, known bool) {
	known = true
	for _, p := range ports {
		c := h.class(gpu, p.NIC)
		known = known && c.Known()
		switch order := c.Compare(best); {
		case len(at) == 0 || order < 0:
			best, at = c, []*pathsel.Port{p}
		case order == 0:
			at = append(at, p)
		}
	}
	return best, at, known
}

func near(c topo.Class) bool {
	return c.Kind == topo.ClassPIX || c.Kind == topo.ClassPXB || c.Kind == topo.ClassC2C
}

// coherent says whether a GPU has a C2C link to its CPU.
func (h *host) coherent(gpu topo.ID) bool { return h.coherentLink(gpu) != nil }

// coherentLink is a GPU's C2C link to its CPU, nil if it has none.
func (h *host) coherentLink(gpu topo.ID) *topo.Link {
	i := slices.IndexFunc(h.t.Links, func(l topo.Link) bool { return l.Kind == topo.LinkC2C && (l.A == gpu || l.B == gpu) })
	if i < 0 {
		return nil
	}
	return &h.t.Links[i]
}

// coherentEvidence is where a GPU's C2C link to its CPU was read.
func (h *host) coherentEvidence(gpu topo.ID) []string {
	l := h.coherentLink(gpu)
	if len(l.Facts) == 0 {
		return h.treeEvidence(gpu)
	}
	where := l.Facts[0].Where
	if l.Facts[0].Source == topo.SourceNVML {
		where += " (C2C links)"
	}
	return []string{where}
}

func checkNearNIC(h *host) (o outcome) {
	ports := h.dataPorts
	if len(h.gpus) == 0 || len(ports) == 0 {
		return notApplicable("needs a GPU and an RDMA data port")
	}
	var far groups[topo.Class, topo.ID]
	beside := map[topo.ID][]*pathsel.Port{}
	for _, g := range h.gpus {
		o.judged++
		switch best, at, known := h.nearest(g.ID, ports); {
		case near(best) || h.coherent(g.ID):
			beside[g.ID] = at
		case h.DataDirectBeside(g.PCI) != nil:
			o.missing("it shares a PCIe switch with the data direct function of a NIC, whose way is not judged yet", "rdma_topo of rdma-core shows which NIC it belongs to", g.ID)
		case !known:
			o.missing("its distance to NICs is not known", h.placeHow(), g.ID)
		default:
			far.add(best, g.ID)
		}
	}
	by := h.siblings(beside)
	far.each(func(class topo.Class, gpus []topo.ID) { o.find(h.farNICs(&by, class, gpus, ports)) })
	return o
}

// siblings compares the GPUs of a host: how many have a near NIC, and which cards those are by socket.
type siblings struct {
	near, all int
	cards     map[int][]topo.ID
}

func (h *host) siblings(near map[topo.ID][]*pathsel.Port) siblings {
	sockets, _ := h.socketsOf()
	s := siblings{near: len(near), all: len(h.gpus), cards: map[int][]topo.ID{}}
	for _, g := range h.gpus {
		socket := -1
		if g.NUMA != nil {
			socket = sockets[*g.NUMA]
		}
		for _, p := range near[g.ID] {
			s.cards[socket] = append(s.cards[socket], cmp.Or(h.RDMADevice(p.NIC).NIC, p.NIC))
		}
		s.cards[socket] = unique(s.cards[socket])
	}
	return s
}

// odd says whether the GPUs without a near NIC are an exception, rather than the way the host is built.
func (s *siblings) odd() bool {
	least, most := s.all, 0
	for _, cards := range s.cards {
		least, most = min(least, len(cards)), max(most, len(cards))
	}
	return s.near > s.all-s.near || most-least > 1
}

func checkC2C(h *host) (o outcome) {
	ports := h.dataPorts
	gpus := h.nvidia()
	if len(gpus) == 0 || len(ports) == 0 {
		return notApplicable("needs an NVIDIA GPU and an RDMA data port")
	}
	var over []topo.ID
	for _, g := range gpus {
		o.judged++
		switch best, _, _ := h.nearest(g.ID, ports); {
		case h.coherent(g.ID):
			if !near(best) {
				over = append(over, g.ID)
			}
		case g.KnownFrom != "driver" && !h.imported(), h.imported() && h.t.Origin != string(topo.SourceNCCL):
			o.missing("C2C links are not known", h.askNVML(), g.ID)
		}
	}
	if len(over) > 0 {
		best, _, _ := h.nearest(over[0], ports)
		o.find(Finding{Severity: Info, Subjects: over, Evidence: h.coherentEvidence(over[0]),
			Text: fmt.Sprintf("reaches its NICs over C2C and the CPU (%s, NCCL's P2C): programs that count PCIe switches only copy through host memory instead", best),
			Fix:  "NCCL_NET_GDR_C2C=1 where it is not the default; topoctl matrix --show nccl shows the path types"})
	}
	return o
}

// farNICs is the finding about GPUs whose nearest NIC is of a farther class.
func (h *host) farNICs(by *siblings, class topo.Class, gpus []topo.ID, ports []*pathsel.Port) Finding {
	_, at, _ := h.nearest(gpus[0], ports)
	sentence := fmt.Sprintf("no NIC below its own PCIe switch; the nearest %s %s", text.Noun(len(at), "is", "are"), class)
	if r, basis, ok := h.expected(gpus[0], ports); ok {
		sentence += ", " + h.bounded(r, basis)
	}
	sentence += fmt.Sprintf(" (for %s %s)", gpus[0], shortList(names(at)))
	fix := "the host is built this way: give each GPU the nearest NIC; " + perRank
	if guest, _ := h.guest(); guest {
		fix = "a guest may not see the switches that they share: look for the provider's NCCL_TOPO_FILE"
	}
	severity := Info
	if by.near > 0 {
		sentence += fmt.Sprintf("; %d of %d GPUs here %s one", by.near, by.all, text.Noun(by.near, "has", "have"))
	}
	if by.odd() {
		severity = Warning
		fix = "look for a NIC that is missing, switched off or in another slot than on like hosts; until then plan with the lower rate: topoctl path " + string(gpus[0])
	}
	return Finding{Severity: severity, Subjects: gpus, Text: sentence, Evidence: h.treeEvidence(gpus[0]), Fix: fix}
}

// expected is what the nearest of some ports carries for a GPU.
func (h *host) expected(gpu topo.ID, ports []*pathsel.Port) (topo.Rate, topo.Basis, bool) {
	a, err := h.paths.Affinity(pathsel.LocationOf(gpu), nil)
	if err != nil {
		return 0, "", false
	}
	for _, c := range a.Ranked {
		if c.BytesPerSec != nil && slices.ContainsFunc(ports, func(p *pathsel.Port) bool { return p.ID == c.Port }) {
			return *c.BytesPerSec, c.Basis, true
		}
	}
	return 0, "", false
}

// treeEvidence is where a GPU's place in the tree is shown.
func (h *host) treeEvidence(gpu topo.ID) []string {
	if g := h.GPU(gpu); g != nil {
		return []string{g.Evidence}
	}
	return nil
}

// byNumber are the devices of some ports in the order of names, one port each.
func byNumber(ports []*pathsel.Port) []*pathsel.Port {
	var out []*pathsel.Port
	for _, p := range ports {
		if !slices.ContainsFunc(out, func(q *pathsel.Port) bool { return q.NIC == p.NIC }) {
			out = append(out, p)
		}
	}
	return out
}

// misled lists the GPUs that get a farther NIC than their nearest data NIC if they are paired by
// number, and says which NIC each gets.
func (h *host) misled(nics, data []*pathsel.Port) (gpus []topo.ID, what []string) {
	for i := range min(len(h.gpus), len(nics)) { // there is no NIC for further GPUs to take
		g := h.gpus[i]
		best, at, _ := h.nearest(g.ID, data)
		if c := h.class(g.ID, nics[i].NIC); c.Known() && best.Compare(c) < 0 {
			gpus = append(gpus, g.ID)
			what = append(what, fmt.Sprintf("%s gets %s (%s), its nearest %s %s (%s)", g.ID, nics[i].Name, c, text.Noun(len(at), "is", "are"), shortList(names(at)), best))
		}
	}
	return gpus, what
}

func checkIndex(h *host) (o outcome) {
	data := byNumber(h.dataPorts)
	if len(h.gpus) < 2 || len(data) < 2 {
		return notApplicable("needs two GPUs and two RDMA data NICs")
	}
	for _, g := range h.gpus {
		if _, _, known := h.nearest(g.ID, data); !known {
			o.missing("its distance to some NIC is not known", h.placeHow(), g.ID)
		}
	}
	gpus, what := h.misled(data, data)
	severity, which := Warning, "the data NICs"
	if len(data) < len(h.gpus) {
		severity = Info
	}
	if len(gpus) == 0 {
		gpus, what = h.misled(byNumber(h.hardwarePorts), data)
		severity, which = Info, "all RDMA devices, storage and others included,"
	}
	if len(gpus) > 0 {
		sentence := fmt.Sprintf("pairing GPUs with %s by number is wrong for %d of %d GPUs: %s", which, len(gpus), len(h.gpus), what[0])
		if len(what) > 1 {
			sentence += "; " + what[1]
		}
		o.find(Finding{Severity: severity, Subjects: gpus, Text: sentence, Evidence: h.treeEvidence(gpus[0]),
			Fix: "pair by topology, as topoctl path " + string(gpus[0]) + " shows; " + perRank})
	}
	o.note = fmt.Sprintf("%s, %s", text.Plural(len(h.gpus), "GPU"), text.Plural(len(data), "data NIC"))
	return o
}

func checkRoles(h *host) (o outcome) {
	type key struct {
		role pathsel.Role
		text string
	}
	var by groups[key, *pathsel.Port]
	for _, p := range byNumber(h.hardwarePorts) {
		o.judged++
		switch {
		case p.Role != pathsel.RoleData:
			by.add(key{p.Role, p.RoleReason.Text}, p)
		case p.BytesPerSec == nil && p.LinkLayer == "" || h.function(p) == nil:
			o.missing("too little is known about the device to say what it is for", h.lookAgain(), p.ID)
		}
	}
	by.each(func(k key, ports []*pathsel.Port) {
		devices := strings.Join(distinct(mapped(ports, func(p *pathsel.Port) string { return p.Device })...), ",")
		fix := "leave them out elsewhere too: NCCL_IB_HCA=^" + devices
		if k.role == pathsel.RoleDecoy {
			fix = "keep data off them: NCCL_IB_HCA=^" + devices + ", and topoctl export env --for nccl for others"
		}
		o.find(Finding{Severity: Info, Subjects: ids(ports), Text: fmt.Sprintf("%s: %s; not used for data", k.role, k.text), Fix: fix,
			Evidence: mapped(ports, func(p *pathsel.Port) string { return p.RoleReason.Evidence })})
	})
	return o
}

// blueFields are the network functions of BlueField 1, 2 and 3. Source: the PCI
// ID repository, vendor 15b3.
var blueFields = map[topo.HexID]string{"0xa2d2": "BlueField", "0xa2d6": "BlueField-2", "0xa2dc": "BlueField-3"}

func checkDPU(h *host) (o outcome) {
	if h.imported() && len(h.t.RDMADevices) > 0 && len(h.t.PCIDevices) == 0 {
		return couldNotCheck("the input has no PCI functions", h.lookAgain())
	}
	var cards groups[string, *topo.PCIDevice]
	for _, d := range h.networkFunctions() {
		o.judged++
		switch name := blueFields[d.Device]; {
		case d.Vendor == "" || d.Device == "":
			o.missing("vendor and device of the function are not known", h.lookAgain(), d.ID)
		case d.Vendor == "0x15b3" && name != "" && d.PF == "":
			cards.add(name, d)
		}
	}
	cards.each(func(name string, functions []*topo.PCIDevice) { o.find(h.dpu(name, functions)) })
	representors := matching(h.t.Netdevs, func(n *topo.Netdev) bool { return !n.PhysPortIsOwn() })
	if len(representors) > 0 {
		n := representors[0]
		o.find(Finding{Severity: Info, Subjects: mapped(representors, func(n *topo.Netdev) topo.ID { return n.ID }),
			Evidence: []string{h.netFile(n.Name, "phys_port_name", n.PhysPort)},
			Text:     fmt.Sprintf("%s: stand-ins for virtual functions on a switch inside the NIC, not counted as NICs", text.Plural(len(representors), "representor")),
			Fix:      "leave them out of lists of interfaces"})
	}
	return o
}

// networkFunctions are the functions of NICs: by class, and those of RDMA
// devices of another class.
func (h *host) networkFunctions() []*topo.PCIDevice {
	return matching(h.t.PCIDevices, func(d *topo.PCIDevice) bool {
		return d.Class.Uint()>>16 == 0x02 || slices.ContainsFunc(h.On(d.ID).RDMADevices, func(r *topo.RDMADevice) bool { return !r.Software })
	})
}

func (h *host) dpu(name string, functions []*topo.PCIDevice) Finding {
	f := Finding{Severity: Info, Subjects: functionIDs(functions),
		Evidence: []string{pciFile(functions[0], "device", string(functions[0].Device))},
		Text:     fmt.Sprintf("%s of %s: in DPU mode its own system stands between these ports and the host, which is not visible from here", text.Plural(len(functions), "function"), name),
		Fix:      "mlxconfig -d " + functions[0].BDF.String() + " q INTERNAL_CPU_OFFLOAD_ENGINE shows the mode"}
	if strings.Contains(h.t.Host.Product, "BlueField") {
		f.Text = fmt.Sprintf("this is the DPU itself (%s): its ports serve the host beside it, which is not visible from here", h.t.Host.Product)
		f.Fix = "run topoctl on the host too"
	}
	return f
}
