package replay

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/kv"
	"github.com/topoctl/topoctl/internal/kv/serve"
)

// mover carries out transfers. Its fields belong to the loop unless they say otherwise.
type mover struct {
	o               *Options
	loop            *loop
	prefill, decode *side
	senders         []*sender          // by local instance
	stopRouting     func(instance int) // of a remote one
	lostInstances   map[int]Lost       // remote instances, and the first loss of each
	lostPeers       []Lost             // peers, the first one first
	lastDecode      []int              // by request; -1 none
	lanes           map[laneKey]*Lane
	transfers       int64
	pieces          int64

	checked atomic.Int64
	running sync.WaitGroup
}

// laneKey identifies a lane.
type laneKey struct{ peer, name, transport string }

// job is a transfer of all ranks.
type job struct {
	t            serve.Transfer
	source, dest []uint32 // page tables
	done         func(int64, error)
	batches      []*batch
	err          error
}

// batch is the part of a job between two ranks.
type batch struct {
	*engine.Batch
	remote  *engine.RemoteRegion
	beganNS int64 // of Submit
	cancel  context.CancelFunc
}

func newMover(o *Options) (*mover, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Transfer = cmp.Or(o.Transfer, defaultTransfer)
	m := &mover{o: o, loop: newLoop(), stopRouting: func(int) {}, lostInstances: map[int]Lost{}, lanes: map[laneKey]*Lane{}, lastDecode: make([]int, len(o.Workload.Requests))}
	for i := range m.lastDecode {
		m.lastDecode[i] = -1
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x7061676573))
	prefillRegions, decodeRegions := len(o.Local[0]), len(o.Remote[0])
	if m.pull() {
		prefillRegions, decodeRegions = decodeRegions, prefillRegions
	}
	var err error
	if m.prefill, err = newSide(o.Serve.Cache.Model, o.Serve.Cache.Prefill, o.Serve.Prefill.Pages, o.Serve.Prefill.Instances, prefillRegions, rng); err != nil {
		return nil, err
	}
	if m.decode, err = newSide(o.Serve.Cache.Model, o.Serve.Cache.Decode, o.Serve.Decode.Pages, o.Serve.Decode.Instances, decodeRegions, rng); err != nil {
		return nil, err
	}
	return m, nil
}

// start starts the senders and watches the peers. wait waits for them, once ctx has ended.
func (m *mover) start(ctx context.Context) {
	for range m.o.Local {
		s := &sender{m: m, wake: make(chan struct{}, 1)}
		m.senders = append(m.senders, s)
		m.running.Go(func() { s.run(ctx) })
	}
	for i, regions := range m.o.Remote {
		peers := map[*engine.Peer]bool{}
		for _, r := range regions {
			if p := r.Peer(); !peers[p] {
				peers[p] = true
				m.running.Go(func() { m.watch(ctx, i, p) })
			}
		}
	}
}

// watch stops routing to an instance when one of its peers is gone.
func (m *mover) watch(ctx context.Context, instance int, p *engine.Peer) {
	select {
	case <-p.Done():
		m.loop.post(func() {
			loss := Lost{p.Name(), m.loop.nowNS, p.Err()}
			if !slices.ContainsFunc(m.lostPeers, func(x Lost) bool { return x.Peer == loss.Peer }) {
				m.lostPeers = append(m.lostPeers, loss)
			}
			if _, known := m.lostInstances[instance]; !known {
				m.lostInstances[instance] = loss
				m.stopRouting(instance)
			}
		})
	case <-ctx.Done():
	}
}

func (m *mover) wait() { m.running.Wait() }

// pull says whether the decode side drives.
func (m *mover) pull() bool { return m.o.Serve.Move == serve.Pull }

// Pages implements serve.Pager.
func (m *mover) Pages(h serve.Holding) {
	if !h.Decode {
		m.prefill.tables[h.Instance].resize(h.Request, h.Pages)
		return
	}
	m.decode.tables[h.Instance].resize(h.Request, h.Pages)
	m.lastDecode[h.Request] = h.Instance
}

// Move implements serve.Mover.
func (m *mover) Move(t serve.Transfer, done func(int64, error)) {
	j := &job{t: t, done: done, source: slices.Clone(m.prefill.tables[t.Prefill].byRequest[t.Request]), dest: slices.Clone(m.decode.tables[t.Decode].byRequest[t.Request])}
	local, _ := m.ends(&t)
	m.senders[local].enqueue(j)
}

// ends are the local and the remote instance of a transfer.
func (m *mover) ends(t *serve.Transfer) (local, remote int) {
	if m.pull() {
		return t.Decode, t.Prefill
	}
	return t.Prefill, t.Decode
}

// regions are those of two ranks.
func (m *mover) regions(t *serve.Transfer, p kv.Pair) (*engine.Region, *engine.RemoteRegion) {
	local, remote := m.ends(t)
	from, to := p.Prefill/m.prefill.ranksPerRegion, p.Decode/m.decode.ranksPerRegion
	if m.pull() {
		from, to = to, from
	}
	return m.o.Local[local][from], m.o.Remote[remote][to]
}

// memory is a region of one end of a transfer.
func (m *mover) memory(t *serve.Transfer, here bool, region int) interface {
	io.ReaderAt
	io.WriterAt
} {
	local, remote := m.ends(t)
	if here {
		return m.o.Local[local][region]
	}
	return m.o.Remote[remote][region]
}

// finish waits for the batches of a job and reports the outcome.
func (m *mover) finish(ctx context.Context, j *job, nowNS int64) {
	defer m.running.Done()
	var used []Lane
	began, kind := nowNS, "move"
	for _, b := range j.batches {
		<-b.Done()
		b.cancel()
		if err := b.Err(); err != nil && j.err == nil {
			j.err = failedAt(b.remote, err)
		}
		first, lanes := b.usage()
		began = min(began, first)
		used = append(used, lanes...)
	}
	if j.err == nil && m.o.Check {
		j.err, kind = m.verify(ctx, j), "check"
	}
	if j.err != nil {
		j.err = &kv.Failure{Kind: kind, Err: fmt.Errorf("cache from prefill instance %d to decode instance %d: %w", j.t.Prefill, j.t.Decode, j.err)}
	}
	m.loop.post(func() {
		for i := range used {
			m.addLane(&used[i])
		}
		if j.err == nil {
			m.transfers += int64(len(j.t.Pairs))
			for i := range j.t.Pairs {
				m.pieces += j.t.Pairs[i].Pieces
			}
		}
		j.done(began, j.err)
	})
}

// usage is when the first byte of a batch began to move, and what its lanes did.
func (b *batch) usage() (firstNS int64, lanes []Lane) {
	first, peer := int64(-1), b.remote.Peer().Name()
	for _, r := range b.Explain().Routes {
		for _, u := range r.Used {
			if u.Slices > 0 && (first < 0 || u.FirstNS < first) {
				first = u.FirstNS
			}
			lanes = append(lanes, Lane{Peer: peer, Name: u.Lane, Transport: string(u.Transport), Bytes: u.Bytes, Slices: u.Slices, Retries: u.Retries,
				BytesPerSec: expected(&r, &u), Error: u.Error})
		}
	}
	return b.beganNS + max(first, 0), lanes
}

// expected is what a lane should carry alone for a route, nil not known.
func expected(r *engine.RouteRecord, u *engine.LaneUse) *int64 {
	for _, g := range r.Groups {
		for _, l := range g.Lanes {
			if g.Transport == u.Transport && l.Lane == u.Lane && l.ExpectedBytesPerSec != nil {
				rate := int64(*l.ExpectedBytesPerSec)
				return &rate
			}
		}
	}
	return nil
}

// failedAt names the remote region in an error.
func failedAt(r *engine.RemoteRegion, err error) error {
	return fmt.Errorf("region %q of peer %q: %w", r.Name(), r.Peer().Name(), err)
}

// addLane adds what a lane did for a batch.
func (m *mover) addLane(u *Lane) {
	if u.Slices == 0 && u.Retries == 0 && u.Error == "" {
		return
	}
	key := laneKey{u.Peer, u.Name, u.Transport}
	l := m.lanes[key]
	if l == nil {
		l = &Lane{Peer: u.Peer, Name: u.Name, Transport: u.Transport}
		m.lanes[key] = l
	}
	l.Bytes, l.Slices, l.Retries, l.Error = l.Bytes+u.Bytes, l.Slices+u.Slices, l.Retries+u.Retries, cmp.Or(u.Error, l.Error)
	if u.BytesPerSec != nil && (l.BytesPerSec == nil || *u.BytesPerSec > *l.BytesPerSec) {
		l.BytesPerSec = u.BytesPerSec
	}
}

// usedLanes lists the lanes.
func (m *mover) usedLanes() []Lane {
	out := make([]Lane, 0, len(m.lanes))
	for _, l := range m.lanes {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b Lane) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Transport, b.Transport))
	})
	return out
}

// failLostAnswers fails the requests that were decoding on an instance when it was lost, and
// removes the tokens that the model produced for them since.
func (m *mover) failLostAnswers(times []kv.Times) {
	if m.pull() {
		return
	}
	for i := range times {
		t := &times[i]
		gone, ok := m.lostInstances[m.lastDecode[i]]
		if !ok || t.Failed != nil {
			continue
		}
		n := len(t.TokensNS)
		for n > 0 && t.TokensNS[n-1] > gone.AtNS {
			n--
		}
		if n < m.o.Workload.Requests[i].Output {
			t.TokensNS = t.TokensNS[:n]
			t.Failed = &kv.Failure{Kind: "lost", Err: fmt.Errorf("decode instance %d was lost: peer %q: %w", m.lastDecode[i], gone.Peer, gone.Err)}
		}
	}
}

// sender starts the transfers of a local instance, one after the other. They then run
// concurrently.
type sender struct {
	m    *mover
	mu   sync.Mutex
	jobs []*job
	wake chan struct{}
}

func (s *sender) enqueue(j *job) {
	s.mu.Lock()
	s.jobs = append(s.jobs, j)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sender) run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		jobs := s.jobs
		s.jobs = nil
		s.mu.Unlock()
		for _, j := range jobs {
			s.m.submit(ctx, j)
			s.m.running.Add(1)
			go s.m.finish(ctx, j, s.m.loop.sinceNS())
		}
	}
}

// submit starts a batch for each pair of ranks.
func (m *mover) submit(ctx context.Context, j *job) {
	if m.o.Check {
		if j.err = m.fill(ctx, j); j.err != nil {
			return
		}
	}
	for i, pair := range m.o.Serve.Cache.Pairs() {
		here, there := m.regions(&j.t, pair)
		bounded, cancel := context.WithTimeout(ctx, m.o.Transfer)
		began := m.loop.sinceNS()
		b, err := there.Peer().Submit(bounded, m.ops(j, pair, &j.t.Pairs[i], here, there), engine.SubmitOptions{})
		if err != nil {
			cancel()
			j.err = failedAt(there, err)
			return
		}
		j.batches = append(j.batches, &batch{b, there, began, cancel})
	}
}

// ops are the copies between two ranks.
func (m *mover) ops(j *job, pair kv.Pair, much *serve.Pair, here *engine.Region, there *engine.RemoteRegion) []engine.Op {
	var copies []kv.Descriptor
	for d := range m.o.Serve.Cache.Descriptors(pair, j.t.ToToken) {
		// Parts begin where pages of both sides do.
		if d.SourcePage >= j.t.FromToken/m.prefill.layout.PageTokens {
			copies = append(copies, d)
		}
	}
	kind := engine.Write
	if m.pull() {
		kind = engine.Read
	}
	out := make([]engine.Op, 0, much.Descriptors)
	layouts := make([]engine.Layout, much.Descriptors)
	for layer := j.t.FromLayer; layer < j.t.ToLayer; layer++ {
		for _, d := range copies {
			_, source := m.prefill.at(pair.Prefill, layer, j.source[d.SourcePage])
			_, dest := m.decode.at(pair.Decode, layer, j.dest[d.DestPage])
			source, dest = source+d.Source, dest+d.Dest
			at := &layouts[len(out)]
			*at = engine.Layout{Bytes: d.Length, Count: int(d.Count), LocalStride: d.SourceStride, RemoteStride: d.DestStride}
			if m.pull() {
				source, dest = dest, source
				at.LocalStride, at.RemoteStride = d.DestStride, d.SourceStride
			}
			out = append(out, engine.Op{Kind: kind, Local: here.Span(source, 0), Remote: there.At(dest), Layout: at})
		}
	}
	return out
}
