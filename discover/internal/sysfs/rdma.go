package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// readInfiniBand reads the RDMA devices of /sys/class/infiniband, and their
// ports. Source: Documentation/ABI/stable/sysfs-class-infiniband.
func (r *reader) readInfiniBand() {
	entries := r.list("sys/class/infiniband")
	if len(entries) == 0 {
		return
	}
	chars := r.readCharDevs()
	for _, e := range entries {
		if e.Type()&(fs.ModeSymlink|fs.ModeDir) != 0 {
			r.readRDMA(e, chars[e.Name()])
		}
	}
	r.warnUverbs()
}

func (r *reader) readRDMA(e fs.DirEntry, chars []string) {
	at := r.attach("infiniband", e)
	d := topo.RDMADevice{Name: e.Name(), CharDevs: chars, BDF: at.bdf}
	d.Node = topo.Node{ID: topo.RDMAID(d.Name), Kind: topo.KindRDMA, Evidence: "/" + at.dir}
	f := files{r: r, dir: at.dir, show: "sys/class/infiniband/" + d.Name, subject: d.ID, facts: &d.Facts}
	d.PCI = r.listed(f, at.bdf)
	f.fact(d.PCI != "", "pci", "device")
	f.fact(len(chars) > 0, "char_devs", "/sys/class/infiniband_*/*/ibdev")
	if d.Uverbs = r.uverbsAccess(chars); d.Uverbs != "unknown" {
		d.Facts.Set("uverbs", topo.SourceDev, "/dev/infiniband")
	}
	first := len(r.t.Ports)
	if at.broken {
		f.warn(topo.CodeMissing, "", "the class link leads nowhere")
	} else {
		d.NodeType = attribute(f, "node_type", "node_type", optional, parseNumbered)
		d.NodeGUID = attribute(f, "node_guid", "node_guid", optional, parseGUID)
		d.SysImageGUID = attribute(f, "sys_image_guid", "sys_image_guid", optional, parseGUID)
		d.Firmware = attribute(f, "firmware", "fw_ver", optional, asIs)
		d.Board = attribute(f, "board", "board_id", optional, asIs)
		d.HCAType = attribute(f, "hca_type", "hca_type", optional, asIs)
		d.Driver = r.deviceDriver(f, at)
		r.readPorts(f, &d)
	}
	ports := r.t.Ports[first:]
	r.rdmaNetdevs(&d, at, ports)
	// Only drivers of hardware tell the type of card (hca_type).
	d.Software = d.BDF == nil && d.HCAType == "" && (at.virtual || at.broken || softwareDriver(d.Driver))
	if d.BDF == nil {
		r.rdmaByNetdev(f, &d)
	}
	if d.Software {
		r.capRate(&d, ports)
	}
	if d.Transport = transport(&d, ports); d.Transport != "" {
		d.Facts.Set("transport", topo.SourceDerived, "driver node_type link_layer")
	}
	r.t.RDMADevices = append(r.t.RDMADevices, d)
}

// softwareDriver knows drivers without hardware of their own, and those that
// the kernel makes devices of elsewhere than below devices/virtual.
func softwareDriver(name string) bool {
	return name == "rdma_rxe" || name == "siw" || strings.HasPrefix(name, "scif")
}

// rdmaNetdevs collects the interfaces of a device: those of the same parent
// (function, or a sub-function of it) and those that its GIDs name. A switch
// port's stand-in for a virtual function (a representor) is not one of them.
func (r *reader) rdmaNetdevs(d *topo.RDMADevice, at attached, ports []topo.Port) {
	for _, p := range ports {
		d.Netdevs = append(d.Netdevs, p.Netdevs...)
	}
	where := "ports/*/gid_attrs/ndevs"
	for i := range r.t.Netdevs {
		n := &r.t.Netdevs[i]
		if at.device == "" || !n.PhysPortIsOwn() ||
			strings.TrimPrefix(n.Evidence, "/") != at.device+"/net/"+n.Name {
			continue
		}
		where = "device/net"
		if !slices.Contains(d.Netdevs, n.Name) {
			d.Netdevs = append(d.Netdevs, n.Name)
		}
		r.portNetdev(n, ports)
	}
	slices.SortFunc(d.Netdevs, topo.NaturalCompare)
	d.Netdevs = slices.Compact(d.Netdevs)
	if len(d.Netdevs) > 0 {
		d.Facts.Set("netdevs", topo.SourceSysfs, where)
	}
}

// portNetdev adds an interface to the port that it runs on: the only one, or
// the one that dev_port (counted from 0) names.
func (r *reader) portNetdev(n *topo.Netdev, ports []topo.Port) {
	number := 1
	if len(ports) > 1 {
		f := files{r: r, dir: strings.TrimPrefix(n.Evidence, "/"), show: "sys/class/net/" + n.Name, subject: n.ID}
		devPort, ok := value(f, "dev_port", optional, parseVFs)
		if !ok {
			return
		}
		number = devPort + 1
	}
	for i := range ports {
		p := &ports[i]
		if p.Number == number && !slices.Contains(p.Netdevs, n.Name) {
			p.Netdevs = append(p.Netdevs, n.Name)
			p.Facts.Set("netdevs", topo.SourceSysfs, "/sys/class/net")
		}
	}
}

// rdmaByNetdev finds the PCI function of a device that has none of its own
// (rxe, siw) by the interface that it runs on.
func (r *reader) rdmaByNetdev(f files, d *topo.RDMADevice) {
	where := "ports/*/gid_attrs/ndevs"
	if parent, ok := value(f, "parent", optional, parseOptionalName); ok && parent != "" {
		where = "parent"
		if !slices.Contains(d.Netdevs, parent) {
			d.Netdevs = append(d.Netdevs, parent)
			d.Facts.Set("netdevs", topo.SourceSysfs, where)
		}
		if d.Software && d.Driver == "" { // of the software drivers only rxe has this file
			d.Driver = "rdma_rxe"
			d.Facts.Set("driver", topo.SourceDerived, "parent")
		}
	}
	for i := range r.t.Netdevs {
		n := &r.t.Netdevs[i]
		if n.PCI != "" && slices.Contains(d.Netdevs, n.Name) {
			d.PCI, d.BDF = n.PCI, n.BDF
			d.Facts.Set("pci", topo.SourceDerived, where+" "+n.Name)
			return
		}
	}
	kind := "no device link"
	if d.Software {
		kind = "a software device"
	}
	f.warn(topo.CodeNoPCIParent, "", kind+", and no interface of it has a PCI function")
}

// capRate lowers the rate of a software device's port to that of its interface.
// The kernel makes the port's rate from the interface's speed and rounds it up
// to one that InfiniBand has, of which the lowest is 2.5 Gb/s.
// Source: drivers/infiniband/core/verbs.c (ib_get_eth_speed).
func (r *reader) capRate(d *topo.RDMADevice, ports []topo.Port) {
	for i := range r.t.Netdevs {
		n := &r.t.Netdevs[i]
		if n.BytesPerSec == nil || !slices.Contains(d.Netdevs, n.Name) {
			continue
		}
		for j := range ports {
			if p := &ports[j]; p.BytesPerSec != nil && *n.BytesPerSec < *p.BytesPerSec {
				p.BytesPerSec = new(*n.BytesPerSec)
				p.Facts.Set("bytes_per_sec", topo.SourceDerived, "/sys/class/net/"+n.Name+"/speed")
			}
		}
	}
}

// transport is the protocol that a device speaks.
func transport(d *topo.RDMADevice, ports []topo.Port) string {
	layer := ""
	for _, p := range ports {
		if p.LinkLayer != "" {
			layer = p.LinkLayer
			break
		}
	}
	switch {
	case d.Driver == "efa":
		return "efa"
	case d.Driver == "hfi1" || strings.HasPrefix(d.Name, "hfi1_"):
		return "opa"
	case d.NodeType == "RNIC":
		return "iwarp"
	case layer == "InfiniBand":
		return "ib"
	case layer == "Ethernet":
		return "roce"
	case d.Software:
		return "software"
	}
	return ""
}

// readCharDevs maps device names to their character devices in /dev/infiniband.
func (r *reader) readCharDevs() map[string][]string {
	chars := map[string][]string{}
	for _, class := range []string{"infiniband_cm", "infiniband_mad", "infiniband_verbs"} {
		for _, e := range r.list("sys/class/" + class) {
			if e.Type()&(fs.ModeSymlink|fs.ModeDir) == 0 {
				continue // abi_version
			}
			dir := "sys/class/" + class + "/" + e.Name()
			if name, ok := (files{r: r, dir: dir, show: dir}).text("ibdev", optional); ok {
				chars[name] = append(chars[name], "/dev/infiniband/"+e.Name())
			}
		}
	}
	return chars
}

// uverbsAccess says how this process can open a device's verbs file. It opens
// it, because permission bits do not tell of device cgroups.
func (r *reader) uverbsAccess(chars []string) string {
	if !r.live {
		return "unknown"
	}
	i := slices.IndexFunc(chars, func(c string) bool { return strings.HasPrefix(c, "/dev/infiniband/uverbs") })
	if i < 0 {
		return "none"
	}
	root := "/"
	if t, ok := r.tree.(interface{ Path() string }); ok {
		root = t.Path()
	}
	return openAccess(filepath.Join(root, chars[i]))
}

// openAccess is "rw", "ro", "denied", or "none" for a file that is not there.
func openAccess(name string) string {
	for _, mode := range []struct {
		flag int
		name string
	}{{os.O_RDWR, "rw"}, {os.O_RDONLY, "ro"}} {
		f, err := os.OpenFile(name, mode.flag, 0)
		if err == nil {
			f.Close()
			return mode.name
		}
		if errors.Is(err, fs.ErrNotExist) {
			return "none"
		}
	}
	return "denied"
}

// warnUverbs says once for the host which devices this process cannot use.
func (r *reader) warnUverbs() {
	for _, access := range []struct{ is, text string }{
		{"none", "no /dev/infiniband/uverbs file, so this process cannot use"},
		{"denied", "no permission to open the uverbs file, so this process cannot use"},
	} {
		var names []string
		for _, d := range r.t.RDMADevices {
			if d.Uverbs == access.is {
				names = append(names, d.Name)
			}
		}
		if len(names) > 0 {
			slices.SortFunc(names, topo.NaturalCompare)
			r.warn(topo.CodePartialView, "", "dev/infiniband", fmt.Sprintf("%s %s", access.text, strings.Join(names, ", ")))
		}
	}
}
