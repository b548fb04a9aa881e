package tcp

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// inlineBytes is up to how many bytes are sent by the goroutine that has them:
// beyond that a wake-up of the sender costs less than the copy takes. It is 256 KiB with their
// headers, because a thread of C that calls Go, and waits, is woken at twice the cost.
const inlineBytes = 272 << 10

// end is what the two ends of a connection do differently.
type end interface {
	// headerSize is how many bytes a header takes with its descriptors. Nothing in it
	// is checked yet.
	headerSize(h *header) (int, error)
	// begin takes a header that is as the peer sent it, and says with inbox.expect
	// what follows.
	begin(h *header, descs []byte) error
	// complete ends the frame of the last begin that expected something.
	complete(sumOK bool)
	// settle is called when all that came is handled.
	settle()
	// busy says that something is to come soon.
	busy() bool
	// fill puts queued frames into the outbox.
	fill(o *outbox)
	// queued says whether fill has anything to do. mu is held.
	queued() bool
	// sent says that the kernel has a frame's last byte. mu is held.
	sent(token uint32)
}

// link is what both ends of a data connection have in common: one goroutine
// reads, and one sends what is not sent at once by whoever has it. They never wait
// for each other.
type link struct {
	end  end
	conn net.Conn
	// socket is what carries conn: itself, but within TLS. raw is the socket's.
	socket   net.Conn
	raw      syscall.RawConn
	sealed   bool
	gathered []byte // small pieces, where sealed
	in       inbox
	out      outbox
	// park lets the write callback wait until the socket takes more. Whoever is sending
	// owns it.
	park   bool
	outErr error
	// The callbacks of RawConn, made once.
	readCall, writeCall func(fd uintptr) bool
	// turn is held by whoever takes bytes in: the reader, or for a moment somebody who
	// waits for an answer. missed says that the reader did not get it.
	turn   sync.Mutex
	missed atomic.Bool

	// io is held while the kernel takes bytes and until that is noted: an answer to
	// a request can be faster.
	io      sync.Mutex
	handed  atomic.Uint64 // counts calls that sent something
	dead    atomic.Bool   // closed, as goroutines see it that receive
	gone    chan struct{} // closed, as goroutines see it that wait
	wake    chan struct{} // makes the sender goroutine the one who is sending
	sender  chan struct{} // closed when that has ended
	senders sync.Cond     // sending became false after closed

	mu      sync.Mutex
	closed  bool
	cause   error
	sending bool // somebody owns out
}

func (l *link) init(e end, c net.Conn, polls int) error {
	socket, sealed := socketOf(c)
	sc, ok := socket.(syscall.Conn)
	if !ok {
		return pkgerr.Errorf("tcp", "connection %T has no descriptor", socket)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return pkgerr.Errorf("tcp", "%w", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return pkgerr.Errorf("tcp", "%w", err)
	}
	l.end, l.conn, l.socket, l.raw, l.sealed = e, c, socket, raw, sealed
	if sealed {
		l.gathered = make([]byte, 0, gatherBytes)
	}
	l.in.init()
	l.in.spin = spin{polls: polls, score: spinBest / 2}
	l.out.init()
	l.readCall, l.writeCall = l.tryRead, l.tryWrite
	l.wake, l.sender, l.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	l.senders.L = &l.mu
	return nil
}

// run reads until the connection ends, and returns when nothing of it touches
// memory any more.
func (l *link) run() {
	go l.send()
	l.refuse(l.read())
	l.turn.Lock() // for good: nobody takes bytes in any more
	l.mu.Lock()
	close(l.wake)
	l.mu.Unlock()
	<-l.sender
	l.mu.Lock()
	for l.sending {
		l.senders.Wait()
	}
	l.mu.Unlock()
	l.close()
}

// fail ends the connection; the first cause counts. It does not wait: closing the
// descriptor would, for the calls that are under way.
func (l *link) fail(cause error) {
	l.mu.Lock()
	first := !l.closed
	if first {
		l.closed, l.cause = true, cause
	}
	l.mu.Unlock()
	if first {
		l.dead.Store(true)
		close(l.gone)
		// The deadline wakes goroutines that are parked, and those that park later.
		_ = l.conn.SetDeadline(time.Unix(1, 0))
		_ = l.raw.Control(shutdown)
	}
}

// refuse ends the connection by what reading it came to. A frame that is not as it was sent counts
// where something else ended the connection meanwhile, too: the peer that learns of it leaves at once.
func (l *link) refuse(err error) {
	l.fail(err)
	if dropReason(err) != "" {
		l.mu.Lock()
		l.cause = err
		l.mu.Unlock()
	}
}

// close closes the descriptor after all calls. What the kernel holds back must not
// trickle to the peer later, unless the peer has ended the connection itself.
func (l *link) close() {
	if c, ok := l.socket.(*net.TCPConn); ok && !errors.Is(l.cause, io.EOF) {
		_ = c.SetLinger(0)
	}
	_ = l.socket.Close()
}

// read takes frames in until the connection ends.
func (l *link) read() error {
	in := &l.in
	for {
		in.waiting, in.parked = false, false
		if l.sealed {
			l.receiveSealed()
		} else if err := l.raw.Read(l.readCall); err != nil {
			return err
		}
		if in.waiting {
			in.spin.waited(time.Since(in.since), in.parked)
		}
		err := l.take()
		if err != nil {
			l.refuse(err) // before anybody else has the turn
		}
		l.turn.Unlock()
		if err != nil {
			return err
		}
	}
}

// tryRead receives what has come, and has the turn then. Else the reader parks
// until the socket has more.
func (l *link) tryRead(fd uintptr) bool {
	in := &l.in
	for {
		// Whoever polls looks at missed after it gave the turn back, and then takes in
		// what came before this.
		l.missed.Store(true)
		if !l.turn.TryLock() {
			in.parked = true
			return false
		}
		l.missed.Store(false)
		if l.receive(fd) {
			return true
		}
		l.turn.Unlock()
		if !in.waiting {
			in.waiting, in.since, in.polls = true, time.Now(), 0
			if l.end.busy() {
				in.polls = in.spin.now()
			}
		}
		if in.polls == 0 {
			in.parked = true
			return false
		}
		if crowded(in.polls) {
			yield()
		}
		in.polls--
	}
}

// receive makes one system call, and says whether it came to anything: bytes, the
// end or an error. On a connection that ended nothing is received any more: the
// kernel may still have bytes for it.
func (l *link) receive(fd uintptr) bool {
	if l.dead.Load() {
		l.in.n, l.in.err = 0, errDead
		return true
	}
	return l.in.receive(fd)
}

var errDead = pkgerr.New("tcp", "the connection has ended")

// take handles what receive brought. It is not for the callbacks of RawConn: what
// it does may close the connection, which waits for them.
func (l *link) take() error {
	in := &l.in
	switch {
	case in.err != nil:
		return in.err
	case in.n == 0:
		return io.EOF
	}
	in.received.Add(1)
	in.took(in.n)
	err := in.consume(l.end)
	l.end.settle()
	if err != nil {
		return err
	}
	in.aim()
	in.amid.Store(in.phase != inHeader || in.w > in.r)
	return nil
}

// claim makes the caller the one who sends what is queued, unless somebody else is, or there
// is nothing to send. mu is held.
func (l *link) claim() bool {
	if l.sending || l.closed || !l.end.queued() {
		return false
	}
	l.sending = true
	return true
}

// flush sends what is queued unless somebody else is sending: by itself where the bytes that
// wait are few, else by the sender goroutine. mu is held, and released.
func (l *link) flush(waiting int64) {
	ours := l.claim()
	l.mu.Unlock()
	switch {
	case ours && waiting > inlineBytes:
		l.handOver()
	case ours:
		l.pump(false)
	}
}

// send is the goroutine that sends what others do not.
func (l *link) send() {
	defer close(l.sender)
	for range l.wake {
		l.pump(true)
	}
}

// pump sends what is queued; the caller has set sending. Without park it gives up
// at the first byte that the socket does not take, or where there is too much, and
// leaves the rest to the sender goroutine.
func (l *link) pump(park bool) {
	inline := 0
	for {
		if l.out.left() == 0 {
			l.out.reset()
			l.end.fill(&l.out)
			l.out.flushArena()
		}
		size := l.out.left()
		if size == 0 {
			if l.release() {
				return
			}
			continue
		}
		if inline += size; !park && (l.sealed || inline > inlineBytes) {
			l.handOver()
			return
		}
		if err := l.write(park); err != nil {
			l.fail(err)
			l.drop()
			return
		}
		if l.out.left() > 0 {
			l.handOver()
			return
		}
	}
}

// write hands what is gathered to the kernel: without park, as far as that takes it.
func (l *link) write(park bool) error {
	if l.sealed {
		return l.writeSealed()
	}
	l.park = park
	if err := l.raw.Write(l.writeCall); err != nil {
		return err
	}
	return l.outErr
}

// release ends sending if nothing is queued.
func (l *link) release() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && (l.end.queued() || l.out.open) {
		return false
	}
	l.sending = false
	l.senders.Broadcast()
	return true
}

// drop ends sending on a connection that is closed.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sending = false
	l.senders.Broadcast()
}

// handOver makes the sender goroutine the one who is sending.
func (l *link) handOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.sending = false
		l.senders.Broadcast()
		return
	}
	l.wake <- struct{}{} // has room: only the one who is sending gives it away
}

func (l *link) tryWrite(fd uintptr) bool {
	l.io.Lock()
	defer l.io.Unlock()
	for l.out.left() > 0 {
		n, errno := l.out.vec.Writev(fd)
		switch errno {
		case 0:
			l.wrote(n)
		case syscall.EINTR:
		case syscall.EAGAIN:
			return !l.park
		default:
			l.outErr = errno
			return true
		}
	}
	return true
}

// wrote accounts for n bytes that the kernel took.
func (l *link) wrote(n int) {
	l.handed.Add(1)
	o := &l.out
	o.vec.Advance(n)
	o.gone += n
	done := 0
	for done < len(o.marks) && o.marks[done].at <= o.gone {
		done++
	}
	if done == 0 {
		return
	}
	l.mu.Lock()
	for _, m := range o.marks[:done] {
		l.end.sent(m.token)
	}
	l.mu.Unlock()
	o.marks = o.marks[:copy(o.marks, o.marks[done:])]
}

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
