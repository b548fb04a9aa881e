package observe

import (
	"context"
	"fmt"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/counters"
)

// Static is a feed of a described host, which never changes. Of o it takes Start, Agents
// and how they are asked.
func Static(o Options, t *topo.Topology) *Feed {
	o.Discover = func(context.Context) (*topo.Topology, error) { return t, nil }
	o.Sample, o.Watch, o.Every = nil, nil, 0
	return New(o)
}

// Synthetic is a feed of a described host with counters that are made up, the same for
// the same seed, and says so in its first record. Of o it takes what Static does.
func Synthetic(o Options, t *topo.Topology, seed uint64) *Feed {
	f := Static(o, t)
	load := newLoad(t, seed)
	f.o.Start.Synthetic = fmt.Sprintf("counters (seed %d)", seed)
	f.o.Sample = func(_ context.Context, _ *topo.Topology, at time.Duration) (*counters.Sample, error) {
		return load.at(at), nil
	}
	return f
}
