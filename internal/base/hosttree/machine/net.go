package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const virtualNet = "sys/devices/virtual/net/"

// Hardware types of interfaces. Source: include/uapi/linux/if_arp.h.
const (
	typeEther      = 1
	typeInfiniBand = 32
	typeLoopback   = 772
)

func (d *netdev) hardwareType() int {
	switch {
	case d.name == "lo":
		return typeLoopback
	case d.function != nil && d.function.nic.layer == "ib":
		return typeInfiniBand
	}
	return typeEther
}

func (e *expansion) networks() {
	e.netdev(&netdev{name: "lo", path: virtualNet + "lo", index: 1, mac: "00:00:00:00:00:00", mtu: 65536, up: true}, "00:00:00:00:00:00")
	for _, f := range e.s.pci {
		if f.carrier != f.path {
			e.virtio(f)
		}
	}
	for _, d := range e.s.netdevs {
		address := d.mac
		if d.hardwareType() == typeInfiniBand {
			address = ipoibAddress(d.function.nic.guid)
		}
		if b := e.s.bondOf(d.name); b != nil {
			if d.function != nil {
				e.file(d.path+"/bonding_slave/perm_hwaddr", address)
				address = b.mac
			}
			e.enslave(d, b)
		}
		e.netdev(d, address)
		e.standing(d)
	}
}

// virtio adds the device that a virtio function carries. Interfaces hang from
// it, not from the PCI function, and it has no numa_node.
func (e *expansion) virtio(f *function) {
	id := int(f.id.device) - 0x1040
	e.files(f.carrier, "device", fmt.Sprintf("0x%04x", id), "vendor", fmt.Sprintf("0x%04x", f.id.vendor),
		"modalias", fmt.Sprintf("virtio:d%08Xv%08X", id, f.id.vendor))
	e.inClass("sys/bus/virtio", f.carrier[strings.LastIndexByte(f.carrier, '/')+1:], f.carrier)
}

// bondOf is the bond that an interface is a leg of, nil if there is none.
func (s *Spec) bondOf(leg string) *netdev {
	i := slices.IndexFunc(s.netdevs, func(b *netdev) bool { return slices.Contains(b.legs, leg) })
	if i < 0 {
		return nil
	}
	return s.netdevs[i]
}

// enslave links a leg and its bond.
func (e *expansion) enslave(leg, bond *netdev) {
	e.link(leg.path+"/master", bond.path)
	e.link(leg.path+"/upper_"+bond.name, bond.path)
	e.files(leg.path+"/bonding_slave", "state", "active", "mii_status", "up")
	e.link(bond.path+"/lower_"+leg.name, leg.path)
	e.link(bond.path+"/slave_"+leg.name, leg.path)
}

// ipoibAddress is the 20-byte address of an IP-over-InfiniBand interface: flags
// and queue pair, then the port's GID.
func ipoibAddress(guid string) string {
	h := "00001029fe80000000000000" + strings.ReplaceAll(guid, ":", "")
	parts := make([]string, 0, 20)
	for pair := range slices.Chunk([]byte(h), 2) {
		parts = append(parts, string(pair))
	}
	return strings.Join(parts, ":")
}

// netdev adds an interface's directory.
// Source: Documentation/ABI/testing/sysfs-class-net.
func (e *expansion) netdev(d *netdev, address string) {
	typ, broadcast, assigned := d.hardwareType(), "ff:ff:ff:ff:ff:ff", 0
	carrier, state, flags := 0, "down", "0x1003"
	if d.up {
		carrier, state = 1, "up"
	}
	switch {
	case typ == typeInfiniBand:
		broadcast = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
	case typ == typeLoopback:
		broadcast, flags, state = address, "0x9", "unknown"
	case d.function == nil:
		assigned = 3 // set from user space
	}
	lower := d.index
	uevent := fmt.Sprintf("INTERFACE=%s\nIFINDEX=%d", d.name, d.index)
	if d.kind != "" {
		uevent = "DEVTYPE=" + d.kind + "\n" + uevent
	}
	if d.on != "" {
		lower = e.s.netdev(d.on).index
	}
	e.files(d.path, "address", address, "addr_assign_type", assigned, "addr_len", (len(address)+1)/3, "broadcast", broadcast,
		"type", typ, "ifindex", d.index, "iflink", lower, "mtu", d.mtu, "dev_id", "0x0", "dev_port", 0, "tx_queue_len", 1000,
		"flags", flags, "carrier", carrier, "operstate", state, "uevent", uevent)
	e.files(d.path+"/statistics", "rx_bytes", 0, "rx_errors", 0, "rx_packets", 0, "tx_bytes", 0, "tx_errors", 0, "tx_packets", 0)
	switch {
	case d.mbps == 0:
	case d.up && d.mbps > 0:
		e.files(d.path, "speed", d.mbps, "duplex", "full")
	default:
		e.files(d.path, "speed", -1, "duplex", "unknown")
	}
	e.inClass("sys/class/net", d.name, d.path)
	f := d.function
	if f == nil {
		return
	}
	e.link(d.path+"/device", f.carrier)
	port := f.nic.physPort
	if port == "" && typ == typeEther && f.driver == "mlx5_core" && f.pf == nil {
		port = "p" + strconv.Itoa(int(f.bdf.Func))
	}
	if port != "" {
		e.file(d.path+"/phys_port_name", port)
	}
	if f.nic.physSwitch != "" {
		e.file(d.path+"/phys_switch_id", f.nic.physSwitch)
	}
}

// standing adds what shows what a virtual interface stands on.
func (e *expansion) standing(d *netdev) {
	switch d.kind {
	case "bond":
		state := "down"
		if d.up {
			state = "up"
		}
		e.files(d.path+"/bonding", "mode", withIndex(d.mode, bondModes), "xmit_hash_policy", withIndex(d.hash, bondHashes),
			"slaves", strings.Join(d.legs, " "), "active_slave", d.activeLeg(), "mii_status", state)
	case "vlan":
		lower := e.s.netdev(d.on).path
		e.link(d.path+"/lower_"+d.on, lower)
		e.link(lower+"/upper_"+d.name, d.path)
		e.raw("proc/net/vlan/"+d.name, fmt.Appendf(nil, "%s  VID: %d\t REORDER_HDR: 1  dev->priv_flags: 1021\nDevice: %s\n", d.name, d.vlan, d.on))
	case "bridge":
		e.file(d.path+"/bridge/stp_state", 0)
	}
}

// activeLeg is the leg of a bond that works while the others wait, "" where all work.
func (d *netdev) activeLeg() string {
	if d.mode == "active-backup" {
		return d.legs[0]
	}
	return ""
}

// withIndex is how bonding writes a choice: its name and number.
func withIndex(name string, all []string) string {
	return name + " " + strconv.Itoa(slices.Index(all, name))
}

// addresses are an interface's, with the link-local one that Linux makes up.
func (s *Spec) addresses(name string) []netip.Prefix {
	d := s.netdev(name)
	if d == nil {
		return nil
	}
	if d.hardwareType() != typeEther || d.function != nil && !d.up {
		return d.ips
	}
	return append(slices.Clip(d.ips), netip.PrefixFrom(linkLocal(d.mac), 64))
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
