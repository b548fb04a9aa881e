package machine

import (
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/cpuset"
)

// Spec is a parsed machine spec.
type Spec struct {
	name, description string
	sources           []string
	base              string  // "" for a whole machine
	seed              string  // what invented identifiers are made from
	top               []*stmt // the statements, to build variants from

	host     host
	cpu      cpu
	numa     []*numaNode // by index
	roots    []*root
	pci      []*function // every function, by address
	nvidia   nvidia
	between  []between
	netdevs  []*netdev // those of functions, then bonds, then other virtual ones
	software []softRDMA
	rdma     []rdmaDevice // those of functions, then those of software
	routes   []route
	modules  []string
	parts    map[string]*part // the spec's own
	patches  []patch
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

// statement is what may stand on a line, beside its options.
type statement struct {
	place place
	args  string // the words that come first; "[X]" may be left out
	below string // statements that may stand below
	once  bool
}

// place is where a statement may stand.
type place int

const (
	inTree   place = iota // below a root or a function
	anywhere              // at the left margin
	whole                 // at the left margin of a machine that is no variant
	patching              // at the left margin, and it changes what others say
)

const functions = "bridge switch gpu nic nvme nvswitch device"

var statements = map[string]statement{
	"machine":    {place: anywhere, args: "NAME DESCRIPTION", once: true},
	"base":       {place: anywhere, args: "NAME", once: true},
	"source":     {place: anywhere, args: "TEXT"},
	"host":       {place: whole, once: true},
	"cpu":        {place: whole, once: true},
	"numa":       {place: whole, args: "N"},
	"part":       {place: whole, args: "NAME KIND"},
	"root":       {place: whole, args: "DOMAIN:BUS", below: "port " + functions},
	"nvidia":     {place: whole, once: true},
	"nvlink":     {place: whole, args: "GPU GPU|COUNT [COUNT]"},
	"xgmi":       {place: whole, args: "GPU GPU|COUNT [COUNT]"},
	"p2p":        {place: whole, args: "GPU GPU|ANSWER [ANSWER]"},
	"bond":       {place: whole, args: "NAME"},
	"vlan":       {place: whole, args: "NAME"},
	"netdev":     {place: whole, args: "NAME"},
	"softrdma":   {place: whole, args: "NAME"},
	"route":      {place: whole, args: "DST"},
	"module":     {place: whole, args: "NAME"},
	"change":     {place: patching},
	"set":        {place: patching, args: "PATH VALUE"},
	"remove":     {place: patching, args: "PATH"},
	"link":       {place: patching, args: "PATH -> TARGET"},
	"move":       {place: patching, args: "PATH -> TARGET"},
	"unreadable": {place: patching, args: "PATH ERRNO"},
	"port":       {args: "BDF [PART]", below: functions},
	"switch":     {args: "BDF PART", below: "down device"},
	"down":       {args: "BDF [PART]", below: functions},
	"bridge":     {args: "BDF PART", below: functions},
	"gpu":        {args: "BDF PART"},
	"nic":        {args: "BDF PART"},
	"nvme":       {args: "BDF PART"},
	"nvswitch":   {args: "BDF PART"},
	"device":     {args: "BDF PART"},
}

// What follows are the things that a machine has. The tag of a field is the key of
// the option that sets it (or the argument, as the table above names it), then what
// its values are like where the field's type does not say so: a range of numbers,
// a choice, or a name from the table forms.

type host struct {
	Arch    string `key:"arch x86_64|aarch64|ppc64le"`
	Kernel  string `key:"kernel text"`
	Vendor  string `key:"vendor text"`
	Product string `key:"product text"`
	Virtual string `key:"virtual none|kvm|qemu|hyperv|nitro|vmware|xen"`
	Name    string `key:"name name"`
	IOMMU   string `key:"iommu off|identity|DMA|DMA-FQ"`
	Cmdline string `key:"cmdline text"`
	Memlock string `key:"memlock unlimited|0..9223372036854775807"` // "" for what such machines have
	Config  string `key:"config header|full"`                       // how much of configuration space can be read
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
	line     int
	Index    int        `arg:"N 0..255"`
	Package  int        `key:"package 0..256"`
	CPUs     cpuset.Set `key:"cpus"`
	Mem      int64      `key:"mem"` // bytes
	Distance []int      `key:"distance 1..255"`
}

type root struct {
	line  int
	Bus   bus    `arg:"DOMAIN:BUS"`
	NUMA  int    `key:"numa -1..255"` // -1: the firmware does not say
	Under string `key:"under acpi"`
	kids  []*function
	path  string // in the tree
}

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
	name, kind string
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

// function is one PCI function.
type function struct {
	line   int
	kind   string
	bdf    topo.BDF
	part   *part
	root   *root
	parent *function // nil on the root bus
	kids   []*function
	hardware
	At   lane    `key:"at"`
	NUMA int     `key:"numa -1..255"`
	ACS  *uint16 `key:"acs"`
	gpu  *gpu
	nic  *nic
	nvme *nvme

	// What planning finds.
	path      string // in the tree
	carrier   string // what interfaces hang from: path, or the virtio device below it
	irq       int
	cur       lane  // what the link runs at; zero where there is none
	secondary uint8 // bus below a bridge
	last      uint8 // highest bus below a bridge
	vfs       []*function
	pf        *function
}

func newFunction(kind string) *function {
	f := &function{kind: kind}
	switch kind {
	case "gpu":
		f.gpu = &gpu{Index: -1, Minor: -1}
	case "nic":
		f.nic = &nic{State: "active", SMLID: 1}
	case "nvme":
		f.nvme = &nvme{}
	}
	return f
}

func (f *function) options() options {
	switch f.kind {
	case "gpu":
		return tagged("key", f, f.gpu)
	case "nic":
		return tagged("key", f, f.nic)
	case "nvme":
		return tagged("key", f, f.nvme)
	}
	return tagged("key", f)
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
	IB         bool           `key:"ib"`
	Eth        bool           `key:"eth"`
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
	PKeys      pkeys          `key:"pkeys"`
	TC         string         `key:"tc unset|0..255"` // traffic class, "" for no file
	VFOf       string         `key:"vf-of function"`
	PhysPort   string         `key:"phys-port text"`
	PhysSwitch string         `key:"phys-switch text"`

	layer     string // "ib", "eth", "efa"
	imageGUID string
}

// between is what there is between two GPUs, or every two.
type between struct {
	line   int
	kind   string   // "nvlink", "xgmi", "p2p"
	a, b   gpuIndex // -1: every pair
	count  int      // of links
	answer string   // of NVML to p2p
}

func (x between) is(kind string, i, j int) bool {
	a, b := gpuIndex(i), gpuIndex(j)
	return x.kind == kind && (x.a < 0 || x.a == a && x.b == b || x.a == b && x.b == a)
}

// netdev is a network interface: of a function, or a virtual one.
type netdev struct {
	line     int
	function *function // nil of a virtual one
	Name     string
	IPs      []netip.Prefix
	plain
	bond
	vlan

	// What planning finds.
	path  string
	index int
	mac   string
	mbps  int
	up    bool
}

// plain are the options of a virtual interface that is neither bond nor VLAN.
type plain struct {
	Kind string `key:"kind dummy|bridge|veth|tun|vxlan|wireguard"` // "bond" and "vlan" of those, "" of a function's
}

var (
	bondModes  = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
	bondHashes = []string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"}
)

type bond struct {
	Legs names  `key:"legs"`
	Mode string `key:"mode bond mode"`
	Hash string `key:"hash bond hash"`
	MTU  int    `key:"mtu 68..65535"`
}

type vlan struct {
	On string `key:"on name"`
	ID int    `key:"id 1..4094"`
}

// softRDMA is an RDMA device without hardware.
type softRDMA struct {
	line   int
	Name   string `arg:"NAME name"`
	Driver string `key:"driver rxe|siw|scif"`
	On     string `key:"on name"`
}

type route struct {
	line   int
	Dst    string `arg:"DST destination"`
	Dev    string `key:"dev name"`
	Via    string `key:"via address"`
	Metric int    `key:"metric 0..1073741824"`
}

type patch struct {
	line                int
	word, path, operand string
}
