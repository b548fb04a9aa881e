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
	n.Node = topo.Node{ID: topo.NetdevID(n.Name), Kind: topo.KindNetdev, Evidence: "/" + at.dir}
	f := files{r: r, dir: at.dir, show: "sys/class/net/" + n.Name, subject: n.ID}
	n.BDF, n.PCI = at.bdf, r.listed(f, at.bdf)
	if at.broken {
		f.warn(topo.CodeMissing, "", "the class link leads nowhere")
		r.t.Netdevs = append(r.t.Netdevs, n)
		return
	}
	n.MAC, _ = value(f, "address", required, parseMAC)
	n.Index = pointer(f, "ifindex", optional, parseIndex)
	n.MTU = pointer(f, "mtu", optional, parseIndex)
	n.State, _ = value(f, "operstate", optional, parseOperState)
	n.Type, _ = value(f, "type", optional, parseLinkType)
	n.Carrier = r.readCarrier(f, n.State)
	n.AdminUp = pointer(f, "flags", optional, parseAdminUp)
	n.BytesPerSec = r.readSpeed(f, &n)
	n.Master = f.link("master")
	n.Driver = r.netdevDriver(at)
	if at.virtual {
		r.readVirtualNetdev(f, &n)
	} else {
		n.PhysPort, _ = f.text("phys_port_name", quiet)
		n.PhysSwitch, _ = f.text("phys_switch_id", quiet)
	}
	n.Facts = netdevFacts(&n)
	r.t.Netdevs = append(r.t.Netdevs, n)
}

// listed is the node of a function, "" where /sys/bus/pci/devices has none.
func (r *reader) listed(f files, bdf *topo.BDF) topo.ID {
	if bdf == nil {
		return ""
	}
	if _, ok := r.pci.index[*bdf]; !ok {
		f.warn(topo.CodePartialView, "", fmt.Sprintf("its PCI function %s is not in /%s", bdf, pciDevices))
		return ""
	}
	return topo.PCIID(*bdf)
}

// netdevDriver is the driver of the device that an interface belongs to.
func (r *reader) netdevDriver(at attached) string {
	if at.device == "" {
		return ""
	}
	if i, ok := r.pci.index[bdfOr(at.bdf)]; ok && r.pci.dirs[i] == at.device {
		return r.t.PCIDevices[i].Driver
	}
	f := files{r: r, dir: at.device, show: at.device}
	return f.link("driver")
}

// bdfOr gives an address that no function has for nil.
func bdfOr(b *topo.BDF) topo.BDF {
	if b == nil {
		return topo.BDF{Device: 0xff}
	}
	return *b
}

// readCarrier is nil for an interface that is administratively down: the
// kernel refuses the read then, and a capture keeps an empty file.
func (r *reader) readCarrier(f files, state string) *bool {
	h := quiet
	if state == "up" {
		h = optional
	}
	return pointer(f, "carrier", h, parseBool)
}

// readSpeed is nil where the kernel does not know: -1, a refused read, an
// empty file in a capture of an interface that has no fixed speed.
func (r *reader) readSpeed(f files, n *topo.Netdev) *topo.Rate {
	h := quiet
	if n.State == "up" && n.Type == "ether" {
		h = optional
	}
	mbps, ok := value(f, "speed", h, parseSpeed)
	if !ok || mbps == 0 {
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
	return "", fmt.Errorf("%q: no operational state", clip(s))
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
}

// readBond reads a bond's settings and legs.
// Source: Documentation/networking/bonding.rst, "sysfs" section.
func (r *reader) readBond(f files, n *topo.Netdev) {
	b := files{r: r, dir: f.dir + "/bonding", show: f.show + "/bonding", subject: f.subject}
	n.Bond = &topo.Bond{}
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
			}
		case "Device:":
			if validName(words[i+1]) {
				n.Lower = append(n.Lower, words[i+1])
			}
		}
	}
}

// netdevFacts names the file of each attribute that was read, ordered by name.
func netdevFacts(n *topo.Netdev) topo.Facts {
	facts := make(topo.Facts, 0, 17)
	add := func(set bool, name, where string) {
		if set {
			facts = append(facts, fact(name, where))
		}
	}
	add(n.AdminUp != nil, "admin_up", "flags")
	add(n.Bond != nil, "bond", "bonding")
	add(n.BytesPerSec != nil, "bytes_per_sec", "speed")
	add(n.Carrier != nil, "carrier", "carrier")
	add(n.Driver != "", "driver", "device/driver")
	add(n.Index != nil, "ifindex", "ifindex")
	add(n.LinkKind != "", "link_kind", "uevent")
	add(len(n.Lower) > 0, "lower", "lower_*")
	add(n.MAC != "", "mac", "address")
	add(n.Master != "", "master", "master")
	add(n.MTU != nil, "mtu_bytes", "mtu")
	add(n.PCI != "", "pci", "device")
	add(n.PhysPort != "", "phys_port_name", "phys_port_name")
	add(n.PhysSwitch != "", "phys_switch_id", "phys_switch_id")
	add(n.State != "", "state", "operstate")
	add(n.Type != "", "type", "type")
	if n.VLANID != nil {
		facts = append(facts, topo.Fact{Name: "vlan_id", Source: topo.SourceProc, Where: "/proc/net/vlan/{name}"})
	}
	return facts
}
