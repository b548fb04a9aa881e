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

// mover carries transfers out. What is not said to be otherwise is the loop's.
type mover struct {
	o               *Options
	loop            *loop
	prefill, decode *side
	senders         []*sender     // by local instance
	lost            map[int]loss  // remote instances
	decodes         []int         // the decode instance that a request was at last; -1 none
	lanes           map[Lane]Lane // by peer, name and transport
	transfers       int64
	pieces          int64

	checked atomic.Int64
	running sync.WaitGroup
}

// loss is when and why a peer was lost.
type loss struct {
	atNS int64
	err  error
}

// job is a transfer of all ranks.
type job struct {
	t            serve.Transfer
	source, dest []uint32 // page tables
	done         func(int64, error)
	batches      []*batch
	err          error
}

// batch is what of it goes between two ranks.
type batch struct {
	*engine.Batch
	beganNS int64 // of Submit
	cancel  context.CancelFunc
}

func newMover(o *Options) (*mover, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Transfer = cmp.Or(o.Transfer, defaultTransfer)
	m := &mover{o: o, loop: newLoop(), lost: map[int]loss{}, lanes: map[Lane]Lane{}, decodes: make([]int, len(o.Workload.Requests))}
	for i := range m.decodes {
		m.decodes[i] = -1
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x7061676573))
	var err error
	if m.prefill, err = newSide(o.Serve.Cache.Model, o.Serve.Cache.Prefill, o.Serve.Prefill.Pages, o.Serve.Prefill.Instances, rng); err != nil {
		return nil, err
	}
	if m.decode, err = newSide(o.Serve.Cache.Model, o.Serve.Cache.Decode, o.Serve.Decode.Pages, o.Serve.Decode.Instances, rng); err != nil {
		return nil, err
	}
	return m, nil
}

// start begins to take transfers. wait ends that, once ctx has ended.
func (m *mover) start(ctx context.Context) {
	for range m.o.Local {
		s := &sender{m: m, woken: make(chan struct{}, 1)}
		m.senders = append(m.senders, s)
		m.running.Go(func() { s.run(ctx) })
	}
	for i, r := range m.o.Remote {
		m.running.Go(func() {
			select {
			case <-r.Peer().Done():
				m.loop.post(func() { m.lost[i] = loss{m.loop.nowNS, r.Peer().Err()} })
			case <-ctx.Done():
			}
		})
	}
}

func (m *mover) wait() { m.running.Wait() }

// pull says whether the decode side drives.
func (m *mover) pull() bool { return m.o.Serve.Move == serve.Pull }

// Pages implements serve.Pager.
func (m *mover) Pages(h serve.Held) {
	if !h.Decode {
		m.prefill.tables[h.Instance].hold(h.Request, h.Pages)
		return
	}
	m.decode.tables[h.Instance].hold(h.Request, h.Pages)
	m.decodes[h.Request] = h.Instance
}

// Move implements serve.Mover.
func (m *mover) Move(t serve.Transfer, done func(int64, error)) {
	j := &job{t: t, done: done, source: slices.Clone(m.prefill.tables[t.Prefill].of[t.Request]), dest: slices.Clone(m.decode.tables[t.Decode].of[t.Request])}
	local, _ := m.ends(&t)
	m.senders[local].take(j)
}

// ends are the instances of a transfer, ours and the peer's.
func (m *mover) ends(t *serve.Transfer) (local, remote int) {
	if m.pull() {
		return t.Decode, t.Prefill
	}
	return t.Prefill, t.Decode
}

// memory is where a transfer comes from and where it goes.
func (m *mover) memory(t *serve.Transfer) (source, dest interface {
	io.ReaderAt
	io.WriterAt
}) {
	local, remote := m.ends(t)
	if m.pull() {
		return m.o.Remote[remote], m.o.Local[local]
	}
	return m.o.Local[local], m.o.Remote[remote]
}

// finish waits for the batches of a job and says what came of it.
func (m *mover) finish(j *job, nowNS int64) {
	defer m.running.Done()
	var used []Lane
	began := nowNS
	for _, b := range j.batches {
		<-b.Done()
		b.cancel()
		if err := b.Err(); err != nil && j.err == nil {
			j.err = err
		}
		first, lanes := m.useOf(j, b)
		began = min(began, first)
		used = append(used, lanes...)
	}
	if j.err == nil && m.o.Check {
		j.err = m.verify(j)
	}
	if j.err != nil {
		j.err = m.explain(j)
	}
	m.loop.post(func() {
		for _, u := range used {
			key := Lane{Peer: u.Peer, Name: u.Name, Transport: u.Transport}
			sum := cmp.Or(m.lanes[key], key)
			sum.Bytes, sum.Slices, sum.Retries = sum.Bytes+u.Bytes, sum.Slices+u.Slices, sum.Retries+u.Retries
			m.lanes[key] = sum
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

// useOf is when the first byte of a batch began to move, and the lanes that it used.
func (m *mover) useOf(j *job, b *batch) (firstNS int64, lanes []Lane) {
	_, remote := m.ends(&j.t)
	first := int64(-1)
	for _, r := range b.Explain().Routes {
		for _, u := range r.Used {
			if u.Slices > 0 && (first < 0 || u.FirstNS < first) {
				first = u.FirstNS
			}
			lanes = append(lanes, Lane{m.o.Remote[remote].Peer().Name(), u.Lane, u.Transport, u.Bytes, u.Slices, u.Retries})
		}
	}
	return b.beganNS + max(first, 0), lanes
}

// explain says where a transfer failed.
func (m *mover) explain(j *job) error {
	_, remote := m.ends(&j.t)
	r := m.o.Remote[remote]
	return fmt.Errorf("cache from prefill instance %d to decode instance %d (region %q of peer %q): %w", j.t.Prefill, j.t.Decode, r.Name(), r.Peer().Name(), j.err)
}

// used lists the lanes.
func (m *mover) used() []Lane {
	out := make([]Lane, 0, len(m.lanes))
	for _, l := range m.lanes {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Lane) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Transport, b.Transport))
	})
	return out
}

// loseAnswers fails the requests that were at a decode instance when it was lost: what
// the model gave them since is not true.
func (m *mover) loseAnswers(times []kv.Times) {
	if m.pull() {
		return
	}
	for i := range times {
		t := &times[i]
		gone, ok := m.lost[m.decodes[i]]
		if !ok || t.Failed != "" {
			continue
		}
		n := len(t.TokensNS)
		for n > 0 && t.TokensNS[n-1] > gone.atNS {
			n--
		}
		if n < m.o.Workload.Requests[i].Output {
			t.TokensNS = t.TokensNS[:n]
			t.Failed = fmt.Sprintf("decode instance %d was lost: %v", m.decodes[i], gone.err)
		}
	}
}
