package sysfs

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// readRoots makes a host bridge of each sys/devices/pciDDDD:BB.
func (r *reader) readRoots() {
	for _, e := range r.list("sys/devices") {
		if root, ok := rootBus(e.Name()); ok {
			r.hostBridge(root, "sys/devices/"+e.Name())
		}
	}
}

// rootBus reads a path element "pci0000:17" as a root bus: a BDF whose device
// and function are zero.
func rootBus(element string) (topo.BDF, bool) {
	name, ok := strings.CutPrefix(element, "pci")
	if !ok || len(name) < len("0000:00") {
		return topo.BDF{}, false
	}
	return elementBDF(name + ":00.0")
}

// hostBridge gives the ID of a root bus's node, making it where it is new. A
// bridge without a directory is invented, because a function needs a parent.
func (r *reader) hostBridge(root topo.BDF, dir string) topo.ID {
	root.Device, root.Func = 0, 0
	if i, ok := r.pci.bridges[root]; ok {
		return r.t.HostBridges[i].ID
	}
	name := strings.TrimSuffix(root.String(), ":00.0")
	evidence := ""
	if dir != "" {
		evidence = "/" + dir
	}
	r.pci.bridges[root] = len(r.t.HostBridges)
	r.t.HostBridges = append(r.t.HostBridges, topo.HostBridge{
		Node:   topo.Node{ID: topo.HostBridgeID(name), Kind: topo.KindHostBridge, Evidence: evidence},
		Domain: root.Domain, Bus: root.Bus, Synthetic: dir == "",
	})
	return topo.HostBridgeID(name)
}

// findParent puts a function below the bridge that its path names.
func (r *reader) findParent(d *topo.PCIDevice) {
	f := r.functionFiles(d)
	dir := path.Dir(f.dir)
	if dir == pciDevices {
		r.findParentElsewhere(f, d)
		return
	}
	for dir != "." {
		element := path.Base(dir)
		if b, ok := elementBDF(element); ok {
			if _, listed := r.pci.index[b]; listed {
				d.Parent = topo.PCIID(b)
				return
			}
			f.warn(topo.CodeMissing, "", fmt.Sprintf("its parent %s is not in /%s", b, pciDevices))
		}
		if root, ok := rootBus(element); ok {
			d.Parent = r.hostBridge(root, dir)
			return
		}
		dir = path.Dir(dir)
	}
	d.Parent = r.hostBridge(d.BDF, "")
	f.warn(topo.CodeMissing, "", "its path names no host bridge; put below a root bus of its own")
}

// findParentElsewhere finds the parent of a function whose place in the tree
// is not known: the bridge whose secondary bus it is on, or one that holds it
// as a directory; else it gets the root bus of its own number.
func (r *reader) findParentElsewhere(f files, d *topo.PCIDevice) {
	if r.pci.below == nil {
		r.pci.below = r.secondaryBuses()
	}
	bus := topo.BDF{Domain: d.BDF.Domain, Bus: d.BDF.Bus}
	if parent, ok := r.pci.below[bus]; ok && parent != d.ID {
		d.Parent = parent
		d.Facts.Set("parent", topo.SourceDerived, "secondary_bus_number")
		return
	}
	_, known := r.pci.bridges[bus]
	d.Parent = r.hostBridge(bus, "")
	d.Facts.Set("parent", topo.SourceDerived, "")
	if !known {
		f.warn(topo.CodeMissing, "", "no link into /sys/devices and no bridge leads to its bus; put below a root bus of its own")
	}
}

// secondaryBuses maps each bus, as a BDF without device and function, to the
// bridge that leads to it.
func (r *reader) secondaryBuses() map[topo.BDF]topo.ID {
	buses := map[topo.BDF]topo.ID{}
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		if !isBridge(d) {
			continue
		}
		f := r.functionFiles(d)
		bus, ok := value(f, "secondary_bus_number", optional, parseBus)
		if !ok {
			if info := r.readConfig(f, d); info != nil {
				bus = int(info.secondary)
			}
		}
		if bus > int(d.BDF.Bus) { // bus numbers grow away from the root
			buses[topo.BDF{Domain: d.BDF.Domain, Bus: uint8(bus)}] = d.ID
		}
	}
	return buses
}

func parseBus(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%q: want a bus number", clip(s))
	}
	return int(n), nil
}

// breakCycles takes functions that a forged tree puts below themselves off
// their parent, so that every walk towards the root ends.
func (r *reader) breakCycles() {
	for i := range r.t.PCIDevices {
		d := &r.t.PCIDevices[i]
		up, ok := r.functionIndex(d.Parent)
		for steps := 0; ok; steps++ {
			if steps > len(r.t.PCIDevices) {
				r.functionFiles(d).warn(topo.CodeMalformed, "", "below itself; put below a root bus of its own")
				d.Parent = r.hostBridge(d.BDF, "")
				break
			}
			up, ok = r.functionIndex(r.t.PCIDevices[up].Parent)
		}
	}
}
