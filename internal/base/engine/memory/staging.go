package memory

import (
	"fmt"
	"sync"
)

// PieceBytes is what is copied at once between a device and a staging buffer, and
// what a request may ask of a peer's device memory (docs/wire.md): at 25 GB/s 20 µs,
// so that beginning a copy and waiting for it are little beside it.
const PieceBytes = 512 << 10

// Staging is a bounded pool of host memory through which device memory is copied, in
// buffers of PieceBytes. Who finds none waits: nothing fails for want of buffers. Its
// methods may be used by many goroutines.
type Staging struct {
	table   *Table
	region  *Region
	release func() error
	count   int

	mu          sync.Mutex
	free        []*Buffer
	first, last *Want
	closed      bool
	wake        *sync.Cond // there are both buffers and wants, or it is closed
	over        chan struct{}
}

// Buffer is a piece of staging memory: PieceBytes of the region from Offset on. One
// that is made without a pool is its maker's to use again.
type Buffer struct {
	s      *Staging
	Region *Region
	Offset int64
}

// Want is somebody who waits for a buffer. It is used for one wait at a time.
type Want struct {
	// Ready takes the buffer. It is called from the pool's goroutine and must be quick.
	Ready  func(*Buffer)
	next   *Want
	queued bool
}

// NewStaging makes a pool of a block of host memory, in buffers of PieceBytes. The
// block becomes the pool's unless it fails. Close calls release before it frees the
// memory.
func NewStaging(b *Block, release func() error) (*Staging, error) {
	count := b.Size() / PieceBytes
	if count < 2 || b.Device() != nil {
		return nil, fmt.Errorf("memory: staging of %d bytes: at least two buffers of %d must fit", b.Size(), int64(PieceBytes))
	}
	s := &Staging{table: NewTable(1), release: release, count: int(count), over: make(chan struct{})}
	s.wake = sync.NewCond(&s.mu)
	var err error
	if s.region, err = s.table.Add(b, "staging", "", None); err != nil {
		return nil, err
	}
	for i := count - 1; i >= 0; i-- {
		s.free = append(s.free, &Buffer{s: s, Region: s.region, Offset: i * PieceBytes})
	}
	go s.serve()
	return s, nil
}

// Buffers is how many there are.
func (s *Staging) Buffers() int { return s.count }

// Region is what all buffers are pieces of.
func (s *Staging) Region() *Region { return s.region }

// Bytes are the first n bytes of the buffer.
func (b *Buffer) Bytes(n int64) []byte { return b.Region.Bytes(b.Offset, n) }

// Give returns the buffer to its pool, if it is of one.
func (b *Buffer) Give() {
	if b.s != nil {
		b.s.Give(b)
	}
}

// Take gives a buffer, or nil; then w.Ready is called when there is one.
func (s *Staging) Take(w *Want) *Buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 && s.first == nil {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	w.queued, w.next = true, nil
	if s.last == nil {
		s.first = w
	} else {
		s.last.next = w
	}
	s.last = w
	if len(s.free) > 0 {
		s.wake.Signal()
	}
	return nil
}

// Forget ends a wait: Ready is not called any more. false: it was, or is being.
func (s *Staging) Forget(w *Want) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.queued {
		return false
	}
	w.queued = false
	var before *Want
	for at := s.first; at != w; at = at.next {
		before = at
	}
	if before == nil {
		s.first = w.next
	} else {
		before.next = w.next
	}
	if s.last == w {
		s.last = before
	}
	w.next = nil
	return true
}

// Give returns a buffer. It calls nobody, so that any lock may be held.
func (s *Staging) Give(b *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, b)
	if s.first != nil || s.closed {
		s.wake.Signal()
	}
}

// serve hands buffers to those who wait.
func (s *Staging) serve() {
	defer close(s.over)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for !s.closed && (s.first == nil || len(s.free) == 0) {
			s.wake.Wait()
		}
		if s.first == nil || len(s.free) == 0 {
			return
		}
		w, b := s.first, s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		if s.first = w.next; s.first == nil {
			s.last = nil
		}
		w.queued, w.next = false, nil
		s.mu.Unlock()
		w.Ready(b)
		s.mu.Lock()
	}
}

// Close ends the pool. All buffers must be back; the memory is freed.
func (s *Staging) Close() error {
	s.mu.Lock()
	if missing := s.count - len(s.free); missing > 0 || s.first != nil {
		s.mu.Unlock()
		return fmt.Errorf("memory: staging: %d of %d buffers are in use: close the engines first", missing, s.count)
	}
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.free = nil
	s.count = 0
	s.wake.Signal()
	s.mu.Unlock()
	<-s.over
	if err := s.release(); err != nil {
		return err // the memory stays: something still knows it
	}
	return s.table.Close()
}
