package transport

import (
	"errors"
	"maps"
	"sync"

	"github.com/topoctl/topoctl/engine/internal/memory"
)

// Refusals counts requests of peers that were refused, by reason: "no_region", "range", "denied",
// "device", and "other" for what is against the protocol or finds no descriptors left.
type Refusals struct {
	mu       sync.Mutex
	byReason map[string]int64
}

// Add counts a request that was refused by an error of the table of regions, or by another.
func (r *Refusals) Add(why error) {
	reason := "other"
	for _, x := range []struct {
		err  error
		name string
	}{{memory.ErrNoRegion, "no_region"}, {memory.ErrRange, "range"}, {memory.ErrDenied, "denied"}, {memory.ErrDevice, "device"}} {
		if errors.Is(why, x.err) {
			reason = x.name
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byReason == nil {
		r.byReason = map[string]int64{}
	}
	r.byReason[reason]++
}

// Counts are those by now.
func (r *Refusals) Counts() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.byReason)
}
