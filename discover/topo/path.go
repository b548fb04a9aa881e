package topo

// Direction is the way in which a path crosses a link. Each direction has the
// link's whole rate.
type Direction uint8

// The directions of travel.
const (
	Down Direction = iota // from the link's A to its B: away from the root
	Up                    // from B to A: towards the root
	Both                  // up and down again: peers below one root complex
)

// Step is one link of a path, in the direction of travel.
type Step struct {
	Link        LinkID
	Kind        LinkKind
	Dir         Direction
	BytesPerSec *Rate // nil is unknown
	Basis       Basis
}

// Path lists the links between two nodes in the direction of travel, the
// network port of a NIC with a single one included when the other end is no NIC.
// It is empty with ok true for a node and itself. ok is false where the way is
// not known; the links are then those that are certain: between either end and
// its root.
func (g *Graph) Path(a, b ID) (path []Step, ok bool) {
	x, ok1 := g.endpoint(a)
	y, ok2 := g.endpoint(b)
	if !ok1 || !ok2 {
		return nil, false
	}
	r := g.route(x, y)
	for k, i := range r.links {
		path = append(path, g.step(i, r.dirs[k]))
	}
	if ports := wireOf(x, y); len(ports) == 1 {
		if len(x.ports) > 0 { // traffic comes in by the wire
			return append([]Step{g.step(ports[0], Up)}, path...), r.known
		}
		path = append(path, g.step(ports[0], Down))
	}
	return path, r.known
}

func (g *Graph) step(i int, dir Direction) Step {
	l := &g.links[i]
	return Step{l.ID, l.Kind, dir, l.BytesPerSec, l.Basis}
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
