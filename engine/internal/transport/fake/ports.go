package fake

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// Ported is a Transport with ports of its own, as RDMA devices are: what was made
// with Options.Ports.
type Ported struct{ *Transport }

var (
	_ transport.Transport = Ported{}
	_ transport.Ported    = Ported{}
)

// Unwrap is the transport without ports.
func (p Ported) Unwrap() transport.Transport { return p.Transport }

// Offers are the ports that there are.
func (p Ported) Offers() []transport.Endpoint {
	out := []transport.Endpoint{}
	for _, port := range p.LocalPorts() {
		e := p.Endpoint(port.ID)
		e.BytesPerSec = port.BytesPerSec
		out = append(out, e)
	}
	return out
}

// Endpoint is where peers dial a port.
func (p Ported) Endpoint(port topo.ID) transport.Endpoint {
	return transport.Endpoint{Transport: p.options.Name, Port: port, Address: p.address + "#" + string(port)}
}

// LocalPorts are those of the options, or of the last SetPorts.
func (p Ported) LocalPorts() []transport.LocalPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ports)
}

// PortReaches asks Options.Reach.
func (p Ported) PortReaches(local topo.ID, remote transport.Endpoint) error {
	if p.options.Reach == nil {
		return nil
	}
	return p.options.Reach(local, remote.Port)
}

// Key is what Register gave.
func (p Ported) Key(*memory.Region) string { return "" }

// SetPorts replaces the ports: connections of those that are gone die, from either
// side, and cannot be made again. It calls Options.Changed.
func (p Ported) SetPorts(ports []transport.LocalPort) {
	p.mu.Lock()
	p.ports = slices.Clone(ports)
	var lost []*Conn
	for c := range p.active {
		if p.port(c.port) == nil {
			lost = append(lost, c)
		}
	}
	for _, end := range p.ends.All() {
		if p.port(portIn(end.conn.remote)) == nil {
			lost = append(lost, end.conn)
		}
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.Kill(errPortDown)
	}
	if p.options.Changed != nil {
		p.options.Changed()
	}
}

var errPortDown = errors.New("port is down")

// checkPort refuses connections of ports that are not there; mu is held.
func (t *Transport) checkPort(id topo.ID) error {
	if t.options.Ports != nil && t.port(id) == nil {
		return fmt.Errorf("port %q: %w", id, errPortDown)
	}
	return nil
}

func (t *Transport) port(id topo.ID) *transport.LocalPort {
	for i := range t.ports {
		if t.ports[i].ID == id {
			return &t.ports[i]
		}
	}
	return nil
}

// portIn is the port that an endpoint's address is of.
func portIn(address string) topo.ID {
	_, port, _ := strings.Cut(address, "#")
	return topo.ID(port)
}
