package topo

import "slices"

// GPULinks are the NVLinks and xGMI links of a host's GPUs.
type GPULinks struct {
	// Links join two GPUs, or a GPU and FabricID.
	Links []Link
	// Apart are pairs of GPUs with fewer links than each has to others, though switches join them all: what
	// only an origin that states classes of pairs can say.
	Apart []Apart
	// Stated says that a GPU without links has none: the origin lists links, or states a class for each pair.
	Stated bool
	// Unknown are GPUs that may have more links than are in Links.
	Unknown map[ID]bool
}

// Apart is two GPUs that have fewer links to each other than to others.
type Apart struct {
	A, B  ID
	Class Class
	Want  int // what each has to others
}

// mostNVLinks is more NVLinks than a GPU of a host without NVSwitches has.
const mostNVLinks = 18

// GPULinks returns the links of the GPUs. Where the origin lists none but states classes, as the matrix of
// nvidia-smi does, "NV18" says that 18 links lead from one GPU to the other: straight, or, where that would be
// more links than a GPU has, through switches that all share. The topology must be derived.
func (t *Topology) GPULinks() GPULinks {
	out := GPULinks{Unknown: map[ID]bool{}}
	for i := range t.Links {
		if k := t.Links[i].Kind; k == LinkNVLink || k == LinkXGMI {
			out.Links = append(out.Links, t.Links[i])
		}
	}
	if out.Stated = len(out.Links) > 0; out.Stated || t.Asserted == nil || t.Derived == nil {
		return out
	}
	n := len(t.GPUs) // the first of the axis
	own, sum := make([]int, n), make([]int, n)
	between := func(i, j int) Class { return t.Derived.At(i, j).Class }
	out.Stated = n > 1
	for i := range n {
		for j := range n {
			c := between(i, j)
			if i != j && !c.Known() {
				out.Stated = false
				out.Unknown[t.GPUs[i].ID] = true
			}
			own[i], sum[i] = max(own[i], c.Links), sum[i]+c.Links
		}
	}
	most := max(mostNVLinks, slices.Max(append(own, 0)))
	switched := slices.ContainsFunc(sum, func(all int) bool { return all > most })
	for i := range n {
		a := t.GPUs[i].ID
		if switched && own[i] > 0 {
			delete(out.Unknown, a)
			out.Links = append(out.Links, Link{ID: NVLinkID(a, FabricID), Kind: LinkNVLink, A: a, B: FabricID, Count: own[i], Basis: BasisUnknown})
		}
		for j := i + 1; j < n; j++ {
			b, c := t.GPUs[j].ID, between(i, j)
			if !switched && c.Links > 0 {
				out.Links = append(out.Links, Link{ID: NVLinkID(a, b), Kind: LinkNVLink, A: a, B: b, Count: c.Links, Basis: BasisUnknown})
			}
			want := min(own[i], own[j])
			if !switched || !c.Known() || c.Links >= want {
				continue
			}
			shared := c.Links > 0 // a partition of the switches joins some GPUs and not others
			for k := range n {
				shared = shared || between(i, k).Links > 0 && between(j, k).Links > 0
			}
			if shared {
				out.Apart = append(out.Apart, Apart{a, b, c, want})
			}
		}
	}
	return out
}

// Of returns how many links a GPU has.
func (l *GPULinks) Of(gpu ID) (n int) {
	for i := range l.Links {
		if l.Links[i].A == gpu || l.Links[i].B == gpu {
			n += l.Links[i].Count
		}
	}
	return n
}

// Switched says whether links lead to switches.
func (l *GPULinks) Switched() bool {
	return slices.ContainsFunc(l.Links, func(x Link) bool { return x.A == FabricID || x.B == FabricID })
}
