// Package sim simulates transfers between many hosts in virtual time, for predictions of
// serving without the machines. It drives the same pathsel and internal/sched code as real
// transfers, and shares links by internal/maxmin as pathsel does.
//
// # Model
//
// A Net is directed links with a rate and a latency, and flows: streams of bytes
// along a path. Flows that want more than a link has share it max-min fairly. Rates
// hold until something changes: a flow begins or ends, a port goes down or comes up.
// Then the new shares hold at once, for all flows that the change can reach.
//
// A Cluster is hosts and a Fabric. A host's links are those of its topology, in
// both directions, by the ways that pathsel and topo.Graph find; hosts of one Kind
// share the topology. Ports are cabled to leaves, leaves joined by spines. Which
// spine a connection crosses is a hash of its ports and its entropy, so that
// connections collide as they do with ECMP.
//
// An Engine is a scheduler core (internal/sched) of one host that lives in the
// cluster's time. A connection carries the slices of a lane one after the other, in
// each direction; a slice is done a round trip after its last byte left, if its answer
// gets through. A connection keeps the round trip time that it had when it was dialed.
//
// Equal seeds and equal calls give equal results.
//
// # What it does not do
//
// There are no packets, no congestion control, no buffers that fill, no pauses that
// spread (PFC), no incast collapse: sharing is instantly and perfectly fair. Flows of
// one path are never reordered. Memory, processors and caches have no rate unless a
// link of the topology stands for it; a link of unknown rate limits nothing. The session
// between two engines is not modelled: a fence is answered after a round trip, if
// any pair of ports that a route knows can be crossed.
package sim
