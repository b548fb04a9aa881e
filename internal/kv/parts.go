package kv

import (
	"fmt"
)

// Parts are the parts of a request's time up to its first token and the arrival of its cache,
// in nanoseconds. Where decode gives the first token, TTFT is Queue + MemoryWait +
// Compute + LinkWait + WireExposed + Rest. The division is ours: vLLM's benchmark has none.
type Parts struct {
	// Queue is from sending to the start of prefill, without what counts as MemoryWait.
	QueueNS int64
	// Compute is from the start to the end of prefill.
	ComputeNS int64
	// MemoryWait is the time that the request waited for memory on the decode side: after
	// prefill, including the request for it, or from sending if memory is requested first.
	MemoryWaitNS int64
	// LinkWait is from then to when the first byte moved: earlier transfers, set-up.
	LinkWaitNS int64
	// WireExposed is from then until the last byte arrived.
	WireExposedNS int64
	// Exposed is from the end of prefill to the arrival of the last byte of the cache: the
	// time that no computation hides. 0 if the cache arrives before, or nothing moves.
	ExposedNS int64
	// Wire is from the first byte to the last one, hidden behind prefill or not.
	WireNS int64
	// BeforeFirst is the part of LinkWait and WireExposed before the first token: all of both if
	// decode produces the first token, none if prefill does. It is what moving the cache adds to
	// TTFT. Waiting for memory is not part of it: a faster network would not shorten it.
	BeforeFirstNS int64
	// Rest is from the end of prefill or the arrival of the cache, whichever is later, to the
	// first token: the first step of decode. 0 if prefill produces the first token.
	RestNS int64
}

// PartsOf divides the time of a request that was answered; memoryFirst is as in Options. The
// error says which times contradict each other.
func PartsOf(t *Times, memoryFirst bool) (Parts, error) {
	if err := check(t); err != nil {
		return Parts{}, err
	}
	first := t.TokensNS[0]
	here := max(t.ArrivedNS, t.PrefilledNS)
	admitted := min(max(t.AdmittedNS, t.PrefilledNS), here)
	moving := min(max(t.WireNS, admitted), here)
	p := Parts{
		QueueNS: t.PrefillNS - t.SentNS, ComputeNS: t.PrefilledNS - t.PrefillNS, ExposedNS: here - t.PrefilledNS,
		MemoryWaitNS: admitted - t.PrefilledNS, LinkWaitNS: moving - admitted, WireExposedNS: here - moving, WireNS: t.ArrivedNS - t.WireNS,
		BeforeFirstNS: max(0, min(here, first)-admitted), RestNS: max(0, first-here),
	}
	if memoryFirst {
		asked := max(0, min(t.AdmittedNS, t.PrefillNS)-t.SentNS)
		p.QueueNS -= asked
		p.MemoryWaitNS += asked
	}
	return p, nil
}

// check says what is impossible about an answered request.
func check(t *Times) error {
	switch {
	case len(t.TokensNS) == 0:
		return fmt.Errorf("request %d was answered without a token", t.Request)
	case t.SentNS < 0 || t.PrefillNS < t.SentNS || t.PrefilledNS < t.PrefillNS:
		return fmt.Errorf("request %d: sent at %d ns, prefill from %d to %d ns", t.Request, t.SentNS, t.PrefillNS, t.PrefilledNS)
	case t.TokensNS[0] < t.PrefilledNS:
		return fmt.Errorf("request %d: first token at %d ns, before the end of prefill at %d ns", t.Request, t.TokensNS[0], t.PrefilledNS)
	case t.ArrivedNS < t.WireNS:
		return fmt.Errorf("request %d: cache moves from %d to %d ns", t.Request, t.WireNS, t.ArrivedNS)
	}
	for i := 1; i < len(t.TokensNS); i++ {
		if t.TokensNS[i] < t.TokensNS[i-1] {
			return fmt.Errorf("request %d: token %d comes at %d ns, before the previous one", t.Request, i, t.TokensNS[i])
		}
	}
	return nil
}
