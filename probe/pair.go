package probe

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

// Kind says what a pair is of.
type Kind string

// The kinds of pairs.
const (
	Memory Kind = "memory" // CPUs of one NUMA node and memory of one
	GPU    Kind = "gpu"    // a GPU and memory of the host, or two GPUs
	Port   Kind = "port"   // two network ports, of two hosts or of one
)

// The transports of pairs: what carries the bytes.
const (
	CPU  = "cpu"  // loads and stores
	CUDA = "cuda" // copies by the driver
	RDMA = "rdma"
	TCP  = "tcp"
	SHM  = "shm"
)

// Variants of one pair of ends.
const (
	VariantRead     = "read"           // memory: loads only
	VariantCopy     = "copy"           // memory: loads and stores, both counted
	VariantBothWays = "both-ways"      // the other direction is kept as busy meanwhile
	VariantNoPeer   = "no-peer-access" // GPUs: through memory of the host
)

// End is one end of a pair.
type End struct {
	Host string `json:"host"` // as Report.Hosts calls it
	// Node is what is measured: a NUMA node, a GPU or a port of the host's topology.
	Node topo.ID `json:"node"`
	Name string  `json:"name"` // for people: "cpu:0", "gpu:3", "mlx5_0", "eth0"
	// Location is where the memory at this end lies, "" not known.
	Location pathsel.Location `json:"location,omitempty"`
	Class    topo.Class       `json:"class"` // between Location and Node
}

// LinkKey names a directed link of a run: "n1 port:mlx5_0/1 down". Links of a host
// are topo's; links of the fabric have no host: " leaf:l1/spine:s2 up". What it
// means is in Report.Links: keys are compared, never parsed.
type LinkKey string

// Key makes the key of a directed link; host is "" for one of the fabric. The directions
// are "down" (away from the root: on a port, sending), "up", and "both".
func Key(host string, link topo.LinkID, direction string) LinkKey {
	return LinkKey(host + " " + string(link) + " " + direction)
}

// Link is one directed link that pairs of a run cross.
type Link struct {
	Key       LinkKey       `json:"key"`
	Host      string        `json:"host,omitempty"`
	Link      topo.LinkID   `json:"link"`
	Kind      topo.LinkKind `json:"kind"` // topo's kinds, LinkUplink, LinkMemory
	Direction string        `json:"direction"`
	Name      string        `json:"name"` // for people: "wire of mlx5_0", "PCIe link of gpu:2"
	// On are the devices that the link is part of, the nearest first: they are
	// what a failing part can be, beside the link itself. See Device.
	On []string `json:"on"`
	// BytesPerSec is what it should carry in this direction; nil not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	Basis       topo.Basis `json:"basis"`
}

// A PCIe packet of pciePayload bytes, the most that common root ports are set to, has
// some pcieBeside bytes beside them: framing 4, header 16 and CRC 4 (PCI Express Base Specification 5.0,
// 2.2 and 4.2), and a part of the acknowledgements and credits that go the same way.
const pciePayload, pcieBeside = 256, 28

// Payload is what a link's rate leaves for data: of a PCIe rate, which is that of the link
// after line coding, nine tenths. Measured rates are of data already. nil is not known.
func (l *Link) Payload() *topo.Rate {
	if l.BytesPerSec == nil || *l.BytesPerSec <= 0 || l.Kind != topo.LinkPCIe || l.Basis == topo.BasisMeasured {
		return l.BytesPerSec
	}
	rate := max(1, *l.BytesPerSec/(pciePayload+pcieBeside)*pciePayload)
	return &rate
}

// The kinds of links that no host's topology has.
const (
	LinkUplink topo.LinkKind = "uplink" // between switches of the fabric
	LinkMemory topo.LinkKind = "memory" // stands for the memory of a NUMA node, which can be slow too
)

// Device is a part that several links belong to: a NIC, a GPU, a PCIe switch, a host,
// a leaf switch.
type Device struct {
	Key  string `json:"key"`  // "n1 rdma:mlx5_0", "n1", "leaf:l1"
	Kind string `json:"kind"` // "nic", "gpu", "switch", "numa", "host", "leaf", "spine"
	Name string `json:"name"` // for people: "mlx5_0 of n1"
}

// Pair is one thing to measure: bytes go from From to To.
type Pair struct {
	ID        string `json:"id"` // see PairID
	Kind      Kind   `json:"kind"`
	Transport string `json:"transport"`
	Variant   string `json:"variant,omitempty"`
	From      End    `json:"from"`
	To        End    `json:"to"`
	// Path are the links that the bytes cross, in order; those between are missing
	// where the way is not known (PathKnown false).
	Path      []LinkKey `json:"path"`
	PathKnown bool      `json:"path_known"`
	// Group names the pairs that should do as well as this one: equal kind, transport,
	// variant, classes and expected rate. Outliers are found within it.
	Group    string   `json:"group"`
	Expected Expected `json:"expected"`
	// Waived says why the pair is not measured; "" it is.
	Waived string `json:"waived,omitempty"`
}

// Expected is what the topology promises of a pair, alone.
type Expected struct {
	BytesPerSec *topo.Rate `json:"bytes_per_sec"` // nil: nothing is known
	// Basis says how the limit is known: a typical rate or a bound never fails a pair.
	Basis topo.Basis `json:"basis"`
	Limit LinkKey    `json:"limit_link,omitempty"`
	Why   string     `json:"why"` // "wire of mlx5_0: 50.0 GB/s, read"
}

// PairID is the stable ID of a pair: "port n1/mlx5_0>n2/mlx5_1 rdma",
// "memory n1/cpu:0>n1/cpu:1 cpu copy".
func PairID(kind Kind, from, to End, transport, variant string) string {
	id := string(kind) + " " + from.Host + "/" + from.Name + ">" + to.Host + "/" + to.Name + " " + transport
	if variant != "" {
		id += " " + variant
	}
	return id
}
