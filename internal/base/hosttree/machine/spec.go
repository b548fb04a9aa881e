package machine

import (
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// Spec is a parsed machine spec.
type Spec struct {
	name, description string
	sources           []string
	base              string // "" for a whole machine
	seed              string // what invented identifiers are made from

	host     host
	cpu      cpu
	numa     []*numaNode // by index
	roots    []*root
	pci      []*function // every function, in the order of the text
	nvidia   nvidia
	pairs    []pair // NVLink and xGMI between GPUs
	p2p      []p2p
	bonds    []*netdev
	netdevs  []*netdev // virtual ones that are no bonds
	software []softRDMA
	routes   []route
	modules  []string
	parts    map[string]*part // the spec's own
	patches  []patch
	changes  []*stmt // of a variant
	top      []*stmt // the statements, to build variants from
}

// Name is the machine's name.
func (s *Spec) Name() string { return s.name }

// Description is the machine in one sentence.
func (s *Spec) Description() string { return s.description }

// Sources says where the facts come from.
func (s *Spec) Sources() []string { return slices.Clone(s.sources) }

// Base is the name of the machine that this one is a variant of, "" for a
// whole machine.
func (s *Spec) Base() string { return s.base }

type host struct {
	arch, kernel, vendor, product, virtual, name, iommu, cmdline string
	memlock                                                      string // "unlimited", bytes, or "" for what such machines have
	fullConfig                                                   bool
}

type cpu struct {
	vendor        string
	family, model *int
	name          string
	threads       int
	adjacent      bool // sibling threads have neighbouring numbers
}

type numaNode struct {
	line     int
	index    int
	pkg      int
	cpus     []int
	mem      int64 // bytes
	distance []int
}

type root struct {
	line   int
	domain uint32
	bus    uint8
	numa   int // -1: the firmware does not say
	under  string
	kids   []*function
	path   string // in the tree
}

// hw is what every function's part says; a function may override each.
type hw struct {
	vendor, device       uint16
	subVendor, subDevice uint16
	rev                  uint8
	class                uint32
	driver               string // "" for none
	title                string
	link                 lane
}

// part is a piece of hardware that a function is.
type part struct {
	name, kind string
	hw
	memory     int64  // bytes of a GPU
	cc         string // compute capability
	layer      string // of a NIC: "ib", "eth", "efa"
	gbps       int
	hca, board string
	fw         string
	oui        string // first three bytes of its MAC addresses
	gids       int    // entries of a port's GID table
	sriov      int    // virtual functions that it can have
	model      string // of an NVMe drive
	bytes      int64  // of an NVMe drive
}

// function is one PCI function.
type function struct {
	hw
	line   int
	kind   string // the statement's word
	bdf    topo.BDF
	part   *part
	root   *root
	parent *function
	kids   []*function
	at     lane
	numa   int
	acs    *uint32
	gpu    *gpu
	nic    *nic
	nvme   string // wanted name

	// What planning finds.
	order     int    // place in PCI order
	path      string // in the tree
	cur       lane   // what the link runs at; zero where there is none
	secondary uint8  // bus below a bridge
	last      uint8  // highest bus below a bridge
	group     int    // IOMMU group
	leads     bool   // the first of its group
	vfs       []*function
	pf        *function
	multi     bool // other functions in its slot
}

func (f *function) isBridge() bool {
	return f.kind == "port" || f.kind == "switch" || f.kind == "down" || f.kind == "bridge"
}

type gpu struct {
	uuid, serial string
	index        int // NVML's
	minor        int
	nvlink       int // links to the switch
	c2c          int
	c2cRate      *int64
	memoryNUMA   *int
	mig          []string
}

type nic struct {
	layer      string // "ib", "eth", "efa"
	rdma       string // name of the RDMA device, "" for none
	net        string // name of the netdev, "" for none
	gbps       int
	rate       string
	state      string // "active", "down", "init", "armed"
	lid, smLID int
	ips        []netip.Prefix
	mac, guid  string
	mtu        int
	ndev       string // netdev of the GIDs where it is not net
	gids       int
	pkeys      []string
	tc         string // "" for no file, "unset", or a number
	sriov      *int
	vfOf       *topo.BDF
	physPort   string
	physSwitch string
	fw, board  string

	ifindex   int
	imageGUID string
}

type nvidia struct{ driver, cuda, module string }

type pair struct {
	line  int
	kind  string // "nvlink", "xgmi"
	a, b  int    // GPUs in PCI order; -1 in a: every pair
	count int
}

type p2p struct {
	line   int
	a, b   int // -1 in a: every pair
	answer string
}

// netdev is a virtual interface.
type netdev struct {
	line       int
	name, kind string
	ips        []netip.Prefix
	mtu        int
	legs       []string // of a bond
	mode, hash string   // of a bond
	on         string   // of a VLAN
	vlan       int

	ifindex int
	mac     string
	mbps    int
	up      bool
}

type softRDMA struct {
	line             int
	name, driver, on string
}

type route struct {
	line          int
	dst, dev, via string
	metric        int
}

type patch struct {
	line                int
	word, path, operand string
}
