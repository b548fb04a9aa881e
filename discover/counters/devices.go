package counters

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Replaced are the names that now belong to other devices: interfaces are renamed, and where a
// GPU is gone the next ones take its number. What was counted under such a name does not belong
// to the new device. A device without an identity in either topology counts as the same.
func Replaced(was, now *topo.Topology) map[topo.ID]bool {
	out := map[topo.ID]bool{}
	if was == nil || now == nil || was == now {
		return out
	}
	before := identities(was)
	for id, is := range identities(now) {
		if old := before[id]; is != "" && old != "" && is != old {
			out[id] = true
		}
	}
	return out
}

// Renamed are the new names of renamed devices, by their old names. Devices that cannot be told
// from others are left out.
func Renamed(was, now *topo.Topology) map[topo.ID]topo.ID {
	out := map[topo.ID]topo.ID{}
	if was == nil || now == nil || was == now {
		return out
	}
	before, after := idsByDevice(was), idsByDevice(now)
	for device, id := range before {
		if is := after[device]; id != "" && is != "" && is != id {
			out[id] = is
		}
	}
	return out
}

// device is a device by kind and identity, whatever its name.
type device struct{ kind, identity string }

// idsByDevice are the names of devices, "" where several devices have one identity.
func idsByDevice(t *topo.Topology) map[device]topo.ID {
	out := map[device]topo.ID{}
	for id, is := range identities(t) {
		kind, _, _ := strings.Cut(string(id), ":")
		d := device{kind, is}
		if _, twice := out[d]; twice || is == "" {
			id = ""
		}
		out[d] = id
	}
	return out
}

// identities are the identities of the devices that are counted, "" where not known.
func identities(t *topo.Topology) map[topo.ID]string {
	out := map[topo.ID]string{}
	for i := range t.RDMADevices {
		out[t.RDMADevices[i].ID] = cmp.Or(string(t.RDMADevices[i].PCI), t.RDMADevices[i].NodeGUID)
	}
	for i := range t.Ports {
		if of := out[t.Ports[i].RDMA]; of != "" {
			out[t.Ports[i].ID] = of + "/" + strconv.Itoa(t.Ports[i].Number)
		}
	}
	for i := range t.Netdevs {
		if n := &t.Netdevs[i]; n.Index != nil {
			out[n.ID] = strconv.Itoa(*n.Index)
		}
	}
	for i := range t.GPUs {
		if g := &t.GPUs[i]; g.BDF != nil {
			out[g.ID] = g.BDF.String()
		}
	}
	return out
}
