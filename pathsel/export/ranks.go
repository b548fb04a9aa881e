package export

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// rank is one local process and what the plan gives it.
type rank struct {
	n        int
	gpu      *topo.GPU // nil for a process without
	location pathsel.Location
	chosen   []pathsel.Candidate // best first
	ports    []pathsel.Port      // of chosen
	settings
}

// label names the rank's memory.
func (r *rank) label() string {
	if r.gpu == nil || r.gpu.BDF == nil {
		return string(r.location)
	}
	return fmt.Sprintf("%s, %s", r.location, r.gpu.BDF)
}

// makeRanks plans for all local ranks at once, rank N on visible GPU N. GPUs
// that no rank uses take part in the plan, so that the ports near them stay
// free for the processes that use them. On a host without GPUs the ranks are spread over
// its NUMA nodes. n 0 means one rank for each GPU or NUMA node.
func makeRanks(h *pathsel.Host, v Visible, n int) ([]rank, error) {
	gpus := len(h.GPUs())
	switch {
	case gpus > 0 && len(v.GPUs) == 0:
		return nil, pkgerr.Errorf("export", "no visible GPU")
	case n > len(v.GPUs) && gpus > 0:
		return nil, pkgerr.Errorf("export", "%d local ranks and %d visible GPUs: want a GPU for each rank", n, len(v.GPUs))
	case n == 0 && gpus > 0:
		n = len(v.GPUs)
	case n == 0:
		n = len(h.Locations())
	}
	var order []int
	for _, g := range v.GPUs[:min(n, len(v.GPUs))] {
		order = append(order, slices.Index(h.GPUs(), g.Location))
	}
	consumers, err := h.Ranks(n, order...)
	if err != nil {
		return nil, err
	}
	for _, l := range h.GPUs() {
		if !slices.ContainsFunc(consumers, func(c pathsel.Consumer) bool { return c.Location == l }) {
			consumers = append(consumers, pathsel.Consumer{Location: l})
		}
	}
	plan, err := h.Plan(consumers)
	if err != nil {
		return nil, err
	}
	out := make([]rank, n)
	for i := range out {
		a := &plan.Assignments[i]
		out[i] = rank{n: i, location: a.Location, chosen: a.Ports}
		if i < len(v.GPUs) {
			out[i].gpu = v.GPUs[i].GPU
		}
		for _, c := range a.Ports {
			p, _ := h.Port(c.Port)
			out[i].ports = append(out[i].ports, p)
		}
	}
	return out, nil
}

// allPorts are the ports of all ranks, each once, in the order of names.
func allPorts(ranks []rank) []pathsel.Port {
	var out []pathsel.Port
	for _, r := range ranks {
		out = append(out, r.ports...)
	}
	return eachOnce(out)
}

// eachOnce orders ports by their names and drops repetitions.
func eachOnce(out []pathsel.Port) []pathsel.Port {
	slices.SortFunc(out, func(a, b pathsel.Port) int { return a.Index - b.Index })
	return slices.CompactFunc(out, func(a, b pathsel.Port) bool { return a.Index == b.Index })
}

// reasons says for each port of a rank why it is this one, and who has it too.
func reasons(ranks []rank, r *rank) []string {
	var out []string
	for i, c := range r.chosen {
		s := c.Name + ": " + c.Reason.Text
		var with []string
		for _, other := range ranks {
			if other.n != r.n && slices.ContainsFunc(other.ports, func(p pathsel.Port) bool { return p.Index == r.ports[i].Index }) {
				with = append(with, strconv.Itoa(other.n))
			}
		}
		if len(with) > 0 {
			s += "; shared with rank " + text.Join(with, len(with))
		}
		for _, note := range c.Notes {
			s += "; " + note.Text
		}
		out = append(out, s)
	}
	return out
}
