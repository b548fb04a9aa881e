package local

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/topoctl/topoctl/engine/memory"
)

const (
	// fillBytes is what is faulted in between two looks at the clock: a huge page.
	fillBytes = 2 << 20
	// fillPart is which part of the time of a pair its memory may take, as 1/fillPart.
	fillPart = 2
)

// arena is memory of one node. A virtual machine may have to wait for its host for each page that it has
// not used lately (up to 4 s for 1 GiB), so pages are faulted in while there is time, and kept for the
// next pair.
type arena struct {
	block     *memory.Block
	faultedIn int64 // bytes from the beginning that are there
}

// arenas are those that no pair uses now, by NUMA node; of a node at most one, because rounds have at most one pair of
// its memory.
type arenas struct {
	mu   sync.Mutex
	free map[int]*arena
}

// get returns the arena of a node that was used before, nil if there is none.
func (a *arenas) get(node int) *arena {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.free[node]
	delete(a.free, node)
	return x
}

// put keeps an arena for the next pair of its node.
func (a *arenas) put(node int, x *arena) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.free[node] != nil {
		return x.block.Free()
	}
	a.free[node] = x
	return nil
}

// freeAll frees the arenas that are not in use.
func (a *arenas) freeAll() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, x := range a.free {
		errs = append(errs, x.block.Free())
	}
	clear(a.free)
	return errors.Join(errs...)
}

// faultIn faults in memory up to want bytes, with as many goroutines as there are threads. Until it has
// least bytes it goes on until hard, after that until soft (on now, 0 never).
func (x *arena) faultIn(threads int, least, want int64, now func() time.Duration, soft, hard time.Duration) {
	mem, page := x.block.Bytes(), os.Getpagesize()
	var next atomic.Int64
	next.Store(x.faultedIn)
	var running sync.WaitGroup
	for range threads {
		running.Go(func() {
			for {
				until := soft
				if next.Load() < least {
					until = hard
				}
				if until > 0 && now() >= until {
					return
				}
				end := next.Add(fillBytes)
				if end > want {
					return
				}
				for at := end - fillBytes; at < end; at += int64(page) {
					mem[at] = 0
				}
			}
		})
	}
	running.Wait()
	x.faultedIn = max(x.faultedIn, min(next.Load(), want)/fillBytes*fillBytes)
}

// parseHuge finds in smaps how much of the mapping at an address is in transparent huge
// pages. Source: proc_pid_smaps(5).
func parseHuge(smaps, address string) (bytes int64, ok bool) {
	_, after, found := strings.Cut("\n"+smaps, "\n"+address+"-")
	if !found {
		return 0, false
	}
	_, after, _ = strings.Cut(after, "\nAnonHugePages:")
	line, _, _ := strings.Cut(after, "\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 50)
	return kib << 10, err == nil
}

// pages says how much of the working set is in huge pages, if known.
func (m *memoryJob) pages() string {
	huge, ok := parseHuge(m.p.system.smaps(), address(m.arena.block))
	if !ok {
		return ""
	}
	return fmt.Sprintf(", %d of them in huge pages", min(huge, int64(len(m.set))))
}

// address is where a block begins, as the kernel writes it.
func address(b *memory.Block) string { return fmt.Sprintf("%p", b.Bytes())[len("0x"):] }
