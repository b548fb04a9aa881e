package engine

import (
	"context"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/base/engine/peerdoc"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/pathsel"
)

// Topology is the peer's, nil where it has told none.
func (p *Peer) Topology() *topo.Topology {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.topology
}

// Region finds a region of the peer by name. Where it is not known, the peer is
// asked; ctx bounds that.
func (p *Peer) Region(ctx context.Context, name string) (*RemoteRegion, error) {
	for range 2 {
		if err := p.Err(); err != nil {
			return nil, err
		}
		p.mu.RLock()
		r := p.regions[name]
		p.mu.RUnlock()
		if r != nil {
			return r, nil
		}
		if err := p.ask(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("engine: peer %q: region %q: %w: it offers %s (regions that grant nothing are not offered)", p.name, name, ErrNoRegion, p.offers())
}

// offers lists some of the peer's regions, for a message.
func (p *Peer) offers() string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	names := []string{}
	for i := range p.desc.Regions {
		if i == few {
			return fmt.Sprintf("%q and %d others", names, len(p.desc.Regions)-i)
		}
		names = append(names, p.desc.Regions[i].Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%q", names)
}

// Regions lists what the peer offers now, in the order of IDs: it is asked.
func (p *Peer) Regions(ctx context.Context) ([]*RemoteRegion, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := p.ask(ctx); err != nil {
		return nil, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]*RemoteRegion, 0, len(p.byID))
	for i := range p.desc.Regions {
		out = append(out, p.byID[p.desc.Regions[i].ID])
	}
	return out, nil
}

// takeRegions keeps the regions that are still there as they are: users hold them.
func (p *Peer) takeRegions(d *peerdoc.Descriptor) {
	old := p.byID
	p.byID = make(map[memory.ID]*RemoteRegion, len(d.Regions))
	p.regions = make(map[string]*RemoteRegion, len(d.Regions))
	for i := range d.Regions {
		x := &d.Regions[i]
		r := old[x.ID]
		if r == nil {
			r = &RemoteRegion{peer: p, name: x.Name, location: pathsel.Location(x.Location)}
			r.t = transport.RemoteRegion{ID: x.ID, Bytes: x.Bytes}
			if x.Read {
				r.t.Grant |= memory.PeerRead
			}
			if x.Write {
				r.t.Grant |= memory.PeerWrite
			}
		}
		r.take(x.Keys)
		delete(old, x.ID)
		p.byID[x.ID], p.regions[x.Name] = r, r
	}
	for _, r := range old {
		r.closed.Store(true)
	}
	p.offered.Store(int64(len(p.byID)))
}
