package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// resident is a GPU or an RDMA device with its NUMA node, if that is known.
type resident struct {
	id   topo.ID
	dev  *topo.PCIDevice // nil: not here
	node *int
	seen string // where the device itself was found
}

func (h *host) residents() []resident {
	list := mapped(h.gpus, func(g *topo.GPU) resident { return resident{g.ID, h.PCIDevice(g.PCI), g.NUMA, g.Evidence} })
	return append(list, mapped(h.hardware, func(r *topo.RDMADevice) resident { return resident{r.ID, h.PCIDevice(r.PCI), r.NUMA, r.Evidence} })...)
}

// unlisted are devices on NUMA nodes that the topology does not list.
func (h *host) unlisted(list []resident) []topo.ID {
	return residentIDs(matching(list, func(s *resident) bool { return s.node != nil && h.NUMANodeAt(*s.node) == nil }))
}

// kernelNodes says whether the kernel's list of NUMA nodes was there: without
// it discovery takes the whole machine for one node.
func (h *host) kernelNodes() bool {
	return !slices.ContainsFunc(h.t.NUMANodes, func(n topo.NUMANode) bool {
		f, ok := n.Facts.Get("cpus")
		return ok && f.Source == topo.SourceDerived
	})
}

// nodesHow says how to get the list of NUMA nodes.
func (h *host) nodesHow() string {
	if h.imported() {
		return h.lookAgain()
	}
	return "look at /sys/devices/system/node on the host: a kernel that knows NUMA has it"
}

func checkNUMA(h *host) (o outcome) {
	cpuNodes := len(matching(h.t.NUMANodes, func(n *topo.NUMANode) bool { return !n.MemoryOnly }))
	list := h.residents()
	unlisted := h.unlisted(list)
	o.missing("its NUMA node is not among those that are listed", h.nodesHow(), unlisted...)
	switch {
	case len(list) == 0:
		return notApplicable("no GPU and no RDMA hardware")
	case len(unlisted) > 0 && cpuNodes < 2:
		return o
	case !h.kernelNodes():
		o.missingOfHost("the list of NUMA nodes is not there, so how many the host has is not known", h.nodesHow())
		return o
	case cpuNodes == 1:
		return notApplicable("one NUMA node only")
	}
	var unknown []*resident
	var guessed groups[string, *resident]
	for i := range list {
		s := &list[i]
		switch {
		case s.node == nil && (h.imported() || s.dev == nil || h.lacksNodeFile(s.dev)):
			o.missing("the NUMA node is not known", h.lookAgain(), s.id)
		case s.node == nil:
			unknown = append(unknown, s)
		case s.dev != nil:
			if f, ok := s.dev.Facts.Get("numa_node"); ok && f.Source == topo.SourceDerived {
				guessed.add(guessSource(f.Where), s)
			}
		}
	}
	if len(unknown) > 0 {
		o.find(Finding{Severity: Warning, Subjects: residentIDs(unknown), Evidence: []string{pciFile(unknown[0].dev, "numa_node", "-1")},
			Text: fmt.Sprintf("the kernel does not know the NUMA node of %s (-1): near and far are not known, programs pick NICs and CPUs blindly", text.Plural(len(unknown), "device")),
			Fix:  "update the firmware, turn NUMA on in its set-up; in a guest, the hypervisor must expose the nodes of passed-through devices"})
	}
	guessed.each(func(from string, devices []*resident) {
		o.find(Finding{Severity: Info, Subjects: residentIDs(devices), Evidence: []string{pciFile(devices[0].dev, "numa_node", "")},
			Text: fmt.Sprintf("the kernel does not report the NUMA node of %s; topoctl takes it from %s, other programs do not", text.Plural(len(devices), "device"), from),
			Fix:  "update the firmware, so that other programs see it too"})
	})
	o.note = text.Plural(len(list), "device")
	return o
}

// lacksNodeFile says whether a function has no numa_node to read: only discovery's warning tells that from -1.
func (h *host) lacksNodeFile(d *topo.PCIDevice) bool {
	return slices.ContainsFunc(h.t.Warnings, func(w topo.Warning) bool {
		return w.Code == topo.CodeNUMAUnknown && w.Subject == d.ID && !strings.HasSuffix(w.Evidence, "/numa_node")
	})
}

func residentIDs(list []*resident) []topo.ID {
	return mapped(list, func(s *resident) topo.ID { return s.id })
}

// guessSource says in words where a NUMA node was taken from.
func guessSource(where string) string {
	switch {
	case strings.Contains(where, "local_cpulist"):
		return "the device's local CPUs"
	case strings.Contains(where, "affinity"):
		return "the CPUs of its root bus"
	}
	return "the bridge above"
}

// socketShare is what hangs from one socket.
type socketShare struct {
	gpus  []topo.ID
	ports []*pathsel.Port
}

// socketsOf returns the socket of each NUMA node with CPUs, and the sockets; a node
// whose package is not known is a socket of its own.
func (h *host) socketsOf() (of map[int]int, sockets []int) {
	of = map[int]int{}
	for i := range h.t.NUMANodes {
		n := &h.t.NUMANodes[i]
		if n.MemoryOnly {
			continue
		}
		s := -1 - n.Index
		if n.Package != nil {
			s = *n.Package
		}
		of[n.Index] = s
		if !slices.Contains(sockets, s) {
			sockets = append(sockets, s)
		}
	}
	return of, sockets
}

func checkSockets(h *host) (o outcome) {
	packageOf, sockets := h.socketsOf()
	ports := h.dataPorts
	unlisted := h.unlisted(h.residents())
	switch {
	case len(h.gpus) == 0 || len(ports) == 0:
		return notApplicable("needs GPUs and RDMA data ports")
	case len(sockets) == 0:
		return couldNotCheck("the input has no NUMA nodes", h.lookAgain())
	case len(unlisted) > 0:
		o.missing("its NUMA node, and so its socket, is not among those that are listed", h.nodesHow(), unlisted...)
		return o
	case len(h.t.Packages) == 1:
		return notApplicable("one socket only")
	case len(sockets) == 1 && len(h.t.Packages) == 0:
		return couldNotCheck("one NUMA node is listed and no socket, so how many sockets the host has is not known", h.nodesHow())
	case len(sockets) == 1:
		return couldNotCheck(fmt.Sprintf("the list of NUMA nodes does not say which of %s a device hangs from", text.Plural(len(h.t.Packages), "socket")), h.nodesHow())
	}
	shares := map[int]*socketShare{}
	for _, s := range sockets {
		shares[s] = &socketShare{}
	}
	share := func(id topo.ID, node *int) *socketShare {
		if node != nil {
			if s, ok := packageOf[*node]; ok {
				return shares[s]
			}
		}
		o.missing("its NUMA node, and so its socket, is not known", h.placeHow(), id)
		return &socketShare{}
	}
	for _, g := range h.gpus {
		s := share(g.ID, g.NUMA)
		s.gpus = append(s.gpus, g.ID)
	}
	for _, p := range ports {
		s := share(p.ID, h.RDMADevice(p.NIC).NUMA)
		s.ports = append(s.ports, p)
	}
	if len(o.unknown) > 0 {
		return o
	}
	h.compareSockets(&o, sockets, shares)
	o.note = text.Plural(len(sockets), placeWord(sockets))
	return o
}

// placeWord names the places that socketsOf returns: sockets only if all of them are known.
func placeWord(sockets []int) string {
	if slices.Min(sockets) < 0 {
		return "NUMA node"
	}
	return "socket"
}

// numaEvidence is where the NUMA nodes of devices were read, one device each.
func (h *host) numaEvidence() []string {
	var list []string
	var seen []int
	for _, s := range h.residents() {
		if s.node == nil || slices.Contains(seen, *s.node) {
			continue
		}
		seen = append(seen, *s.node)
		where := s.seen
		if s.dev != nil {
			where = pciFile(s.dev, "numa_node", fmt.Sprint(*s.node))
			switch f, _ := s.dev.Facts.Get("numa_node"); {
			case f.Source == topo.SourceRemap:
				where = string(f.Source) + ": " + f.Where
			case f.Source == topo.SourceDerived && strings.HasPrefix(f.Where, "/"): // see numa-unknown
				where = f.Where
			case f.Source == topo.SourceDerived:
				where = s.dev.Evidence
			}
		}
		list = append(list, where)
	}
	return list
}

func (h *host) compareSockets(o *outcome, sockets []int, shares map[int]*socketShare) {
	var parts []string
	var without []topo.ID
	even := true
	first := shares[sockets[0]]
	for _, s := range sockets {
		x := shares[s]
		name := fmt.Sprintf("socket %d", s)
		if s < 0 {
			name = fmt.Sprintf("NUMA node %d", -1-s)
		}
		parts = append(parts, fmt.Sprintf("%s has %s and %s", name, orNo(len(x.gpus), "GPU"), orNo(len(x.ports), "data port")))
		even = even && len(x.gpus) == len(first.gpus) && len(x.ports) == len(first.ports)
		if len(x.gpus) > 0 && len(x.ports) == 0 {
			without = append(without, x.gpus...)
		}
	}
	if even {
		return
	}
	f := Finding{Severity: Info, Subjects: without, Text: strings.Join(parts, ", "), Evidence: h.numaEvidence(),
		Fix: "let a plan that knows the host share the NICs (topoctl path --plan)"}
	if len(without) > 0 {
		place := placeWord(sockets)
		f.Severity = Warning
		f.Text += fmt.Sprintf(": all traffic of %s crosses the link between %ss", text.Join(asStrings(without), mostNames), place)
		f.Fix = "plan with that link, which all of them share: topoctl path --plan; where the board has a free slot on that " + place + ", a NIC there takes load off it"
		if place != "socket" {
			f.Text += "; whether they are of one socket is not known"
		}
	}
	o.find(f)
}

// orNo is a number of things with a word for none.
func orNo(n int, what string) string {
	if n == 0 {
		return "no " + what
	}
	return text.Plural(n, what)
}
