// Package discovery holds the tests that compare what topoctl says of a lab machine with
// the hardware that was stated. They run inside (see test/vmlab).
package discovery
