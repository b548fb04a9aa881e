package pathsel

import (
	"fmt"
	"slices"
)

// fallback is the port that the plan for all gives a location whose nearest port is out of use.
type fallback struct {
	Candidate          // the port, with the part that the location has of it while all are busy
	shared    []string // the others that have it
	lost      *Port    // the nearer one
}

// findFallbacks looks for locations that have lost their nearest port. Which of several equals they take
// instead is not left to the order of names: each of these may be another GPU's.
func (h *Host) findFallbacks() {
	if !slices.ContainsFunc(h.ports, func(p Port) bool { return !p.Usable && p.Reasons[0].Code.Repairable() }) {
		return
	}
	plan, err := h.Plan(nil)
	if err != nil {
		return // no location, or more ports than plans are for: the order of names it is
	}
	found := map[int]fallback{}
	for i := range plan.Assignments {
		a := &plan.Assignments[i]
		loc := h.locIndex[a.Location]
		if len(a.Ports) == 0 {
			continue
		}
		lost := h.missed(loc, &a.Ports[0])
		if lost == nil {
			continue
		}
		f := fallback{Candidate: a.Ports[0], lost: lost}
		f.BytesPerSec, f.Basis = a.BytesPerSec, a.Basis
		if load, ok := plan.Load(f.Port); ok {
			f.shared = slices.DeleteFunc(slices.Clone(load.Consumers), func(c string) bool { return c == a.Consumer })
		}
		found[loc] = f
	}
	h.fallbacks = found
}

// missed is the port that a location would have if it were not broken: the nearest of those that a
// fault keeps from use, nil if none is nearer than what the location has.
func (h *Host) missed(loc int, has *Candidate) *Port {
	class, missed := has.Class, (*Port)(nil)
	for i := range h.ports {
		p := &h.ports[i]
		if p.Usable || p.Software || p.Virtual || p.VF || !p.Reasons[0].Code.Repairable() || roleOrder[p.Role] > roleOrder[has.Role] {
			continue
		}
		if near := h.routes[loc][i].class; near.Compare(class) < 0 {
			class, missed = near, p
		}
	}
	return missed
}

// note says which port the first of a ranking stands in for, and which other consumers share it.
func (f *fallback) note(location Location, first *Candidate) Reason {
	fault := f.lost.Reasons[0]
	s := fmt.Sprintf("%s's nearest NIC %s is down", location, f.lost.Name)
	if fault.Code != CodePortDown && fault.Code != codeTakenDown {
		s = fmt.Sprintf("%s's nearest NIC %s cannot be used (%s)", location, f.lost.Name, fault.Text)
	}
	switch {
	case f.Port != first.Port:
		s += fmt.Sprintf("; while all are busy, %s%s is its part", f.Name, about(&f.Candidate))
	case len(f.shared) > 0:
		s += fmt.Sprintf("; it shares %s with %s", f.Name, planNames(f.shared))
		if f.BytesPerSec != nil {
			s += fmt.Sprintf(" (%s while all are busy)", f.rateText())
		}
	}
	return Reason{CodeFallback, s, fault.Evidence}
}
