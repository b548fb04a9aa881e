package diff

import "github.com/topoctl/topoctl/discover/topo"

// relations compares classes that a side states without a tree to derive them
// from. Where both have a tree, what changed in it is told instead.
func (c *comparer) relations() {
	if c.old.t.Asserted == nil && c.new.t.Asserted == nil {
		return
	}
	x, y := c.old.t.Derived, c.new.t.Derived
	at := make(map[topo.ID]int, len(y.Axis))
	for i, id := range y.Axis {
		at[id] = i
	}
	for i, a := range x.Axis {
		for j, b := range x.Axis[:i] {
			p, ok1 := at[c.old.rename(a)]
			q, ok2 := at[c.old.rename(b)]
			if !ok1 || !ok2 {
				continue
			}
			v, w := word(x.At(i, j).Class.String()), word(y.At(p, q).Class.String())
			if v.known && w.known && v.key != w.key {
				node := Node{Kind: KindLink, Old: string(b) + " " + string(a), New: string(y.Axis[q]) + " " + string(y.Axis[p]),
					Name: c.new.nameOf(y.Axis[q]) + " to " + c.new.nameOf(y.Axis[p])}
				c.add(finding{kind: Changed, attr: "relation", node: node, old: v, new: w})
			}
		}
	}
}

// nameOf is what people call a node of the matrix.
func (s *side) nameOf(id topo.ID) string {
	switch {
	case len(id) > 5 && id[:5] == "rdma:", len(id) > 4 && id[:4] == "net:":
		return id.Name()
	}
	return string(id)
}
