package texts

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// The texts of network tools, which are laid over a topology that tells less of the network, such
// as one from hwloc's XML or the text of lspci. One file may hold the output of several tools.
//
// Source: infiniband-diags, ibstat.c; mlnx-tools, ibdev2netdev; iproute2, rdma/link.c and
// ip/ipaddress.c.

// networkText is what a tool prints. A line that matches head begins what it says of a device or an
// interface; what begin returns reads the lines below, nil where these are of no interest.
type networkText struct {
	name   string
	source topo.Source // of its facts; it has no blank, see [topo.Facts]
	head   *regexp.Regexp
	begin  func(r *Network, match []string, line int) func(text string, line int)
}

// The tools, as sources of facts.
const (
	sourceIBStat topo.Source = "ibstat"
	sourceMap    topo.Source = "ibdev2netdev"
	sourceRDMA   topo.Source = "rdma"
	sourceIP     topo.Source = "ip"
)

var networkTexts = []networkText{
	{"ibstat", sourceIBStat, regexp.MustCompile(`^CA:? '([^']{1,64})'$`), (*Network).ibstat},
	{"ibdev2netdev", sourceMap, regexp.MustCompile(`^(?:([0-9a-f:]+\.[0-7]) +)?([^ ]{1,64}) +(?:\(([^ ]+) - .* fw ([^ ]+) )?port ([0-9]{1,3}) (?:\(([A-Z]+) *\) )?==> ([^ ]{1,64}) \((Up|Down|NA)\)`), (*Network).mapping},
	{"rdma link", sourceRDMA, regexp.MustCompile(`^(?:link |[0-9]+/[0-9]+: )([^ /]{1,64})/([0-9]{1,3}):? (.*\bstate .*)$`), (*Network).rdmaLink},
	{"ip addr", sourceIP, regexp.MustCompile(`^([0-9]{1,9}): ([^ @]{1,64})(?:@[^ ]*)?: <([A-Z_,0-9-]*)> mtu ([0-9]{1,9}) (.*)$`), (*Network).ipHead},
}

// NetworkTexts are the names of what ParseNetwork reads.
func NetworkTexts() []string {
	var names []string
	for _, t := range networkTexts {
		names = append(names, t.name)
	}
	return names
}

// Network is what one text says of a host's network.
type Network struct {
	file       string
	devices    []*device
	interfaces []*iface
	rdma       int // devices and their ports
}

// device is an RDMA device as one tool shows it.
type device struct {
	topo.RDMADevice
	source topo.Source
	ports  []*port
}

type port struct {
	topo.Port
	guid   string // the low half of its first GID
	netdev string
}

type iface struct {
	topo.Netdev
	source topo.Source
}

const (
	maxRDMA       = 1024 // RDMA devices and their ports
	maxInterfaces = 4096
	maxAddresses  = 256 // of one interface
)

// add makes a device of what a tool says in one place. What it says of it elsewhere is another one, so
// that [Lay] can compare them.
func (r *Network) add(source topo.Source, name string, line int) *device {
	d := &device{RDMADevice: topo.RDMADevice{Name: name}, source: source}
	d.Evidence = r.at(line)
	r.devices = append(r.devices, d)
	r.rdma++
	return d
}

func (r *Network) at(line int) string { return fmt.Sprintf("%s line %d", r.file, line) }

// port makes a port of a number; nil where the text is no number.
func (r *Network) port(d *device, text, evidence string) *port {
	n := atMost(255, number(text))
	if orZero(n) == 0 {
		return nil
	}
	p := &port{Port: topo.Port{Number: *n}}
	p.Evidence = evidence
	d.ports = append(d.ports, p)
	r.rdma++
	return p
}

func (r *Network) addInterface(source topo.Source, name string, line int) *iface {
	n := &iface{Netdev: topo.Netdev{Name: name}, source: source}
	n.Evidence = r.at(line)
	r.interfaces = append(r.interfaces, n)
	return n
}

// check refuses a text that holds more than any host has.
func (r *Network) check() error {
	switch {
	case r.rdma > maxRDMA:
		return fmt.Errorf("more than %d RDMA devices and ports, which are not read", maxRDMA)
	case len(r.interfaces) > maxInterfaces:
		return fmt.Errorf("more than %d interfaces, which are not read", maxInterfaces)
	}
	return nil
}

var netName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$`)

// states are the states of a port as sysfs has them, by the words of ibstat and rdma.
var states = map[string]string{
	"Active": "ACTIVE", "Down": "DOWN", "Initializing": "INIT", "Armed": "ARMED",
	"ACTIVE": "ACTIVE", "DOWN": "DOWN", "INIT": "INIT", "ARMED": "ARMED",
}

// physStates are the states below, by the words of rdma; ibstat has those of sysfs.
var physStates = map[string]string{
	"LINK_UP": "LinkUp", "DISABLED": "Disabled", "POLLING": "Polling", "SLEEP": "Sleep",
	"PORT_CONFIGURATION_TRAINING": "PortConfigurationTraining", "LINK_ERROR_RECOVER": "LinkErrorRecovery", "PHY_TEST": "Phy Test",
}

func (p *port) setState(word string)     { p.State = states[word] }
func (p *port) setPhysState(word string) { p.PhysState = physStates[word] }

// setLID takes a LID; only InfiniBand ports have one above 0.
func (p *port) setLID(text string) {
	if p.LID = atMost(0xffff, number(text)); p.LID != nil && *p.LID > 0 && *p.LID != 0xffff && p.LinkLayer == "" {
		p.LinkLayer = "InfiniBand"
	}
}

// setNetdev notes a port's interface.
func (p *port) setNetdev(name string) {
	if netName.MatchString(name) {
		p.netdev = name
	}
}

// setState takes an operational state as ip prints it. Source: RFC 2863.
func (n *iface) setState(word string) {
	switch s := strings.ToLower(word); s {
	case "unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up":
		n.State = s
	}
}

// setFlags takes what the flags say. The kernel tells of a carrier only where the interface is on.
func (n *iface) setFlags(flags []string) {
	up := slices.Contains(flags, "UP")
	n.AdminUp = &up
	if up {
		n.Carrier = new(slices.Contains(flags, "LOWER_UP"))
	}
}

func (n *iface) setMAC(text string) {
	if hexBytes.MatchString(text) {
		n.MAC = strings.ToLower(text)
	}
}

func (n *iface) setParent(bus, place string) {
	if bdf, err := topo.ParseBDF(place); err == nil && bus == "pci" {
		n.BDF = &bdf
	}
}

// addAddress takes an address with the length of its network.
func (n *iface) addAddress(cidr string) {
	if p, err := netip.ParsePrefix(cidr); err == nil && len(n.Addresses) < maxAddresses && !slices.Contains(n.Addresses, p.String()) {
		n.Addresses = append(n.Addresses, p.String())
	}
}

var hexBytes = regexp.MustCompile(`^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5,31}$`)

// guid writes "0x946dae0300a1b2c3" as sysfs does, "946d:ae03:00a1:b2c3"; "" for 0 and what is no GUID.
func guid(text string) string {
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil || v == 0 || !strings.HasPrefix(text, "0x") {
		return ""
	}
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}

// ParseNetwork reads a text. file is its name, for messages.
func ParseNetwork(file string, data []byte) (*Network, error) {
	r := &Network{file: file}
	read := r.readText
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && (trimmed[0] == '[' || trimmed[0] == '{') {
		read = r.readJSON
	}
	err := read(data)
	if err == nil && len(r.devices)+len(r.interfaces) == 0 {
		err = fmt.Errorf("none of the texts that are known: %s", strings.Join(NetworkTexts(), ", "))
	}
	if err != nil {
		return nil, pkgerr.Errorf("texts", "%w", err)
	}
	return r, nil
}

// readText reads the lines of all tools. Those that belong to none are passed over.
func (r *Network) readText(data []byte) error {
	var detail func(text string, line int) // of what the lines below are about
	for i, text := range lines(data) {
		line, text, began := i+1, strings.TrimSpace(text), false
		for _, t := range networkTexts {
			if m := t.head.FindStringSubmatch(text); m != nil {
				detail, began = t.begin(r, m, line), true
				break
			}
		}
		if !began && detail != nil {
			detail(text, line)
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	return nil
}

var portLine = regexp.MustCompile(`^Port ([0-9]{1,3}):$`)

func (r *Network) ibstat(m []string, line int) func(string, int) {
	if !netName.MatchString(m[1]) {
		return nil
	}
	d := r.add(sourceIBStat, m[1], line)
	var p *port
	return func(text string, line int) {
		if m := portLine.FindStringSubmatch(text); m != nil {
			p = r.port(d, m[1], r.at(line))
		} else if p != nil {
			p.detail(text)
		} else {
			d.detail(text)
		}
	}
}

// detail reads a line of ibstat's about the device.
func (d *device) detail(text string) {
	key, value, _ := strings.Cut(text, ": ")
	switch key {
	case "CA type":
		d.HCAType = word(value)
	case "Firmware version":
		d.Firmware = word(value)
	case "Node GUID":
		d.NodeGUID = guid(value)
	case "System image GUID":
		d.SysImageGUID = guid(value)
	}
}

// detail reads a line of ibstat's about a port.
func (p *port) detail(text string) {
	key, value, _ := strings.Cut(text, ": ")
	switch key {
	case "State":
		p.setState(value)
	case "Physical state":
		p.PhysState = word(value)
	case "Rate":
		number, _, _ := strings.Cut(value, " ")
		if gbps, err := strconv.ParseFloat(number, 64); err == nil && gbps > 0 && gbps <= 1e5 {
			p.BytesPerSec = new(topo.Rate(gbps*1e9/8 + 0.5))
		}
	case "Base lid":
		p.setLID(value)
	case "SM lid":
		p.SMLID = atMost(0xffff, number(value))
	case "Port GUID":
		p.guid = guid(value)
	case "Link layer":
		if value == "InfiniBand" || value == "Ethernet" {
			p.LinkLayer = value
		}
	}
}

// mapping reads "0000:17:00.0 mlx5_0 (MT4129 - PART) NAME fw 28.39.1002 port 1 (ACTIVE) ==> ib0 (Up)",
// of which the short form has "mlx5_0 port 1 ==> ib0 (Up)". Up means that there is a carrier, Down that there
// is no carrier or that the interface is switched off.
func (r *Network) mapping(m []string, line int) func(string, int) {
	if !netName.MatchString(m[2]) || !netName.MatchString(m[7]) {
		return nil
	}
	d := r.add(sourceMap, m[2], line)
	if bdf, err := topo.ParseBDF(m[1]); err == nil {
		d.BDF = &bdf
	}
	d.HCAType, d.Firmware = word(m[3]), word(m[4])
	p := r.port(d, m[5], r.at(line))
	if p == nil {
		return nil
	}
	p.setState(m[6])
	p.setNetdev(m[7])
	n := r.addInterface(sourceMap, m[7], line)
	switch m[8] {
	case "Up":
		n.Carrier = new(true)
	case "Down":
		n.State = "down"
	}
	return nil
}

// rdmaLink reads "link mlx5_0/1 subnet_prefix fe80:... lid 12 state ACTIVE physical_state LINK_UP netdev ib0";
// before iproute2 5.0 a line began with "0/1: mlx5_0/1: ".
func (r *Network) rdmaLink(m []string, line int) func(string, int) {
	if !netName.MatchString(m[1]) {
		return nil
	}
	p := r.port(r.add(sourceRDMA, m[1], line), m[2], r.at(line))
	if p == nil {
		return nil
	}
	words := strings.Fields(m[3])
	for i := 0; i+1 < len(words); i += 2 {
		switch value := words[i+1]; words[i] {
		case "state":
			p.setState(value)
		case "physical_state":
			p.setPhysState(value)
		case "lid":
			p.setLID(value)
		case "sm_lid":
			p.SMLID = atMost(0xffff, number(value))
		case "netdev":
			p.setNetdev(value)
		}
	}
	return nil
}

// ipHead reads "3: ib0@if5: <BROADCAST,UP,LOWER_UP> mtu 2044 qdisc mq master bond0 state UP ...".
func (r *Network) ipHead(m []string, line int) func(string, int) {
	if !netName.MatchString(m[2]) {
		return nil
	}
	n := r.addInterface(sourceIP, m[2], line)
	n.Index, n.MTU = number(m[1]), number(m[4])
	n.setFlags(strings.Split(m[3], ","))
	words := strings.Fields(m[5])
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "state":
			n.setState(words[i+1])
		case "master":
			if netName.MatchString(words[i+1]) {
				n.Master = words[i+1]
			}
		}
	}
	return func(text string, _ int) { n.detail(strings.Fields(text)) }
}

// detail reads a line below an interface: "link/ether 02:...", "inet 10.0.0.1/24 ...", and with -d what
// kind it is and what it is of.
func (n *iface) detail(words []string) {
	if len(words) == 0 {
		return
	}
	if kind, ok := strings.CutPrefix(words[0], "link/"); ok && len(words) > 1 {
		n.Type = word(kind)
		n.setMAC(words[1])
	}
	switch {
	case len(words) < 2:
	case words[0] == "inet", words[0] == "inet6":
		n.addAddress(words[1])
	case words[0] == "bond" && words[1] == "mode", words[0] == "vlan" && words[1] == "protocol":
		n.LinkKind = words[0]
	}
	for i := 0; i+3 < len(words); i++ {
		if words[i] == "parentbus" && words[i+2] == "parentdev" {
			n.setParent(words[i+1], words[i+3])
		}
	}
}

// networkEntry is an element of what rdma -j link and ip -j addr print.
type networkEntry struct {
	Name string `json:"ifname"`
	// rdma
	Port      *int   `json:"port"`
	State     string `json:"state"`
	PhysState string `json:"physical_state"`
	LID       *int   `json:"lid"`
	SMLID     *int   `json:"sm_lid"`
	Netdev    string `json:"netdev"`
	// ip
	Index     *int     `json:"ifindex"`
	Flags     []string `json:"flags"`
	MTU       *int     `json:"mtu"`
	Master    string   `json:"master"`
	OperState string   `json:"operstate"`
	Type      string   `json:"link_type"`
	MAC       string   `json:"address"`
	ParentBus string   `json:"parentbus"`
	Parent    string   `json:"parentdev"`
	Info      struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
	Addresses []struct {
		Local  string `json:"local"`
		Length *int   `json:"prefixlen"`
	} `json:"addr_info"`
}

func (r *Network) readJSON(data []byte) error {
	list, err := readJSON[networkEntry](data, maxInterfaces)
	if err != nil {
		return err
	}
	for i := range list {
		e := &list[i]
		switch {
		case !netName.MatchString(e.Name):
			// ip prints empty objects for what a filter left out.
		case e.Port != nil:
			r.rdmaEntry(e, i)
		default:
			r.ipEntry(e, i)
		}
	}
	return r.check()
}

func (r *Network) element(i int) string { return fmt.Sprintf("%s element %d", r.file, i) }

func (r *Network) rdmaEntry(e *networkEntry, i int) {
	d := r.add(sourceRDMA, e.Name, 0)
	d.Evidence = r.element(i)
	p := r.port(d, strconv.Itoa(*e.Port), r.element(i))
	if p == nil {
		return
	}
	p.setState(e.State)
	p.setPhysState(e.PhysState)
	p.setNetdev(e.Netdev)
	if e.LID != nil {
		p.setLID(strconv.Itoa(*e.LID))
	}
	if e.SMLID != nil {
		p.SMLID = atMost(0xffff, e.SMLID)
	}
}

func (r *Network) ipEntry(e *networkEntry, i int) {
	n := r.addInterface(sourceIP, e.Name, 0)
	n.Evidence = r.element(i)
	if e.Index != nil && *e.Index > 0 {
		n.Index = e.Index
	}
	if e.MTU != nil && *e.MTU > 0 {
		n.MTU = e.MTU
	}
	if e.Flags != nil {
		n.setFlags(e.Flags)
	}
	n.setState(e.OperState)
	n.setMAC(e.MAC)
	n.setParent(e.ParentBus, e.Parent)
	n.Type, n.LinkKind = word(e.Type), word(e.Info.Kind)
	if netName.MatchString(e.Master) {
		n.Master = e.Master
	}
	for _, a := range e.Addresses {
		if a.Length != nil {
			n.addAddress(fmt.Sprintf("%s/%d", a.Local, *a.Length))
		}
	}
}
