// Package serve models a serving system that processes a workload: a router, instances that
// prefill and instances that decode (or do both), batches, KV memory in pages, and the
// caches that move between them. It is a state machine on a clock that the caller provides:
// virtual time over the simulator (Run), real time over the engine (kv/replay). A
// Compute model says how long computing takes, and a Mover how long moving takes.
//
// What is modelled: iterations (steps) of continuous batching; prompts whole or in chunks;
// first come first served; decode memory that is requested before, during or after the prefill;
// pages of a prompt that stay on the prefill side until they have been moved; preemption with
// recomputation where answers outgrow the memory; a prefix cache of whole blocks. What is not:
// events within a step (all sequences of a batch get their tokens at its end), swapping,
// speculative tokens, priorities, and messages between router and instances other than
// Config.HandoffNS.
//
// It is not safe for concurrent use: calls, callbacks of the clock and of the mover must come
// one after the other.
package serve
