package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

var portChecks = []Check{
	{
		Code: "port-down", Family: "RDMA ports", Severity: Error,
		Title: "every RDMA port is ACTIVE",
		Judged: "A port that is not ACTIVE is an error if it is nearer to a GPU than every port that is left: the fallback and its cost are named. " +
			"It is a warning if an equally near port is left (bandwidth is lost), and info if no GPU prefers it, or if it looks unused on purpose: " +
			"the card's other port is up, and no card has all of its ports up. " +
			"Decoys are left out, and virtual functions beside their physical function. Software devices count on hosts without RDMA hardware: a warning. " +
			"The cause comes from the port's interface (switched off, no carrier, something below it down), on InfiniBand from the physical state.",
		Facts: "state and phys_state in /sys/class/infiniband/DEV/ports/N; flags, carrier and operstate in /sys/class/net",
		Fix:   "Switched off: ip link set DEV up. No carrier, Polling: cable, transceiver, switch port. INIT or ARMED: the subnet manager. Carrier and yet DOWN: the driver, dmesg.",
		run:   checkPortDown,
	},
	{
		Code: "no-usable-port", Family: "RDMA ports", Severity: Error,
		Title:  "data can leave the host by a usable port, and by RDMA where the host has the hardware",
		Judged: "No usable port at all is an error; RDMA hardware of which no port is usable, so that TCP is left, is a warning.",
		Facts:  "port states, GID tables, LIDs, device files, interface states and addresses",
		Fix:    "Each port is listed with the first reason that rules it out.",
		run:    checkUsable,
	},
	{
		Code: "uverbs-inaccessible", Family: "RDMA ports", Severity: Error,
		Title:  "this process may use every RDMA device",
		Judged: "The device file is opened for reading and writing. No device that can be used is an error, some are a warning.",
		Facts:  "/dev/infiniband/uverbsN, opened on the running host only",
		Fix:    "In a container: --device /dev/infiniband, or the RDMA device plugin. On a host: the permissions of /dev/infiniband (rdma-core's udev rules); modprobe ib_uverbs.",
		run:    checkUverbs,
	},
	{
		Code: "rdma-lag", Family: "RDMA ports", Severity: Warning,
		Title:  "no RDMA device is a bond, or its legs are all up",
		Judged: "A bond is info: one connection uses one leg, so programs need several. A leg that is down is a warning.",
		Facts:  "bonding, master and operstate in /sys/class/net",
		Fix:    "At least as many queue pairs for each peer as there are legs: NCCL_IB_QPS_PER_CONNECTION=2 or more; xmit_hash_policy layer3+4.",
		run:    checkLAG,
	},
	{
		Code: "pf-and-vf-visible", Family: "RDMA ports", Severity: Warning,
		Title:  "no virtual function is visible beside its physical function",
		Judged: "RDMA devices that are virtual functions of another RDMA device here. They share its wire and slot, but programs that list devices count each as bandwidth.",
		Facts:  "physfn in /sys/bus/pci/devices",
		Fix:    "Name the physical functions: NCCL_IB_HCA, UCX_NET_DEVICES (topoctl export env --for nccl); or hide the virtual functions (RDMA namespaces, sriov_numvfs).",
		run:    checkVFs,
	},
	{
		Code: "software-rdma", Family: "RDMA ports", Severity: Warning,
		Title: "no RDMA device is software",
		Judged: "rxe and siw devices are info: they have no hardware, cannot reach GPU memory and cost CPU time. siw on a host with NVIDIA GPUs " +
			"is a warning, because nvidia-smi topo -m then fails as a whole.",
		Facts: "/sys/class/infiniband, /sys/module",
		Fix:   "rdma link delete NAME, if nothing needs it.",
		run:   checkSoftware,
	},
}

func checkPortDown(h *host) outcome {
	var o outcome
	var untold []topo.ID
	looked := 0
	for _, p := range h.rdmaPorts() {
		if p.Role == pathsel.RoleDecoy {
			continue
		}
		switch state := h.state(p); state {
		case "":
			untold = append(untold, p.ID)
		case "ACTIVE":
			looked++
		default:
			looked++
			o.find(h.downPort(p, state))
		}
	}
	if len(untold) > 0 {
		o.lack("the state of the port is not told", h.lookAgain(), untold...)
	}
	if looked+len(untold) == 0 {
		return notApplicable("no RDMA port")
	}
	o.note = count(looked, "port")
	return o
}

// loss is what a location loses by a port that is down.
type loss struct {
	location pathsel.Location
	class    topo.Class         // of the port that is down
	next     *pathsel.Candidate // nil: nothing is left
}

// losses compares a port that is down with what is left, for each GPU, or for
// each NUMA node of a host without GPUs. equal says that some location has
// another port as near.
func (h *host) losses(p *pathsel.Port) (lost []loss, equal bool) {
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
		if len(a.Ranked) == 0 {
			lost = append(lost, loss{l, c, nil})
			continue
		}
		switch order := c.Compare(a.Ranked[0].Class); {
		case c.Known() && order < 0:
			lost = append(lost, loss{l, c, &a.Ranked[0]})
		case c.Known() && order == 0:
			equal = true
		}
	}
	return lost, equal
}

func (h *host) downPort(p *pathsel.Port, state string) Finding {
	phys := ""
	if x := h.port[p.ID]; x != nil {
		phys = x.PhysState
	}
	cause := h.whyDown(p, state, phys)
	f := Finding{Severity: Info, Subjects: []topo.ID{p.ID}, Fix: cause.fix,
		Evidence: places(append([]string{h.portFile(p, "state", state), h.portFile(p, "phys_state", phys)}, cause.evidence...)...)}
	f.Text = "port is " + state
	if phys != "" {
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
	lost, equal := h.losses(p)
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
	for _, q := range h.dataPorts() {
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

// fallbacks says for each location that lost its nearest port what is left.
func (h *host) fallbacks(lost []loss) string {
	const most = 4
	var out []string
	for i, l := range lost {
		if i == most {
			out = append(out, fmt.Sprintf("%d more locations", len(lost)-most))
			break
		}
		if l.next == nil {
			out = append(out, fmt.Sprintf("%s has no usable port left", l.location))
			continue
		}
		s := fmt.Sprintf("%s falls back to %s: %s instead of %s", l.location, l.next.Name, l.next.Class, l.class)
		if r := l.next.BytesPerSec; r != nil {
			s += ", " + h.bounded(*r, l.next.Basis)
		}
		if with := h.alsoUsing(l.next.Port, l.location); len(with) > 0 {
			s += ", shared with " + some(with)
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// bounded prints a rate with how sure it is.
func (h *host) bounded(r topo.Rate, basis topo.Basis) string {
	switch basis {
	case topo.BasisAssumed:
		return "at most " + h.rate(r)
	case topo.BasisConstant:
		return "about " + h.rate(r)
	}
	return h.rate(r)
}

// alsoUsing lists the other GPUs that prefer a port.
func (h *host) alsoUsing(port topo.ID, but pathsel.Location) []string {
	var out []string
	for _, l := range h.paths.GPUs() {
		if l == but {
			continue
		}
		if a, err := h.paths.Affinity(l, nil); err == nil && slices.Contains(a.Preferred(), port) {
			out = append(out, string(l))
		}
	}
	return out
}

func checkVFs(h *host) outcome {
	if len(h.hardware()) == 0 {
		return notApplicable("no RDMA hardware")
	}
	var o outcome
	var by bins[topo.ID, *pathsel.Port]
	for i := range h.ports {
		if p := &h.ports[i]; p.RDMA() && p.PF != "" {
			by.add(p.PF, p)
		}
	}
	by.each(func(pf topo.ID, vfs []*pathsel.Port) {
		p, _ := h.paths.Port(pf)
		text := fmt.Sprintf("%s and %s of it (%s) are all visible: %d devices, one wire", p.Name, count(len(vfs), "virtual function"), some(names(vfs)), len(vfs)+1)
		if p.BytesPerSec != nil && *p.BytesPerSec > 0 {
			text += " of " + h.wire(*p.BytesPerSec)
		}
		f := Finding{Severity: Warning, Subjects: append([]topo.ID{pf}, ids(vfs)...), Text: text + "; programs that list devices count each as bandwidth",
			Fix: "name the physical functions to them (NCCL_IB_HCA, UCX_NET_DEVICES: topoctl export env --for nccl), or hide the virtual ones"}
		if d := h.function(vfs[0]); d != nil {
			f.Evidence = places(pciFile(d, "physfn", d.PF.Name()))
		}
		o.find(f)
	})
	if h.imported() && len(by.order) == 0 {
		o.lack("the input does not tell virtual functions from physical ones", h.lookAgain())
	}
	o.note = count(len(h.hardware()), "RDMA device")
	return o
}

func checkSoftware(h *host) outcome {
	var o outcome
	var plain, siw, untold []topo.ID
	var evidence []string
	for i := range h.t.RDMADevices {
		r := &h.t.RDMADevices[i]
		switch {
		case r.Software && r.Driver == "siw" && len(h.nvidia()) > 0:
			siw = append(siw, r.ID)
		case r.Software:
			plain = append(plain, r.ID)
		case h.imported() && r.PCI == "":
			untold = append(untold, r.ID)
			continue
		default:
			continue
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
	if len(untold) > 0 {
		o.lack("the input does not tell software devices from hardware", h.lookAgain(), untold...)
	}
	if len(h.t.RDMADevices) == 0 {
		return notApplicable("no RDMA device")
	}
	o.note = count(len(h.t.RDMADevices), "RDMA device")
	return o
}
