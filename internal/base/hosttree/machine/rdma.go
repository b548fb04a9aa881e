package machine

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// rdmaDevice is an RDMA device as sysfs shows it.
type rdmaDevice struct {
	dir, name        string
	device           string // "" for software
	nodeType         string
	guid, imageGUID  string
	fw, board, hca   string
	parent           string // netdev that rxe names
	layer            string // "InfiniBand", "Ethernet", "Unspecified"
	state, physState string
	rate             string // "" where the driver has none
	lid, smLID       int
	gids             []gidEntry
	gidTable         int
	pkeys            []string
	tc               string
	counters         bool
}

type gidEntry struct{ gid, typ, ndev string }

// pkeyTable is the size of an InfiniBand port's table of partition keys.
const pkeyTable = 128

const zeroGID = "0000:0000:0000:0000:0000:0000:0000:0000"

// rdmaDevices are the machine's, those of functions first.
func (s *Spec) rdmaDevices() []rdmaDevice {
	var out []rdmaDevice
	for _, f := range s.pci {
		if f.nic != nil && f.nic.rdma != "" {
			out = append(out, s.hardwareRDMA(f))
		}
	}
	for _, r := range s.software {
		out = append(out, s.softwareRDMA(r))
	}
	return out
}

func (s *Spec) hardwareRDMA(f *function) rdmaDevice {
	c := f.nic
	d := rdmaDevice{
		dir: f.path + "/infiniband/" + c.rdma, name: c.rdma, device: f.path, nodeType: "1: CA",
		guid: c.guid, imageGUID: c.imageGUID, fw: c.fw, board: c.board, hca: f.part.hca, rate: c.rate, gidTable: c.gids,
		pkeys: c.pkeys, tc: c.tc, counters: true,
	}
	if d.pkeys == nil {
		d.pkeys = []string{"0xffff"}
	}
	states := map[string][2]string{
		"active": {"4: ACTIVE", "5: LinkUp"}, "down": {"1: DOWN", "3: Disabled"}, "init": {"2: INIT", "5: LinkUp"}, "armed": {"3: ARMED", "5: LinkUp"},
	}[c.state]
	d.state, d.physState = states[0], states[1]
	switch c.layer {
	case "ib":
		d.layer, d.lid, d.smLID = "InfiniBand", c.lid, c.smLID
		if c.state == "down" { // as mlx5 shows a port without a cable
			d.physState, d.lid, d.smLID, d.rate = "2: Polling", 0xffff, 0, rateText(10)
		}
		d.gids = []gidEntry{{"fe80:0000:0000:0000:" + c.guid, "IB/RoCE v1", ""}}
		d.pkeys = append(slices.Clip(d.pkeys), slices.Repeat([]string{"0x0000"}, pkeyTable-len(d.pkeys))...)
	case "efa":
		d.layer, d.nodeType, d.rate, d.counters = "Unspecified", "7: unspecified", "", false
		d.gids = []gidEntry{{gidText(linkLocal(c.mac)), "", ""}}
	default:
		d.layer, d.gids = "Ethernet", s.roceGIDs(cmp.Or(c.ndev, c.net))
	}
	d.gids = d.gids[:min(len(d.gids), d.gidTable)]
	return d
}

// roceGIDs are the entries that an interface's addresses make: each address
// twice, once for each version of RoCE, the link-local one first.
func (s *Spec) roceGIDs(ndev string) []gidEntry {
	addresses := slices.Clone(s.addresses(ndev))
	slices.SortStableFunc(addresses, func(a, b netip.Prefix) int {
		other := func(p netip.Prefix) int { return map[bool]int{true: 0, false: 1}[p.Addr().IsLinkLocalUnicast()] }
		return other(a) - other(b)
	})
	var out []gidEntry
	for _, p := range addresses {
		gid := gidText(p.Addr())
		out = append(out, gidEntry{gid, "IB/RoCE v1", ndev}, gidEntry{gid, "RoCE v2", ndev})
	}
	return out
}

// gidText writes an address as a GID: eight groups of four digits.
func gidText(a netip.Addr) string {
	b := a.As16()
	parts := make([]string, 8)
	for i := range parts {
		parts[i] = fmt.Sprintf("%02x%02x", b[2*i], b[2*i+1])
	}
	return strings.Join(parts, ":")
}

// softwareRDMA describes a device without hardware: it has no device link, and
// only rxe names the interface that it stands on.
func (s *Spec) softwareRDMA(r softRDMA) rdmaDevice {
	d := rdmaDevice{
		dir: "sys/devices/virtual/infiniband/" + r.name, name: r.name, nodeType: "1: CA", layer: "Ethernet", guid: zeroGID[20:],
		state: "4: ACTIVE", physState: "5: LinkUp", rate: "25 Gb/sec (1X EDR)", pkeys: []string{"0xffff"}, gidTable: 1,
	}
	if on := s.netdev(r.on); on != nil {
		d.guid = gidText(linkLocal(on.mac))[20:]
	}
	d.imageGUID = d.guid
	switch r.driver {
	case "rxe":
		d.parent, d.gidTable = r.on, 1024
		d.gids = slices.DeleteFunc(s.roceGIDs(r.on), func(g gidEntry) bool { return g.typ != "RoCE v2" })
		d.gids = d.gids[:min(len(d.gids), d.gidTable/2)]
	case "siw":
		d.nodeType = "4: RNIC"
	case "scif":
		d.layer = "InfiniBand"
	}
	return d
}

// infiniband adds the RDMA devices, with one port each.
// Source: Documentation/ABI/stable/sysfs-class-infiniband.
func (e *expansion) infiniband() {
	for number, d := range e.s.rdmaDevices() {
		e.files(d.dir, "node_type", d.nodeType, "node_guid", d.guid, "sys_image_guid", d.imageGUID,
			"node_desc", e.s.host.name+" "+d.name, "fw_ver", d.fw, "uevent", "NAME="+d.name)
		if d.board != "" {
			e.file(d.dir+"/board_id", d.board)
		}
		if d.hca != "" {
			e.files(d.dir, "hca_type", d.hca, "hw_rev", 0)
		}
		if d.parent != "" {
			e.file(d.dir+"/parent", d.parent)
		}
		if d.device != "" {
			e.link(d.dir+"/device", d.device)
		}
		e.inClass("sys/class/infiniband", d.name, d.dir)
		e.rdmaPort(d, d.dir+"/ports/1")
		switch tc := d.dir + "/tc/1/traffic_class"; d.tc {
		case "":
		case "unset":
			e.raw(tc, nil)
		default:
			e.file(tc, "Global tclass="+d.tc)
		}
		e.charDevice(d, "infiniband_verbs", "uverbs", number, 192, "abi_version")
		e.charDevice(d, "infiniband_mad", "umad", number, 0, "port")
	}
}

func (e *expansion) rdmaPort(d rdmaDevice, dir string) {
	e.files(dir, "state", d.state, "phys_state", d.physState, "link_layer", d.layer, "lid", fmt.Sprintf("0x%x", d.lid),
		"sm_lid", fmt.Sprintf("0x%x", d.smLID), "lid_mask_count", 0, "sm_sl", 0, "cap_mask", "0x2651e848")
	if d.rate != "" {
		e.file(dir+"/rate", d.rate)
	}
	for i, key := range d.pkeys {
		e.file(dir+"/pkeys/"+strconv.Itoa(i), key)
	}
	for i := range d.gidTable {
		g := gidEntry{gid: zeroGID}
		if i < len(d.gids) {
			g = d.gids[i]
		}
		n := strconv.Itoa(i)
		e.file(dir+"/gids/"+n, g.gid)
		// Reading the type or interface of an unused entry fails; such files
		// are left out here.
		if g.typ != "" {
			e.file(dir+"/gid_attrs/types/"+n, g.typ)
		}
		if g.ndev != "" {
			e.file(dir+"/gid_attrs/ndevs/"+n, g.ndev)
		}
	}
	if !d.counters {
		return
	}
	for _, name := range []string{"excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
		"port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets", "port_xmit_data", "port_xmit_discards",
		"port_xmit_packets", "port_xmit_wait", "symbol_error"} {
		e.file(dir+"/counters/"+name, 0)
	}
	e.files(dir+"/hw_counters", "lifespan", 10, "out_of_buffer", 0, "out_of_sequence", 0, "packet_seq_err", 0, "rnr_nak_retry_err", 0, "roce_adp_retrans", 0)
}

// charDevice adds a device's character device of one class; ones is the file that holds 1 there.
func (e *expansion) charDevice(d rdmaDevice, class, prefix string, number, firstMinor int, ones string) {
	name, dev := prefix+strconv.Itoa(number), fmt.Sprintf("231:%d", firstMinor+number)
	dir := "sys/devices/virtual/" + class + "/" + name
	if d.device != "" {
		dir = d.device + "/" + class + "/" + name
		e.link(dir+"/device", d.device)
	}
	e.files(dir, "ibdev", d.name, "dev", dev, ones, 1,
		"uevent", fmt.Sprintf("MAJOR=231\nMINOR=%d\nDEVNAME=infiniband/%s", firstMinor+number, name))
	e.inClass("sys/class/"+class, name, dir)
}
