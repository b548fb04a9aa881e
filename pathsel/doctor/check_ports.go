package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/compare"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

func checkPortDown(h *host) (o outcome) {
	for _, p := range h.rdmaPorts {
		switch state := h.state(p); {
		case p.Role == pathsel.RoleDecoy:
		case state == "":
			o.missing("the state of the port is not known", h.lookAgain(), p.ID)
		default:
			o.judged++
			if state != "ACTIVE" {
				o.find(h.downPort(p, state))
			}
		}
	}
	return o
}

// loss is what a location loses by a port that is down.
type loss struct {
	location pathsel.Location
	class    topo.Class // of the port that is down
}

// losses compares a port that is down with the remaining ports, for each GPU, or for each NUMA
// node of a host without GPUs. equal says that some location has another port that is as near;
// unsure says that another port may be as near, because its place is not known.
func (h *host) losses(p *pathsel.Port) (lost []loss, equal, unsure bool) {
	locations := h.paths.GPUs()
	if len(locations) == 0 {
		locations = h.paths.Locations()
	}
	for _, l := range locations {
		a, err := h.paths.Affinity(l, nil)
		if err != nil {
			continue
		}
		c := h.class(l.Node(), p.NIC)
		best := topo.Class{} // of what is left
		for _, x := range a.Ranked {
			if x.Class.Compare(best) < 0 {
				best = x.Class
			}
		}
		switch order := c.Compare(best); {
		case len(a.Ranked) == 0:
			lost = append(lost, loss{l, c})
		case !c.Known() || order > 0:
		case order == 0:
			equal = true
		case slices.ContainsFunc(a.Ranked, func(x pathsel.Candidate) bool { return !x.Class.Known() }):
			unsure = true
		default:
			lost = append(lost, loss{l, c})
		}
	}
	return lost, equal, unsure
}

func (h *host) downPort(p *pathsel.Port, state string) Finding {
	phys := ""
	if x := h.Port(p.ID); x != nil {
		phys = x.PhysState
	}
	cause := h.whyDown(p, state, phys)
	f := Finding{Severity: Info, Subjects: []topo.ID{p.ID}, Fix: cause.fix,
		Evidence: append([]string{h.portFile(p, "state", state)}, cause.evidence...)}
	f.Text = "port is " + state
	if phys != "" {
		f.Evidence = slices.Insert(f.Evidence, 1, h.portFile(p, "phys_state", phys))
		f.Text += " (" + phys + ")"
	}
	if cause.text != "" {
		f.Text += ", " + cause.text
	}
	if p.Software {
		f.Severity = Warning
		f.Text += ": RDMA cannot use it"
		return f
	}
	lost, equal, unsure := h.losses(p)
	switch {
	case p.Role != pathsel.RoleData:
		f.Text += fmt.Sprintf("; its role is %s, no GPU depends on it", p.Role)
	case len(lost) > 0:
		f.Severity = Error
		if len(h.t.GPUs) == 0 {
			f.Severity = Warning
		}
		f.Text += ": " + h.fallbacks(lost)
	case h.spare(p):
		f.Text += "; the other port of its card is up and as near, and no card here has all of its ports up"
	case equal:
		f.Severity = Warning
		f.Text += ": another port as near is left, its bandwidth is lost"
	case unsure:
		f.Severity = Warning
		f.Text += ": whether another port as near is left is not known"
	default:
		f.Text += "; no GPU has it as its nearest"
	}
	return f
}

// spare says whether a port that is down looks like one that was never meant
// to be used: another port of its card is up, and no card with several data
// ports has all of them up.
func (h *host) spare(p *pathsel.Port) bool {
	type card struct{ up, ports int }
	cards := map[topo.ID]card{}
	for _, q := range h.dataPorts {
		c := cards[q.Card]
		c.ports++
		if h.state(q) == "ACTIVE" {
			c.up++
		}
		cards[q.Card] = c
	}
	for id, c := range cards {
		if id != "" && c.ports > 1 && c.up == c.ports {
			return false
		}
	}
	return p.Card != "" && cards[p.Card].up > 0
}

// fallbacks says for each location that lost its nearest port what the plan for all of them gives it instead.
func (h *host) fallbacks(lost []loss) string {
	const most = 4
	plan, err := h.paths.Plan(nil)
	var out []string
	for i, l := range lost {
		if i == most {
			out = append(out, fmt.Sprintf("%d more locations", len(lost)-most))
			break
		}
		var a *pathsel.Assignment
		if err == nil {
			a, _ = plan.Of(string(l.location))
		}
		if a == nil || len(a.Ports) == 0 {
			out = append(out, fmt.Sprintf("%s has no usable port left", l.location))
			continue
		}
		next := &a.Ports[0]
		s := fmt.Sprintf("%s falls back to %s: %s instead of %s", l.location, next.Name, next.Class, l.class)
		if r := a.BytesPerSec; r != nil {
			s += ", " + h.bounded(*r, a.Basis)
		}
		if load, ok := plan.Load(next.Port); ok && len(load.Consumers) > 1 {
			s += ", shared with " + text.Join(slices.DeleteFunc(slices.Clone(load.Consumers), func(c string) bool { return c == a.Consumer }), mostNames)
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// bounded prints a rate with how sure it is.
func (h *host) bounded(r topo.Rate, basis topo.Basis) string {
	return basis.Text(h.rate(r))
}

func checkVFs(h *host) (o outcome) {
	o.judged = len(h.hardware)
	var by groups[topo.ID, *pathsel.Port]
	for _, p := range matching(h.ports, func(p *pathsel.Port) bool { return p.RDMA() && p.PF != "" }) {
		by.add(p.PF, p)
	}
	by.each(func(pf topo.ID, vfs []*pathsel.Port) {
		p, _ := h.paths.Port(pf)
		sentence := fmt.Sprintf("%s and %s of it (%s) are all visible: %d devices, one wire", p.Name, text.Plural(len(vfs), "virtual function"), portList(vfs), len(vfs)+1)
		if p.BytesPerSec != nil && *p.BytesPerSec > 0 {
			sentence += " of " + h.wire(*p.BytesPerSec)
		}
		f := Finding{Severity: Warning, Subjects: append([]topo.ID{pf}, ids(vfs)...), Text: sentence + "; programs that list devices count each as bandwidth",
			Fix: "configure them with the physical functions only (NCCL_IB_HCA, UCX_NET_DEVICES: topoctl export env --for nccl), or hide the virtual ones"}
		if d := h.function(vfs[0]); d != nil {
			f.Evidence = []string{pciFile(d, "physfn", d.PF.Name())}
		}
		o.find(f)
	})
	for _, r := range h.hardware {
		d := h.PCIDevice(r.PCI)
		if d == nil || d.SRIOV == nil || d.SRIOV.NumVFs == nil {
			continue
		}
		if n := len(h.VFs(d.ID)); n < *d.SRIOV.NumVFs {
			o.missingOfHost(fmt.Sprintf("%s has %s, and %d can be told by physfn: others may look like NICs of their own", r.Name, text.Plural(*d.SRIOV.NumVFs, "virtual function"), n), h.lookAgain())
		}
	}
	if o.judged > 0 && h.imported() && len(by.order) == 0 {
		o.missingOfHost("the input does not distinguish virtual functions from physical ones", h.lookAgain())
	}
	return o
}

func checkSoftware(h *host) (o outcome) {
	var plain, siw []topo.ID
	var evidence []string
	for i := range h.t.RDMADevices {
		r := &h.t.RDMADevices[i]
		o.judged++
		switch {
		case !r.Software:
			if h.imported() && r.PCI == "" {
				o.missing("the input does not distinguish software devices from hardware", h.lookAgain(), r.ID)
			}
			continue
		case r.Driver == "siw" && len(h.nvidia()) > 0:
			siw = append(siw, r.ID)
		default:
			plain = append(plain, r.ID)
		}
		evidence = append(evidence, r.Evidence)
	}
	if len(siw) > 0 {
		o.find(Finding{Severity: Warning, Subjects: siw, Evidence: evidence,
			Text: "software RDMA (siw) on a host with NVIDIA GPUs: nvidia-smi topo -m fails as a whole when there is such a device",
			Fix:  "rdma link delete " + siw[0].Name() + ", if nothing needs it"})
	}
	if len(plain) > 0 {
		o.find(Finding{Severity: Info, Subjects: plain, Evidence: evidence,
			Text: "software RDMA: no hardware of its own, cannot reach GPU memory, costs CPU time",
			Fix:  "rdma link delete " + plain[0].Name() + ", if nothing needs it"})
	}
	return o
}

// A downCause is why a port is not ACTIVE, as far as the host shows.
type downCause struct {
	text     string // for a sentence, "" where nothing shows it
	fix      string
	evidence []string
}

// lookAtCable is the advice about a port that is down or slow, in the words that a fleet uses too.
var lookAtCable = compare.Of("state").Fix

// whyDown looks for the reason of a port's state: on Ethernet at its interface,
// which the port follows, on InfiniBand at the physical state.
func (h *host) whyDown(p *pathsel.Port, state, phys string) downCause {
	if p.LinkLayer == "Ethernet" || p.Software {
		if c, ok := h.interfaceDown(p); ok {
			return c
		}
		return downCause{"", lookAtCable + ": " + h.linkTool(p), nil}
	}
	switch {
	case phys == "LinkUp" && state == "ARMED":
		return downCause{"the subnet manager has begun and not finished with it",
			"look at opensm or UFM of the fabric: it stopped half-way, another sweep should make the port ACTIVE", nil}
	case phys == "LinkUp" && state != "DOWN":
		return downCause{"the link is up and no subnet manager has looked at it",
			"the link is up and waits for a subnet manager: look at opensm or UFM of the fabric", nil}
	case phys == "Disabled":
		return downCause{"it is switched off", "the port is switched off, on this host or by the switch: mlxlink -d " + p.Device + ", ibportstate", nil}
	case phys == "Polling":
		return downCause{"nothing answers at the other end", lookAtCable + ": mlxlink -d " + p.Device, nil}
	case phys == "PortConfigurationTraining":
		return downCause{"both ends cannot agree on speed and width", "look at cable and transceiver, and at the speeds that the switch port allows: mlxlink -d " + p.Device, nil}
	case phys == "LinkErrorRecovery":
		return downCause{"the link is unstable", "the link is unstable: look at cable and transceiver (mlxlink -d " + p.Device + " -c)", nil}
	}
	return downCause{"", lookAtCable + ": mlxlink -d " + p.Device, nil}
}

// linkTool is the command that shows a port's cable and link.
func (h *host) linkTool(p *pathsel.Port) string {
	if p.Device == "" || p.Software {
		return "ethtool " + cmp.Or(p.Netdev, "DEV")
	}
	return "mlxlink -d " + p.Device
}

// interfaceDown reads the reason from the port's own interface; false where
// that is not visible or does not show it.
func (h *host) interfaceDown(p *pathsel.Port) (downCause, bool) {
	n := h.ownNetdev(p)
	if n == nil {
		return downCause{}, false
	}
	off, on := n.AdminUp != nil && !*n.AdminUp, n.AdminUp != nil && *n.AdminUp
	switch {
	case off:
		return downCause{"its interface is switched off", "ip link set " + n.Name + " up; if it does not stay up, see what manages it (NetworkManager, netplan, ifupdown)",
			[]string{h.netFile(n.Name, "flags", "without IFF_UP")}}, true
	case n.State == "lowerlayerdown":
		return downCause{"what is below its interface is down", "look at the interface below: ip -d link show " + n.Name,
			[]string{h.netFile(n.Name, "operstate", n.State)}}, true
	case n.Carrier != nil && !*n.Carrier:
		return downCause{"its interface has no carrier", "the interface is switched on and gets no signal: " + lookAtCable + " (ethtool -m " + n.Name + ", " + h.linkTool(p) + ")",
			[]string{h.netFile(n.Name, "carrier", "0")}}, true
	case n.State == "dormant":
		return downCause{"its interface waits to be authorized", "the link is up and the network has not authorized it: look at 802.1X (wpa_supplicant) or LACP",
			[]string{h.netFile(n.Name, "operstate", n.State)}}, true
	case on && n.Carrier != nil:
		return downCause{"though its interface is up and has carrier", "the driver did not follow its interface: dmesg, rdma link show; then ip link set " + n.Name + " down and up",
			[]string{h.netFile(n.Name, "carrier", "1")}}, true
	case n.State == "down":
		return downCause{"its interface is down", "ip link set " + n.Name + " up; if that is done, " + lookAtCable + " (" + h.linkTool(p) + ")",
			[]string{h.netFile(n.Name, "operstate", n.State)}}, true
	}
	return downCause{}, false
}

// ownNetdev is the interface whose state a RoCE port follows: its own, or what
// IP uses (the bond of the legs).
func (h *host) ownNetdev(p *pathsel.Port) *topo.Netdev {
	var names []string
	if x := h.Port(p.ID); x != nil {
		names = x.Netdevs
	}
	if r := h.RDMADevice(p.NIC); r != nil && len(r.Netdevs) == 1 {
		names = append(names[:len(names):len(names)], r.Netdevs...)
	}
	for _, name := range append(names[:len(names):len(names)], p.Netdev) {
		if n := h.NetdevNamed(name); n != nil && n.LinkKind != "vlan" && n.LinkKind != "macvlan" {
			return n
		}
	}
	return nil
}

func checkUsable(h *host) (o outcome) {
	hardware := h.hardwarePorts
	switch n := len(h.networkFunctions()); {
	case len(h.ports) > 0:
	case n > 0:
		return couldNotCheck("neither interfaces nor RDMA devices of "+text.Plural(n, "NIC function")+" are visible", h.seeInterfaces())
	case h.imported():
		return notApplicable("the input has no NIC")
	default:
		return notApplicable("no NIC")
	}
	certain := false
	for i := range h.ports {
		if p := &h.ports[i]; p.Usable {
			o.judged++
			certain = certain || h.surelyUsable(p)
		}
	}
	switch {
	case o.judged == 0:
		o.find(h.unusable(matching(h.ports, func(*pathsel.Port) bool { return true }), Error, "no port can be used: "))
	case len(hardware) > 0 && h.paths.Transport() == pathsel.TCP:
		o.find(h.unusable(hardware, Warning, "no port of the RDMA hardware can be used, so data goes by TCP: "))
	}
	if o.judged > 0 && !certain {
		o.missingOfHost("the states or addresses of the ports are not known", h.lookAgain())
	}
	o.note = fmt.Sprintf("%d of %s", o.judged, text.Plural(len(h.ports), "port"))
	return o
}

// surelyUsable says whether all facts that make a port usable are known.
func (h *host) surelyUsable(p *pathsel.Port) bool {
	if h.paths.Transport() == pathsel.RDMA {
		return h.state(p) == "ACTIVE"
	}
	n := h.NetdevNamed(p.Netdev)
	return n != nil && n.State != "" && h.paths.AddressesKnown()
}

// unusable lists ports by the first reason why they cannot be used.
func (h *host) unusable(ports []*pathsel.Port, severity Severity, intro string) Finding {
	f := Finding{Severity: severity, Subjects: ids(ports), Fix: "see port-down, gid-missing and uverbs-inaccessible; topoctl path gpu:0 shows every reason"}
	var why groups[string, string]
	rdma, err := pathsel.New(h.t, pathsel.Options{Transport: pathsel.RDMA})
	for _, p := range ports {
		// For an RDMA port, the reason is why RDMA cannot use it, even if data goes by TCP now.
		if err == nil && p.RDMA() {
			if x, ok := rdma.Port(p.ID); ok && !x.Usable {
				p = &x
			}
		}
		if p.Usable || len(p.Reasons) == 0 {
			continue
		}
		r := p.Reasons[0]
		why.add(string(r.Code)+": "+r.Text, p.Name)
		f.Evidence = append(f.Evidence, r.Evidence)
	}
	var parts []string
	why.each(func(reason string, names []string) {
		parts = append(parts, text.Join(names, mostNames)+" ("+reason+")")
	})
	f.Text = intro + strings.Join(parts, "; ")
	return f
}

func checkUverbs(h *host) (o outcome) {
	var shut groups[string, *topo.RDMADevice]
	bad := 0
	for _, r := range h.rdmaDevices {
		o.judged++
		switch r.Uverbs {
		case "rw":
		case "ro", "denied", "none":
			shut.add(r.Uverbs, r)
			bad++
		default:
			o.missing("access to the device files can be tried on the running host only", h.onHost(), r.ID)
		}
	}
	severity := Warning
	if bad == o.judged {
		severity = Error
	}
	shut.each(func(access string, devices []*topo.RDMADevice) {
		f := Finding{Severity: severity, Fix: "in a container: --device /dev/infiniband; on the host: permissions of /dev/infiniband (rdma-core)"}
		for _, r := range devices {
			f.Subjects = append(f.Subjects, r.ID)
			f.Evidence = append(f.Evidence, slices.DeleteFunc(slices.Clone(r.CharDevs), func(c string) bool { return !strings.Contains(c, "/uverbs") })...)
		}
		switch access {
		case "ro":
			f.Text = "this process may read the uverbs file, not write it: it cannot use the device"
		case "denied":
			f.Text = "this process may not open the uverbs file: it cannot use the device"
		default:
			f.Text = "there is no uverbs file: no program here can use the device"
			f.Fix = "in a container: --device /dev/infiniband; on the host: modprobe ib_uverbs"
		}
		o.find(f)
	})
	return o
}

func checkLAG(h *host) (o outcome) {
	for _, p := range h.hardwarePorts {
		if len(p.Legs) == 0 && p.LinkLayer != "InfiniBand" && h.RDMADevice(p.NIC).Transport != "efa" && p.Netdev == "" {
			o.missing("the interface of the port is not visible, so whether it is a bond", h.seeInterfaces(), p.ID)
			continue
		}
		o.judged++
		if len(p.Legs) > 0 {
			o.find(h.bond(p))
		}
	}
	return o
}

// seeInterfaces says how to see the interfaces of RDMA devices.
func (h *host) seeInterfaces() string {
	if h.imported() {
		return h.lookAgain()
	}
	return "run topoctl in the network namespace of the interface (in a container: host network)"
}

// bond is the finding about a port that is a bond.
func (h *host) bond(p *pathsel.Port) Finding {
	n := h.NetdevNamed(p.Netdev)
	if n != nil && n.Bond == nil && h.NetdevNamed(n.Master) != nil {
		n = h.NetdevNamed(n.Master)
	}
	f := Finding{Severity: Info, Subjects: []topo.ID{p.ID}, Basis: topo.BasisRead}
	sentence := "a bond of " + text.Plural(len(p.Legs), "interface")
	if n != nil {
		f.Evidence = []string{h.netFile(n.Name, "bonding/slaves", strings.Join(p.Legs, " "))}
		if b := n.Bond; b != nil && b.Mode != "" {
			sentence += " (" + strings.TrimSuffix(b.Mode+", "+b.HashPolicy, ", ") + ")"
		}
	}
	var down []string
	sum, most := topo.Rate(0), topo.Rate(0)
	for _, leg := range p.Legs {
		l := h.NetdevNamed(leg)
		switch {
		case l == nil:
		case l.State != "" && l.State != "up" && l.State != "unknown":
			down = append(down, leg)
			f.Evidence = append(f.Evidence, h.netFile(leg, "operstate", l.State))
		case l.BytesPerSec != nil:
			sum, most = sum+*l.BytesPerSec, max(most, *l.BytesPerSec)
		}
	}
	if most > 0 {
		sentence += fmt.Sprintf(": one connection uses one leg, %s of %s", h.wire(most), h.wire(sum))
	} else {
		sentence += ": one connection uses one leg"
	}
	f.Fix = fmt.Sprintf("%d or more queue pairs for each peer: NCCL_IB_QPS_PER_CONNECTION=%d", len(p.Legs), len(p.Legs))
	if len(down) > 0 {
		f.Severity = Warning
		sentence += fmt.Sprintf("; %s %s down", text.Join(down, mostNames), text.Noun(len(down), "is", "are"))
		f.Fix = "look at cable and switch port of " + text.Join(down, mostNames)
	}
	if n != nil && n.Bond != nil && n.Bond.Mode == "active-backup" {
		sentence += "; the mode is active-backup, so the other legs stay idle"
		f.Fix = "802.3ad (LACP), if the switch can, makes use of all legs"
	}
	f.Text = sentence
	return f
}
