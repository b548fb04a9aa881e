package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// How many batches Recent tells of, by what has become of them, and how much of each.
const (
	recentRunning = 16
	recentDone    = 24
	recentTrouble = 8

	recentRoutes   = 4
	recentLanes    = 16 // of a transport
	recentRejected = 8
	recentNotes    = 8
	recentText     = 512 // bytes
)

// recent are the latest batches that are over. They are explained when somebody asks: a
// batch of a few KiB is over in less time than that takes. They keep their peers in memory,
// also closed ones, until others take their place.
type recent struct {
	done    ring
	trouble ring // that failed, or had to send slices again: others do not push them out
}

// ring holds the last batches. The zero value holds none.
type ring struct {
	list [recentDone]atomic.Pointer[Batch]
	n    atomic.Uint64
}

func (r *ring) add(b *Batch, most uint64) { r.list[(r.n.Add(1)-1)%most].Store(b) }

func (r *recent) add(b *Batch, trouble bool) {
	if trouble {
		r.trouble.add(b, recentTrouble)
	} else {
		r.done.add(b, recentDone)
	}
}

// batches are those that are over, the last one first.
func (r *recent) batches() []*Batch {
	var out []*Batch
	for _, x := range []*ring{&r.trouble, &r.done} {
		for i := range x.list {
			if b := x.list[i].Load(); b != nil {
				out = append(out, b)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *Batch) int { return cmp.Compare(b.endedAt(), a.endedAt()) })
	return out
}

// endedAt is when the batch was over, in the engine's time.
func (b *Batch) endedAt() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.end
}

// Recent explains the latest batches: up to 16 that run, the newest first, then of those
// that are over up to 24, and up to 8 more that failed or sent slices again, the last one
// first. Long lists and texts are cut, and Notes say so. Asking costs a few µs for each;
// keeping them costs next to nothing.
func (e *Engine) Recent() []*Explanation {
	var list []*Batch
	e.mu.Lock()
	for b := e.first; b != nil && len(list) < recentRunning; b = b.next {
		list = append(list, b)
	}
	e.mu.Unlock()
	for _, b := range e.recent.batches() {
		if !slices.Contains(list, b) { // it has ended meanwhile
			list = append(list, b)
		}
	}
	lanes := e.laneStates(nil)
	out := make([]*Explanation, 0, len(list))
	for _, b := range list {
		x := b.explain(lanes)
		x.shorten()
		out = append(out, x)
	}
	return out
}

// shorten cuts what could be long.
func (x *Explanation) shorten() {
	x.Label, x.Error = shortText(x.Label), shortText(x.Error)
	x.Notes = shortList(x.Notes, recentNotes)
	x.Unavailable = shortList(x.Unavailable, recentNotes)
	cut := func(n, most int, what string) int {
		if n > most {
			x.Notes = append(x.Notes, fmt.Sprintf("%d more %s are left out here", n-most, what))
		}
		return min(n, most)
	}
	x.Fences = x.Fences[:cut(len(x.Fences), recentNotes, "connections that were not fenced")]
	x.Routes = x.Routes[:cut(len(x.Routes), recentRoutes, "pairs of memory locations")]
	for i := range x.Routes {
		r := &x.Routes[i]
		for k := range r.Groups {
			g := &r.Groups[k]
			g.Reason, g.Rejected = shortText(g.Reason), shortList(g.Rejected, recentRejected)
			g.Lanes = g.Lanes[:cut(len(g.Lanes), recentLanes, g.Transport+" lanes")]
		}
		r.Used = r.Used[:cut(len(r.Used), recentLanes, "lanes that were used")]
		for k := range r.Used {
			r.Used[k].Error = shortText(r.Used[k].Error)
		}
	}
}

// shortList cuts a list of texts, and says so in place of the last one.
func shortList(list []string, most int) []string {
	if n := len(list) - most; n > 0 {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", n))
	}
	for i, s := range list {
		if len(s) > recentText {
			list = slices.Clone(list)
			list[i] = shortText(s)
		}
	}
	return list
}

func shortText(s string) string {
	if len(s) <= recentText {
		return s
	}
	return strings.ToValidUTF8(s[:recentText], "") + "..."
}
