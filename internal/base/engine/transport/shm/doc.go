// Package shm moves memory between engines of one host: the requester maps the
// peer's region and copies by itself.
//
// A region that was allocated as memory.Shared is a sealed memfd. The passive
// side listens at a Unix socket (SOCK_SEQPACKET) in a directory that only its
// user can enter. Dial is given a random ticket by the peer's Accept, over the
// authenticated session, and presents it there, once. Over that connection the
// active side asks for a region's descriptor when a request first names it, maps
// it, and from then on READs and WRITEs are copies: small ones inside Post, larger
// ones by the transport's workers, in pieces and past the cache
// (memory.Copy). The passive side takes no part and counts nothing.
//
// Memory of a GPU cannot be mapped. The requester maps a window in its place, slots of
// pinned memory that the passive side copies to the GPU and from it when it is asked to:
// see room, and gate for the requester's side.
//
// # What a peer gets
//
// The socket lets in processes of the same user and of root. Whoever holds a
// descriptor can map the region as it was granted: a region without PeerWrite is
// sealed against writing (F_SEAL_FUTURE_WRITE). There is no such seal against
// reading: a region that grants PeerWrite can be read by the same user's
// processes that were given it. Regions that grant nothing, and memory without a
// memfd (private, foreign), are refused: Register gives an empty key for those,
// Windowed for a GPU's, and Mapped for the others. A window holds what its connection moves and
// nothing else: no peer ever gets one that another has had.
//
// # The end of things
//
// When a region is closed, Deregister tells the peers that have mapped it. They
// unmap it after the copies that run, and refuse requests from then on. Nobody
// waits for them: the pages of a closed region belong to no other memory, so what
// lands there late is seen by nobody.
//
// Leave asks the requester to stop and waits for its answer, which comes after
// its last copy; or for the connection to end, which the requester (and the
// kernel, when its process dies) brings about only after the last copy too. A
// requester that does neither can still touch what it has mapped: Leave fails.
//
// A requester's copies never land late: completions come after the copy. Those of a device
// can, where the connection ends meanwhile; completions say so, and Leave waits for them.
package shm
