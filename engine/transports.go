package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/internal/base/engine/session"
	"github.com/topoctl/topoctl/internal/base/engine/transport"
	"github.com/topoctl/topoctl/internal/base/engine/transport/shm"
	"github.com/topoctl/topoctl/internal/base/engine/transport/tcp"
)

// TCP moves memory over TCP connections, which peers let in where the engine
// listens.
func TCP() TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := tcp.New(tcp.Options{
			Regions: env.Regions, Identity: session.Identity{Name: env.Name, Epoch: env.Epoch, Token: env.Token},
		})
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}

// SHM copies between engines of one host and user through memory that both have
// mapped. Where the host has none of that, engines go on without it, and say so.
func SHM() TransportFactory {
	return func(env transport.Env) (transport.Transport, error) {
		t, err := shm.New(shm.Options{Regions: env.Regions})
		if err != nil {
			return nil, fmt.Errorf("shared memory is %w: %w", ErrUnavailable, err)
		}
		return t, nil
	}
}

// carrierNames lists the transports, for messages.
func (e *Engine) carrierNames() string {
	var names []string
	for _, c := range e.carriers {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func dedupe(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// checks says whether the slices of a job carry checksums: the batch decides, else
// the engine; by default where bytes leave this host.
func (e *Engine) checks(want Check, r *route) bool {
	if want == CheckAuto {
		want = e.o.Check
	}
	switch want {
	case CheckAlways:
		return true
	case CheckNever:
		return false
	}
	return r.leaves.Load()
}

// uncheckedOver are the transports that carry bytes away and make no checksums.
func (p *Peer) uncheckedOver(r *route) []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []string
	for i := range r.groups {
		if g := &r.groups[i]; g.leaves && len(g.lanes) > 0 && !g.carrier.caps.Checks {
			out = append(out, g.carrier.name)
		}
	}
	return out
}

// notOver adds to the reason of checks what they do not cover.
func notOver(reason string, unchecked []string) string {
	if len(unchecked) == 0 || strings.HasPrefix(reason, "no checksums") {
		return reason
	}
	return fmt.Sprintf("%s; over %s there is none but what the network itself checks", reason, strings.Join(dedupe(unchecked), " and "))
}

// checkReason puts that in words.
func (e *Engine) checkReason(want Check, leaves bool) string {
	switch {
	case want == CheckAlways:
		return "a checksum for each slice: the batch wants it"
	case want == CheckNever:
		return "no checksums: the batch wants none"
	case e.o.Check == CheckAlways:
		return "a checksum for each slice: the engine always wants it"
	case e.o.Check == CheckNever:
		return "no checksums: the engine wants none"
	case leaves:
		return "a checksum for each slice: bytes leave this host"
	}
	return "no checksums: bytes stay on this host"
}
