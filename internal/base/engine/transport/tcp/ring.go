package tcp

// ring is a queue of bounded length.
type ring[T any] struct {
	items   []T
	first   int
	entries int
}

func makeRing[T any](size int) ring[T] { return ring[T]{items: make([]T, size)} }

func (r *ring[T]) len() int { return r.entries }

// push appends; there is room.
func (r *ring[T]) push(v T) {
	r.items[(r.first+r.entries)%len(r.items)] = v
	r.entries++
}

// pop takes the oldest; there is one.
func (r *ring[T]) pop() T {
	var none T
	v := r.items[r.first]
	r.items[r.first] = none
	r.first = (r.first + 1) % len(r.items)
	r.entries--
	return v
}
