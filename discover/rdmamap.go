package discover

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Mellanox/rdmamap"

	"github.com/topoctl/topoctl/discover/topo"
)

// rdmaDirs are rdmamap's package variables, with what they say on a live host.
var rdmaDirs = []*string{
	&rdmamap.RdmaClassDir, &rdmamap.RdmaIbUcmDir, &rdmamap.RdmaUmadDir, &rdmamap.RdmaUverbsDir,
	&rdmamap.RdmaUcmDevice, &rdmamap.PciDevDir, &rdmamap.AuxDevDir,
}

// rdmaDirsLock is held while rdmamap is asked, since its variables are the whole process's.
var rdmaDirsLock = make(chan struct{}, 1)

// maxCharDevices is the number of RDMA devices up to which rdmamap is asked for
// character devices: it reads all of them again for each device.
const maxCharDevices = 16

// rdmaWanted is what rdmamap is asked about: the PCI functions that may carry
// an RDMA device, and by RDMA device the interfaces that may belong to it where
// sysfs named none.
type rdmaWanted struct {
	functions []topo.BDF
	netdevs   map[string][]string
}

// wantRDMA lists what to ask, so that the source does not touch the topology
// while others do.
func wantRDMA(t *topo.Topology) rdmaWanted {
	want := rdmaWanted{netdevs: map[string][]string{}}
	carries := map[topo.ID]bool{}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		carries[r.PCI] = true
		if len(r.Netdevs) > 0 || r.PCI == "" {
			continue
		}
		for j := range t.Netdevs {
			if n := &t.Netdevs[j]; n.PCI == r.PCI {
				want.netdevs[r.Name] = append(want.netdevs[r.Name], n.Name)
			}
		}
	}
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; carries[d.ID] || d.Class.Uint()>>16 == 0x02 {
			want.functions = append(want.functions, d.BDF)
		}
	}
	return want
}

// rdmaAnswer is what rdmamap says of one RDMA device.
type rdmaAnswer struct {
	bdf      *topo.BDF
	netdevs  []string
	charDevs []string
	asked    bool // charDevs was asked for
}

// rdmamap asks rdmamap about this machine.
func (p pipeline) rdmamap(ctx context.Context, want rdmaWanted) outcome {
	const s = topo.SourceRDMAMap
	if p.dir == "" {
		return withStatus(s, topo.StatusSkipped, "asked on this machine only: it follows links by itself")
	}
	answers, err := p.rdmaAnswers(ctx, want)
	if err != nil {
		return failed(s, "sys/class/infiniband", err)
	}
	if len(answers) == 0 {
		return withStatus(s, topo.StatusAbsent, "no RDMA devices")
	}
	o := withStatus(s, topo.StatusOK, fmt.Sprintf("%d RDMA devices", len(answers)))
	o.apply = func(t *topo.Topology, _ *topo.SourceReport) { applyRDMAMap(t, answers) }
	return o
}

// rdmaAnswers asks rdmamap. For another directory than the root it is pointed there, and back:
// a program that uses rdmamap as well sees no change from looking at the running machine.
func (p pipeline) rdmaAnswers(ctx context.Context, want rdmaWanted) (map[string]rdmaAnswer, error) {
	select {
	case rdmaDirsLock <- struct{}{}:
		defer func() { <-rdmaDirsLock }()
	case <-ctx.Done():
		return nil, fmt.Errorf("another discovery is running: %w", ctx.Err())
	}
	if p.dir != "/" {
		for _, dir := range rdmaDirs {
			old := *dir
			*dir = filepath.Join(p.dir, old)
			defer func() { *dir = old }()
		}
	}
	names := rdmamap.GetRdmaDeviceList()
	answers := make(map[string]rdmaAnswer, len(names))
	for _, name := range names {
		a := rdmaAnswer{asked: len(names) <= maxCharDevices}
		if a.asked {
			a.charDevs = hostDevices(p.dir, rdmamap.GetRdmaCharDevices(name))
		}
		answers[name] = a
	}
	for _, bdf := range want.functions {
		for _, name := range rdmamap.GetRdmaDevicesForPcidev(bdf.String()) {
			if a, ok := answers[name]; ok {
				a.bdf = &bdf
				answers[name] = a
			}
		}
	}
	askNetdevs(answers, want.netdevs)
	return answers, ctx.Err()
}

// askNetdevs finds the RDMA device of interfaces, by asking the running kernel.
func askNetdevs(answers map[string]rdmaAnswer, netdevs map[string][]string) {
	for name, candidates := range netdevs {
		a, ok := answers[name]
		if !ok {
			continue
		}
		for _, n := range candidates {
			if dev, err := rdmaOfNetdev(n); err == nil && dev == name {
				a.netdevs = append(a.netdevs, n)
			}
		}
		answers[name] = a
	}
}

// rdmaOfNetdev is rdmamap's lookup, which panics on an InfiniBand interface
// with a short hardware address.
func rdmaOfNetdev(name string) (dev string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rdmamap: %s: %v", name, r)
		}
	}()
	return rdmamap.GetRdmaDeviceForNetdevice(name)
}

// hostDevices turns rdmamap's list, in which some paths begin with dir, into
// sorted paths on the host. It leaves out the connection manager's device, which
// belongs to no RDMA device.
func hostDevices(dir string, devices []string) []string {
	var out []string
	for _, d := range devices {
		d = filepath.ToSlash(d)
		if rest, ok := strings.CutPrefix(d, strings.TrimSuffix(filepath.ToSlash(dir), "/")); ok {
			d = rest
		}
		if d != "/dev/infiniband/rdma_cm" {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// applyRDMAMap adds what rdmamap says of the RDMA devices where sysfs had
// nothing, and reports where the two disagree.
func applyRDMAMap(t *topo.Topology, answers map[string]rdmaAnswer) {
	index := topo.NewIndex(t)
	seen := map[string]bool{}
	for i := range t.RDMADevices {
		r := &t.RDMADevices[i]
		a, ok := answers[r.Name]
		if !ok {
			conflict(t, r.ID, "device", topo.SourceSysfs, "it exists", topo.SourceRDMAMap, "it does not")
			continue
		}
		seen[r.Name] = true
		m := merger{t, r.ID, &r.Facts, topo.SourceRDMAMap}
		if a.bdf != nil {
			mergeRDMAPCI(m, r, index.PCIDevice(topo.PCIID(*a.bdf)), *a.bdf)
		}
		m.fillList("netdevs", &r.Netdevs, a.netdevs)
		if a.asked {
			m.fillList("char_devs", &r.CharDevs, a.charDevs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		if !seen[name] {
			conflict(t, topo.RDMAID(name), "device", topo.SourceSysfs, "it does not exist", topo.SourceRDMAMap, "it does")
		}
	}
}

// mergeRDMAPCI joins an RDMA device to its PCI function.
func mergeRDMAPCI(m merger, r *topo.RDMADevice, d *topo.PCIDevice, bdf topo.BDF) {
	if d == nil {
		return
	}
	if r.PCI != "" {
		if r.PCI != d.ID {
			conflict(m.t, r.ID, "pci", source(r.Facts, "pci"), r.PCI, m.from, d.ID)
		}
		return
	}
	r.PCI, r.BDF = d.ID, &bdf
	r.Facts.Set("pci", m.from, "infiniband")
	r.Facts.Set("bdf", m.from, "infiniband")
	if r.NUMA == nil && d.NUMA != nil {
		n := *d.NUMA
		r.NUMA = &n
		r.Facts.Set("numa_node", topo.SourceDerived, string(d.ID))
	}
	m.t.Warnings = slices.DeleteFunc(m.t.Warnings, func(w topo.Warning) bool {
		return w.Code == topo.CodeNoPCIParent && w.Subject == r.ID
	})
}
