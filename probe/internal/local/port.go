package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// regionBytes is the memory at each end of a pair of ports: too large for a private cache.
const regionBytes = 64 << 20

// regionName is what the far end calls its memory.
const regionName = "probe"

// engineKey identifies an engine: at a port, with memory at a location, posting (or being posted to) over
// one transport. Lanes are taken out of use by name, whatever peer they lead to, so two transports need
// two engines.
type engineKey struct {
	transport string
	port      topo.ID
	location  pathsel.Location
	bytes     int64
	posts     bool
}

// engineAtPort is an engine at one port.
type engineAtPort struct {
	engine *engine.Engine
	region *engine.Region
	notes  []string
}

// port prepares a pair of ports: two engines, of which the one at From posts WRITEs.
func (r *round) port(ctx context.Context, pair *probe.Pair) (*job, error) {
	bytes := r.regionBytes
	if n := len(r.spec.SizesBytes); n > 0 {
		bytes = max(bytes, 4*r.spec.SizesBytes[n-1]) // two batches in each direction
	}
	from, err := r.portEngine(ctx, engineKey{pair.Transport, pair.From.Node, pair.From.Location, bytes, true})
	if err != nil {
		return nil, err
	}
	to, err := r.portEngine(ctx, engineKey{pair.Transport, pair.To.Node, pair.To.Location, bytes, false})
	if err != nil {
		return nil, err
	}
	peer, err := from.engine.Open(ctx, to.engine.Addrs()[0].String())
	if err != nil {
		return nil, err // over loopback, whatever ports are measured
	}
	l, err := r.lane(ctx, pair, from, peer)
	if err != nil {
		err = errors.Join(err, peer.Close())
		if errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrNoLane) {
			return nil, lane.Waive(err)
		}
		return nil, err
	}
	if r.alone { // else other pairs are in the same figure
		l.CPU = self.CPU
	}
	return &job{
		measure: func(ctx context.Context, spec probe.Spec, tell func(probe.Sample)) probe.Measurement {
			m := lane.Measure(ctx, l, spec, tell)
			m.Binding = probe.Binding{Threads: 1, FromMemory: lane.BoundTo(from.region), ToMemory: lane.BoundTo(to.region)}
			m.Notes = append(m.Notes, append(from.notes, to.notes...)...)
			return m
		},
		close: peer.Close,
	}, nil
}

// lane finds the lane between the ports.
func (p *Prober) lane(ctx context.Context, pair *probe.Pair, from *engineAtPort, peer *engine.Peer) (lane.Lane, error) {
	l := lane.Lane{Peer: peer, Local: from.region, Transport: pair.Transport, BothWays: pair.Variant == probe.VariantBothWays, Now: p.o.Now}
	var err error
	if l.Remote, err = peer.Region(ctx, regionName); err != nil {
		return l, err
	}
	var here, there topo.ID
	if pair.Transport == probe.RDMA {
		here, there = pair.From.Node, pair.To.Node
	}
	l.Name, err = lane.Isolate(from.engine, peer, l.Local, l.Remote, pair.Transport, here, there)
	return l, err
}

// portEngine finds or makes an engine at a port.
func (p *Prober) portEngine(ctx context.Context, key engineKey) (*engineAtPort, error) {
	if key.transport != probe.RDMA {
		key.port = "" // TCP and shared memory of one host go by no port
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, engine.ErrClosed
	}
	if e := p.engines[key]; e != nil {
		return e, nil
	}
	e, err := p.newEngine(ctx, key)
	if err != nil {
		return nil, err
	}
	p.engines[key] = e
	return e, nil
}

func (p *Prober) newEngine(ctx context.Context, key engineKey) (*engineAtPort, error) {
	token, err := p.sharedToken()
	if err != nil {
		return nil, err
	}
	transports := p.o.Engine
	if transports == nil {
		transports = []engine.TransportFactory{engine.SHM(), engine.TCP()}
	}
	if key.port != "" {
		transports = onPort(transports, key.port)
	}
	role := "to"
	if key.posts {
		role = "from"
	}
	e := &engineAtPort{}
	e.engine, err = engine.New(ctx, engine.Options{Name: fmt.Sprintf("probe-%s-%d", role, os.Getpid()), Security: engine.Security{Credentials: trust.Secret(token)}, Transports: transports})
	if err != nil {
		return nil, err
	}
	o, note := lane.MemoryAt(key.location, p.memoryNodes())
	if note != "" {
		e.notes = append(e.notes, note)
	}
	if key.transport != probe.SHM { // no other process maps it, and huge pages are rarely given for files
		o.Backing = memory.Private
	}
	e.region, err = e.engine.Alloc(key.bytes, engine.RegionOptions{Name: regionName, Grant: memory.PeerRead | memory.PeerWrite, Memory: o})
	if err != nil {
		return nil, errors.Join(err, e.engine.Close())
	}
	return e, nil
}

// sharedToken is the secret of the engines of this Prober: they listen on loopback, where other users of
// this host could reach them.
func (p *Prober) sharedToken() ([]byte, error) {
	if p.token == nil {
		raw := make([]byte, 32)
		if _, err := rand.Read(raw); err != nil {
			return nil, err
		}
		p.token = []byte(hex.EncodeToString(raw))
	}
	return p.token, nil
}

// memoryNodes is how many NUMA nodes with memory the host has.
func (p *Prober) memoryNodes() int {
	n := 0
	for i := range p.o.Topology.NUMANodes {
		if x := &p.o.Topology.NUMANodes[i]; x.MemoryBytes == nil || *x.MemoryBytes > 0 {
			n++
		}
	}
	return n
}

// onPort leaves transports one port.
func onPort(all []engine.TransportFactory, port topo.ID) []engine.TransportFactory {
	out := make([]engine.TransportFactory, 0, len(all))
	for _, f := range all {
		out = append(out, engine.OnPort(f, port))
	}
	return out
}
