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
// together. Which lane gets a slice is the policy's choice (pick.Picker), and no
// policy is named here.
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
// landed, and there is no connection left to say so. The job could not be finished before anyway. A job that cannot wait for that ends with ErrUnsafe and
// names the connections. No job ends while a slice of it is in flight, so that its
// local buffers are free then.
package sched
