package preset

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/sim"
	"github.com/topoctl/topoctl/pathsel"
)

// llama70TokenBytes are a token's activations between two layers of Llama 3 70B: 8192 elements
// of two bytes.
const llama70TokenBytes = 8192 * 2

// activations is the part of the mean TTFT in which the activations of a mean prompt go from one
// pipeline stage to the next: each tensor rank sends its share to its counterpart, over the
// lanes that pathsel chooses, and nothing else is on the way.
func activations(s *serve.Spec, w *kv.Workload, m *kv.Metrics) (*float64, error) {
	if m.TTFT == nil || m.TTFT.Mean == 0 || len(w.Requests) == 0 {
		return nil, nil //nolint:nilnil // unknown
	}
	tokens := int64(0)
	for i := range w.Requests {
		tokens += int64(w.Requests[i].Input)
	}
	tokens /= int64(len(w.Requests))
	c, err := sim.New(sim.Spec{Hosts: s.Hosts, Fabric: s.Fabric})
	if err != nil {
		return nil, err
	}
	stages := s.Prefill[0]
	half := len(stages) / 2
	slowest := int64(0)
	for r := range half {
		from, to := stages[r], stages[half+r]
		pair, err := c.Pair(from.Host, to.Host)
		if err != nil {
			return nil, err
		}
		lanes, err := pair.LanesOf(from.Location, to.Location, pathsel.LaneOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s to %s: %w", from.Location, to.Location, err)
		}
		took, _ := lanes.Finish(lanes.Predict(tokens * llama70TokenBytes / int64(half)))
		slowest = max(slowest, took)
	}
	x := float64(slowest) / 1e6 / m.TTFT.Mean
	return &x, nil
}
