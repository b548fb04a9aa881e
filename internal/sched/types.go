package sched

import (
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/pick"
)

// PeerID names another engine. IDs are given by the core's Add functions and are
// not used again.
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
	Read                      bool
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
	Read    bool
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
	prev, next      *Slice // of its lane, in flight; next also where it waits
	use             int    // place of its lane in the job's Result.Lanes
	postedAt        int64  // Core.clock
	firstOp, lastOp int    // that it holds bytes of
	index           uint32
}

// Limits are what a connection takes.
type Limits struct {
	MaxSpans  int   // of one slice
	MaxBytes  int64 // of one slice
	MaxPosted int   // slices at a time
	Parallel  int   // slices that share what it carries, and so end together; 0 is 1
}

// Side describes the ports of one host for one transport, by pathsel's
// Port.Index: what each one's wire carries, 0 not known.
type Side struct {
	Rates []topo.Rate
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
	Policy pick.Policy

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

// Event is something that happened. Which fields count hangs on Kind.
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
}

// Note is a decision that people should hear of.
type Note struct {
	Code NoteCode
	Peer PeerID
	Lane LaneID // of the lane that it is about
	Text string
	Err  error
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
