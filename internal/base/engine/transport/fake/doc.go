// Package fake is a transport without a wire, for tests: the transports of one
// Network reach each other in one process, and each connection has a goroutine
// that copies between the regions of both sides. It keeps the contract of package
// transport to the letter, and lets a test decide what a real network decides:
// how fast a lane is, when it stands still, when it dies, and when a WRITE that
// was on the wire at that moment lands after all.
package fake
