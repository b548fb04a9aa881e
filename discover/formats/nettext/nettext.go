// Package nettext reads what ibstat, ibdev2netdev, rdma link and ip addr print, and lays it over a
// topology that tells less of the network, such as one from hwloc's XML or the text of lspci.
// A text may hold the output of several of these tools.
//
// Source: infiniband-diags, ibstat.c; mlnx-tools, ibdev2netdev; iproute2, rdma/link.c and
// ip/ipaddress.c.
package nettext

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// The tools, as sources of facts.
const (
	sourceIBStat topo.Source = "ibstat"
	sourceMap    topo.Source = "ibdev2netdev"
	sourceRDMA   topo.Source = "rdma"
	sourceIP     topo.Source = "ip"
)

// Formats are the names of what is read.
var Formats = []string{"ibstat", "ibdev2netdev", "rdma link", "ip addr"}

// sources are the sources of all facts that texts may tell. A source has no blank, see [topo.Facts].
var sources = []topo.Source{sourceIBStat, sourceMap, sourceRDMA, sourceIP}

// Report is what one text says.
type Report struct {
	file       string
	devices    []*device
	interfaces []*iface
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
	maxDevices    = 1024 // RDMA devices and their ports
	maxInterfaces = 4096
	maxAddresses  = 256 // of one interface
)

// add makes a device of what a tool says in one place. What it says of it elsewhere is another one, so
// that [Lay] can compare them.
func (r *Report) add(source topo.Source, name string, line int) *device {
	d := &device{RDMADevice: topo.RDMADevice{Name: name}, source: source}
	d.Evidence = r.at(line)
	r.devices = append(r.devices, d)
	return d
}

func (r *Report) at(line int) string { return fmt.Sprintf("%s line %d", r.file, line) }

// port makes a port of a number; nil where the text is no number.
func (d *device) port(number, evidence string) *port {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 255 {
		return nil
	}
	p := &port{Port: topo.Port{Number: n}}
	p.Evidence = evidence
	d.ports = append(d.ports, p)
	return p
}

func (r *Report) addInterface(source topo.Source, name string, line int) *iface {
	n := &iface{Netdev: topo.Netdev{Name: name}, source: source}
	n.Evidence = r.at(line)
	r.interfaces = append(r.interfaces, n)
	return n
}

// tooMany is the error for a text that holds more than any host has.
func (r *Report) tooMany() string {
	devices := len(r.devices)
	for _, d := range r.devices {
		devices += len(d.ports)
	}
	switch {
	case devices > maxDevices:
		return fmt.Sprintf("more than %d RDMA devices and ports, which are not read", maxDevices)
	case len(r.interfaces) > maxInterfaces:
		return fmt.Sprintf("more than %d interfaces, which are not read", maxInterfaces)
	}
	return ""
}

var deviceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$`)

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
	if p.LID = number(text, 0xffff); p.LID != nil && *p.LID > 0 && *p.LID != 0xffff && p.LinkLayer == "" {
		p.LinkLayer = "InfiniBand"
	}
}

// setNetdev notes a port's interface.
func (p *port) setNetdev(name string) {
	if deviceName.MatchString(name) {
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

// word is a value within the length of a name.
func word(s string) string { return text.Clip(strings.TrimSpace(s), 64) }

// number reads a count up to limit; nil for a text that is no such number.
func number(text string, limit int) *int {
	n, err := strconv.ParseUint(text, 0, 31)
	if err != nil || int(n) > limit {
		return nil
	}
	return new(int(n))
}

// guid writes "0x946dae0300a1b2c3" as sysfs does, "946d:ae03:00a1:b2c3"; "" for 0 and what is no GUID.
func guid(text string) string {
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil || v == 0 || !strings.HasPrefix(text, "0x") {
		return ""
	}
	return fmt.Sprintf("%04x:%04x:%04x:%04x", v>>48, v>>32&0xffff, v>>16&0xffff, v&0xffff)
}
