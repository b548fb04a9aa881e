package transport

import "sync"

// Reports are the completions of a connection on their way to its owner. One goroutine at
// a time delivers them, and takes with it what others add meanwhile. The connection guards
// them with Mu.
type Reports struct {
	Mu     *sync.Mutex
	Conn   Conn // as the owner knows it
	Events Events

	done, spare []Completion
	delivering  bool
}

// Add notes the end of a request.
func (r *Reports) Add(c Completion) { r.done = append(r.done, c) }

// Delivering says whether a goroutine is telling the owner.
func (r *Reports) Delivering() bool { return r.delivering }

// Deliver tells the owner what was added, and gives up Mu, which is held, meanwhile. It
// returns false where another goroutine does so.
func (r *Reports) Deliver() bool {
	if r.delivering {
		return false
	}
	r.delivering = true
	for len(r.done) > 0 {
		batch := r.done
		r.done = r.spare[:0]
		r.Mu.Unlock()
		r.Events.Done(r.Conn, batch)
		clear(batch)
		r.Mu.Lock()
		r.spare = batch
	}
	r.delivering = false
	return true
}

// MoveTo appends what was added to the completions that Post returns, unless a goroutine
// is telling the owner anyway.
func (r *Reports) MoveTo(done []Completion) []Completion {
	if r.delivering {
		return done
	}
	done = append(done, r.done...)
	clear(r.done)
	r.done = r.done[:0]
	return done
}
