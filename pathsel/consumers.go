package pathsel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
)

// Consumer is someone who moves data to and from a memory location and wants
// ports for that: a GPU, a NUMA node, or one process of several.
type Consumer struct {
	Name     string   `json:"name"` // "" is the location
	Location Location `json:"location"`
}

// Ranks are the consumers of size processes on one host, by local rank: "rank
// 0" and so on. gpus says which GPU each rank uses, in PCI order (what
// CUDA_VISIBLE_DEVICES lists, where CUDA counts in that order); without it rank
// r uses GPU r. Where there are fewer GPUs than ranks, the ranks are processes
// without GPU, and go round the NUMA nodes that have CPUs.
func (h *Host) Ranks(size int, gpus ...int) ([]Consumer, error) {
	if size < 1 || size > assignMax {
		return nil, fmt.Errorf("pathsel: %d local ranks: want 1 to %d", size, assignMax)
	}
	if len(gpus) > 0 && len(gpus) < size {
		return nil, fmt.Errorf("pathsel: %d GPUs are given for %d local ranks: want one for each", len(gpus), size)
	}
	nodes := h.locations[len(h.t.GPUs):]
	if len(gpus) == 0 && size > len(h.t.GPUs) && len(nodes) == 0 {
		return nil, fmt.Errorf("pathsel: %d local ranks on a host of %d GPUs and no known NUMA node", size, len(h.t.GPUs))
	}
	out := make([]Consumer, size)
	for r := range out {
		out[r].Name = fmt.Sprintf("rank %d", r)
		switch {
		case len(gpus) > 0:
			if gpus[r] < 0 || gpus[r] >= len(h.t.GPUs) {
				return nil, fmt.Errorf("pathsel: local rank %d: GPU %d: this host has %d", r, gpus[r], len(h.t.GPUs))
			}
			out[r].Location = h.locations[gpus[r]]
		case size <= len(h.t.GPUs):
			out[r].Location = h.locations[r]
		default:
			out[r].Location = nodes[r%len(nodes)]
		}
	}
	return out, nil
}

// planConsumer is a consumer in a plan.
type planConsumer struct {
	Consumer
	loc   int // place in Host.locations
	given int // place in what the caller gave
}

// planConsumers checks the consumers, or finds the usual ones, and puts them in
// an order that does not depend on how they were given: that of locations, then
// of names.
func (h *Host) planConsumers(given []Consumer) ([]planConsumer, error) {
	if len(given) == 0 {
		locations := h.locations[:len(h.t.GPUs)]
		if len(locations) == 0 {
			locations = h.locations
		}
		for _, l := range locations {
			given = append(given, Consumer{Location: l})
		}
	}
	switch {
	case len(given) == 0:
		return nil, errors.New("pathsel: plan: this host has no GPU and no NUMA node with CPUs")
	case len(given) > assignMax:
		return nil, fmt.Errorf("pathsel: plan: %d consumers: want at most %d", len(given), assignMax)
	}
	out := make([]planConsumer, len(given))
	seen := make(map[string]bool, len(given))
	for i, c := range given {
		loc, err := h.location(c.Location)
		if err != nil {
			return nil, err
		}
		if c.Name == "" {
			c.Name = string(c.Location)
		}
		if seen[c.Name] {
			return nil, fmt.Errorf("pathsel: plan: consumer %q is given twice: want a name for each", c.Name)
		}
		seen[c.Name] = true
		out[i] = planConsumer{c, loc, i}
	}
	slices.SortFunc(out, func(a, b planConsumer) int {
		if c := cmp.Compare(a.loc, b.loc); c != 0 {
			return c
		}
		if c := topo.NaturalCompare(a.Name, b.Name); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return out, nil
}
