// Package sched decides which piece of which transfer goes over which lane, when,
// and what to do when that fails. It is the engine's pure core: no clock, no
// socket, no goroutine, no lock. Whoever holds the engine's mutex tells it what
// happened, and when, and carries out the actions that it returns after releasing the
// mutex.
//
//	actions = core.Step(now, events, actions[:0])
//
// A Job is the part of a batch that moves between one pair of memory locations.
// Its Route lists, transport by transport, the lanes that can carry it (pathsel's
// decision). Ops are merged where they are contiguous on both sides and cut into
// slices only when a lane has room for one: nothing is bound to a lane early.
//
// # Lanes
//
// A lane has one connection at a time, and a second one only to be asked by (see
// Stalls). What it may hold is a time, its window, at the rate that was measured:
// bytes completed per busy time. Ports have windows too, for all lanes and peers
// together. Which lane gets a slice is pick.Picker's choice.
//
// A lane whose connection is lost, whose dial fails or that stalls is sick: it is
// dialled again after a while that doubles, then half-open, one slice at a time,
// and after a few good ones well. While no lane of a transport is well the next
// one of the route is used, with a note.
//
// # Stalls
//
// A lane stalls when it stands still for several times what it needs for all it
// holds while other lanes to the peer move. Where none of those has anything to
// do, a small copy of what the silent lane holds is sent over one of them, to see
// whether the peer answers: bytes are counted once, and the copy writes what the
// job writes there anyway. Where there is no other lane to ask, the copy goes over a
// second connection of the same lane. When that one is not answered either it is the
// peer, and no lane is blamed. Time in which the process did not run, so that nobody
// stepped the core, is not counted.
//
// # Fences
//
// A connection that died is fenced: a slice whose bytes may still land (Done with
// MayLand) is sent again only when the peer has left the old connection. What lands late
// need not be what was sent: bytes that changed on the way are found after they have
// landed, and there is no connection left to say so. The job could not end sooner anyway.
// A job that cannot wait for that ends with ErrUnsafe and names the connections. No job
// ends while a slice of it is in flight, so that its local buffers are free then.
//
// # Files
//
// In the order in which a slice lives: types.go, what goes in and out; core.go, Step and what is
// there; route.go, which transport and how many lanes a job gets; send.go, whose turn it is, which
// lane takes the next slice, and how it is cut; lane.go, connections, health, rates and stalls;
// job.go, how slices come back, how jobs end, and fences.
package sched

import (
	"errors"
	"fmt"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/direction"
	"github.com/topoctl/topoctl/internal/pick"
)

// PeerID names another engine. The core's Add functions give IDs, and none twice.
type PeerID uint32

// LaneID names a lane to a peer.
type LaneID uint32

// SideID names the ports of a host.
type SideID uint32

// ConnID names a connection of a lane; the core draws them, none twice.
type ConnID uint64

// Priority is a class of jobs. Every lane serves High first, and Normal often
// enough that it is never starved.
type Priority uint8

// The priorities.
const (
	Normal Priority = iota
	High
)

// Op is a piece of work that may be regular: Count pieces of Bytes each. Piece k
// is, in the local region, at LocalOffset + i*LocalStride, where i is
// LocalPages[k], or k without pages; in the remote region likewise. A contiguous
// op has Count 1. The engine has checked every range.
type Op struct {
	Kind                      direction.Direction
	Local, Remote             int32 // the engine's handles of the regions
	LocalOffset, RemoteOffset int64
	Bytes                     int64 // of one piece
	Count                     int
	LocalStride, RemoteStride int64
	LocalPages, RemotePages   []uint32 // nil, or Count entries
}

// Span is a contiguous piece of memory on both sides.
type Span struct {
	Local, Remote             int32
	LocalOffset, RemoteOffset int64
	Bytes                     int64
}

// Slice is what one lane carries at once: spans of one job, all read or all
// written. It is the transport's from Post to Done.
type Slice struct {
	Job     *Job
	Kind    direction.Direction
	Spans   []Span
	Bytes   int64
	Attempt int // 0 the first time
	// Probe: a copy of a little of what a silent lane holds, to see whether the peer
	// answers over another one. Its bytes do not count, but they lie where others may
	// lie already: one that fails is sent again like any slice.
	Probe bool
	Lane  LaneID
	Conn  ConnID

	sliceState
}

// sliceState is the core's own part of a slice.
type sliceState struct {
	next            *Slice // where it waits
	place           int    // in its lane's slices
	lane            *lane  // that it is in flight on, or the lane's spare
	use             int    // place of its lane in the job's Result.Lanes
	postedAt        int64  // Core.clock
	firstOp, lastOp int    // that it holds bytes of
}

// Limits are what a connection takes.
type Limits struct {
	MaxSpans  int   // of one slice
	MaxBytes  int64 // of one slice
	MaxPosted int   // slices at a time
	Parallel  int   // slices that share what it carries, and so end together; 0 is 1
}

// LaneSpec describes a lane. Local and Remote are ports of two sides, by index; a
// lane that no port stands for (loopback, shared memory) has a side of its own.
type LaneSpec struct {
	Peer              PeerID
	Name              string // for notes and errors: "eth0 > n2:eth1"
	Transport         string
	LocalSide         SideID
	RemoteSide        SideID
	Local, Remote     int
	RateBytesPerSec   topo.Rate // what the topology promises, 0 not known
	RoundTripNS       int64     // what is expected of an empty connection, 0 not known
	NominalIsMeasured bool      // the rate was measured: believe it from the start
	User              any       // the engine's own
}

// Group is what one transport offers for a route.
type Group struct {
	Transport string
	Set       *pick.Set
	Lanes     []LaneID // by place in Set.Lanes
}

// Route is the lanes between one pair of memory locations, the best transport
// first. A route belongs to the core once a job uses it; EventRoute replaces its
// groups.
type Route struct {
	Peer   PeerID
	Name   string // "cpu:0 > n2 gpu:1"
	Groups []Group

	routeState
}

// routeState is the core's own part of a route.
type routeState struct {
	adopted bool
	peer    *peer
	groups  []group
	cur     int    // the group that is used
	fresh   bool   // the groups were replaced since that was decided
	seen    uint64 // peer.seq for which that was decided
	lastJob int64  // in the time of Step, of the last one that began or ended
	jobs    int    // not finished
	listed  bool   // in Core.routes
	active  bool   // in peer.active
	queues  [2]queue
	queued  [2]int64  // bytes that wait, by Priority
	blocked [2]uint64 // the round of pumping in which no lane took a slice
}

// Kind tells events apart.
type Kind uint8

// The events, with the fields that each uses.
const (
	Tick          Kind = iota // time passed
	Submit                    // Job
	Cancel                    // Job, Err: give up what is not sent, drain or fence the rest
	Connected                 // Lane, Conn, Limits
	ConnectFailed             // Lane, Conn, Err
	Done                      // Slice, Err, MayLand, Retry
	Lost                      // Lane, Conn, Err: gone, after the last Done of its slices
	Fenced                    // Peer, Conn: nothing of this connection can land any more
	Suspend                   // Lane: the user takes it out: no new slices, its connection is killed, no tests
	Resume                    // Lane: test it at once
	LaneGone                  // Lane: its port is gone or was taken away; no new slices
	PortDown                  // Side, Port: link down was seen; lanes there are sick at once
	PortUp                    // Side, Port: test them at once
	RouteChanged              // Route, Groups
	PeerGone                  // Peer, Err, Restarted: its jobs fail. A peer that restarted has no memory left to land in.
)

// Event is something that happened. Kind says which fields count.
type Event struct {
	Kind      Kind
	Job       *Job
	Slice     *Slice
	Lane      LaneID
	Peer      PeerID
	Conn      ConnID
	Side      SideID
	Port      int
	Route     *Route
	Groups    []Group
	Limits    Limits
	Err       error
	MayLand   bool
	Retry     bool // Done with Err: the slice may be tried again (not refused by the peer)
	Restarted bool
}

// Do tells actions apart.
type Do uint8

// The actions.
const (
	Connect Do = iota // Lane, Conn: dial, then Connected or ConnectFailed
	Post              // Slice, on Slice.Lane and Slice.Conn; then Done
	Kill              // Lane, Conn, Err: close it, then Done for each slice, then Lost
	Fence             // Peer, Lane, Conn: have the peer leave it, then Fenced
	Finish            // Job: it is over, see its result; every local buffer is free
	Tell              // Note: count it, log it
)

// Action is something to be done now.
type Action struct {
	Do    Do
	Job   *Job
	Slice *Slice
	Lane  LaneID
	Peer  PeerID
	Conn  ConnID
	Err   error
	Note  *Note
	User  any // LaneSpec.User of the lane to connect, or to fence
}

// Note is a decision that people should hear of.
type Note struct {
	Code     NoteCode
	Peer     PeerID
	PeerName string // "" where it is about no peer
	Lane     LaneID // of the lane that it is about
	Text     string
	Err      error
}

// NoteCode names what a note is about.
type NoteCode string

// The notes.
const (
	LaneSick     NoteCode = "lane-sick"     // errors or a stall: no new slices
	LaneTested   NoteCode = "lane-tested"   // half-open: one slice at a time
	LaneWell     NoteCode = "lane-well"     // in use again
	Fallback     NoteCode = "fallback"      // a worse transport is used, because every lane of the better one is sick
	FallbackOver NoteCode = "fallback-over" // the better one is back
	PeerStalled  NoteCode = "peer-stalled"  // every lane stands still: the peer, not a lane
	Descheduled  NoteCode = "descheduled"   // this process did not run for a while; that time counts for nobody
	UnsafeBuffer NoteCode = "unsafe-buffer" // a job ended whose bytes may still land
)

// Job is the part of a batch that one route carries. The submitter fills in the
// first fields and hands it to the core with Submit; the result may be read after
// Finish. A job may be submitted again after its Finish: its Result is then
// overwritten, in the same memory.
type Job struct {
	Route      *Route
	Ops        []Op
	Priority   Priority
	DeadlineNS int64 // in the time of Step; 0: none
	Check      bool  // a checksum for each slice
	User       any   // the engine's own

	Result Result

	jobState
}

// Result is how a job ended and what it took.
type Result struct {
	// Err is nil where every byte is in place. It wraps the cause; an *OpError says
	// which op was refused or failed too often, a *LaneError what was wrong with a
	// lane. It names neither route nor peer.
	Err error
	// Unsafe are the connections over which bytes may still land in the peer's
	// memory: the job's remote ranges must not be used until they are fenced.
	Unsafe  []ConnID
	StartNS int64
	EndNS   int64
	Bytes   int64 // in place
	Slices  int64
	Retries int64
	Lanes   []LaneUse // in the order of first use
	Notes   []Note    // that came up while it ran, the first ones
}

// LaneUse is what one lane did for a job.
type LaneUse struct {
	Lane    LaneID
	User    any // LaneSpec.User
	Bytes   int64
	Slices  int64
	Retries int64 // slices that it did not deliver
	FirstNS int64 // first post
	LastNS  int64 // last completion
	Err     error // the last

	inflight int // slices
}

// LaneStats is what is known of one lane.
type LaneStats struct {
	Lane          LaneID
	User          any // LaneSpec.User
	Peer          PeerID
	Name          string
	Transport     string
	Health        string // "idle", "dialling", "healthy", "half-open", "sick", "gone"
	Conn          ConnID
	BytesPerSec   topo.Rate // service rate, or what the topology promises until there is one
	Measured      bool
	InflightBytes int64
	Inflight      int
	WindowBytes   int64
	DoneBytes     int64
	DoneSlices    int64
	Retries       int64 // slices taken from it and sent again
	Failures      int64 // times it became sick
	LastError     string
}

// Why jobs end without all bytes in place, and why lanes are killed. Errors of jobs
// name lanes and ops, but neither route nor peer: the submitter of the job knows those.
var (
	// ErrDeadline: the job's deadline passed.
	ErrDeadline = errors.New("deadline exceeded")
	// ErrUnsafe: the job ended and bytes of it may still land in the peer's memory,
	// see Result.Unsafe.
	ErrUnsafe = errors.New("bytes may still land in the peer's memory")
	// ErrNoLane: the job's route has no lane at all.
	ErrNoLane = errors.New("no lane")
	// ErrAttempts: a slice failed Config.MaxAttempts times.
	ErrAttempts = errors.New("too many attempts")
	// ErrStalled: the lane made no progress while others did, or up to a deadline.
	ErrStalled = errors.New("no progress")
	// ErrLost: the connection ended and nobody said why.
	ErrLost = errors.New("connection lost")
	// ErrLinkDown: the link of one of the lane's ports is down.
	ErrLinkDown = errors.New("link is down")
	// ErrTakenOut: the lane was suspended by the user or its port is gone.
	ErrTakenOut = errors.New("lane was taken out")
	// ErrSlow: the connection was closed at a job's deadline, because slices of the
	// job had not ended on it.
	ErrSlow = errors.New("did not end by the deadline")
)

// OpError says that the peer refused a slice, or that it failed too often, and
// which ops of the job were in it: First to Last, places in Job.Ops.
type OpError struct {
	First, Last int
	Lane        string
	Err         error
}

func (e *OpError) Error() string {
	ops := fmt.Sprintf("op %d", e.First)
	if e.Last != e.First {
		ops = fmt.Sprintf("ops %d to %d", e.First, e.Last)
	}
	return fmt.Sprintf("%s: lane %s: %v", ops, e.Lane, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// LaneError says what was last wrong with a lane that a job needed.
type LaneError struct {
	Lane string
	Err  error
}

func (e *LaneError) Error() string { return fmt.Sprintf("lane %s: %v", e.Lane, e.Err) }

func (e *LaneError) Unwrap() error { return e.Err }
