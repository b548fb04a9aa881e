package diff

import (
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Identities that a redacted capture has are stand-ins, numbered in the order
// of the document: the same one may be another device in another capture. They
// are no identities, nor are those that are zero or that software makes up.

// identify returns what a device is, in a form that no other sort of identity has, and which
// sort it is, the surest that is known; "" where nothing identifies it.
func identify(device any) (unique, sort string) {
	switch d := device.(type) {
	case *topo.GPU:
		switch {
		case realUUID(d.UUID):
			return "gpu uuid " + d.UUID, "UUID"
		case realSerial(d.Serial):
			return "gpu serial " + d.Serial, "serial number"
		}
	case *topo.RDMADevice:
		switch {
		case d.Software:
		case realGUID(d.NodeGUID):
			return "guid " + d.NodeGUID, "node GUID"
		case realGUID(d.SysImageGUID) && d.BDF != nil: // its card's, with the number of the function
			return "image guid " + d.SysImageGUID + " ." + strconv.Itoa(int(d.BDF.Func)), "system image GUID"
		}
	case *topo.Netdev:
		// The address that a physical interface was made with, where it has that now: a bond
		// gives its legs one address.
		switch address := hardwareAddress(d); {
		case address == "" || d.Virtual || d.PCI == "" || d.Master != "" && d.Type == "ether":
		case d.Type == "infiniband":
			return "port guid " + address, "port GUID"
		default:
			return "mac " + address, "MAC address"
		}
	case *topo.NVMe:
		if realSerial(d.Serial) {
			return "nvme serial " + d.Model + " " + d.Serial, "serial number"
		}
	}
	return "", ""
}

// hardwareAddress is the part of an interface's address that belongs to the
// hardware, "" if there is none: of IP over InfiniBand the port's GUID, of
// Ethernet an address that was not set by software.
func hardwareAddress(n *topo.Netdev) string {
	mac := strings.ToLower(n.MAC)
	switch len(mac) {
	case 59: // 20 bytes, the last 8 are the port's GUID; the first 4 change with every start
		guid := strings.ReplaceAll(mac[36:], ":", "")
		if !realGUID(guid[:4] + ":" + guid[4:8] + ":" + guid[8:12] + ":" + guid[12:]) {
			return ""
		}
		return guid
	case 17:
		first, err := strconv.ParseUint(mac[:2], 16, 8)
		if err != nil || first&3 != 0 || mac == "00:00:00:00:00:00" { // a group, or locally administered
			return ""
		}
		return mac
	}
	return ""
}

func realUUID(s string) bool {
	tail, ok := strings.CutPrefix(s, "GPU-00000000")
	return s != "" && !(ok && strings.Trim(tail[:max(0, len(tail)-8)], "0-") == "")
}

func realSerial(s string) bool {
	return strings.Trim(s, "0 ") != "" && !redactedNumber(s, "SN", 8)
}

// realGUID refuses zero, stand-ins, and what is made from an interface's
// address that is a stand-in or set by software.
func realGUID(s string) bool {
	switch {
	case strings.Trim(s, "0:") == "":
		return false
	case strings.HasPrefix(s, "0200:0000:0000:"), strings.HasPrefix(s, "0000:00ff:fe00:"):
		return false
	}
	return true
}

// redactedNumber says whether s is a prefix and a number of some digits.
func redactedNumber(s, prefix string, digits int) bool {
	n, ok := strings.CutPrefix(s, prefix)
	return ok && len(n) == digits && strings.Trim(n, "0123456789") == ""
}

// realMachineID refuses the stand-in of a redacted capture.
func realMachineID(s string) bool {
	return s != "" && strings.Trim(s[:max(0, len(s)-8)], "0") != ""
}

// redacted says whether a side's identities and addresses are stand-ins.
func (s *side) redacted() bool { return Redacted(s.t) }

// Redacted says whether the identities and addresses of a host are the stand-ins of a redacted
// capture, which other hosts have too.
func Redacted(t *topo.Topology) bool {
	h := &t.Host
	if h.MachineIDSHA256 != "" {
		return !realMachineID(h.MachineIDSHA256)
	}
	for i := range t.GPUs {
		if u := t.GPUs[i].UUID; u != "" {
			return !realUUID(u)
		}
	}
	for i := range t.RDMADevices {
		if r := &t.RDMADevices[i]; !r.Software && strings.Trim(r.NodeGUID, "0:") != "" {
			return !realGUID(r.NodeGUID)
		}
	}
	n, ok := strings.CutPrefix(h.Name, "host-")
	return ok && strings.Trim(n, "0123456789") == ""
}

// identities are all that a side's devices are known by, by sort.
func (s *side) identities() map[string]map[string]bool {
	out := map[string]map[string]bool{}
	add := func(sort, id string) {
		if out[sort] == nil {
			out[sort] = map[string]bool{}
		}
		out[sort][id] = true
	}
	for _, d := range s.devices {
		if d.unique != "" {
			add(d.why, d.unique)
		}
	}
	for i := range s.t.RDMADevices { // the one that every tool's file has
		if r := &s.t.RDMADevices[i]; !r.Software && realGUID(r.SysImageGUID) {
			add("card", r.SysImageGUID)
		}
	}
	return out
}

// compareHosts says whether two sides are of one host, by the machine's id, by
// the devices that both have, and by name.
func compareHosts(o, n *side) Hosts {
	oldID, newID := o.t.Host.MachineIDSHA256, n.t.Host.MachineIDSHA256
	ids := realMachineID(oldID) && realMachineID(newID)
	if ids && oldID == newID {
		return SameHost
	}
	mine, theirs := o.identities(), n.identities()
	shared, fewer := 0, 0
	for sort, ids := range mine {
		for id := range ids {
			if theirs[sort][id] {
				shared++
			}
		}
		fewer += min(len(ids), len(theirs[sort]))
	}
	names := o.t.Host.Name != "" && n.t.Host.Name != "" && !o.redacted() && !n.redacted()
	switch {
	case shared > 0 && 2*shared >= fewer: // a card or drive may have come from elsewhere
		return SameHost
	case ids:
		return DifferentHosts
	case names && o.t.Host.Name == n.t.Host.Name:
		return SameHost
	case names || fewer > 0:
		return DifferentHosts
	}
	return UnknownHosts
}
