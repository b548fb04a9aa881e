package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// plan is the balanced plan over all GPUs. If it is nil, the outcome says why there is no
// plan to judge.
func (h *host) plan() (*pathsel.Plan, outcome) {
	if len(h.gpus) == 0 || len(h.hardware) == 0 {
		return nil, notApplicable("needs GPUs and RDMA hardware")
	}
	if h.paths.Transport() != pathsel.RDMA {
		return nil, notApplicable("no port of the RDMA hardware can be used, see no-usable-port")
	}
	p, err := h.paths.Plan(nil)
	if err != nil {
		return nil, couldNotCheck("there is no plan: "+err.Error(), "see topoctl path --plan")
	}
	var o outcome
	for _, a := range p.Assignments {
		if slices.ContainsFunc(a.Ports, func(c pathsel.Candidate) bool { return !c.Class.Known() }) {
			o.missing("its distance to NICs is not known", h.placeHow(), a.Location.Node())
		}
	}
	if len(o.unknown) > 0 {
		return nil, o
	}
	for _, load := range p.Ports {
		if x := h.Port(load.Port); x == nil || x.State == "" {
			o.missing("the state of the port is not known, so whether it takes part", h.lookAgain(), load.Port)
		}
	}
	if len(o.unknown) > 0 {
		return nil, o
	}
	o.note = fmt.Sprintf("%s for %s", text.Plural(len(p.Ports), "port"), text.Plural(len(p.Assignments), "GPU"))
	return p, o
}

func checkUnassigned(h *host) outcome {
	p, o := h.plan()
	if p == nil {
		return o
	}
	for _, a := range p.Assignments {
		for _, c := range a.Ports {
			if c.Reason.Code != pathsel.CodeSpare {
				continue
			}
			sentence := fmt.Sprintf("no GPU has it among its nearest: engines that take the nearest NIC leave it idle; a balanced plan gives it to %s (%s", a.Consumer, c.Class)
			if c.BytesPerSec != nil {
				sentence += ", " + h.bounded(*c.BytesPerSec, c.Basis)
			}
			o.find(Finding{Severity: Warning, Subjects: []topo.ID{c.Port}, Text: sentence + ")", Basis: c.Basis,
				Evidence: []string{h.rdmaEvidence(c.Port)}, Fix: "give it to a rank as the plan does, or keep it for storage on purpose; " + perRank})
		}
	}
	for _, load := range p.Ports {
		if len(load.Consumers) == 0 {
			o.find(Finding{Severity: Warning, Subjects: []topo.ID{load.Port}, Text: "the balanced plan has no use for it",
				Evidence: []string{h.rdmaEvidence(load.Port)}, Fix: "topoctl path --plan shows why"})
		}
	}
	return o
}

func (h *host) rdmaEvidence(port topo.ID) string {
	if x := h.Port(port); x != nil {
		return x.Evidence
	}
	return ""
}

func checkOversubscribed(h *host) outcome {
	p, o := h.plan()
	if p == nil {
		return o
	}
	if len(p.Ports) == 0 {
		return notApplicable("no usable port, see no-usable-port")
	}
	fewer := func(a, b pathsel.PortLoad) int { return len(a.Consumers) - len(b.Consumers) }
	least, most := slices.MinFunc(p.Ports, fewer), slices.MaxFunc(p.Ports, fewer)
	switch {
	case len(most.Consumers) > 1 && len(most.Consumers)-len(least.Consumers) > 1 && h.sameRate(most.Port, least.Port):
		o.find(Finding{Severity: Warning, Subjects: []topo.ID{most.Port}, Evidence: []string{h.rdmaEvidence(most.Port)},
			Text: fmt.Sprintf("it carries %d GPUs (%s) while %s carries %d", len(most.Consumers), text.Join(most.Consumers, mostNames), least.Name, len(least.Consumers)),
			Fix:  "topoctl path --plan shows it; look for ports that are down"})
	case len(most.Consumers) > 1:
		o.find(h.shared(p, most))
	default:
		h.pileUp(&o, p)
	}
	return o
}

func (h *host) sameRate(a, b topo.ID) bool {
	x, ok1 := h.paths.Port(a)
	y, ok2 := h.paths.Port(b)
	return ok1 && ok2 && x.BytesPerSec != nil && y.BytesPerSec != nil && *x.BytesPerSec == *y.BytesPerSec
}

// shared says what each GPU gets if there are more GPUs than ports.
func (h *host) shared(p *pathsel.Plan, most pathsel.PortLoad) Finding {
	f := Finding{Severity: Info, Evidence: []string{h.rdmaEvidence(most.Port)}, Fix: h.fewPorts(p)}
	for _, l := range p.Ports {
		if len(l.Consumers) > 1 {
			f.Subjects = append(f.Subjects, l.Port)
		}
	}
	f.Text = fmt.Sprintf("%s share %s, up to %d on one (%s)", text.Plural(len(p.Assignments), "GPU"), text.Plural(len(p.Ports), "port"), len(most.Consumers), most.Name)
	if b := p.Bottleneck; b != nil {
		f.Text += fmt.Sprintf("; while all are busy the slowest gets %s", h.bounded(b.SlowestBytesPerSec, b.Basis))
		f.Basis = b.Basis
	}
	return f
}

// fewPorts says what can be done about fewer ports than GPUs.
func (h *host) fewPorts(p *pathsel.Plan) string {
	var out []string
	for _, port := range h.dataPorts {
		if !port.Usable {
			out = append(out, port.Name)
		}
	}
	if len(out) > 0 && len(out)+len(p.Ports) >= len(p.Assignments) {
		return fmt.Sprintf("bring back what is out of use (%s): see port-down", text.Join(out, mostNames))
	}
	return "nothing, the host is built this way; " + perRank
}

// pileUp looks for GPUs that would all take one NIC, were each to take the
// first of its nearest by name, though the plan gives them NICs of their own.
func (h *host) pileUp(o *outcome, p *pathsel.Plan) {
	var first groups[string, topo.ID]
	node := map[string]topo.ID{}
	for _, a := range p.Assignments {
		x, err := h.paths.Affinity(a.Location, nil)
		if err != nil || len(x.Ranked) == 0 {
			continue
		}
		first.add(x.Ranked[0].Name, a.Location.Node())
		node[x.Ranked[0].Name] = x.Ranked[0].Port
	}
	f := Finding{Severity: Info, Fix: "give each rank the planned NIC: " + perRank}
	var crowded []string
	first.each(func(name string, gpus []topo.ID) {
		if len(gpus) > 1 {
			crowded = append(crowded, fmt.Sprintf("%s on %s", text.Join(asStrings(gpus), mostNames), name))
			f.Subjects, f.Evidence = append(f.Subjects, node[name]), append(f.Evidence, h.rdmaEvidence(node[name]))
		}
	})
	if len(crowded) == 0 {
		return
	}
	f.Text = fmt.Sprintf("GPUs have equally near NICs, and engines that take the first by name put several on one: %s", joined(crowded, "; "))
	if idle := len(p.Ports) - len(first.order); idle > 0 {
		f.Text += fmt.Sprintf("; %d of %s then stay idle", idle, text.Plural(len(p.Ports), "port"))
	}
	f.Text += ", while a plan gives each GPU its own"
	o.find(f)
}

// joined joins clauses, the first few of many.
func joined(list []string, sep string) string {
	const most = 4
	if len(list) > most {
		return strings.Join(list[:most-1], sep) + sep + fmt.Sprintf("and %d more", len(list)-most+1)
	}
	return strings.Join(list, sep)
}
