package shm

import (
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

const (
	// A piece is what one worker copies at once: small enough that all of them
	// finish together, large enough for streaming stores.
	minPiece = 256 << 10
	maxPiece = 1 << 20
	// spins is how often a worker without work looks again before it sleeps; waking
	// one costs more than many small copies. It yields in between.
	spins = 200
)

// job is a request on its way. span, offset, running, drained and err are under
// the copier's mutex.
type job struct {
	c       *conn
	request *transport.Request
	maps    []*mapping // of each span

	span    int   // where the next piece begins
	offset  int64 // in that span
	running int   // pieces that are being copied
	drained bool  // no piece is left to be taken
	err     error

	// Where the peer's device memory is among the spans the job is cut into moves instead,
	// and the five above are under the connection's mutex. mayLand: a move may.
	// The workers' part of a move is a job, too.
	mayLand bool
	move    *move

	stream bool // the bytes are some of many: past the cache
	node   int  // of the host's nodes, anyNode where it is not known
	next   *job
}

// piece is a run of bytes of a job's spans.
type piece struct {
	span   int
	offset int64
	bytes  int64
}

// anyNode is the queue of jobs whose memory's node is not known.
const anyNode = 0

// copier copies jobs with a few workers. With several NUMA nodes each worker
// stays on one, and takes the jobs of its node first.
type copier struct {
	nodes []node
	wg    sync.WaitGroup

	mu      sync.Mutex
	wake    *sync.Cond
	queues  []queue // by node; anyNode is the first
	asleep  int
	workers int
	closed  bool
}

// queue is a list of jobs.
type queue struct{ first, last *job }

// newCopier starts the workers. nodes are the host's with processors for us;
// fewer than two count as none.
func newCopier(workers int, nodes []node) *copier {
	if len(nodes) < 2 {
		nodes = nil
	}
	k := &copier{nodes: nodes, queues: make([]queue, len(nodes)+1), workers: workers}
	k.wake = sync.NewCond(&k.mu)
	for i := range workers {
		home := anyNode
		if len(nodes) > 0 {
			home = 1 + i%len(nodes)
		}
		k.wg.Go(func() { k.work(home) })
	}
	return k
}

// queueOf is the queue for memory at a location ("cpu:1").
func (k *copier) queueOf(location string) int {
	for i := range k.nodes {
		if k.nodes[i].location == location {
			return i + 1
		}
	}
	return anyNode
}

// add queues a list of jobs.
func (k *copier) add(first *job) {
	pieces := int64(0)
	k.mu.Lock()
	for j := first; j != nil; {
		next := j.next
		j.next = nil
		pieces += 1 + j.request.Bytes/k.pieceSize(j)
		q := &k.queues[j.node]
		if q.last == nil {
			q.first = j
		} else {
			q.last.next = j
		}
		q.last = j
		j = next
	}
	for n := min(pieces, int64(k.asleep)); n > 0; n-- {
		k.wake.Signal()
	}
	k.mu.Unlock()
}

// unlink takes a job out of its queue.
func (q *queue) unlink(j *job) {
	var before *job
	for at := q.first; at != nil; before, at = at, at.next {
		if at != j {
			continue
		}
		if before == nil {
			q.first = j.next
		} else {
			before.next = j.next
		}
		if q.last == j {
			q.last = before
		}
		j.next = nil
		return
	}
}

// work is a worker: it takes pieces until the copier is closed and empty.
func (k *copier) work(home int) {
	if home != anyNode {
		runtime.LockOSThread() // and never unlocked: the thread ends with us
		k.nodes[home-1].enter()
	}
	k.mu.Lock()
	for idle := 0; ; {
		j, p := k.take(home)
		if j == nil {
			if k.closed {
				k.mu.Unlock()
				return
			}
			if idle++; idle <= spins {
				k.mu.Unlock()
				runtime.Gosched()
				k.mu.Lock()
				continue
			}
			k.asleep++
			k.wake.Wait()
			k.asleep--
			idle = 0
			continue
		}
		idle = 0
		k.mu.Unlock()
		err := j.copy(p)
		k.mu.Lock()
		if k.finish(j, err) {
			k.mu.Unlock()
			j.c.complete(j, j.err)
			k.mu.Lock()
		}
	}
}

// finish ends a piece, and says whether the job is over with it.
func (k *copier) finish(j *job, err error) (over bool) {
	j.running--
	if err != nil {
		k.fail(j, err)
	}
	return j.drained && j.running == 0
}

// help copies a part of a job whose first piece was cut off for us, until the
// budget is used up: a worker that sleeps needs a while to wake up.
func (k *copier) help(j *job, p piece, budget int64) (over bool) {
	for {
		budget -= p.bytes
		err := j.copy(p)
		k.mu.Lock()
		if err != nil || j.drained || budget < minPiece {
			over = k.finish(j, err)
			k.mu.Unlock()
			return over
		}
		p = j.cut(minPiece)
		if j.drained {
			k.queues[j.node].unlink(j)
		}
		k.mu.Unlock()
	}
}

// take gives the next piece: of the worker's node, else of any.
func (k *copier) take(home int) (*job, piece) {
	q := &k.queues[home]
	for i := 0; q.first == nil; i++ {
		if i == len(k.queues) {
			return nil, piece{}
		}
		q = &k.queues[i]
	}
	j := q.first
	p := j.cut(k.pieceSize(j))
	if j.drained {
		q.unlink(j)
	}
	j.running++
	return j, p
}

// pieceSize is what one worker takes of a job at once.
func (k *copier) pieceSize(j *job) int64 {
	share := (j.request.Bytes/int64(k.workers) + 4095) &^ 4095
	return min(max(share, minPiece), maxPiece)
}

// cut takes the next piece off a job.
func (j *job) cut(size int64) piece {
	p := piece{span: j.span, offset: j.offset}
	spans := j.request.Spans
	for p.bytes < size && j.span < len(spans) {
		n := min(spans[j.span].Bytes-j.offset, size-p.bytes)
		p.bytes += n
		j.offset += n
		if j.offset == spans[j.span].Bytes {
			j.span++
			j.offset = 0
		}
	}
	j.drained = j.span == len(spans)
	return p
}

// fail gives up what of a job is not being copied.
func (k *copier) fail(j *job, err error) {
	if j.err == nil {
		j.err = err
	}
	if !j.drained {
		j.drained = true
		k.queues[j.node].unlink(j)
	}
}

// drop takes a connection's jobs out of the queues. Those of which no piece is
// being copied are given back, the others complete when their pieces are done.
func (k *copier) drop(c *conn, err error) (dropped *job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.queues {
		for j := k.queues[i].first; j != nil; {
			next := j.next
			if j.c == c {
				k.fail(j, err)
				if j.running == 0 {
					j.next, dropped = dropped, j
				}
			}
			j = next
		}
	}
	return dropped
}

// close waits for the workers. Nothing is queued any more.
func (k *copier) close() {
	k.mu.Lock()
	k.closed = true
	k.wake.Broadcast()
	k.mu.Unlock()
	k.wg.Wait()
}

// all is the piece that is the whole job.
func (j *job) all() piece { return piece{bytes: j.request.Bytes} }

// copy copies a piece. A peer can take pages of its file away, so that touching
// them faults (see memory.Map): that is the job's failure, not ours.
func (j *job) copy(p piece) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			fault, isFault := r.(interface{ Addr() uintptr })
			if !isFault {
				panic(r)
			}
			err = pkgerr.Errorf("shm", "the memory at %#x is gone", fault.Addr())
		}
	}()
	spans := j.request.Spans
	write := j.request.Op == transport.Write
	for i, offset := p.span, p.offset; p.bytes > 0; i, offset = i+1, 0 {
		s := &spans[i]
		n := min(s.Bytes-offset, p.bytes)
		p.bytes -= n
		if n == 0 {
			continue
		}
		far := j.maps[i].at(s.RemoteOffset+offset, n)
		near := s.Local.Bytes(s.LocalOffset+offset, n)
		to, from := near, far
		if write {
			to, from = far, near
		}
		if j.stream {
			memory.Stream(to, from)
		} else {
			memory.Copy(to, from)
		}
	}
	return nil
}

// node is a NUMA node with processors that we may run on.
type node struct {
	location string // "cpu:0"
	cpus     cpuset.Set
}

// readNodes reads which nodes are there, and which of their processors are allowed.
func readNodes(sys fs.FS, allowed func(int) bool) []node {
	var list []node
	for number := range readList(sys, "online").All() {
		var cpus []int
		for cpu := range readList(sys, fmt.Sprintf("node%d/cpulist", number)).All() {
			if allowed(cpu) {
				cpus = append(cpus, cpu)
			}
		}
		if len(cpus) > 0 {
			list = append(list, node{location: fmt.Sprintf("cpu:%d", number), cpus: cpuset.Of(cpus...)})
		}
	}
	return list
}

// readList reads a list of numbers as sysfs writes them. It is empty if the file cannot be read.
func readList(sys fs.FS, name string) cpuset.Set {
	text, err := fs.ReadFile(sys, name)
	if err != nil {
		return cpuset.Set{}
	}
	list, err := cpuset.Parse(string(text))
	if err != nil {
		return cpuset.Set{}
	}
	return list
}
