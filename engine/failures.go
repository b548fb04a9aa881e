package engine

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// Failures counts what failed, by reason: "unreachable", "lost", "restarted", "deadline", "no_region" and others.
type Failures struct {
	Opens   map[string]int64 `json:"opens,omitempty"`   // of peers
	Submits map[string]int64 `json:"submits,omitempty"` // batches that did not begin
	Batches map[string]int64 `json:"batches,omitempty"`
}

// reasons are the words for errors, those first that decide where an error is several.
var reasons = []struct {
	err  error
	word string
}{
	{ErrUnsafeBuffer, "unsafe"}, {ErrQuarantined, "unsafe"}, {ErrPeerRestarted, "restarted"}, {ErrPeerLost, "lost"},
	{ErrToken, "token"}, {ErrCertificate, "certificate"}, {ErrOtherEngine, "other_engine"}, {ErrNotEngine, "other_engine"}, {ErrNoPeer, "unknown"},
	{ErrNoRegion, "no_region"}, {ErrRange, "range"}, {ErrDenied, "denied"}, {ErrDigest, "digest"}, {ErrLimit, "limit"},
	{ErrCanceled, "canceled"}, {context.Canceled, "canceled"}, {ErrClosed, "closed"}, {ErrUnreachable, "unreachable"},
	{context.DeadlineExceeded, "deadline"}, {ErrNoLane, "no_lane"}, {ErrOverlap, "invalid"}, {ErrInvalid, "invalid"},
}

// failure is what failed.
type failure int

const (
	failedOpen failure = iota
	failedSubmit
	failedBatch
)

type failures struct {
	mu     sync.Mutex
	counts [failedBatch + 1]map[string]int64
}

func (f *failures) add(what failure, err error) {
	word := "other"
	for _, x := range reasons {
		if errors.Is(err, x.err) {
			word = x.word
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts[what] == nil {
		f.counts[what] = map[string]int64{}
	}
	f.counts[what][word]++
}

func (f *failures) now() Failures {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out [len(f.counts)]map[string]int64
	for i, counts := range f.counts {
		out[i] = maps.Clone(counts)
	}
	return Failures{out[failedOpen], out[failedSubmit], out[failedBatch]}
}
