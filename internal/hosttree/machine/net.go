package machine

import (
	"fmt"
	"net"
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
	case d.Name == "lo":
		return typeLoopback
	case d.function != nil && d.function.nic.Layer == "ib":
		return typeInfiniBand
	}
	return typeEther
}

func (e *expansion) addNetworks() {
	e.addNetdev(&netdev{Name: "lo", path: virtualNet + "lo", index: 1, mac: "00:00:00:00:00:00", MTU: 65536, up: true})
	for _, d := range e.Netdevs {
		e.addNetdev(d)
	}
}

// bondOf is the bond that an interface is a leg of, nil if there is none.
func (s *Spec) bondOf(leg string) *netdev {
	return first(s.Netdevs, func(b *netdev) bool { return slices.Contains(b.Legs, leg) })
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

// upOr is how sysfs writes whether something is up.
func upOr(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// addNetdev adds an interface's directory.
// Source: Documentation/ABI/testing/sysfs-class-net.
func (e *expansion) addNetdev(d *netdev) {
	f, typ := d.function, d.hardwareType()
	address, broadcast, assigned := d.mac, "ff:ff:ff:ff:ff:ff", 0
	carrier, state, flags := 0, upOr(d.up), "0x1003"
	if d.up {
		carrier = 1
	}
	switch {
	case typ == typeInfiniBand:
		address = ipoibAddress(f.nic.GUID)
		broadcast = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
	case typ == typeLoopback:
		broadcast, flags, state = address, "0x9", "unknown"
	case f == nil:
		assigned = 3 // set from user space
	}
	if b := e.bondOf(d.Name); b != nil {
		e.put(d.path, "master", linkTo(b.path), "upper_"+b.Name, linkTo(b.path), "bonding_slave/state", "active", "bonding_slave/mii_status", "up")
		e.put(b.path, "lower_"+d.Name, linkTo(d.path), "slave_"+d.Name, linkTo(d.path))
		if f != nil {
			e.put(d.path, "bonding_slave/perm_hwaddr", address)
			address = b.mac
		}
	}
	lower := d.index
	if d.On != "" {
		lower = e.netdev(d.On).index
	}
	uevent := fmt.Sprintf("INTERFACE=%s\nIFINDEX=%d", d.Name, d.index)
	if d.Kind != "" {
		uevent = "DEVTYPE=" + d.Kind + "\n" + uevent
	}
	e.device("sys/class/net", d.path, "address", address, "addr_assign_type", assigned, "addr_len", (len(address)+1)/3, "broadcast", broadcast,
		"type", typ, "ifindex", d.index, "iflink", lower, "mtu", d.MTU, "dev_id", "0x0", "dev_port", 0, "tx_queue_len", 1000,
		"flags", flags, "carrier", carrier, "operstate", state, "uevent", uevent)
	e.put(d.path+"/statistics", "rx_bytes", 0, "rx_errors", 0, "rx_packets", 0, "tx_bytes", 0, "tx_errors", 0, "tx_packets", 0)
	switch {
	case d.mbps == 0:
	case d.up && d.mbps > 0:
		e.put(d.path, "speed", d.mbps, "duplex", "full")
	default:
		e.put(d.path, "speed", -1, "duplex", "unknown")
	}
	if f != nil {
		port := f.nic.PhysPort
		if port == "" && typ == typeEther && f.Driver == "mlx5_core" && f.pf == nil {
			port = "p" + strconv.Itoa(int(f.bdf.Func))
		}
		e.put(d.path, "device", linkTo(f.carrier), "phys_port_name", unlessEmpty(port), "phys_switch_id", unlessEmpty(f.nic.PhysSwitch))
	}
	switch d.Kind {
	case "bond":
		e.put(d.path+"/bonding", "mode", withIndex(d.Mode, bondModes), "xmit_hash_policy", withIndex(d.Hash, bondHashes),
			"slaves", strings.Join(d.Legs, " "), "active_slave", d.activeLeg(), "mii_status", upOr(d.up))
	case "vlan":
		lower := e.netdev(d.On).path
		e.put(d.path, "lower_"+d.On, linkTo(lower))
		e.put(lower, "upper_"+d.Name, linkTo(d.path))
		e.put("proc/net/vlan", d.Name, raw("%s  VID: %d\t REORDER_HDR: 1  dev->priv_flags: 1021\nDevice: %s\n", d.Name, d.ID, d.On))
	case "bridge":
		e.put(d.path, "bridge/stp_state", 0)
	}
}

// activeLeg is the leg of a bond that works while the others wait, "" where all work.
func (d *netdev) activeLeg() string {
	if d.Mode == "active-backup" {
		return d.Legs[0]
	}
	return ""
}

// withIndex is how bonding writes a choice: its name and number.
func withIndex(name string, all []string) string {
	return name + " " + strconv.Itoa(slices.Index(all, name))
}

// addresses are an interface's, with the link-local one that Linux makes up.
func (d *netdev) addresses() []netip.Prefix {
	if d.hardwareType() != typeEther || d.function != nil && !d.up {
		return d.IPs
	}
	return append(slices.Clip(d.IPs), netip.PrefixFrom(linkLocal(d.mac), 64))
}

// linkLocal is the IPv6 address of an Ethernet address (RFC 4291, EUI-64).
func linkLocal(mac string) netip.Addr {
	b, err := net.ParseMAC(mac)
	if err != nil {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]})
}
