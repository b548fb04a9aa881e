// Package topo is the model of one host: what is in it, how it hangs together,
// and what follows from that. It reads nothing and has no clock; package
// discover fills it from a machine, the packages below it from other tools'
// files, and tests by hand.
//
// A producer fills the node lists of a Topology, adds the links that only it
// knows (NVLink, C2C, xGMI), and calls Derive once. From then on Relate, Matrix
// and Graph answer how two devices relate, what rate to expect between them and
// which link sets it.
package topo
