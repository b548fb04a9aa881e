package sim

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// PortDown takes a port's wire down, in both directions, from a time until another: at once where that has passed,
// for the rest of the run where untilNS is 0.
func (c *Cluster) PortDown(host int, port topo.ID, fromNS, untilNS int64) error {
	wire, err := c.Cable(host, port)
	if err != nil {
		return err
	}
	if untilNS != 0 && untilNS <= max(fromNS, c.now) {
		return pkgerr.Errorf("sim", "port %q of host %q would be up again before it is down", port, c.names[host])
	}
	change := func(by int) func() { return func() { c.portChanged(host, port, wire, by) } }
	if fromNS <= c.now {
		change(1)()
	} else {
		c.At(fromNS, change(1))
	}
	if untilNS != 0 {
		c.At(untilNS, change(-1))
	}
	return nil
}

// portChanged adds a reason for a port to be down, or takes one away, and tells the listeners where it goes down or
// comes up by that.
func (c *Cluster) portChanged(host int, port topo.ID, wire [2]Link, by int) {
	before := c.links[wire[0]].down
	for _, l := range wire {
		x := &c.links[l]
		if x.down == 0 {
			x.healthy = c.capacities[l]
		}
		if x.down += by; x.down == 0 {
			c.setRate(l, x.healthy)
		} else {
			c.setRate(l, 0)
		}
	}
	if after := before + by; (before == 0) != (after == 0) {
		for _, hear := range c.portListeners {
			hear(host, c.hosts[host].kind.portAt[port], after == 0)
		}
	}
}

// portIsDown says whether a port is down now.
func (c *Cluster) portIsDown(host int, port topo.ID) bool {
	wire, err := c.Cable(host, port)
	return err == nil && c.links[wire[0]].down > 0
}

// Cable gives the directions of a port's own wire, to the leaf and from it.
func (c *Cluster) Cable(host int, port topo.ID) ([2]Link, error) {
	if err := c.checkHosts(host); err != nil {
		return [2]Link{}, err
	}
	k := c.hosts[host].kind
	i, ok := k.portAt[port]
	if !ok {
		return [2]Link{}, pkgerr.Errorf("sim", "host %q has no port %q", c.names[host], port)
	}
	base := c.firstLink(host) + Link(k.wires[i][0]&^1)
	return [2]Link{base, base + 1}, nil
}
