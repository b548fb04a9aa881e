package doctor

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

var acsCheck = Check{
	Code: "acs-redirect", Family: "NICs and GPU memory", Severity: Error,
	Title: "no PCIe switch sends transfers between its own devices up to the root",
	Judged: "The ACS control register of the switch ports between each GPU and the NICs and GPUs below the same switch. Request or completion redirect " +
		"is an error; where direct translated requests are allowed too it is a warning, because devices with ATS still go straight. " +
		"A guest does not see the switches of its host, so there a clean look proves nothing.",
	Facts: "the ACS capability in config of /sys/bus/pci/devices, beyond byte 256: root only",
	Fix:   "Turn ACS off for these ports: in the firmware set-up, or setpci -s BDF ECAP_ACS+6.w=0 after every boot; a kernel option does not.",
	run:   checkACS,
}

// cfgExtended is the size of configuration space up to which ACS can be seen.
const cfgExtended = 4096

// pairPorts are the switch ports that a transfer between two functions enters
// and leaves a common switch by, where redirection happens. It is empty for
// functions that meet nowhere below the root, or on one port.
func (h *host) pairPorts(a, b topo.ID) []*topo.PCIDevice {
	climb := func(id topo.ID) []*topo.PCIDevice {
		var out []*topo.PCIDevice
		for d := h.pci[id]; d != nil && len(out) < 64; d = h.pci[d.Parent] {
			out = append(out, d)
		}
		return out
	}
	x, y := climb(a), climb(b)
	i, j := len(x), len(y)
	for i > 0 && j > 0 && x[i-1] == y[j-1] {
		i, j = i-1, j-1
	}
	if i == len(x) || i == 0 || j == 0 {
		return nil // nothing in common, or one above the other
	}
	var out []*topo.PCIDevice
	for _, d := range []*topo.PCIDevice{x[i-1], y[j-1]} {
		if d.IsBridge() && d.Role != topo.RoleBridge {
			out = append(out, d)
		}
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// acsTold says whether the ACS control of a port is known: it has the
// capability, or all of configuration space was read and has none.
func (h *host) acsTold(d *topo.PCIDevice) bool {
	if d.ACS != nil {
		return true
	}
	size := h.t.Host.ConfigBytes
	from, ok := d.Facts.Get("role")
	return ok && from.Source == topo.SourceConfig && size != nil && *size >= cfgExtended
}

func checkACS(h *host) outcome {
	var o outcome
	if len(h.t.GPUs) == 0 || len(h.directDevices()) < 2 {
		if h.imported() && len(h.t.GPUs) > 0 && len(h.t.PCIDevices) == 0 {
			o.lack("the input has no PCI functions", h.asRoot())
			return o
		}
		return notApplicable("needs a GPU, and a second GPU or RDMA hardware")
	}
	ports, example := h.peerPorts()
	var hard, soft, untold []*topo.PCIDevice
	for _, d := range ports {
		switch {
		case !h.acsTold(d):
			untold = append(untold, d)
		case d.ACS == nil || !d.ACS.RequestRedirect && !d.ACS.CompletionRedir:
		case d.ACS.Control.Uint()&directTranslated != 0:
			soft = append(soft, d)
		default:
			hard = append(hard, d)
		}
	}
	o.note = count(len(ports), "switch port")
	if len(hard) > 0 {
		o.find(acsFinding(hard, example, Error))
	}
	if len(soft) > 0 {
		o.find(acsFinding(soft, example, Warning))
	}
	guest, known := h.guest()
	if len(untold) > 0 && !guest {
		text := "configuration space could not be read far enough for the ACS register"
		if n := h.t.Host.ConfigBytes; n != nil {
			text = fmt.Sprintf("configuration space was read to %d bytes only, the ACS register is beyond 256", *n)
		}
		o.lack(text, h.asRoot(), functionIDs(untold)...)
	}
	switch {
	case guest:
		o.lack("a guest does not see the PCIe switches of its host", "look at ACS on the host of the virtual machine")
	case len(ports) == 0 && !known:
		o.lack("no switch is visible, and whether the host is a virtual machine is not told", h.lookAgain())
	case len(ports) == 0:
		o.absent = "no GPU shares a PCIe switch with another GPU or an RDMA NIC"
	}
	return o
}

// directTranslated is the ACS control bit that lets requests with translated
// addresses through. Source: PCI Express Base Specification, ACS Control Register.
const directTranslated = 1 << 6

// peerPorts lists the switch ports between GPUs and what is below the same
// switch, in the order of addresses, each with a pair that crosses it. Pairs of
// GPUs that have a direct link do not use PCIe.
func (h *host) peerPorts() (ports []*topo.PCIDevice, example map[topo.ID]string) {
	example = map[topo.ID]string{}
	devices := h.directDevices()
	for i, a := range devices {
		for _, b := range devices[i+1:] {
			if h.pci[a.pci] == nil || h.gpuOf[a.pci] == nil {
				continue
			}
			if c := h.class(a.id, b.id).Kind; c == topo.ClassNV || c == topo.ClassXGMI {
				continue
			}
			for _, d := range h.pairPorts(a.pci, b.pci) {
				if example[d.ID] == "" {
					example[d.ID] = fmt.Sprintf("%s and %s", a.id, b.id.Name())
					if h.gpuOf[b.pci] != nil {
						example[d.ID] = fmt.Sprintf("%s and %s", a.id, b.id)
					}
					ports = append(ports, d)
				}
			}
		}
	}
	slices.SortFunc(ports, func(a, b *topo.PCIDevice) int { return a.BDF.Compare(b.BDF) })
	return ports, example
}

func acsFinding(ports []*topo.PCIDevice, example map[topo.ID]string, severity Severity) Finding {
	f := Finding{Severity: severity, Subjects: functionIDs(ports)}
	var list []string
	for _, d := range ports {
		list = append(list, d.BDF.String())
		f.Evidence = append(f.Evidence, pciFile(d, "config", "ACS control "+string(d.ACS.Control)))
	}
	f.Text = fmt.Sprintf("ACS redirect is on at %s (%s): transfers such as those between %s go up to the root complex, which halves them or hangs them",
		count(len(ports), "switch port"), some(list), example[ports[0].ID])
	f.Fix = fmt.Sprintf("turn ACS off in the firmware set-up, or after every boot: setpci -s %s ECAP_ACS+6.w=0 (and so on)", list[0])
	if len(ports) == 1 {
		f.Fix = fmt.Sprintf("turn ACS off in the firmware set-up, or after every boot: setpci -s %s ECAP_ACS+6.w=0", list[0])
	}
	if severity == Warning {
		f.Text += ", unless both devices use ATS: direct translated requests are allowed"
		f.Fix = "make sure that ATS is on for the GPUs and NICs (lspci -vvv: ATSCtl: Enable+), or turn ACS off"
	}
	return f
}

func functionIDs(list []*topo.PCIDevice) []topo.ID {
	var out []topo.ID
	for _, d := range list {
		out = append(out, d.ID)
	}
	return out
}
