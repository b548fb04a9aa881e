package lane

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/pathsel"
)

// MemoryAt says how to allocate memory at a location on a host of so many NUMA nodes; note says if it is
// not quite at that location. On a host of one node there is nothing to bind to.
func MemoryAt(at pathsel.Location, nodes int) (o memory.Options, note string) {
	o.Pages = memory.Huge
	kind, number, _ := strings.Cut(string(at), ":")
	switch node, err := strconv.Atoi(number); {
	case kind == "gpu":
		note = fmt.Sprintf("memory of the host was used instead of that of %s", at)
	case err == nil && nodes > 1:
		o.Nodes = []int{node}
	}
	return o, note
}

// BoundTo is the NUMA node that a region is bound to, nil none or several.
func BoundTo(r *engine.Region) *int {
	if nodes := r.Info().Nodes; len(nodes) == 1 {
		return &nodes[0]
	}
	return nil
}
