// Package sim simulates transfers between many hosts in virtual time, to test plans,
// verdicts and predictions without the machines. It drives the same pathsel and
// internal/sched code as real transfers.
//
// # Model
//
// A Net is directed links with a rate and a latency, and flows: streams of bytes
// along a path. Flows that want more than a link has share it max-min fairly. Rates
// hold until something changes: a flow begins or ends, a link or a limit changes.
// Then the new shares hold at once, for all flows that the change can reach.
//
// A Cluster is hosts and a Fabric. A host's links are those of its topology, in
// both directions, by the ways that pathsel and topo.Graph find; hosts of one Kind
// share the topology. Ports are cabled to leaves, leaves joined by spines. Which
// spine a connection crosses is a hash of its ports and its entropy, so that
// connections collide as they do with ECMP.
//
// Faults change links for a while: rate, loss, errors, latency, load by others, down.
// Jitter scales every flow's share by a factor drawn from the seed: 1 on average, never
// more than 1.5.
//
// An Engine is a scheduler core (internal/sched) of one host that lives in the
// cluster's time. A connection carries the slices of a lane one after the other, in
// each direction; a slice is done a round trip after its last byte left, if its answer
// gets through. A connection keeps the round trip time that it had when it was dialed.
//
// Equal seeds and equal calls give equal events, in the same order.
//
// # What it does not do
//
// There are no packets, no congestion control, no buffers that fill, no pauses that
// spread (PFC), no incast collapse: sharing is instantly and perfectly fair. Flows of
// one path are never reordered. Memory, processors and caches have no rate unless a
// link of the topology stands for it; a link of unknown rate limits nothing,
// unless KindOptions give one. A small message waits as in an M/D/1 queue and does not
// slow others down. Flows stay on their spine when another link of it dies or comes
// back: a connection finds another way when it is dialled again. The session
// between two engines is not modelled: a fence is answered after a round trip, if
// any pair of ports that a route knows can be crossed.
package sim
