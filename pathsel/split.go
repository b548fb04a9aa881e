package pathsel

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/maxmin"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Split returns the rate, in bytes per second, of one transfer whose bytes are divided among ports
// in fixed parts, however fast each port is: the slowest part decides. Weights are the parts, in
// the order of the ports, each above 0; only their proportion counts. The rate is nil where no
// link on the way has a known one. Other engines divide transfers this way; Capacity is what the
// ports carry at best.
func (h *Host) Split(location Location, ports []topo.ID, weights []float64) (*topo.Rate, topo.Basis, error) {
	loc, err := h.location(location)
	if err != nil {
		return nil, "", err
	}
	if len(ports) != len(weights) {
		return nil, "", pkgerr.Errorf("pathsel", "%d ports and %d weights", len(ports), len(weights))
	}
	flows := make([]maxmin.Flow, 0, len(ports))
	sum, uncertain := 0.0, false
	for i, id := range ports {
		p, ok := h.portIndex[id]
		switch {
		case !ok:
			return nil, "", pkgerr.Errorf("pathsel", "%q is no port of this host", id)
		case !(weights[i] > 0):
			return nil, "", pkgerr.Errorf("pathsel", "port %q: weight %v: want more than 0", id, weights[i])
		}
		r := &h.routes[loc][p]
		uncertain = uncertain || r.uncertain
		sum += weights[i]
		flows = append(flows, maxmin.Flow{Segments: r.segments, Weight: weights[i]})
	}
	maxmin.New(h.caps).Share(flows)
	// All flows grow in proportion until the first link is full: that is the
	// level at which a division into fixed parts stops as a whole.
	var slowest *maxmin.Flow
	for i := range flows {
		f := &flows[i]
		if !f.Unlimited() && (slowest == nil || f.Rate/f.Weight < slowest.Rate/slowest.Weight) {
			slowest = f
		}
	}
	if slowest == nil {
		return nil, topo.BasisUnknown, nil
	}
	rate := roundRate(slowest.Rate / slowest.Weight * sum)
	basis := h.linkOf(slowest.Limit).Basis
	if uncertain && rate > 0 {
		basis = basis.Bounded()
	}
	return &rate, basis, nil
}
