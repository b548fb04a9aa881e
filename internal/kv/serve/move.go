package serve

import (
	"errors"

	"github.com/topoctl/topoctl/internal/kv"
)

// part is a range of computed tokens and layers of a prompt.
type part struct{ fromToken, toToken, fromLayer, toLayer int }

// pushLayers offers groups of layers while a step computes them. The last one is offered
// when it ends.
func (x *instance) pushLayers(stepNS int64, step int) {
	layers, group := x.s.c.Cache.Model.Layers, x.s.c.LayersPerMove
	for from := 0; from < layers; from += group {
		to := min(from+group, layers)
		x.s.after(stepNS*int64(to)/int64(layers), func() {
			for _, q := range x.running {
				if q.step == step && q.j.decode != nil {
					x.s.offerLayers(q, from, to)
				}
			}
		})
	}
}

// offerLayers offers what a step has computed of some layers: whole pages, but for the end
// of the prompt.
func (s *System) offerLayers(q *seq, from, to int) {
	j := q.j
	end := q.computed + q.batchTokens
	if end < j.r.Input {
		end -= end % s.pageSpan
	}
	last := to == s.c.Cache.Model.Layers
	j.allOffered = last && end == j.r.Input
	if end > j.offeredTokens {
		s.offer(j, part{j.offeredTokens, end, from, to})
	}
	if last {
		j.offeredTokens = end
	}
}

// prefilled is called when a prefill instance has computed a prompt.
func (s *System) prefilled(j *job) {
	if s.c.FirstToken == FromPrefill {
		s.emitToken(j)
	}
	switch {
	case j.decode == nil:
		j.prefill.release(&j.seqs[0])
		s.finish(j, nil)
	case s.c.Move == PushLayers:
		s.checkArrived(j)
	case s.c.HandoffNS > 0:
		s.after(s.c.HandoffNS, func() { s.handOver(j) })
	default:
		s.handOver(j)
	}
}

// handOver moves the whole cache once the decode side has memory for it.
func (s *System) handOver(j *job) {
	j.allOffered = true
	s.offer(j, part{0, j.r.Input, 0, s.c.Cache.Model.Layers})
	if s.c.Admit == After {
		j.decode.requestMemory(&j.seqs[1])
	}
}

// offer moves a part now, or as soon as there is memory.
func (s *System) offer(j *job, p part) {
	if j.failed != nil {
		return
	}
	if !j.admitted {
		j.pendingParts = append(j.pendingParts, p)
		return
	}
	s.move(j, p)
}

// admitted is called when the decode side has memory for a job.
func (s *System) admitted(j *job) {
	j.admitted = true
	j.t.AdmittedNS = s.now()
	if s.c.Admit == Before {
		j.prefill.enqueue(&j.seqs[0])
	}
	for len(j.pendingParts) > 0 && j.failed == nil {
		p := j.pendingParts[0]
		j.pendingParts = j.pendingParts[1:]
		s.move(j, p)
	}
}

func (s *System) move(j *job, p part) {
	t := Transfer{Request: j.index, Prefill: j.prefill.number, Decode: j.decode.number, FromToken: p.fromToken, ToToken: p.toToken,
		FromLayer: p.fromLayer, ToLayer: p.toLayer, Pull: s.c.Move == Pull, Pairs: s.pairs(p)}
	j.t.KVBytes += t.Bytes()
	s.countTransfers(j, 1)
	s.mover.Move(t, func(beganNS int64, err error) {
		s.countTransfers(j, -1)
		if err != nil && j.failed == nil {
			j.failed = err
		}
		if at := beganNS - s.startNS; err == nil && (!j.wireStarted || at < j.t.WireNS) {
			j.wireStarted, j.t.WireNS = true, at
		}
		s.checkArrived(j)
	})
}

// countTransfers adds to a job's active transfers, and blocks instances where the config says so.
func (s *System) countTransfers(j *job, by int) {
	j.activeTransfers += by
	if s.c.SendBlocks {
		j.prefill.block(by)
	}
	if s.c.ReceiveBlocks {
		j.decode.block(by)
	}
}

// pairs is what each pair of ranks transfers for a part.
func (s *System) pairs(p part) []Pair {
	end := s.c.Cache.Plan(p.toToken)
	out := make([]Pair, len(end.Pairs))
	layers := int64(p.toLayer - p.fromLayer)
	for i, x := range end.Pairs {
		out[i] = Pair{x.Prefill, x.Decode, x.LayerBytes * layers, x.LayerDescriptors * layers, x.LayerPieces * layers}
	}
	if p.fromToken > 0 {
		for i, x := range s.c.Cache.Plan(p.fromToken).Pairs {
			out[i].Bytes -= x.LayerBytes * layers
			out[i].Descriptors -= x.LayerDescriptors * layers
			out[i].Pieces -= x.LayerPieces * layers
		}
	}
	return out
}

// checkArrived continues with decoding once the whole cache has arrived.
func (s *System) checkArrived(j *job) {
	if j.activeTransfers > 0 || !j.allOffered || !j.prefilled || len(j.pendingParts) > 0 && j.failed == nil {
		return
	}
	j.prefill.release(&j.seqs[0])
	q := &j.seqs[1]
	if j.failed != nil {
		j.decode.release(q)
		failure := &kv.Failure{Kind: "move", Err: j.failed}
		errors.As(j.failed, &failure) // whoever moves may know the kind
		s.finish(j, failure)
		return
	}
	j.t.ArrivedNS = s.now()
	switch s.c.FirstToken {
	case WithCache:
		s.emitToken(j)
	case FromDecode:
		q.computed = j.r.Input - 1
		q.target = q.computed
	}
	if j.outputTokens == j.r.Output {
		j.decode.release(q)
		s.finish(j, nil)
		return
	}
	j.decode.ready = append(j.decode.ready, q)
	j.decode.scheduleStep()
}
