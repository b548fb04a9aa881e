// Package serve is a serving system that works off a workload: a router, instances that
// prefill and instances that decode (or that do both), batches, KV memory in pages, and the
// caches that move from one to the other. It is a state machine on somebody else's clock: over
// the simulator in virtual time (kv/predict), over the engine in real time. How long
// computing takes, a Compute model says; how long moving takes, a Mover does.
//
// What is modelled: iterations (steps) of continuous batching; prompts whole or in chunks;
// first come first served; memory that is asked for before, beside or after the prefill; pages
// of a prompt that stay on the prefill side until they were moved; preemption with
// recomputation where answers outgrow the memory; a prefix cache of whole blocks. What is not:
// what happens within a step (all sequences of a batch get their tokens at its end), swapping,
// speculative tokens, priorities, and messages between router and instances other than
// Config.HandoffNS.
//
// It is not safe for concurrent use: calls, callbacks of the clock and of the mover must come
// one after the other.
package serve
