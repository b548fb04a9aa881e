package pathsel

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// SchemaPlan is the name and major version of a plan as a document.
const SchemaPlan = "topoctl.plan/v1"

// Plan gives every memory location its ports, all at once, so that no usable
// port is idle and none has more than its part of the work.
//
// With at least as many ports as consumers, every port belongs to one consumer
// and the consumers' numbers of ports differ by one at most. With fewer, every
// consumer has one port, and the consumers go to the ports in proportion to the
// ports' rates: for ports of like rates their numbers differ by one at most.
type Plan struct {
	Assignments []Assignment `json:"assignments"` // one for each consumer, in their order
	Ports       []PortLoad   `json:"ports"`       // every usable port, in the order of names
	// BytesPerSec is what all consumers move together while all of them are
	// busy, in one direction; nil where a port's part is not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	Basis       topo.Basis `json:"basis"`
	// Bottleneck is the link that holds the slowest consumer back, and the consumers that share
	// it; nil if no consumer's rate is known.
	Bottleneck *Bottleneck `json:"bottleneck"`
	// Nearness says that it is not known which of several ports are near some of the consumers, which then
	// have theirs by order only; nil where it is known.
	Nearness *Reason `json:"nearness,omitempty"`
	// Rejected are the ports that take no part, with the reason. Their class, hops and rate, which
	// depend on a memory location, are not set.
	Rejected []Candidate `json:"rejected"`
}

// Assignment is the ports of one consumer.
type Assignment struct {
	Consumer string      `json:"consumer"` // "gpu:0", or "rank 3"
	Location Location    `json:"location"`
	Ports    []Candidate `json:"ports"` // best first, each with the reason why it is this one
	// BytesPerSec is the consumer's part while all others move data too; 0 where
	// no port can be used, nil where it is not known.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	Basis       topo.Basis `json:"basis"`
	// Limit is the link that holds it back: a full one that all of its data crosses, else the one
	// that bounds its slowest port.
	Limit topo.LinkID `json:"limit_link,omitempty"`
}

// PortLoad is the part of a plan that one port carries.
type PortLoad struct {
	Port      topo.ID  `json:"port"`
	Name      string   `json:"name"`
	Consumers []string `json:"consumers"` // in the order of the plan
	// Share is the number of consumers that it carries: 0.5 if it is one of a consumer's two ports.
	Share float64 `json:"share"`
	// BytesPerSec is what flows through it when all consumers move data.
	BytesPerSec *topo.Rate `json:"bytes_per_sec"`
	Basis       topo.Basis `json:"basis"`
}

// Bottleneck is the link that bounds the slowest consumer of a plan.
type Bottleneck struct {
	Link        topo.LinkID `json:"link"`
	BytesPerSec *topo.Rate  `json:"bytes_per_sec"` // of the link
	Basis       topo.Basis  `json:"basis"`         // of the slowest consumer's rate
	// Consumers are those whose data crosses the link.
	Consumers []string `json:"consumers"`
	// SlowestBytesPerSec is the slowest consumer's part.
	SlowestBytesPerSec topo.Rate `json:"slowest_bytes_per_sec"`
	// AsSlow are the consumers that are just as slow behind links of their own: on a symmetric
	// host, all the others.
	AsSlow []string `json:"as_slow"`
}

// Consumer is whatever moves data to and from a memory location and needs
// ports for it: a GPU, a NUMA node, or one process of several.
type Consumer struct {
	Name     string   `json:"name"` // "" is the location
	Location Location `json:"location"`
}

// Ranks are the consumers of size processes on one host, by local rank: "rank
// 0" and so on. gpus says which GPU each rank uses, in PCI order (what
// CUDA_VISIBLE_DEVICES lists, where CUDA counts in that order); without it rank
// r uses GPU r. Where there are fewer GPUs than ranks, the ranks are processes
// without GPU, spread round-robin over the NUMA nodes that have CPUs.
func (h *Host) Ranks(size int, gpus ...int) ([]Consumer, error) {
	if size < 1 || size > assignMax {
		return nil, pkgerr.Errorf("pathsel", "%d local ranks: want 1 to %d", size, assignMax)
	}
	if len(gpus) > 0 && len(gpus) < size {
		return nil, pkgerr.Errorf("pathsel", "%d GPUs are given for %d local ranks: want one for each", len(gpus), size)
	}
	nodes := h.locations[len(h.t.GPUs):]
	if len(gpus) == 0 && size > len(h.t.GPUs) && len(nodes) == 0 {
		return nil, pkgerr.Errorf("pathsel", "%d local ranks on a host of %d GPUs and no known NUMA node", size, len(h.t.GPUs))
	}
	out := make([]Consumer, size)
	for r := range out {
		out[r].Name = fmt.Sprintf("rank %d", r)
		switch {
		case len(gpus) > 0:
			if gpus[r] < 0 || gpus[r] >= len(h.t.GPUs) {
				return nil, pkgerr.Errorf("pathsel", "local rank %d: GPU %d: this host has %d", r, gpus[r], len(h.t.GPUs))
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

// Plan shares all usable ports among the consumers: nil is every GPU, or every
// NUMA node with CPUs on a host without GPUs. Among the balanced ways it takes
// the one whose pairs are, summed up, the nearest by class, then limiting rate,
// then hops; then the one that gives every consumer its part of the far ports
// rather than some all of them; equals are paired in PCI order, so that the
// first GPU of a group gets the first port and the ports of one card stay
// together. The order of the consumers affects only the order of the answer.
func (h *Host) Plan(consumers []Consumer) (*Plan, error) {
	pl, err := h.newPlanner(consumers)
	if err != nil {
		return nil, err
	}
	pl.assign()
	return pl.evaluate(), nil
}

// Of returns the assignment of a consumer; ok is false if the plan has no such consumer.
func (p *Plan) Of(consumer string) (a *Assignment, ok bool) {
	i := slices.IndexFunc(p.Assignments, func(a Assignment) bool { return a.Consumer == consumer })
	if i < 0 {
		return nil, false
	}
	return &p.Assignments[i], true
}

// Load returns what a port carries in the plan, and for whom; ok is false if it takes no part.
func (p *Plan) Load(port topo.ID) (l *PortLoad, ok bool) {
	i := slices.IndexFunc(p.Ports, func(l PortLoad) bool { return l.Port == port })
	if i < 0 {
		return nil, false
	}
	return &p.Ports[i], true
}

// MarshalJSON writes the plan as a topoctl.plan/v1 document.
func (p *Plan) MarshalJSON() ([]byte, error) {
	type fields Plan // without this method
	data, err := json.Marshal(struct {
		Schema string `json:"schema"`
		*fields
	}{SchemaPlan, (*fields)(p)})
	if err != nil {
		return nil, pkgerr.Errorf("pathsel", "plan: %w", err)
	}
	return data, nil
}
