package machine

import (
	"math"
	"net/netip"
	"slices"
	"strings"

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

// What follows are the things that a machine has. Beside each stand its options: the key,
// the kind of value, and where it ends up.

type host struct {
	arch, kernel, vendor, product, virtual, name, iommu, cmdline string
	memlock                                                      string // "unlimited", bytes, or "" for what such machines have
	config                                                       string // how much of configuration space can be read: "header", "full"
}

func (h *host) options() options {
	return options{
		"arch": oneOf(&h.arch, "x86_64", "aarch64", "ppc64le"), "kernel": text(&h.kernel), "vendor": text(&h.vendor),
		"product": text(&h.product), "virtual": oneOf(&h.virtual, "none", "kvm", "qemu", "hyperv", "nitro", "vmware", "xen"),
		"name": name(&h.name), "iommu": oneOf(&h.iommu, "off", "identity", "DMA", "DMA-FQ"), "cmdline": text(&h.cmdline),
		"memlock": numberOr(&h.memlock, "unlimited", math.MaxInt64), "config": oneOf(&h.config, "header", "full"),
	}
}

type cpu struct {
	vendor, name  string
	family, model *int
	threads       int
	siblings      string // the numbers of a core's threads: "adjacent", or "split" over the list
}

func (c *cpu) options() options {
	return options{
		"vendor": text(&c.vendor), "family": maybeNumber(&c.family, 1<<16), "model": maybeNumber(&c.model, 1<<16),
		"name": text(&c.name), "threads": number(&c.threads, 1, 8), "siblings": oneOf(&c.siblings, "split", "adjacent"),
	}
}

type numaNode struct {
	line, index, pkg int
	cpus             cpuset.Set
	mem              int64 // bytes
	distance         []int
}

func (n *numaNode) options() options {
	distance := option{set: func(s string) error {
		for word := range strings.FieldsSeq(s) {
			var d int
			if err := number(&d, 1, 255).set(word); err != nil {
				return err
			}
			n.distance = append(n.distance, d)
		}
		return nil
	}}
	return options{"package": number(&n.pkg, 0, maxNUMA), "cpus": cpus(&n.cpus), "mem": size(&n.mem), "distance": distance}
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

func (r *root) options() options {
	return options{"numa": number(&r.numa, -1, maxNUMA-1), "under": matching(&r.under, acpiForm, "a path below /sys/devices")}
}

type idPair struct{ vendor, device uint16 }

// hardware is what every function's part says; a function may override each.
type hardware struct {
	id, sub idPair
	rev     uint8
	class   uint32
	driver  string // "" for none
	title   string
	link    lane
}

func (h *hardware) options() options {
	return options{
		"id": ids(&h.id), "sub": ids(&h.sub), "rev": hex(&h.rev, 8), "class": hex(&h.class, 24), "driver": driver(&h.driver),
		"title": text(&h.title), "link": lanes(&h.link),
	}
}

// part is a piece of hardware that a function is.
type part struct {
	name, kind string
	hardware
	memory    int64  // bytes of a GPU
	cc        string // compute capability
	layer     string // of a NIC: "ib", "eth", "efa"
	gbps      int
	hca       string
	board, fw string
	oui       string // first three bytes of its MAC addresses
	gids      int    // entries of a port's GID table
	sriov     int    // virtual functions that it can have
	model     string // of an NVMe drive
	bytes     int64  // of an NVMe drive
}

func (x *part) options() options {
	return x.hardware.options().and(options{
		"memory": size(&x.memory), "cc": text(&x.cc), "layer": oneOf(&x.layer, "ib", "eth", "efa"), "gbps": number(&x.gbps, 1, 10_000),
		"hca": text(&x.hca), "board": text(&x.board), "fw": text(&x.fw), "gids": number(&x.gids, 0, maxGIDs), "sriov": number(&x.sriov, 0, 255),
		"oui": matching(&x.oui, ouiForm, "three bytes as a0:88:c2"), "model": text(&x.model), "bytes": size(&x.bytes),
	})
}

// function is one PCI function.
type function struct {
	line   int
	kind   string
	bdf    topo.BDF
	part   *part
	root   *root
	parent *function // nil on the root bus
	hardware
	kids []*function
	at   lane
	numa int
	acs  *uint16
	gpu  *gpu
	nic  *nic
	nvme string // the controller's name

	// What planning finds.
	order        int    // place in PCI order
	path         string // in the tree
	carrier      string // what interfaces hang from: path, or the virtio device below it
	cur          lane   // what the link runs at; zero where there is none
	secondary    uint8  // bus below a bridge
	last         uint8  // highest bus below a bridge
	group        int    // IOMMU group
	firstInGroup bool   // the first of its group
	vfs          []*function
	pf           *function
	multi        bool // other functions in its slot
}

func newFunction(kind string) *function {
	f := &function{kind: kind}
	switch kind {
	case "gpu":
		f.gpu = &gpu{index: -1, minor: -1}
	case "nic":
		f.nic = &nic{state: "active", smLID: 1}
	}
	return f
}

func (f *function) options() options {
	o := f.hardware.options().and(options{
		"at": lanes(&f.at), "numa": number(&f.numa, -1, maxNUMA-1), "acs": maybe(&f.acs, func(v *uint16) option { return hex(v, 16) }),
	})
	switch f.kind {
	case "gpu":
		o.and(f.gpu.options())
	case "nic":
		o.and(f.nic.options(f.bdf.Domain))
	case "nvme":
		o["name"] = name(&f.nvme)
	}
	return o
}

func (f *function) isBridge() bool {
	return f.kind == "port" || f.kind == "switch" || f.kind == "down" || f.kind == "bridge"
}

// isVF says whether the text makes it a virtual function.
func (f *function) isVF() bool { return f.nic != nil && f.nic.vfOf != nil }

type gpu struct {
	uuid, serial string
	index, minor int // index is NVML's
	nvlink       int // links to the switch
	c2c          int
	c2cRate      topo.Rate // 0: not known
	memoryNUMA   *int
	mig          []string
}

func (g *gpu) options() options {
	profile := func(to *string) option { return matching(to, migForm, "a profile such as 1g.10gb") }
	return options{
		"uuid": serial(&g.uuid), "serial": serial(&g.serial), "nvml-index": number(&g.index, 0, maxFunctions), "minor": number(&g.minor, 0, maxFunctions),
		"nvlink": number(&g.nvlink, 0, 64), "c2c": number(&g.c2c, 0, 64), "c2c-rate": rate(&g.c2cRate),
		"memory-numa": maybeNumber(&g.memoryNUMA, maxNUMA-1), "mig": repeated(&g.mig, profile),
	}
}

type nic struct {
	ib, eth    bool   // as the text says
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

	imageGUID string
}

func (n *nic) options(domain uint32) options {
	return options{
		"ib": flag(&n.ib), "eth": flag(&n.eth), "rdma": name(&n.rdma), "net": name(&n.net), "gbps": number(&n.gbps, 1, 10_000),
		"rate": text(&n.rate), "state": oneOf(&n.state, "active", "down", "init", "armed"), "lid": number(&n.lid, 0, 65535),
		"sm-lid": number(&n.smLID, 0, 65535), "ip": repeated(&n.ips, prefix), "mac": matching(&n.mac, macForm, "six bytes as a0:88:c2:00:00:01"),
		"guid": matching(&n.guid, guidForm, "four groups as a088:c203:0000:0001"), "mtu": number(&n.mtu, 68, 65535),
		"ndev": name(&n.ndev), "gids": number(&n.gids, 0, maxGIDs), "pkeys": pkeys(&n.pkeys), "tc": numberOr(&n.tc, "unset", 255),
		"sriov": maybeNumber(&n.sriov, 255), "phys-port": text(&n.physPort), "phys-switch": text(&n.physSwitch),
		"vf-of": maybe(&n.vfOf, func(b *topo.BDF) option { return address(b, domain, "an address as 18:00.0") }),
		"fw":    text(&n.fw), "board": text(&n.board),
	}
}

// pkeys is a list as sysfs writes it, no longer than a port's table.
func pkeys(to *[]string) option {
	const what = "at most 128 keys as 0xffff,0x8001"
	return option{set: func(s string) error {
		all := list(to, func(key *string) option { return matching(key, pkeyForm, what) })
		if len(s) > pkeyTable*len("0xffff,") || all.set(s) != nil {
			return want(s, what)
		}
		return nil
	}}
}

type nvidia struct{ driver, cuda, module string }

func (n *nvidia) options() options {
	return options{"driver": text(&n.driver), "cuda": text(&n.cuda), "module": oneOf(&n.module, "open", "proprietary")}
}

// between is what there is between two GPUs, or every two.
type between struct {
	line   int
	kind   string // "nvlink", "xgmi", "p2p"
	a, b   int    // in PCI order; -1: every pair
	count  int    // of links
	answer string // of NVML to p2p
}

func (x between) is(kind string, a, b int) bool {
	return x.kind == kind && (x.a < 0 || x.a == a && x.b == b || x.a == b && x.b == a)
}

// netdev is a network interface: of a function, or a virtual one.
type netdev struct {
	line       int
	function   *function // nil of a virtual one
	name, kind string    // kind is "" of a function's
	ips        []netip.Prefix
	mtu        int
	legs       []string // of a bond
	mode, hash string   // of a bond
	on         string   // of a VLAN
	vlan       int

	// What planning finds.
	path  string
	index int
	mac   string
	mbps  int
	up    bool
}

var (
	bondModes  = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
	bondHashes = []string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"}
)

func (d *netdev) options() options {
	o := options{"ip": repeated(&d.ips, prefix)}
	switch d.kind {
	case "bond":
		o.and(options{"legs": list(&d.legs, name), "mode": oneOf(&d.mode, bondModes...), "hash": oneOf(&d.hash, bondHashes...), "mtu": number(&d.mtu, 68, 65535)})
	case "vlan":
		o.and(options{"on": name(&d.on), "id": number(&d.vlan, 1, 4094)})
	default:
		o["kind"] = oneOf(&d.kind, "dummy", "bridge", "veth", "tun", "vxlan", "wireguard")
	}
	return o
}

type softRDMA struct {
	line             int
	name, driver, on string
}

func (r *softRDMA) options() options {
	return options{"driver": oneOf(&r.driver, "rxe", "siw", "scif"), "on": name(&r.on)}
}

type route struct {
	line          int
	dst, dev, via string
	metric        int
}

func (r *route) options() options {
	via := kind(&r.via, "an address", func(s string) (string, bool) {
		_, err := netip.ParseAddr(s)
		return s, err == nil
	})
	return options{"dev": name(&r.dev), "via": via, "metric": number(&r.metric, 0, 1<<30)}
}

type patch struct {
	line                int
	word, path, operand string
}
