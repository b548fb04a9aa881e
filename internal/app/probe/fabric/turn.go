package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/topoctl/topoctl/probe"
)

// ask asks the agent of a side, unless it has failed in this round.
func (t *turn) ask(ctx context.Context, s *side, most time.Duration, r *request) *answer {
	if s.err == nil {
		s.err = s.a.alive()
	}
	if s.err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("%s is not answered within %v", r.Do, most))
	defer cancel()
	r.Round = t.number
	out, err := s.a.call(ctx, r)
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.a.name, err)
		return nil
	}
	return out
}

// How long agents may take to make memory, and to give it back.
const (
	prepareTime = 30 * time.Second
	finishTime  = 20 * time.Second
)

func (t *turn) prepare(ctx context.Context, s *side) {
	r := &request{Do: doPrepare}
	for _, x := range s.to {
		if x.err == nil {
			r.Regions = append(r.Regions, region{ID: x.place, Bytes: x.bytes, Location: x.pair.To.Location})
		}
	}
	for _, x := range slices.Concat(s.from, s.to) {
		if x.err == nil && !slices.ContainsFunc(r.Looks, func(l look) bool { return l.ID == x.place }) {
			r.Looks = append(r.Looks, look{ID: x.place, Host: s.a.name, Path: x.pair.Path})
		}
	}
	out := t.ask(ctx, s, prepareTime, r)
	if out == nil {
		return
	}
	s.began = out.Served
	given := map[int]region{}
	for _, g := range out.Regions {
		given[g.ID] = g
	}
	for _, x := range s.to {
		if x.err != nil {
			continue
		}
		g := given[x.place]
		switch err := checkText("region", g.Name); {
		case g.Error != "":
			x.denied = waived{fmt.Errorf("%s: %s", s.a.name, clip(g.Error, maxErrorText))}
		case err != nil || g.Name == "" || g.Bytes != x.bytes:
			x.denied = fmt.Errorf("%s: memory %q of %d bytes, %d were asked for", s.a.name, clip(g.Name, maxText), g.Bytes, x.bytes)
		default:
			x.region = g
		}
	}
}

// settle lets a pair know whether its target has memory for it.
func (t *turn) settle() {
	for _, x := range t.pairs {
		if x.err != nil || x.waived != "" || x.to == nil {
			continue
		}
		var w waived
		if errors.As(x.denied, &w) {
			x.waived = w.Error()
			continue
		}
		x.err = cmp.Or(x.denied, x.to.err)
	}
	t.dropWaived()
}

// dropWaived takes the pairs out that are not measured.
func (t *turn) dropWaived() {
	gone := func(x *trial) bool { return x.waived != "" }
	for _, s := range t.sides {
		s.from, s.to = slices.DeleteFunc(s.from, gone), slices.DeleteFunc(s.to, gone)
	}
}

func (t *turn) connect(ctx context.Context, s *side) {
	r := &request{Do: doConnect}
	for _, x := range s.from {
		if x.err != nil {
			continue
		}
		r.Jobs = append(r.Jobs, jobWant{
			ID: x.place, Transport: x.pair.Transport, BothWays: x.pair.Variant == probe.VariantBothWays,
			LocalPort: x.pair.From.Node, RemotePort: x.pair.To.Node, Location: x.pair.From.Location, Bytes: x.bytes,
			Host: x.to.a.name, Addresses: x.addresses(), Epoch: x.to.a.peer.Epoch(), Region: x.region.Name,
			GiveUp: t.f.giveUp, Alone: x.alone(), Spec: x.spec,
		})
	}
	if len(r.Jobs) > 0 {
		t.ask(ctx, s, callTime, r)
	}
}

// alone says whether no other pair of the round uses the processes of its ends.
func (x *trial) alone() bool {
	if x.from == x.to {
		return x.from.uses == 2
	}
	return x.from.uses == 1 && x.to.uses == 1
}

// addresses are where the target may be reached from the initiator, best first: as we
// reach it, then at the port that is measured, at other ports, and on the host itself.
func (x *trial) addresses() []string {
	var first, other, loopback []string
	add := func(to *[]string, a string) { *to = append(*to, a) }
	if isLoopback(x.to.a.address) {
		add(&loopback, x.to.a.address)
	} else {
		add(&first, x.to.a.address)
	}
	for _, e := range x.to.a.endpoints {
		switch {
		case isLoopback(e.Address):
			add(&loopback, e.Address)
		case e.Port != "" && e.Port == x.pair.To.Node:
			add(&first, e.Address)
		default:
			add(&other, e.Address)
		}
	}
	var out []string
	for _, a := range slices.Concat(first, other, loopback) {
		if !slices.Contains(out, a) && len(out) < maxAddresses {
			out = append(out, a)
		}
	}
	return out
}

func isLoopback(address string) bool {
	if a, err := netip.ParseAddrPort(address); err == nil {
		return a.Addr().IsLoopback()
	}
	return strings.HasPrefix(address, "localhost:")
}

func (t *turn) start(ctx context.Context, s *side) {
	if len(s.from) > 0 {
		t.ask(ctx, s, callTime, &request{Do: doStart})
	}
}

// How often an agent is asked how its pairs are, at first and later on, and how much
// longer than its pairs may take it is waited for.
const (
	pollFirst = 4 * time.Millisecond
	pollLast  = 128 * time.Millisecond
	graceTime = 30 * time.Second
)

// follow asks an agent until all its pairs have come to a state, or are done. When ctx
// ends it has them stopped, and takes what they have measured.
func (t *turn) follow(ctx context.Context, s *side, state string) {
	if len(s.from) == 0 {
		return
	}
	until := time.Now().Add(time.Duration(1+len(s.from)/maxConnecting)*connectTime + graceTime)
	if state == stateDone {
		for _, x := range s.from {
			until = later(until, time.Now().Add(x.spec.PairTime+connectTime+graceTime))
		}
	}
	stopped := ctx.Done()
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pause := pollFirst
	for {
		if out := t.ask(calls, s, callTime, &request{Do: doPoll, Seen: s.seen()}); out != nil {
			s.err = t.takeStates(s, out.Jobs)
		}
		if s.err != nil || s.all(state) {
			return
		}
		if time.Now().After(until) {
			s.err = fmt.Errorf("%s: its pairs do not come to an end", s.a.name)
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, pollLast)
		case <-stopped:
			stopped, state = nil, stateDone
			until, pause = time.Now().Add(finishTime), pollFirst
			t.ask(calls, s, callTime, &request{Do: doStop})
		case <-s.a.peer.Done():
			s.err = fmt.Errorf("%s: %w", s.a.name, s.a.peer.Err())
		}
		timer.Stop()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// seen is what is known of the pairs of a side.
func (s *side) seen() []seen {
	out := []seen{}
	for _, x := range s.from {
		out = append(out, seen{ID: x.place, Samples: len(x.samples), Result: x.result != nil})
	}
	return out
}

// all says whether all pairs of a side that were begun are in a state, or done.
func (s *side) all(state string) bool {
	return !slices.ContainsFunc(s.from, func(x *trial) bool {
		return x.err == nil && x.result == nil && (x.state != state || state == stateDone)
	})
}

// takeStates takes what an agent says of its pairs; an error is about the agent.
func (t *turn) takeStates(s *side, states []jobState) error {
	said := map[int]*jobState{}
	for i := range states {
		said[states[i].ID] = &states[i]
	}
	for _, x := range s.from {
		if x.err != nil || x.result != nil {
			continue
		}
		j := said[x.place]
		if j == nil {
			return fmt.Errorf("%s: it says nothing of pair %s", s.a.name, x.pair.ID)
		}
		x.state = j.State
		if err := t.takeSamples(x, j.Samples); err != nil {
			x.err = fmt.Errorf("%s: %w", s.a.name, err)
			continue
		}
		if j.Result != nil {
			x.result = j.Result
			if !t.began.IsZero() {
				x.elapsed = time.Since(t.began)
			}
		}
	}
	return nil
}

func (t *turn) takeSamples(x *trial, list []probe.Sample) error {
	if most := x.spec.MaxSamples * len(x.spec.SizesBytes); len(list) > most-len(x.samples) {
		return fmt.Errorf("%d samples more, there are %d: at most %d were asked for", len(list), len(x.samples), most)
	}
	for _, s := range list {
		if s.BytesPerSec < 0 || s.BytesPerSec > maxRate || !slices.Contains(x.spec.SizesBytes, s.SizeBytes) {
			return fmt.Errorf("a sample of %d bytes/s with ops of %d bytes: %w", s.BytesPerSec, s.SizeBytes, errClaim)
		}
	}
	x.samples = append(x.samples, list...)
	if t.tell != nil {
		t.telling.Lock()
		defer t.telling.Unlock()
		for _, s := range list {
			t.tell(x.place, s)
		}
	}
	return nil
}

// finish ends the round on a host, also after an interruption.
func (t *turn) finish(s *side) {
	broken := s.err
	s.err = nil // it may have something to give back all the same
	out := t.ask(context.Background(), s, finishTime, &request{Do: doEnd})
	s.err = cmp.Or(broken, s.err)
	if out == nil {
		return
	}
	s.end = out.Served
	for _, l := range out.Links {
		if l.ID >= 0 && l.ID < len(t.pairs) {
			s.links[l.ID] = l.Links
		}
	}
}
