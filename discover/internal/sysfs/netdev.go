package sysfs

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// readNetdevs reads the interfaces of /sys/class/net.
// Source: Documentation/ABI/testing/sysfs-class-net.
func (r *reader) readNetdevs() {
	for _, e := range r.list("sys/class/net") {
		if e.Type()&(fs.ModeSymlink|fs.ModeDir) == 0 {
			continue // bonding_masters and its like are no interfaces
		}
		r.readNetdev(e)
	}
}

func (r *reader) readNetdev(e fs.DirEntry) {
	at := r.attach("net", e)
	n := topo.Netdev{Name: e.Name(), Virtual: at.virtual}
	n.Facts = make(topo.Facts, 0, 17)
	n.Node = topo.Node{ID: topo.NetdevID(n.Name), Kind: topo.KindNetdev, Evidence: "/" + at.dir}
	f := files{r: r, dir: at.dir, show: "sys/class/net/" + n.Name, subject: n.ID, facts: &n.Facts}
	n.BDF, n.PCI = at.bdf, r.listed(f, at.bdf)
	if at.broken {
		f.warn(topo.CodeMissing, "", "the class link leads nowhere")
		r.t.Netdevs = append(r.t.Netdevs, n)
		return
	}
	f.fact(n.PCI != "", "pci", "device")
	n.MAC = attribute(f, "mac", "address", required, parseMAC)
	n.Index = optionalAttribute(f, "ifindex", "ifindex", optional, parseIndex)
	n.MTU = optionalAttribute(f, "mtu_bytes", "mtu", optional, parseIndex)
	n.State = attribute(f, "state", "operstate", optional, parseOperState)
	n.Type = attribute(f, "type", "type", optional, parseLinkType)
	n.Carrier = optionalAttribute(f, "carrier", "carrier", carrierNeed(&n), parseBool)
	n.AdminUp = optionalAttribute(f, "admin_up", "flags", optional, parseAdminUp)
	n.BytesPerSec = f.readSpeed(&n)
	n.Master = f.linkAttribute("master", "master")
	n.Driver = r.deviceDriver(f, at)
	if at.virtual {
		r.readVirtualNetdev(f, &n)
	} else {
		n.PhysPort = attribute(f, "phys_port_name", "phys_port_name", quiet, asIs)
		n.PhysSwitch = attribute(f, "phys_switch_id", "phys_switch_id", quiet, asIs)
	}
	r.t.Netdevs = append(r.t.Netdevs, n)
}

// listed is the node of a function, "" if /sys/bus/pci/devices does not have the function.
func (r *reader) listed(f files, bdf *topo.BDF) topo.ID {
	if bdf == nil {
		return ""
	}
	if r.functionAt(bdf) == nil {
		f.warn(topo.CodePartialView, "", fmt.Sprintf("its PCI function %s is not in /%s", bdf, pciDevices))
		return ""
	}
	return topo.PCIID(*bdf)
}

// deviceDriver is the driver of the device that an interface or RDMA device belongs to.
func (r *reader) deviceDriver(f files, at attached) string {
	if at.device == "" {
		return ""
	}
	driver := ""
	if d := r.functionAt(at.bdf); d != nil && d.Evidence == "/"+at.device {
		driver = d.Driver
	} else {
		driver = files{r: r, dir: at.device, show: at.device}.link("driver")
	}
	f.fact(driver != "", "driver", "device/driver")
	return driver
}

// carrierNeed is quiet for an interface that is not up: the kernel refuses to read the
// carrier of one that is administratively down, and a capture keeps an empty file.
func carrierNeed(n *topo.Netdev) need {
	if n.State == "up" {
		return optional
	}
	return quiet
}

// readSpeed is nil where the kernel does not know: -1, a refused read, an
// empty file in a capture of an interface that has no fixed speed.
func (f files) readSpeed(n *topo.Netdev) *topo.Rate {
	h := quiet
	if n.State == "up" && n.Type == "ether" {
		h = optional
	}
	mbps := attribute(f, "bytes_per_sec", "speed", h, parseSpeed)
	if mbps == 0 {
		return nil
	}
	return new(topo.FromMbps(int64(mbps)))
}

// parseSpeed reads megabits per second; -1, and what some drivers print for
// it, is 0.
func parseSpeed(s string) (int, error) {
	if s == "-1" || s == "4294967295" || s == "65535" {
		return 0, nil
	}
	return parseCount(s, 100_000_000)
}

func parseIndex(s string) (int, error) { return parseCount(s, 1<<31-1) }

func parseBool(s string) (bool, error) {
	n, err := parseCount(s, 1)
	return n == 1, err
}

// parseAdminUp reads an interface's flags, "0x1003", of which bit 0 is IFF_UP.
// Source: include/uapi/linux/if.h.
func parseAdminUp(s string) (bool, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
	if err != nil || !strings.HasPrefix(s, "0x") {
		return false, fmt.Errorf("%q: want a hexadecimal number like 0x1003", clip(s))
	}
	return n&1 != 0, nil
}

// parseMAC wants pairs of hexadecimal digits: 6 on Ethernet, 20 on InfiniBand.
// An interface without an address has an empty line.
func parseMAC(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	for i, pair := range strings.Split(s, ":") {
		if _, err := strconv.ParseUint(pair, 16, 8); err != nil || len(pair) != 2 || i >= 32 {
			return "", fmt.Errorf("%q: want pairs of hexadecimal digits", clip(s))
		}
	}
	return strings.ToLower(s), nil
}

// parseOperState knows the states of RFC 2863, in the kernel's spelling.
func parseOperState(s string) (string, error) {
	switch s {
	case "unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up":
		return s, nil
	}
	return "", fmt.Errorf("%q: not an operational state", clip(s))
}

// parseLinkType names the hardware type, others stay numbers.
// Source: include/uapi/linux/if_arp.h.
func parseLinkType(s string) (string, error) {
	n, err := parseCount(s, 1<<16-1)
	if err != nil {
		return "", err
	}
	names := map[int]string{
		1: "ether", 32: "infiniband", 512: "ppp", 768: "ipip", 769: "tunnel6", 772: "loopback",
		776: "sit", 778: "gre", 801: "ieee80211", 65534: "none",
	}
	if name := names[n]; name != "" {
		return name, nil
	}
	return strconv.Itoa(n), nil
}

// readVirtualNetdev reads what bonds, VLANs and bridges are made of.
func (r *reader) readVirtualNetdev(f files, n *topo.Netdev) {
	if data, err := r.tree.ReadFile(f.dir + "/uevent"); err == nil && len(data) <= maxAttr {
		n.LinkKind = ueventValue(data, "DEVTYPE")
	}
	for _, e := range r.list(f.dir) {
		switch lower, isLower := strings.CutPrefix(e.Name(), "lower_"); {
		case isLower:
			n.Lower = append(n.Lower, lower)
		case e.Name() == "bonding":
			n.LinkKind = "bond"
			r.readBond(f, n)
		case e.Name() == "bridge" && n.LinkKind == "":
			n.LinkKind = "bridge"
		}
	}
	if n.LinkKind == "vlan" {
		r.readVLAN(n)
	}
	slices.SortFunc(n.Lower, topo.NaturalCompare)
	n.Lower = slices.Compact(n.Lower)
	f.fact(n.LinkKind != "", "link_kind", "uevent")
	f.fact(len(n.Lower) > 0, "lower", "lower_*")
}

// readBond reads a bond's settings and legs.
// Source: Documentation/networking/bonding.rst, "sysfs" section.
func (r *reader) readBond(f files, n *topo.Netdev) {
	b := files{r: r, dir: f.dir + "/bonding", show: f.show + "/bonding", subject: f.subject}
	n.Bond = &topo.Bond{}
	f.fact(true, "bond", "bonding")
	n.Bond.Mode, _ = value(b, "mode", optional, parseSetting)
	n.Bond.HashPolicy, _ = value(b, "xmit_hash_policy", optional, parseSetting)
	n.Bond.ActiveLeg, _ = value(b, "active_slave", optional, parseOptionalName)
	legs, _ := b.text("slaves", optional)
	for leg := range strings.FieldsSeq(legs) {
		if validName(leg) {
			n.Lower = append(n.Lower, leg)
		}
	}
}

// parseSetting reads the name of "802.3ad 4".
func parseSetting(s string) (string, error) {
	name, number, ok := strings.Cut(s, " ")
	if _, err := parseUint(number, 255); !ok || err != nil {
		return "", fmt.Errorf("%q: want a name and a number", clip(s))
	}
	return name, nil
}

func parseOptionalName(s string) (string, error) {
	if s != "" && (!validName(s) || strings.ContainsAny(s, " \t")) {
		return "", fmt.Errorf("%q: want an interface's name", clip(s))
	}
	return s, nil
}

// readVLAN reads a VLAN's number and parent, which only /proc tells.
func (r *reader) readVLAN(n *topo.Netdev) {
	data, err := r.tree.ReadFile("proc/net/vlan/" + n.Name)
	if err != nil || len(data) > maxAttr {
		return
	}
	words := strings.Fields(string(data))
	for i := range len(words) - 1 {
		switch words[i] {
		case "VID:":
			if id, err := parseUint(words[i+1], 4094); err == nil {
				n.VLANID = &id
				n.Facts.Set("vlan_id", topo.SourceProc, "/proc/net/vlan/{name}")
			}
		case "Device:":
			if validName(words[i+1]) {
				n.Lower = append(n.Lower, words[i+1])
			}
		}
	}
}
