package sysfs

import (
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// readNVMes reads the controllers of /sys/class/nvme.
func (r *reader) readNVMes() {
	for _, e := range r.list("sys/class/nvme") {
		at := r.attach("nvme", e)
		n := topo.NVMe{Name: e.Name(), BDF: at.bdf}
		n.Node = topo.Node{ID: topo.NVMeID(n.Name), Kind: topo.KindNVMe, Evidence: "/" + at.dir}
		f := files{r: r, dir: at.dir, show: "sys/class/nvme/" + n.Name, subject: n.ID, facts: &n.Facts}
		n.PCI = r.listed(f, at.bdf)
		if at.broken {
			f.warn(topo.CodeMissing, "", "the class link leads nowhere")
		} else {
			n.Model = attribute(f, "model", "model", optional, asIs)
			n.Serial = attribute(f, "serial", "serial", optional, asIs)
			n.Namespaces = r.namespaces(at.dir, n.Name)
		}
		f.fact(len(n.Namespaces) > 0, "namespaces", "")
		f.fact(n.PCI != "", "pci", "device")
		r.t.NVMes = append(r.t.NVMes, n)
	}
}

// namespaces are the block devices of a controller; with multipath, nvme0c1n2
// is one path to nvme0n2.
func (r *reader) namespaces(dir, controller string) []string {
	var names []string
	for _, e := range r.list(dir) {
		rest, ok := strings.CutPrefix(e.Name(), controller)
		if !ok {
			continue
		}
		if path, isPath := strings.CutPrefix(rest, "c"); isPath {
			rest = strings.TrimLeft(path, "0123456789")
		}
		number, ok := strings.CutPrefix(rest, "n")
		if _, err := parseUint(number, 1<<31); ok && err == nil {
			names = append(names, controller+rest)
		}
	}
	slices.SortFunc(names, topo.NaturalCompare)
	return slices.Compact(names)
}
