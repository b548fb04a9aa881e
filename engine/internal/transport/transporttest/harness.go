// Package transporttest holds implementations of transport.Transport to their
// contract. A transport's test makes a Harness and calls Run; each rule is a
// subtest with a name.
//
// The suite looks at memory: both regions of a test have a shadow that says what
// every byte must be, so a byte that is missing, in the wrong place or beside the
// range is found, whatever the transport reports.
package transporttest

import (
	"cmp"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/transport"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// Harness says how to make the transport under test, and how much of it the
// machine can take. Zero fields take the defaults.
type Harness struct {
	// New makes two ends that can reach each other. The suite closes the transports
	// and the tables; whatever else belongs to them goes to t.Cleanup.
	New func(t testing.TB) *Ends
	// RegionBytes is the size of the regions, default 2 MiB (longtest: 8 MiB), at least 64 KiB.
	RegionBytes int64
	// Requests of the large batch, default 2,500 (longtest: 10,000), and Cycles of connecting
	// and closing, default 250 (longtest: 1,000). Both are a tenth with -short.
	Requests, Cycles int
	// Memory is how regions are allocated.
	Memory memory.Options
	// Alloc allocates the regions of one side in place of that: memory that processors
	// may not be able to touch, which Read and Write then reach.
	Alloc func(t testing.TB, side Side, size int64) *memory.Block
	Read  func(b *memory.Block, p []byte, off int64)
	Write func(b *memory.Block, p []byte, off int64)
	// Patience is how long anything may take that must happen, default 30 s.
	Patience time.Duration
	// Virtual is for transports without a socket, a device or a process: time passes only while
	// everything waits, as in package testing/synctest.
	Virtual bool
	// Uncounted is for transports whose passive side does not see the requests
	// (the requester or hardware moves the bytes): Served counts connections only.
	Uncounted bool
}

// Side is one of the ends.
type Side bool

// The sides.
const (
	ActiveSide  Side = false
	PassiveSide Side = true
)

// End is one engine's part.
type End struct {
	Transport transport.Transport
	Regions   *memory.Table
	Endpoint  transport.Endpoint // that the other end dials
	// Far is in place of Regions for a passive end on another machine; nil: it is here.
	Far Far
}

// Ends are what a test runs with. The hooks may be nil: what needs them is skipped
// with a reason.
type Ends struct {
	Active, Passive End
	// Session of all connections; zero: one drawn by the suite.
	Session transport.SessionID
	// Local and Interface go to Dial as they are.
	Local     netip.Addr
	Interface string
	// Restart makes a new passive end, after the suite has closed the old one.
	Restart func(t testing.TB) End
	// Stall keeps the passive end of all connections from answering, or lets it go
	// on. It is called after connections are made.
	Stall func(on bool)
	// Hold keeps what is posted on a connection from now on from landing. What it
	// gives lets it land, also after the connection has ended.
	Hold func(c transport.Conn) (release func())
}

// check is one rule.
type check struct {
	name string
	run  func(p *pair)
}

// checks are all of them, in the order in which they run.
func checks() []check {
	return []check{
		{"limits", checkLimits},
		{"move/sizes", checkSizes},
		{"move/slice edges", checkSliceEdges},
		{"move/large", checkLarge},
		{"move/many requests", checkManyRequests},
		{"move/strides", checkStrides},
		{"move/mixed", checkMixed},
		{"move/concurrent posters", checkPosters},
		{"move/several connections", checkConnections},
		{"move/post from done", checkPostFromDone},
		{"refuse/against the limits", checkAgainstLimits},
		{"refuse/no such region", checkNoRegion},
		{"refuse/stale region", checkStaleRegion},
		{"refuse/outside the region", checkRange},
		{"refuse/not granted", checkGrant},
		{"refuse/one among many", checkOneRefused},
		{"region/closed during transfer", checkRegionClosed},
		{"post/never blocks", checkPostNeverBlocks},
		{"close/idle", checkCloseIdle},
		{"close/under load", checkCloseUnderLoad},
		{"close/from done", checkCloseFromDone},
		{"close/peer does not answer", checkCloseStalled},
		{"close/transport under load", checkCloseTransport},
		{"leave/before arrival", checkLeaveBeforeArrival},
		{"leave/not expected", checkNotExpected},
		{"leave/unknown and twice", checkLeaveUnknown},
		{"leave/during traffic", checkLeaveDuringTraffic},
		{"leave/closed connection", checkLeaveClosed},
		{"leave/held writes", checkLeaveHeld},
		{"leave/may land", checkMayLand},
		{"leave/all", checkLeaveAll},
		{"peer/restart", checkRestart},
		{"dial/cancelled", checkDialCancelled},
		{"dial/exchange fails", checkExchangeFails},
		{"dial/exchange hangs", checkExchangeHangs},
		{"dial/nobody there", checkDialNobody},
		{"served", checkServed},
		{"cycles", checkCycles},
	}
}

// Run runs every check as a subtest.
func Run(t *testing.T, h Harness) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if h.Virtual {
				synctest.Test(t, func(t *testing.T) { h.run(t, c) })
				return
			}
			h.run(t, c)
		})
	}
}

// run runs one check between fresh ends and looks for what it leaves behind.
func (h Harness) run(t testing.TB, c check) {
	h = h.withDefaults()
	before := countHeld()
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			checkHeld(t, h.Patience, before)
		}
	})
	p := newPair(t, h)
	c.run(p)
}

// rounds is how often something is tried that may go wrong by chance: all of n times with
// longtest, a third of them otherwise.
func rounds(n int) int {
	if longtest.On() {
		return n
	}
	return n / 3
}

func (h Harness) withDefaults() Harness {
	times := 1
	if longtest.On() {
		times = 4
	}
	h.RegionBytes = cmp.Or(h.RegionBytes, int64(times)*2<<20)
	h.Requests = cmp.Or(h.Requests, times*2500)
	h.Cycles = cmp.Or(h.Cycles, times*250)
	if h.Patience == 0 {
		h.Patience = 30 * time.Second
	}
	if h.Alloc == nil {
		h.Alloc = func(t testing.TB, _ Side, size int64) *memory.Block {
			b, err := memory.Alloc(size, h.Memory)
			if err != nil {
				t.Fatalf("allocating %d bytes: %v", size, err)
			}
			return b
		}
	}
	if h.Read == nil {
		h.Read = func(b *memory.Block, p []byte, off int64) { copy(p, b.Bytes()[off:]) }
		h.Write = func(b *memory.Block, p []byte, off int64) { copy(b.Bytes()[off:], p) }
	}
	if testing.Short() {
		h.Requests, h.Cycles = max(h.Requests/10, 1), max(h.Cycles/10, 1)
	}
	return h
}
