package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/probe"
	"github.com/topoctl/topoctl/probe/internal/lane"
)

// controllerRound is a round from the controller's point of view.
type controllerRound struct {
	f      *Fleet
	number int64
	spec   probe.Spec
	report func(pair int, s probe.Sample)
	pairs  []*pairRun
	hosts  []*roundHost // the hosts that take part
	began  time.Time

	reporting sync.Mutex
}

// pairRun is one pair of a round. Only one goroutine uses it at a time: that of its From host while this
// is asked.
type pairRun struct {
	place     int
	pair      *probe.Pair
	spec      probe.Spec // with what the agents allow
	from, to  *roundHost
	bytes     int64 // of memory at each end
	region    region
	regionErr error // why there is no region; its To host says it
	notes     []string
	waived    string

	state   string
	samples []probe.Sample
	result  *result
	elapsed time.Duration // from before the start to the result
	err     error
}

// roundHost is one host of a round.
type roundHost struct {
	a          *agent
	uses       int // ends of pairs
	from, to   []*pairRun
	err        error // why it cannot go on
	began, end *served
	load       [2]*lane.Load             // at the start and at the end
	links      map[int][]probe.LinkState // by pair
}

// Round measures pairs at the same time; see Prober.
func (f *Fleet) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(pair int, s probe.Sample)) []probe.Measurement {
	f.rounds.Lock()
	defer f.rounds.Unlock()
	f.last++
	t := &controllerRound{f: f, number: f.last, spec: spec, report: tell}
	t.assign(pairs)
	inParallel(t.hosts, func(s *roundHost) { t.prepare(ctx, s) })
	t.checkTargets()
	inParallel(t.hosts, func(s *roundHost) { t.connect(ctx, s) })
	inParallel(t.hosts, func(s *roundHost) { t.pollUntil(ctx, s, stateReady) })
	if ctx.Err() == nil {
		t.began = time.Now()
		inParallel(t.hosts, func(s *roundHost) { t.start(ctx, s) })
		inParallel(t.hosts, func(s *roundHost) { t.pollUntil(ctx, s, stateDone) })
	}
	inParallel(t.hosts, t.finish)
	out := make([]probe.Measurement, len(pairs))
	for i, x := range t.pairs {
		out[i] = t.measurement(ctx, x)
	}
	return out
}

// assign says which host does what.
func (t *controllerRound) assign(pairs []probe.Pair) {
	by := map[string]*roundHost{}
	at := func(host string) (*roundHost, error) {
		a := t.f.by[host]
		if a == nil {
			return nil, fmt.Errorf("%s: the fleet has no such host", host)
		}
		if err := a.lost(); err != nil {
			return nil, err
		}
		if by[host] == nil {
			by[host] = &roundHost{a: a, links: map[int][]probe.LinkState{}}
			t.hosts = append(t.hosts, by[host])
		}
		return by[host], nil
	}
	wrong := CheckSpec(&t.spec)
	for i := range pairs {
		x := &pairRun{place: i, pair: &pairs[i], spec: t.spec, state: stateConnecting, err: wrong, waived: pairs[i].Waived}
		t.pairs = append(t.pairs, x)
		switch {
		case x.err != nil || x.waived != "":
			continue
		case x.pair.Kind != probe.Port:
			x.err = fmt.Errorf("a pair of kind %q: hosts of a fabric measure pairs of ports", x.pair.Kind)
			continue
		case len(pairs) > 1<<16:
			x.err = fmt.Errorf("%d pairs in a round: want at most %d", len(pairs), 1<<16)
			continue
		}
		var there error
		x.from, x.err = at(x.pair.From.Host)
		x.to, there = at(x.pair.To.Host)
		if x.err = cmp.Or(x.err, there); x.err != nil {
			continue
		}
		if x.waived = cmp.Or(x.from.a.missingTransport(x.pair.Transport), x.to.a.missingTransport(x.pair.Transport)); x.waived != "" {
			continue
		}
		for _, s := range []*roundHost{x.from, x.to} {
			s.uses++
		}
		x.from.from, x.to.to = append(x.from.from, x), append(x.to.to, x)
	}
	for _, x := range t.pairs {
		if x.err == nil && x.waived == "" {
			x.waived = x.applyLimits()
		}
	}
	t.dropWaived()
}

// missingTransport says why a host cannot measure over a transport, "" if it can.
func (a *agent) missingTransport(transport string) string {
	h := a.known()
	if slices.Contains(h.Transports, transport) {
		return ""
	}
	return strings.Join(append([]string{fmt.Sprintf("%s does not have %s", a.name, clip(transport, 40))}, h.Unavailable...), "; ")
}

// memoryBytes is the memory of a pair at each end, if the agents have as much: too large for a cache.
const memoryBytes = 128 << 20

// applyLimits adjusts a pair to what both agents allow. If that is too little, it says why: then the path
// between them is not at fault.
func (x *pairRun) applyLimits() (waived string) {
	ways, largest := int64(1), int64(8)
	if x.pair.Variant == probe.VariantBothWays {
		ways = 2
	}
	if n := len(x.spec.SizesBytes); n > 0 {
		largest = max(largest, x.spec.SizesBytes[n-1])
	}
	x.bytes = max(memoryBytes, 4*largest)
	for _, s := range []*roundHost{x.from, x.to} {
		l := s.a.known().Limits
		x.bytes = min(x.bytes, l.MemoryBytes/int64(s.uses))
		if x.bytes < ways*largest {
			return fmt.Sprintf("%s: it allows %d bytes of memory for each of %d ends of pairs, but ops of %d bytes need %d", s.a.name, x.bytes, s.uses, largest, ways*largest)
		}
		if x.spec.PairTime == 0 || x.spec.PairTime > l.Duration {
			if x.spec.PairTime > 0 {
				x.notes = append(x.notes, fmt.Sprintf("the pair gets %v: %s allows no more", l.Duration, s.a.name))
			}
			x.spec.PairTime = l.Duration
		}
		if l.BytesPerSec == 0 {
			continue
		}
		if share := max(1, l.BytesPerSec/(int64(s.uses)*ways)); x.spec.RateLimit == 0 || x.spec.RateLimit > share {
			x.spec.RateLimit = share
			x.notes = append(x.notes, fmt.Sprintf("limited to %d bytes/s: %s allows %d for all its pairs", share, s.a.name, l.BytesPerSec))
		}
	}
	x.bytes -= x.bytes % 4096
	x.bytes = max(x.bytes, ways*largest)
	return ""
}

// ask calls the agent of a host, unless that has failed in this round.
func (t *controllerRound) ask(ctx context.Context, s *roundHost, most time.Duration, r *request) *answer {
	if s.err == nil {
		s.err = s.a.lost()
	}
	if s.err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer to %s within %v", r.Do, most))
	defer cancel()
	r.Round = t.number
	out, err := s.a.call(ctx, r)
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.a.name, err)
		return nil
	}
	return out
}

// How long agents may take to allocate memory, and to free it.
const (
	prepareTime = 30 * time.Second
	finishTime  = 20 * time.Second
)

func (t *controllerRound) prepare(ctx context.Context, s *roundHost) {
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
			x.regionErr = lane.Waive(fmt.Errorf("%s: %s", s.a.name, clip(g.Error, maxErrorText)))
		case err != nil || g.Name == "" || g.Bytes != x.bytes:
			x.regionErr = fmt.Errorf("%s: memory %q of %d bytes, %d were requested", s.a.name, clip(g.Name, maxText), g.Bytes, x.bytes)
		default:
			x.region = g
		}
	}
}

// checkTargets fails or waives the pairs whose target has no memory for them.
func (t *controllerRound) checkTargets() {
	for _, x := range t.pairs {
		if x.err != nil || x.waived != "" || x.to == nil {
			continue
		}
		var w lane.Waived
		if errors.As(x.regionErr, &w) {
			x.waived = w.Error()
			continue
		}
		x.err = cmp.Or(x.regionErr, x.to.err)
	}
	t.dropWaived()
}

// dropWaived removes the pairs that are not measured.
func (t *controllerRound) dropWaived() {
	gone := func(x *pairRun) bool { return x.waived != "" }
	for _, s := range t.hosts {
		s.from, s.to = slices.DeleteFunc(s.from, gone), slices.DeleteFunc(s.to, gone)
	}
}

func (t *controllerRound) connect(ctx context.Context, s *roundHost) {
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

// alone says whether no other pair of the round uses the processes at its ends.
func (x *pairRun) alone() bool {
	if x.from == x.to {
		return x.from.uses == 2
	}
	return x.from.uses == 1 && x.to.uses == 1
}

// addresses are where the initiator may reach the target, best first: the address that we use, then the
// port that is measured, other ports, and loopback.
func (x *pairRun) addresses() []string {
	rank := func(e endpoint) int {
		switch {
		case isLoopback(e.Address):
			return 2
		case e.Port != "" && e.Port == x.pair.To.Node || e.Address == x.to.a.address:
			return 0
		}
		return 1
	}
	list := append([]endpoint{{Address: x.to.a.address}}, x.to.a.endpoints...)
	slices.SortStableFunc(list, func(a, b endpoint) int { return rank(a) - rank(b) })
	var out []string
	for _, e := range list {
		if !slices.Contains(out, e.Address) && len(out) < maxAddresses {
			out = append(out, e.Address)
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

func (t *controllerRound) start(ctx context.Context, s *roundHost) {
	if out := t.ask(ctx, s, callTime, &request{Do: doStart}); out != nil {
		s.load[0] = out.Load
	}
}

// How often an agent is asked how its pairs are, at first and later on, and how much
// longer than its pairs may take it is waited for.
const (
	pollFirst = 4 * time.Millisecond
	pollLast  = 128 * time.Millisecond
	graceTime = 30 * time.Second
)

// pollUntil asks an agent until all its pairs have reached a state, or are done. When ctx ends it stops
// them, and collects what they have measured.
func (t *controllerRound) pollUntil(ctx context.Context, s *roundHost, state string) {
	if len(s.from) == 0 {
		return
	}
	patience := time.Duration(1+len(s.from)/maxConnecting) * connectTime
	if state == stateDone {
		for _, x := range s.from {
			patience = max(patience, x.spec.PairTime+connectTime)
		}
	}
	until := time.Now().Add(patience + graceTime)
	stopped := ctx.Done()
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	pause := pollFirst
	for {
		if out := t.ask(calls, s, callTime, &request{Do: doPoll, Seen: s.seen()}); out != nil {
			s.err = t.recordStates(s, out.Jobs)
		}
		if s.err != nil || s.allReached(state) {
			return
		}
		if time.Now().After(until) {
			s.err = fmt.Errorf("%s: its pairs do not end", s.a.name)
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

// seen says what the controller has received of the pairs of a host.
func (s *roundHost) seen() []seen {
	out := []seen{}
	for _, x := range s.from {
		out = append(out, seen{ID: x.place, Samples: len(x.samples), Result: x.result != nil})
	}
	return out
}

// allReached says whether all pairs of a host that were begun are in a state, or done.
func (s *roundHost) allReached(state string) bool {
	return !slices.ContainsFunc(s.from, func(x *pairRun) bool {
		return x.err == nil && x.result == nil && (x.state != state || state == stateDone)
	})
}

// recordStates records what an agent reports of its pairs; an error is about the agent.
func (t *controllerRound) recordStates(s *roundHost, states []jobState) error {
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
			return fmt.Errorf("%s: it does not report pair %s", s.a.name, x.pair.ID)
		}
		x.state = j.State
		if err := t.recordSamples(x, j.Samples); err != nil {
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

func (t *controllerRound) recordSamples(x *pairRun, list []probe.Sample) error {
	if most := x.spec.MaxSamples * len(x.spec.SizesBytes); len(list) > most-len(x.samples) {
		return fmt.Errorf("%d more samples after %d: at most %d were requested", len(list), len(x.samples), most)
	}
	for _, s := range list {
		if s.BytesPerSec < 0 || s.BytesPerSec > maxRate || !slices.Contains(x.spec.SizesBytes, s.SizeBytes) {
			return fmt.Errorf("a sample of %d bytes/s with ops of %d bytes: %w", s.BytesPerSec, s.SizeBytes, errClaim)
		}
	}
	x.samples = append(x.samples, list...)
	if t.report != nil {
		t.reporting.Lock()
		defer t.reporting.Unlock()
		for _, s := range list {
			t.report(x.place, s)
		}
	}
	return nil
}

// finish ends the round on a host, also after an interruption.
func (t *controllerRound) finish(s *roundHost) {
	broken := s.err
	s.err = nil // it may still have something to free
	out := t.ask(context.Background(), s, finishTime, &request{Do: doEnd})
	s.err = cmp.Or(broken, s.err)
	if out == nil {
		return
	}
	s.end, s.load[1] = out.Served, out.Load
	for _, l := range out.Links {
		if l.ID >= 0 && l.ID < len(t.pairs) {
			s.links[l.ID] = l.Links
		}
	}
}
