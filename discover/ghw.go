package discover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/pcidb/types"

	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/topo"
)

// envPCIDB is the environment variable that names ghw's database.
const envPCIDB = "PCIDB_PATH"

// systemIDs are where distributions keep pci.ids.
var systemIDs = []string{"/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids"}

// maxSystemIDs bounds a database that is read from a file (1.4 MB in 2026).
const maxSystemIDs = 16 << 20

// pciNumber is a device's vendor and device number, four digits each.
type pciNumber struct{ vendor, device string }

// numberOf gives the numbers of a PCI function, false where sysfs had none.
func numberOf(d *topo.PCIDevice) (pciNumber, bool) {
	if d.Vendor == "" || d.Device == "" {
		return pciNumber{}, false
	}
	return pciNumber{fmt.Sprintf("%04x", d.Vendor.Uint()), fmt.Sprintf("%04x", d.Device.Uint())}, true
}

// wantNames lists the numbers that need names; those of vendors have no device.
func wantNames(t *topo.Topology) map[pciNumber]bool {
	want := map[pciNumber]bool{}
	for i := range t.PCIDevices {
		if n, ok := numberOf(&t.PCIDevices[i]); ok {
			want[n], want[pciNumber{vendor: n.vendor}] = true, true
		}
	}
	return want
}

// pciNames are the names of the wanted numbers.
type pciNames struct {
	*sysfs.IDs
	from    string // the database that came first
	problem error  // why the one that the user named is not used
}

// ghw runs ghw on this machine while sysfs is read, then looks up the names of
// the numbers that sysfs found.
//
// Names are looked up by number in ghw's database package rather than in its
// device list, which is empty, without an error, if one device is unusual.
func (p pipeline) ghw(ctx context.Context, numbers <-chan map[pciNumber]bool) outcome {
	listed, errListed := p.ghwDevices()
	var want map[pciNumber]bool
	select {
	case want = <-numbers:
	case <-ctx.Done():
		return failed(topo.SourceGHW, "", ctx.Err())
	}
	names, err := p.names(want)
	if err != nil {
		return failed(topo.SourceGHW, "", err)
	}
	o := withStatus(topo.SourceGHW, topo.StatusOK, "names from "+names.from)
	if names.problem != nil {
		o.report.Status = topo.StatusPartial
		o.report.Detail += "; " + names.problem.Error()
	}
	switch {
	case errors.Is(errListed, types.ErrNoDB): // ghw lists nothing without names for it; sysfs does
		o.report.Detail += "; ghw itself lists no device: no pci.ids is installed"
	case errListed != nil:
		o.report.Status = topo.StatusPartial
		o.report.Detail += "; its own look at the devices failed: " + errListed.Error()
	}
	o.apply = func(t *topo.Topology, r *topo.SourceReport) {
		applyNames(t, names)
		if listed == nil {
			return
		}
		applyGHW(t, listed.Devices)
		// ghw drops its whole list because of one device without modalias,
		// so a shorter list than that of sysfs is not worth a warning.
		if len(listed.Devices) < len(t.PCIDevices) {
			r.Status = topo.StatusPartial
		}
		r.Detail += fmt.Sprintf("; ghw lists %d of %d PCI functions", len(listed.Devices), len(t.PCIDevices))
	}
	return o
}

// names looks the numbers up: in the database that the user named, or for this
// machine in that of its distribution, and then in the embedded one.
func (p pipeline) names(want map[pciNumber]bool) (pciNames, error) {
	names := pciNames{from: "the embedded pci.ids"}
	var places []string
	if p.live {
		places = systemIDs
	}
	user := os.Getenv(envPCIDB)
	if user != "" {
		places = []string{user}
	}
	texts := [][]byte{sysfs.EmbeddedIDs()}
	for _, place := range places {
		text, err := readIDs(place)
		if err == nil {
			names.from = place
			texts = [][]byte{text, sysfs.EmbeddedIDs()}
			break
		}
		if user != "" {
			names.problem = fmt.Errorf("%s: %w", envPCIDB, err)
		}
	}
	var err error
	names.IDs, err = sysfs.OpenIDs(func(vendor, device string) bool { return want[pciNumber{vendor, device}] }, texts...)
	return names, err
}

// readIDs reads a database file.
func readIDs(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSystemIDs {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", name, maxSystemIDs)
	}
	return os.ReadFile(name)
}

// listPCI asks ghw for the PCI functions below a directory, without warnings,
// without running programs such as ethtool, and without NUMA, which can make
// ghw fail.
func listPCI(dir string) (*ghw.PCIInfo, error) {
	return ghw.PCI(ghw.WithChroot(dir), ghw.WithDisableTools(), ghw.WithDisableWarnings(), ghw.WithDisableTopology())
}

// ghwDevices is ghw's own list of this machine's PCI functions, nil for
// another machine. A panic costs this list and not the names. ghw finds a
// database by itself: pointing it at ours would take an environment variable,
// and a library must not change that under the threads of its program.
func (p pipeline) ghwDevices() (info *ghw.PCIInfo, err error) {
	defer func() {
		if r := recover(); r != nil {
			info, err = nil, fmt.Errorf("the library panicked: %v", r)
		}
	}()
	if p.dir == "" {
		return nil, nil
	}
	return p.listPCI(p.dir)
}

// applyNames names PCI functions by their numbers.
func applyNames(t *topo.Topology, names pciNames) {
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		n, ok := numberOf(d)
		if !ok {
			continue
		}
		m := merger{t, d.ID, &d.Facts, topo.SourceGHW}
		m.fill("vendor_name", &d.VendorName, names.Vendor(n.vendor), "pci.ids")
		m.fill("device_name", &d.DeviceName, names.Device(n.vendor, n.device), "pci.ids")
	}
}

// applyGHW adds what ghw read of the devices where sysfs had nothing.
func applyGHW(t *topo.Topology, devices []*ghw.PCIDevice) {
	index := topo.NewIndex(t)
	for _, g := range devices {
		bdf, err := topo.ParseBDF(g.Address)
		d := index.PCIDevice(topo.PCIID(bdf))
		if err != nil || d == nil {
			continue
		}
		m := merger{t, d.ID, &d.Facts, topo.SourceGHW}
		if !slices.Contains([]string{".", "..", "/"}, g.Driver) { // of a link that leads to no driver
			m.fill("driver", &d.Driver, g.Driver, "driver")
		}
		if n, err := strconv.Atoi(g.IOMMUGroup); err == nil && n >= 0 {
			fillNumber(m, "iommu_group", &d.IOMMUGroup, &n, "iommu_group")
		}
	}
}

// nameGPUs gives GPUs that neither NVML nor the driver named the name of their
// PCI function.
func nameGPUs(t *topo.Topology) {
	index := topo.NewIndex(t)
	for i := range t.GPUs {
		g := &t.GPUs[i]
		if g.Model != "" || g.BDF == nil {
			continue
		}
		if d := index.PCIDevice(topo.PCIID(*g.BDF)); d != nil && d.DeviceName != "" {
			g.Model = d.DeviceName
			g.Facts.Set("model", topo.SourceGHW, "pci.ids")
		}
	}
}
