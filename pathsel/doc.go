// Package pathsel decides which network ports carry data to and from a memory
// location, how several of them share one transfer, how all GPUs and NICs of a
// host share the load, and which ports of two hosts form lanes. Every decision
// is a record: what was chosen, how the others ranked, what was rejected and
// why, with the evidence.
//
// The package is pure: it reads a topology, opens nothing, knows no clock, and
// gives the same answer for the same input whatever its order.
//
// A Host is prepared once from a topology and answers many questions:
//
//	h, err := pathsel.New(t, pathsel.Options{})
//	a, err := h.Affinity("gpu:0", nil)     // which ports for this memory
//	c, err := h.Capacity("gpu:0", ports)   // what several ports carry together
//	p, err := h.Plan(nil)                  // all GPUs and NICs at once
//	pair, err := pathsel.Connect(h, peer, pathsel.PairOptions{})
//	s, err := pair.Lanes("gpu:0", "gpu:3") // lanes between two hosts
package pathsel
