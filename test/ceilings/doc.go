// Package ceilings compares what "topoctl probe local" says of this machine with C programs
// that do the same with nothing in between, in turns within one run: memory with one like
// STREAM, TCP over loopback with one on raw sockets. Such figures need the machine for
// themselves: without TOPOCTL_PROBE=alone the tests are skipped.
package ceilings
