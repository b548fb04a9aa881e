package discover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/pcidb/types"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/pciids"
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

// wantNames lists the numbers that need names.
func wantNames(t *topo.Topology) map[pciNumber]bool {
	want := map[pciNumber]bool{}
	for i := range t.PCIDevices {
		if n, ok := numberOf(&t.PCIDevices[i]); ok {
			want[n] = true
		}
	}
	return want
}

// pciNames are the names of the wanted numbers.
type pciNames struct {
	vendor  map[string]string
	device  map[pciNumber]string
	from    string // the database that came first
	problem error  // why the one that the user named is not used
}

// ghwDevice is what ghw says about a PCI function apart from names.
type ghwDevice struct {
	driver     string
	iommuGroup *int
}

// ghw runs ghw on this machine while sysfs is read, then looks up the names of
// the numbers that sysfs found.
//
// Names are looked up by number in ghw's database package rather than in its
// device list, which is empty, without an error, if one device is unusual.
func (p pipeline) ghw(ctx context.Context, numbers <-chan map[pciNumber]bool) outcome {
	devices, errDevices := p.ghwDevices()
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
	case errors.Is(errDevices, types.ErrNoDB): // ghw lists nothing without names for it; sysfs does
		o.report.Detail += "; ghw itself lists no device: no pci.ids is installed"
	case errDevices != nil:
		o.report.Status = topo.StatusPartial
		o.report.Detail += "; its own look at the devices failed: " + errDevices.Error()
	}
	o.apply = func(t *topo.Topology, r *topo.SourceReport) {
		applyNames(t, names)
		if devices == nil {
			return
		}
		applyGHW(t, devices)
		// ghw drops its whole list because of one device without modalias,
		// so a shorter list than that of sysfs is not worth a warning.
		if len(devices) < len(t.PCIDevices) {
			r.Status = topo.StatusPartial
		}
		r.Detail += fmt.Sprintf("; ghw lists %d of %d PCI functions", len(devices), len(t.PCIDevices))
	}
	return o
}

// names looks the numbers up: in the database that the user named, or for this
// machine in that of its distribution, and then in the embedded one.
func (p pipeline) names(want map[pciNumber]bool) (pciNames, error) {
	names := pciNames{vendor: map[string]string{}, device: map[pciNumber]string{}, from: "the embedded pci.ids"}
	for n := range want {
		names.vendor[n.vendor] = ""
	}
	wanted := func(vendor, device string) bool {
		_, known := names.vendor[vendor]
		return device == "" && known || want[pciNumber{vendor, device}]
	}
	var places []string
	if p.live {
		places = systemIDs
	}
	user := os.Getenv(envPCIDB)
	if user != "" {
		places = []string{user}
	}
	texts := [][]byte{pciids.Embedded()}
	for _, place := range places {
		text, err := readIDs(place)
		if err == nil {
			names.from = place
			texts = [][]byte{text, pciids.Embedded()}
			break
		}
		if user != "" {
			names.problem = fmt.Errorf("%s: %w", envPCIDB, err)
		}
	}
	db, err := pciids.Open(wanted, texts...)
	if err != nil {
		return names, err
	}
	for n := range want {
		names.vendor[n.vendor] = db.Vendor(n.vendor)
		names.device[n] = db.Device(n.vendor, n.device)
	}
	return names, nil
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
func (p pipeline) ghwDevices() (devices map[topo.BDF]ghwDevice, err error) {
	defer func() {
		if r := recover(); r != nil {
			devices, err = nil, fmt.Errorf("the library panicked: %v", r)
		}
	}()
	if p.dir == "" {
		return nil, nil
	}
	info, err := p.listPCI(p.dir)
	if err != nil {
		return nil, err
	}
	devices = make(map[topo.BDF]ghwDevice, len(info.Devices))
	for _, d := range info.Devices {
		bdf, err := topo.ParseBDF(d.Address)
		if err != nil {
			continue
		}
		g := ghwDevice{driver: plainName(d.Driver)}
		if n, err := strconv.Atoi(d.IOMMUGroup); err == nil && n >= 0 {
			g.iommuGroup = &n
		}
		devices[bdf] = g
	}
	return devices, nil
}

// plainName is a link's base name, "" where it cannot be one.
func plainName(s string) string {
	if s == "." || s == ".." || strings.Contains(s, "/") {
		return ""
	}
	return s
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
		m.fill("vendor_name", &d.VendorName, names.vendor[n.vendor], "pci.ids")
		m.fill("device_name", &d.DeviceName, names.device[n], "pci.ids")
	}
}

// applyGHW adds what ghw read of the devices where sysfs had nothing.
func applyGHW(t *topo.Topology, devices map[topo.BDF]ghwDevice) {
	for i := range t.PCIDevices {
		d := &t.PCIDevices[i]
		g, ok := devices[d.BDF]
		if !ok {
			continue
		}
		m := merger{t, d.ID, &d.Facts, topo.SourceGHW}
		m.fill("driver", &d.Driver, g.driver, "driver")
		fillNumber(m, "iommu_group", &d.IOMMUGroup, g.iommuGroup, "iommu_group")
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
