// Package bind is the engine as other languages see it: handles are numbers, memory is absolute
// addresses, peers are names. cmd/libtopoctl exports it as the C interface that
// cmd/libtopoctl/topoctl.h specifies; what is written there about calls holds for the methods here.
package bind
