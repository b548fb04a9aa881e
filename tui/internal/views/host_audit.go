package views

import (
	"github.com/topoctl/topoctl/discover/counters"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/audit"
	"github.com/topoctl/topoctl/tui/internal/state"
)

// audited is the latest audit, and of which look at the counters it is.
type audited struct {
	of     *counters.Sample
	report *audit.Report
}

// Audit says of a port what it carried in the latest looks at the counters beside its part in the
// plan; nil where there is no plan or there were no two looks.
func (h *Host) Audit(s *state.State, port topo.ID) (p *audit.Port, r *audit.Report) {
	if r = h.audit(s); r == nil {
		return nil, nil
	}
	for i := range r.Ports {
		if r.Ports[i].ID == port {
			return &r.Ports[i], r
		}
	}
	return nil, r
}

func (h *Host) audit(s *state.State) *audit.Report {
	if len(s.Recent) < 2 {
		return nil
	}
	last := s.Recent[len(s.Recent)-1]
	if h.audited.of == last {
		return h.audited.report
	}
	h.audited = audited{of: last}
	paths, err := h.Paths()
	if err != nil {
		return nil
	}
	if h.plan == nil {
		if h.plan, err = paths.Plan(nil); err != nil {
			return nil
		}
	}
	a, err := audit.New(audit.Options{Host: paths, Plan: h.plan})
	if err != nil { // no port can be used
		return nil
	}
	for _, sample := range s.Recent {
		a.Sample(sample)
	}
	h.audited.report = a.Report()
	return h.audited.report
}
