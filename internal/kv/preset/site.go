package preset

import (
	"cmp"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/kv"

	"github.com/topoctl/topoctl/internal/kv/serve"
	"github.com/topoctl/topoctl/internal/sim"
)

// site is a preset's hosts with what runs on them.
type site struct {
	spec            serve.Spec
	prefill, decode serve.Params // decode's is empty where prefill's instances do both
}

// site builds it. The hosts are of one kind, of the topology of the preset's fixture, and all on one switch.
func (p *Preset) site(t *topo.Topology) (*site, error) {
	kind, err := sim.NewKind(t, p.Transport)
	if err != nil {
		return nil, err
	}
	s := &site{spec: serve.Spec{Serve: p.Serving, Network: serve.Network{Name: p.Name}, Fabric: &sim.Fabric{Leaves: 1}, Seed: 1, SliceBytes: p.SliceBytes}}
	for i := range p.Hosts {
		s.spec.Hosts = append(s.spec.Hosts, sim.HostSpec{Name: fmt.Sprintf("n%d", i), Kind: kind})
		for rail, port := range kind.DataPorts() {
			s.spec.Fabric.Cables = append(s.spec.Fabric.Cables, sim.Cable{Host: i, Port: port, Rail: rail})
		}
	}
	if s.prefill, err = p.pool(&s.spec.Serve.Prefill, p.Prefill); err != nil {
		return nil, err
	}
	if s.spec.Prefill, s.spec.Decode, err = p.place(s.spec.Hosts); err != nil || !p.Split() {
		return s, err
	}
	if s.decode, err = p.pool(&s.spec.Serve.Decode, p.Decode); err != nil {
		return nil, err
	}
	return s, p.network(kind, &s.spec)
}

// sharing is how many ranks of an instance have one memory. Each is a process of its own, and
// predict has what starts in one memory wait for each other: that number of ranks shares the cost of a piece.
func (s *site) sharing() int64 {
	ranks := map[serve.Rank]bool{}
	for _, r := range s.spec.Prefill[0] {
		ranks[r] = true
	}
	return int64(len(s.spec.Prefill[0]) / len(ranks))
}

// network is the ports and the layout.
func (p *Preset) network(kind *sim.Kind, s *serve.Spec) error {
	model, err := kv.Find(p.Model)
	if err != nil {
		return err
	}
	if s.Serve.Cache, err = kv.New(model, kv.Side{TP: p.Prefill.TP, PageTokens: p.Prefill.PageTokens},
		kv.Side{TP: p.Decode.TP, PageTokens: p.Decode.PageTokens}); err != nil {
		return err
	}
	ports := kind.DataPorts()
	if p.NICs > len(ports) {
		return fmt.Errorf("%d NICs: hosts of %s have %d for data", p.NICs, p.Fixture, len(ports))
	}
	if p.NICs > 0 {
		s.Network.Ports = map[int][]topo.ID{}
		for i := range p.Hosts {
			s.Network.Ports[i] = ports[:p.NICs]
		}
	}
	return nil
}

// pool puts what computes and the memory into a pool.
func (p *Preset) pool(to *serve.Pool, of Instances) (serve.Params, error) {
	c, err := serve.Find(p.Model, p.GPU, of.TP, of.PP)
	if err != nil {
		return c, err
	}
	model, err := kv.Find(p.Model)
	if err != nil {
		return c, err
	}
	page, err := kv.Side{TP: of.TP, PageTokens: of.PageTokens}.RankBytes(model, of.PageTokens)
	if err != nil {
		return c, err
	}
	memory, err := serve.CacheBytes(p.Model, p.GPU, of.TP, of.PP)
	if err != nil {
		return c, err
	}
	to.PageTokens, to.Compute = of.PageTokens, &c
	to.Pages = int(memory * int64(of.PP) / page) // a rank keeps the layers of its stage
	return c, nil
}

// place gives the ranks of all instances their memory: GPUs in the order of hosts, each pipeline
// stage on a host of its own; staged caches lie in the NUMA nodes of a host for each side.
func (p *Preset) place(hosts []sim.HostSpec) (prefill, decode []serve.Instance, err error) {
	kind := hosts[0].Kind
	if p.Staged {
		nodes := kind.Host().Locations()[len(kind.Host().GPUs()):]
		if len(nodes) == 0 {
			return nil, nil, fmt.Errorf("hosts of %s have no memory beside that of GPUs", p.Fixture)
		}
		side := func(host, tp int) []serve.Instance {
			var ranks serve.Instance
			for r := range tp {
				ranks = append(ranks, serve.Rank{Host: host, Location: nodes[r*len(nodes)/tp]})
			}
			return []serve.Instance{ranks}
		}
		return side(0, p.Prefill.TP), side(1, p.Decode.TP), nil
	}
	places, on := serve.NewPlaces(hosts), make([]int, len(hosts))
	for i := range on {
		on[i] = i
	}
	side := func(of Instances) (out []serve.Instance) {
		for range of.Count {
			ranks, failed := places.Place(on, of.TP, of.PP)
			err = cmp.Or(err, failed)
			out = append(out, ranks)
		}
		return out
	}
	prefill, decode = side(p.Prefill), side(p.Decode)
	return prefill, decode, err
}
