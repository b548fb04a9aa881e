package machine

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// rdmaDevice is an RDMA device as sysfs shows it.
type rdmaDevice struct {
	dir, name        string
	device           string // "" for software
	number           int    // of its uverbs and umad
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

func (e *expansion) infiniband() {
	n := 0
	for _, f := range e.s.pci {
		if f.nic != nil && f.nic.rdma != "" && f.driver != "" {
			e.rdma(e.s.hardware(f, n))
			n++
		}
	}
	for _, r := range e.s.software {
		e.rdma(e.s.softwareRDMA(r, n))
		n++
	}
}

// hardware describes the RDMA device of a function.
func (s *Spec) hardware(f *function, number int) rdmaDevice {
	c := f.nic
	d := rdmaDevice{
		dir: f.path + "/infiniband/" + c.rdma, name: c.rdma, device: f.path, number: number, nodeType: "1: CA",
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
		for len(d.pkeys) < pkeyTable {
			d.pkeys = append(d.pkeys, "0x0000")
		}
	case "efa":
		d.layer, d.nodeType, d.rate, d.counters = "Unspecified", "7: unspecified", "", false
		d.gids = []gidEntry{{gidText(linkLocal(c.mac)), "", ""}}
	default:
		d.layer = "Ethernet"
		ndev := c.ndev
		if ndev == "" {
			ndev = c.net
		}
		d.gids = s.roceGIDs(ndev, d.gidTable)
	}
	d.gids = d.gids[:min(len(d.gids), d.gidTable)]
	return d
}

// roceGIDs are the entries that an interface's addresses make: each address
// twice, once for each version of RoCE, the link-local one first.
func (s *Spec) roceGIDs(ndev string, table int) []gidEntry {
	var local, others []netip.Addr
	for _, p := range s.addresses(ndev) {
		if p.Addr().IsLinkLocalUnicast() {
			local = append(local, p.Addr())
		} else {
			others = append(others, p.Addr())
		}
	}
	var out []gidEntry
	for _, a := range append(local, others...) {
		out = append(out, gidEntry{gidText(a), "IB/RoCE v1", ndev}, gidEntry{gidText(a), "RoCE v2", ndev})
	}
	return out[:min(len(out), table)]
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
func (s *Spec) softwareRDMA(r softRDMA, number int) rdmaDevice {
	d := rdmaDevice{
		dir: "sys/devices/virtual/infiniband/" + r.name, name: r.name, number: number, nodeType: "1: CA", layer: "Ethernet",
		state: "4: ACTIVE", physState: "5: LinkUp", rate: "25 Gb/sec (1X EDR)", pkeys: []string{"0xffff"},
	}
	var mac string
	if f := s.netFunction(r.on); f != nil {
		mac = f.nic.mac
	} else if v := s.virtualNetdev(r.on); v != nil {
		mac = v.mac
	}
	d.guid = "0000:0000:0000:0000"
	if mac != "" {
		d.guid = gidText(linkLocal(mac))[20:]
	}
	d.imageGUID = d.guid
	switch r.driver {
	case "rxe":
		d.parent, d.gidTable = r.on, 1024
		for _, g := range s.roceGIDs(r.on, 1024) {
			if g.typ == "RoCE v2" {
				d.gids = append(d.gids, g)
			}
		}
	case "siw":
		d.nodeType, d.gidTable = "4: RNIC", 1
	case "scif":
		d.layer, d.gidTable = "InfiniBand", 1
	}
	return d
}

// rdma adds a device with one port.
// Source: Documentation/ABI/stable/sysfs-class-infiniband.
func (e *expansion) rdma(d rdmaDevice) {
	p := d.dir + "/"
	e.file(p+"node_type", d.nodeType)
	e.file(p+"node_guid", d.guid)
	e.file(p+"sys_image_guid", d.imageGUID)
	e.file(p+"node_desc", e.s.host.name+" "+d.name)
	e.file(p+"fw_ver", d.fw)
	e.file(p+"uevent", "NAME="+d.name)
	if d.board != "" {
		e.file(p+"board_id", d.board)
	}
	if d.hca != "" {
		e.file(p+"hca_type", d.hca)
		e.file(p+"hw_rev", "0")
	}
	if d.parent != "" {
		e.file(p+"parent", d.parent)
	}
	if d.device != "" {
		e.link(p+"device", d.device)
	}
	e.link(p+"subsystem", "sys/class/infiniband")
	e.link("sys/class/infiniband/"+d.name, d.dir)
	e.rdmaPort(d, p+"ports/1/")
	switch d.tc {
	case "":
	case "unset":
		e.raw(p+"tc/1/traffic_class", nil)
	default:
		e.file(p+"tc/1/traffic_class", "Global tclass="+d.tc)
	}
	e.charDevice(d, "infiniband_verbs", "uverbs", 231, 192)
	e.charDevice(d, "infiniband_mad", "umad", 231, 0)
}

func (e *expansion) rdmaPort(d rdmaDevice, p string) {
	e.file(p+"state", d.state)
	e.file(p+"phys_state", d.physState)
	e.file(p+"link_layer", d.layer)
	if d.rate != "" {
		e.file(p+"rate", d.rate)
	}
	e.file(p+"lid", fmt.Sprintf("0x%x", d.lid))
	e.file(p+"sm_lid", fmt.Sprintf("0x%x", d.smLID))
	e.file(p+"lid_mask_count", "0")
	e.file(p+"sm_sl", "0")
	e.file(p+"cap_mask", "0x2651e848")
	for i, key := range d.pkeys {
		e.file(p+"pkeys/"+strconv.Itoa(i), key)
	}
	for i := range d.gidTable {
		n := strconv.Itoa(i)
		if i >= len(d.gids) {
			e.file(p+"gids/"+n, zeroGID)
			continue
		}
		g := d.gids[i]
		e.file(p+"gids/"+n, g.gid)
		// Reading the type or interface of an unused entry fails; such files
		// are left out here.
		if g.typ != "" {
			e.file(p+"gid_attrs/types/"+n, g.typ)
		}
		if g.ndev != "" {
			e.file(p+"gid_attrs/ndevs/"+n, g.ndev)
		}
	}
	if !d.counters {
		return
	}
	for _, name := range []string{"excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
		"port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets", "port_xmit_data", "port_xmit_discards",
		"port_xmit_packets", "port_xmit_wait", "symbol_error"} {
		e.number(p+"counters/"+name, 0)
	}
	for _, name := range []string{"lifespan", "out_of_buffer", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "roce_adp_retrans"} {
		e.number(p+"hw_counters/"+name, map[string]int{"lifespan": 10}[name])
	}
}

// charDevice adds a device's character device of one class.
func (e *expansion) charDevice(d rdmaDevice, class, prefix string, major, minor int) {
	name := prefix + strconv.Itoa(d.number)
	dir := "sys/devices/virtual/" + class + "/" + name
	if d.device != "" {
		dir = d.device + "/" + class + "/" + name
		e.link(dir+"/device", d.device)
	}
	e.file(dir+"/ibdev", d.name)
	e.file(dir+"/dev", fmt.Sprintf("%d:%d", major, minor+d.number))
	if prefix == "umad" {
		e.file(dir+"/port", "1")
	} else {
		e.file(dir+"/abi_version", "1")
	}
	e.file(dir+"/uevent", fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=infiniband/%s", major, minor+d.number, name))
	e.link(dir+"/subsystem", "sys/class/"+class)
	e.link("sys/class/"+class+"/"+name, dir)
}
