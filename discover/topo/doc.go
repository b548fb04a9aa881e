// Package topo is the model of one host: its devices, how they are connected, and
// what follows from that. It reads nothing and has no clock. Package discover fills
// it from a machine, the packages below it from files of other tools, and tests by
// hand.
//
// A producer fills the node lists of a Topology, adds the links that only it
// knows (NVLink, C2C, xGMI), and calls Derive once. From then on Relate, Matrix
// and Graph answer how two devices relate, what rate to expect between them and
// which link sets it.
package topo
