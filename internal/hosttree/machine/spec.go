package machine

import (
	"net/netip"

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
)

// Spec is a machine as its description says it, and what planning makes of that.
type Spec struct {
	Name        string      `needs:"machine name"`
	Description string      `needs:"description text"`
	Base        string      `key:"base name"` // the machine that this one is a variant of, "" for a whole machine
	Sources     []string    `key:"sources any"`
	Published   string      `key:"published any"`
	Assumed     string      `key:"assumed any"`
	Host        host        `key:"host"`
	CPU         cpu         `key:"cpu"`
	NUMA        []*numaNode `key:"numa"` // by index
	NVIDIA      nvidia      `key:"nvidia"`
	Modules     []string    `key:"modules name"`
	Parts       []*part     `key:"parts"`
	Roots       []*root     `key:"pci"`
	NVLink      []*links    `key:"nvlink"`
	XGMI        []*links    `key:"xgmi"`
	P2P         []*answer   `key:"p2p"`
	Netdevs     []*netdev   `key:"interfaces"` // those of functions, then bonds, then other virtual ones
	SoftRDMA    []*softRDMA `key:"softrdma"`
	Routes      []*route    `key:"routes"`
	Patches     []*patch    `key:"patches"`

	doc  *yaml.Node   // to build variants from
	seed string       // what invented identifiers are made from
	pci  []*function  // every function, by address
	rdma []rdmaDevice // those of functions, then those of software
}

// inVariant are the keys that a variant may have.
var inVariant = []string{"machine", "description", "base", "sources", "published", "assumed", "patches"}

// below are the kinds of functions that may stand below a root or a bridge.
var below = map[string]string{"root": "port " + functions, "port": functions, "switch": "down device", "down": functions, "bridge": functions}

const functions = "bridge switch gpu nic nvme nvswitch device"

// What follows are the things that a machine has. The tag of a field is the key that
// sets it ("needs" where it must be there), then what its values are like where the
// field's type does not say so: a range of numbers, a choice, or a name from the table
// forms.

type host struct {
	Arch    string `key:"arch x86_64|aarch64|ppc64le"`
	Kernel  string `key:"kernel text"`
	Vendor  string `key:"vendor text"`
	Product string `key:"product text"`
	Virtual string `key:"virtual none|kvm|qemu|hyperv|nitro|vmware|xen"`
	Name    string `key:"name name"`
	IOMMU   string `key:"iommu off|identity|DMA|DMA-FQ"`
	Cmdline string `key:"cmdline text"`
	Memlock string `key:"memlock memlock"`    // "" for what such machines have
	Config  string `key:"config header|full"` // how much of configuration space can be read
}

type cpu struct {
	Vendor   string `key:"vendor text"`
	Name     string `key:"name text"`
	Family   *int   `key:"family 0..65536"`
	Model    *int   `key:"model 0..65536"`
	Threads  int    `key:"threads 1..8"`
	Siblings string `key:"siblings split|adjacent"` // the numbers of a core's threads: side by side, or spread over the list
}

type numaNode struct {
	From     *yaml.Node
	Index    int        `needs:"node 0..255"`
	Package  int        `key:"package 0..256"`
	CPUs     cpuset.Set `key:"cpus"`
	Mem      int64      `key:"mem"` // bytes
	Distance []int      `key:"distance 1..255"`
}

type root struct {
	From  *yaml.Node
	Bus   bus         `needs:"root"`
	NUMA  int         `key:"numa -1..255"` // -1: the firmware does not say
	Under string      `key:"under acpi"`
	Kids  []*function `key:"below"`
	path  string      // in the tree
}

func (r *root) preset() { r.NUMA = -1 }

type nvidia struct {
	Driver string `key:"driver text"`
	CUDA   string `key:"cuda text"`
	Module string `key:"module open|proprietary"`
}

// hardware is what every function's part says; a function may override each.
type hardware struct {
	ID     idPair `key:"id"`
	Sub    idPair `key:"sub"`
	Rev    uint8  `key:"rev"`
	Class  uint32 `key:"class"`
	Driver string `key:"driver driver"` // "" for none
	Title  string `key:"title text"`
	Link   lane   `key:"link"`
}

// ports is what a NIC's part says of its ports; a NIC may override each.
type ports struct {
	Gbps  int    `key:"gbps 1..10000"`
	GIDs  int    `key:"gids 0..1024"` // entries of a port's GID table
	SRIOV int    `key:"sriov 0..255"` // virtual functions that it can have
	Board string `key:"board text"`
	FW    string `key:"fw text"`
}

// part is a piece of hardware that a function is.
type part struct {
	From *yaml.Node
	Name string `needs:"part name"`
	Kind string `needs:"kind port|switch|bridge|gpu|nic|nvme|nvswitch|device"`
	hardware
	ports
	Memory int64  `key:"memory"`           // bytes of a GPU
	CC     string `key:"cc text"`          // compute capability
	Layer  string `key:"layer ib|eth|efa"` // of a NIC
	HCA    string `key:"hca text"`
	OUI    string `key:"oui oui"`    // first three bytes of its MAC addresses
	Model  string `key:"model text"` // of an NVMe drive
	Bytes  int64  `key:"bytes"`      // of an NVMe drive
}

func (x *part) preset() { x.Layer, x.OUI, x.Gbps, x.GIDs = "eth", "02:00:00", 10, 256 }

// function is one PCI function.
type function struct {
	From   *yaml.Node
	Kids   []*function
	kind   string
	bdf    topo.BDF
	part   *part
	root   *root
	parent *function // nil on the root bus
	hardware
	At   lane    `key:"at"`
	NUMA int     `key:"numa -1..255"`
	ACS  *uint16 `key:"acs"`
	gpu  *gpu
	nic  *nic
	nvme *nvme

	// The description of it, until its part is known.
	addresses []string
	partName  string
	keys      []pair

	// What planning finds.
	path      string // in the tree
	carrier   string // what interfaces hang from: path, or the virtio device below it
	irq       int
	cur       lane  // what the link runs at; zero without a link
	secondary uint8 // bus below a bridge
	last      uint8 // highest bus below a bridge
	vfs       []*function
	pf        *function
}

// become makes a function one of a kind.
func (f *function) become(kind string) {
	f.kind = kind
	switch kind {
	case "gpu":
		f.gpu = &gpu{Index: -1, Minor: -1}
	case "nic":
		f.nic = &nic{State: "active", SMLID: 1}
	case "nvme":
		f.nvme = &nvme{}
	}
}

func (f *function) options() options {
	switch f.kind {
	case "gpu":
		return tagged(f, f.gpu)
	case "nic":
		return tagged(f, f.nic)
	case "nvme":
		return tagged(f, f.nvme)
	}
	return tagged(f)
}

func (f *function) isBridge() bool {
	return f.kind == "port" || f.kind == "switch" || f.kind == "down" || f.kind == "bridge"
}

// isVF says whether the text makes it a virtual function.
func (f *function) isVF() bool { return f.nic != nil && f.nic.VFOf != "" }

type gpu struct {
	UUID       string    `key:"uuid serial"`
	Serial     string    `key:"serial serial"`
	Index      int       `key:"nvml-index 0..4096"`
	Minor      int       `key:"minor 0..4096"`
	NVLink     int       `key:"nvlink 0..64"` // links to the switch
	C2C        int       `key:"c2c 0..64"`
	C2CRate    topo.Rate `key:"c2c-rate"` // 0: not known
	MemoryNUMA *int      `key:"memory-numa 0..255"`
	MIG        []string  `key:"mig mig"`
}

type nvme struct {
	Name string `key:"name name"` // the controller's
}

type nic struct {
	ports
	Layer      string         `key:"layer ib|eth|efa"`
	RDMA       string         `key:"rdma name"` // name of the RDMA device, "" for none
	Net        string         `key:"net name"`  // name of the netdev, "" for none
	Rate       string         `key:"rate text"`
	State      string         `key:"state active|down|init|armed"`
	LID        int            `key:"lid 0..65535"`
	SMLID      int            `key:"sm-lid 0..65535"`
	IPs        []netip.Prefix `key:"ip"`
	MAC        string         `key:"mac mac"`
	GUID       string         `key:"guid guid"`
	MTU        int            `key:"mtu 68..65535"`
	Ndev       string         `key:"ndev name"` // netdev of the GIDs where it is not Net
	PKeys      []string       `key:"pkeys pkey"`
	TC         string         `key:"tc tc"` // traffic class, "" for no file
	VFOf       string         `key:"vf-of function"`
	PhysPort   string         `key:"phys-port text"`
	PhysSwitch string         `key:"phys-switch text"`

	imageGUID string
}

// ends are two GPUs, or every two.
type ends struct {
	From *yaml.Node
	GPUs []gpuIndex `needs:"gpus"`
}

// joins says whether the ends are two GPUs, in either order.
func (x ends) joins(i, j int) bool {
	if len(x.GPUs) == 1 {
		return true
	}
	a, b := int(x.GPUs[0]), int(x.GPUs[1])
	return a == i && b == j || a == j && b == i
}

type links struct {
	ends
	Links int `needs:"links 1..64"`
}

// answer is what NVML says of peer access between two GPUs.
type answer struct {
	ends
	Answer string `needs:"answer text"`
}

// netdev is a network interface: of a function, or a virtual one.
type netdev struct {
	From *yaml.Node
	Name string         `needs:"name name"`
	Kind string         `needs:"kind bond|vlan|dummy|bridge|veth|tun|vxlan|wireguard"` // "" of a function's
	IPs  []netip.Prefix `key:"ip"`
	MTU  int            `key:"mtu 68..65535"`
	Legs []string       `key:"legs name"` // of a bond, as are the next two
	Mode string         `key:"mode bond mode"`
	Hash string         `key:"hash bond hash"`
	On   string         `key:"on name"` // of a VLAN, as is its ID
	ID   int            `key:"id 1..4094"`

	// What planning finds.
	function *function // nil of a virtual one
	path     string
	index    int
	mac      string
	mbps     int
	up       bool
}

func (d *netdev) preset() { d.MTU = 1500 }

var (
	bondModes  = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
	bondHashes = []string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"}
)

// softRDMA is an RDMA device without hardware.
type softRDMA struct {
	From   *yaml.Node
	Name   string `needs:"name name"`
	Driver string `key:"driver rxe|siw|scif"`
	On     string `key:"on name"`
}

func (r *softRDMA) preset() { r.Driver = "rxe" }

type route struct {
	From   *yaml.Node
	Dst    string `needs:"to destination"`
	Dev    string `needs:"dev name"`
	Via    string `key:"via address"`
	Metric int    `key:"metric 0..1073741824"`
}

// patch changes one function before expansion ("change"), or a file after it.
type patch struct {
	From  *yaml.Node
	word  string
	path  string // of a change the function's address
	pairs []pair // of a change
	To    string `needs:"to any"`
	Error string `needs:"error errno"`
}
