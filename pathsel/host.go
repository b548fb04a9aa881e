package pathsel

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Location is where memory is: "gpu:N", the GPUs counted in PCI order, or
// "cpu:N", a NUMA node.
type Location string

// LocationOf is the location of memory in a GPU or NUMA node, named by its ID in the topology.
func LocationOf(node topo.ID) Location {
	if n, ok := strings.CutPrefix(string(node), "numa:"); ok {
		return Location("cpu:" + n)
	}
	return Location(node)
}

// Node is the ID of the location's GPU or NUMA node in the topology.
func (l Location) Node() topo.ID {
	if n, ok := strings.CutPrefix(string(l), "cpu:"); ok {
		return topo.ID("numa:" + n)
	}
	return topo.ID(l)
}

// Transport is the way of moving data that ports are chosen for.
type Transport string

// The transports. Auto is RDMA where a usable RDMA port exists, else TCP. SHM is memory that engines on one host
// share: it needs no port.
const (
	Auto Transport = ""
	RDMA Transport = "rdma"
	TCP  Transport = "tcp"
	SHM  Transport = "shm"
)

// Options say what a Host is prepared for.
type Options struct {
	// Transport is what the ports are chosen for.
	Transport Transport
	// Roles overrides the role of NICs, by matrix NIC ID ("rdma:mlx5_0", "net:eth0").
	Roles map[topo.ID]Role
	// Down lists ports that are to be taken as down though they may be up, by their ID or by matrix NIC ID.
	Down []topo.ID
	// Overlay holds measured rates of links, which replace the expected ones.
	Overlay topo.Overlay
}

// Host is a topology prepared for decisions: its candidate ports with role and
// usability, and for every memory location the links to each port. A Host does
// not change and may be used by many goroutines.
type Host struct {
	t         *topo.Topology
	graph     *topo.Graph
	index     *topo.Index
	near      topo.Nearness
	transport Transport
	ports     []Port
	portIndex map[topo.ID]int
	locations []Location // GPUs, then NUMA nodes with CPUs
	nodes     []topo.ID  // the node of each location
	locIndex  map[Location]int
	caps      []float64        // capacity of each segment, bytes per second; infinite where unknown
	segLinks  []topo.Link      // the link of each pair of segments
	routes    [][]route        // [location][port]
	fallbacks map[int]fallback // by location: those that have lost their nearest port
}

// New prepares a derived topology. The topology must not change afterwards.
func New(t *topo.Topology, o Options) (*Host, error) {
	if t == nil || t.Derived == nil {
		return nil, pkgerr.New("pathsel", "topology is not derived: call Derive first")
	}
	switch o.Transport {
	case Auto, RDMA, TCP:
	default:
		return nil, pkgerr.Errorf("pathsel", "transport %q: want rdma, tcp or nothing for the better of both", o.Transport)
	}
	h := &Host{t: t, graph: topo.NewGraph(t, o.Overlay), near: t.Nearness(), transport: o.Transport, portIndex: map[topo.ID]int{}, locIndex: map[Location]int{}}
	h.index = h.graph.Index()
	h.nodes = append(t.MatrixAxis(topo.KindGPU), t.MatrixAxis(topo.KindNUMA)...)
	for i, id := range h.nodes {
		h.locations = append(h.locations, LocationOf(id))
		h.locIndex[h.locations[i]] = i
	}
	h.findPorts()
	if err := h.takeDown(&o); err != nil {
		return nil, err
	}
	h.shareWires()
	if err := h.assignRoles(o.Roles); err != nil {
		return nil, err
	}
	h.judgePorts()
	h.findRoutes()
	h.findFallbacks()
	return h, nil
}

// Topology is what the host was prepared from; the links of ports that Options.Down has carry nothing.
func (h *Host) Topology() *topo.Topology { return h.t }

// Graph is the links of the host's topology, with the rates that the host was prepared with.
func (h *Host) Graph() *topo.Graph { return h.graph }

// Index finds nodes of the host's topology.
func (h *Host) Index() *topo.Index { return h.index }

// Transport is what the ports are chosen for: RDMA or TCP, never Auto.
func (h *Host) Transport() Transport { return h.transport }

// Ports lists every candidate port, in the order of names. Port.Index is the
// place in this list.
func (h *Host) Ports() []Port { return slices.Clone(h.ports) }

// Port returns the port with this ID; ok is false if there is none.
func (h *Host) Port(id topo.ID) (p Port, ok bool) {
	i, ok := h.portIndex[id]
	if !ok {
		return Port{}, false
	}
	return h.ports[i], true
}

// Locations lists where memory can be: the GPUs in PCI order, then the NUMA
// nodes with CPUs.
func (h *Host) Locations() []Location { return slices.Clone(h.locations) }

// GPUs lists the GPUs' locations.
func (h *Host) GPUs() []Location { return slices.Clone(h.locations[:len(h.t.GPUs)]) }

// location gives the place of a location in the list.
func (h *Host) location(l Location) (int, error) {
	i, ok := h.locIndex[l]
	if !ok {
		return 0, pkgerr.Errorf("pathsel", "%q is no memory location of this host: want gpu:N or cpu:N", l)
	}
	return i, nil
}
