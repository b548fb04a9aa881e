package replay

import (
	"context"
	"sync"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/app/kv/layout"
	"github.com/topoctl/topoctl/internal/app/kv/serve"
)

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
func (m *mover) ops(j *job, pair layout.Pair, much *serve.Pair, here *engine.Region, there *engine.RemoteRegion) []engine.Op {
	var copies []layout.Descriptor
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
