package diff

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/redact"
)

// identify returns what a device is, in a form that no other sort of identity has, and which
// sort it is, the surest that is known; "" where nothing identifies it.
func identify(device any) (unique, sort string) {
	switch d := device.(type) {
	case *topo.GPU:
		switch {
		case redact.UUID(d.UUID):
			return "gpu uuid " + d.UUID, "UUID"
		case redact.Serial(d.Serial):
			return "gpu serial " + d.Serial, "serial number"
		}
	case *topo.RDMADevice:
		switch {
		case d.Software:
		case redact.GUID(d.NodeGUID):
			return "guid " + d.NodeGUID, "node GUID"
		case redact.GUID(d.SysImageGUID) && d.BDF != nil: // its card's, with the number of the function
			return "image guid " + d.SysImageGUID + " ." + strconv.Itoa(int(d.BDF.Func)), "system image GUID"
		}
	case *topo.Netdev:
		// The address that a physical interface was made with, where it has that now: a bond
		// gives its legs one address.
		switch address := redact.HardwareAddress(d); {
		case address == "" || d.Virtual || d.PCI == "" || d.Master != "" && d.Type == "ether":
		case d.Type == "infiniband":
			return "port guid " + address, "port GUID"
		default:
			return "mac " + address, "MAC address"
		}
	case *topo.NVMe:
		if redact.Serial(d.Serial) {
			return "nvme serial " + d.Model + " " + d.Serial, "serial number"
		}
	}
	return "", ""
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
		if r := &s.t.RDMADevices[i]; !r.Software && redact.GUID(r.SysImageGUID) {
			add("card", r.SysImageGUID)
		}
	}
	return out
}

// compareHosts says whether two sides are of one host, by the machine's id, by
// the devices that both have, and by name.
func compareHosts(o, n *side) Hosts {
	oldID, newID := o.t.Host.MachineIDSHA256, n.t.Host.MachineIDSHA256
	ids := redact.MachineID(oldID) && redact.MachineID(newID)
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
	names := o.t.Host.Name != "" && n.t.Host.Name != "" && !redact.Host(o.t) && !redact.Host(n.t)
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
