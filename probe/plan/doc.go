// Package plan says which pairs of ends there are to measure, what each should carry
// and why, and which of them are measured at the same time.
//
//	pairs, err := plan.Local(t, plan.LocalOptions{})     // of one host
//	pairs, err := plan.Fabric(hosts, plan.FabricOptions{}) // of many
//	p, err := plan.Make(pairs, plan.Options{Spec: spec})
//	for _, round := range p.Rounds { ... p.Pairs.Pairs[round[0]] ... }
//
// Bytes go from From to To. Of a memory pair From is the NUMA node of the memory and
// To that of the CPUs, also where they copy: then both buffers lie in From's memory.
// Of a port pair the memory at both ends is that of End.Location.
//
// The package is pure: it opens nothing, knows no clock, and gives the same answer for
// the same input whatever its order.
package plan
