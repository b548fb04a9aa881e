package topo

// Step is one link of a path, in the direction of travel.
type Step struct {
	Link        LinkID
	Kind        LinkKind
	BytesPerSec *Rate // nil is unknown
	Basis       Basis
}

// Path lists the links between two nodes in the direction of travel, the
// network port at the end of a NIC included when the other end is none. It is
// empty with ok true for a node and itself, and ok is false where no way is known.
func (g *Graph) Path(a, b ID) (path []Step, ok bool) {
	x, ok1 := g.endpoint(a)
	y, ok2 := g.endpoint(b)
	if !ok1 || !ok2 {
		return nil, false
	}
	r := g.route(x, y)
	if !r.known {
		return nil, false
	}
	for _, i := range r.links {
		path = append(path, g.step(i))
	}
	if ports := wireOf(x, y); len(ports) == 1 {
		path = append(path, g.step(ports[0]))
	}
	return path, true
}

func (g *Graph) step(i int) Step {
	l := &g.links[i]
	return Step{l.ID, l.Kind, l.BytesPerSec, l.Basis}
}

// wireOf are the network ports that traffic between a and b leaves by: those
// of the one end that is a NIC.
func wireOf(a, b endpoint) []int {
	switch {
	case len(a.ports) > 0 && len(b.ports) == 0:
		return a.ports
	case len(b.ports) > 0 && len(a.ports) == 0:
		return b.ports
	}
	return nil
}

// Bottleneck is the smallest known rate of a path and its step; ok is false
// where no step has a known rate.
func Bottleneck(path []Step) (Step, bool) {
	best := -1
	for i, s := range path {
		if s.BytesPerSec != nil && (best < 0 || *s.BytesPerSec < *path[best].BytesPerSec) {
			best = i
		}
	}
	if best < 0 {
		return Step{}, false
	}
	return path[best], true
}
