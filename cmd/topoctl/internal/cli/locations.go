package cli

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// unknownLocation adds to an error about a location those that there are.
func unknownLocation(err error, known []pathsel.Location) error {
	if len(known) == 0 {
		return withHint(err, "its memory locations are unknown")
	}
	return withHint(err, "it has %s", text.List(wordsOf(known), 12))
}

// nodeOf is the NUMA node that memory at a location belongs on; nil where there is no choice, or it
// is not known.
func nodeOf(t *topo.Topology, at pathsel.Location) *int {
	if len(t.NUMANodes) < 2 {
		return nil
	}
	for i := range t.NUMANodes {
		if "cpu:"+strconv.Itoa(t.NUMANodes[i].Index) == string(at) {
			return &t.NUMANodes[i].Index
		}
	}
	for i := range t.GPUs {
		if string(t.GPUs[i].ID) == string(at) {
			return t.GPUs[i].NUMA
		}
	}
	return nil
}

// nodesAt is that node for an allocation, none where it cannot be bound to: containers often may not.
func nodesAt(t *topo.Topology, at pathsel.Location) []int {
	node := nodeOf(t, at)
	if node == nil {
		return nil
	}
	b, err := memory.Alloc(1, memory.Options{Nodes: []int{*node}})
	if err != nil || b.Free() != nil {
		return nil
	}
	return []int{*node}
}
