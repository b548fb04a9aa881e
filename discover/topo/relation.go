package topo

// Relation is what holds between two devices of one host.
type Relation struct {
	Class Class
	NCCL  NCCLClass
	// Hops counts the links on the path; -1 where no path is known.
	Hops int
	// BytesPerSec is the smallest rate on the path, in one direction; nil
	// where no link on it has a known rate.
	BytesPerSec *Rate
	// Limit is the link with that rate, "" where there is none.
	Limit LinkID
	// Basis says how the rate is known: that of the limiting link, or
	// "assumed" where another link on the path has no known rate, so that
	// BytesPerSec is an upper bound.
	Basis Basis
	// SamePackage is set for SYS pairs whose NUMA nodes share a socket
	// (NPS4, sub-NUMA clustering): cheaper than SYS sounds.
	SamePackage bool
}

// Asserted are classes that an origin states for pairs of nodes: a square
// matrix over Axis. Unknown cells say nothing.
type Asserted struct {
	Source Source    `json:"source"`
	Axis   []ID      `json:"axis"`
	Class  [][]Class `json:"class"`
}

// Derived is what Derive computed: the relation of every pair of GPU, NIC and
// NUMA node. It can be computed again from the nodes and links by Rules.
//
// Pairs are alike: a host has a few dozen different relations among thousands
// of pairs. So each is kept once, in Relations, and Cells is the square matrix
// over Axis of indices into it. What differs from pair to pair, the limiting
// link, is a matrix of its own: indices into the topology's Links.
type Derived struct {
	Rules     string         `json:"rules"`
	Axis      []ID           `json:"axis"`
	Relations []RelationKind `json:"relations"`
	Cells     [][]int        `json:"cells"`
	Limit     [][]*int       `json:"limit_link"`
}

// RelationKind is what many pairs have in common.
type RelationKind struct {
	Class       Class     `json:"class"`
	NCCL        NCCLClass `json:"nccl"`
	Hops        *int      `json:"hops"`
	BytesPerSec *Rate     `json:"expected_bytes_per_sec"`
	Basis       Basis     `json:"basis"`
	SamePackage bool      `json:"same_package,omitempty"`
}

// At is the relation of the pair at two places of the axis.
func (d *Derived) At(i, j int) RelationKind { return d.Relations[d.Cells[i][j]] }
