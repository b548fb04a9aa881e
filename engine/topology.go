package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	hostroute "github.com/topoctl/topoctl/engine/internal/route"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/sched"
	"github.com/topoctl/topoctl/pathsel"
)

// described is a host as its topology has it.
type described struct {
	topology *topo.Topology
	host     *pathsel.Host // for TCP
	hostNote string        // why there is none
	rdma     *pathsel.Host // the same for RDMA
	rdmaNote string
}

// ports are what the engine knows of its host. They are replaced, never changed.
type ports struct {
	described
	// Of this engine, where it shares the host with others.
	assigned, rdmaAssigned []topo.ID
	document               json.RawMessage
}

// hosts are what the scheduler may have sides of.
func (p *ports) hosts() []*pathsel.Host {
	if p == nil {
		return nil
	}
	return []*pathsel.Host{p.host, p.rdma}
}

// newPorts prepares a topology; nil is none.
func (e *Engine) newPorts(t *topo.Topology) (*ports, error) {
	if t == nil {
		return nil, nil
	}
	host, err := pathsel.New(t, pathsel.Options{Transport: pathsel.TCP, Roles: e.o.Ports.Roles, Overlay: e.o.Ports.Overlay})
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	p := &ports{described: described{topology: t, host: host}}
	p.forRDMA(pathsel.Options{Roles: e.o.Ports.Roles, Overlay: e.o.Ports.Overlay})
	if p.document, err = t.Encode(); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	if len(p.document) > peerdoc.MaxTopologyBytes {
		e.log.Warn("the topology is too large for peers: they use this engine's address only", "bytes", len(p.document))
		p.document = nil
	}
	if e.o.Ports.LocalSize > 1 {
		if p.assigned, err = assigned(host, e.o.Ports.LocalRank, e.o.Ports.LocalSize); err != nil {
			return nil, fmt.Errorf("topology: %w", err)
		}
		if p.rdma != nil {
			if p.rdmaAssigned, err = assigned(p.rdma, e.o.Ports.LocalRank, e.o.Ports.LocalSize); err != nil {
				// A host whose RDMA ports cannot be used now still has others.
				p.rdma, p.rdmaNote = nil, "this host's RDMA ports cannot be shared out: "+err.Error()
			}
		}
	}
	return p, nil
}

// forRDMA prepares the topology for a transport with ports of its own, where it has
// any RDMA device.
func (d *described) forRDMA(o pathsel.Options) {
	if len(d.topology.RDMADevices) == 0 {
		d.rdmaNote = "it has no RDMA device"
		return
	}
	o.Transport = pathsel.RDMA
	var err error
	if d.rdma, err = pathsel.New(d.topology, o); err != nil {
		d.rdma, d.rdmaNote = nil, err.Error()
	}
}

// assigned are the ports of one of several engines of a host.
func assigned(h *pathsel.Host, rank, size int) ([]topo.ID, error) {
	ranks, err := h.Ranks(size)
	if err != nil {
		return nil, err
	}
	plan, err := h.Plan(ranks)
	if err != nil {
		return nil, err
	}
	var out []topo.ID
	for _, c := range plan.Assignments[rank].Ports {
		out = append(out, c.Port)
	}
	return out, nil
}

func (e *Engine) currentHost() *pathsel.Host {
	if p := e.ports.Load(); p != nil {
		return p.host
	}
	return nil
}

// Topology is this host's, as Options or SetTopology last set it; nil if they did not.
func (e *Engine) Topology() *topo.Topology {
	if p := e.ports.Load(); p != nil {
		return p.topology
	}
	return nil
}

// readTopology prepares what a peer says of its host. What cannot be used costs
// the lanes, not the peer.
func readTopology(document json.RawMessage) described {
	if len(document) == 0 {
		return described{}
	}
	t, err := topo.Decode(document)
	if err != nil {
		note := "the peer's topology cannot be read: " + err.Error()
		return described{hostNote: note, rdmaNote: note}
	}
	d := described{topology: t}
	if d.host, err = pathsel.New(t, pathsel.Options{Transport: pathsel.TCP}); err != nil {
		d.host, d.hostNote = nil, "the peer's topology cannot be used: "+err.Error()
	}
	d.forRDMA(pathsel.Options{})
	return d
}

// Advertised lists the addresses that this engine tells its peers. The first one has the
// reason why it was chosen.
func (e *Engine) Advertised() []Advertised {
	e.offering.mu.Lock()
	defer e.offering.mu.Unlock()
	var out []Advertised
	for i, x := range e.offering.endpoints {
		out = append(out, Advertised{Transport: pathsel.Transport(x.Transport), Port: x.Port, Address: x.Address, BytesPerSec: x.BytesPerSec})
		if i == 0 {
			out[0].Reason = e.offering.reason
		}
	}
	return out
}

// advertise finds the addresses that peers are told.
func (e *Engine) advertise(ctx context.Context) error {
	host, err := hostroute.System()
	if err != nil {
		return err
	}
	var known []pathsel.Port
	var document json.RawMessage
	if p := e.ports.Load(); p != nil {
		known, document = p.host.Ports(), p.document
	}
	var out []transport.Endpoint
	reason := ""
	add := func(x transport.Endpoint) {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	tells := hostroute.Endpoints(e.listen, known)
	choice, err := hostroute.Advertise(ctx, host, hostroute.Query{Listen: e.listen, Want: e.o.Advertise, Ports: known})
	switch {
	case err != nil && e.o.Advertise != "":
		return err
	case err != nil:
		e.log.Warn("no address to tell peers of other hosts", "error", err)
	default:
		at := transport.Endpoint{Transport: "tcp", Address: choice.Addr.String()}
		for _, t := range tells {
			if t.Address == at.Address {
				at.Port = t.Port
			}
		}
		add(at)
		reason = choice.Reason
		for _, w := range choice.Warnings {
			e.log.Warn("the address that peers are told", "address", choice.String(), "warning", w)
		}
	}
	for _, t := range tells {
		add(t)
	}
	e.own, e.ownReason = out, reason
	e.offerAll(document)
	return nil
}

// offerAll tells peers the engine's own addresses and what transports offer;
// topologyChange is held.
func (e *Engine) offerAll(document json.RawMessage) {
	out := slices.Clone(e.own)
	for _, c := range e.carriers {
		if offerer, ok := transport.As[transport.Offerer](c.t); ok {
			for _, t := range offerer.Offers() {
				if !slices.Contains(out, t) {
					out = append(out, t)
				}
			}
		}
	}
	e.reoffer(document, out, e.ownReason)
}

// followPorts does what comes of it that a transport's ports have changed.
func (e *Engine) followPorts() {
	for {
		select {
		case <-e.portsChanged:
		case <-e.ctx.Done():
			return
		}
		e.topologyChange.Lock()
		var document json.RawMessage
		if now := e.ports.Load(); now != nil {
			document = now.document
		}
		e.rekey()
		e.offerAll(document)
		e.rerouteAll()
		e.topologyChange.Unlock()
	}
}

// rerouteAll makes the routes of all peers anew.
func (e *Engine) rerouteAll() {
	for _, p := range e.opened() {
		p.reroute()
	}
}

// SetTopology replaces what the engine knows of its host. Ports that are down or gone are
// no longer used, new ones and those that are back are; running transfers continue over
// the ports that remain. Peers are told. ctx bounds the search for addresses.
func (e *Engine) SetTopology(ctx context.Context, t *topo.Topology) error {
	e.topologyChange.Lock()
	defer e.topologyChange.Unlock()
	before := e.ports.Load()
	after, err := e.newPorts(t)
	if err != nil {
		return pkgerr.Errorf("engine", "%w", err)
	}
	if before != nil && after != nil {
		e.keepSide(before.host, after.host)
		e.keepSide(before.rdma, after.rdma)
	}
	e.ports.Store(after)
	if err := e.advertise(ctx); err != nil {
		e.ports.Store(before)
		return pkgerr.Errorf("engine", "%w", err)
	}
	e.rerouteAll()
	return nil
}

// keepSide lets the scheduler know ports that stay by the number they had, and
// which of them went down or came up: that counts at once, before any stall.
func (e *Engine) keepSide(before, after *pathsel.Host) {
	if before == nil || after == nil {
		return
	}
	was, is := before.Ports(), after.Ports()
	same := len(was) == len(is)
	for i := 0; same && i < len(was); i++ {
		same = was[i].ID == is[i].ID
	}
	w := e.getWork()
	defer e.putWork(w)
	e.mu.Lock()
	side, ok := e.sides[before]
	if ok && same {
		e.sides[after] = side
		delete(e.sides, before)
	}
	if ok {
		now := map[topo.ID]bool{}
		for i := range is {
			now[is[i].ID] = !down(&is[i])
		}
		for i := range was {
			kind := sched.PortDown
			if now[was[i].ID] {
				kind = sched.PortUp
			}
			w.events = append(w.events, sched.Event{Kind: kind, Side: side, Port: was[i].Index})
		}
	}
	e.mu.Unlock()
	e.run(w)
}

// down says whether a port carries nothing.
func down(p *pathsel.Port) bool { return p.BytesPerSec != nil && *p.BytesPerSec == 0 }
