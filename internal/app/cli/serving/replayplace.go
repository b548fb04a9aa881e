package serving

import (
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/cli/peers"
	"github.com/topoctl/topoctl/internal/app/kv/serve"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/pathsel"
)

// kvPlaces are where the ranks of this host have their caches, instance by instance; "" is
// not known.
type kvPlaces struct {
	t           *topo.Topology
	here, there []pathsel.Location // there: of an agent that is started here
	unbound     bool               // memory here is not on the NUMA nodes of its places
}

// place gives the ranks of this host their places; those of prefill come first.
func (o *kvReplayOptions) place(t *topo.Topology) (*kvPlaces, error) {
	here, there := o.sides()
	n := here.instances * here.tp
	all := n
	if o.own {
		all += there.instances * there.tp
	}
	at, err := rankPlaces(t, o.locations, all)
	if err != nil {
		return nil, err
	}
	p := &kvPlaces{t: t, here: at[:n], there: at[n:]}
	if o.move == serve.Pull {
		p.here, p.there = at[all-n:], at[:all-n]
	}
	return p, nil
}

// rankPlaces are those that were given, in order and round again. Otherwise the GPUs, or round
// the NUMA nodes where there are fewer GPUs than ranks.
func rankPlaces(t *topo.Topology, given []pathsel.Location, ranks int) ([]pathsel.Location, error) {
	h, err := pathsel.New(t, pathsel.Options{})
	if err != nil {
		return nil, err
	}
	known := h.Locations()
	for _, l := range given {
		if !slices.Contains(known, l) {
			return nil, peers.UnknownLocation(fmt.Errorf("--location %q: this host has no such place for memory", l), known)
		}
	}
	out := make([]pathsel.Location, ranks)
	if given == nil {
		if len(known) == 0 {
			return out, nil
		}
		consumers, err := h.Ranks(ranks)
		if err != nil {
			return nil, command.WithHint(err, "--location says where ranks of this host have their memory, and goes round")
		}
		for i := range consumers {
			given = append(given, consumers[i].Location)
		}
	}
	for i := range out {
		out[i] = given[i%len(given)]
	}
	return out, nil
}

// allocate makes the memory of the instances here, a region for each rank.
func (o *kvReplayOptions) allocate(e *engine.Engine, p *kvPlaces, tp int) ([][]*engine.Region, error) {
	var out [][]*engine.Region
	for i, at := range p.here {
		nodes := peers.NodesAt(p.t, at)
		p.unbound = p.unbound || nodes == nil && peers.NodeOf(p.t, at) != nil
		r, err := e.Alloc(o.memory/int64(tp), engine.RegionOptions{Location: at, Memory: memory.Options{Nodes: nodes}})
		if err != nil {
			return nil, command.WithHint(fmt.Errorf("--memory %s for each of %s here: %w", o.memoryText, text.Plural(len(p.here)/tp, "instance"), err), "give less, or fewer instances")
		}
		if i%tp == 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out, nil
}
