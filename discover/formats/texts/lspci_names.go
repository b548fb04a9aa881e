package texts

import (
	"regexp"
	"strings"

	"github.com/topoctl/topoctl/discover/internal/sysfs"
	"github.com/topoctl/topoctl/discover/topo"
)

// pciClasses are the numbers of the classes that a topology is about, by the name that lspci prints
// without -nn. Of others the class stays unknown.
// Source: the list of classes in pci.ids.
var pciClasses = map[string]string{
	"Non-Volatile memory controller": "0108", "RAID bus controller": "0104", "SATA controller": "0106",
	"Serial Attached SCSI controller": "0107", "Ethernet controller": "0200", "Infiniband controller": "0207",
	"InfiniBand controller": "0207", "Fabric controller": "0208", "Network controller": "0280",
	"VGA compatible controller": "0300", "3D controller": "0302", "Display controller": "0380",
	"Host bridge": "0600", "ISA bridge": "0601", "PCI bridge": "0604", "Bridge": "0680",
	"System peripheral": "0880", "Co-processor": "0b40", "USB controller": "0c03", "InfiniBand": "0c06",
	"Processing accelerators": "1200", "Non-Essential Instrumentation": "1300",
}

var (
	classID = regexp.MustCompile(`^(?:.* \[|Class )?([0-9a-f]{4})\]?$`)
	pairID  = regexp.MustCompile(`^(?:.*[ \[])?([0-9a-f]{4}):([0-9a-f]{4})\]?$`)
	noName  = regexp.MustCompile(`^Device ([0-9a-f]{4})$`)
)

// hexClass is the class with its programming interface, "" where the text has a name that is not known.
func (f *function) hexClass() topo.HexID {
	number := pciClasses[f.class]
	if m := classID.FindStringSubmatch(f.class); m != nil {
		number = m[1]
	}
	if number == "" {
		return ""
	}
	return topo.HexID("0x" + number + f.progIF)
}

// pciNames finds vendors and devices by name.
type pciNames struct {
	db      *sysfs.IDs
	vendors map[string]topo.HexID
	devices map[string]topo.HexID // by vendor and name; "" where two have the same
}

func openNames() (*pciNames, error) {
	db, err := sysfs.OpenIDs(nil, sysfs.EmbeddedIDs())
	if err != nil {
		return nil, err
	}
	n := &pciNames{db: db, vendors: map[string]topo.HexID{}, devices: map[string]topo.HexID{}}
	db.Each(func(vendor, device string) {
		name := db.Vendor(vendor)
		if device == "" {
			n.vendors[name] = topo.HexID("0x" + vendor)
			return
		}
		key, id := name+" "+db.Device(vendor, device), topo.HexID("0x"+device)
		if _, twice := n.devices[key]; twice {
			id = ""
		}
		n.devices[key] = id
	})
	return n, nil
}

// ids are the numbers of a vendor and its device, "" where they are not known.
type ids struct{ vendor, device topo.HexID }

// identify gives the numbers of a vendor and device as lspci prints them, with or without them in
// brackets, and their names apart. What the text has no number for and no database names once stays
// unknown.
func (n *pciNames) identify(text string) (id ids, vendor, device string) {
	if m := pairID.FindStringSubmatch(text); m != nil {
		id = ids{topo.HexID("0x" + m[1]), topo.HexID("0x" + m[2])}
		text = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(text, "]"), m[1]+":"+m[2]), " [")
		vendor = n.db.Vendor(m[1])
		return id, vendor, deviceName(strings.TrimSpace(strings.TrimPrefix(text, vendor)))
	}
	for i := len(text); i > 0; i = strings.LastIndexByte(text[:i], ' ') {
		number, ok := n.vendors[text[:i]]
		if !ok {
			continue
		}
		id.vendor, vendor, device = number, text[:i], strings.TrimSpace(text[i:])
		if m := noName.FindStringSubmatch(device); m != nil {
			id.device = topo.HexID("0x" + m[1])
		} else {
			id.device = n.devices[vendor+" "+device]
		}
		return id, vendor, deviceName(device)
	}
	return id, "", deviceName(text)
}

// deviceName is a device's name, "" for the words that lspci prints if it knows no name.
func deviceName(s string) string {
	if s == "Device" || noName.MatchString(s) {
		return ""
	}
	return s
}
