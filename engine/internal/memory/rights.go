package memory

import "sync"

// Rights narrow what regions grant to one peer: what it may do is what both allow. nil
// narrows nothing. They may be used by many goroutines.
type Rights struct {
	of func(name string) Grant

	mu    sync.Mutex
	known map[ID]Grant // what the peer may do; regions keep their names, and IDs are never used again
}

// maxKnown bounds what is remembered of regions, most of which are closed by then.
const maxKnown = 1 << 18

// NewRights makes rights that leave to a peer what of gives for a region's name.
func NewRights(of func(name string) Grant) *Rights {
	return &Rights{of: of, known: map[ID]Grant{}}
}

// Grant is what the peer may do with a region.
func (x *Rights) Grant(r *Region) Grant {
	if x == nil {
		return r.grant
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	g, ok := x.known[r.id]
	if !ok {
		if len(x.known) == maxKnown {
			clear(x.known)
		}
		g = r.grant & x.of(r.name)
		x.known[r.id] = g
	}
	return g
}

// All says whether the peer may do all that a region grants. Only then may it reach the memory in
// ways that this process does not check: such ways know the region's grant alone.
func (x *Rights) All(r *Region) bool { return x.Grant(r) == r.grant }
