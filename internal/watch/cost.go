package watch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// mostLost is how many memory locations are named that lose a port.
const mostLost = 8

// host is the last topology prepared for decisions; nil where it cannot be.
func (w *Watch) host() *pathsel.Host {
	if w.paths == nil && w.last != nil {
		h, err := pathsel.New(w.last, pathsel.Options{Overlay: w.o.Overlay})
		if err != nil {
			return nil // the doctor has said so
		}
		w.paths = h
	}
	return w.paths
}

// withCosts adds to what went down what it costs, by what is up after all of it.
func (w *Watch) withCosts(list []Event) []Event {
	for i := range list {
		if e := &list[i]; e.Kind == LinkDown {
			e.Severity, e.Detail = w.cost(e.Subject)
		}
	}
	return list
}

// cost says how bad it is that a port went down, and for whom: an error where a GPU has
// no other port that is as good, info where nothing was to use it.
func (w *Watch) cost(id topo.ID) (severity string, detail []string) {
	h := w.host()
	if h == nil {
		return warning, nil
	}
	p, ok := h.Port(id)
	if !ok {
		return info, nil
	}
	if p.Role != pathsel.RoleData {
		return info, []string{"its role is " + string(p.Role)}
	}
	severity = warning
	locations := h.GPUs()
	if len(locations) == 0 {
		locations = h.Locations()
	}
	lost := 0
	for _, l := range locations {
		a, err := h.Affinity(l, nil)
		if err != nil || !slices.Contains(a.Preferred(), id) {
			continue
		}
		next, worst := w.fallback(a, id)
		if worst && len(h.GPUs()) > 0 {
			severity = severe
		}
		if lost++; lost <= mostLost {
			detail = append(detail, fmt.Sprintf("%s prefers it; %s", l, next))
		}
	}
	if lost > mostLost {
		detail = append(detail, fmt.Sprintf("and %s more", text.Plural(lost-mostLost, "memory location")))
	}
	return severity, detail
}

// fallback says which port is left for a location that loses one, and whether that is
// worse.
func (w *Watch) fallback(a *pathsel.Affinity, lost topo.ID) (next string, worst bool) {
	was := slices.IndexFunc(a.Ranked, func(c pathsel.Candidate) bool { return c.Port == lost })
	for i := range a.Ranked {
		c := &a.Ranked[i]
		if c.Port == lost || w.states[c.Port].down() {
			continue
		}
		if c.Verdict == pathsel.Preferred {
			return c.Name + " remains and is as good", false
		}
		next = fmt.Sprintf("next is %s, %s instead of %s", c.Name, cmp.Or(c.Class.String(), "unknown"), cmp.Or(a.Ranked[was].Class.String(), "unknown"))
		if c.BytesPerSec != nil {
			next += ", expected " + c.Basis.Text(c.BytesPerSec.String())
		}
		return next, true
	}
	return "no usable port is left", true
}
