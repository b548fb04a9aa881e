package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
)

// Bits of the ACS control register. Source: PCI Express Base Specification, ACS Control Register.
const directTranslated = 1 << 6

// cfgExtended is the size of configuration space up to which ACS can be seen.
const cfgExtended = 4096

// acsKnown says whether the ACS control of a port is known: it has the
// capability, or all of configuration space was read and has none.
func (h *host) acsKnown(d *topo.PCIDevice) bool {
	if d.ACS != nil {
		return true
	}
	size := h.t.Host.ConfigBytes
	from, ok := d.Facts.Get("role")
	return ok && from.Source == topo.SourceConfig && size != nil && *size >= cfgExtended
}

// redirects says whether a port redirects transfers between devices.
func redirects(d *topo.PCIDevice) bool {
	return d.ACS != nil && (d.ACS.RequestRedirect || d.ACS.CompletionRedir)
}

// crossing is a way over PCIe between a GPU and another device.
type crossing struct {
	gpu, peer    *topo.PCIDevice
	ports        []*topo.PCIDevice // on the side of each: of the switch that they share, or root ports
	root         bool              // the ports are root ports
	gpus, direct bool              // the peer is a GPU, or a data direct function
	pair         string            // both in words
}

// crossings lists the ways between GPUs, RDMA devices and data direct functions: those below a
// switch, and those through root ports of one socket if there is no nearer way. GPUs with a direct
// link do not use PCIe.
func (h *host) crossings() []crossing {
	devices := h.directDevices()
	for _, d := range h.dataDirect() {
		devices = append(devices, device{d.ID, d.ID})
	}
	var out []crossing
	for i, a := range devices {
		if h.gpuOn(a.pci) == nil {
			continue
		}
		var far []crossing
		near := false // a NIC
		for _, b := range devices[i+1:] {
			class := h.class(a.id, b.id).Kind
			c, ok := h.meet(a, b)
			switch {
			case !ok || class == topo.ClassNV || class == topo.ClassXGMI:
			case !c.root:
				out, near = append(out, c), near || !c.gpus
			case class != topo.ClassSYS && !c.direct:
				far = append(far, c)
			}
		}
		out = append(out, slices.DeleteFunc(far, func(c crossing) bool { return near && !c.gpus })...)
	}
	return out
}

// meet finds the ports between two devices, if there are any.
func (h *host) meet(a, b device) (c crossing, ok bool) {
	ports, root, ok := h.Crossing(a.pci, b.pci)
	if !ok {
		return c, false
	}
	gpu, peer := h.PCIDevice(a.pci), h.PCIDevice(b.pci)
	return crossing{gpu, peer, ports[:], root, h.gpuOn(b.pci) != nil, h.DataDirect(peer), SubjectName(a.id) + " and " + SubjectName(b.id)}, true
}

// dataDirect lists the data direct functions.
func (h *host) dataDirect() []*topo.PCIDevice {
	return matching(h.t.PCIDevices, h.DataDirect)
}

// passedOn says whether the host keeps devices for virtual machines.
func (h *host) passedOn() bool {
	return slices.ContainsFunc(h.t.PCIDevices, func(d topo.PCIDevice) bool { return strings.HasPrefix(d.Driver, "vfio") })
}

// acsUse is what the ports inside ConnectX switches have to be set for: the bits of the port on the GPU's side, and of
// the port of a NIC or data direct function, as pci=config_acs= takes them: from bit 6 down, x for either. It is
// zero where it is not known. Source: rdma_topo of rdma-core.
type acsUse struct{ name, gpu, nic string }

var (
	bareMetal   = acsUse{"bare metal", "xx000x0", "xx000x0"}  // NICs without ATS
	passthrough = acsUse{"passthrough", "xx111x1", "1x111x1"} // NICs with ATS
	dataDirect  = acsUse{"data direct", "xx101x1", "xx110x1"}
)

// insideConnectX says whether the ports of a crossing are of the switch inside a ConnectX-7 or
// later. Source: the PCI ID repository, vendor 15b3.
func (c *crossing) insideConnectX() bool {
	return !slices.ContainsFunc(c.ports, func(d *topo.PCIDevice) bool {
		return c.root || d.Vendor != "0x15b3" || d.Device != "0x197c" && d.Device != "0x1979"
	})
}

// acsUse tells the use by the NICs. Devices that are bound to vfio speak against bare metal.
func (h *host) acsUse(list []crossing) (use acsUse) {
	if len(h.dataDirect()) > 0 {
		return dataDirect
	}
	for _, c := range list {
		if !c.insideConnectX() || c.gpus {
			continue
		}
		this := passthrough
		if c.peer.ATS == "absent" {
			this = bareMetal
		}
		if c.peer.ATS == "" || this == bareMetal && h.passedOn() || use != (acsUse{}) && use != this {
			return acsUse{}
		}
		use = this
	}
	return use
}

// wanted are the bits of the ports of a crossing.
func (u acsUse) wanted(c *crossing) [2]string {
	if c.gpus {
		return [2]string{u.gpu, u.gpu}
	}
	return [2]string{u.gpu, u.nic}
}

// fits says whether a port is set as wanted.
func fits(d *topo.PCIDevice, bits string) bool {
	for i, b := range bits {
		on := d.ACS != nil && d.ACS.Control.Uint()>>(len(bits)-1-i)&1 == 1
		if b != 'x' && on != (b == '1') {
			return false
		}
	}
	return true
}

// translation says what the IOMMU does with the addresses that a device sends: "DMA" or "DMA-FQ"
// (they are translated), "identity" (also where there is no IOMMU), "on" where it is not known
// which of them, "" where nothing is known.
func (h *host) translation(d *topo.PCIDevice) string {
	through, known := h.passthrough()
	switch {
	case d.IOMMUType != "":
		return d.IOMMUType
	case d.IOMMUGroup != nil && !(known && through):
		return "on"
	case d.IOMMUGroup == nil && h.imported() && !slices.ContainsFunc(h.t.PCIDevices, func(d topo.PCIDevice) bool { return d.IOMMUGroup != nil }):
		return ""
	}
	return "identity"
}

// acsFault describes a fault that some crossings have in common.
type acsFault struct {
	severity Severity
	where    string // "switch port"
	means    string // with %s for a pair of devices
	fix      string // with %s for the option of the kernel
	use      acsUse // how the ports have to be set instead
}

const (
	goesUp = "transfers such as those between %s go up to the root complex, which halves them or hangs them"
	merges = "that merges IOMMU groups, and the devices of a group can be passed through to virtual machines only together"
	redir  = "if no device of this host is passed through to a virtual machine, boot with %s (Linux 4.19), or turn ACS off in the firmware set-up; " + merges
	single = "boot with %s (Linux 6.11), as rdma_topo write-grub-acs of rdma-core writes it for all ports"
)

// insideFault judges a crossing inside a ConnectX switch of which a port redirects.
func insideFault(c *crossing, use acsUse, o *outcome) (f acsFault, ok bool) {
	f = acsFault{Warning, "port", goesUp, single, use}
	switch use {
	case bareMetal:
		f.severity, f.means, f.fix = Error, goesUp+"; the NICs have no ATS, as on bare metal", single+"; "+merges
		return f, true
	case passthrough:
		want := use.wanted(c)
		f.means += "; the NICs have ATS, as for passthrough, and this setting does not let translated requests through"
		return f, !fits(c.ports[0], want[0]) || !fits(c.ports[1], want[1])
	case dataDirect:
		gpu, peer := c.ports[0].ACS, c.ports[1].ACS
		f.means = "direct transfers between %s go up to the root complex"
		return f, c.direct && (gpu != nil && gpu.CompletionRedir || peer != nil && peer.RequestRedirect)
	}
	o.missing(fmt.Sprintf("ACS redirect is on inside ConnectX switches, and whether the host is set up for passthrough is not known: bare metal wants %s at these ports, "+
		"passthrough %s at those of NICs and %s at those of GPUs (bits 6 to 0; x is either)", bareMetal.nic, passthrough.nic, passthrough.gpu),
		"as root on the host: rdma_topo check of rdma-core; lspci -vvv shows whether the NICs have ATS, which passthrough needs", functionIDs(c.ports)...)
	return f, false
}

// switchFault judges a crossing of another switch of which a port redirects.
func (h *host) switchFault(c *crossing) (f acsFault, ok bool) {
	f = acsFault{severity: Error, where: "switch port", means: goesUp, fix: redir}
	if h.passedOn() {
		f.severity, f.means = Warning, goesUp+"; devices of this host are bound to vfio, and redirection keeps virtual machines apart"
	}
	if slices.ContainsFunc(c.ports, func(d *topo.PCIDevice) bool { return redirects(d) && d.ACS.Control.Uint()&directTranslated == 0 }) {
		return f, true
	}
	f.severity = Warning
	switch ats := []string{c.gpu.ATS, c.peer.ATS}; {
	case c.peer.ATS == "on" && (c.gpu.ATS == "on" || !c.gpus): // a NIC asks, a GPU answers
		return f, false
	case slices.Contains(ats, "off") || slices.Contains(ats, "absent"):
		f.means += "; direct translated requests are allowed, but not both devices use ATS"
	default:
		f.means += ", unless both devices use ATS, which is not known: direct translated requests are allowed"
		f.fix = "nothing where lspci -vvv as root says ATSCtl: Enable+ of GPUs and NICs; else, " + redir
	}
	return f, true
}

// rootFault judges a crossing at root ports of which one redirects.
func (h *host) rootFault(c *crossing, o *outcome) (f acsFault, ok bool) {
	f = acsFault{severity: Warning, where: "root port", means: "requests between %s are redirected to the IOMMU there"}
	switch kinds := []string{h.translation(c.gpu), h.translation(c.peer)}; {
	case slices.Contains(kinds, ""):
		o.missing("ACS redirect is on at root ports, and whether an IOMMU translates what is sent there is not known", h.lookAgain(), functionIDs(c.ports)...)
		return f, false
	case slices.Contains(kinds, "on"):
		f.means += "; both are in IOMMU groups, so an IOMMU is on, and with translation peer access may hang, be slow or corrupt data"
	default:
		f.means += ", which translates: peer access may hang, be slow or corrupt data"
	}
	f.fix = "see /sys/kernel/iommu_groups/*/type: identity is fine; for DMA and DMA-FQ boot with " + h.passOption() + ", or, if no device is passed through to a virtual machine, with %s (Linux 4.19): " +
		merges + "; until then NCCL_P2P_DISABLE=1 keeps NCCL off that way"
	return f, true
}

func checkACS(h *host) (o outcome) {
	if len(h.gpus) == 0 || len(h.directDevices())+len(h.dataDirect()) < 2 {
		if h.imported() && len(h.gpus) > 0 && len(h.t.PCIDevices) == 0 {
			return couldNotCheck("the input has no PCI functions", h.asRoot())
		}
		return notApplicable("needs a GPU, and a second GPU or RDMA hardware")
	}
	guest, known := h.guest()
	list := h.crossings()
	use := h.acsUse(list)
	var by groups[acsFault, *crossing]
	var seen []*topo.PCIDevice
	o.absent = "no GPU shares a PCIe switch with another GPU or an RDMA NIC"
	for i := range list {
		c := &list[i]
		if c.root && h.translation(c.gpu) == "identity" && h.translation(c.peer) == "identity" {
			o.absent = "no GPU shares a PCIe switch with another GPU or an RDMA NIC, and at root ports no IOMMU translates"
			continue
		}
		if c.root && c.ports[0].Vendor == "0x10de" {
			continue // Grace and Vera want it
		}
		seen = append(seen, c.ports...)
		if !h.acsKnown(c.ports[0]) || !h.acsKnown(c.ports[1]) || !slices.ContainsFunc(c.ports, redirects) {
			continue
		}
		var f acsFault
		var bad bool
		switch {
		case c.root:
			f, bad = h.rootFault(c, &o)
		case c.insideConnectX():
			f, bad = insideFault(c, use, &o)
		default:
			f, bad = h.switchFault(c)
		}
		if bad {
			by.add(f, c)
		}
	}
	seen = unique(seen)
	slices.SortFunc(seen, byAddress)
	for _, d := range seen {
		if !h.acsKnown(d) && !guest {
			sentence := "configuration space could not be read far enough for the ACS register"
			if n := h.t.Host.ConfigBytes; n != nil {
				sentence = fmt.Sprintf("configuration space was read to %d bytes only, the ACS register is beyond 256", *n)
			}
			o.missing(sentence, h.asRoot(), d.ID)
		}
	}
	by.each(func(f acsFault, list []*crossing) { o.find(f.finding(list)) })
	if len(seen) > 0 {
		o.absent, o.note = "", text.Plural(len(seen), "port")
		if use != (acsUse{}) {
			o.note += ", inside ConnectX switches as for " + use.name
		}
	}
	switch {
	case guest:
		o.missingOfHost("a guest does not see the PCIe switches of its host", "look at ACS on the host of the virtual machine")
	case len(seen) == 0 && !known:
		if len(h.t.Switches) == 0 {
			o.absent = "no PCIe switch is visible"
		}
		o.missingOfHost(o.absent+"; whether the host is a virtual machine, which would hide switches, is not known", h.lookAgain())
	}
	return o
}

// finding says at which ports a fault is, and with which option of the kernel they are set right.
func (f acsFault) finding(list []*crossing) Finding {
	wrong, option := "ACS redirect is on at", "pci=disable_acs_redir="
	if f.use != (acsUse{}) {
		wrong, option = "ACS is not set as "+f.use.name+" needs it at", "pci=config_acs="
	}
	right := map[*topo.PCIDevice]string{} // a port, as the option sets it
	for _, c := range list {
		want := f.use.wanted(c)
		for i, d := range c.ports {
			switch {
			case f.use == acsUse{} && redirects(d):
				right[d] = d.BDF.String()
			case f.use != acsUse{} && !fits(d, want[i]):
				right[d] = want[i] + "@" + d.BDF.String()
			}
		}
	}
	ports := slices.SortedFunc(maps.Keys(right), byAddress)
	out := Finding{Severity: f.severity, Subjects: functionIDs(ports)}
	for _, d := range ports {
		if d.ACS != nil {
			out.Evidence = append(out.Evidence, pciFile(d, "config", "ACS control "+string(d.ACS.Control)))
		}
	}
	names := mapped(ports, func(d *topo.PCIDevice) string { return d.BDF.String() })
	out.Text = fmt.Sprintf("%s %s (%s): "+f.means, wrong, text.Plural(len(ports), f.where), text.Join(names, mostNames), list[0].pair)
	out.Fix = fmt.Sprintf(f.fix, option+strings.Join(mapped(ports, func(d *topo.PCIDevice) string { return right[d] }), ";"))
	return out
}

func byAddress(a, b *topo.PCIDevice) int { return a.BDF.Compare(b.BDF) }

func functionIDs(list []*topo.PCIDevice) []topo.ID {
	return mapped(list, func(d *topo.PCIDevice) topo.ID { return d.ID })
}
