package cli

import (
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// UnknownLocation adds to an error about a location those that there are.
func UnknownLocation(err error, known []pathsel.Location) error {
	if len(known) == 0 {
		return WithHint(err, "its memory locations are unknown")
	}
	return WithHint(err, "it has %s", text.List(wordsOf(known), 12))
}

// NodeOf is the NUMA node that memory at a location belongs on; nil where there is no choice, or it
// is not known.
func NodeOf(t *topo.Topology, at pathsel.Location) *int {
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

// NodesAt is that node for an allocation, none where it cannot be bound to: containers often may not.
func NodesAt(t *topo.Topology, at pathsel.Location) []int {
	node := NodeOf(t, at)
	if node == nil {
		return nil
	}
	b, err := memory.Alloc(1, memory.Options{Nodes: []int{*node}})
	if err != nil || b.Free() != nil {
		return nil
	}
	return []int{*node}
}
