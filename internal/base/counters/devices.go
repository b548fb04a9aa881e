package counters

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Replaced are the names that other devices have now: interfaces are renamed, and where a GPU
// is gone the next ones take its number. What was counted under them is not of the new ones.
// A device that either topology knows too little of is taken for the same.
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

// Renamed are the names that devices have now, by those that they had; devices that kept
// theirs, and those that cannot be told from others, are not in it.
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

// device is what stands behind a name: of one kind, by its identity.
type device struct{ kind, identity string }

// idsByDevice are the names of devices, "" of those that have several.
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

// identities are the devices behind the names of what is counted, "" where that is not known.
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
