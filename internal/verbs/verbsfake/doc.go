// Package verbsfake is a library of verbs without hardware, for tests: devices of one
// fabric in one process, which really move bytes between registered memory.
//
// It is C, because package verbs calls it as it calls libibverbs: through a table of
// functions, and from calls that promise not to come back into Go. One lock guards a
// fabric, and one thread moves the bytes, so that what is posted completes some time
// later, as with hardware.
//
// # What it is strict about
//
// Keys (each is used once, local and remote ones differ), ranges, access flags of regions
// and queue pairs, protection domains, the order of states and the exact attributes of
// each change, addresses (GID and type, LID and subnet, partition key), queue pair
// numbers and sequence numbers of both ends, path MTUs, READ depths on both sides, sizes of
// queues (a slot is free when its completion was polled), completion queues that overflow
// (dead for ever), events that must be acknowledged, objects that others stand on (EBUSY),
// memory that must be there when it is registered. What a failed completion does not
// define is filled with rubbish.
//
// # How things go wrong
//
// A responder that refuses sends its queue pair to ERR and tells why: remote access error
// (10) for keys, ranges and rights of a region, remote invalid request (9) for rights of
// the queue pair, MTU and READ depth. What gets no answer (cut, port down, no such queue
// pair, another sequence number) ends as retries exceeded (12) after Options.RetryAfter.
// The rest of the queue is flushed.
//
// A WRITE that is held is in the network: it has left its sender, and lands when it is
// released, whether its sender still exists or not, unless the responder's queue pair
// has been destroyed or is in ERR. A READ that is held lands while its own queue pair
// works. This is what fencing is for.
//
// # What it is not
//
// It has no packets: bytes of a request land at once. It knows no atomics, no receive
// queues, no memory windows, no address resolution, no credits or congestion.
package verbsfake
