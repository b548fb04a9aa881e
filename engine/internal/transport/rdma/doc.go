// Package rdma moves memory by RDMA verbs: one-sided READs and WRITEs that devices carry
// out, over InfiniBand and RoCE. docs/wire.md specifies what two ends tell each other,
// under "RDMA".
//
// A connection is a few reliable-connected queue pairs between one port here and one of
// the peer. The active end's Dial makes them, tells the peer's Accept their numbers, and
// tries them out before it returns. The passive end has queue pairs that the peer's
// requests come to, and no part in moving the bytes: it counts none.
//
// # Ports and addresses
//
// The transport has ports of its own (transport.Ported). Which of a port's GIDs is used is
// decided for each peer, by what both have: RoCE v2 before v1, the same subnet before one
// that the host has a route to, given addresses before link-local ones; on InfiniBand the
// same subnet, a partition that both are in and not both as limited members, LIDs. Every
// decision has its reason, in Describe or in the error.
//
// Devices and ports are watched: by their asynchronous events, and by reading them again
// from time to time, because not everything has an event. A connection whose port, address
// or device goes away ends at once with that as its cause. A device that was removed is
// closed, which the kernel may be waiting for, and opened again when it is back; its
// registrations and its name for peers (the generation) are new then.
//
// # The goroutine that takes completions
//
// Each device has a poller, which sleeps on its completion channel. A goroutine that waits for
// a request (Poll) takes its place: there is one thread to wake, and it goes on with what
// it waited for. See reading.
//
// # What a peer can do
//
// An engine is one trust domain: one protection domain for each device. A region is
// registered with the rights that its grant gives, and one that grants nothing has no key.
// Keys hold no addresses of the process. Queue pairs of the active end let nobody touch
// anything. When a region is closed its registration ends, and with it what peers can do.
// A request for it is refused by the peer's device, which breaks the queue pair: it is
// replaced, and what stood behind is sent again.
//
// # The end of things
//
// Leave destroys the queue pairs that the peer's requests come to: what of these is still
// in the network lands nowhere. Our own connection is over, and Lost comes, when its queue
// pairs are destroyed; before that, no READ that failed is reported as over. Where a device
// gives nothing back (Linux 6.1's rxe after its link went down), nothing tells but time:
// the engine's scheduler, which closes what stands still. There is no checksum but those
// of the wire.
//
// A READ counts as done when its device says so, but for Soft-RoCE, which says so of some that
// have brought nothing: see proveRead.
//
// # What was tried on what
//
// The conformance suite and faults of every kind on internal/verbs/verbsfake; the suite,
// links, addresses and devices that come and go on Soft-RoCE of Linux 6.1 in the VM lab. No
// hardware was at hand: InfiniBand, dma-buf and small limits were seen on the fake alone.
package rdma
