// Package explain is pathsel's answer to one question about a host in full: which port
// for this memory, or what way between these two devices, with the route link by link,
// the other candidates, and what is worth a hint. The command and the dashboard both
// show it; names of nodes and links for people are here too.
package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// Answer is what is known of the way from a memory location to a port, or between two
// devices of a host.
type Answer struct {
	From topo.ID `json:"from"`
	To   topo.ID `json:"to,omitempty"` // "" where the question was which port to use
	// Why says why there is no way or no usable port; "" if there is one.
	Why string `json:"why,omitempty"`
	// Chosen is the best port for the memory of one end, nil without one.
	Chosen *pathsel.Candidate `json:"chosen"`
	// Ranked are the usable ports for that memory, best first; Rejected the others.
	Ranked   []pathsel.Candidate `json:"ranked"`
	Rejected []pathsel.Candidate `json:"rejected"`
	Route    *Route              `json:"route"`
	Capacity []Capacity          `json:"capacity"`
	Hints    []pathsel.Reason    `json:"hints"`
	// Nearness says that nothing tells which port is near the memory, nil where something does.
	Nearness *pathsel.Reason `json:"nearness,omitempty"`

	h *pathsel.Host
}

// Capacity is what several ports carry together for the memory.
type Capacity struct {
	Of string `json:"of"` // "preferred" or "usable"
	*pathsel.Capacity
}

// LocationOf is the memory location of a node.
func LocationOf(h *pathsel.Host, node topo.ID) (pathsel.Location, error) {
	l := pathsel.LocationOf(node)
	if slices.Contains(h.Locations(), l) {
		return l, nil
	}
	if strings.HasPrefix(string(node), "numa:") {
		return "", fmt.Errorf("%s is memory without CPUs of its own: name the GPU or NUMA node that it belongs to", l)
	}
	return "", fmt.Errorf("%s is no memory location: want gpu:N or cpu:N", node.Name())
}

// Memory says which ports a location uses.
func Memory(h *pathsel.Host, location pathsel.Location) (*Answer, error) {
	aff, err := h.Affinity(location, nil)
	if err != nil {
		return nil, err
	}
	a := newAnswer(h, location.Node(), "")
	a.Ranked, a.Rejected = aff.Ranked, aff.Rejected
	if len(a.Ranked) == 0 {
		if a.Why = PortsUnknown(h); a.Why == "" {
			a.Why = fmt.Sprintf("%s has no usable port", location)
		}
		return a, nil
	}
	a.Chosen, a.Nearness = &a.Ranked[0], h.Blind(location)
	a.Route = ToPort(h, location, a.Chosen)
	usable := append(aff.Preferred(), aff.Available()...)
	for _, set := range []struct {
		name  string
		ports []topo.ID
	}{{"preferred", aff.Preferred()}, {"usable", usable}} {
		c, err := h.Capacity(location, set.ports)
		if err != nil {
			return nil, err
		}
		a.Capacity = append(a.Capacity, Capacity{set.name, c})
	}
	a.hints()
	return a, nil
}

// Between explains the way between two nodes of one host.
func Between(h *pathsel.Host, from, to topo.ID) (*Answer, error) {
	a := newAnswer(h, from, to)
	a.Route = RouteBetween(h, from, to)
	if !a.Route.Known {
		a.Why = fmt.Sprintf("no way between %s and %s is known", ShortName(from), ShortName(to))
		if err := errors.Join(notOnTree(h, from), notOnTree(h, to)); err != nil {
			a.Why += ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		return a, nil
	}
	a.direct()
	a.degraded()
	if p := a.Route.PeerAccess; p != "" && p != "ok" {
		a.hint(HintNoAccess, "", "the driver refuses peer access between the two: %s", p)
	}
	return a, a.rank(h)
}

// rank adds the candidates where one end is memory and the other a port for it.
func (a *Answer) rank(h *pathsel.Host) error {
	for _, pair := range [][2]topo.ID{{a.From, a.To}, {a.To, a.From}} {
		location := pathsel.LocationOf(pair[0])
		if !slices.Contains(h.Locations(), location) {
			continue
		}
		aff, err := h.Affinity(location, nil)
		if err != nil {
			return err
		}
		of := func(c pathsel.Candidate) bool { return c.NIC == pair[1] || c.Port == pair[1] }
		if slices.ContainsFunc(aff.Ranked, of) || slices.ContainsFunc(aff.Rejected, of) {
			a.Ranked, a.Rejected = aff.Ranked, aff.Rejected
			if len(a.Ranked) > 0 {
				a.Chosen = &a.Ranked[0]
			}
			return nil
		}
	}
	return nil
}

func newAnswer(h *pathsel.Host, from, to topo.ID) *Answer {
	return &Answer{From: from, To: to, Ranked: []pathsel.Candidate{}, Rejected: []pathsel.Candidate{},
		Capacity: []Capacity{}, Hints: []pathsel.Reason{}, h: h}
}

// notOnTree says that a device has no known place.
func notOnTree(h *pathsel.Host, node topo.ID) error {
	switch n := h.Index().Node(node).(type) {
	case *topo.RDMADevice:
		if n.PCI == "" {
			return fmt.Errorf("%s has no PCI device", n.Name)
		}
	case *topo.Netdev:
		if n.PCI == "" {
			return fmt.Errorf("%s has no PCI device", n.Name)
		}
	}
	return nil
}

// PortsUnknown says that no network port of a host is known, "" if some are: whether data can
// leave such a host cannot be told.
func PortsUnknown(h *pathsel.Host) string {
	if len(h.Ports()) > 0 {
		return ""
	}
	cards := len(h.Topology().NICs)
	if cards == 0 {
		return "No network port is known"
	}
	return "No network port is known: neither interfaces nor RDMA devices of " + text.Plural(cards, "network card") + " are visible"
}
