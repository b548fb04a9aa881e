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

// planRDMA lists the devices, those of functions first.
func (s *Spec) planRDMA() {
	for _, f := range s.pci {
		if f.nic != nil && f.nic.RDMA != "" {
			s.rdma = append(s.rdma, s.hardwareRDMA(f))
		}
	}
	for _, r := range s.SoftRDMA {
		s.rdma = append(s.rdma, s.softwareRDMA(r))
	}
}

func (s *Spec) hardwareRDMA(f *function) rdmaDevice {
	c := f.nic
	d := rdmaDevice{
		dir: f.path + "/infiniband/" + c.RDMA, name: c.RDMA, device: f.path, nodeType: "1: CA",
		guid: c.GUID, imageGUID: c.imageGUID, fw: c.FW, board: c.Board, hca: f.part.HCA, rate: c.Rate, gidTable: c.GIDs,
		pkeys: c.PKeys, tc: c.TC, counters: true,
	}
	if d.pkeys == nil {
		d.pkeys = []string{"0xffff"}
	}
	states := map[string][2]string{
		"active": {"4: ACTIVE", "5: LinkUp"}, "down": {"1: DOWN", "3: Disabled"}, "init": {"2: INIT", "5: LinkUp"}, "armed": {"3: ARMED", "5: LinkUp"},
	}[c.State]
	d.state, d.physState = states[0], states[1]
	switch c.Layer {
	case "ib":
		d.layer, d.lid, d.smLID = "InfiniBand", c.LID, c.SMLID
		if c.State == "down" { // as mlx5 shows a port without a cable
			d.physState, d.lid, d.smLID, d.rate = "2: Polling", 0xffff, 0, rateText(10)
		}
		d.gids = []gidEntry{{"fe80:0000:0000:0000:" + c.GUID, "IB/RoCE v1", ""}}
		d.pkeys = append(slices.Clip(d.pkeys), slices.Repeat([]string{"0x0000"}, pkeyTable-len(d.pkeys))...)
	case "efa":
		d.layer, d.nodeType, d.rate, d.counters = "Unspecified", "7: unspecified", "", false
		d.gids = []gidEntry{{gidText(linkLocal(c.MAC)), "", ""}}
	default:
		d.layer, d.gids = "Ethernet", s.roceGIDs(cmp.Or(c.Ndev, c.Net))
	}
	d.gids = d.gids[:min(len(d.gids), d.gidTable)]
	return d
}

// softwareRDMA describes a device without hardware: it has no device link, and
// only rxe names the interface that it stands on.
func (s *Spec) softwareRDMA(r *softRDMA) rdmaDevice {
	d := rdmaDevice{
		dir: "sys/devices/virtual/infiniband/" + r.Name, name: r.Name, nodeType: "1: CA", layer: "Ethernet", guid: zeroGID[20:],
		state: "4: ACTIVE", physState: "5: LinkUp", rate: "25 Gb/sec (1X EDR)", pkeys: []string{"0xffff"}, gidTable: 1,
	}
	if on := s.netdev(r.On); on != nil {
		d.guid = gidText(linkLocal(on.mac))[20:]
	}
	d.imageGUID = d.guid
	switch r.Driver {
	case "rxe":
		d.parent, d.gidTable = r.On, 1024
		d.gids = slices.DeleteFunc(s.roceGIDs(r.On), func(g gidEntry) bool { return g.typ != "RoCE v2" })
		d.gids = d.gids[:min(len(d.gids), d.gidTable/2)]
	case "siw":
		d.nodeType = "4: RNIC"
	case "scif":
		d.layer = "InfiniBand"
	}
	return d
}

// roceGIDs are the entries that an interface's addresses make: each address
// twice, once for each version of RoCE, the link-local one first.
func (s *Spec) roceGIDs(ndev string) []gidEntry {
	d := s.netdev(ndev)
	if d == nil {
		return nil
	}
	addresses := slices.SortedStableFunc(slices.Values(d.addresses()), func(a, b netip.Prefix) int {
		return trueFirst(a.Addr().IsLinkLocalUnicast(), b.Addr().IsLinkLocalUnicast())
	})
	var out []gidEntry
	for _, p := range addresses {
		gid := gidText(p.Addr())
		out = append(out, gidEntry{gid, "IB/RoCE v1", ndev}, gidEntry{gid, "RoCE v2", ndev})
	}
	return out
}

// gidText writes an address as a GID: eight groups of four digits.
func gidText(a netip.Addr) string { return netip.AddrFrom16(a.As16()).StringExpanded() }

// addRDMA adds the RDMA devices, with one port each.
// Source: Documentation/ABI/stable/sysfs-class-infiniband.
func (e *expansion) addRDMA() {
	for number, d := range e.rdma {
		var device, traffic any
		if d.device != "" {
			device = linkTo(d.device)
		}
		switch d.tc {
		case "":
		case "unset":
			traffic = raw("")
		default:
			traffic = "Global tclass=" + d.tc
		}
		e.device("sys/class/infiniband", d.dir, "node_type", d.nodeType, "node_guid", d.guid, "sys_image_guid", d.imageGUID,
			"node_desc", e.Host.Name+" "+d.name, "fw_ver", d.fw, "uevent", "NAME="+d.name, "board_id", unlessEmpty(d.board),
			"parent", unlessEmpty(d.parent), "device", device, "tc/1/traffic_class", traffic)
		if d.hca != "" {
			e.put(d.dir, "hca_type", d.hca, "hw_rev", 0)
		}
		e.addRDMAPort(d, d.dir+"/ports/1")
		for _, c := range []struct {
			class, prefix string
			firstMinor    int
			version       string // a file that holds 1
		}{{"infiniband_verbs", "uverbs", 192, "abi_version"}, {"infiniband_mad", "umad", 0, "port"}} {
			name, minor := c.prefix+strconv.Itoa(number), c.firstMinor+number
			e.device("sys/class/"+c.class, cmp.Or(d.device, "sys/devices/virtual")+"/"+c.class+"/"+name,
				"ibdev", d.name, "dev", fmt.Sprintf("231:%d", minor), c.version, 1, "device", device,
				"uevent", fmt.Sprintf("MAJOR=231\nMINOR=%d\nDEVNAME=infiniband/%s", minor, name))
		}
	}
}

func (e *expansion) addRDMAPort(d rdmaDevice, dir string) {
	e.put(dir, "state", d.state, "phys_state", d.physState, "link_layer", d.layer, "lid", fmt.Sprintf("0x%x", d.lid),
		"sm_lid", fmt.Sprintf("0x%x", d.smLID), "lid_mask_count", 0, "sm_sl", 0, "cap_mask", "0x2651e848", "rate", unlessEmpty(d.rate))
	for i, key := range d.pkeys {
		e.put(dir+"/pkeys", strconv.Itoa(i), key)
	}
	for i := range d.gidTable {
		g := gidEntry{gid: zeroGID}
		if i < len(d.gids) {
			g = d.gids[i]
		}
		// Reading the type or interface of an unused entry fails; such files
		// are left out here.
		n := strconv.Itoa(i)
		e.put(dir, "gids/"+n, g.gid, "gid_attrs/types/"+n, unlessEmpty(g.typ), "gid_attrs/ndevs/"+n, unlessEmpty(g.ndev))
	}
	if !d.counters {
		return
	}
	for _, name := range strings.Fields("excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors " +
		"port_rcv_constraint_errors port_rcv_data port_rcv_errors port_rcv_packets port_xmit_data port_xmit_discards " +
		"port_xmit_packets port_xmit_wait symbol_error") {
		e.put(dir+"/counters", name, 0)
	}
	e.put(dir+"/hw_counters", "lifespan", 10, "out_of_buffer", 0, "out_of_sequence", 0, "packet_seq_err", 0, "rnr_nak_retry_err", 0, "roce_adp_retrans", 0)
}
