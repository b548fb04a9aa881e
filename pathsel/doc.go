// Package pathsel decides which network ports carry data to and from a memory
// location, how several of them share one transfer, how all GPUs and NICs of a
// host share the load, and which ports of two hosts form lanes. Every decision
// is a record: what was chosen, how the others ranked, what was rejected and
// why, with the evidence.
//
// The package is pure: it reads a topology, opens nothing, knows no clock, and
// gives the same answer for the same input whatever its order.
//
// A Host is prepared once from a topology and answers many questions: Affinity says which
// ports a memory location should use, Capacity what several ports carry together, and Plan
// shares the ports among all GPUs. Connect joins two hosts to a Pair, whose Lanes says
// which ports of both a transfer should use.
package pathsel
