package faulty

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

const (
	chunkBytes = 32 << 10
	// A flow keeps so much on the way, or as much as comes where bytes are held.
	flowBytes = 4 << 20
)

// flow is one direction of a connection: one goroutine reads, one writes. Its
// fields are in the proxy's lock.
type flow struct {
	proxy    *Proxy
	pipe     *pipe
	from, to *net.TCPConn
	line     *Line
	rng      *rand.Rand

	chunks []chunk
	bytes  int
	ended  error // of the sender: io.EOF or worse; nothing comes any more
	hidden bool  // the sender's end: it happened while bytes were held
	failed bool  // the receiver is gone; nothing goes any more
	place  int64 // of the next byte in the connection
	next   int64 // place of the next bit that flips, 0 not drawn
	free   time.Time
}

type chunk struct {
	bytes []byte
	at    time.Time
}

// read takes what the sender sends.
func (f *flow) read() {
	p := f.proxy
	for {
		p.mu.Lock()
		for f.bytes >= flowBytes && !f.line.Hold && !f.pipe.dead && !f.failed {
			p.changed.Wait()
		}
		stop := f.pipe.dead || f.failed
		p.mu.Unlock()
		if stop {
			return
		}
		buffer := make([]byte, chunkBytes)
		n, err := f.from.Read(buffer)
		p.mu.Lock()
		if n > 0 {
			f.chunks = append(f.chunks, chunk{buffer[:n], time.Now()})
			f.bytes += n
		}
		if err != nil {
			f.ended, f.hidden = err, f.line.Hold
		}
		p.changed.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// write gives it to the receiver when its time has come.
func (f *flow) write() {
	p := f.proxy
	for {
		b, ended := f.take()
		if ended != nil {
			f.end(ended)
			return
		}
		_, err := f.to.Write(b)
		p.mu.Lock()
		p.carried += int64(len(b))
		if err != nil {
			f.failed, f.chunks = true, nil
		}
		p.changed.Broadcast()
		p.mu.Unlock()
		if err != nil {
			// The sender learns it, unless there is nobody who listens: then what the
			// other direction still holds goes on.
			if f == f.pipe.up {
				reset(f.from)
			}
			return
		}
	}
}

// take waits for bytes that may go on, or for the end of the direction.
func (f *flow) take() (b []byte, ended error) {
	p := f.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if f.pipe.dead {
			return nil, net.ErrClosed
		}
		if f.line.Stall || f.line.Hold {
			p.changed.Wait()
			continue
		}
		if len(f.chunks) == 0 {
			if f.ended != nil {
				return nil, f.ended
			}
			p.changed.Wait()
			continue
		}
		due := f.chunks[0].at.Add(f.line.Delay)
		if f.line.BytesPerSec > 0 && f.free.After(due) {
			due = f.free
		}
		wait := time.Until(due)
		if wait <= 0 {
			return f.pop(), nil
		}
		timer := time.AfterFunc(wait, p.changed.Broadcast)
		p.changed.Wait()
		timer.Stop()
	}
}

// pop takes the first chunk, in the lock, and does to it what the line does.
func (f *flow) pop() []byte {
	b := f.chunks[0].bytes
	f.chunks = f.chunks[1:]
	f.bytes -= len(b)
	f.proxy.changed.Broadcast()
	if rate := f.line.BytesPerSec; rate > 0 {
		if now := time.Now(); f.free.Before(now) {
			f.free = now
		}
		f.free = f.free.Add(time.Duration(float64(len(b)) / float64(rate) * 1e9))
	}
	f.corrupt(b)
	f.place += int64(len(b))
	return b
}

// corrupt flips the bits whose place is in these bytes.
func (f *flow) corrupt(b []byte) {
	end := f.place + int64(len(b))
	if at := f.line.CorruptAt; at > 0 && at >= f.place && at < end {
		b[at-f.place] ^= 1
		f.proxy.flipped++
	}
	every := f.line.CorruptEvery
	if every <= 0 {
		f.next = 0
		return
	}
	for {
		if f.next == 0 {
			from := max(f.place, f.line.CorruptAfter)
			f.next = from + 1 + int64(f.rng.ExpFloat64()*float64(every))
		}
		if f.next >= end {
			return
		}
		if f.next >= f.place {
			b[f.next-f.place] ^= 1 << f.rng.IntN(8)
			f.proxy.flipped++
		}
		f.next += 1 + int64(f.rng.ExpFloat64()*float64(every))
	}
}

// end hands the sender's end on, when all its bytes have gone.
func (f *flow) end(ended error) {
	// A reset would make the receiver forget bytes that it has not read.
	f.proxy.mu.Lock()
	hidden := f.hidden
	f.proxy.mu.Unlock()
	if errors.Is(ended, io.EOF) || hidden {
		_ = f.to.CloseWrite()
		return
	}
	// The sender was reset, and so is the receiver. The other direction ends by that.
	reset(f.to)
}
