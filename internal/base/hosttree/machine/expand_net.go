package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// iface is a network interface as sysfs shows it.
type iface struct {
	dir, name     string
	device        string // "" for a virtual one
	index, iflink int
	typ           int // ARPHRD: 1 Ethernet, 32 InfiniBand, 772 loopback
	mac           string
	mtu, mbps     int
	up            bool
	kind          string // DEVTYPE
	physPort      string
	physSwitch    string
}

func (e *expansion) netdevs() {
	e.iface(iface{dir: "sys/devices/virtual/net/lo", name: "lo", index: 1, iflink: 1, typ: 772, mac: "00:00:00:00:00:00", mtu: 65536, up: true})
	virtio := 0
	for _, f := range e.s.pci {
		parent := f.path
		if f.driver == "virtio-pci" {
			parent = e.virtio(f, virtio)
			virtio++
		}
		if f.nic == nil || f.nic.net == "" {
			continue
		}
		e.pciNetdev(f, parent)
	}
	for _, d := range e.s.virtualNetdevs() {
		e.virtualNetdev(d)
	}
}

// virtio adds the device that a virtio function carries. Interfaces hang from
// it, not from the PCI function, and it has no numa_node.
func (e *expansion) virtio(f *function, n int) string {
	dir := f.path + "/virtio" + strconv.Itoa(n)
	id := int(f.device) - 0x1040
	e.file(dir+"/device", fmt.Sprintf("0x%04x", id))
	e.file(dir+"/vendor", fmt.Sprintf("0x%04x", f.vendor))
	e.file(dir+"/modalias", fmt.Sprintf("virtio:d%08Xv%08X", id, f.vendor))
	e.link(dir+"/subsystem", "sys/bus/virtio")
	e.link("sys/bus/virtio/devices/virtio"+strconv.Itoa(n), dir)
	return dir
}

func (e *expansion) pciNetdev(f *function, parent string) {
	n := f.nic
	x := iface{dir: parent + "/net/" + n.net, name: n.net, device: parent, index: n.ifindex, iflink: n.ifindex, typ: 1, mac: n.mac,
		mtu: n.mtu, mbps: n.gbps * 1000, up: n.state == "active", physPort: n.physPort, physSwitch: n.physSwitch}
	if n.layer == "ib" {
		x.typ, x.mac = 32, ipoibAddress(n.guid)
	} else if x.physPort == "" && f.driver == "mlx5_core" && f.pf == nil {
		x.physPort = "p" + strconv.Itoa(int(f.bdf.Func))
	}
	if b := e.s.bondOf(n.net); b != nil {
		e.file(x.dir+"/bonding_slave/perm_hwaddr", x.mac)
		x.mac = b.mac
		e.enslave(x.dir, n.net, b.name)
	}
	e.iface(x)
}

// bondOf is the bond that an interface is a leg of, nil if there is none.
func (s *Spec) bondOf(leg string) *netdev {
	for _, b := range s.bonds {
		if slices.Contains(b.legs, leg) {
			return b
		}
	}
	return nil
}

// ipoibAddress is the 20-byte address of an IP-over-InfiniBand interface: flags
// and queue pair, then the port's GID.
func ipoibAddress(guid string) string {
	h := "00001029fe80000000000000" + strings.ReplaceAll(guid, ":", "")
	parts := make([]string, 0, 20)
	for i := 0; i < len(h); i += 2 {
		parts = append(parts, h[i:i+2])
	}
	return strings.Join(parts, ":")
}

// iface adds an interface's directory.
// Source: Documentation/ABI/testing/sysfs-class-net.
func (e *expansion) iface(x iface) {
	d := x.dir + "/"
	broadcast := "ff:ff:ff:ff:ff:ff"
	assign := 0
	switch x.typ {
	case 32:
		broadcast = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
	case 772:
		broadcast = x.mac
	}
	if x.device == "" && x.typ == 1 {
		assign = 3 // set from user space
	}
	e.file(d+"address", x.mac)
	e.number(d+"addr_assign_type", assign)
	e.number(d+"addr_len", (len(x.mac)+1)/3)
	e.file(d+"broadcast", broadcast)
	e.number(d+"type", x.typ)
	e.number(d+"ifindex", x.index)
	e.number(d+"iflink", x.iflink)
	e.number(d+"mtu", x.mtu)
	e.file(d+"dev_id", "0x0")
	e.number(d+"dev_port", 0)
	e.number(d+"tx_queue_len", 1000)
	e.ifaceState(x)
	for _, name := range []string{"rx_bytes", "rx_errors", "rx_packets", "tx_bytes", "tx_errors", "tx_packets"} {
		e.number(d+"statistics/"+name, 0)
	}
	uevent := ""
	if x.kind != "" {
		uevent = "DEVTYPE=" + x.kind + "\n"
	}
	e.file(d+"uevent", fmt.Sprintf("%sINTERFACE=%s\nIFINDEX=%d", uevent, x.name, x.index))
	if x.physPort != "" {
		e.file(d+"phys_port_name", x.physPort)
	}
	if x.physSwitch != "" {
		e.file(d+"phys_switch_id", x.physSwitch)
	}
	if x.device != "" {
		e.link(d+"device", x.device)
	}
	e.link(d+"subsystem", "sys/class/net")
	e.link("sys/class/net/"+x.name, x.dir)
}

func (e *expansion) ifaceState(x iface) {
	d := x.dir + "/"
	carrier, state := "0", "down"
	if x.up {
		carrier, state = "1", "up"
	}
	flags := "0x1003"
	if x.typ == 772 {
		flags, state = "0x9", "unknown"
	}
	e.file(d+"flags", flags)
	e.file(d+"carrier", carrier)
	e.file(d+"operstate", state)
	if x.mbps == 0 {
		return
	}
	mbps, duplex := x.mbps, "full"
	if !x.up || mbps < 0 {
		mbps, duplex = -1, "unknown"
	}
	e.number(d+"speed", mbps)
	e.file(d+"duplex", duplex)
}

// enslave links a leg and its bond.
func (e *expansion) enslave(legDir, leg, bond string) {
	dir := "sys/devices/virtual/net/" + bond
	e.link(legDir+"/master", dir)
	e.link(legDir+"/upper_"+bond, dir)
	e.file(legDir+"/bonding_slave/state", "active")
	e.file(legDir+"/bonding_slave/mii_status", "up")
	e.link(dir+"/lower_"+leg, legDir)
	e.link(dir+"/slave_"+leg, legDir)
}

var bondModes = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}
var bondHashes = []string{"layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"}

func (e *expansion) virtualNetdev(d *netdev) {
	dir := "sys/devices/virtual/net/" + d.name
	x := iface{dir: dir, name: d.name, index: d.ifindex, iflink: d.ifindex, typ: 1, mac: d.mac, mtu: d.mtu, mbps: d.mbps, up: d.up, kind: d.kind}
	switch d.kind {
	case "bond":
		active := ""
		if d.mode == "active-backup" {
			active = d.legs[0]
		}
		e.file(dir+"/bonding/mode", withIndex(d.mode, bondModes))
		e.file(dir+"/bonding/xmit_hash_policy", withIndex(d.hash, bondHashes))
		e.file(dir+"/bonding/slaves", strings.Join(d.legs, " "))
		e.file(dir+"/bonding/active_slave", active)
		e.file(dir+"/bonding/mii_status", map[bool]string{true: "up", false: "down"}[d.up])
		for _, leg := range d.legs {
			if v := e.s.virtualNetdev(leg); v != nil {
				e.enslave("sys/devices/virtual/net/"+leg, leg, d.name)
			}
		}
	case "vlan":
		lower := e.netPath(d.on)
		x.iflink = e.s.ifindex(d.on)
		e.link(dir+"/lower_"+d.on, lower)
		e.link(lower+"/upper_"+d.name, dir)
		e.raw("proc/net/vlan/"+d.name, fmt.Appendf(nil, "%s  VID: %d\t REORDER_HDR: 1  dev->priv_flags: 1021\nDevice: %s\n", d.name, d.vlan, d.on))
	case "bridge":
		e.file(dir+"/bridge/stp_state", "0")
	}
	e.iface(x)
}

// withIndex is how bonding writes a choice: its name and number.
func withIndex(name string, all []string) string {
	for i, x := range all {
		if x == name {
			return name + " " + strconv.Itoa(i)
		}
	}
	return name
}

// netPath is the directory of an interface.
func (e *expansion) netPath(name string) string {
	if f := e.s.netFunction(name); f != nil {
		if f.driver == "virtio-pci" {
			n := 0
			for _, g := range e.s.pci {
				if g == f {
					break
				}
				if g.driver == "virtio-pci" {
					n++
				}
			}
			return f.path + "/virtio" + strconv.Itoa(n) + "/net/" + name
		}
		return f.path + "/net/" + name
	}
	return "sys/devices/virtual/net/" + name
}

// ifindex is an interface's number.
func (s *Spec) ifindex(name string) int {
	if f := s.netFunction(name); f != nil {
		return f.nic.ifindex
	}
	if d := s.virtualNetdev(name); d != nil {
		return d.ifindex
	}
	return 1
}

// addresses are an interface's: those of the text, and the link-local one that
// an Ethernet interface makes from its MAC.
func (s *Spec) addresses(name string) []netip.Prefix {
	var ips []netip.Prefix
	var mac string
	ether := true
	if f := s.netFunction(name); f != nil {
		ips, mac, ether = f.nic.ips, f.nic.mac, f.nic.layer != "ib" && f.nic.state == "active"
	} else if d := s.virtualNetdev(name); d != nil {
		ips, mac = d.ips, d.mac
	}
	out := append([]netip.Prefix(nil), ips...)
	if ether && mac != "" {
		out = append(out, netip.PrefixFrom(linkLocal(mac), 64))
	}
	return out
}

// linkLocal is the IPv6 address of an Ethernet address (RFC 4291, EUI-64).
func linkLocal(mac string) netip.Addr {
	var b [6]byte
	for i := range b {
		n, err := strconv.ParseUint(mac[3*i:3*i+2], 16, 8)
		if err != nil {
			return netip.Addr{}
		}
		b[i] = byte(n)
	}
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]})
}
