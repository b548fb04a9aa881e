package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel"
)

func checkUsable(h *host) outcome {
	hardware := h.hardwarePorts()
	ports := slices.Clone(h.ports)
	if len(ports) == 0 {
		if h.imported() {
			return notApplicable("the input has no NIC")
		}
		return notApplicable("no NIC")
	}
	var o outcome
	usable, certain := 0, 0
	for i := range ports {
		if p := &ports[i]; p.Usable {
			usable++
			if n := h.netdev[p.Netdev]; h.state(p) == "ACTIVE" || !p.RDMA() && n != nil && n.State != "" {
				certain++
			}
		}
	}
	switch {
	case usable == 0:
		f := h.unusable(ports, Error, "no port can be used: ")
		o.find(f)
	case len(hardware) > 0 && h.paths.Transport() == pathsel.TCP:
		var list []pathsel.Port
		for _, p := range hardware {
			list = append(list, *p)
		}
		o.find(h.unusable(list, Warning, "no port of the RDMA hardware can be used, so data goes by TCP: "))
	case certain == 0:
		o.lack("the states of the ports are not told", h.lookAgain())
	}
	o.note = fmt.Sprintf("%d of %s", usable, count(len(ports), "port"))
	return o
}

// unusable lists ports by the first reason why they cannot be used.
func (h *host) unusable(ports []pathsel.Port, severity Severity, intro string) Finding {
	f := Finding{Severity: severity, Fix: "see port-down, gid-missing and uverbs-inaccessible; topoctl path gpu:0 shows every reason"}
	var why bins[string, string]
	for i := range ports {
		p := &ports[i]
		f.Subjects = append(f.Subjects, p.ID)
		if len(p.Reasons) > 0 {
			// In TCP terms an RDMA port that is down is one without address.
			r := p.Reasons[0]
			if s := h.state(p); p.RDMA() && s != "" && s != "ACTIVE" {
				r = pathsel.Reason{Code: pathsel.CodePortDown, Text: "port state " + s, Evidence: h.portFile(p, "state", s)}
			}
			why.add(string(r.Code)+": "+r.Text, p.Name)
			f.Evidence = places(append(f.Evidence, r.Evidence)...)
		}
	}
	var parts []string
	why.each(func(reason string, names []string) { parts = append(parts, some(names)+" ("+reason+")") })
	f.Text = intro + strings.Join(parts, "; ")
	return f
}

func checkUverbs(h *host) outcome {
	list := h.rdmaDevices()
	if len(list) == 0 {
		return notApplicable("no RDMA device")
	}
	var o outcome
	var untold []topo.ID
	var shut bins[string, *topo.RDMADevice]
	bad := 0
	for _, r := range list {
		switch r.Uverbs {
		case "rw":
		case "ro", "denied", "none":
			shut.add(r.Uverbs, r)
			bad++
		default:
			untold = append(untold, r.ID)
		}
	}
	severity := Warning
	if bad == len(list) {
		severity = Error
	}
	shut.each(func(access string, devices []*topo.RDMADevice) {
		f := Finding{Severity: severity, Fix: "in a container: --device /dev/infiniband; on the host: permissions of /dev/infiniband (rdma-core)"}
		for _, r := range devices {
			f.Subjects = append(f.Subjects, r.ID)
			for _, c := range r.CharDevs {
				if strings.Contains(c, "/uverbs") {
					f.Evidence = append(f.Evidence, c)
				}
			}
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
	if len(untold) > 0 {
		o.lack("access to the device files can be tried on the running host only", h.onHost(), untold...)
	}
	o.note = count(len(list), "RDMA device")
	return o
}
