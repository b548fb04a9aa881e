package redact

import (
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// This file tells identities of devices from what only looks like one. Those that a redacted
// capture has are stand-ins, numbered in the order of the document: the same one may be another
// device in another capture. They are no identities, nor are those that are zero or that software
// makes up.

// HardwareAddress is the part of an interface's address that belongs to the
// hardware, "" if there is none: of IP over InfiniBand the port's GUID, of
// Ethernet an address that was not set by software.
func HardwareAddress(n *topo.Netdev) string {
	mac := strings.ToLower(n.MAC)
	switch len(mac) {
	case 59: // 20 bytes, the last 8 are the port's GUID; the first 4 change with every start
		guid := strings.ReplaceAll(mac[36:], ":", "")
		if !GUID(guid[:4] + ":" + guid[4:8] + ":" + guid[8:12] + ":" + guid[12:]) {
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

// UUID says whether a GPU's UUID is one.
func UUID(s string) bool {
	tail, ok := strings.CutPrefix(s, "GPU-00000000")
	return s != "" && !(ok && strings.Trim(tail[:max(0, len(tail)-8)], "0-") == "")
}

// Serial says whether a serial number is one.
func Serial(s string) bool {
	return strings.Trim(s, "0 ") != "" && !standIn(s, "SN", 8)
}

// GUID refuses zero, stand-ins, and what is made from an interface's
// address that is a stand-in or set by software.
func GUID(s string) bool {
	switch {
	case strings.Trim(s, "0:") == "":
		return false
	case strings.HasPrefix(s, "0200:0000:0000:"), strings.HasPrefix(s, "0000:00ff:fe00:"):
		return false
	}
	return true
}

// standIn says whether s is a prefix and a number of some digits.
func standIn(s, prefix string, digits int) bool {
	n, ok := strings.CutPrefix(s, prefix)
	return ok && len(n) == digits && strings.Trim(n, "0123456789") == ""
}

// MAC says whether an Ethernet address can be a device's: also one that software gave a virtual
// function, but no stand-in, group address or zero.
func MAC(s string) bool {
	s = strings.ToLower(s)
	if len(s) != 17 || strings.HasPrefix(s, "02:00:00:00:") || s == "00:00:00:00:00:00" {
		return false
	}
	first, err := strconv.ParseUint(s[:2], 16, 8)
	return err == nil && first&1 == 0
}

// MachineID says whether the digest of a machine's id is one.
func MachineID(s string) bool {
	return s != "" && strings.Trim(s[:max(0, len(s)-8)], "0") != ""
}

// Host says whether the identities and addresses of a host are the stand-ins of a redacted capture, which other
// hosts have too.
func Host(t *topo.Topology) bool {
	h := &t.Host
	if h.MachineIDSHA256 != "" {
		return !MachineID(h.MachineIDSHA256)
	}
	for i := range t.GPUs {
		if u := t.GPUs[i].UUID; u != "" {
			return !UUID(u)
		}
	}
	for i := range t.RDMADevices {
		if r := &t.RDMADevices[i]; !r.Software && strings.Trim(r.NodeGUID, "0:") != "" {
			return !GUID(r.NodeGUID)
		}
	}
	n, ok := strings.CutPrefix(h.Name, "host-")
	return ok && strings.Trim(n, "0123456789") == ""
}
