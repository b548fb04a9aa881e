package fabric

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/probe"
)

// Prober measures pairs of ports of the fleet's hosts.
func (f *Fleet) Prober() probe.Prober { return prober{f} }

type prober struct{ f *Fleet }

// turn is one round as the controller sees it.
type turn struct {
	f      *Fleet
	number int64
	spec   probe.Spec
	tell   func(pair int, s probe.Sample)
	pairs  []*trial
	sides  []*side // the hosts that take part
	began  time.Time

	telling sync.Mutex
}

// trial is one pair of a round. One goroutine at a time has it: that of its From host
// while that is asked.
type trial struct {
	place    int
	pair     *probe.Pair
	spec     probe.Spec // with what the agents allow
	from, to *side
	bytes    int64 // of memory at each end
	region   region
	denied   error // why there is no region; its To host says it
	notes    []string
	waived   string

	state   string
	samples []probe.Sample
	result  *result
	elapsed time.Duration // from before the start to the result
	err     error
}

// side is one host of a round.
type side struct {
	a          *agent
	uses       int // ends of pairs
	from, to   []*trial
	err        error // why it cannot go on
	began, end *served
	links      map[int][]probe.LinkState // by pair
}

// Round measures pairs at the same time; see probe.Prober.
func (p prober) Round(ctx context.Context, pairs []probe.Pair, spec probe.Spec, tell func(pair int, s probe.Sample)) []probe.Measurement {
	p.f.rounds.Lock()
	defer p.f.rounds.Unlock()
	p.f.last++
	t := &turn{f: p.f, number: p.f.last, spec: spec, tell: tell}
	t.lay(pairs)
	each(t.sides, func(s *side) { t.prepare(ctx, s) })
	t.settle()
	each(t.sides, func(s *side) { t.connect(ctx, s) })
	each(t.sides, func(s *side) { t.follow(ctx, s, stateReady) })
	if ctx.Err() == nil {
		t.began = time.Now()
		each(t.sides, func(s *side) { t.start(ctx, s) })
		each(t.sides, func(s *side) { t.follow(ctx, s, stateDone) })
	}
	each(t.sides, t.finish)
	out := make([]probe.Measurement, len(pairs))
	for i, x := range t.pairs {
		out[i] = t.measurement(ctx, x)
	}
	return out
}

// lay says which host does what.
func (t *turn) lay(pairs []probe.Pair) {
	by := map[string]*side{}
	at := func(host string) (*side, error) {
		a := t.f.by[host]
		if a == nil {
			return nil, fmt.Errorf("%s: the fleet has no such host", host)
		}
		if err := a.alive(); err != nil {
			return nil, err
		}
		if by[host] == nil {
			by[host] = &side{a: a, links: map[int][]probe.LinkState{}}
			t.sides = append(t.sides, by[host])
		}
		return by[host], nil
	}
	wrong := CheckSpec(&t.spec)
	for i := range pairs {
		x := &trial{place: i, pair: &pairs[i], spec: t.spec, state: stateConnecting, err: wrong, waived: pairs[i].Waived}
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
		if x.waived = cmp.Or(x.from.a.lacks(x.pair.Transport), x.to.a.lacks(x.pair.Transport)); x.waived != "" {
			continue
		}
		for _, s := range []*side{x.from, x.to} {
			s.uses++
		}
		x.from.from, x.to.to = append(x.from.from, x), append(x.to.to, x)
	}
	for _, x := range t.pairs {
		if x.err == nil && x.waived == "" {
			x.waived = x.fit()
		}
	}
	t.dropWaived()
}

// lacks says why a host cannot measure over a transport, "" where it can.
func (a *agent) lacks(transport string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.host.Transports, transport) {
		return ""
	}
	return strings.Join(append([]string{fmt.Sprintf("%s does not have %s", a.name, clip(transport, 40))}, a.host.Unavailable...), "; ")
}

// What a pair has of memory, where the agents have so much: no cache holds it.
const memoryBytes = 128 << 20

// fit makes a pair keep to what both agents allow. Where that is too little for it, it says
// why: nothing is wrong with what is between them.
func (x *trial) fit() (waived string) {
	ways, largest := int64(1), int64(8)
	if x.pair.Variant == probe.VariantBothWays {
		ways = 2
	}
	if n := len(x.spec.SizesBytes); n > 0 {
		largest = max(largest, x.spec.SizesBytes[n-1])
	}
	x.bytes = max(memoryBytes, 4*largest)
	for _, s := range []*side{x.from, x.to} {
		l := s.a.limits()
		x.bytes = min(x.bytes, l.MemoryBytes/int64(s.uses))
		if x.bytes < ways*largest {
			return fmt.Sprintf("%s: it gives %d bytes of memory to each of %d ends of pairs, ops of %d bytes need %d", s.a.name, x.bytes, s.uses, largest, ways*largest)
		}
		if x.spec.PairTime == 0 || x.spec.PairTime > l.Duration {
			if x.spec.PairTime > 0 {
				x.notes = append(x.notes, fmt.Sprintf("the pair has %v: %s gives no more", l.Duration, s.a.name))
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

func (a *agent) limits() Limits {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.host.Limits
}
