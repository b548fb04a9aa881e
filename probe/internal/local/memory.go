package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/self"
	"github.com/topoctl/topoctl/probe/internal/lane"

	"github.com/topoctl/topoctl/probe"
)

const (
	// setsPerCache is how many times as large as the last-level cache the working set is: with four
	// (STREAM's rule) at most a quarter of it is still in the cache when it is used again. A copy goes
	// from one half to the other past the caches (streaming stores).
	setsPerCache = 4
	// minPerCache is the minimum where it takes long to allocate memory.
	minPerCache = 2
	minBuffer   = 256 << 20
	maxBuffer   = 8 << 30
	// memoryPart says which part of the available memory a pair uses, 1/memoryPart: other processes need
	// memory too.
	memoryPart = 4
	// minWorkingSet is the least memory that is worth measuring.
	minWorkingSet = 16 << 20
	// pieceBytes is what a thread moves between two checks whether to stop.
	pieceBytes = 4 << 20
)

// memoryJob measures memory of one node from CPUs of one node.
type memoryJob struct {
	p       *Prober
	pair    *probe.Pair
	spec    probe.Spec
	alone   bool
	arena   *arena
	set     []byte // the working set
	cpus    []int  // one for each thread
	pinned  bool
	binding probe.Binding
	notes   []string
	swept   atomic.Int64 // what sweep counted, so that it has to load
}

// memory prepares a pair of memory and CPUs; the memory is that of From.
func (r *round) memory(pair *probe.Pair) (*job, error) {
	if pair.Variant != probe.VariantRead && pair.Variant != probe.VariantCopy {
		return nil, fmt.Errorf("variant %q of memory: there are %q and %q", pair.Variant, probe.VariantRead, probe.VariantCopy)
	}
	from, to := r.numaNode(pair.From.Node), r.numaNode(pair.To.Node)
	if from == nil || to == nil {
		return nil, fmt.Errorf("NUMA nodes %s and %s: the topology does not have both", pair.From.Node, pair.To.Node)
	}
	m := &memoryJob{p: r.Prober, pair: pair, spec: r.spec, alone: r.alone}
	if err := m.chooseCPUs(to); err != nil {
		return nil, err
	}
	if err := m.allocate(from, to, r.began); err != nil {
		return nil, err
	}
	return &job{measure: m.measure, close: func() error { return r.arenas.put(from.Index, m.arena) }}, nil
}

func (p *Prober) numaNode(id topo.ID) *topo.NUMANode {
	all := p.o.Topology.NUMANodes
	if k := slices.IndexFunc(all, func(n topo.NUMANode) bool { return n.ID == id }); k >= 0 {
		return &all[k]
	}
	return nil
}

// chooseCPUs chooses the CPUs of the threads: those of the node that this process may use, as many as the
// cgroup allows time for, which GOMAXPROCS follows.
func (m *memoryJob) chooseCPUs(node *topo.NUMANode) error {
	h := &m.p.system
	all, bad := cpuset.Parse(node.CPUs)
	allowed, err := h.allowed()
	if err = errors.Join(bad, err); err != nil {
		if m.p.memoryNodes() > 1 {
			return waivef("the CPUs of NUMA node %d that this process may use are not known: %v", node.Index, err)
		}
		m.unpinned(err)
		return nil
	}
	usable := slices.Collect(all.Intersect(allowed).All())
	if len(usable) == 0 {
		return waivef("NUMA node %d has CPUs %q, and this process may use none of them (taskset -p, or the cpuset of its cgroup)", node.Index, node.CPUs)
	}
	threads := min(len(usable), runtime.GOMAXPROCS(0))
	if threads < len(usable) {
		m.notes = append(m.notes, fmt.Sprintf("%d threads for %d CPUs: the CPU time of the cgroup, or GOMAXPROCS, allows no more", threads, len(usable)))
	}
	undo, err := h.pin(usable[0]) // on this goroutine, to see whether it may be
	if err != nil {
		if m.p.memoryNodes() > 1 {
			return waivef("threads cannot be tied to the CPUs of NUMA node %d: %v", node.Index, err)
		}
		m.unpinned(err)
		m.cpus = m.cpus[:min(threads, len(m.cpus))]
		return nil
	}
	undo()
	m.pinned, m.cpus = true, usable[:threads]
	m.binding.CPUs, m.binding.Threads = cpuset.Of(m.cpus...).String(), threads
	return nil
}

// unpinned continues with threads that run anywhere, which is right on a host of one node.
func (m *memoryJob) unpinned(err error) {
	m.cpus = make([]int, runtime.GOMAXPROCS(0))
	m.binding.Threads = len(m.cpus)
	m.notes = append(m.notes, fmt.Sprintf("threads are not tied to CPUs: %v", err))
}

// allocate gets the working set: memory of node, too large for the caches of cpus.
func (m *memoryJob) allocate(node, cpus *topo.NUMANode, began time.Duration) (err error) {
	several := m.p.memoryNodes() > 1
	m.arena = m.p.arenas.get(node.Index)
	defer func() {
		if err != nil && m.arena != nil {
			err = errors.Join(err, m.p.arenas.put(node.Index, m.arena))
		}
	}()
	least, size, err := m.bufferSize(node, cpus)
	if err != nil {
		return err
	}
	if m.arena == nil {
		o := memory.Options{Backing: memory.Private, Pages: memory.Huge, Lazy: true}
		if several {
			o.Nodes = []int{node.Index}
		}
		block, err := m.p.system.alloc(size, o)
		if err != nil && several && refusesBinding(err) {
			err = lane.Waive(err)
		}
		if err != nil {
			return err
		}
		m.arena = &arena{block: block}
	}
	var soft, hard time.Duration
	if t := m.spec.PairTime; t > 0 {
		soft, hard = began+t/fillPart, began+t
	}
	size = min(size, m.arena.block.Size())
	m.arena.faultIn(len(m.cpus), least, size, m.p.o.Now, soft, hard)
	if m.set = m.arena.block.Bytes()[:min(size, m.arena.faultedIn)]; len(m.set) < minWorkingSet {
		return fmt.Errorf("memory of NUMA node %d: %d bytes could be faulted in within %v: too little to measure: give the pair more time", node.Index, len(m.set), m.spec.PairTime)
	}
	if info := m.arena.block.Info(); several {
		if !slices.Equal(info.Nodes, []int{node.Index}) {
			return waivef("memory was not bound to NUMA node %d: %s", node.Index, strings.Join(info.Notes, "; "))
		}
		m.binding.FromMemory, m.binding.ToMemory = &node.Index, &node.Index
	}
	m.noteWorkingSet(several, cpus)
	return nil
}

// noteWorkingSet notes what the working set is.
func (m *memoryJob) noteWorkingSet(several bool, cpus *topo.NUMANode) {
	m.notes = append(m.notes, m.arena.block.Info().Notes...)
	if !several {
		m.notes = append(m.notes, "memory is not bound: the host has one NUMA node")
	}
	switch cache := m.cache(cpus); {
	case cache == 0:
		m.notes = append(m.notes, fmt.Sprintf("the working set is %d bytes; the size of the caches is not known", len(m.set)))
	case int64(len(m.set)) < setsPerCache*cache:
		m.notes = append(m.notes, fmt.Sprintf("the working set is %d bytes, the last-level caches %d: some of it may have come from the caches", len(m.set), cache))
	}
}

// refusesBinding says whether the system does not let this process place memory.
func refusesBinding(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)
}

// cache is the size of the last-level caches of a node's CPUs, 0 not known.
func (m *memoryJob) cache(cpus *topo.NUMANode) int64 {
	set, err := cpuset.Parse(cpus.CPUs)
	if err != nil {
		return 0
	}
	return lastLevel(m.p.o.Sysfs, set)
}

// bufferSize is several times the size of the caches, limited to a part of what is free, and the least
// size that is worth measuring.
func (m *memoryJob) bufferSize(node, cpus *topo.NUMANode) (least, size int64, err error) {
	cache := m.cache(cpus)
	size = min(maxBuffer, max(minBuffer, setsPerCache*cache))
	available, known := m.p.system.available()
	if free, ok := parseNodeFree(lane.FileText(m.p.o.Sysfs + "/devices/system/node/node" + strconv.Itoa(node.Index) + "/meminfo")); ok && (!known || free < available) {
		available, known = free, true
	}
	if m.arena != nil { // is ours already
		available += m.arena.faultedIn
	}
	if known {
		size = min(size, available/memoryPart)
	}
	size = size / (2 * hugePage) * 2 * hugePage
	if size < minWorkingSet {
		return 0, 0, fmt.Errorf("memory of NUMA node %d: %d bytes are free, of which a pair takes a quarter: too little to measure: free some memory", node.Index, available)
	}
	return min(size, max(minWorkingSet, minPerCache*cache)), size, nil
}

const hugePage = 2 << 20

// measure measures latency (of "read" only), and then bandwidth.
func (m *memoryJob) measure(ctx context.Context, spec probe.Spec, tell func(probe.Sample)) probe.Measurement {
	m.spec = spec
	out := probe.Measurement{Bandwidth: []probe.Bandwidth{}, Binding: m.binding, Notes: m.notes}
	until := lane.Deadline(m.p.o.Now, &m.spec)
	if m.measuresLatency() {
		out.Err = m.latency(ctx, lane.Share(m.p.o.Now(), until, chasePart), &out)
	}
	if len(m.spec.SizesBytes) > 0 && out.Err == nil {
		out.Err = m.bandwidth(ctx, tell, until, &out)
	}
	return out
}

func (m *memoryJob) measuresLatency() bool {
	return m.spec.LatencySamples > 0 && m.pair.Variant == probe.VariantRead
}

// parts splits the working set, one part for each thread.
func (m *memoryJob) parts() [][]byte {
	part := len(m.set) / len(m.cpus) &^ 4095
	out := make([][]byte, len(m.cpus))
	for i := range out {
		out[i] = m.set[i*part:][:part]
	}
	return out
}

// bandwidth takes samples of the last size: as the working set is the same, it makes no difference how
// much a thread moves at once.
func (m *memoryJob) bandwidth(ctx context.Context, tell func(probe.Sample), until time.Duration, out *probe.Measurement) error {
	size := m.spec.SizesBytes[len(m.spec.SizesBytes)-1]
	threads := make([]thread, len(m.cpus))
	for i, mem := range m.parts() {
		threads[i] = thread{src: mem}
		if half := len(mem) / 2; m.pair.Variant == probe.VariantCopy {
			threads[i] = thread{src: mem[:half], dst: mem[half:]}
		}
	}
	pace := lane.Pacer{Now: m.p.o.Now, PerSec: m.spec.RateLimit}
	s := lane.Run{
		Workers: len(threads), Now: m.p.o.Now, Spec: &m.spec, Tell: tell, Until: until,
		Start: func(w int) (func(), error) { return m.pin(w) },
		Move: func(ctx context.Context, w int) (int64, error) {
			if err := pace.Wait(ctx, size); err != nil {
				return 0, err
			}
			return threads[w].move(ctx, size)
		},
	}
	if m.alone {
		s.CPU = self.CPU
	}
	return s.Size(ctx, size, out)
}

func (m *memoryJob) pin(w int) (undo func(), err error) {
	if !m.pinned {
		return func() {}, nil
	}
	return m.p.system.pin(m.cpus[w])
}

// loadAll reads all bytes of fresh memory, and says whether its halves are equal, as they should be.
// bytes.Equal loads whole vectors from two places at once, which keeps more loads under way than one place
// does: 1.6 times the rate of a loop in Go, and as much as a vectorised loop in C.
func loadAll(b []byte) (alike bool) {
	half := len(b) / 2
	return bytes.Equal(b[:half], b[half:2*half])
}

// thread walks through its part of the buffer again and again.
type thread struct {
	src, dst []byte // dst nil: loads only
	at       int
}

// move loads size bytes, or loads and stores half as many.
func (t *thread) move(ctx context.Context, size int64) (int64, error) {
	left := size
	for left > 0 && ctx.Err() == nil {
		want := left
		if t.dst != nil {
			want = (left + 1) / 2
		}
		n := int(min(want, pieceBytes, int64(len(t.src)-t.at)))
		if t.dst != nil {
			memory.Stream(t.dst[t.at:t.at+n], t.src[t.at:t.at+n])
			left -= 2 * int64(n)
		} else {
			if !loadAll(t.src[t.at : t.at+n]) {
				return size - left, errors.New("memory that was not written has changed")
			}
			left -= int64(n)
		}
		if t.at += n; t.at == len(t.src) {
			t.at = 0
		}
	}
	return size - left, nil
}
