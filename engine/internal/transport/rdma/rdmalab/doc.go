// Package rdma holds the tests of the engine over RDMA between two lab machines, with a
// real kernel below and real faults on the way: the transport's contract, a soak, late
// writes, several lanes at once, lanes that are lost, speed, the commands. They run
// inside (see test/vmlab).
//
// The tests run on machine 1. Machine 2 is the far end: it does what it is asked to over
// the management NIC, which no fault hits. Nobody's word counts for bytes: both regions
// have shadows on machine 1, which say what every byte must be.
package rdma
