// Package engine moves memory between hosts, over many NICs at once.
//
// An Engine owns regions of memory outside Go's heap and opens peers. A batch of
// one-sided READs and WRITEs is cut into slices, and each slice goes over the
// lane (local port, remote port) that will finish it first: over several NICs, RDMA,
// TCP, or through shared memory on one host. A NIC that dies costs bandwidth: its
// slices are sent again over the others, and no buffer is released while the network
// can still touch it.
//
// The package's example moves bytes from one engine's region into another's. An engine
// knows its host's NICs from Options.Ports (see the example there); package topoctl, at
// the root of the module, finds them and all transports by itself.
//
// Contexts: New's bounds the making of the engine, Submit's the whole batch, Wait's only
// the waiting. A batch's Done is closed when nothing can touch its local buffers any
// more; its error wraps ErrUnsafeBuffer if bytes may still land at the peer.
//
// Whoever wants to move memory opens a peer; the other side only offers regions, receives
// notifications and answers calls. A Peer that was lost or has restarted does not come
// back; a Target opens it again. No fallback is silent: it is counted in Stats, logged once and
// reported by Explain.
//
// # Files
//
// In the order of a WRITE: options.go, engine.go (New and Close) and transports.go; region.go,
// with describe.go for what peers are told; register.go (the registry), peer.go (Open), target.go and remote.go;
// submit.go and overlap.go (what a batch may be); routes.go and lanes.go (how it can go), with
// topology.go; batch.go; move.go (steps of the scheduler, and the slices that it posts) and conn.go;
// at the peer, serve.go and permit.go; at the end, check.go (digests) and fence.go. explain.go,
// stats.go and errors.go tell of it.
package engine
